//! One world of a pair: its ids and fences, and its answers as comparable text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use tenure_core::store::{Claim, Filter, KeyState, Rest, Settle, Settlement, StoreError};
use tenure_core::{
    Event, Fence, Held, Item, ItemId, NewEvent, OnDead, Outcome, Priority, Record, State,
    Timestamp, Token,
};

use super::script::{KEYS, New, OutcomeKind};
use crate::world::{T0, World, fresh, ranked_events};

/// The layouts of the two worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Both have the queue layout.
    Queue,
    /// Both have the row layout.
    Rows,
    /// The first has the queue layout and the second the row layout.
    Mixed,
}

/// One of the two worlds, with its ids and fences in order of appearance.
pub(super) struct Twin {
    pub(super) world: Box<dyn World>,
    pub(super) ids: Vec<ItemId>,
    pub(super) fences: Vec<Fence>,
}

/// A claim, and its items in the first world.
#[derive(Clone)]
pub(super) struct Claimed {
    pub(super) token: Token,
    pub(super) fence: Option<Fence>,
    pub(super) items: Vec<usize>,
}

/// A settle with the numbers of the claim and of the items in place of token and ids.
#[derive(Clone)]
pub(super) struct Resolved {
    pub(super) claim: usize,
    pub(super) items: Vec<(usize, OutcomeKind)>,
    pub(super) rest: Rest,
    pub(super) strict: bool,
    pub(super) on_dead: OnDead,
}

impl Twin {
    pub(super) fn new(world: Box<dyn World>) -> Self {
        Self {
            world,
            ids: Vec::new(),
            fences: Vec::new(),
        }
    }

    pub(super) fn number(&self, id: ItemId) -> usize {
        let position = self.ids.iter().position(|known| *known == id);
        position.unwrap_or_else(|| panic!("item {id} was never added"))
    }

    pub(super) fn numbers(&self, ids: &[ItemId]) -> Vec<usize> {
        ids.iter().map(|id| self.number(*id)).collect()
    }

    /// The rank of a fence in order of appearance; a new fence must be the highest.
    pub(super) fn fence(&mut self, fence: Fence) -> usize {
        if let Some(position) = self.fences.iter().position(|known| *known == fence) {
            return position;
        }
        assert!(
            self.fences.iter().all(|known| *known < fence),
            "a fence went back"
        );
        self.fences.push(fence);
        self.fences.len() - 1
    }

    pub(super) async fn add(&mut self, first: u32, new: &[New]) {
        let ranks: Vec<u32> = (first..).take(new.len()).collect();
        if new.iter().all(|item| item.key.is_none()) {
            self.ids.extend(self.world.add_ranked(&ranks).await);
            return;
        }
        let events = ranked_events(&ranks).into_iter().zip(new);
        let events: Vec<Event> = events
            .map(|(event, item)| match item.key.map(key_name) {
                None => event,
                Some(key) if item.is_urgent => {
                    let keyed = NewEvent::from(event).key(&key);
                    let urgent = keyed.priority(Priority::MAX.level());
                    urgent.build().expect("a key")
                }
                Some(key) => NewEvent::from(event).key(&key).build().expect("a key"),
            })
            .collect();
        let outbox = self.world.outbox().expect("the queue layout");
        let answers = outbox.enqueue(&events).await.expect("enqueue");
        self.ids.extend(answers.iter().map(|answer| answer.id()));
    }

    pub(super) fn held(
        &mut self,
        answer: Result<Option<Held>, StoreError>,
        way: Way,
        keys: &[Option<u8>],
    ) -> String {
        match answer {
            Err(error) => format!("{:?}\n", error.kind()),
            Ok(None) => "nothing\n".into(),
            Ok(Some(held)) => {
                let fence = self.fence(held.lease.fence);
                let span = (held.lease.claimed_at, held.lease.until);
                let mut text = format!("{} {fence} {span:?}\n", held.lease.token);
                let mut items = held.items;
                if way == Way::Mixed {
                    items.sort_by_key(|item| item.id);
                }
                // The items of a run may be anywhere in the answer, as long as they follow their
                // head in order.
                let mut seen: BTreeMap<u8, ItemId> = BTreeMap::new();
                let mut follows = |item: &Item| {
                    let key = keys[self.number(item.id)]?;
                    let before = seen.insert(key, item.id)?;
                    assert!(before < item.id, "a run is out of order");
                    Some(item.id)
                };
                let ranks: Vec<Option<ItemId>> = items.iter().map(&mut follows).collect();
                let mut items: Vec<_> = ranks.into_iter().zip(items).collect();
                items.sort_by_key(|(follows, _)| *follows);
                let items = items.into_iter().map(|(_, item)| item);
                for item in items {
                    let number = self.number(item.id);
                    let line = (number, since_start(item.available_at), item.counters);
                    writeln!(text, "claimed {line:?}").expect("text");
                }
                text
            }
        }
    }

    pub(super) fn settle(&self, token: &Token, settle: &Resolved, now: Timestamp) -> Settle {
        let ask = Settle::new(token.clone()).rest(settle.rest).at(now);
        let mut ask = ask.on_dead(settle.on_dead);
        for (nth, word) in &settle.items {
            ask = ask.item(self.ids[*nth], outcome(*word));
        }
        if settle.strict { ask.strict() } else { ask }
    }

    pub(super) fn settlement(&self, answer: &Settlement, skipped: &BTreeSet<usize>) -> String {
        let mut text = String::new();
        for (id, answer) in &answer.items {
            let number = self.number(*id);
            if !skipped.contains(&number) {
                writeln!(text, "settled {number}: {answer:?}").expect("text");
            }
        }
        // The text leaves out lateness, which is reported only if items were settled; the items
        // show that.
        writeln!(text, "rest {}", answer.rest).expect("text");
        text
    }

    pub(super) async fn holds_any(&self, claimed: &Claimed) -> bool {
        let records = self.records().await;
        let fence = |record: &Record| record.hold.as_ref().map(|hold| hold.fence);
        claimed.fence.is_some() && records.iter().any(|record| fence(record) == claimed.fence)
    }

    pub(super) async fn records(&self) -> Vec<Record> {
        let records = self.world.operate().find(&self.ids).await;
        records.expect("find")
    }

    pub(super) async fn record(&self, nth: usize) -> Record {
        let records = self.world.operate().find(&[self.ids[nth]]).await;
        records.expect("find").remove(0)
    }

    /// The states of all items.
    pub(super) async fn state(&mut self, way: Way) -> String {
        let records = self.records().await;
        let mut lines = BTreeMap::new();
        for record in records {
            let number = self.number(record.id);
            let hold = record.hold.as_ref().map(|hold| {
                let span = (hold.claimed_at, hold.until);
                (hold.holder.clone(), self.fence(hold.fence), span)
            });
            let available_at = record.available_at.and_then(since_start);
            let available_at = available_at.filter(|_| record.state == State::Pending);
            let reason = record.dead_reason.filter(|_| way == Way::Queue);
            let settled = (record.done_at, record.dead_at, reason, record.last_error);
            let line = (record.state, available_at, record.counters, hold, settled);
            lines.insert(number, format!("{line:?}"));
        }
        let mut text = String::new();
        for (number, line) in lines {
            writeln!(text, "{number}: {line}").expect("text");
        }
        if way == Way::Queue {
            text += &self.keys().await;
        }
        text
    }

    /// The states, counts and lists of all keys. A claim without due items runs first, because on
    /// PostgreSQL a claim chooses the heads.
    async fn keys(&self) -> String {
        let claim = Claim::new(fresh("placer"), 1).recovery(None);
        let claim = claim.at(Timestamp::from_micros(0));
        assert_eq!(self.world.lease().claim(&claim).await.expect("claim"), None);
        let outbox = self.world.outbox().expect("the queue layout");
        let counts = outbox.count(Some(T0)).await.expect("count");
        let places = (counts.pending(), counts.claimed, counts.done, counts.dead);
        let behind: u64 = counts.queues.iter().map(|(_, queue)| queue.behind).sum();
        let mut text = format!("{places:?} {behind}\n");
        for number in 0..KEYS {
            let filter = Filter {
                key: Some(key_name(number)),
                state: Some(State::Pending),
                ..Filter::default()
            };
            let page = outbox.list(&filter, 1000).await.expect("list");
            let ids: Vec<ItemId> = page.records.iter().map(|record| record.id).collect();
            let key = outbox.key(&key_name(number)).await.expect("key");
            // The clocks differ, so a head may be due in one world and not yet in the other.
            let standing = key.map(|key| {
                let is_delayed = key.state == KeyState::Delayed;
                let state = if is_delayed { KeyState::Due } else { key.state };
                let head = key.head.map(|head| self.number(head.id));
                (state, head, key.waiting)
            });
            let standing = standing.filter(|(state, _, _)| *state != KeyState::Idle);
            let line = (number, self.numbers(&ids), standing);
            writeln!(text, "key {line:?}").expect("text");
        }
        text
    }
}

/// The ordering key with this number.
pub(super) fn key_name(key: u8) -> String {
    format!("customer-{key}")
}

/// A time since the start of the script; `None` for earlier times, which come from the store's own
/// clock.
pub(super) fn since_start(moment: Timestamp) -> Option<Timestamp> {
    (moment >= T0).then_some(moment)
}

fn outcome(word: OutcomeKind) -> Outcome {
    match word {
        OutcomeKind::Done => Outcome::Done,
        OutcomeKind::Retry(seconds) => crate::world::retry(seconds),
        OutcomeKind::Dead => crate::world::dead(),
        OutcomeKind::Release(seconds) => Outcome::Release {
            after: Duration::from_secs(seconds),
        },
    }
}
