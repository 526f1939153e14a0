//! Calls: what is known of those that were made for deliveries.

use std::collections::HashMap;

use rusqlite::{Connection, Row, named_params};
use tenure_core::store::{Settle, Settlement};
use tenure_core::webhook::{AttemptOutcome, Call, CallDetail, CallRecord};
use tenure_core::{Fence, Guarded, ItemId, Timestamp};

use super::holds::{Leased, json};
use super::{row, statements as sql};
use crate::error_text::error_text;

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

/// Writes down the calls that go with a settle, of what was held under this lease before it. One whose
/// delivery was refused, or was not held any more, is superseded.
pub(super) fn settled(
    connection: &Connection,
    ask: &Settle,
    lease: Option<&Leased>,
    settlement: &Settlement,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let answers: HashMap<ItemId, Guarded> = settlement.items.iter().copied().collect();
    let held = lease.map(Leased::held).transpose()?.unwrap_or_default();
    let is_kept = |id: ItemId| match answers.get(&id) {
        Some(answer) => answer.is_kept(),
        None => held.binary_search(&id.number()).is_ok(),
    };
    let outcome_of = |call: &Call| {
        if is_kept(call.delivery) {
            call.outcome
        } else {
            AttemptOutcome::Superseded
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
        let status = call.reply.as_ref().map(|reply| reply.status.as_ref());
        let detail = call.reply.as_ref().map(CallDetail::of).unwrap_or_default();
        (
            call.delivery.number(),
            call.fence.number(),
            call.attempt,
            now.before(call.ago).as_micros(),
            outcome_of(call).as_str(),
            status.and_then(Result::ok).copied(),
            status
                .and_then(Result::err)
                .map(|error| error_text(&error.text)),
            detail.to_json(),
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
