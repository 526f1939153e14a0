//! `Claim`: the request for a lease.

use super::{EndpointLane, Reaped, Recovered};
use crate::lease::Term;
use crate::queue::QueueName;
use crate::retry::LapsePolicy;
use crate::time::Timestamp;
use crate::token::Token;
use crate::topic::TopicSet;
use crate::turn::run_length;

/// A request for a lease on claimable items.
///
/// ```
/// use tenure_core::store::Claim;
/// use tenure_core::{Term, Token, WorkerId};
///
/// let worker = WorkerId::new("mailer", 7)?;
/// let claim = Claim::new(Token::new(&worker, 1, 0xfeed), 100).term(Term::HEAVY);
/// assert_eq!(claim.limit, 100);
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The token of this claim, new for each claim; it identifies the holder.
    pub token: Token,
    /// The duration of the lease.
    pub term: Term,
    /// Maximum number of items; at most [`Claim::LIMIT_MAX`].
    pub limit: u32,
    /// The queues to take from, in order of preference. A lease table has no queues and ignores
    /// them.
    pub queues: Vec<QueueName>,
    /// Only events of these topics. The store sets aside the events of other topics that it comes
    /// across: it gives their topic lanes of its own, which only claims that take it read.
    pub topics: TopicSet,
    /// Endpoint lanes to take from, in order of preference, each with its maximum number of items.
    /// If there are any, the claim ignores the queues.
    pub lanes: Vec<(EndpointLane, u32)>,
    /// Only rows of these kinds, in a lease table with a kind column; empty for every kind.
    pub kinds: Vec<String>,
    /// Minimum number of claimed items that can be worked in parallel, if enough are available.
    /// Runs of keys, whose items are worked one after another, may fill the rest of the limit.
    pub min_parallel: u32,
    /// Selects ordinary items, or one item that must be worked alone.
    pub isolation: Isolation,
    /// Policy for reaping lapsed leases if the claim finds fewer items than its limit; in a table
    /// without a status, the claim always reaps first. `None` leaves that to the reaper.
    pub recovery: Option<LapsePolicy>,
    /// Receives the items that the store reaped for this claim; `None` discards them.
    pub recovered: Option<Recovered>,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

/// Selects the items that a claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Items that may share a lease with others.
    Shared,
    /// A single item whose lease lapsed twice or more. A poison item is claimed alone, so that its
    /// crashes do not count for other items.
    Isolated,
}

impl Claim {
    /// Maximum number of items of a claim.
    pub const LIMIT_MAX: u32 = 10_000;

    /// Creates a claim of up to `limit` items of the default queue for the standard term.
    pub fn new(token: Token, limit: u32) -> Self {
        Self {
            token,
            term: Term::STANDARD,
            limit: limit.min(Self::LIMIT_MAX),
            min_parallel: limit.min(Self::LIMIT_MAX),
            queues: vec![QueueName::default()],
            topics: TopicSet::any(),
            lanes: Vec::new(),
            kinds: Vec::new(),
            isolation: Isolation::Shared,
            recovery: Some(LapsePolicy::default()),
            recovered: None,
            now: None,
        }
    }

    /// Returns the maximum number of items: the limit, but at most [`Claim::LIMIT_MAX`] (one for an
    /// isolated claim) and the sum of the lane limits.
    pub fn most(&self) -> u32 {
        let most = match self.isolation {
            Isolation::Shared => Self::LIMIT_MAX,
            Isolation::Isolated => 1,
        };
        let lanes = self.lanes.iter().map(|(_, most)| *most);
        let of_lanes = lanes.reduce(u32::saturating_add).unwrap_or(u32::MAX);
        self.limit.min(most).min(of_lanes)
    }

    /// Sets the term.
    #[must_use]
    pub fn term(mut self, term: Term) -> Self {
        self.term = term;
        self
    }

    /// Sets the queues, in order of preference.
    #[must_use]
    pub fn queues(mut self, queues: Vec<QueueName>) -> Self {
        self.queues = queues;
        self
    }

    /// Takes only events of these topics.
    #[must_use]
    pub fn topics(mut self, topics: TopicSet) -> Self {
        self.topics = topics;
        self
    }

    /// Takes from these endpoint lanes instead of queues, in order of preference, each up to its
    /// maximum.
    #[must_use]
    pub fn lanes(mut self, lanes: Vec<(EndpointLane, u32)>) -> Self {
        self.lanes = lanes;
        self
    }

    /// Takes only rows of these kinds, if the table has a kind column.
    #[must_use]
    pub fn kinds(mut self, kinds: Vec<String>) -> Self {
        self.kinds = kinds;
        self
    }

    /// Allows runs of keys, as long as at least this many items can be worked in parallel.
    #[must_use]
    pub fn min_parallel(mut self, min_parallel: u32) -> Self {
        self.min_parallel = min_parallel;
        self
    }

    /// Returns the maximum number of items of one key: one, unless runs are allowed.
    pub fn run_length(&self) -> u32 {
        run_length(self.most(), self.min_parallel)
    }

    /// Takes one item that must be worked alone.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.isolation = Isolation::Isolated;
        self.limit = self.limit.min(1);
        self
    }

    /// Sets the recovery policy.
    #[must_use]
    pub fn recovery(mut self, recovery: Option<LapsePolicy>) -> Self {
        self.recovery = recovery;
        self
    }

    /// Sets the receiver for the items reaped for this claim.
    #[must_use]
    pub fn recovered(mut self, recovered: Recovered) -> Self {
        self.recovered = Some(recovered);
        self
    }

    /// Reports the reaped items to the receiver, if there is one; every store calls this.
    pub fn tell_recovered(&self, reaped: Vec<Reaped>) {
        if let Some(recovered) = &self.recovered {
            recovered.add(reaped);
        }
    }

    /// Overrides the current time, for tests.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}
