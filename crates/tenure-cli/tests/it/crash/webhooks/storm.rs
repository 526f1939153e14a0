//! A storm: workers that are killed and stopped, a database that is killed, and three endpoints,
//! one slow, one failing, one whose events have keys. Nothing is lost, and every repeat is
//! explained by the checker that the other crash tests have, which reads a history per endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::webhook::AttemptOutcome;
use tenure::webhook::verify::{Freshness, Latest, Verified};
use tenure::{Filter, ItemId, LapsePolicy, Record, State, Tenure};

use super::receiver::{Answer, Receiver, Taken};
use super::site::Site;
use crate::crash::checker::{Summary, check};
use crate::crash::history::{Bounds, Fault, Harm, History, Receipt, Serial, Told};
use crate::crash::load::{Intake, Load};
use crate::crash::nemesis::Nemesis;
use crate::crash::world::{World, within};
use crate::crash::{TERM, listed, say, settled, stored_of};

/// Workers of a run.
const WORKERS: usize = 3;
/// More lapses than any delivery has in a run.
const MAX_CRASHES: u32 = 50;
/// How long a delivery may wait that lapsed often, once all is well again.
const SETTLED_MAX: Duration = Duration::from_mins(2);
/// The endpoints, and the topic that each wants.
const ENDPOINTS: [(&str, &str); 3] = [("slow", "plain"), ("failing", "plain"), ("keyed", "keyed")];

/// Proves: S2-024, S2-040, S2-041, S2-044, S2-061
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_survive_kills_pauses_and_a_killed_postgres() {
    stormed(World::postgres().await, "webhooks on PostgreSQL").await;
}

/// Proves: S2-024, S2-040, S2-041, S2-044, S2-061
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_survive_kills_and_pauses_on_sqlite() {
    stormed(World::sqlite(), "webhooks on SQLite").await;
}

/// How each endpoint answers.
fn manner(endpoint: &str, call: &Verified, before: usize) -> Answer {
    let fence = call.fence.map_or(0, |fence| fence.number().unsigned_abs());
    match (endpoint, call.id.bytes().last()) {
        ("slow", _) => Answer::Late(Duration::from_millis(300 + fence * 37 % 600)),
        // A quarter of the messages, at their first call.
        ("failing", Some(b'0' | b'5')) if before == 0 => Answer::Status(500),
        ("failing", Some(b'a' | b'f')) if before == 0 => Answer::Cut(Duration::ZERO),
        ("keyed", _) => Answer::Late(Duration::from_millis(100 + fence * 37 % 300)),
        _ => Answer::Late(Duration::from_millis(20)),
    }
}

async fn stormed(world: World, name: &str) {
    let usual = Nemesis::from_environment();
    let nemesis = Nemesis {
        kills: usual.kills / 2,
        pauses: usual.pauses / 2,
        ..usual
    };
    say(&format!("{name}: {nemesis:?}"));
    let mut site = Site::new(world, Receiver::start(manner), TERM).await;
    for (endpoint, topic) in ENDPOINTS {
        let schedule = "1s,1s,1s,1s,1s,1s,1s,1s,1s,1s";
        site.add(endpoint, &["--topics", topic, "--schedule", schedule]);
    }
    site.world.crew(WORKERS, &[]).await;
    let mut intake = Intake::default();
    let is_loaded = AtomicBool::new(true);
    tokio::join!(
        intake.run(&site.tenure, (Load::Owed, nemesis.seed), &is_loaded),
        async {
            nemesis.run(&site.world).await;
            is_loaded.store(false, Ordering::Relaxed);
        }
    );
    settled(&site.tenure).await;
    all_sent(&site.tenure).await;
    let told = site.world.end().await;

    let events = events(&site, &intake).await;
    let mut whole = Summary::default();
    for (endpoint, topic) in ENDPOINTS {
        let wanted = events.iter().filter(|(_, event)| event.1 == topic);
        let wanted = wanted.map(|(serial, event)| (*serial, event.0)).collect();
        let deliveries = deliveries(&site.tenure, endpoint).await;
        let calls: Vec<_> = site.receiver.calls();
        let calls: Vec<_> = calls.iter().filter(|c| c.endpoint == endpoint).collect();
        let whole_calls = calls.iter().filter(|call| !is_resent(call, &calls));
        let calls: Vec<_> = whole_calls.copied().collect();
        let told = told.clone();
        let history = history(&site, (&deliveries, &calls), wanted, told).await;
        let (violations, summary) = check(&history);
        say(&format!("{name}, {endpoint}: {summary}"));
        let text = listed(&violations, &history);
        assert!(violations.is_empty(), "{nemesis:?}, {endpoint}: {text}");
        every_call_is_on_record(&site.tenure, &deliveries, &calls).await;
        if endpoint == "keyed" {
            is_taken_in_order(&deliveries, &calls);
        }
        assert_eq!(history.failed.is_empty(), endpoint != "failing");
        whole.hits += summary.hits;
        whole.duplicates += summary.duplicates;
    }
    assert!(
        whole.hits > 0 && whole.duplicates > 0,
        "{nemesis:?}: {whole}"
    );
    site.keeps_secrets();
}

/// Waits until nothing is owed any more.
async fn all_sent(tenure: &Tenure) {
    within(SETTLED_MAX, async || {
        for state in [State::Claimed, State::Pending] {
            let filter = Filter {
                state: Some(state),
                ..Filter::default()
            };
            if !tenure.deliveries(&filter, 1).await.ok()?.records.is_empty() {
                return None;
            }
        }
        Some(())
    })
    .await;
}

/// The handle and the topic of each event, by its serial. What was written for sure is there.
async fn events(site: &Site, intake: &Intake) -> BTreeMap<Serial, (ItemId, String)> {
    let mut found = BTreeMap::new();
    let mut filter = Filter::default();
    loop {
        let page = site.tenure.list(&filter, Filter::PAGE_MAX).await.unwrap();
        for record in page.records {
            assert_eq!(record.state, State::Done, "{record:?}");
            let event = record.content.event().unwrap();
            let serial = event.payload().parse().unwrap();
            let before = found.insert(serial, (record.id, event.topic().to_owned()));
            assert_eq!(before, None, "{serial} is there twice");
        }
        if page.next.is_none() {
            break;
        }
        filter.before = page.next;
    }
    for (serial, id) in &intake.written {
        assert_eq!(found.get(serial).map(|event| event.0.number()), Some(*id));
    }
    found
}

/// All that was ever owed to an endpoint.
async fn deliveries(tenure: &Tenure, endpoint: &str) -> Vec<Record> {
    let known = tenure.endpoints_by_number().await.unwrap();
    let known = known.values().find(|it| it.id.as_str() == endpoint);
    let mut filter = Filter {
        endpoint: Some(known.unwrap().number),
        ..Filter::default()
    };
    let mut all = Vec::new();
    loop {
        let page = tenure.deliveries(&filter, Filter::PAGE_MAX).await.unwrap();
        all.extend(page.records);
        if page.next.is_none() {
            return all;
        }
        filter.before = page.next;
    }
}

/// Whether a call was cut off at once and came again under the same hold: the caller takes that for
/// a connection that was closed before the call. It counts as one.
fn is_resent(call: &Taken, calls: &[&Taken]) -> bool {
    let mut others = calls.iter();
    let name = |call: &Taken| (call.call.id.clone(), call.fence());
    call.is_cut && others.any(|other| !other.is_cut && name(other) == name(call))
}

/// What is left of the run at one endpoint, of which these events are wanted.
async fn history(
    site: &Site,
    (deliveries, calls): (&[Record], &[&Taken]),
    wanted: BTreeMap<Serial, ItemId>,
    told: Vec<Told>,
) -> History {
    let by_source: BTreeMap<ItemId, ItemId> = deliveries
        .iter()
        .filter_map(|record| Some((record.content.delivery()?.source, record.id)))
        .collect();
    // One that is owed and was never written has no number.
    let owed = |event: ItemId| by_source.get(&event).map_or(-1, |id| id.number());
    let ids = by_message(deliveries);
    let receipt = |taken: &&Taken| Receipt {
        id: ids
            .get(&taken.call.id)
            .map_or(-1, |record| record.id.number()),
        event_id: taken.call.id.parse().unwrap(),
        fence: taken.fence(),
        attempt: usize::try_from(taken.attempt()).unwrap(),
    };
    let failed = calls.iter().filter(|taken| taken.is_failed());
    let failed = failed.map(receipt).map(|it| (it.id, it.fence)).collect();
    let mut events = Vec::new();
    for record in deliveries {
        let holds = site.tenure.timeline(record.id).await.unwrap();
        let mut stored = stored_of(record.clone(), holds);
        for hold in &mut stored.holds {
            hold.holder = process(&hold.holder);
        }
        events.push(stored);
    }
    let delays = LapsePolicy::default().delays().to_vec();
    let told = told.into_iter().map(|told| Told {
        holder: process(&told.holder),
        ..told
    });
    History {
        bounds: Bounds {
            term: TERM,
            reaper: TERM / 3,
            lapse: LapsePolicy::new(MAX_CRASHES, delays).unwrap(),
        },
        written: wanted
            .into_iter()
            .map(|(serial, id)| (serial, owed(id)))
            .collect(),
        unknown: BTreeSet::new(),
        events,
        received: calls.iter().map(receipt).collect(),
        faults: site.world.faults().into_iter().map(of_process).collect(),
        told: told.collect(),
        until: BTreeMap::new(),
        unreceived: BTreeSet::new(),
        failed,
        ended: site.world.ended(),
    }
}

fn by_message(deliveries: &[Record]) -> BTreeMap<String, &Record> {
    let known = deliveries.iter().filter_map(|record| {
        let message = record.content.event()?.event_id()?;
        Some((message.to_string(), record))
    });
    known.collect()
}

/// The name of the process that a worker is part of: it has a relay and a sender.
fn process(worker: &str) -> String {
    worker.split('-').next().unwrap_or_default().to_owned()
}

fn of_process(fault: Fault) -> Fault {
    let what = match fault.what {
        Harm::Killed(holder) => Harm::Killed(process(&holder)),
        Harm::Paused(holder) => Harm::Paused(process(&holder)),
        Harm::Outage => Harm::Outage,
    };
    Fault { what, ..fault }
}

/// Each call is an attempt on record, and the one that was taken for delivered was.
async fn every_call_is_on_record(tenure: &Tenure, deliveries: &[Record], calls: &[&Taken]) {
    for (message, record) in by_message(deliveries) {
        let of_it: Vec<_> = calls.iter().filter(|it| it.call.id == message).collect();
        if of_it.len() == 1 && record.counters.attempts == 0 {
            continue;
        }
        let attempts = tenure.attempts(record.id).await.unwrap();
        let said = |fence: i64| {
            let mut attempts = attempts.iter();
            let found = attempts.find(|attempt| attempt.fence.number() == fence);
            found.map(|attempt| attempt.outcome)
        };
        for call in of_it {
            let outcome = said(call.fence());
            let is_right = match outcome {
                Some(AttemptOutcome::Delivered) => call.status == Some(200),
                Some(AttemptOutcome::Failed) => call.is_failed(),
                Some(
                    AttemptOutcome::Unknown | AttemptOutcome::Superseded | AttemptOutcome::Aborted,
                ) => true,
                Some(AttemptOutcome::Open) | None => false,
            };
            assert!(is_right, "{outcome:?} of {call:?}: {attempts:?}");
        }
        let delivered = attempts.iter();
        let delivered = delivered.filter(|it| it.outcome == AttemptOutcome::Delivered);
        assert_eq!(delivered.count(), 1, "{attempts:?}");
    }
}

/// A receiver that looks at fences and sequences takes each message once, in the order of its key.
fn is_taken_in_order(deliveries: &[Record], calls: &[&Taken]) {
    let known = by_message(deliveries);
    let mut latest = Latest::new(10_000);
    let mut taken: BTreeMap<&str, Vec<Serial>> = BTreeMap::new();
    for call in calls {
        let event = known[&call.call.id].content.event().unwrap();
        let key = event.ordering_key().unwrap();
        assert!(call.call.sequence.is_some());
        if latest.judge(&call.call, Some(key)) == Freshness::New {
            latest.remember(&call.call, Some(key));
            let serial = event.payload().parse().unwrap();
            taken.entry(key).or_default().push(serial);
        }
    }
    for (key, serials) in &taken {
        let in_order = serials.is_sorted_by(|one, other| one < other);
        assert!(in_order, "{key}: {serials:?}");
    }
    let number: usize = taken.values().map(Vec::len).sum();
    assert_eq!(number, deliveries.len(), "nothing was left out");
}
