//! Calls: what is known of those that were made for deliveries.

use std::collections::HashSet;

use rusqlite::{Connection, Row, named_params};
use tenure_core::store::{Settle, Settlement};
use tenure_core::webhook::{AttemptOutcome, Call, CallDetail, CallRecord};
use tenure_core::{Fence, ItemId, Timestamp};

use super::holds::json;
use super::{row, statements as sql};
use crate::calls::kept_call;

/// Delivery, fence, attempt, began at, outcome, status, error, detail.
type Line = (
    i64,
    i64,
    u32,
    i64,
    &'static str,
    Option<u16>,
    Option<String>,
    String,
);

/// Writes down the calls that go with a settle. One whose delivery was refused is superseded.
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

/// Writes down calls, with these outcomes.
pub(super) fn write(
    connection: &Connection,
    calls: &[Call],
    outcome_of: impl Fn(&Call) -> AttemptOutcome,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let line = |call: &Call| -> Line {
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
    let lines: Vec<Line> = calls.iter().map(line).collect();
    connection
        .prepare_cached(sql::RECORD_CALLS)?
        .execute(named_params! {":calls": json(&lines)})?;
    Ok(())
}

/// The calls of a delivery, in the order of their fences.
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
