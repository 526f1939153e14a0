//! The claim on the queue layout, step by step: where it starts, how it continues after a short
//! result, how its rows are read.

use std::collections::HashSet;

use sqlx::postgres::PgRow;
use tenure_core::store::{Claim, Isolation, LeaseStore, Reap, StoreError};
use tenure_core::{Counters, Fence, Held, Item, ItemId, Lease, State, Timestamp};

use super::PostgresStore;
use super::cursor::Start;
use super::error::store_error;
use super::queue::Sql;
use super::row::{get, get_count, get_timestamp, moment};
use super::sources::Events;
use crate::lane::{Lane, alone_lane, in_turn, lane_of, lanes};
use crate::limits::{INLINE_REAP_LIMIT, micros};

/// Column of the highest queue number, counted from the first column of an item.
const LAST_QUEUE: usize = 20;

impl PostgresStore {
    /// Returns the start position of a claim. A claim with an explicit `now` (in tests) scans
    /// everything.
    pub(crate) async fn start(&self, claim: &Claim) -> Result<Start, StoreError> {
        let rows = self.rows_for(claim);
        if !claim.lanes.is_empty() {
            return Ok(self.start_at(claim, endpoint_lanes(claim), rows));
        }
        let mut wanted: Vec<(Lane, u32)> = Vec::new();
        for (nth, queue) in claim.queues.iter().enumerate() {
            self.queue_number("claim", queue).await?;
            let numbers = self.directory().numbers(queue, &claim.topics);
            let numbers = in_turn(numbers, &claim.token);
            // A lane scanned twice would return each item twice: a statement does not skip its own
            // locks.
            let is_repeat = claim.queues.iter().take(nth).any(|seen| seen == queue);
            match claim.isolation {
                _ if is_repeat => {}
                Isolation::Shared => wanted.extend(lanes(&numbers).map(|lane| (lane, rows))),
                Isolation::Isolated => {
                    wanted.extend(numbers.iter().map(|number| (alone_lane(*number), rows)));
                }
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

    /// Follows up a claim that is short, and sets aside what it does not take.
    pub(crate) async fn finish_claim(
        &self,
        claim: &Claim,
        start: Start,
        held: Option<Held>,
    ) -> Result<Option<Held>, StoreError> {
        let held = self.finish_short(claim, start, held).await?;
        self.only_taken(claim, held).await
    }

    /// Follows up a short claim: drops the cursors, promotes arrivals, and reaps. An empty claim is
    /// repeated from the front if it started behind a cursor, if a promotion or the reap made items
    /// available, or if a topic became separate.
    async fn finish_short(
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
        let lanes = start.lanes.len();
        let start = if claim.lanes.is_empty() {
            self.start(claim).await?.again()
        } else {
            start.again()
        };
        let was_ahead = was_ahead || start.lanes.len() > lanes;
        let mut held = held;
        let has_promoted = self.promote_arrived(claim.now).await?;
        if held.is_none() && (was_ahead || has_promoted) {
            held = self.claim_from(claim, &start).await?;
        }
        let Some(policy) = claim.recovery.clone() else {
            return Ok(held);
        };
        let mut reap = Reap::new(INLINE_REAP_LIMIT, policy).inline();
        reap.now = claim.now;
        let reaped = match self.reap(&reap).await {
            Ok(reaped) => reaped,
            // Claimed items are returned even if the reap of other leases fails.
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
        self.observe_arrivals(&rows, 0)?;
        self.held(claim, start, &rows, 1).await
    }

    /// Reads the rows of a claim, whose columns begin at `first`, into a held lease.
    pub(crate) async fn held(
        &self,
        claim: &Claim,
        start: &Start,
        rows: &[PgRow],
        first: usize,
    ) -> Result<Option<Held>, StoreError> {
        self.observe_queues(rows, first + LAST_QUEUE).await?;
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
        self.promotion().took(taken.len(), items);
        Ok(held)
    }
}

impl PostgresStore {
    /// Reads the queues again if the highest number (column `at`) has changed: a queue is new, or a
    /// topic became separate.
    async fn observe_queues(&self, rows: &[PgRow], at: usize) -> Result<(), StoreError> {
        let last = rows.first().map(|row| get::<Option<i32>>(row, at));
        let last = last
            .transpose()
            .map_err(|error| store_error("claim", error))?;
        if let Some(last) = last.flatten()
            && !self.directory().ends_with(last)
        {
            self.reload_directory("claim").await?;
        }
        Ok(())
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

/// Maximum items of one key per claim. A claim by lanes takes heads only: their followers would
/// exceed the limit of each lane.
pub(crate) fn run_length(claim: &Claim) -> u32 {
    if claim.lanes.is_empty() {
        claim.run_length()
    } else {
        1
    }
}

/// The endpoint lanes that a claim names, without duplicates: a lane scanned twice would return
/// each item twice.
fn endpoint_lanes(claim: &Claim) -> Vec<(Lane, u32)> {
    let mut seen = HashSet::new();
    let lanes = claim.lanes.iter().filter(|(lane, _)| seen.insert(*lane));
    lanes.map(|(lane, most)| (lane_of(*lane), *most)).collect()
}

/// Binds an empty claim to a statement that settles and claims: without lanes it claims nothing.
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

/// The result of a claim's statement.
struct Taken {
    held: Option<Held>,
    /// Rows taken from `ready`.
    rows: Vec<(Lane, Timestamp, i64)>,
    /// Number of rows scanned.
    seen: usize,
}

/// Reads the rows of a claim into a held lease, ordered by the requested lanes; the followers of
/// heads come after everything from `ready`, ordered by id.
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
    // The scan limit (`start.rows`) may end the claim before its item limit.
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
