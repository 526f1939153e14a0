//! Twins for deliveries, with separate scripts, because a delivery comes from a settle and not from
//! a producer. After every step all visible facts of deliveries must be the same.

use std::fmt::Write as _;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tenure_core::store::{
    Bury, ChangeEndpoint, Claim, EndpointLane, Filter, Kind, Prune, Reap, Replay, Settle, Store,
};
use tenure_core::webhook::{
    AttemptOutcome, Call, Disabled, Endpoint, EndpointId, EndpointSettings, EndpointState,
    NewEndpoint, Reply,
};
use tenure_core::{
    Event, Fence, Guarded, Held, ItemId, NewEvent, Outcome, Record, Timestamp, Token, TopicPattern,
};

use super::{Made, Make};
use crate::world::{self, T0, World, at_once, dead, retry, token};

const NAMES: [&str; 3] = ["billing", "audit", "mail"];
const PATTERNS: [&str; 3] = ["*", "order.*", "mail.sent"];
const TOPICS: [&str; 3] = ["order.paid", "mail.sent", "tenure.test"];

#[derive(Clone, Debug)]
enum Verb {
    /// Adds or changes an endpoint: its topics and its state.
    Set(usize, usize, u8),
    /// Publishes events with these topics and keys. With the flag, each settle is repeated, and the
    /// very first event is replayed.
    Publish(Vec<(usize, Option<u8>)>, bool),
    /// Claims this many deliveries from each reported lane, in order or reversed.
    Claim(u32, u32, bool),
    /// Settles a claim, counted from the last, with these outcomes in turn.
    Settle(usize, Vec<u8>),
    Reap,
    Replay(usize),
    Bury(usize),
    Prune(u64),
}

fn script() -> impl Strategy<Value = Vec<(u64, Verb)>> {
    let event = (0..3_usize, proptest::option::of(0..2_u8));
    let item = 0..1000_usize;
    let claim = (0..3_usize, vec(0..5_u8, 1..4));
    let verb = prop_oneof![
        2 => (0..3_usize, 0..3_usize, 0..6_u8).prop_map(|(a, b, c)| Verb::Set(a, b, c)),
        4 => (vec(event, 1..4), any::<bool>()).prop_map(|(a, b)| Verb::Publish(a, b)),
        4 => (1..6_u32, 1..4_u32, any::<bool>()).prop_map(|(a, b, c)| Verb::Claim(a, b, c)),
        4 => claim.prop_map(|(a, b)| Verb::Settle(a, b)),
        2 => Just(Verb::Reap),
        1 => item.clone().prop_map(Verb::Replay),
        1 => item.prop_map(Verb::Bury),
        1 => (0..100_u64).prop_map(Verb::Prune),
    ];
    vec((0..40_u64, verb), 5..40)
}

/// One of the two stores, and its state so far.
struct Side {
    world: Box<dyn World>,
    now: Timestamp,
    claims: Vec<Held>,
    /// Endpoint numbers, ids and fences are in order of appearance.
    endpoints: Vec<u32>,
    events: Vec<ItemId>,
    fences: Vec<Fence>,
    tokens: u64,
}

impl Side {
    fn new(world: Box<dyn World>) -> Self {
        Self {
            world,
            now: T0,
            claims: Vec::new(),
            endpoints: Vec::new(),
            events: Vec::new(),
            fences: Vec::new(),
            tokens: 0,
        }
    }

    fn store(&self) -> &dyn Store {
        self.world.outbox().expect("the queue layout")
    }

    fn token(&mut self, worker: &str) -> Token {
        self.tokens += 1;
        token(worker, self.tokens)
    }

    async fn run(&mut self, verb: &Verb) -> String {
        match verb {
            Verb::Set(name, topics, state) => self.set(*name, *topics, *state).await,
            Verb::Publish(events, repeats) => self.publish(events, *repeats).await,
            Verb::Claim(limit, each, reversed) => self.claim(*limit, *each, *reversed).await,
            Verb::Settle(nth, words) => self.settle(*nth, words).await,
            Verb::Reap => {
                let reap = Reap::new(1000, at_once()).at(self.now);
                let reaped = self.world.reap(reap).await;
                format!("reaped {}", reaped.len())
            }
            Verb::Replay(nth) => {
                let Some(id) = self.nth(*nth).await else {
                    return String::new();
                };
                let replay = Replay::new(vec![id]).at(self.now);
                let answer = self.store().replay(&replay).await.expect("replay");
                format!("replayed {:?}", answer[0].1)
            }
            Verb::Bury(nth) => {
                let Some(id) = self.nth(*nth).await else {
                    return String::new();
                };
                let bury = Bury::new(id, self.token("operator"), "gone").at(self.now);
                let answer = self.store().bury(&bury).await.expect("bury");
                format!("buried {answer:?}")
            }
            Verb::Prune(seconds) => self.prune(*seconds).await,
        }
    }

    /// Runs a claim at a time when no item is due: on PostgreSQL, claims choose the heads of keys.
    async fn place(&mut self) {
        let claim = Claim::new(self.token("placer"), 1).recovery(None);
        let held = self
            .world
            .try_claim(claim.at(Timestamp::from_micros(0)))
            .await;
        assert_eq!(held, None);
    }

    /// The nth delivery by event and endpoint, modulo their count; `None` if there are none.
    async fn nth(&self, nth: usize) -> Option<ItemId> {
        let mut records = self.records().await;
        records.sort_by_key(|record| self.name(record));
        let records = records.get(nth % records.len().max(1));
        records.map(|record| record.id)
    }

    async fn set(&mut self, name: usize, topics: usize, state: u8) -> String {
        let id = EndpointId::new(NAMES[name]).expect("a name");
        let pattern = TopicPattern::new(PATTERNS[topics]).expect("a pattern");
        let settings = EndpointSettings::new("https://example.com", vec![pattern]);
        let hooks = self.store().webhooks();
        let seen = hooks.endpoint(&id).await.expect("endpoint");
        let Some(Endpoint { version, .. }) = seen else {
            let new = NewEndpoint {
                id,
                settings,
                sealed: "sealed".into(),
            };
            let added = hooks.add_endpoint(&new, Some(self.now)).await;
            let added = added.expect("add endpoint").expect("it is new");
            self.endpoints.push(added.number);
            return "added".into();
        };
        let since = T0;
        let state = match state {
            0 => EndpointState::Disabled {
                why: Disabled::Failing,
                since,
            },
            1 => EndpointState::Removed { since },
            _ => EndpointState::Enabled,
        };
        let change = ChangeEndpoint {
            id,
            version,
            settings,
            sealed: "sealed".into(),
            state,
            now: Some(self.now),
        };
        let answer = hooks.change_endpoint(&change).await.expect("change");
        match answer {
            Guarded::Accepted(endpoint) => format!("changed {:?}", endpoint.state),
            Guarded::Refused(why) => format!("not changed: {why:?}"),
        }
    }

    async fn publish(&mut self, events: &[(usize, Option<u8>)], repeats: bool) -> String {
        let events: Vec<Event> = events
            .iter()
            .map(|(topic, key)| {
                let event = Event::from_json(TOPICS[*topic], "1").expect("an event");
                match key {
                    None => event,
                    Some(key) => NewEvent::from(event)
                        .key(&format!("key-{key}"))
                        .build()
                        .expect("a key"),
                }
            })
            .collect();
        let answers = self.store().enqueue(&events).await.expect("enqueue");
        self.events.extend(answers.iter().map(|answer| answer.id()));
        if let Some(first) = self.events.first().filter(|_| repeats) {
            // If the first event still exists, it is replayed and settled as done once more.
            let replay = Replay::new(vec![*first]).at(self.now);
            self.store().replay(&replay).await.expect("replay");
        }
        let mut done = 0;
        loop {
            let claim = Claim::new(self.token("relay"), 100)
                .recovery(None)
                .at(self.now);
            let Some(held) = self.world.try_claim(claim).await else {
                return format!("published {done}");
            };
            let mut settle = Settle::new(held.lease.token.clone()).done(held.ids());
            settle.fan_out = held
                .items
                .iter()
                .filter_map(|item| Some((item.id, item.content.event()?.topic().to_owned())))
                .collect();
            for _ in 0..=u8::from(repeats) {
                let answer = self.world.settle(settle.clone().at(self.now)).await;
                assert_eq!(answer.refused().count(), 0);
            }
            done += held.items.len();
        }
    }

    async fn claim(&mut self, limit: u32, each: u32, reversed: bool) -> String {
        let lanes = self.due().await;
        let mut lanes: Vec<(EndpointLane, u32)> = lanes
            .into_iter()
            .filter(|lane| lane.step != EndpointLane::ALONE)
            .map(|lane| (lane, each))
            .collect();
        if reversed {
            lanes.reverse();
        }
        if lanes.is_empty() {
            return "nothing is due".into();
        }
        let claim = Claim::new(self.token("sender"), limit).recovery(None);
        let held = self.world.try_claim(claim.lanes(lanes).at(self.now)).await;
        let held = held.expect("a lane is due");
        self.note(held.lease.fence);
        let mut names: Vec<_> = Vec::new();
        for record in self.find(&held.ids()).await {
            names.push(self.name(&record));
        }
        let text = format!("claimed {names:?}, full: {}", held.is_full);
        self.claims.push(held);
        text
    }

    async fn settle(&mut self, nth: usize, words: &[u8]) -> String {
        let back = nth % self.claims.len().max(1);
        let Some(held) = self.claims.iter().rev().nth(back).cloned() else {
            return String::new();
        };
        let mut records = self.find(&held.ids()).await;
        records.sort_by_key(|record| self.name(record));
        let mut settle = Settle::new(held.lease.token.clone()).at(self.now);
        for (record, word) in records.iter().zip(words.iter().cycle()) {
            let (outcome, ended) = match word {
                0 | 1 => (Outcome::Done, AttemptOutcome::Delivered),
                2 => (retry(10), AttemptOutcome::Failed),
                3 => (dead(), AttemptOutcome::Failed),
                _ => (Outcome::RELEASE, AttemptOutcome::Aborted),
            };
            settle = settle.item(record.id, outcome);
            settle.calls.push(Call {
                delivery: record.id,
                fence: held.lease.fence,
                attempt: 1,
                ago: Duration::from_secs(1),
                outcome: ended,
                reply: Some(Reply::status(200)),
            });
        }
        let answer = self.world.settle(settle).await;
        format!(
            "settled {:?}",
            answer.items.iter().map(|item| item.1).collect::<Vec<_>>()
        )
    }

    async fn prune(&self, seconds: u64) -> String {
        let span = Duration::from_secs(seconds);
        let prune = Prune::new(span, span).at(self.now);
        let mut gone = (0, 0);
        loop {
            let pruned = self.store().prune(&prune).await.expect("prune");
            gone = (gone.0 + pruned.done, gone.1 + pruned.dead);
            if pruned.done + pruned.dead == 0 {
                return format!("pruned {gone:?}");
            }
        }
    }

    fn note(&mut self, fence: Fence) {
        self.fences.push(fence);
    }

    async fn due(&self) -> Vec<EndpointLane> {
        let due = self.store().webhooks().due_deliveries(Some(self.now)).await;
        let mut lanes = due.expect("due deliveries").lanes;
        let place = |lane: &EndpointLane| self.endpoints.iter().position(|n| *n == lane.endpoint);
        lanes.sort_by_key(|lane| (place(lane), lane.step));
        lanes
    }

    async fn find(&self, ids: &[ItemId]) -> Vec<Record> {
        self.store().find(ids).await.expect("find")
    }

    async fn records(&self) -> Vec<Record> {
        let filter = Filter {
            kind: Kind::Deliveries,
            ..Filter::default()
        };
        let page = self.store().list(&filter, 1000).await;
        page.expect("list").records
    }

    /// A delivery by the numbers of its event and its endpoint.
    fn name(&self, record: &Record) -> (usize, usize) {
        let delivery = record.content.delivery().expect("a delivery");
        let event = self.events.iter().position(|id| *id == delivery.source);
        let endpoint = self.endpoints.iter().position(|n| *n == delivery.endpoint);
        (event.expect("its event"), endpoint.expect("its endpoint"))
    }

    /// All visible facts of deliveries.
    async fn view_of(&mut self) -> String {
        let mut lines = Vec::new();
        for record in self.records().await {
            let name = self.name(&record);
            let fence = |fence| self.fences.iter().position(|known| *known == fence);
            let calls = self
                .store()
                .webhooks()
                .calls(record.id)
                .await
                .expect("calls");
            let calls: Vec<_> = calls
                .iter()
                .map(|call| (fence(call.fence), call.began_at, call.outcome))
                .collect();
            let hold = record
                .hold
                .as_ref()
                .map(|hold| (fence(hold.fence), hold.until));
            let ends = (record.done_at, record.dead_at, &record.dead_reason);
            let facts = (record.state, record.counters, record.created_at);
            lines.push((name, format!("{facts:?} {hold:?} {ends:?} {calls:?}")));
        }
        lines.sort();
        let mut text = String::new();
        for (name, line) in lines {
            writeln!(text, "{name:?}: {line}").expect("text");
        }
        let counts = self.store().count(Some(self.now)).await.expect("count");
        let due = self.due().await.len();
        let mut of = counts.deliveries;
        for (number, _) in &mut of.endpoints {
            let place = self.endpoints.iter().position(|known| known == number);
            *number = u32::try_from(place.expect("an endpoint")).expect("a few");
        }
        writeln!(text, "{due} {of:?} {} {}", counts.done, counts.dead).expect("text");
        text
    }
}

fn difference(one: impl Make, other: impl Make, cases: u32) -> Option<String> {
    let config = Config {
        failure_persistence: None,
        max_shrink_iters: 100,
        ..Config::with_cases(cases)
    };
    let outcome = TestRunner::new(config).run(&script(), |steps| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let mut sides = [Side::new(one().await), Side::new(other().await)];
            for (nth, (wait, verb)) in steps.iter().enumerate() {
                let mut seen = Vec::new();
                for side in &mut sides {
                    side.now = side.now.after(Duration::from_micros(1 + wait * 500_000));
                    let answer = side.run(verb).await;
                    side.place().await;
                    seen.push(format!("{answer}\n{}", side.view_of().await));
                }
                if seen[0] != seen[1] {
                    let message = format!("step {nth}, {verb:?}:\n{}but\n{}", seen[0], seen[1]);
                    return Err(TestCaseError::fail(message));
                }
            }
            Ok(())
        })
    });
    outcome.err().map(|error| error.to_string())
}

/// If two memory stores differ, the comparison is wrong.
#[test]
fn two_memory_stores_give_the_same_answers_on_webhooks() {
    let memory = || -> Made { Box::pin(world::memory()) };
    assert_eq!(difference(memory, memory, 50), None);
}

/// A store with a fault in its deliveries must differ from a correct one.
#[test]
fn a_store_with_a_planted_fault_gives_another_answer_on_webhooks() {
    use crate::faults::{Fault, WebhookFault};
    for fault in WebhookFault::ALL {
        let memory = || -> Made { Box::pin(world::memory()) };
        let planted = || -> Made { Box::pin(async move { world::planted(Fault::Webhook(fault)) }) };
        let noticed = difference(memory, planted, 400);
        // These scripts name only done events for a fan-out, so they cannot show this fault.
        let is_blind = fault == WebhookFault::DeliveryForUndone;
        assert!(noticed.is_some() || is_blind, "{fault:?} was not noticed");
    }
}
