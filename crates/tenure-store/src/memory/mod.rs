//! The store in memory: the queue layout kept in maps, for tests and for the twins of the
//! databases.
//!
//! It calls the guards of the core themselves, so what it answers is what the rules say. One mutex
//! guards everything and is never held across an await. Nothing outlives the process.

mod clock;
mod cluster;
mod domains;
mod examine;
mod fan_out;
mod intake;
mod lease;
#[cfg(feature = "testing")]
mod misplaced;
#[cfg(feature = "testing")]
mod misrouted;
mod operate;
#[cfg(feature = "testing")]
mod planted;
mod prune;
mod reap;
mod replays;
mod rules;
mod settle;
mod spaces;
mod turns;
mod webhooks;
mod work_lease;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::store::ReplayOperation;
use tenure_core::webhook::{CallRecord, Delivery};
use tenure_core::{
    Clock, Content, Counters, Event, Fence, ItemId, Lease, QueueName, SpaceName, State, Term,
    Timestamp, Token, Word,
};

pub use clock::SystemClock;
#[cfg(feature = "testing")]
pub use misplaced::TurnFault;
#[cfg(feature = "testing")]
pub use misrouted::WebhookFault;
#[cfg(feature = "testing")]
pub use planted::Fault;
pub use work_lease::WorkLease;
#[cfg(feature = "testing")]
pub use work_lease::WorkLeaseFault;

use crate::error_text::error_text;
use crate::lane::{Lane, alone_lane, lane};
use cluster::Board;
use rules::Rules;
use spaces::Space;
use turns::Domain;
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
    shelf: Mutex<Shelf>,
}

impl MemoryStore {
    /// An empty store that judges leases by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_rules(clock, Rules::default())
    }

    fn with_rules(clock: Arc<dyn Clock>, rules: Rules) -> Self {
        Self {
            clock,
            rules,
            shelf: Mutex::new(Shelf::default()),
        }
    }

    /// The given moment, or that of the store's own clock.
    fn moment(&self, given: Option<Timestamp>) -> Timestamp {
        given.unwrap_or_else(|| self.clock.now())
    }

    /// Everything that is kept. A verb checks before it writes, so a panic under the lock leaves
    /// nothing half written.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryStore {
    /// Shows how much is kept, not what: payloads and tokens do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shelf = self.shelf();
        f.debug_struct("MemoryStore")
            .field("items", &shelf.items.len())
            .field("leases", &shelf.leases.len())
            .finish_non_exhaustive()
    }
}

/// Everything that the store keeps.
#[derive(Debug)]
struct Shelf {
    items: BTreeMap<ItemId, Kept>,
    /// What waits, in the order in which it is claimed.
    ready: BTreeSet<(Lane, Timestamp, ItemId)>,
    leases: BTreeMap<Token, Leased>,
    /// By their keys; one that has no head and is not paused is not kept.
    domains: BTreeMap<String, Domain>,
    queues: BTreeMap<QueueName, Line>,
    dedupe: BTreeMap<String, ItemId>,
    board: Board,
    spaces: BTreeMap<SpaceName, Space>,
    endpoints: Endpoints,
    /// What is owed: an event, and the number of an endpoint. Each pair at most once.
    owed: BTreeSet<(ItemId, i32)>,
    replays: BTreeMap<u64, ReplayOperation>,
    /// The numbers of queues and endpoints are drawn from it.
    last_number: i32,
    /// The ids and turns of events are drawn from it.
    last_id: i64,
    /// Those of deliveries.
    last_delivery: i64,
    last_fence: i64,
}

impl Default for Shelf {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            ready: BTreeSet::new(),
            leases: BTreeMap::new(),
            domains: BTreeMap::new(),
            queues: BTreeMap::from([(QueueName::default(), Line::numbered(0))]),
            dedupe: BTreeMap::new(),
            board: Board::default(),
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

/// An item and all that is known of it.
#[derive(Debug)]
struct Kept {
    /// The event; of a delivery the one that is owed.
    event: Arc<Event>,
    /// The event that is owed, if it is a delivery.
    source: Option<ItemId>,
    /// The domain that it belongs to.
    key: Option<String>,
    /// The number of its queue, or of the endpoint that it is owed to.
    queue: i32,
    created_at: Timestamp,
    available_at: Timestamp,
    counters: Counters,
    /// Where it stands in its domain since it was replayed; before, its id says it.
    turn: Option<i64>,
    last_error: Option<String>,
    place: Place,
    /// The holds that ended, oldest first.
    journal: Vec<Ended>,
    /// The calls that were made for it, if it is a delivery.
    calls: BTreeMap<Fence, CallRecord>,
}

/// Where an item is; it is in exactly one place, and the place is its state.
#[derive(Debug)]
enum Place {
    /// In `ready`, in this lane.
    Ready(Lane),
    /// In the backlog of its domain.
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

/// A lease and what is held under it; it goes when nothing is.
#[derive(Debug)]
struct Leased {
    lease: Lease,
    ids: BTreeSet<ItemId>,
}

/// A hold that ended, with the token that a repeated settle is known by.
#[derive(Debug)]
struct Ended {
    token: Token,
    word: Word,
    fence: Fence,
    claimed_at: Timestamp,
    settled_at: Timestamp,
}

/// A queue.
#[derive(Debug)]
struct Line {
    number: i32,
    term: Option<Term>,
    paused: bool,
}

impl Line {
    const fn numbered(number: i32) -> Self {
        Self {
            number,
            term: None,
            paused: false,
        }
    }
}

/// How a hold ends: the word for the journal, and where the item goes.
struct End<'a> {
    word: Word,
    /// The word by which its counters move: of a run whose lease lapsed only the first crashed.
    counted: Word,
    /// What went wrong; `None` leaves what was said before.
    error: Option<&'a str>,
    to: To<'a>,
}

/// Where an item goes when its hold ends.
enum To<'a> {
    /// Back, from this moment on; `None`: as it was before.
    Ready(Option<Timestamp>),
    /// Into the backlog of its domain, as [`To::Ready`] says.
    Backlog(Option<Timestamp>),
    Done,
    Dead(&'a str),
}

impl Kept {
    /// One that has come at this moment; it has no place yet.
    fn new(event: Arc<Event>, queue: i32, now: Timestamp) -> Self {
        Self {
            source: None,
            key: event.ordering_key().map(str::to_owned),
            queue,
            created_at: now,
            available_at: now.after(event.held_back()),
            counters: Counters::default(),
            turn: None,
            last_error: None,
            // It is given its own at once.
            place: Place::Backlog,
            journal: Vec::new(),
            calls: BTreeMap::new(),
            event,
        }
    }

    /// What it carries.
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

    const fn state(&self) -> State {
        match self.place {
            Place::Ready(_) | Place::Backlog => State::Pending,
            Place::Leased(_) => State::Claimed,
            Place::Done { .. } => State::Done,
            Place::Dead { .. } => State::Dead,
        }
    }

    /// The lane in which it waits.
    fn lane(&self, rules: &Rules) -> Lane {
        if (rules.is_lonely)(self.counters.crashes) {
            alone_lane(self.queue)
        } else {
            lane(self.queue, self.event.urgency())
        }
    }
}

impl Shelf {
    /// The lease that covers an item, whoever holds it.
    fn lease_on(&self, id: ItemId) -> Option<&Lease> {
        match &self.items.get(&id)?.place {
            Place::Leased(token) => self.leases.get(token).map(|leased| &leased.lease),
            Place::Ready(_) | Place::Backlog | Place::Done { .. } | Place::Dead { .. } => None,
        }
    }

    /// Puts an item into `ready`.
    fn make_ready(&mut self, id: ItemId, rules: &Rules) {
        let Some(kept) = self.items.get_mut(&id) else {
            return;
        };
        let lane = kept.lane(rules);
        kept.place = Place::Ready(lane);
        self.ready.insert((lane, kept.available_at, id));
    }

    /// Draws the number of a claim.
    fn draw_fence(&mut self, rules: &Rules) -> Fence {
        self.last_fence = (rules.next_fence)(self.last_fence);
        Fence::new(self.last_fence)
    }

    /// Ends the hold on an item: out of its lease, counters moved, a line in the journal, and on
    /// to where it goes. The caller has asked the guard.
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
        kept.journal.push(Ended {
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
            To::Ready(from) => {
                kept.available_at = from.unwrap_or(kept.available_at);
                self.make_ready(id, rules);
            }
            To::Backlog(from) => {
                kept.available_at = from.unwrap_or(kept.available_at);
                self.put_behind(id);
            }
            To::Done => kept.place = Place::Done { at: now },
            To::Dead(reason) => {
                let reason = error_text(reason);
                kept.place = Place::Dead { at: now, reason };
            }
        }
    }
}
