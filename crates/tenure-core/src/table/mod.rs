//! `LeaseTable`: what a table calls our facts. It renames, nothing else.

mod outbox;

use std::collections::BTreeSet;
use std::fmt;

use crate::invalid::Invalid;
use crate::state::State;

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
    /// Which column holds which fact.
    pub columns: Columns,
    /// Which word stands for which state.
    pub words: Words,
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
    /// The state, as one of [`Words`].
    pub status: Identifier,
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

/// A word of a status column that is safe to write into SQL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusWord(String);

impl StatusWord {
    /// A word of letters, digits and `_`.
    ///
    /// # Errors
    /// Anything else, and words over 63 bytes.
    pub fn new(word: &str) -> Result<Self, Invalid> {
        let is_word = (1..=Identifier::BYTES_MAX).contains(&word.len())
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if is_word {
            return Ok(Self(word.to_owned()));
        }
        Err(Invalid::new(
            "word of a status column",
            format!("{word:?}"),
            "1 to 63 of A-Z a-z 0-9 _",
        ))
    }

    /// The bare word.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The word as SQL wants it.
    pub fn quoted(&self) -> String {
        format!("'{}'", self.0)
    }
}

/// The words of a status column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// For [`State::Pending`].
    pub pending: StatusWord,
    /// For [`State::Claimed`].
    pub claimed: StatusWord,
    /// For [`State::Done`].
    pub done: StatusWord,
    /// For [`State::Dead`].
    pub dead: StatusWord,
}

impl Words {
    /// The word for a state.
    pub const fn word(&self, state: State) -> &StatusWord {
        match state {
            State::Pending => &self.pending,
            State::Claimed => &self.claimed,
            State::Done => &self.done,
            State::Dead => &self.dead,
        }
    }

    /// The state that a word stands for.
    pub fn state(&self, word: &str) -> Option<State> {
        State::ALL
            .into_iter()
            .find(|state| self.word(*state).as_str() == word)
    }
}

impl LeaseTable {
    /// Every fact with the column that holds it.
    pub fn facts(&self) -> [(&'static str, &Identifier); 17] {
        let columns = &self.columns;
        [
            ("key", &self.key),
            ("created_at", &self.created_at),
            ("status", &columns.status),
            ("until", &columns.until),
            ("holder", &columns.holder),
            ("token", &columns.token),
            ("fence", &columns.fence),
            ("claimed_at", &columns.claimed_at),
            ("available_at", &columns.available_at),
            ("attempts", &columns.attempts),
            ("failures", &columns.failures),
            ("crashes", &columns.crashes),
            ("last_error", &columns.last_error),
            ("done_at", &columns.done_at),
            ("dead_at", &columns.dead_at),
            ("generation", &columns.generation),
            ("settled_token", &columns.settled_token),
        ]
    }

    /// Checks that each fact has a column and each state a word of its own; every store calls this
    /// when it opens or makes the table.
    ///
    /// ```
    /// use tenure_core::LeaseTable;
    ///
    /// let mut table = LeaseTable::outbox();
    /// assert!(table.check().is_ok());
    /// table.words.dead = table.words.done.clone();
    /// assert!(table.check().is_err());
    /// ```
    ///
    /// # Errors
    /// Two facts share a column, or two states a word.
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
        let mut words = BTreeSet::new();
        for state in State::ALL {
            let word = self.words.word(state);
            if !words.insert(word) {
                let found = format!("{}, which stands for two states", word.as_str());
                return Err(Invalid::new("status word", found, "a word for each state"));
            }
        }
        Ok(())
    }

    /// The same description for a table of another name.
    #[must_use]
    pub fn named(mut self, name: Identifier) -> Self {
        self.name = name;
        self
    }
}
