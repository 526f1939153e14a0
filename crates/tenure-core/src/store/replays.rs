//! Bulk replays: a stored operation that replays all items that match a filter. Any process may
//! take the next step, even after the process that started the operation has ended.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Answer, Filter, Kind};
use crate::guard::Guarded;
use crate::invalid::Invalid;
use crate::item::ItemId;
use crate::queue::QueueName;
use crate::state::State;
use crate::time::Timestamp;

/// Target interval between steps. At a rate below one item per interval, steps are farther apart.
const STEP_INTERVAL: Duration = Duration::from_millis(100);

const MINUTE: Duration = Duration::from_mins(1);

/// Maximum items per minute, in small steps at even intervals; a slow step is not made up for
/// later.
///
/// ```
/// use tenure_core::store::ReplayRate;
///
/// let rate = ReplayRate::parse("50/s")?;
/// assert_eq!(rate, ReplayRate::parse("3000/m")?);
/// assert_eq!(rate.to_string(), "50/s");
/// assert_eq!(rate.step(1000), 5);
/// assert_eq!(rate.wait(5).as_millis(), 100);
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRate(NonZeroU32);

impl ReplayRate {
    /// Maximum number in the text of a rate, per second or per minute.
    pub const NUMBER_MAX: u32 = 1_000_000;

    /// A rate per minute; `None` for zero.
    pub fn per_minute(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// Parses `50/s` or `600/m`.
    ///
    /// # Errors
    /// The text has another format, or the number is zero or above [`ReplayRate::NUMBER_MAX`].
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let wrong = || Invalid::new("the rate", format!("{text:?}"), "one such as 50/s or 600/m");
        let (number, unit) = text.split_once('/').ok_or_else(wrong)?;
        let number: u32 = number.trim().parse().map_err(|_cause| wrong())?;
        if number == 0 || number > Self::NUMBER_MAX {
            let expected = format!("1 to {}, such as 50/s or 600/m", Self::NUMBER_MAX);
            return Err(Invalid::new("the rate", format!("{text:?}"), expected));
        }
        let per_minute = match unit.trim() {
            "s" => number * 60,
            "m" => number,
            _ => return Err(wrong()),
        };
        Self::per_minute(per_minute).ok_or_else(wrong)
    }

    /// Items per minute.
    pub const fn number(self) -> u32 {
        self.0.get()
    }

    /// Items of a step, at most `limit`.
    pub fn step(self, limit: u32) -> u32 {
        let number = u128::from(self.number()) * STEP_INTERVAL.as_micros() / MINUTE.as_micros();
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        number.clamp(1, limit.max(1))
    }

    /// Delay after a step of this many items.
    pub fn wait(self, items: u32) -> Duration {
        MINUTE.saturating_mul(items) / self.number()
    }
}

impl fmt::Display for ReplayRate {
    /// Formats it like the input of [`ReplayRate::parse`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            number if number % 60 == 0 => write!(f, "{}/s", number / 60),
            number => write!(f, "{number}/m"),
        }
    }
}

/// A bulk replay to start.
///
/// ```
/// use tenure_core::State;
/// use tenure_core::store::{Filter, NewReplay, ReplayRate};
///
/// let dead = Filter { state: Some(State::Dead), ..Filter::default() };
/// let mut replay = NewReplay::new(dead)?;
/// replay.rate = Some(ReplayRate::parse("50/s")?);
///
/// let waiting = Filter { state: Some(State::Pending), ..Filter::default() };
/// assert!(NewReplay::new(waiting).is_err());
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct NewReplay {
    filter: Filter,
    /// Maximum rate; `None` for no limit.
    pub rate: Option<ReplayRate>,
    /// Number of matching items, as the caller counted them before the start; for display.
    pub expected: Option<u64>,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl NewReplay {
    /// Creates a request to replay the existing items that match this filter, each once.
    ///
    /// # Errors
    /// The filter's state is neither done nor dead: only settled items can be replayed.
    pub fn new(filter: Filter) -> Result<Self, Invalid> {
        if filter.state.is_some_and(State::is_terminal) {
            return Ok(Self {
                filter,
                rate: None,
                expected: None,
                now: None,
            });
        }
        let found = filter.state.map_or("none", State::as_str);
        Err(Invalid::new(
            "the state of the items to replay",
            found,
            "done or dead",
        ))
    }

    /// Filter of the items.
    pub const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Overrides the current time, for tests.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }

    /// Range of ids that it covers: exclusive start, inclusive end.
    pub fn span(&self) -> (ItemId, ItemId) {
        let (behind, last) = match self.filter.kind {
            Kind::Events => (i64::MIN, ItemId::FIRST_DELIVERY),
            Kind::Deliveries => (ItemId::FIRST_DELIVERY, i64::MAX),
        };
        let before = self.filter.before.map(ItemId::number);
        let last = before.map_or(last, |before| last.min(before.saturating_sub(1)));
        (ItemId::new(behind), ItemId::new(last))
    }
}

words! {
    /// State of a bulk replay.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReplayState: as_str {
        /// There may be more items to replay.
        Running = "running",
        /// Every item of the range was checked.
        Done = "done",
        /// An operator cancelled it; items replayed until then stay replayed.
        Cancelled = "cancelled",
    }
}

impl ReplayState {
    /// Parses the word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Running, Self::Done, Self::Cancelled]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// A stored bulk replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayOperation {
    /// Number of the operation; each new operation gets a higher one.
    pub id: u64,
    /// Filter of the items.
    pub filter: Filter,
    /// Maximum rate.
    pub rate: Option<ReplayRate>,
    /// Number of matching items, counted before the start.
    pub expected: Option<u64>,
    /// Last checked id. It only rises, so that each item is replayed once, oldest first: items of a
    /// key keep their order.
    pub reached: ItemId,
    /// Newest id at the start; later items are not covered.
    pub last: ItemId,
    /// Number of items replayed so far.
    pub replayed: u64,
    /// Number of matching items whose replay was refused, because another program changed them at
    /// the same time.
    pub refused: u64,
    /// State of the operation.
    pub state: ReplayState,
    /// Time of the start.
    pub created_at: Timestamp,
    /// Earliest time of the next step.
    pub next_at: Timestamp,
    /// Time of its end.
    pub ended_at: Option<Timestamp>,
}

impl ReplayOperation {
    /// Minimum retention after its end.
    pub const RETENTION_MIN: Duration = Duration::from_hours(90 * 24);
    /// Maximum items of a step.
    pub const STEP_MAX: u32 = 1000;

    /// Returns true if there may be more items to replay.
    pub fn is_running(&self) -> bool {
        self.state == ReplayState::Running
    }

    /// Items of a step, at most `limit`.
    pub fn step(&self, limit: u32) -> u32 {
        let limit = limit.clamp(1, Self::STEP_MAX);
        self.rate.map_or(limit, |rate| rate.step(limit))
    }

    /// Delay after a step of this many items.
    pub fn wait(&self, items: u32) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| rate.wait(items))
    }
}

/// Request for the next step of the operation that has been due longest.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StepReplay {
    /// Only this operation.
    pub only: Option<u64>,
    /// Maximum items, capped at [`ReplayOperation::STEP_MAX`].
    pub limit: u32,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl StepReplay {
    /// A step of at most `limit` items.
    pub const fn new(limit: u32) -> Self {
        Self {
            only: None,
            limit,
            now: None,
        }
    }

    /// Restricts it to this operation.
    #[must_use]
    pub const fn only(mut self, id: u64) -> Self {
        self.only = Some(id);
        self
    }

    /// Overrides the current time, for tests.
    #[must_use]
    pub const fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// Result of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stepped {
    /// Operation after the step; `None` if none was due, or another process is taking its step.
    pub operation: Option<ReplayOperation>,
    /// Time until the next step of any requested operation; `None` if none is running.
    pub next_in: Option<Duration>,
}

/// Store operations for bulk replays.
pub trait Replays: Send + Sync + fmt::Debug {
    /// Starts a bulk replay and returns it; no item is replayed yet.
    fn start_replay<'a>(&'a self, replay: &'a NewReplay) -> Answer<'a, ReplayOperation>;

    /// Takes the next step in one transaction: replays items like
    /// [`Operate::replay`](super::Operate::replay), and saves the progress. Concurrent calls never
    /// take the same step.
    fn step_replay<'a>(&'a self, step: &'a StepReplay) -> Answer<'a, Stepped>;

    /// Lists up to `limit` operations, newest first, including finished ones.
    fn replays(&self, limit: u32) -> Answer<'_, Vec<ReplayOperation>>;

    /// Reads one operation.
    fn replay_operation(&self, id: u64) -> Answer<'_, Option<ReplayOperation>>;

    /// Cancels a bulk replay. Refused if it does not exist or has ended.
    fn cancel_replay(
        &self,
        id: u64,
        now: Option<Timestamp>,
    ) -> Answer<'_, Guarded<ReplayOperation>>;
}

/// A store that supports bulk replays.
pub trait ProvidesReplays: Send + Sync + fmt::Debug {
    /// Bulk replays of this store.
    fn replay_operations(&self) -> &dyn Replays;
}

/// Stored form of a filter.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredFilter {
    kind: Kind,
    state: Option<String>,
    topic: Option<String>,
    queue: Option<String>,
    key: Option<String>,
    since: Option<i64>,
    until: Option<i64>,
    endpoint: Option<u32>,
    source: Option<i64>,
}

impl Filter {
    /// JSON for the store, without [`Filter::before`].
    pub fn to_json(&self) -> String {
        let stored = StoredFilter {
            kind: self.kind,
            state: self.state.map(|state| state.as_str().to_owned()),
            topic: self.topic.clone(),
            queue: self.queue.as_ref().map(|queue| queue.as_str().to_owned()),
            key: self.key.clone(),
            since: self.since.map(Timestamp::as_micros),
            until: self.until.map(Timestamp::as_micros),
            endpoint: self.endpoint,
            source: self.source.map(ItemId::number),
        };
        serde_json::to_string(&stored).unwrap_or_else(|_| "{}".to_owned())
    }

    /// Parses the JSON of a store; `None` if it is not valid.
    pub fn from_json(text: &str) -> Option<Self> {
        let stored: StoredFilter = serde_json::from_str(text).ok()?;
        let queue = stored.queue.map(|queue| QueueName::new(&queue)).transpose();
        Some(Self {
            // A filter without a state would match items that cannot be replayed.
            state: Some(State::parse(&stored.state?)?),
            topic: stored.topic,
            queue: queue.ok()?,
            key: stored.key,
            since: stored.since.map(Timestamp::from_micros),
            until: stored.until.map(Timestamp::from_micros),
            kind: stored.kind,
            endpoint: stored.endpoint,
            source: stored.source.map(ItemId::new),
            before: None,
        })
    }
}
