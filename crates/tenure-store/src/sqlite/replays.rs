//! Bulk replays: each step is one transaction.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, named_params};
use tenure_core::store::{
    Answer, Filter, Kind, NewReplay, ProvidesReplays, Replay, ReplayOperation, ReplayRate,
    ReplayState, Replays, StepReplay, Stepped, StoreError,
};
use tenure_core::{Guarded, ItemId, QueueName, Refusal, State, Timestamp};

use super::error::failed;
use super::queue::queues_named;
use super::replay::replay;
use super::{SqliteStore, row, statements as sql};
use crate::messages::unknown_queue;
use crate::replay_step::{Progress, WALK, stepped};

impl ProvidesReplays for SqliteStore {
    fn replay_operations(&self) -> &dyn Replays {
        self
    }
}

impl Replays for SqliteStore {
    fn start_replay<'a>(&'a self, replay: &'a NewReplay) -> Answer<'a, ReplayOperation> {
        let (now, ask) = (replay.now, replay.clone());
        Box::pin(self.write("start replay", now, move |connection, now| {
            check_queue(connection, ask.filter())?;
            start(connection, &ask, now).map_err(failed("start replay"))
        }))
    }

    fn step_replay<'a>(&'a self, step: &'a StepReplay) -> Answer<'a, Stepped> {
        let ask = *step;
        Box::pin(async move {
            // A check that finds nothing to do must not block writers, so it uses a reader.
            let now = self.moment(ask.now);
            let peek = self.writer.read("step replay", move |connection| {
                let due = due(connection, &ask, now).map_err(failed("step replay"))?;
                let next_in = others(connection, &ask, None, now);
                Ok((due.is_some(), next_in.map_err(failed("step replay"))?))
            });
            let (is_due, next_in) = peek.await?;
            if !is_due {
                return Ok(Stepped {
                    operation: None,
                    next_in,
                });
            }
            self.write("step replay", ask.now, move |connection, now| {
                take_step(connection, &ask, now).map_err(failed("step replay"))
            })
            .await
        })
    }

    fn replays(&self, limit: u32) -> Answer<'_, Vec<ReplayOperation>> {
        Box::pin(self.writer.read("replays", move |connection| {
            list(connection, limit, None).map_err(failed("replays"))
        }))
    }

    fn replay_operation(&self, id: u64) -> Answer<'_, Option<ReplayOperation>> {
        Box::pin(self.writer.read("replays", move |connection| {
            let found = list(connection, 1, Some(id)).map_err(failed("replays"))?;
            Ok(found.into_iter().next())
        }))
    }

    fn cancel_replay(
        &self,
        id: u64,
        now: Option<Timestamp>,
    ) -> Answer<'_, Guarded<ReplayOperation>> {
        Box::pin(self.write("cancel replay", now, move |connection, now| {
            cancel(connection, id, now).map_err(failed("cancel replay"))
        }))
    }
}

fn check_queue(connection: &Connection, filter: &Filter) -> Result<(), StoreError> {
    let Some(queue) = &filter.queue else {
        return Ok(());
    };
    let known = queues_named(connection, std::slice::from_ref(queue));
    if known.map_err(failed("start replay"))?.is_empty() {
        return Err(unknown_queue("start replay", queue));
    }
    Ok(())
}

fn start(
    connection: &Connection,
    ask: &NewReplay,
    now: Timestamp,
) -> rusqlite::Result<ReplayOperation> {
    let kept_since = now.before(ReplayOperation::RETENTION_MIN).as_micros();
    connection
        .prepare_cached(sql::START_REPLAY_GONE)?
        .execute(named_params! {":kept_since": kept_since})?;
    let (behind, last) = ask.span();
    connection.prepare_cached(sql::START_REPLAY)?.query_row(
        named_params! {
            ":filter": ask.filter().to_json(),
            ":rate": ask.rate.map(ReplayRate::number),
            ":expected": ask.expected.map(number),
            ":behind": behind.number(),
            ":last": last.number(),
            ":now": now.as_micros(),
        },
        read,
    )
}

fn list(
    connection: &Connection,
    limit: u32,
    id: Option<u64>,
) -> rusqlite::Result<Vec<ReplayOperation>> {
    connection
        .prepare_cached(sql::REPLAYS)?
        .query_map(named_params! {":limit": limit, ":id": id.map(number)}, read)?
        .collect()
}

fn cancel(
    connection: &Connection,
    id: u64,
    now: Timestamp,
) -> rusqlite::Result<Guarded<ReplayOperation>> {
    let ask = named_params! {":id": number(id), ":now": now.as_micros()};
    let cancelled = connection
        .prepare_cached(sql::CANCEL_REPLAY)?
        .query_row(ask, read)
        .optional()?;
    if let Some(operation) = cancelled {
        return Ok(Guarded::Accepted(operation));
    }
    let is_there = !list(connection, 1, Some(id))?.is_empty();
    Ok(Guarded::Refused(if is_there {
        Refusal::AlreadySettled
    } else {
        Refusal::NotFound
    }))
}

fn due(
    connection: &Connection,
    ask: &StepReplay,
    now: Timestamp,
) -> rusqlite::Result<Option<ReplayOperation>> {
    let ask = named_params! {":now": now.as_micros(), ":only": ask.only.map(number)};
    connection
        .prepare_cached(sql::NEXT_REPLAY)?
        .query_row(ask, read)
        .optional()
}

/// Returns the wait until the next other operation is due.
fn others(
    connection: &Connection,
    ask: &StepReplay,
    taken: Option<u64>,
    now: Timestamp,
) -> rusqlite::Result<Option<Duration>> {
    let ask = named_params! {":only": ask.only.map(number), ":id": taken.map(number)};
    let next = connection
        .prepare_cached(sql::NEXT_REPLAY_OTHERS)?
        .query_row(ask, |found| row::moment(found, 0))
        .optional()?;
    Ok(next.map(|next| next.since(now)))
}

fn take_step(
    connection: &Connection,
    ask: &StepReplay,
    now: Timestamp,
) -> rusqlite::Result<Stepped> {
    let due = due(connection, ask, now)?;
    let taken = due.as_ref().map(|operation| operation.id);
    let others = others(connection, ask, taken, now)?;
    let Some(operation) = due else {
        return Ok(Stepped {
            operation: None,
            next_in: others,
        });
    };
    let size = operation.step(ask.limit);
    let (found, bound) = page(connection, &operation, size)?;
    let answers = replay(connection, &Replay::new(found.clone()), now)?;
    let replayed = answers
        .iter()
        .filter(|(_, answer)| answer.is_accepted())
        .count();
    let progress = Progress::new(&operation, (&found, size), bound, replayed);
    let moved = connection.prepare_cached(sql::MOVE_REPLAY)?.query_row(
        named_params! {
            ":id": number(operation.id),
            ":reached": progress.reached.number(),
            ":replayed": progress.replayed,
            ":refused": progress.refused,
            ":next_at": now.after(progress.wait).as_micros(),
            ":ended_at": progress.is_all.then(|| now.as_micros()),
        },
        read,
    )?;
    Ok(stepped(moved, progress.wait, others))
}

/// Returns the next items to replay, and the id up to which the statement searched.
fn page(
    connection: &Connection,
    operation: &ReplayOperation,
    size: u32,
) -> rusqlite::Result<(Vec<ItemId>, ItemId)> {
    let filter = &operation.filter;
    let (bound, page) = match filter.state {
        Some(State::Done) => (sql::REPLAY_DONE_BOUND, sql::REPLAY_DONE),
        _ => (sql::REPLAY_DEAD_BOUND, sql::REPLAY_DEAD),
    };
    let (after, last) = (operation.reached.number(), operation.last.number());
    let walk = named_params! {":after": after, ":last": last, ":walk": WALK};
    let bound: Option<i64> = connection
        .prepare_cached(bound)?
        .query_row(walk, |found| found.get(0))
        .optional()?;
    let bound = bound.unwrap_or(last);
    let is_delivery = filter.kind == Kind::Deliveries;
    let ids = connection
        .prepare_cached(page)?
        .query_map(
            named_params! {
                ":after": after,
                ":last": bound,
                ":since": filter.since.map(Timestamp::as_micros),
                ":until": filter.until.map(Timestamp::as_micros),
                ":endpoint": filter.endpoint.filter(|_| is_delivery),
                ":source": filter.source.filter(|_| is_delivery).map(ItemId::number),
                ":topic": filter.topic,
                ":key": filter.key,
                ":queue": filter.queue.as_ref().map(QueueName::as_str),
                ":limit": size,
            },
            |found| row::id(found, 0),
        )?
        .collect::<rusqlite::Result<Vec<ItemId>>>()?;
    Ok((ids, ItemId::new(bound)))
}

/// Reads an operation: the columns of `replays.sql`.
fn read(found: &Row<'_>) -> rusqlite::Result<ReplayOperation> {
    let expected: Option<i64> = found.get(3)?;
    let ended_at: Option<i64> = found.get(11)?;
    let rate: Option<u32> = found.get(2)?;
    Ok(ReplayOperation {
        id: row::count(found, 0)?,
        filter: row::word(found, 1, Filter::from_json)?,
        rate: rate.and_then(ReplayRate::per_minute),
        expected: expected.map(|expected| u64::try_from(expected).unwrap_or(0)),
        reached: row::id(found, 4)?,
        last: row::id(found, 5)?,
        replayed: row::count(found, 6)?,
        refused: row::count(found, 7)?,
        state: row::word(found, 8, ReplayState::parse)?,
        created_at: row::moment(found, 9)?,
        next_at: row::moment(found, 10)?,
        ended_at: ended_at.map(Timestamp::from_micros),
    })
}

/// Converts a number to a statement parameter.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
