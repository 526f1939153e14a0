//! How a row tells its state: by a word, by a word and its holder, or by its moments alone.

use super::{Columns, Identifier, LeaseTable, name};
use crate::invalid::Invalid;
use crate::state::State;

/// How a row tells its state.
///
/// What a kind means is said once, in [`LeaseTable::conditions`]; whoever reads rows or writes SQL
/// goes by those. A statement's lines that name a status are left out where a table has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum States {
    /// By its word alone: each state has one of its own.
    Worded(StatusColumn),
    /// By its word and its holder: what is claimed keeps the word of what is pending, and has a
    /// holder. Others may claim such a row by writing holder and end of term alone, so nothing is
    /// asked of its token and of the moment of its claim but by us.
    Held(StatusColumn),
    /// By its moments alone, without a status: dead with a `dead_at`, else done with a `done_at`,
    /// else claimed with an `until`, else pending. Others may claim such a row by writing holder
    /// and end of term alone, as with [`States::Held`]; our token stays behind, and is refused
    /// since the holder is not its own any more. Our workers have a nonce in their ids, so another
    /// passes for one of them only if it copies the whole id: nothing in such a table would tell.
    ///
    /// Who writes such a table by hand takes what has lapsed as if it were free. So does a claim
    /// of ours that recovers: it puts back all that has lapsed first, without a delay, and then
    /// claims in the order of the table.
    Derived,
}

/// A column that holds a word for the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusColumn {
    /// Its name.
    pub column: Identifier,
    /// Which word stands for which state.
    pub words: Words,
}

/// What is so of one column of a row in some state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// It holds this word.
    Is(&'a Identifier, &'a StatusWord),
    /// It is null.
    Null(&'a Identifier),
    /// It is not null.
    NotNull(&'a Identifier),
}

impl Condition<'_> {
    /// Whether it is so of a column with this value.
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

    /// Whether no value fits both.
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
    /// The column with the words, in a table that has one.
    pub const fn status(&self) -> Option<&StatusColumn> {
        match self {
            Self::Worded(status) | Self::Held(status) => Some(status),
            Self::Derived => None,
        }
    }

    /// The word that a row in this state shows, in a table that has words.
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
    /// What is so of a row exactly when it is in this state: all of these together.
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
                vec![status.shows(state), Condition::Null(holder)]
            }
            (States::Held(status), State::Claimed) => {
                vec![status.shows(state), Condition::NotNull(holder)]
            }
            (States::Worded(status) | States::Held(status), _) => vec![status.shows(state)],
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

    /// The state of a row whose columns have these values; `None`: they tell none.
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

    /// Checks that no row is in two states.
    pub(super) fn check_states(&self) -> Result<(), Invalid> {
        for (nth, one) in State::ALL.into_iter().enumerate() {
            for other in State::ALL.into_iter().skip(nth + 1) {
                let (these, those) = (self.conditions(one), self.conditions(other));
                let apart = these.iter().any(|a| those.iter().any(|b| a.excludes(b)));
                if !apart {
                    let found = format!("alike for {one} and {other}");
                    let expected = "a word for each state; pending and claimed may share one \
                                    where the holder tells them apart";
                    return Err(Invalid::new("status word", found, expected));
                }
            }
        }
        Ok(())
    }
}

impl StatusColumn {
    const fn shows(&self, state: State) -> Condition<'_> {
        Condition::Is(&self.column, self.words.word(state))
    }
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

    /// All of them, in the order of the states.
    pub fn all(&self) -> [&str; 4] {
        State::ALL.map(|state| self.word(state).as_str())
    }
}

/// A column of a preset with its words for pending, claimed, done and dead.
pub(super) fn status(column: &str, [pending, claimed, done, dead]: [&str; 4]) -> StatusColumn {
    let word =
        |text| StatusWord::new(text).expect("the presets' words are safe: a test reads them");
    StatusColumn {
        column: name(column),
        words: Words {
            pending: word(pending),
            claimed: word(claimed),
            done: word(done),
            dead: word(dead),
        },
    }
}
