//! Encoding of a row's state: by a word, by a word and its holder, or by its timestamps alone.

use super::{Columns, Identifier, LeaseTable, name};
use crate::invalid::Invalid;
use crate::state::State;

/// Encoding of a row's state.
///
/// [`LeaseTable::conditions`] defines each encoding; code that reads rows or writes SQL uses only
/// these conditions. Lines of a statement that name a status are left out for a table without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum States {
    /// By a status word alone: each state has its own word.
    Worded(StatusColumn),
    /// By a status word and the holder: a claimed row has the word of a pending row, and a holder.
    /// Other programs may claim such a row by writing only the holder and the end of the term, so
    /// the token and the time of the claim are valid only for claims by Tenure.
    Held(StatusColumn),
    /// By timestamps alone, without a status. A row with a `dead_at` is dead; otherwise, with a
    /// `done_at` it is done; otherwise, with an `until` it is claimed; otherwise it is pending.
    /// Other programs may claim such a row by writing only the holder and the end of the term, as
    /// with [`States::Held`]; Tenure's token stays in the row and is refused, because the holder
    /// differs. Another program is mistaken for a worker of Tenure only if it copies a whole worker
    /// id with its nonce; such a table cannot detect that.
    ///
    /// Programs that write such a table directly treat a lapsed row as free. A claim of Tenure that
    /// also reaps does the same: it first makes all lapsed rows pending again, without a delay, and
    /// then claims in the order configured for the table.
    Derived,
}

/// A column that holds a word for the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusColumn {
    /// Name of the column.
    pub column: Identifier,
    /// Word of each state.
    pub words: StatusWords,
}

/// Condition on one column of a row in some state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// The column holds this word.
    Is(&'a Identifier, &'a StatusWord),
    /// The column is null.
    Null(&'a Identifier),
    /// The column is not null.
    NotNull(&'a Identifier),
}

impl Condition<'_> {
    /// Returns true if a column with this value meets the condition.
    fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Self::Is(_, word) => value == Some(word.as_str()),
            Self::Null(_) => value.is_none(),
            Self::NotNull(_) => value.is_some(),
        }
    }

    const fn column(&self) -> &Identifier {
        match self {
            Self::Is(column, _) | Self::Null(column) | Self::NotNull(column) => column,
        }
    }

    /// Returns true if no value meets both conditions.
    fn excludes(&self, other: &Condition<'_>) -> bool {
        self.column() == other.column()
            && match (self, other) {
                (Self::Is(_, one), Condition::Is(_, another)) => one != another,
                (Self::Null(_), Condition::Null(_)) => false,
                (Self::Null(_), _) | (_, Condition::Null(_)) => true,
                _ => false,
            }
    }
}

impl States {
    /// Status column, if the table has one.
    pub const fn status(&self) -> Option<&StatusColumn> {
        match self {
            Self::Worded(status) | Self::Held(status) => Some(status),
            Self::Derived => None,
        }
    }

    /// Word of a row in this state, if the table has words.
    ///
    /// ```
    /// use tenure_core::{LeaseTable, State};
    ///
    /// let states = LeaseTable::webhook().states;
    /// assert_eq!(states.word(State::Claimed), Some("pending"));
    /// assert_eq!(states.word(State::Dead), Some("failed"));
    /// ```
    pub fn word(&self, state: State) -> Option<&str> {
        let status = self.status()?;
        Some(status.words.word(state).as_str())
    }
}

impl LeaseTable {
    /// Conditions that hold together exactly for the rows in this state.
    pub fn conditions(&self, state: State) -> Vec<Condition<'_>> {
        let Columns {
            holder,
            until,
            done_at,
            dead_at,
            ..
        } = &self.columns;
        let (is_open, is_alive) = (Condition::Null(done_at), Condition::Null(dead_at));
        match (&self.states, state) {
            (States::Held(status), State::Pending) => {
                vec![status.condition(state), Condition::Null(holder)]
            }
            (States::Held(status), State::Claimed) => {
                vec![status.condition(state), Condition::NotNull(holder)]
            }
            (States::Worded(status) | States::Held(status), _) => vec![status.condition(state)],
            (States::Derived, State::Pending) => {
                vec![is_open, is_alive, Condition::Null(until)]
            }
            (States::Derived, State::Claimed) => {
                vec![is_open, is_alive, Condition::NotNull(until)]
            }
            (States::Derived, State::Done) => vec![Condition::NotNull(done_at), is_alive],
            (States::Derived, State::Dead) => vec![Condition::NotNull(dead_at)],
        }
    }

    /// State of a row whose columns have these values; `None` if they match no state.
    ///
    /// ```
    /// use tenure_core::{Identifier, LeaseTable, State};
    ///
    /// let table = LeaseTable::webhook();
    /// let waits = |column: &Identifier| {
    ///     (column.as_str() == "delivery_status").then_some("pending")
    /// };
    /// assert_eq!(table.state(waits), Some(State::Pending));
    /// let is_held = |column: &Identifier| match column.as_str() {
    ///     "delivery_status" => Some("pending"),
    ///     "lease_owner" => Some("sender-1"),
    ///     _ => None,
    /// };
    /// assert_eq!(table.state(is_held), Some(State::Claimed));
    /// ```
    pub fn state<'v>(&self, value: impl Fn(&Identifier) -> Option<&'v str>) -> Option<State> {
        let is_in = |state: &State| {
            let conditions = self.conditions(*state);
            conditions.iter().all(|c| c.holds(value(c.column())))
        };
        State::ALL.into_iter().find(is_in)
    }

    /// Checks that no row can be in two states.
    pub(super) fn check_states(&self) -> Result<(), Invalid> {
        for (nth, one) in State::ALL.into_iter().enumerate() {
            for other in State::ALL.into_iter().skip(nth + 1) {
                let (these, those) = (self.conditions(one), self.conditions(other));
                let apart = these.iter().any(|a| those.iter().any(|b| a.excludes(b)));
                if !apart {
                    let found = format!("the same for {one} and {other}");
                    let expected = "a word for each state; pending and claimed may share one \
                                    if the holder distinguishes them";
                    return Err(Invalid::new("status word", found, expected));
                }
            }
        }
        Ok(())
    }
}

impl StatusColumn {
    const fn condition(&self, state: State) -> Condition<'_> {
        Condition::Is(&self.column, self.words.word(state))
    }
}

/// A word of a status column that is safe to write into SQL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusWord(String);

impl StatusWord {
    /// Accepts a word of letters, digits and `_`.
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

    /// The word quoted for SQL.
    pub fn quoted(&self) -> String {
        format!("'{}'", self.0)
    }
}

/// The words of a status column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusWords {
    /// For [`State::Pending`].
    pub pending: StatusWord,
    /// For [`State::Claimed`].
    pub claimed: StatusWord,
    /// For [`State::Done`].
    pub done: StatusWord,
    /// For [`State::Dead`].
    pub dead: StatusWord,
}

impl StatusWords {
    /// The word of a state.
    pub const fn word(&self, state: State) -> &StatusWord {
        match state {
            State::Pending => &self.pending,
            State::Claimed => &self.claimed,
            State::Done => &self.done,
            State::Dead => &self.dead,
        }
    }

    /// All words, in the order of the states.
    pub fn all(&self) -> [&str; 4] {
        State::ALL.map(|state| self.word(state).as_str())
    }
}

/// Makes the status column of a preset with its words for pending, claimed, done and dead.
pub(super) fn status(column: &str, [pending, claimed, done, dead]: [&str; 4]) -> StatusColumn {
    let word =
        |text| StatusWord::new(text).expect("the presets' words are safe: a test reads them");
    StatusColumn {
        column: name(column),
        words: StatusWords {
            pending: word(pending),
            claimed: word(claimed),
            done: word(done),
            dead: word(dead),
        },
    }
}
