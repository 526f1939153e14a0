//! One state of the small world: the content of the store, and the steps still in progress.
//!
//! All types are `Copy` and allocate nothing, because a world has hundreds of thousands of states.

use std::fmt;

use tenure_core::{OutcomeKind, State, Timestamp};

use crate::laws::Breach;

pub(crate) const ITEMS: usize = 2;
/// Maximum number of granted claims, including those of operators.
pub(crate) const GRANTS: usize = 3;
/// The current time. It never changes.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// A subset of the items.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ids(u8);

impl Ids {
    pub(crate) const fn has(self, id: usize) -> bool {
        self.0 & (1 << id) != 0
    }

    #[must_use]
    pub(crate) const fn with(self, id: usize) -> Self {
        Self(self.0 | (1 << id))
    }

    #[must_use]
    pub(crate) const fn without(self, id: usize) -> Self {
        Self(self.0 & !(1 << id))
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Iterates in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..ITEMS).filter(move |id| self.has(*id))
    }

    /// Iterates over every subset, including the empty one.
    pub(crate) fn subsets(self) -> impl Iterator<Item = Self> {
        (0..=self.0)
            .map(Self)
            .filter(move |some| some.0 & !self.0 == 0)
    }
}

impl FromIterator<usize> for Ids {
    fn from_iter<I: IntoIterator<Item = usize>>(ids: I) -> Self {
        ids.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Position of a lease in time: live, exactly at the end of its term, or past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Term {
    Ahead,
    Reached,
    Past,
}

impl Term {
    pub(crate) fn until(self) -> Timestamp {
        let now = NOW.as_micros();
        Timestamp::from_micros(match self {
            Self::Ahead => now + 1,
            Self::Reached => now,
            Self::Past => now - 1,
        })
    }
}

/// A stored lease: one row per claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseRow {
    /// Claim that created the lease. Only the checks read it: the rules use token and fence.
    pub(crate) grant: usize,
    pub(crate) fence: u8,
    pub(crate) term: Term,
    pub(crate) ids: Ids,
}

/// A stored item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) state: State,
    pub(crate) generation: u8,
}

/// Outcomes of the leases, by grant and item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Outcomes([[Option<OutcomeKind>; ITEMS]; GRANTS]);

impl Outcomes {
    pub(crate) fn write(&mut self, grant: usize, id: usize, outcome: OutcomeKind) {
        self.0[grant][id] = Some(outcome);
    }

    pub(crate) fn has(self, grant: usize, id: usize, outcome: OutcomeKind) -> bool {
        self.0[grant][id] == Some(outcome)
    }

    /// Returns the grant whose lease on this item ended last.
    pub(crate) fn last_holder(self, id: usize) -> Option<usize> {
        self.0.iter().rposition(|words| words[id].is_some())
    }
}

/// Content of the store; a failover replaces all of it by an older copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Db {
    pub(crate) rows: [Row; ITEMS],
    /// Leases by grant.
    pub(crate) leases: [Option<LeaseRow>; GRANTS],
    /// The last drawn fence.
    pub(crate) fence: u8,
    /// The highest fence drawn on this timeline; for the checks.
    pub(crate) fence_max: u8,
    /// Settles that took effect.
    pub(crate) journal: Outcomes,
}

impl Db {
    pub(crate) fn leases(&self) -> impl Iterator<Item = &LeaseRow> {
        self.leases.iter().flatten()
    }

    /// Returns the lease under which an item is held.
    pub(crate) fn lease_on(&self, id: usize) -> Option<&LeaseRow> {
        self.leases().find(|lease| lease.ids.has(id))
    }

    /// Items held under the lease of this grant.
    pub(crate) fn held_under(&self, grant: usize) -> Ids {
        self.leases[grant].map_or(Ids::default(), |lease| lease.ids)
    }

    /// Moves an item into a state without a holder; removes an emptied lease.
    pub(crate) fn unhold(&mut self, id: usize, state: State) {
        self.rows[id].state = state;
        for slot in &mut self.leases {
            *slot = slot.and_then(|mut lease| {
                lease.ids = lease.ids.without(id);
                (!lease.ids.is_empty()).then_some(lease)
            });
        }
    }
}

/// A granted claim as its holder remembers it, independent of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) fence: u8,
    pub(crate) ids: Ids,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    pub(crate) db: Db,
    /// The copy of the standby, if it has one.
    pub(crate) standby: Option<Db>,
    pub(crate) failed_over: bool,
    /// Grants in the order of the claims.
    pub(crate) grants: [Option<Grant>; GRANTS],
    /// Grants whose lease a reaper has read as lapsed; its write may follow at any time, even
    /// twice.
    pub(crate) read: [bool; GRANTS],
    pub(crate) burials: u8,
    /// Accepted settles of this timeline; for the checks.
    pub(crate) accepted: Outcomes,
    /// The rule that the last step broke; it ends the path.
    pub(crate) breach: Option<Breach>,
}

impl Moment {
    /// Returns the first state: all items are pending and nothing is in progress.
    pub(crate) fn first() -> Self {
        let row = Row {
            state: State::Pending,
            generation: 0,
        };
        Self {
            db: Db {
                rows: [row; ITEMS],
                leases: [None; GRANTS],
                fence: 0,
                fence_max: 0,
                journal: Outcomes::default(),
            },
            standby: None,
            failed_over: false,
            grants: [None; GRANTS],
            read: [false; GRANTS],
            burials: 0,
            accepted: Outcomes::default(),
            breach: None,
        }
    }

    pub(crate) fn grants(&self) -> impl Iterator<Item = (usize, &Grant)> {
        let numbered = self.grants.iter().enumerate();
        numbered.filter_map(|(number, grant)| Some((number, grant.as_ref()?)))
    }

    /// Returns the grant as its holder remembers it.
    pub(crate) fn grant(&self, grant: usize) -> Grant {
        self.grants[grant].expect("only granted claims are used")
    }

    /// Returns true if an item is held by a holder other than its first.
    pub(crate) fn is_held_anew(&self, id: usize) -> bool {
        let first = self.grants().find(|(_, grant)| grant.ids.has(id));
        let holder = self.db.lease_on(id);
        holder.is_some_and(|lease| first.is_some_and(|(number, _)| number < lease.grant))
    }

    /// Returns true if two claims got the same fence.
    pub(crate) fn has_equal_fences(&self) -> bool {
        let is_twin = |one: &Grant| {
            let twins = self.grants().filter(|(_, other)| other.fence == one.fence);
            twins.count() > 1
        };
        self.grants().any(|(_, grant)| is_twin(grant))
    }
}
