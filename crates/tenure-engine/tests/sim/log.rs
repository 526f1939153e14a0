//! Log of a run: all facts in order. The checkers read only this and the final contents of the
//! store.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::store::{Reaped, Rest};
use tenure_core::{Clock, Fence, Guarded, ItemId, OnDead, Outcome, Timestamp, Token};
use tokio::time::Instant;

/// Behaviour of an item's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Fails now and then.
    Plain,
    /// Kills its process each time.
    Poison,
    /// Fails each time.
    Hopeless,
    /// Is rejected at its first answer.
    Bad,
}

impl Sort {
    const ALL: [Self; 4] = [Self::Plain, Self::Poison, Self::Hopeless, Self::Bad];

    pub(crate) fn topic(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Poison => "poison",
            Self::Hopeless => "hopeless",
            Self::Bad => "bad",
        }
    }

    pub(crate) fn of(topic: &str) -> Self {
        let named = Self::ALL.into_iter().find(|sort| sort.topic() == topic);
        named.expect("only these topics are written")
    }
}

/// Cause of the death of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Killed,
    Poison,
}

/// Fault of a call on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slip {
    LostBefore,
    LostAfter,
    Slow,
    /// No answer; the call may have arrived.
    Hung,
}

/// Answer of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Done,
    Failed,
    Panicked,
    Rejected,
    Released,
}

/// A run of a handler under a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) worker: Arc<str>,
    pub(crate) id: ItemId,
    pub(crate) fence: Fence,
}

#[derive(Clone, Debug)]
#[expect(dead_code, reason = "some fields appear only in the printed log")]
pub(crate) enum Fact {
    Booted(Arc<str>),
    Crashed(Arc<str>, Cause),
    Paused(Arc<str>),
    Resumed(Arc<str>),
    Stopping(Arc<str>),
    Stopped(Arc<str>, u32),
    /// A task of an engine panicked or spun: a violation.
    Broke(Arc<str>, String),
    Slipped(Arc<str>, &'static str, Slip),
    /// The store is unavailable to every process until the next `OutageEnded`.
    OutageBegan,
    OutageEnded,
    /// All faults have ended.
    Healed,
    Enqueued {
        id: ItemId,
        sort: Sort,
        key: Option<Arc<str>>,
        available_at: Timestamp,
    },
    Claimed {
        worker: Arc<str>,
        token: Token,
        fence: Fence,
        until: Timestamp,
        limit: u32,
        ids: Vec<ItemId>,
    },
    Renewed {
        token: Token,
        term: Duration,
        answer: Guarded<Timestamp>,
    },
    Settled {
        token: Token,
        items: Vec<(ItemId, Outcome, Guarded)>,
        rest: Rest,
        ended: u32,
        on_dead: OnDead,
    },
    Reaped(Vec<Reaped>),
    Buried(ItemId, Token, Guarded),
    Replayed(ItemId, Guarded),
    /// An operator skipped the dead head of a key.
    Skipped(Arc<str>, Guarded<ItemId>),
    /// A handler started; the number is that of the earlier crashes.
    Started(Run, u32),
    Stepped(Run),
    Answered(Run, Answered),
    /// A handler was dropped without an answer.
    Dropped(Run),
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Time since the start, on the world's clock.
    pub(crate) at: Duration,
    /// Time on the store's clock.
    pub(crate) now: Timestamp,
    pub(crate) fact: Fact,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.now.as_micros();
        write!(f, "{:>12?} {micros:>12} {:?}", self.at, self.fact)
    }
}

#[derive(Debug)]
pub(crate) struct Log {
    start: Instant,
    clock: Arc<dyn Clock>,
    lines: Mutex<Vec<Line>>,
}

impl Log {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            start: Instant::now(),
            clock,
            lines: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, fact: Fact) {
        let line = Line {
            at: self.start.elapsed(),
            now: self.clock.now(),
            fact,
        };
        self.lines().push(line);
    }
}

/// Hash of a log.
pub(crate) fn fingerprint(lines: &[Line]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for line in lines {
        for byte in line.to_string().bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}
