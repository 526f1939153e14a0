//! One moment of the small world: what the store keeps, and what is still under way towards it.
//!
//! All of it is copied, not allocated: a world has hundreds of thousands of moments.

use std::fmt;

use tenure_core::{State, Timestamp, Word};

use crate::laws::Breach;

/// How many items there are.
pub(crate) const ITEMS: usize = 2;
/// At most this many claims are granted, those of operators included.
pub(crate) const GRANTS: usize = 3;
/// The present moment, always.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// Some of the items.
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

    /// Ascending.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..ITEMS).filter(move |id| self.has(*id))
    }

    /// Every subset, the empty one included.
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

/// Where a lease stands in time: live, at the very end of its term, or past it.
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

/// A lease as the store keeps it: one row per claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseRow {
    /// Which claim it came from. Only the checks look at it: the rules see token and fence.
    pub(crate) grant: usize,
    pub(crate) fence: u8,
    pub(crate) term: Term,
    pub(crate) ids: Ids,
}

/// An item as the store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) state: State,
    pub(crate) generation: u8,
}

/// The words by which holders ended their holds, by grant and item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Words([[Option<Word>; ITEMS]; GRANTS]);

impl Words {
    pub(crate) fn write(&mut self, grant: usize, id: usize, word: Word) {
        self.0[grant][id] = Some(word);
    }

    pub(crate) fn has(self, grant: usize, id: usize, word: Word) -> bool {
        self.0[grant][id] == Some(word)
    }

    /// The grant that last ended a hold on this item.
    pub(crate) fn last_holder(self, id: usize) -> Option<usize> {
        self.0.iter().rposition(|words| words[id].is_some())
    }
}

/// What the store keeps; a failover brings all of it back to an older copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Db {
    pub(crate) rows: [Row; ITEMS],
    /// By grant.
    pub(crate) leases: [Option<LeaseRow>; GRANTS],
    /// The last fence that was drawn.
    pub(crate) fence: u8,
    /// The highest fence ever drawn on this timeline; for the checks.
    pub(crate) fence_max: u8,
    /// Settles that took effect.
    pub(crate) journal: Words,
}

impl Db {
    pub(crate) fn leases(&self) -> impl Iterator<Item = &LeaseRow> {
        self.leases.iter().flatten()
    }

    /// The lease that an item is held under.
    pub(crate) fn lease_on(&self, id: usize) -> Option<&LeaseRow> {
        self.leases().find(|lease| lease.ids.has(id))
    }

    /// What is held under the lease of this grant.
    pub(crate) fn held_under(&self, grant: usize) -> Ids {
        self.leases[grant].map_or(Ids::default(), |lease| lease.ids)
    }

    /// Puts an item into a state in which nobody holds it; an emptied lease goes.
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

/// A claim that was granted once, as its holder remembers it, whatever became of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) fence: u8,
    pub(crate) ids: Ids,
}

/// A state of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    pub(crate) db: Db,
    /// The copy that a standby has, if it took one.
    pub(crate) standby: Option<Db>,
    pub(crate) failed_over: bool,
    /// In the order in which they were granted.
    pub(crate) grants: [Option<Grant>; GRANTS],
    /// Grants whose lease a reaper has read as lapsed; its write may follow at any time, also
    /// twice.
    pub(crate) read: [bool; GRANTS],
    pub(crate) burials: u8,
    /// Settles that were answered with kept on this timeline; for the checks.
    pub(crate) kept: Words,
    /// The law that the last step broke. Nothing happens after that.
    pub(crate) breach: Option<Breach>,
}

impl Moment {
    /// All items are pending and nothing is under way.
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
                journal: Words::default(),
            },
            standby: None,
            failed_over: false,
            grants: [None; GRANTS],
            read: [false; GRANTS],
            burials: 0,
            kept: Words::default(),
            breach: None,
        }
    }

    pub(crate) fn grants(&self) -> impl Iterator<Item = (usize, &Grant)> {
        let numbered = self.grants.iter().enumerate();
        numbered.filter_map(|(number, grant)| Some((number, grant.as_ref()?)))
    }

    /// What the holder of this grant remembers of it.
    pub(crate) fn grant(&self, grant: usize) -> Grant {
        self.grants[grant].expect("only what was granted is used")
    }

    /// Whether an item is held by another than the first that ever held it.
    pub(crate) fn is_held_anew(&self, id: usize) -> bool {
        let first = self.grants().find(|(_, grant)| grant.ids.has(id));
        let holder = self.db.lease_on(id);
        holder.is_some_and(|lease| first.is_some_and(|(number, _)| number < lease.grant))
    }

    /// Whether two claims got the same fence.
    pub(crate) fn has_equal_fences(&self) -> bool {
        let is_twin = |one: &Grant| {
            let twins = self.grants().filter(|(_, other)| other.fence == one.fence);
            twins.count() > 1
        };
        self.grants().any(|(_, grant)| is_twin(grant))
    }
}
