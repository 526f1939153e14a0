//! `LeaseStore`: claim, renew, settle, reap. The store operations for the engine.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::{Answer, Claim, StoreError};
use crate::guard::{Boundary, Guarded, Lateness, Refusal};
use crate::invalid::Invalid;
use crate::item::{Held, ItemId};
use crate::lease::Term;
use crate::outcome::Outcome;
use crate::retry::LapsePolicy;
use crate::state::State;
use crate::time::Timestamp;
use crate::token::{Fence, Token};
use crate::turn::OnDead;
use crate::webhook::Call;

/// A request to renew leases.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Renew {
    /// The leases, by their tokens.
    pub tokens: Vec<Token>,
    /// Minimum time that the leases run from now; a renewal never shortens a lease.
    pub term: Term,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl Renew {
    /// Creates a request to renew these leases for `term`.
    pub fn new(tokens: Vec<Token>, term: Term) -> Self {
        Self {
            tokens,
            term,
            now: None,
        }
    }

    /// Overrides the current time, for tests.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// A renewed lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The first moment at which it is no longer live.
    pub until: Timestamp,
    /// The fence of its claim.
    pub fence: Fence,
    /// The items still held under it, ascending. An item that is missing, although the holder has
    /// not settled it, was buried: cancel its work.
    pub ids: Vec<ItemId>,
}

/// A request to end leases on items, each with an outcome.
///
/// ```
/// use tenure_core::store::{Rest, Settle};
/// use tenure_core::{ItemId, Outcome, Token, WorkerId};
///
/// let token = Token::new(&WorkerId::new("mailer", 7)?, 1, 0xfeed);
/// let settle = Settle::new(token.clone()).item(ItemId::new(5), Outcome::Done);
/// assert!(settle.check().is_ok());
/// // A claim whose answer was lost is released as a whole, by its token.
/// let release = Settle::new(token).rest(Rest::Release);
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct Settle {
    /// The lease, by its token.
    pub token: Token,
    /// The named items with their outcomes; an item may be named once.
    pub items: Vec<(ItemId, Outcome)>,
    /// The outcome of the items of this lease that are not named.
    pub rest: Rest,
    /// Accepts or refuses a settle after the end of the term.
    pub lateness: Lateness,
    /// The effect of a dead item on the rest of its key.
    pub on_dead: OnDead,
    /// Events among the done items, with their topics: the store writes a delivery for every
    /// subscribed endpoint in the same transaction, exactly one per event and endpoint.
    pub fan_out: Vec<(ItemId, String)>,
    /// Calls made for deliveries among the items, recorded in the same transaction. A call whose
    /// delivery is refused is recorded as superseded.
    pub calls: Vec<Call>,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

/// The outcome of the items of a lease that a settle does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// The items stay held.
    #[default]
    Keep,
    /// The items are done.
    Done,
    /// The items are released.
    Release,
}

impl Settle {
    /// Creates a settle under this token that names no items and keeps the rest.
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

    /// Adds an item with its outcome.
    #[must_use]
    pub fn item(mut self, id: ItemId, outcome: Outcome) -> Self {
        self.items.push((id, outcome));
        self
    }

    /// Adds these items as done.
    #[must_use]
    pub fn done(mut self, ids: impl IntoIterator<Item = ItemId>) -> Self {
        self.items
            .extend(ids.into_iter().map(|id| (id, Outcome::Done)));
        self
    }

    /// Sets the outcome of the items that are not named.
    #[must_use]
    pub fn rest(mut self, rest: Rest) -> Self {
        self.rest = rest;
        self
    }

    /// Sets the effect of a dead item on the rest of its key.
    #[must_use]
    pub fn on_dead(mut self, on_dead: OnDead) -> Self {
        self.on_dead = on_dead;
        self
    }

    /// Makes the store refuse this settle if the term is over.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.lateness = Lateness::Refuse;
        self
    }

    /// Overrides the current time, for tests.
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
            .with_item(*id)),
        }
    }
}

/// The result of a settle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a refused item is no longer yours"]
pub struct Settlement {
    /// The result for each named item, in the order of the request. A repeat of a settle that took
    /// effect returns the same result.
    pub items: Vec<(ItemId, Guarded)>,
    /// Number of unnamed items settled by [`Rest`]. It excludes items of a run that return to the
    /// backlog because an earlier item is neither done nor dead.
    pub rest: u32,
    /// The settle was accepted after the end of the term.
    pub late: bool,
    /// Rows of a user table whose settle was prevented by a constraint or trigger of the table,
    /// with the error. They are refused, and their leases lapse. The other rows are settled.
    pub failed: Vec<(ItemId, String)>,
}

impl Settlement {
    /// Iterates over the refused items, each with the reason.
    pub fn refused(&self) -> impl Iterator<Item = (ItemId, Refusal)> + '_ {
        self.items
            .iter()
            .filter_map(|(id, answer)| Some((*id, answer.refusal()?)))
    }
}

/// A request to end lapsed leases.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reap {
    /// Maximum number of leases (rows, in a lease table).
    pub limit: u32,
    /// The policy for their items.
    pub policy: LapsePolicy,
    /// Rule for a term that ends exactly now.
    pub boundary: Boundary,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl Reap {
    /// Creates a request to end up to `limit` leases whose term is over, as the reaper does.
    pub fn new(limit: u32, policy: LapsePolicy) -> Self {
        Self {
            limit,
            policy,
            boundary: Boundary::Past,
            now: None,
        }
    }

    /// Includes leases whose term ends exactly now, as a claim that also reaps does.
    #[must_use]
    pub fn inline(mut self) -> Self {
        self.boundary = Boundary::Reached;
        self
    }

    /// Overrides the current time, for tests.
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
    /// The worker that held it.
    pub holder: String,
    /// The fence of the lapsed claim.
    pub fence: Fence,
    /// Time since the end of the lease.
    pub stale: Duration,
    /// Pending again, or dead.
    pub state: State,
    /// The moment from which it may be claimed again, if it is pending.
    pub available_at: Option<Timestamp>,
}

/// The four operations of the lease core.
///
/// Every implementation obeys these rules, and the conformance suite checks them. Tests and SQL
/// files call them law 1 to law 9:
///
/// 1. An item has at most one live lease; at most one item of a key is being worked, and one
///    lease holds all held items of a key.
/// 2. A token is never issued twice; a fence only rises.
/// 3. Renew and settle with any token but the current one change nothing and are refused.
/// 4. Done and dead are final; only a replay opens a new generation, and old tokens stay refused.
/// 5. Only its holder ends a live lease, except that a bury ends it for one item.
/// 6. Only the six transitions exist.
/// 7. In a key, items are settled in order; the effect of a dead head on the rest is a setting.
/// 8. An event enqueued in a committed transaction is never lost.
/// 9. A settle repeated with the same token returns the same result.
pub trait LeaseStore: Send + Sync + fmt::Debug {
    /// Takes one lease on up to `limit` claimable items; `None` when there is nothing to claim.
    ///
    /// If the answer is lost, do not repeat the claim: release it by its token ([`Rest::Release`]),
    /// then claim with a new token.
    ///
    /// Rules: 1, 2, 6, 7. Never takes more than the limit. Items are in the order of the requested
    /// queues or lanes, then by priority, due time and id; rows are in the order of their table.
    /// The items of a run follow their head in the order of the key. A worker must not start an
    /// item before it knows that the previous item of the key is done or dead.
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>>;

    /// Moves `until` forward for the leases that exist and have not lapsed; returns a result for
    /// each token, in order. The store leaves out a lease whose row is locked by another
    /// transaction: it is neither renewed nor lost; retry soon.
    ///
    /// Rules: 3. `until` never moves back; nothing else changes. May be repeated.
    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>>;

    /// Ends leases on items, each with its outcome.
    ///
    /// Rules: 3, 4, 6, 7, 9. Unnamed items stay held, unless [`Rest`] says otherwise or an earlier
    /// item of their key goes back ([`settle_run`](crate::settle_run)). May be repeated: outcomes
    /// that have taken effect get the same answer.
    ///
    /// # Errors
    /// An item is named twice.
    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement>;

    /// Settles and claims, in one round trip or one statement where the store supports it. The
    /// claim may then miss items that the settle makes pending again.
    ///
    /// If the answer is lost, repeat the settle alone and release the claim by its token.
    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)>;

    /// Ends lapsed leases: their items become pending again, or dead when the crash budget is
    /// exhausted.
    ///
    /// Rules: 5, 6. Concurrent reapers end each lease once.
    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>>;
}
