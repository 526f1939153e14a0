//! Calls that were made for deliveries.

use std::collections::HashSet;

use rusqlite::{Connection, Row, named_params};
use tenure_core::store::{Settle, Settlement};
use tenure_core::webhook::{AttemptOutcome, Call, CallDetail, CallRecord};
use tenure_core::{Fence, ItemId, Timestamp};

use super::holds::json;
use super::{row, statements as sql};
use crate::calls::kept_call;

/// Delivery, fence, attempt, began at, outcome, status, error, detail.
type CallRow = (
    i64,
    i64,
    u32,
    i64,
    &'static str,
    Option<u16>,
    Option<String>,
    String,
);

/// Writes the calls that belong to a settle. If the settle of a delivery was refused, its call gets
/// the outcome `Superseded`.
pub(super) fn settled(
    connection: &Connection,
    ask: &Settle,
    settlement: &Settlement,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let refused: HashSet<ItemId> = settlement.refused().map(|(id, _)| id).collect();
    let outcome_of = |call: &Call| {
        if refused.contains(&call.delivery) {
            AttemptOutcome::Superseded
        } else {
            call.outcome
        }
    };
    write(connection, &ask.calls, outcome_of, now)
}

/// Writes calls with the given outcomes.
pub(super) fn write(
    connection: &Connection,
    calls: &[Call],
    outcome_of: impl Fn(&Call) -> AttemptOutcome,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let line = |call: &Call| -> CallRow {
        let kept = kept_call(call, outcome_of(call), now);
        (
            kept.delivery.number(),
            kept.fence.number(),
            kept.attempt,
            kept.began_at.as_micros(),
            kept.outcome.as_str(),
            kept.status,
            kept.error,
            kept.detail.to_json(),
        )
    };
    let lines: Vec<CallRow> = calls.iter().map(line).collect();
    connection
        .prepare_cached(sql::RECORD_CALLS)?
        .execute(named_params! {":calls": json(&lines)})?;
    Ok(())
}

/// Returns the calls of a delivery, ordered by fence.
pub(super) fn of(connection: &Connection, delivery: ItemId) -> rusqlite::Result<Vec<CallRecord>> {
    connection
        .prepare_cached(sql::CALLS)?
        .query_map(named_params! {":delivery": delivery.number()}, record)?
        .collect()
}

fn record(found: &Row<'_>) -> rusqlite::Result<CallRecord> {
    Ok(CallRecord {
        delivery: row::id(found, 0)?,
        fence: Fence::new(found.get(1)?),
        attempt: found.get(2)?,
        began_at: row::moment(found, 3)?,
        outcome: row::word(found, 4, AttemptOutcome::parse)?,
        status: found.get(5)?,
        error: found.get(6)?,
        detail: CallDetail::from_json(found.get_ref(7)?.as_str()?),
    })
}
