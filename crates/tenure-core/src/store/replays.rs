//! Replays: putting back all that matches a filter, as an operation on record. Whoever is there
//! takes the next step of it; who began it may be long gone.

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

/// Steps are about this far apart, unless single items are farther.
const DISTANCE: Duration = Duration::from_millis(100);

const MINUTE: Duration = Duration::from_mins(1);

/// At most so many items in a minute; in small steps at even distances, and never faster afterwards
/// to make up for a slow one.
///
/// ```
/// use tenure_core::store::Rate;
///
/// let rate = Rate::parse("50/s")?;
/// assert_eq!(rate, Rate::parse("3000/m")?);
/// assert_eq!(rate.to_string(), "50/s");
/// assert_eq!(rate.step(1000), 5);
/// assert_eq!(rate.wait(5).as_millis(), 100);
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(NonZeroU32);

impl Rate {
    /// The most per second or minute that can be said.
    pub const NUMBER_MAX: u32 = 1_000_000;

    /// So many in a minute; `None`: zero.
    pub fn per_minute(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// Reads `50/s` or `600/m`.
    ///
    /// # Errors
    /// It is written in another way, zero, or above [`Rate::NUMBER_MAX`].
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let wrong = || Invalid::new("the rate", format!("{text:?}"), "one such as 50/s or 600/m");
        let (number, unit) = text.split_once('/').ok_or_else(wrong)?;
        let number: u32 = number.trim().parse().map_err(|_cause| wrong())?;
        if number > Self::NUMBER_MAX {
            return Err(wrong());
        }
        let per_minute = match unit.trim() {
            "s" => number * 60,
            "m" => number,
            _ => return Err(wrong()),
        };
        Self::per_minute(per_minute).ok_or_else(wrong)
    }

    /// How many in a minute.
    pub const fn number(self) -> u32 {
        self.0.get()
    }

    /// Items in a step, if it may have this many at most.
    pub fn step(self, limit: u32) -> u32 {
        let number = u128::from(self.number()) * DISTANCE.as_micros() / MINUTE.as_micros();
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        number.clamp(1, limit.max(1))
    }

    /// How long to wait after this many.
    pub fn wait(self, items: u32) -> Duration {
        MINUTE.saturating_mul(items) / self.number()
    }
}

impl fmt::Display for Rate {
    /// As people write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            number if number % 60 == 0 => write!(f, "{}/s", number / 60),
            number => write!(f, "{number}/m"),
        }
    }
}

/// Asks to put back all that matches a filter.
///
/// ```
/// use tenure_core::State;
/// use tenure_core::store::{Filter, NewReplay, Rate};
///
/// let dead = Filter { state: Some(State::Dead), ..Filter::default() };
/// let mut replay = NewReplay::new(dead)?;
/// replay.rate = Some(Rate::parse("50/s")?);
///
/// let waiting = Filter { state: Some(State::Pending), ..Filter::default() };
/// assert!(NewReplay::new(waiting).is_err());
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct NewReplay {
    filter: Filter,
    /// How fast at most; `None`: as fast as steps are taken.
    pub rate: Option<Rate>,
    /// How many matched when somebody counted, for people who follow it.
    pub expected: Option<u64>,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

impl NewReplay {
    /// Puts back what this filter lets through: only what is there already, and each item once.
    ///
    /// # Errors
    /// The filter does not say whether what is done or what is dead is meant: nothing else can be
    /// replayed.
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
            "the state of what to replay",
            found,
            "done or dead",
        ))
    }

    /// Which.
    pub const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// At this moment.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }

    /// Between which ids it looks: behind the first, and up to the second.
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

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayState {
    /// There may be more to put back.
    Running,
    /// All was looked at.
    Done,
    /// Somebody ended it; what was put back stays so.
    Cancelled,
}

impl ReplayState {
    /// The state as one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Running, Self::Done, Self::Cancelled]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// A replay on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayOperation {
    /// Its number; later ones have higher ones.
    pub id: u64,
    /// Which items.
    pub filter: Filter,
    /// How fast at most.
    pub rate: Option<Rate>,
    /// How many matched when somebody counted.
    pub expected: Option<u64>,
    /// All up to this id were looked at. It only rises, so that each is put back once, the oldest
    /// first: what has a key keeps its order.
    pub reached: ItemId,
    /// The newest that was there when it began; later ones are none of its business.
    pub last: ItemId,
    /// How many were put back.
    pub replayed: u64,
    /// How many matched and were changed by somebody in that moment.
    pub refused: u64,
    /// Where it stands.
    pub state: ReplayState,
    /// When it began.
    pub created_at: Timestamp,
    /// No step is due before.
    pub next_at: Timestamp,
    /// When it was done or cancelled.
    pub ended_at: Option<Timestamp>,
}

impl ReplayOperation {
    /// One that has ended is kept at least so long.
    pub const KEPT: Duration = Duration::from_hours(90 * 24);
    /// A step has at most this many items.
    pub const STEP_MAX: u32 = 1000;

    /// Whether there may be more to put back.
    pub fn is_running(&self) -> bool {
        self.state == ReplayState::Running
    }

    /// How many items a step may have, if this many are asked for.
    pub fn step(&self, limit: u32) -> u32 {
        let limit = limit.clamp(1, Self::STEP_MAX);
        self.rate.map_or(limit, |rate| rate.step(limit))
    }

    /// How long to wait after this many.
    pub fn wait(&self, items: u32) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| rate.wait(items))
    }
}

/// Asks for the next step of the operation that is due for longest.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepReplay {
    /// Only of this one.
    pub only: Option<u64>,
    /// At most this many items, and never more than [`ReplayOperation::STEP_MAX`].
    pub limit: u32,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

impl StepReplay {
    /// A step of so many items.
    pub const fn new(limit: u32) -> Self {
        Self {
            only: None,
            limit,
            now: None,
        }
    }

    /// Of this operation alone.
    #[must_use]
    pub const fn only(mut self, id: u64) -> Self {
        self.only = Some(id);
        self
    }

    /// At this moment.
    #[must_use]
    pub const fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// What came of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stepped {
    /// The operation as it is after the step; `None`: none was due, or others are at it.
    pub operation: Option<ReplayOperation>,
    /// When the next step is due of those that were asked about; `None`: none is running.
    pub next_in: Option<Duration>,
}

/// Replays on record.
pub trait Replays: Send + Sync + fmt::Debug {
    /// Begins one and answers with it; nothing is put back yet.
    fn start_replay<'a>(&'a self, replay: &'a NewReplay) -> Answer<'a, ReplayOperation>;

    /// Takes the next step, whole or not at all: puts items back as
    /// [`Operate::replay`](super::Operate::replay) does, and writes down how far it came. Several
    /// at once never take the same one.
    fn step_replay<'a>(&'a self, step: &'a StepReplay) -> Answer<'a, Stepped>;

    /// Up to `limit` operations, the newest first, also such as have ended.
    fn replays(&self, limit: u32) -> Answer<'_, Vec<ReplayOperation>>;

    /// One operation.
    fn replay_operation(&self, id: u64) -> Answer<'_, Option<ReplayOperation>>;

    /// Ends one. Refused as unknown, or as settled already.
    fn cancel_replay(
        &self,
        id: u64,
        now: Option<Timestamp>,
    ) -> Answer<'_, Guarded<ReplayOperation>>;
}

/// A store that keeps replays on record.
pub trait KeepsReplays: Send + Sync + fmt::Debug {
    /// What keeps them.
    fn replay_operations(&self) -> &dyn Replays;
}

/// A filter as stores keep it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    kind: KeptKind,
    state: Option<String>,
    topic: Option<String>,
    queue: Option<String>,
    key: Option<String>,
    since: Option<i64>,
    until: Option<i64>,
    endpoint: Option<u32>,
    source: Option<i64>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeptKind {
    #[default]
    Events,
    Deliveries,
}

impl Filter {
    /// As a store keeps it, without [`Filter::before`].
    pub fn to_json(&self) -> String {
        let kept = Kept {
            kind: match self.kind {
                Kind::Events => KeptKind::Events,
                Kind::Deliveries => KeptKind::Deliveries,
            },
            state: self.state.map(|state| state.as_str().to_owned()),
            topic: self.topic.clone(),
            queue: self.queue.as_ref().map(|queue| queue.as_str().to_owned()),
            key: self.key.clone(),
            since: self.since.map(Timestamp::as_micros),
            until: self.until.map(Timestamp::as_micros),
            endpoint: self.endpoint,
            source: self.source.map(ItemId::number),
        };
        serde_json::to_string(&kept).unwrap_or_else(|_| "{}".to_owned())
    }

    /// As a store kept it; `None`: it was written by something else.
    pub fn from_json(text: &str) -> Option<Self> {
        let kept: Kept = serde_json::from_str(text).ok()?;
        let queue = kept.queue.map(|queue| QueueName::new(&queue)).transpose();
        Some(Self {
            // Without a state it would be another filter.
            state: Some(State::parse(&kept.state?)?),
            topic: kept.topic,
            queue: queue.ok()?,
            key: kept.key,
            since: kept.since.map(Timestamp::from_micros),
            until: kept.until.map(Timestamp::from_micros),
            kind: match kept.kind {
                KeptKind::Events => Kind::Events,
                KeptKind::Deliveries => Kind::Deliveries,
            },
            endpoint: kept.endpoint,
            source: kept.source.map(ItemId::new),
            before: None,
        })
    }
}
