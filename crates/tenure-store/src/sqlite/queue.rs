//! `LeaseStore` on the queue layout: claim, renew, settle and reap, each in one transaction; also
//! the preparations of a claim.

use std::collections::{BTreeSet, HashMap, HashSet};

use rusqlite::{Connection, named_params};
use tenure_core::store::{
    Answer, Claim, Isolation, LeaseStore, Reap, Reaped, Renew, Renewed, Settle, Settlement,
    StoreError,
};
use tenure_core::{Fence, Guarded, Held, QueueName, Refusal, Timestamp, Token};

use super::claim::{ClaimAnswer, claim};
use super::error::failed;
use super::holds::{self, json};
use super::reap::reap;
use super::settle::settle;
use super::{SqliteStore, row, statements as sql};
use crate::lane::{Lane, alone_lane, in_turn, lane_of, lanes};
use crate::messages::{unknown_queue, used_before};

impl LeaseStore for SqliteStore {
    fn claim<'a>(&'a self, ask: &'a Claim) -> Answer<'a, Option<Held>> {
        Box::pin(async move {
            loop {
                let (now, ask) = (ask.now, ask.clone());
                let write = move |connection: &Connection, now| claim(connection, &ask, now);
                match self.write("claim", now, write).await? {
                    ClaimAnswer::Held(held) => return Ok(held),
                    ClaimAnswer::OnlyStrays => {}
                }
            }
        })
    }

    fn renew<'a>(&'a self, ask: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        let (now, ask) = (ask.now, ask.clone());
        Box::pin(self.write("renew", now, move |connection, now| {
            renew(connection, &ask, now)
        }))
    }

    fn settle<'a>(&'a self, ask: &'a Settle) -> Answer<'a, Settlement> {
        let (now, ask) = (ask.now, ask.clone());
        Box::pin(async move {
            ask.check()?;
            self.write("settle", now, move |connection, now| {
                settle(connection, &ask, now)
            })
            .await
        })
    }

    fn settle_and_claim<'a>(
        &'a self,
        first: &'a Settle,
        then: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        let (first, then) = (first.clone(), then.clone());
        Box::pin(async move {
            first.check()?;
            let first_now = first.now;
            let again = then.clone();
            let write = move |connection: &Connection, now| {
                check_fresh(connection, &then.token)?;
                let settlement = settle(connection, &first, now)?;
                let claimed = claim(connection, &then, then.now.unwrap_or(now))?;
                Ok((settlement, claimed))
            };
            let (settlement, claimed) = self.write("settle", first_now, write).await?;
            match claimed {
                ClaimAnswer::Held(held) => Ok((settlement, held)),
                // The items are settled; an error of the claim must not say otherwise.
                ClaimAnswer::OnlyStrays => {
                    Ok((settlement, self.claim(&again).await.unwrap_or(None)))
                }
            }
        })
    }

    fn reap<'a>(&'a self, ask: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        let (now, ask) = (ask.now, ask.clone());
        Box::pin(self.write("reap", now, move |connection, now| {
            reap(connection, &ask, now)
        }))
    }
}

/// Draws the fence of a claim.
pub(super) fn draw_fence(connection: &Connection, verb: &'static str) -> Result<Fence, StoreError> {
    connection
        .prepare_cached(sql::CLAIM_FENCE)
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map(Fence::new)
        .map_err(failed(verb))
}

/// Refuses a token that has a lease: a token is issued once, so the answer of its claim was lost.
pub(super) fn check_fresh(connection: &Connection, token: &Token) -> Result<(), StoreError> {
    let is_used: bool = connection
        .prepare_cached(sql::CLAIM_USED)
        .and_then(|mut statement| {
            statement.query_row(named_params! {":token": token.expose()}, |row| row.get(0))
        })
        .map_err(failed("claim"))?;
    if !is_used {
        return Ok(());
    }
    Err(used_before("claim"))
}

/// A queue with its separate topics.
#[derive(Default)]
pub(super) struct QueueNumbers {
    /// Its number, and those of its separate topics; the topic of the queue itself is empty.
    numbers: Vec<(String, i32)>,
    is_paused: bool,
}

impl QueueNumbers {
    pub(super) fn numbers(&self) -> impl Iterator<Item = i32> {
        self.numbers.iter().map(|(_, number)| *number)
    }
}

/// A lane that a claim reads.
pub(super) struct LaneRequest {
    pub(super) lane: Lane,
    /// Maximum items to take from the lane.
    pub(super) most: usize,
    /// The queue of the lane; `None` for the lane of an endpoint.
    pub(super) queue: Option<QueueName>,
}

/// Returns the lanes that a claim reads, in order, each once.
pub(super) fn lanes_of(
    connection: &Connection,
    ask: &Claim,
) -> Result<Vec<LaneRequest>, StoreError> {
    if !ask.lanes.is_empty() {
        return endpoint_lanes(connection, ask).map_err(failed("claim"));
    }
    let queues = queues_named(connection, &ask.queues).map_err(failed("claim"))?;
    let mut all: Vec<LaneRequest> = Vec::new();
    for name in &ask.queues {
        let queue = queues
            .get(name.as_str())
            .ok_or_else(|| unknown_queue("claim", name))?;
        // Skip a queue that is named twice.
        if queue.is_paused || all.iter().any(|seen| seen.queue.as_ref() == Some(name)) {
            continue;
        }
        let taken = queue.numbers.iter();
        let taken = taken.filter(|(topic, _)| topic.is_empty() || ask.topics.takes(topic));
        let numbers = in_turn(taken.map(|(_, number)| *number).collect(), &ask.token);
        let request = |lane| LaneRequest {
            lane,
            most: usize::MAX,
            queue: Some(name.clone()),
        };
        match ask.isolation {
            Isolation::Shared => all.extend(lanes(&numbers).map(request)),
            Isolation::Isolated => {
                all.extend(numbers.iter().map(|number| request(alone_lane(*number))));
            }
        }
    }
    Ok(all)
}

/// Returns the named lanes that belong to endpoints, without lanes of queues.
fn endpoint_lanes(connection: &Connection, ask: &Claim) -> rusqlite::Result<Vec<LaneRequest>> {
    let numbers: BTreeSet<u32> = ask.lanes.iter().map(|(lane, _)| lane.endpoint).collect();
    let known: HashSet<u32> = connection
        .prepare_cached(sql::CLAIM_ENDPOINTS)?
        .query_map(named_params! {":numbers": json(&numbers)}, |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut seen = HashSet::new();
    let request = ask
        .lanes
        .iter()
        .filter(|(lane, _)| known.contains(&lane.endpoint) && seen.insert(*lane))
        .map(|(lane, most)| LaneRequest {
            lane: lane_of(*lane),
            most: usize::try_from(*most).unwrap_or(usize::MAX),
            queue: None,
        });
    Ok(request.collect())
}

/// Returns the queues with these names.
pub(super) fn queues_named(
    connection: &Connection,
    names: &[QueueName],
) -> rusqlite::Result<HashMap<String, QueueNumbers>> {
    let names: BTreeSet<&str> = names.iter().map(QueueName::as_str).collect();
    let mut statement = connection.prepare_cached(sql::CLAIM_QUEUES)?;
    let mut rows = statement.query(named_params! {":names": json(&names)})?;
    let mut queues: HashMap<String, QueueNumbers> = HashMap::new();
    while let Some(row) = rows.next()? {
        let queue = queues.entry(row.get(0)?).or_default();
        queue.numbers.push((row.get(3)?, row.get(1)?));
        queue.is_paused |= row.get::<_, bool>(2)?;
    }
    Ok(queues)
}

fn renew(
    connection: &Connection,
    ask: &Renew,
    now: Timestamp,
) -> Result<Vec<(Token, Guarded<Renewed>)>, StoreError> {
    let answers = renewals(connection, ask, now).map_err(failed("renew"))?;
    let answer = |token: &Token| {
        let known = answers.get(token.expose()).cloned();
        (
            token.clone(),
            known.unwrap_or(Guarded::Refused(Refusal::Lost)),
        )
    };
    Ok(ask.tokens.iter().map(answer).collect())
}

/// Returns the answer for each token that has a lease.
fn renewals(
    connection: &Connection,
    ask: &Renew,
    now: Timestamp,
) -> rusqlite::Result<HashMap<String, Guarded<Renewed>>> {
    let tokens: Vec<&str> = ask.tokens.iter().map(Token::expose).collect();
    let tokens = json(&tokens);
    let mut lapsed = connection.prepare_cached(sql::RENEW_LAPSED)?;
    let mut answers = lapsed
        .query_map(
            named_params! {":tokens": tokens, ":now": now.as_micros()},
            |row| Ok((row.get(0)?, Guarded::Refused(Refusal::Lapsed))),
        )?
        .collect::<rusqlite::Result<HashMap<_, _>>>()?;
    let mut kept = connection.prepare_cached(sql::RENEW_KEPT)?;
    let mut rows = kept.query(named_params! {
        ":tokens": tokens,
        ":now": now.as_micros(),
        ":until": now.after(ask.term.length()).as_micros(),
    })?;
    while let Some(found) = rows.next()? {
        let renewed = Renewed {
            fence: Fence::new(found.get(1)?),
            until: row::moment(found, 2)?,
            ids: holds::ids(found, 3)?,
        };
        answers.insert(found.get(0)?, Guarded::Accepted(renewed));
    }
    Ok(answers)
}
