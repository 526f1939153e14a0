//! What a reap does in its transaction.

use std::collections::HashMap;

use rusqlite::{Connection, named_params};
use tenure_core::store::{Reap, Reaped, StoreError};
use tenure_core::{Boundary, Fence, ItemId, LapsePolicy, State, Timestamp, Word, reason};

use super::error::failed;
use super::holds::{Ends, Leased, json};
use super::statements as sql;
use crate::lane::{Lane, alone_lane, queue_of};

/// Ends lapsed leases, the oldest first.
pub(super) fn reap(
    connection: &Connection,
    ask: &Reap,
    now: Timestamp,
) -> Result<Vec<Reaped>, StoreError> {
    let lapsed = lapsed(connection, ask, now).map_err(failed("reap"))?;
    if lapsed.is_empty() {
        return Ok(Vec::new());
    }
    end(connection, &lapsed, &ask.policy, now).map_err(failed("reap"))
}

fn lapsed(connection: &Connection, ask: &Reap, now: Timestamp) -> rusqlite::Result<Vec<Leased>> {
    connection
        .prepare_cached(sql::REAP_LAPSED)?
        .query_map(
            named_params! {
                ":now": now.as_micros(),
                ":reached": ask.boundary == Boundary::Reached,
                ":limit": ask.limit,
            },
            |row| Leased::read(row.get(0)?, row, 1),
        )?
        .collect()
}

fn end(
    connection: &Connection,
    lapsed: &[Leased],
    policy: &LapsePolicy,
    now: Timestamp,
) -> rusqlite::Result<Vec<Reaped>> {
    let tokens: Vec<&str> = lapsed.iter().map(|lease| lease.token.as_str()).collect();
    connection
        .prepare_cached(sql::REAP_END_LEASES)?
        .execute(named_params! {":tokens": json(&tokens)})?;
    let held: Vec<Vec<i64>> = lapsed.iter().map(Leased::held).collect::<Result<_, _>>()?;
    let counters = counters(connection, &held.concat())?;
    let mut ends = Ends::default();
    let mut reaped: Vec<(Timestamp, Reaped)> = Vec::new();
    for (lease, ids) in lapsed.iter().zip(held) {
        for id in &ids {
            let (lane, crashes) = counters.get(id).copied().unwrap_or_default();
            let from = fate(&mut ends, policy, (*id, lane, crashes + 1), now);
            let item = Reaped {
                id: ItemId::new(*id),
                holder: lease.holder.clone(),
                fence: Fence::new(lease.fence),
                stale: now.since(lease.until),
                state: from.map_or(State::Dead, |_| State::Pending),
                available_at: from,
            };
            reaped.push((lease.until, item));
        }
        lease.note(connection, Word::Lapsed, ids, now)?;
    }
    ends.write(connection, now)?;
    reaped.sort_by_key(|(until, item)| (*until, item.id));
    Ok(reaped.into_iter().map(|(_, item)| item).collect())
}

/// Decides what becomes of an item at this lapse; answers from when it waits again, if it does.
fn fate(
    ends: &mut Ends,
    policy: &LapsePolicy,
    (id, lane, crashes): (i64, Lane, u32),
    now: Timestamp,
) -> Option<Timestamp> {
    let Some(delay) = policy.fate(crashes) else {
        ends.crash(id, LapsePolicy::DEAD_ERROR, reason::CRASH_LOOP);
        return None;
    };
    let from = now.after(delay);
    let alone = (crashes >= LapsePolicy::ALONE_AFTER).then(|| alone_lane(queue_of(lane)));
    ends.lapse(id, LapsePolicy::ERROR, from, alone);
    Some(from)
}

/// The lane as enqueued and the lapses so far of each item.
fn counters(connection: &Connection, ids: &[i64]) -> rusqlite::Result<HashMap<i64, (Lane, u32)>> {
    connection
        .prepare_cached(sql::REAP_COUNTERS)?
        .query_map(named_params! {":ids": json(ids)}, |row| {
            Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))
        })?
        .collect()
}
