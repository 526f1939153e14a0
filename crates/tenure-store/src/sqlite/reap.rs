//! What a reap does in its transaction.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, named_params};
use tenure_core::store::{Reap, Reaped, StoreError};
use tenure_core::{
    Boundary, Fence, ItemId, LapsePolicy, Outcome, State, Timestamp, Word, lapse_run,
};

use super::error::failed;
use super::holds::{Back, Ends, Leased, json};
use super::statements as sql;
use super::turns::Turns;
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
    let (mut ends, mut turns) = (Ends::default(), Turns::default());
    let mut reaped: Vec<(Timestamp, Reaped)> = Vec::new();
    for (lease, ids) in lapsed.iter().zip(held) {
        let company = Company::of(lease, &counters, policy, &mut turns)?;
        for id in &ids {
            let Some(past) = counters.get(id).copied() else {
                continue;
            };
            let from = if company.followers.contains(id) {
                ends.say(*id, &Outcome::RELEASE, Back::Behind, now);
                Some(past.available_at)
            } else {
                let back = company.back_of(*id);
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
        lease.note(connection, Word::Lapsed, ids, now)?;
    }
    ends.write(connection, now)?;
    turns.write(connection, now)?;
    reaped.sort_by_key(|(until, item)| (*until, item.id));
    Ok(reaped.into_iter().map(|(_, item)| item).collect())
}

/// The items of a lapsed lease that have a key.
#[derive(Default)]
struct Company {
    /// The first of each run: they were being worked on.
    heads: HashSet<i64>,
    /// The others: they go back as they were.
    followers: HashSet<i64>,
}

impl Company {
    fn of(
        lease: &Leased,
        counters: &HashMap<i64, Past>,
        policy: &LapsePolicy,
        turns: &mut Turns,
    ) -> rusqlite::Result<Self> {
        let mut company = Self::default();
        for (key, run) in lease.runs()? {
            let Some(first) = run.first() else {
                continue;
            };
            let crashes = counters.get(first).map_or(0, |past| past.crashes);
            let is_dead = policy.fate(crashes + 1).is_none();
            let (fates, _) = lapse_run(run.len(), is_dead, policy.on_dead());
            company.heads.insert(*first);
            company.followers.extend(run.iter().skip(1));
            turns.note(key, run.into_iter().zip(fates));
        }
        Ok(company)
    }

    /// Where an item goes that waits again. A head goes through the backlog, where it is the first:
    /// so it is held back by a pause as all the others are.
    fn back_of(&self, id: i64) -> Back {
        if self.heads.contains(&id) {
            Back::Behind
        } else {
            Back::Ready
        }
    }
}

/// What is known of an item whose lease lapsed.
#[derive(Clone, Copy)]
struct Past {
    /// As enqueued.
    lane: Lane,
    /// The lapses so far.
    crashes: u32,
    available_at: Timestamp,
}

/// Decides what becomes of an item at this lapse; answers from when it waits again, if it does.
fn fate(
    ends: &mut Ends,
    policy: &LapsePolicy,
    (id, past, back): (i64, Past, Back),
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

fn counters(connection: &Connection, ids: &[i64]) -> rusqlite::Result<HashMap<i64, Past>> {
    connection
        .prepare_cached(sql::REAP_COUNTERS)?
        .query_map(named_params! {":ids": json(ids)}, |row| {
            let past = Past {
                lane: row.get(1)?,
                crashes: row.get(2)?,
                available_at: super::row::moment(row, 3)?,
            };
            Ok((row.get(0)?, past))
        })?
        .collect()
}
