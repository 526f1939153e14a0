//! Reap, inside its transaction.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, named_params};
use tenure_core::store::{Reap, Reaped, StoreError};
use tenure_core::{
    Boundary, Fence, ItemId, LapsePolicy, Outcome, OutcomeKind, State, Timestamp, lapse_run,
};

use super::error::failed;
use super::holds::{Ends, Leased, ReturnTo, json};
use super::statements as sql;
use super::turns::Turns;
use crate::lane::{Lane, alone_lane, queue_of};

/// Ends lapsed leases, oldest first.
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
    let (mut ends, mut turns) = (Ends::default(), Turns::default());
    let mut reaped: Vec<(Timestamp, Reaped)> = Vec::new();
    for (lease, ids) in lapsed.iter().zip(held) {
        let keyed = KeyedItems::of(lease, &counters, policy, &mut turns)?;
        for id in &ids {
            let Some(past) = counters.get(id).copied() else {
                continue;
            };
            let from = if keyed.followers.contains(id) {
                ends.say(*id, &Outcome::RELEASE, ReturnTo::Behind, now);
                Some(past.available_at)
            } else {
                let back = keyed.back_of(*id);
                fate(&mut ends, policy, (*id, past, back), now)
            };
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
        lease.note(connection, OutcomeKind::Lapsed, ids, now)?;
    }
    ends.write(connection, now)?;
    turns.write(connection, now)?;
    reaped.sort_by_key(|(until, item)| (*until, item.id));
    Ok(reaped.into_iter().map(|(_, item)| item).collect())
}

/// The items of a lapsed lease that have a key.
#[derive(Default)]
struct KeyedItems {
    /// The first item of each run: a worker was processing it.
    heads: HashSet<i64>,
    /// The other items: they count as released.
    followers: HashSet<i64>,
}

impl KeyedItems {
    fn of(
        lease: &Leased,
        counters: &HashMap<i64, LapsedItem>,
        policy: &LapsePolicy,
        turns: &mut Turns,
    ) -> rusqlite::Result<Self> {
        let mut keyed = Self::default();
        for (key, run) in lease.runs()? {
            let Some(first) = run.first() else {
                continue;
            };
            let crashes = counters.get(first).map_or(0, |past| past.crashes);
            let is_dead = policy.fate(crashes + 1).is_none();
            let (fates, _) = lapse_run(run.len(), is_dead, policy.on_dead());
            keyed.heads.insert(*first);
            keyed.followers.extend(run.iter().skip(1));
            turns.note(key, run.into_iter().zip(fates));
        }
        Ok(keyed)
    }

    /// Returns the destination of an item that becomes pending again. A head goes to the front of
    /// the backlog, so that a pause of its key holds it back.
    fn back_of(&self, id: i64) -> ReturnTo {
        if self.heads.contains(&id) {
            ReturnTo::Behind
        } else {
            ReturnTo::Ready
        }
    }
}

/// The relevant columns of an item whose lease lapsed.
#[derive(Clone, Copy)]
struct LapsedItem {
    /// The lane at enqueue.
    lane: Lane,
    /// Lapses so far.
    crashes: u32,
    available_at: Timestamp,
}

/// Decides the fate of an item at this lapse; returns when it may be claimed again, or `None` if it
/// is dead.
fn fate(
    ends: &mut Ends,
    policy: &LapsePolicy,
    (id, past, back): (i64, LapsedItem, ReturnTo),
    now: Timestamp,
) -> Option<Timestamp> {
    let crashes = past.crashes + 1;
    let Some(delay) = policy.fate(crashes) else {
        ends.crash(id);
        return None;
    };
    let from = now.after(delay);
    let alone = (crashes >= LapsePolicy::ALONE_AFTER).then(|| alone_lane(queue_of(past.lane)));
    ends.lapse(id, from, alone, back);
    Some(from)
}

fn counters(connection: &Connection, ids: &[i64]) -> rusqlite::Result<HashMap<i64, LapsedItem>> {
    connection
        .prepare_cached(sql::REAP_COUNTERS)?
        .query_map(named_params! {":ids": json(ids)}, |row| {
            let past = LapsedItem {
                lane: row.get(1)?,
                crashes: row.get(2)?,
                available_at: super::row::moment(row, 3)?,
            };
            Ok((row.get(0)?, past))
        })?
        .collect()
}
