//! `LeaseTable`: what a table calls our facts. It renames, nothing else.

mod adopted;
mod describe;
mod found;
mod need;
mod obstacle;
mod outbox;
mod plan;
mod row;
mod states;
mod sync;
mod webhook;

use std::collections::BTreeSet;
use std::fmt;

use crate::invalid::Invalid;
pub use adopted::{AdoptedTable, Whereabouts};
pub use describe::{MapFault, Said};
pub use found::{FoundColumn, FoundIndex, FoundKind, FoundTable, Holds};
pub use obstacle::Obstacle;
pub use plan::{Addition, Adds, Indexes, Plan, PlannedIndex, Stage};
pub use states::{Condition, States, StatusColumn, StatusWord, Words};
pub use sync::SyncState;

/// The name of a table or column that is safe to write into SQL.
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

impl Identifier {
    /// PostgreSQL cuts longer names off in silence.
    pub const BYTES_MAX: usize = 63;

    /// A name of small letters, digits and `_`, not starting with a digit.
    ///
    /// # Errors
    /// Anything else, names over 63 bytes, and names of the databases' own (`pg_…`, `sqlite_…`).
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
            "a-z, 0-9 and _, at most 63, not starting with a digit, pg_ or sqlite_",
        ))
    }

    /// The bare name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as SQL wants it.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A table whose rows are leased, described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTable {
    /// Its name.
    pub name: Identifier,
    /// The column that names a row: a 64-bit integer, unique.
    pub key: Identifier,
    /// The order in which rows are claimed; the key comes last by itself.
    pub order: Vec<(Identifier, Direction)>,
    /// When a row was written.
    pub created_at: Identifier,
    /// The kind of a row, for claims that ask for some kinds only; `None`: rows have none.
    pub kind: Option<Identifier>,
    /// Which column holds which fact.
    pub columns: Columns,
    /// How a row tells its state.
    pub states: States,
}

/// Which way a column is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Small first.
    Ascending,
    /// Large first.
    Descending,
}

/// Which column holds which fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Until when the lease runs; null unless claimed.
    pub until: Identifier,
    /// The worker that holds it; null unless claimed.
    pub holder: Identifier,
    /// The token of the claim; null unless claimed.
    pub token: Identifier,
    /// The number of the last claim.
    pub fence: Identifier,
    /// When it was claimed; null unless claimed.
    pub claimed_at: Identifier,
    /// Not to be claimed before; null: at once.
    pub available_at: Identifier,
    /// [`crate::Counters::attempts`].
    pub attempts: Identifier,
    /// [`crate::Counters::failures`].
    pub failures: Identifier,
    /// [`crate::Counters::crashes`].
    pub crashes: Identifier,
    /// What went wrong last.
    pub last_error: Identifier,
    /// When it was settled done.
    pub done_at: Identifier,
    /// When it was settled dead.
    pub dead_at: Identifier,
    /// [`crate::Counters::generation`].
    pub generation: Identifier,
    /// The token and the word of the last settle, so that a repeat is known as one.
    pub settled_token: Identifier,
}

impl LeaseTable {
    /// Every fact with the column that holds it.
    pub fn facts(&self) -> Vec<(&'static str, &Identifier)> {
        let mut facts = vec![("key", &self.key), ("created_at", &self.created_at)];
        facts.extend(self.lease_facts());
        facts.push(("last_error", &self.columns.last_error));
        let status = self.states.status();
        facts.extend(status.map(|status| ("status", &status.column)));
        facts.extend(self.kind.as_ref().map(|kind| ("kind", kind)));
        facts
    }

    /// The facts of a lease with their columns. A handler is told them beside the row; all other
    /// columns are the row.
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

    /// Checks that each fact has a column of its own and that the states can be told apart; every
    /// store calls this when it opens or makes the table.
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
    /// Two facts share a column, or two states a word that they may not share.
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

/// A name of a preset.
fn name(text: &str) -> Identifier {
    Identifier::new(text).expect("the presets' names are safe: a test reads them all")
}
