//! What the row layouts of both databases share: the words of a settle as lists, and the reading of
//! a row's state and hold.

use tenure_core::store::{Claim, Company, Reap, Reaped, Rest, StoreError, StoreErrorKind};
use tenure_core::{Fence, Hold, ItemId, LeaseTable, Outcome, State, States, Timestamp, Word};

use crate::error_text::error_text;
use crate::limits::{INLINE_REAP_LIMIT, micros};

/// What a settle says of one row, as the statements take it.
pub(crate) struct Said {
    pub(crate) id: i64,
    pub(crate) word: &'static str,
    pub(crate) delay: i64,
    pub(crate) error: Option<String>,
}

impl Said {
    pub(crate) fn of(id: ItemId, outcome: &Outcome) -> Self {
        let (delay, error) = match outcome {
            Outcome::Done => (0, None),
            Outcome::Retry { after, error } => (micros(*after), Some(error_text(error))),
            Outcome::Dead { error, .. } => (0, Some(error_text(error))),
            Outcome::Release { after } => (micros(*after), None),
        };
        Self {
            id: id.number(),
            word: outcome.word().as_str(),
            delay,
            error,
        }
    }

    /// What is said of a row that is not named.
    #[cfg(feature = "sqlite")]
    pub(crate) fn of_rest(id: i64, word: &'static str) -> Self {
        Self {
            id,
            word,
            delay: 0,
            error: None,
        }
    }
}

/// The reap that a claim begins with where what has lapsed is as good as free: all of it must be
/// back before the claim looks, or the order of the table would not hold. So it is repeated while
/// it finds its fill, and its delays are none; the crash budget stays the caller's. `None`: the
/// claim comes first, and a reap follows if it is short.
pub(crate) fn first_reap(table: &LeaseTable, claim: &Claim) -> Option<Reap> {
    if table.states != States::Derived {
        return None;
    }
    let policy = claim.recovery.clone()?;
    let mut reap = Reap::new(INLINE_REAP_LIMIT, policy.without_delays()).inline();
    reap.now = claim.now;
    Some(reap)
}

/// Whether a reap may have left more behind.
pub(crate) fn is_full(reap: &Reap, reaped: usize) -> bool {
    u32::try_from(reaped).is_ok_and(|reaped| reaped >= reap.limit)
}

/// Whether a claim takes rows that must be worked alone in their turn like all others: it does
/// where what has lapsed is as good as free, if it takes no more than one row anyway.
pub(crate) fn takes_lone_rows(table: &LeaseTable, claim: &Claim) -> bool {
    table.states == States::Derived && claim.company == Company::Together && claim.most() == 1
}

/// The word for the rows that a settle does not name; `None` keeps them held.
pub(crate) fn rest_word(rest: Rest) -> Option<&'static str> {
    match rest {
        Rest::Keep => None,
        Rest::Done => Some(Word::Done.as_str()),
        Rest::Release => Some(Word::Release.as_str()),
    }
}

/// What to do about a table that was adopted and has lost a column since; `None` for a table of our
/// own, which a migration makes.
pub(crate) fn changed_hint(table: &LeaseTable) -> Option<String> {
    let name = &table.name;
    (!name.as_str().starts_with("tenure_")).then(|| {
        format!(
            "`tenure adopt {name}` again adds what an adopted table has lost, `tenure adopt \
             {name} --undo` gives it back"
        )
    })
}

/// The state of a row, as a statement found it.
///
/// # Errors
/// Its columns tell none: someone else wrote them.
pub(crate) fn state_of(
    verb: &'static str,
    table: &LeaseTable,
    found: Option<&str>,
) -> Result<State, StoreError> {
    found.and_then(State::parse).ok_or_else(|| {
        let problem = format!("the table {} holds a row that is in no state", table.name);
        let mut words: Vec<&str> = State::ALL
            .into_iter()
            .filter_map(|state| table.states.word(state))
            .collect();
        words.dedup();
        StoreError::new(verb, StoreErrorKind::Corrupt, problem).hint(format!(
            "look for a status that is none of {}, and set it right",
            words.join(", ")
        ))
    })
}

/// The hold on a row, if it is claimed and its columns say so.
pub(crate) fn hold_of(
    state: State,
    holder: Option<String>,
    fence: Fence,
    times: (Option<Timestamp>, Option<Timestamp>),
) -> Option<Hold> {
    match (state, holder, times) {
        (State::Claimed, Some(holder), (Some(claimed_at), Some(until))) => Some(Hold {
            holder,
            fence,
            claimed_at,
            until,
        }),
        _ => None,
    }
}

/// What a reap ended, and the last row that the table itself kept from being ended.
#[derive(Debug, Default)]
pub(crate) struct ReapedRows {
    pub(crate) rows: Vec<Reaped>,
    pub(crate) failed: Option<StoreError>,
}

impl ReapedRows {
    /// The answer: a row that cannot be ended is told when nothing else is left to end.
    pub(crate) fn told(self) -> Result<Vec<Reaped>, StoreError> {
        match self.failed {
            Some(error) if self.rows.is_empty() => Err(error),
            _ => Ok(self.rows),
        }
    }
}
