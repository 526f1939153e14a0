//! `LeaseStore`: claim, renew, settle, reap. What the engine asks of a store.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::{Answer, EndpointLane, Recovered, StoreError};
use crate::guard::{Boundary, Guarded, Lateness, Refusal};
use crate::invalid::Invalid;
use crate::item::{Held, ItemId};
use crate::lease::Term;
use crate::outcome::Outcome;
use crate::queue::QueueName;
use crate::retry::LapsePolicy;
use crate::state::State;
use crate::time::Timestamp;
use crate::token::{Fence, Token};
use crate::turn::{OnDead, run_length};
use crate::webhook::Call;

/// Asks for leases on items that may be claimed.
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
pub struct Claim {
    /// The token of this claim, new for each; it names the holder.
    pub token: Token,
    /// How long the lease runs.
    pub term: Term,
    /// At most this many items, and never more than [`Claim::LIMIT_MAX`].
    pub limit: u32,
    /// The queues to take from, the first one first. A lease table has no queues and looks at none.
    pub queues: Vec<QueueName>,
    /// Lanes of endpoints to take from, the first one first, and how many from each at most. If
    /// there are any, the queues are not looked at.
    pub lanes: Vec<(EndpointLane, u32)>,
    /// Only rows of these kinds, in a lease table with a column for the kind; empty: of every kind.
    pub kinds: Vec<String>,
    /// At least this many of the items are such that can be worked at the same time, if there are
    /// as many: a domain's items cannot. What is left of the limit may be filled with runs of
    /// domains, to be worked one after the other.
    pub abreast: u32,
    /// Which items: the ordinary ones, or one that must be worked alone.
    pub company: Company,
    /// Reap lapsed leases when the claim comes back short, by this policy; `None`: leave that to
    /// the reaper.
    pub recovery: Option<LapsePolicy>,
    /// Where the store writes down what it reaped for this claim; `None`: nobody wants to know.
    pub recovered: Option<Recovered>,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

/// Which items a claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// Those that may share a lease with others.
    Together,
    /// A single one of those whose lease lapsed twice or more; so that a poison item lapses by
    /// itself and its neighbours do not die with it.
    Alone,
}

impl Claim {
    /// No claim takes more.
    pub const LIMIT_MAX: u32 = 10_000;

    /// A claim of up to `limit` items of the default queue for the standard term.
    pub fn new(token: Token, limit: u32) -> Self {
        Self {
            token,
            term: Term::STANDARD,
            limit: limit.min(Self::LIMIT_MAX),
            abreast: limit.min(Self::LIMIT_MAX),
            queues: vec![QueueName::default()],
            lanes: Vec::new(),
            kinds: Vec::new(),
            company: Company::Together,
            recovery: Some(LapsePolicy::default()),
            recovered: None,
            now: None,
        }
    }

    /// How many items it may take at most: its limit, unless that is more than any claim takes or
    /// than it asks of its lanes together.
    pub fn most(&self) -> u32 {
        let most = match self.company {
            Company::Together => Self::LIMIT_MAX,
            Company::Alone => 1,
        };
        let lanes = self.lanes.iter().map(|(_, most)| *most);
        let of_lanes = lanes.reduce(u32::saturating_add).unwrap_or(u32::MAX);
        self.limit.min(most).min(of_lanes)
    }

    /// With this term.
    #[must_use]
    pub fn term(mut self, term: Term) -> Self {
        self.term = term;
        self
    }

    /// From these queues, the first one first.
    #[must_use]
    pub fn queues(mut self, queues: Vec<QueueName>) -> Self {
        self.queues = queues;
        self
    }

    /// From these lanes of endpoints instead of queues, the first one first, and at most so many
    /// from each.
    #[must_use]
    pub fn lanes(mut self, lanes: Vec<(EndpointLane, u32)>) -> Self {
        self.lanes = lanes;
        self
    }

    /// Only rows of these kinds, if the table has a column for the kind.
    #[must_use]
    pub fn kinds(mut self, kinds: Vec<String>) -> Self {
        self.kinds = kinds;
        self
    }

    /// With runs of domains, as far as that leaves at least this many items that can be worked at
    /// the same time.
    #[must_use]
    pub fn abreast(mut self, abreast: u32) -> Self {
        self.abreast = abreast;
        self
    }

    /// How many items of one domain it may take: one, unless runs were asked for.
    pub fn run_length(&self) -> u32 {
        run_length(self.most(), self.abreast)
    }

    /// One item that must be worked alone.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.company = Company::Alone;
        self.limit = self.limit.min(1);
        self
    }

    /// With this recovery.
    #[must_use]
    pub fn recovery(mut self, recovery: Option<LapsePolicy>) -> Self {
        self.recovery = recovery;
        self
    }

    /// With this to write down what was reaped for it.
    #[must_use]
    pub fn recovered(mut self, recovered: Recovered) -> Self {
        self.recovered = Some(recovered);
        self
    }

    /// Writes down what was reaped for it, if somebody wants to know; every store does.
    pub fn tell_recovered(&self, reaped: Vec<Reaped>) {
        if let Some(recovered) = &self.recovered {
            recovered.add(reaped);
        }
    }

    /// At this moment.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// Asks to prolong leases.
#[derive(Clone, Debug)]
pub struct Renew {
    /// The leases, by their tokens.
    pub tokens: Vec<Token>,
    /// They run at least this long from now; never shorter than before.
    pub term: Term,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

impl Renew {
    /// Renews these leases for `term`.
    pub fn new(tokens: Vec<Token>, term: Term) -> Self {
        Self {
            tokens,
            term,
            now: None,
        }
    }

    /// At this moment.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// A lease that was prolonged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The first moment at which it is no longer live.
    pub until: Timestamp,
    /// The number of its claim.
    pub fence: Fence,
    /// What is still held under it, ascending. An id that is missing was buried: cancel its work.
    pub ids: Vec<ItemId>,
}

/// Asks to end holds with an outcome each.
///
/// ```
/// use tenure_core::store::{Rest, Settle};
/// use tenure_core::{ItemId, Outcome, Token, WorkerId};
///
/// let token = Token::new(&WorkerId::new("mailer", 7)?, 1, 0xfeed);
/// let settle = Settle::new(token.clone()).item(ItemId::new(5), Outcome::Done);
/// assert!(settle.check().is_ok());
/// // A claim whose answer was lost is given back whole, by its token.
/// let release = Settle::new(token).rest(Rest::Release);
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct Settle {
    /// The lease, by its token.
    pub token: Token,
    /// What is said of which item; an item is named once.
    pub items: Vec<(ItemId, Outcome)>,
    /// What becomes of the items of this lease that are not named.
    pub rest: Rest,
    /// Whether a settle after the end of the term is accepted.
    pub lateness: Lateness,
    /// What a dead item does to the rest of its domain.
    pub on_dead: OnDead,
    /// Events among those that are settled done, with their topics: deliveries are written for the
    /// endpoints that are subscribed, in the same transaction, one for each event and endpoint
    /// whatever happens.
    pub fan_out: Vec<(ItemId, String)>,
    /// Calls that were made for deliveries among the items, written down in the same transaction.
    /// One whose delivery is refused is written down as superseded.
    pub calls: Vec<Call>,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

/// What becomes of the items of a lease that a settle does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// They stay held.
    #[default]
    Keep,
    /// They are done.
    Done,
    /// They are given back.
    Release,
}

impl Settle {
    /// A settle under this token that names nothing yet and keeps the rest.
    pub fn new(token: Token) -> Self {
        Self {
            token,
            items: Vec::new(),
            rest: Rest::Keep,
            lateness: Lateness::Accept,
            on_dead: OnDead::Skip,
            fan_out: Vec::new(),
            calls: Vec::new(),
            now: None,
        }
    }

    /// Names an item and its outcome.
    #[must_use]
    pub fn item(mut self, id: ItemId, outcome: Outcome) -> Self {
        self.items.push((id, outcome));
        self
    }

    /// Names these items as done.
    #[must_use]
    pub fn done(mut self, ids: impl IntoIterator<Item = ItemId>) -> Self {
        self.items
            .extend(ids.into_iter().map(|id| (id, Outcome::Done)));
        self
    }

    /// Says what becomes of the items that are not named.
    #[must_use]
    pub fn rest(mut self, rest: Rest) -> Self {
        self.rest = rest;
        self
    }

    /// Says what a dead item does to the rest of its domain.
    #[must_use]
    pub fn on_dead(mut self, on_dead: OnDead) -> Self {
        self.on_dead = on_dead;
        self
    }

    /// Refuses this settle if the term is over.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.lateness = Lateness::Refuse;
        self
    }

    /// At this moment.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }

    /// Checks that no item is named twice; every store calls this first.
    ///
    /// # Errors
    /// An item is named twice.
    pub fn check(&self) -> Result<(), StoreError> {
        let mut seen = BTreeSet::new();
        match self.items.iter().find(|(id, _)| !seen.insert(*id)) {
            None => Ok(()),
            Some((id, _)) => Err(StoreError::invalid(
                "settle",
                &Invalid::new(
                    "the list of items",
                    format!("naming item {id} twice"),
                    "each item once",
                ),
            )
            .item(*id)),
        }
    }
}

/// What a settle did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a refused item is no longer yours"]
pub struct Settlement {
    /// The answer for each named item, in the order in which they were named. A repeat of a settle
    /// that took effect gives the same answer.
    pub items: Vec<(ItemId, Guarded)>,
    /// How many items that were not named were ended as [`Rest`] said; what else of a domain's run
    /// went back with an item that did not end is not counted.
    pub rest: u32,
    /// Whether the term was over when it was accepted.
    pub late: bool,
    /// Rows of a table of the user's own that the table itself keeps from being ended, and why:
    /// their answer is a refusal, and their leases lapse. The others are ended.
    pub failed: Vec<(ItemId, String)>,
}

impl Settlement {
    /// The items that were refused, and why.
    pub fn refused(&self) -> impl Iterator<Item = (ItemId, Refusal)> + '_ {
        self.items
            .iter()
            .filter_map(|(id, answer)| Some((*id, answer.refusal()?)))
    }
}

/// Asks to end lapsed leases.
#[derive(Clone, Debug)]
pub struct Reap {
    /// At most this many leases (rows, in a lease table).
    pub limit: u32,
    /// What becomes of their items.
    pub policy: LapsePolicy,
    /// Where exactly a term ends.
    pub boundary: Boundary,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

impl Reap {
    /// Ends up to `limit` leases whose term is past, as the reaper does.
    pub fn new(limit: u32, policy: LapsePolicy) -> Self {
        Self {
            limit,
            policy,
            boundary: Boundary::Past,
            now: None,
        }
    }

    /// Also those whose term ends this very moment, as a claim does for itself.
    #[must_use]
    pub fn inline(mut self) -> Self {
        self.boundary = Boundary::Reached;
        self
    }

    /// At this moment.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// An item whose lapsed lease was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// The item.
    pub id: ItemId,
    /// The worker that had held it.
    pub holder: String,
    /// The number of the claim that lapsed.
    pub fence: Fence,
    /// How long the lease had been over.
    pub stale: Duration,
    /// Pending again, or dead.
    pub state: State,
    /// From when it may be claimed again, if it is pending.
    pub available_at: Option<Timestamp>,
}

/// The four verbs of the lease core.
///
/// The laws, which every implementation keeps and the conformance suite checks:
///
/// 1. An item has at most one live lease; of a domain at most one item is being worked, and
///    whatever is held of it is held by one lease.
/// 2. A token is never issued twice; a fence only rises.
/// 3. Renew and settle with any token but the current one change nothing and say refused.
/// 4. Done and dead are final; only a replay opens a new generation, and old tokens stay dead.
/// 5. No live lease is ended by anyone but its holder, or for one item by a bury.
/// 6. Only the six transitions exist.
/// 7. In a domain, items are settled in order; what a dead head does to the rest is a setting.
/// 8. What was enqueued in a committed transaction is never lost.
/// 9. A settle repeated with the same token gives the same answer.
pub trait LeaseStore: Send + Sync + fmt::Debug {
    /// Gives up to `limit` claimable items one lease; `None` when there is nothing to claim.
    ///
    /// When the answer is lost, do not repeat it: release by its token ([`Rest::Release`]) and
    /// claim anew.
    ///
    /// Laws: 1, 2, 6, 7. Never more than the limit; items in the order priority, time, id; those of
    /// a domain in its order, behind its head: an item is not started before the one of the same
    /// key that stands before it has ended.
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>>;

    /// Moves `until` forward for the leases that stand and have not lapsed; answers for each token
    /// in order. One whose row is in somebody's transaction just now is left out: it is neither
    /// renewed nor lost, and is to be asked for again soon.
    ///
    /// Laws: 3. `until` never moves back; nothing else changes. May be repeated.
    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>>;

    /// Ends holds, each with its outcome.
    ///
    /// Laws: 3, 4, 6, 7, 9. What is not named stays held, unless [`Rest`] says otherwise, or an
    /// item before it in its domain goes back ([`settle_run`](crate::settle_run)). May be
    /// repeated: what had taken effect is answered as it was.
    ///
    /// # Errors
    /// An item is named twice.
    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement>;

    /// Settles and claims; in one round trip, or both at once, where the store can. So the claim
    /// may not see what the settle gives back.
    ///
    /// When the answer is lost, repeat the settle alone and release the claim by its token.
    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)>;

    /// Ends lapsed leases: their items are pending again, or dead when the crash budget is used up.
    ///
    /// Laws: 5, 6. Several reapers at once end each lease once.
    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>>;
}
