//! The endpoints of the storm: one slow, one failing, one for events with keys. Each has its own
//! history of deliveries and calls, which must pass the same rules as the history of the events.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::lease::Record;
use tenure::operate::Filter;
use tenure::webhook::{
    AttemptOutcome,
    verify::{Freshness, Latest, Verified},
};
use tenure::{State, Tenure};
use tenure_nemesis::{Effect, History, Id, Serial, Work};

use super::receiver::{Answer, Taken};
use super::site::Site;
use crate::crash::load::held_by;
use crate::crash::storm::{STORM_TERM, bounds, work};

/// The endpoints, each with its topic.
pub(in crate::crash) const ENDPOINTS: [(&str, &str); 3] =
    [("slow", "plain"), ("failing", "plain"), ("keyed", "keyed")];

/// The answer of each endpoint to a call.
pub(in crate::crash) fn manner(endpoint: &str, call: &Verified, before: usize) -> Answer {
    let fence = call.fence.map_or(0, |fence| fence.number().unsigned_abs());
    match (endpoint, call.id.bytes().last()) {
        ("slow", _) => Answer::Late(Duration::from_millis(300 + fence * 37 % 600)),
        // The first call fails for half of the messages.
        ("failing", Some(b'0'..=b'3')) if before == 0 => Answer::Status(500),
        ("failing", Some(b'4'..=b'7')) if before == 0 => Answer::Cut(Duration::ZERO),
        ("keyed", _) => Answer::Late(Duration::from_millis(100 + fence * 37 % 300)),
        _ => Answer::Late(Duration::from_millis(20)),
    }
}

/// Number of deliveries that are not settled; `None` when the store does not answer.
pub(in crate::crash) async fn open(tenure: &Tenure) -> Option<u64> {
    let mut open = 0;
    for state in [State::Claimed, State::Pending] {
        let filter = Filter {
            state: Some(state),
            ..Filter::default()
        };
        let page = tenure.deliveries(&filter, Filter::PAGE_MAX).await.ok()?;
        open += u64::try_from(page.records.len()).ok()?;
    }
    Some(open)
}

/// Returns true if the worker holds a delivery whose call waits for the answer of the slow
/// endpoint. False if the store does not answer.
pub(in crate::crash) async fn is_calling(site: &Site, worker: &str) -> bool {
    let Some(mut filter) = filter(&site.tenure, "slow").await else {
        return false;
    };
    filter.state = Some(State::Claimed);
    let page = site.tenure.deliveries(&filter, Filter::PAGE_MAX).await;
    let Ok(page) = page else { return false };
    let mut calls = site.receiver.calls();
    calls.retain(|call| call.endpoint == "slow" && call.status.is_none());
    by_message(&page.records)
        .into_iter()
        .any(|(message, record)| {
            let fence = held_by(record, worker);
            let mut calls = calls.iter();
            calls.any(|it| it.call.id == message && Some(it.fence()) == fence)
        })
}

/// Selects the deliveries of an endpoint; `None` if the store does not answer.
async fn filter(tenure: &Tenure, endpoint: &str) -> Option<Filter> {
    let known = tenure.endpoints_by_number().await.ok()?;
    let known = known.values().find(|it| it.id.as_str() == endpoint);
    Some(Filter {
        endpoint: Some(known?.number),
        ..Filter::default()
    })
}

/// All deliveries of an endpoint.
async fn deliveries(tenure: &Tenure, endpoint: &str) -> Vec<Record> {
    let mut filter = filter(tenure, endpoint).await.unwrap();
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

/// The history of one endpoint, built from the history of the events.
pub(in crate::crash) async fn delivered(
    site: &Site,
    endpoint: &str,
    events: &History,
    written: &BTreeMap<Serial, Id>,
) -> History {
    let deliveries = deliveries(&site.tenure, endpoint).await;
    let calls = site.receiver.calls();
    let calls: Vec<_> = calls.iter().filter(|c| c.endpoint == endpoint).collect();
    let whole = calls.iter().filter(|call| !is_resent(call, &calls));
    let calls: Vec<_> = whole.copied().collect();
    every_call_is_on_record(&site.tenure, &deliveries, &calls).await;
    if endpoint == "keyed" {
        is_taken_in_order(&deliveries, &calls);
    }

    let by_source: BTreeMap<Id, Id> = deliveries
        .iter()
        .filter_map(|record| {
            Some((
                record.content.delivery()?.source.number(),
                record.id.number(),
            ))
        })
        .collect();
    let ids = by_message(&deliveries);
    let effect = |taken: &&Taken| Effect {
        // A call without a delivery gets the id -1.
        id: ids.get(&taken.call.id).map_or(-1, |it| it.id.number()),
        event_id: taken.call.id.parse().ok(),
        fence: taken.fence(),
        attempt: usize::try_from(taken.attempt()).ok(),
    };
    let mut works = Vec::new();
    for record in &deliveries {
        let holds = site.tenure.timeline(record.id).await.unwrap();
        works.push(work(record, holds));
    }
    // Each event of the topic has a delivery, even if the producer got no answer to its enqueue.
    let (_, topic) = ENDPOINTS.into_iter().find(|it| it.0 == endpoint).unwrap();
    let wanted = events.works.iter().filter(|event| event.name == topic);
    let owed = |event: &Work| by_source.get(&event.id).copied().unwrap_or(-1);
    for event in wanted.clone() {
        let confirmed = written.get(&event.serial);
        assert!(confirmed.is_none_or(|id| *id == event.id), "{event:?}");
    }
    let failed = calls.iter().filter(|taken| taken.is_failed());
    History {
        bounds: bounds(STORM_TERM),
        written: wanted.map(|event| (event.serial, owed(event))).collect(),
        works,
        failed: failed.map(effect).map(|it| (it.id, it.fence)).collect(),
        effects: calls.iter().map(effect).collect(),
        faults: events.faults.clone(),
        losses: events.losses.clone(),
        ..History::default()
    }
}

/// Returns true if the receiver cut off a call at once and the caller repeated it under the same
/// lease: to the caller, the connection looks as if it was closed before the call. Both count as
/// one call.
fn is_resent(call: &Taken, calls: &[&Taken]) -> bool {
    let mut others = calls.iter();
    let name = |call: &Taken| (call.call.id.clone(), call.fence());
    call.is_cut && others.any(|other| !other.is_cut && name(other) == name(call))
}

fn by_message(deliveries: &[Record]) -> BTreeMap<String, &Record> {
    let known = deliveries.iter().filter_map(|record| {
        let message = record.content.event()?.event_id()?;
        Some((message.to_string(), record))
    });
    known.collect()
}

/// Asserts that each call has a recorded attempt, and that the receiver got the call recorded as
/// delivered.
async fn every_call_is_on_record(tenure: &Tenure, deliveries: &[Record], calls: &[&Taken]) {
    for (message, record) in by_message(deliveries) {
        let of_it: Vec<_> = calls.iter().filter(|it| it.call.id == message).collect();
        if of_it.len() == 1 && record.counters.attempts == 0 {
            continue;
        }
        let attempts = tenure.attempts(record.id).await.unwrap();
        let outcome = |fence: i64| {
            let mut attempts = attempts.iter();
            let attempt = attempts.find(|attempt| attempt.fence.number() == fence);
            attempt.map(|attempt| attempt.outcome)
        };
        for call in of_it {
            let outcome = outcome(call.fence());
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

/// Asserts that a receiver that checks fences and sequences accepts each message once, in the order
/// of its key.
fn is_taken_in_order(deliveries: &[Record], calls: &[&Taken]) {
    let known = by_message(deliveries);
    let mut latest = Latest::new(10_000);
    let mut taken: BTreeMap<&str, Vec<Serial>> = BTreeMap::new();
    for call in calls {
        let event = known[&call.call.id].content.event().unwrap();
        let key = event.key().unwrap();
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
