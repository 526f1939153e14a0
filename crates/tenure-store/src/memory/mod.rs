//! The in-memory store: the tables of the outbox (the queue layout) as maps, for tests and as a
//! model of the database stores.
//!
//! It calls the guards of the core directly, so its answers follow the rules. One mutex guards
//! everything and is never held across an await. Nothing outlives the process.

mod clock;
mod cluster;
mod delays;
#[cfg(feature = "testing")]
mod dump;
mod examine;
mod fan_out;
mod intake;
mod keys;
mod lease;
mod operate;
mod prune;
mod reap;
mod replays;
#[cfg_attr(
    not(feature = "testing"),
    expect(unreachable_pub, reason = "only tests of this crate replace a rule")
)]
mod rules;
mod settle;
mod spaces;
mod turns;
mod webhooks;
mod work_lease;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::store::{QueueRules, ReplayOperation};
use tenure_core::webhook::{CallRecord, Delivery};
use tenure_core::{
    Clock, Content, Counters, Event, Fence, ItemId, Lease, OutcomeKind, QueueName, SpaceName,
    State, Timestamp, Token,
};

pub use clock::SystemClock;
#[cfg(feature = "testing")]
pub use rules::{Fates, Rules};
#[cfg(feature = "testing")]
pub use work_lease::Decisions;
pub use work_lease::WorkLease;

use crate::error_text::error_text;
use crate::lane::{Lane, alone_lane, lane};
use cluster::ClusterState;
#[cfg(not(feature = "testing"))]
use rules::Rules;
use spaces::Space;
use turns::KeyOrder;
use webhooks::Endpoints;

/// A store that lives and dies with the process.
///
/// ```
/// use std::sync::Arc;
/// use tenure_core::Event;
/// use tenure_core::store::Intake;
/// use tenure_store::memory::{MemoryStore, SystemClock};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let store = MemoryStore::new(Arc::new(SystemClock));
/// let answers = store.enqueue(&[Event::new("order.paid", &7)?]).await?;
/// assert!(answers.iter().all(|answer| answer.is_fresh()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    rules: Rules,
    state: Mutex<MemoryState>,
}

impl MemoryStore {
    /// Creates an empty store with this clock, which decides whether a lease is live.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            rules: Rules::default(),
            state: Mutex::new(MemoryState::default()),
        }
    }

    /// Creates an empty store that decides by these rules.
    #[cfg(feature = "testing")]
    pub fn with_rules(clock: Arc<dyn Clock>, rules: Rules) -> Self {
        Self {
            rules,
            ..Self::new(clock)
        }
    }

    /// Returns the given moment, or the current time of the store's clock.
    fn moment(&self, given: Option<Timestamp>) -> Timestamp {
        given.unwrap_or_else(|| self.clock.now())
    }

    /// Locks the state. Every operation checks before it writes, so a panic under the lock leaves
    /// no partial change.
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryStore {
    /// Shows counts only: payloads and tokens do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("MemoryStore")
            .field("items", &state.items.len())
            .field("leases", &state.leases.len())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct MemoryState {
    items: BTreeMap<ItemId, StoredItem>,
    /// The claimable items, in claim order.
    ready: BTreeSet<(Lane, Timestamp, ItemId)>,
    leases: BTreeMap<Token, Leased>,
    /// Order by ordering key; a key that has no head and is not paused is dropped.
    keys: BTreeMap<String, KeyOrder>,
    queues: BTreeMap<QueueName, QueueState>,
    /// Topics of events that a claim came across and did not take.
    separate: BTreeSet<(QueueName, String)>,
    dedupe: BTreeMap<String, ItemId>,
    cluster: ClusterState,
    spaces: BTreeMap<SpaceName, Space>,
    endpoints: Endpoints,
    /// The deliveries that exist, as event and endpoint number; each pair at most once.
    owed: BTreeSet<(ItemId, i32)>,
    replays: BTreeMap<u64, ReplayOperation>,
    /// Last number allocated to a queue or an endpoint.
    last_number: i32,
    /// Last number allocated as the id or turn of an event.
    last_id: i64,
    /// Last number allocated as the id of a delivery.
    last_delivery: i64,
    last_fence: i64,
}

impl Default for MemoryState {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            ready: BTreeSet::new(),
            leases: BTreeMap::new(),
            keys: BTreeMap::new(),
            queues: BTreeMap::from([(QueueName::default(), QueueState::numbered(0))]),
            separate: BTreeSet::new(),
            dedupe: BTreeMap::new(),
            cluster: ClusterState::default(),
            spaces: BTreeMap::new(),
            endpoints: Endpoints::default(),
            owed: BTreeSet::new(),
            replays: BTreeMap::new(),
            last_number: 0,
            last_id: 0,
            last_delivery: ItemId::FIRST_DELIVERY,
            last_fence: 0,
        }
    }
}

/// An item with its counters, place and journal.
#[derive(Debug)]
struct StoredItem {
    /// The event; for a delivery, the event to deliver.
    event: Arc<Event>,
    /// The id of the event to deliver; `None` for an event.
    source: Option<ItemId>,
    /// The ordering key, if any.
    key: Option<String>,
    /// The number of the queue, or of the endpoint for a delivery.
    queue: i32,
    created_at: Timestamp,
    available_at: Timestamp,
    counters: Counters,
    /// Position within the key after a replay; before a replay the id is the position.
    turn: Option<i64>,
    last_error: Option<String>,
    place: Place,
    /// The ended leases of the item, oldest first.
    journal: Vec<EndedLease>,
    /// The calls made for a delivery.
    calls: BTreeMap<Fence, CallRecord>,
}

/// The place of an item; each item is in exactly one place, which determines its state.
#[derive(Debug)]
enum Place {
    /// In `ready`, in this lane.
    Ready(Lane),
    /// In the backlog of its key.
    Backlog,
    /// Under the lease with this token.
    Leased(Token),
    Done {
        at: Timestamp,
    },
    Dead {
        at: Timestamp,
        reason: String,
    },
}

/// A lease and the items held under it; removed when it holds no item.
#[derive(Debug)]
struct Leased {
    lease: Lease,
    ids: BTreeSet<ItemId>,
}

/// An ended lease of an item, with the token that identifies a repeated settle.
#[derive(Debug)]
struct EndedLease {
    token: Token,
    word: OutcomeKind,
    fence: Fence,
    claimed_at: Timestamp,
    settled_at: Timestamp,
}

#[derive(Debug)]
struct QueueState {
    number: i32,
    rules: QueueRules,
    paused: bool,
}

impl QueueState {
    fn numbered(number: i32) -> Self {
        Self {
            number,
            rules: QueueRules::default(),
            paused: false,
        }
    }
}

/// The end of an item's lease: the outcome for the journal, and the destination of the item.
struct End<'a> {
    word: OutcomeKind,
    /// The outcome for the counters. It differs when the lease of a run lapses: only the first item
    /// counts as crashed.
    counted: OutcomeKind,
    /// The error text; `None` keeps the previous one.
    error: Option<&'a str>,
    to: Destination<'a>,
}

/// Destination of an item when its lease ends.
enum Destination<'a> {
    /// Claimable from this moment; `None` keeps the previous moment.
    Ready(Option<Timestamp>),
    /// Into the backlog of its key, with the moment as in [`Destination::Ready`].
    Backlog(Option<Timestamp>),
    Done,
    Dead(&'a str),
}

impl StoredItem {
    /// Creates an item enqueued at this moment; the caller must place it.
    fn new(event: Arc<Event>, queue: i32, now: Timestamp) -> Self {
        Self {
            source: None,
            key: event.key().map(str::to_owned),
            queue,
            created_at: now,
            available_at: now.after(event.delay()),
            counters: Counters::default(),
            turn: None,
            last_error: None,
            // Provisional: the caller places the item at once.
            place: Place::Backlog,
            journal: Vec::new(),
            calls: BTreeMap::new(),
            event,
        }
    }

    /// Returns the event or the delivery.
    fn content(&self) -> Content {
        match self.source {
            None => Content::Event(self.event.as_ref().clone()),
            Some(source) => Content::Delivery(Delivery {
                endpoint: self.queue.unsigned_abs(),
                source,
                event: Arc::clone(&self.event),
            }),
        }
    }

    /// Returns the terminal state and its time; `None` if the item is not settled.
    const fn settled(&self) -> Option<(State, Timestamp)> {
        match self.place {
            Place::Ready(_) | Place::Backlog | Place::Leased(_) => None,
            Place::Done { at } => Some((State::Done, at)),
            Place::Dead { at, .. } => Some((State::Dead, at)),
        }
    }

    /// Returns when the item was first settled as done.
    fn first_done(&self) -> Option<Timestamp> {
        let done = self
            .journal
            .iter()
            .find(|line| line.word == OutcomeKind::Done);
        done.map(|line| line.settled_at)
    }

    const fn state(&self) -> State {
        match self.place {
            Place::Ready(_) | Place::Backlog => State::Pending,
            Place::Leased(_) => State::Claimed,
            Place::Done { .. } => State::Done,
            Place::Dead { .. } => State::Dead,
        }
    }

    /// Returns the lane of the item; after repeated lapses, that of items that are claimed alone.
    fn lane(&self, rules: &Rules) -> Lane {
        if (rules.is_lonely)(self.counters.crashes) {
            alone_lane(self.queue)
        } else {
            lane(self.queue, self.event.priority())
        }
    }
}

impl MemoryState {
    /// Returns the lease that covers an item, of any holder.
    fn lease_on(&self, id: ItemId) -> Option<&Lease> {
        match &self.items.get(&id)?.place {
            Place::Leased(token) => self.leases.get(token).map(|leased| &leased.lease),
            Place::Ready(_) | Place::Backlog | Place::Done { .. } | Place::Dead { .. } => None,
        }
    }

    fn make_ready(&mut self, id: ItemId, rules: &Rules) {
        let Some(kept) = self.items.get_mut(&id) else {
            return;
        };
        let lane = kept.lane(rules);
        kept.place = Place::Ready(lane);
        self.ready.insert((lane, kept.available_at, id));
    }

    /// Allocates the fence of a claim.
    fn draw_fence(&mut self, rules: &Rules) -> Fence {
        self.last_fence = (rules.next_fence)(self.last_fence);
        Fence::new(self.last_fence)
    }

    /// Ends the lease of an item: removes the item from the lease, updates its counters, appends to
    /// its journal and moves it to its destination. The caller has checked the guard.
    fn end_hold(&mut self, id: ItemId, end: &End<'_>, rules: &Rules, now: Timestamp) {
        let Some(kept) = self.items.get_mut(&id) else {
            return;
        };
        let Place::Leased(token) = &kept.place else {
            return;
        };
        let Some(leased) = self.leases.get_mut(token) else {
            return;
        };
        leased.ids.remove(&id);
        let is_empty = leased.ids.is_empty();
        let token = token.clone();
        kept.journal.push(EndedLease {
            token: token.clone(),
            word: end.word,
            fence: leased.lease.fence,
            claimed_at: leased.lease.claimed_at,
            settled_at: now,
        });
        kept.counters = (rules.count)(kept.counters, end.counted);
        if let Some(error) = end.error {
            kept.last_error = Some(error_text(error));
        }
        if is_empty {
            self.leases.remove(&token);
        }
        match end.to {
            Destination::Ready(from) => {
                kept.available_at = from.unwrap_or(kept.available_at);
                self.make_ready(id, rules);
            }
            Destination::Backlog(from) => {
                kept.available_at = from.unwrap_or(kept.available_at);
                self.put_behind(id);
            }
            Destination::Done => kept.place = Place::Done { at: now },
            Destination::Dead(reason) => {
                let reason = error_text(reason);
                kept.place = Place::Dead { at: now, reason };
            }
        }
    }
}
