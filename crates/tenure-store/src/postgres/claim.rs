//! The claim on the queue layout, step by step: where it looks, what it does when it comes back
//! short, how its rows are read.

use std::collections::HashSet;

use sqlx::postgres::PgRow;
use tenure_core::store::{Claim, Company, LeaseStore, Reap, StoreError};
use tenure_core::{Counters, Fence, Held, Item, ItemId, Lease, State, Timestamp};

use super::PostgresStore;
use super::cursor::Start;
use super::error::store_error;
use super::queue::Sql;
use super::row::{get, get_count, get_timestamp, moment};
use super::sources::Events;
use crate::lane::{Lane, alone_lane, lane_of, lanes};
use crate::limits::{INLINE_REAP_LIMIT, micros};

impl PostgresStore {
    /// Where this claim starts to look. With a given `now` (a test's) it looks at everything.
    pub(crate) async fn start(&self, claim: &Claim) -> Result<Start, StoreError> {
        let rows = self.rows_for(claim);
        if !claim.lanes.is_empty() {
            return Ok(self.start_at(claim, endpoint_lanes(claim), rows));
        }
        let mut wanted: Vec<(Lane, u32)> = Vec::new();
        for (nth, queue) in claim.queues.iter().enumerate() {
            let number = self.queue_number("claim", queue).await?;
            // Looked into twice, a lane would give each item twice: our own locks are not skipped.
            let is_repeat = claim.queues.iter().take(nth).any(|seen| seen == queue);
            match claim.company {
                _ if is_repeat => {}
                Company::Together => wanted.extend(lanes(number).map(|lane| (lane, rows))),
                Company::Alone => wanted.push((alone_lane(number), rows)),
            }
        }
        Ok(self.start_at(claim, wanted, rows))
    }

    fn start_at(&self, claim: &Claim, wanted: Vec<(Lane, u32)>, rows: u32) -> Start {
        let (lanes, most): (Vec<Lane>, Vec<u32>) = wanted.into_iter().unzip();
        let is_moved = claim.now.is_some();
        let mut start = if is_moved {
            Start::front(lanes, rows)
        } else {
            self.cursors().start(lanes, rows)
        };
        start.most = most.into_iter().map(i64::from).collect();
        start
    }

    /// What remains to be done after a claim's statement: move the cursors; look again from the
    /// front if nothing came from behind them; reap if it came back short.
    pub(crate) async fn finish_claim(
        &self,
        claim: &Claim,
        start: Start,
        held: Option<Held>,
    ) -> Result<Option<Held>, StoreError> {
        if limit(claim) == 0 || held.as_ref().is_some_and(|held| held.is_full) {
            return Ok(held);
        }
        self.cursors().drop_lanes(&start.lanes);
        let was_ahead = start.is_ahead;
        let start = start.again();
        let mut held = held;
        let has_placed = self.place_if_rung(claim.now).await?;
        if held.is_none() && (was_ahead || has_placed) {
            held = self.claim_from(claim, &start).await?;
        }
        let Some(policy) = claim.recovery.clone() else {
            return Ok(held);
        };
        let mut reap = Reap::new(INLINE_REAP_LIMIT, policy).inline();
        reap.now = claim.now;
        let reaped = match self.reap(&reap).await {
            Ok(reaped) => reaped,
            // What is in hand is not given up because others' leases could not be ended.
            Err(_) if held.is_some() => return Ok(held),
            Err(error) => return Err(error),
        };
        let is_back = reaped.iter().any(|item| item.state == State::Pending);
        claim.tell_recovered(reaped);
        if held.is_none() && is_back {
            held = self.claim_from(claim, &start).await?;
        }
        Ok(held)
    }

    pub(crate) async fn claim_from(
        &self,
        claim: &Claim,
        start: &Start,
    ) -> Result<Option<Held>, StoreError> {
        let query = self.statements().claim.query().bind(moment(claim.now));
        let query = bind_claim(query, claim, start);
        let rows = self.fetch("claim", query).await?;
        self.heed(&rows, 0)?;
        self.held(claim, start, &rows, 1).await
    }

    /// The rows of a claim, whose columns begin at `first`, as a lease in hand.
    pub(crate) async fn held(
        &self,
        claim: &Claim,
        start: &Start,
        rows: &[PgRow],
        first: usize,
    ) -> Result<Option<Held>, StoreError> {
        let events = self.events_of("claim", rows, first).await?;
        let held = read_held(claim, start, rows, first, &events);
        let Taken {
            held,
            rows: taken,
            seen,
        } = held.map_err(|error| store_error("claim", error))?;
        let items = held.as_ref().map_or(0, |held| held.items.len());
        if held.as_ref().is_some_and(|held| held.is_full) && taken.len() == seen {
            self.cursors().advance(start, taken.iter().copied());
        }
        self.bells().took(taken.len(), items);
        Ok(held)
    }
}

pub(crate) fn bind_claim<'q>(query: Sql<'q>, claim: &'q Claim, start: &Start) -> Sql<'q> {
    query
        .bind(claim.token.expose())
        .bind(claim.token.holder())
        .bind(micros(claim.term.length()))
        .bind(i64::from(claim.most()))
        .bind(start.lanes.clone())
        .bind(start.at.clone())
        .bind(start.ids.clone())
        .bind(i64::from(start.rows))
        .bind(i64::from(run_length(claim)))
        .bind(start.most.clone())
}

/// How many items of one domain a claim takes. From lanes it takes heads alone: what follows them
/// would come on top of what was asked for from each.
pub(crate) fn run_length(claim: &Claim) -> u32 {
    if claim.lanes.is_empty() {
        claim.run_length()
    } else {
        1
    }
}

/// The lanes of endpoints that a claim names, each once: looked into twice, a lane would give each
/// item twice.
fn endpoint_lanes(claim: &Claim) -> Vec<(Lane, u32)> {
    let mut seen = HashSet::new();
    let lanes = claim.lanes.iter().filter(|(lane, _)| seen.insert(*lane));
    lanes.map(|(lane, most)| (lane_of(*lane), *most)).collect()
}

/// The fast form with no lanes claims nothing.
pub(crate) fn bind_no_claim(query: Sql<'_>) -> Sql<'_> {
    let start = Start::front(Vec::new(), 0);
    query
        .bind("")
        .bind("")
        .bind(0_i64)
        .bind(0_i64)
        .bind(start.lanes)
        .bind(start.at)
        .bind(start.ids)
        .bind(0_i64)
        .bind(1_i64)
        .bind(start.most)
}

fn limit(claim: &Claim) -> usize {
    usize::try_from(claim.most()).unwrap_or(0)
}

/// What a claim's statement did.
struct Taken {
    held: Option<Held>,
    /// The rows of `ready` that were taken.
    rows: Vec<(Lane, Timestamp, i64)>,
    /// How many were looked at.
    seen: usize,
}

/// The rows of a claim as a lease in hand, in the order of the lanes that were asked; what follows
/// a head stands behind all that was in `ready`, in the order of its domain.
fn read_held(
    claim: &Claim,
    start: &Start,
    rows: &[PgRow],
    first: usize,
    events: &Events,
) -> Result<Taken, sqlx::Error> {
    let mut lease = None;
    let mut taken = Vec::with_capacity(rows.len());
    let mut seen = 0;
    let mut followers: Vec<Item> = Vec::new();
    let mut items: Vec<(usize, Item)> = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(id) = get::<Option<i64>>(row, first)? else {
            continue;
        };
        if lease.is_none() {
            lease = Some(Lease {
                token: claim.token.clone(),
                fence: Fence::new(get(row, first + 3)?),
                claimed_at: get_timestamp(row, first + 4)?,
                until: get_timestamp(row, first + 5)?,
            });
        }
        let lane: Lane = get(row, first + 1)?;
        let item = read_item(row, first, id, events)?;
        seen = usize::try_from(get::<i64>(row, first + 18)?).unwrap_or(0);
        if get(row, first + 17)? {
            followers.push(item);
            continue;
        }
        taken.push((lane, item.available_at, id));
        let rank = start.lanes.iter().position(|asked| *asked == lane);
        items.push((rank.unwrap_or(usize::MAX), item));
    }
    items.sort_by_key(|(rank, item)| (*rank, item.available_at, item.id));
    followers.sort_by_key(|item| item.id);
    let items = items.into_iter().map(|(_, item)| item);
    let items: Vec<Item> = items.chain(followers).collect();
    // It may have stopped at the rows that it was to look at, before its limit.
    let is_full =
        items.len() >= limit(claim) || seen >= usize::try_from(start.rows).unwrap_or(usize::MAX);
    let held = lease.map(|lease| Held {
        lease,
        items,
        is_full,
    });
    Ok(Taken {
        held,
        rows: taken,
        seen,
    })
}

fn read_item(row: &PgRow, first: usize, id: i64, events: &Events) -> Result<Item, sqlx::Error> {
    Ok(Item {
        id: ItemId::new(id),
        content: events.content(row, first + 6, get(row, first + 19)?)?,
        available_at: get_timestamp(row, first + 2)?,
        counters: Counters {
            attempts: get_count(row, first + 13)?,
            failures: get_count(row, first + 14)?,
            crashes: get_count(row, first + 15)?,
            generation: get_count(row, first + 16)?,
        },
    })
}
