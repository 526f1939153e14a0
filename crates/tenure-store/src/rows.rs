//! Row layout, shared by both databases: the columns of a settle, and the state and hold of a row.

use tenure_core::store::{Claim, Isolation, Reap, Reaped, Rest, StoreError, StoreErrorKind};
use tenure_core::{
    Fence, Hold, ItemId, LeaseTable, Outcome, OutcomeKind, State, States, Timestamp,
};

use crate::error_text::error_text;
use crate::limits::{INLINE_REAP_LIMIT, micros};

/// Outcome of one row, as parameters of the statements.
pub(crate) struct SettleColumns {
    pub(crate) id: i64,
    pub(crate) word: &'static str,
    pub(crate) delay: i64,
    pub(crate) error: Option<String>,
}

impl SettleColumns {
    pub(crate) fn of(id: ItemId, outcome: &Outcome) -> Self {
        let (delay, error) = match outcome {
            Outcome::Done => (0, None),
            Outcome::Retry { after, error } => (micros(*after), Some(error_text(error))),
            Outcome::Dead { error, .. } => (0, Some(error_text(error))),
            Outcome::Release { after } => (micros(*after), None),
        };
        Self {
            id: id.number(),
            word: outcome.kind().as_str(),
            delay,
            error,
        }
    }

    /// Outcome of a row that the settle does not name.
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

/// Returns the reap that runs before a claim, for tables in which a lapsed row counts as free: all
/// lapsed rows must be available before the claim chooses, or the claim would break the order of
/// the table. The caller repeats the reap while it returns full batches. The reap uses the policy
/// of the claim, without delays. `None`: the claim comes first, and a reap follows if the claim is
/// short.
pub(crate) fn first_reap(table: &LeaseTable, claim: &Claim) -> Option<Reap> {
    if table.states != States::Derived {
        return None;
    }
    let policy = claim.recovery.clone()?;
    let mut reap = Reap::new(INLINE_REAP_LIMIT, policy.without_delays()).inline();
    reap.now = claim.now;
    Some(reap)
}

/// Returns whether a reap may have left lapsed rows.
pub(crate) fn is_full(reap: &Reap, reaped: usize) -> bool {
    u32::try_from(reaped).is_ok_and(|reaped| reaped >= reap.limit)
}

/// Returns whether a claim takes poison rows in their order, like all other rows: true if a lapsed
/// row counts as free and the claim takes only one row.
pub(crate) fn takes_lone_rows(table: &LeaseTable, claim: &Claim) -> bool {
    table.states == States::Derived && claim.isolation == Isolation::Shared && claim.most() == 1
}

/// Outcome of the rows that a settle does not name; `None` keeps them held.
pub(crate) fn rest_word(rest: Rest) -> Option<&'static str> {
    match rest {
        Rest::Keep => None,
        Rest::Done => Some(OutcomeKind::Done.as_str()),
        Rest::Release => Some(OutcomeKind::Release.as_str()),
    }
}

/// Hint for an adopted table that lost a column; `None` for Tenure's own tables, which migrations
/// create.
pub(crate) fn changed_hint(table: &LeaseTable) -> Option<String> {
    let name = &table.name;
    (!name.as_str().starts_with("tenure_")).then(|| {
        format!(
            "run `tenure adopt {name}` again to add the missing columns, or `tenure adopt {name} \
             --undo` to undo the adoption"
        )
    })
}

/// The state of a row.
///
/// # Errors
/// Its columns match no state; another program wrote them.
pub(crate) fn state_of(
    verb: &'static str,
    table: &LeaseTable,
    found: Option<&str>,
) -> Result<State, StoreError> {
    found.and_then(State::parse).ok_or_else(|| {
        let problem = format!(
            "the table {} has a row whose columns match no state",
            table.name
        );
        let mut words: Vec<&str> = State::ALL
            .into_iter()
            .filter_map(|state| table.states.word(state))
            .collect();
        words.dedup();
        StoreError::new(verb, StoreErrorKind::Corrupt, problem).with_hint(format!(
            "find a status other than {}, and correct it",
            words.join(", ")
        ))
    })
}

/// The hold on a row, if it is claimed.
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

/// Result of a reap, with the error of the last row that the table rejected.
#[derive(Debug, Default)]
pub(crate) struct ReapedRows {
    pub(crate) rows: Vec<Reaped>,
    pub(crate) failed: Option<StoreError>,
}

impl ReapedRows {
    /// Returns the reaped rows; a rejected row is an error only if the reap ended no other row.
    pub(crate) fn told(self) -> Result<Vec<Reaped>, StoreError> {
        match self.failed {
            Some(error) if self.rows.is_empty() => Err(error),
            _ => Ok(self.rows),
        }
    }
}
