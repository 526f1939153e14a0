//! Stored leases and their end: the part that settle, reap and bury share.

use std::collections::BTreeMap;

use rusqlite::types::Type;
use rusqlite::{Connection, Row, named_params};
use tenure_core::{ItemId, LapsePolicy, Outcome, OutcomeKind, Timestamp, reason};

use super::statements as sql;
use crate::error_text::error_text;
use crate::lane::Lane;

/// A block has `1 << BLOCK_BITS` ids. The ids of a journal row lie within one block, see
/// `tenure_settled` in `migrations/sqlite/0001/1_queue.sql`.
const BLOCK_BITS: u32 = 10;

/// Held ids by ordering key, ascending.
pub(super) type Runs = BTreeMap<String, Vec<i64>>;

/// A stored lease: the columns fence, holder, `claimed_at`, `locked_until`, ids, `ids_by_key`.
pub(super) struct Leased {
    pub(super) token: String,
    pub(super) fence: i64,
    pub(super) holder: String,
    pub(super) claimed_at: Timestamp,
    pub(super) until: Timestamp,
    /// A JSON array, ascending.
    pub(super) ids: String,
    /// A JSON object: [`Runs`].
    pub(super) ids_by_key: Option<String>,
}

impl Leased {
    /// Reads a lease whose columns begin at `first`.
    pub(super) fn read(token: String, row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            token,
            fence: row.get(first)?,
            holder: row.get(first + 1)?,
            claimed_at: super::row::moment(row, first + 2)?,
            until: super::row::moment(row, first + 3)?,
            ids: row.get(first + 4)?,
            ids_by_key: row.get(first + 5)?,
        })
    }

    /// Held ids, ascending.
    pub(super) fn held(&self) -> rusqlite::Result<Vec<i64>> {
        parse(&self.ids, 4)
    }

    /// Held ids that have a key.
    pub(super) fn runs(&self) -> rusqlite::Result<Runs> {
        let Some(text) = &self.ids_by_key else {
            return Ok(Runs::new());
        };
        serde_json::from_str(text).map_err(|cause| unreadable(5, cause))
    }

    /// Keeps only these ids (ascending) under the lease; deletes the lease if there are none.
    pub(super) fn keep(&self, connection: &Connection, left: &[i64]) -> rusqlite::Result<()> {
        if left.is_empty() {
            connection
                .prepare_cached(sql::SETTLE_END_LEASE)?
                .execute(named_params! {":token": self.token})?;
        } else {
            let mut runs = self.runs()?;
            runs.retain(|_, run| {
                run.retain(|id| left.binary_search(id).is_ok());
                !run.is_empty()
            });
            connection
                .prepare_cached(sql::SETTLE_KEEP_LEASE)?
                .execute(named_params! {
                    ":token": self.token,
                    ":ids": json(left),
                    ":ids_by_key": ids_by_key(&runs),
                })?;
        }
        Ok(())
    }

    /// Records in the journal that the lease of these items ended with this outcome.
    pub(super) fn note(
        &self,
        connection: &Connection,
        word: OutcomeKind,
        mut ids: Vec<i64>,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        ids.sort_unstable();
        let blocks: Vec<&[i64]> = ids
            .chunk_by(|a, b| a >> BLOCK_BITS == b >> BLOCK_BITS)
            .collect();
        connection
            .prepare_cached(sql::SETTLE_JOURNAL)?
            .execute(named_params! {
                ":token": self.token,
                ":outcome": word.as_str(),
                ":holder": self.holder,
                ":fence": self.fence,
                ":claimed_at": self.claimed_at.as_micros(),
                ":now": now.as_micros(),
                ":blocks": json(&blocks),
            })?;
        Ok(())
    }
}

/// Changes to items whose lease ends. A done item needs none.
#[derive(Default)]
pub(super) struct Ends {
    setbacks: Vec<Setback>,
    back: Vec<i64>,
    behind: Vec<i64>,
    dead: Vec<(i64, String)>,
}

/// Id; increments of attempts, failures and crashes; last error, available at, lane (null:
/// unchanged).
type Setback = (
    i64,
    u32,
    u32,
    u32,
    Option<String>,
    Option<i64>,
    Option<Lane>,
);

/// Destination of an item that becomes pending again.
#[derive(Clone, Copy)]
pub(super) enum ReturnTo {
    Ready,
    /// The backlog of its key.
    Behind,
}

impl Ends {
    /// Applies the outcome that the holder reported for an item.
    pub(super) fn say(&mut self, id: i64, outcome: &Outcome, back: ReturnTo, now: Timestamp) {
        match outcome {
            Outcome::Done => {}
            Outcome::Retry { after, error } => {
                let from = now.after(*after).as_micros();
                let setback = (id, 1, 1, 0, Some(error_text(error)), Some(from), None);
                self.give_back(setback, back);
            }
            Outcome::Dead { reason, error } => {
                let setback = (id, 1, 1, 0, Some(error_text(error)), None, None);
                self.setbacks.push(setback);
                self.dead.push((id, error_text(reason)));
            }
            Outcome::Release { after } => {
                let from = (!after.is_zero()).then(|| now.after(*after).as_micros());
                self.give_back((id, 1, 0, 0, None, from, None), back);
            }
        }
    }

    /// The lease of the item lapsed: the item is pending again, in `lane` if given, and due at
    /// `from`.
    pub(super) fn lapse(&mut self, id: i64, from: Timestamp, lane: Option<Lane>, back: ReturnTo) {
        let error = Some(LapsePolicy::ERROR.to_owned());
        let setback = (id, 1, 0, 1, error, Some(from.as_micros()), lane);
        self.give_back(setback, back);
    }

    /// The lease of the item lapsed more often than allowed: the item is dead.
    pub(super) fn crash(&mut self, id: i64) {
        let error = Some(LapsePolicy::DEAD_ERROR.to_owned());
        self.setbacks.push((id, 1, 0, 1, error, None, None));
        self.dead.push((id, reason::CRASH_LOOP.to_owned()));
    }

    /// An operator settled the item as dead.
    pub(super) fn bury(&mut self, id: i64, error: &str, reason: &str) {
        let setback = (id, 1, 0, 0, Some(error_text(error)), None, None);
        self.setbacks.push(setback);
        self.dead.push((id, reason.to_owned()));
    }

    fn give_back(&mut self, setback: Setback, back: ReturnTo) {
        match back {
            ReturnTo::Ready => self.back.push(setback.0),
            ReturnTo::Behind => self.behind.push(setback.0),
        }
        self.setbacks.push(setback);
    }

    /// Writes all changes.
    pub(super) fn write(self, connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
        if !self.setbacks.is_empty() {
            connection
                .prepare_cached(sql::SETTLE_SETBACKS)?
                .execute(named_params! {":setbacks": json(&self.setbacks)})?;
        }
        if !self.back.is_empty() {
            make_ready(connection, &self.back)?;
        }
        if !self.behind.is_empty() {
            put_behind(connection, &self.behind)?;
        }
        if !self.dead.is_empty() {
            connection
                .prepare_cached(sql::SETTLE_DEAD)?
                .execute(named_params! {
                    ":dead": json(&self.dead),
                    ":now": now.as_micros(),
                })?;
        }
        Ok(())
    }
}

/// Puts items into `tenure_ready`, at the position given by their setback and event.
pub(super) fn make_ready(connection: &Connection, ids: &[i64]) -> rusqlite::Result<()> {
    connection
        .prepare_cached(sql::SETTLE_READY)?
        .execute(named_params! {":back": json(ids)})?;
    Ok(())
}

/// Puts items into the backlogs of their keys, each at its turn.
pub(super) fn put_behind(connection: &Connection, ids: &[i64]) -> rusqlite::Result<()> {
    connection
        .prepare_cached(sql::SETTLE_BEHIND)?
        .execute(named_params! {":behind": json(ids)})?;
    Ok(())
}

/// Held ids by ordering key, as JSON; `None` if no item has a key.
pub(super) fn ids_by_key(runs: &Runs) -> Option<String> {
    (!runs.is_empty()).then(|| json(runs))
}

/// Ids by reported outcome.
pub(super) type IdsByOutcome = BTreeMap<OutcomeKind, Vec<i64>>;

/// Reads ids from a column that holds a JSON array.
pub(super) fn ids(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<ItemId>> {
    let text = row.get_ref(column)?.as_str()?;
    Ok(parse(text, column)?.into_iter().map(ItemId::new).collect())
}

/// Parses the text of a column into ids.
pub(super) fn parse(text: &str, column: usize) -> rusqlite::Result<Vec<i64>> {
    serde_json::from_str(text).map_err(|cause| unreadable(column, cause))
}

fn unreadable(column: usize, cause: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(cause))
}

/// Encodes a list as JSON, for a statement parameter.
pub(super) fn json<T>(list: &T) -> String
where
    T: serde::Serialize + ?Sized,
{
    serde_json::to_string(list).expect("numbers and texts can always be written as JSON")
}
