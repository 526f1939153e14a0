//! `LeaseTable`: the names that a table uses for the facts of a lease, and its encoding of states.

mod adopted;
mod describe;
mod facts;
mod need;
mod obstacle;
mod outbox;
mod plan;
mod row;
mod states;
mod sync;
mod webhook;

use std::collections::BTreeSet;

use crate::invalid::Invalid;
pub use adopted::{AdoptedTable, TableLocation};
pub use describe::{MapFault, TableMap};
pub use facts::{ColumnFacts, Holds, IndexFacts, TableFacts, TableKind};
pub use obstacle::Obstacle;
pub use plan::{Addition, Adds, Indexes, Plan, PlannedIndex, Stage};
pub use states::{Condition, States, StatusColumn, StatusWord, StatusWords};
pub use sync::SyncState;

/// A table or column name that is safe to write into SQL.
///
/// ```
/// use tenure_core::Identifier;
///
/// assert_eq!(Identifier::new("outbox")?.quoted(), "\"outbox\"");
/// assert!(Identifier::new("outbox; drop table users").is_err());
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identifier(String);
as_text!(Identifier);

impl Identifier {
    /// Maximum length of a name in bytes; PostgreSQL truncates longer ones.
    pub const BYTES_MAX: usize = 63;

    /// Accepts a name of lowercase letters, digits and `_`, not starting with a digit.
    ///
    /// # Errors
    /// Anything else, names over 63 bytes, and names reserved by the databases (`pg_…`,
    /// `sqlite_…`).
    pub fn new(name: &str) -> Result<Self, Invalid> {
        let mut bytes = name.bytes();
        let is_name = bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_')
            && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            && name.len() <= Self::BYTES_MAX
            && !name.starts_with("pg_")
            && !name.starts_with("sqlite_");
        if is_name {
            return Ok(Self(name.to_owned()));
        }
        Err(Invalid::new(
            "name of a table or column",
            format!("{name:?}"),
            "at most 63 characters a-z, 0-9 and _, not starting with a digit, pg_ or sqlite_",
        ))
    }

    /// The name quoted for SQL.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

/// Description of a table whose rows are leased.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseTable {
    /// Name of the table.
    pub name: Identifier,
    /// Column that identifies a row: a unique 64-bit integer.
    pub key: Identifier,
    /// Claim order of rows; the key is appended implicitly.
    pub order: Vec<(Identifier, Direction)>,
    /// Time at which a row was written.
    pub created_at: Identifier,
    /// Kind of a row, for claims restricted to some kinds; `None` if rows have no kind.
    pub kind: Option<Identifier>,
    /// Column of each fact.
    pub columns: Columns,
    /// Encoding of a row's state.
    pub states: States,
}

/// Sort direction of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Smallest first.
    Ascending,
    /// Largest first.
    Descending,
}

/// Column of each fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// End of the lease; null unless claimed.
    pub until: Identifier,
    /// Worker that holds the row; null unless claimed.
    pub holder: Identifier,
    /// Token of the claim; null unless claimed.
    pub token: Identifier,
    /// Number of the last claim.
    pub fence: Identifier,
    /// Time of the claim; null unless claimed.
    pub claimed_at: Identifier,
    /// Earliest time of a claim; null for at once.
    pub available_at: Identifier,
    /// [`crate::Counters::attempts`].
    pub attempts: Identifier,
    /// [`crate::Counters::failures`].
    pub failures: Identifier,
    /// [`crate::Counters::crashes`].
    pub crashes: Identifier,
    /// Last error.
    pub last_error: Identifier,
    /// Time of the settle as done.
    pub done_at: Identifier,
    /// Time of the settle as dead.
    pub dead_at: Identifier,
    /// [`crate::Counters::generation`].
    pub generation: Identifier,
    /// Token and outcome of the last settle, so that a repeated settle is recognised.
    pub settled_token: Identifier,
}

impl Columns {
    /// Every column, with the name of its fact, to be replaced.
    fn by_fact(&mut self) -> [(&'static str, &mut Identifier); 14] {
        [
            ("until", &mut self.until),
            ("holder", &mut self.holder),
            ("token", &mut self.token),
            ("fence", &mut self.fence),
            ("claimed_at", &mut self.claimed_at),
            ("available_at", &mut self.available_at),
            ("attempts", &mut self.attempts),
            ("failures", &mut self.failures),
            ("crashes", &mut self.crashes),
            ("last_error", &mut self.last_error),
            ("done_at", &mut self.done_at),
            ("dead_at", &mut self.dead_at),
            ("generation", &mut self.generation),
            ("settled_token", &mut self.settled_token),
        ]
    }
}

impl LeaseTable {
    /// Every fact with its column.
    pub fn facts(&self) -> Vec<(&'static str, &Identifier)> {
        let mut facts = vec![("key", &self.key), ("created_at", &self.created_at)];
        facts.extend(self.lease_facts());
        facts.push(("last_error", &self.columns.last_error));
        let status = self.states.status();
        facts.extend(status.map(|status| ("status", &status.column)));
        facts.extend(self.kind.as_ref().map(|kind| ("kind", kind)));
        facts
    }

    /// Facts of a lease with their columns. A handler gets them separately; all other columns make
    /// up the row.
    ///
    /// ```
    /// let table = tenure_core::LeaseTable::outbox();
    /// let facts = table.lease_facts();
    /// let token = ("token", "lock_token");
    /// assert!(facts.iter().any(|(fact, column)| (*fact, column.as_str()) == token));
    /// ```
    pub fn lease_facts(&self) -> [(&'static str, &Identifier); 13] {
        let columns = &self.columns;
        [
            ("until", &columns.until),
            ("holder", &columns.holder),
            ("token", &columns.token),
            ("fence", &columns.fence),
            ("claimed_at", &columns.claimed_at),
            ("available_at", &columns.available_at),
            ("attempts", &columns.attempts),
            ("failures", &columns.failures),
            ("crashes", &columns.crashes),
            ("done_at", &columns.done_at),
            ("dead_at", &columns.dead_at),
            ("generation", &columns.generation),
            ("settled_token", &columns.settled_token),
        ]
    }

    /// Checks that each fact has its own column and that the states are distinguishable; every
    /// store calls this when it opens or creates the table.
    ///
    /// ```
    /// use tenure_core::LeaseTable;
    ///
    /// let mut table = LeaseTable::outbox();
    /// assert!(table.check().is_ok());
    /// table.columns.failures = table.columns.attempts.clone();
    /// assert!(table.check().is_err());
    /// ```
    ///
    /// # Errors
    /// Two facts share a column, or two states a status word that they may not share.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut columns = BTreeSet::new();
        for (fact, column) in self.facts() {
            if !columns.insert(column) {
                let found = format!("to hold {fact} and another fact");
                let expected = "a column for each fact";
                return Err(Invalid::new(
                    "column",
                    format!("{column}, {found}"),
                    expected,
                ));
            }
        }
        self.check_states()
    }

    /// The same description for a table of another name.
    #[must_use]
    pub fn named(mut self, name: Identifier) -> Self {
        self.name = name;
        self
    }
}

/// Makes an identifier of a preset.
fn name(text: &str) -> Identifier {
    Identifier::new(text).expect("the presets' names are safe: a test reads them all")
}
