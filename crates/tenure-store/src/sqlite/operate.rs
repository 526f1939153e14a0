//! Find, list, count, replay, bury; and the queues.

use std::collections::HashMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension, ToSql, named_params};
use tenure_core::store::{
    Answer, Bury, Counts, DeliveryCounts, Filter, KeyRecord, Kind, Operate, Page, Pause, Queue,
    QueueCounts, QueueRules, Queues, Replay, Replayed, SeparateTopic,
};
use tenure_core::{Guarded, ItemId, PastHold, QueueName, Record, Refusal, State, Timestamp};

use super::bury::bury;
use super::error::failed;
use super::holds::json;
use super::intake::kind_word;
use super::queue::queues_named;
use super::replay::replay;
use super::row::Recorded;
use super::{SqliteStore, row, sources, statements as sql};
use crate::lane::lanes;
use crate::messages::unknown_queue;
use crate::page::{cut, in_order, page_limit};
use crate::queue_rules::StoredRules;

impl Operate for SqliteStore {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        let ids = ids.to_vec();
        Box::pin(self.writer.read("find", move |connection| {
            find(connection, &ids).map_err(failed("find"))
        }))
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<PastHold>> {
        Box::pin(self.writer.read("timeline", move |connection| {
            timeline(connection, id).map_err(failed("timeline"))
        }))
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        let filter = filter.clone();
        Box::pin(self.writer.read("list", move |connection| {
            if let Some(queue) = &filter.queue {
                let known = queues_named(connection, std::slice::from_ref(queue));
                if known.map_err(failed("list"))?.is_empty() {
                    return Err(unknown_queue("list", queue));
                }
            }
            page(connection, &filter, page_limit(limit)).map_err(failed("list"))
        }))
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        let now = self.moment(now);
        Box::pin(self.writer.read("count", move |connection| {
            count(connection, now).map_err(failed("count"))
        }))
    }

    fn replay<'a>(&'a self, ask: &'a Replay) -> Answer<'a, Replayed> {
        let (now, ask) = (ask.now, ask.clone());
        Box::pin(self.write("replay", now, move |connection, now| {
            replay(connection, &ask, now).map_err(failed("replay"))
        }))
    }

    fn bury<'a>(&'a self, ask: &'a Bury) -> Answer<'a, Guarded> {
        let (now, ask) = (ask.now, ask.clone());
        Box::pin(self.write("bury", now, move |connection, now| {
            bury(connection, &ask, now)
        }))
    }
}

impl Queues for SqliteStore {
    fn queues(&self) -> Answer<'_, Vec<Queue>> {
        Box::pin(self.writer.read("queues", |connection| {
            queues(connection).map_err(failed("queues"))
        }))
    }

    fn separate_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<SeparateTopic>> {
        let now = self.moment(now);
        Box::pin(self.writer.read("topics", move |connection| {
            separate_topics(connection, now).map_err(failed("topics"))
        }))
    }

    fn due_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<(QueueName, Option<String>)>> {
        let now = self.moment(now);
        Box::pin(self.writer.read("topics", move |connection| {
            due_topics(connection, now).map_err(failed("topics"))
        }))
    }

    fn add_queue<'a>(&'a self, name: &'a QueueName, rules: QueueRules) -> Answer<'a, ()> {
        let name = name.clone();
        Box::pin(self.write("add queue", None, move |connection, _| {
            let stored = StoredRules::new(rules)?;
            let ask = named_params! {
                ":name": name.as_str(),
                ":term_ms": stored.term_ms,
                ":max_retries": stored.max_retries,
                ":retry_base_ms": stored.retry_base_ms,
                ":retry_cap_ms": stored.retry_cap_ms,
            };
            let added = connection
                .prepare_cached(sql::ADD_QUEUE)
                .and_then(|mut statement| statement.execute(ask));
            added.map(drop).map_err(failed("add queue"))
        }))
    }

    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded> {
        let name = name.clone();
        Box::pin(self.write("pause queue", None, move |connection, _| {
            let ask = named_params! {":name": name.as_str(), ":paused": pause == Pause::Begin};
            let found: Option<i32> = connection
                .prepare_cached(sql::PAUSE_QUEUE)
                .and_then(|mut statement| statement.query_row(ask, |row| row.get(0)).optional())
                .map_err(failed("pause queue"))?;
            Ok(found.map_or(Guarded::Refused(Refusal::NotFound), |_| {
                Guarded::Accepted(())
            }))
        }))
    }
}

pub(super) fn find(connection: &Connection, ids: &[ItemId]) -> rusqlite::Result<Vec<Record>> {
    let numbers: Vec<i64> = ids.iter().map(|id| id.number()).collect();
    let mut statement = connection.prepare_cached(sql::FIND)?;
    let found = statement
        .query_map(named_params! {":ids": json(&numbers)}, Recorded::read)?
        .collect::<rusqlite::Result<Vec<Recorded>>>()?;
    Ok(in_order(ids, sources::records(connection, found)?))
}

fn timeline(connection: &Connection, id: ItemId) -> rusqlite::Result<Vec<PastHold>> {
    connection
        .prepare_cached(sql::TIMELINE)?
        .query_map(named_params! {":id": id.number()}, row::ended_hold)?
        .collect()
}

fn page(connection: &Connection, filter: &Filter, limit: u32) -> rusqlite::Result<Page> {
    let statement = match filter.state {
        _ if source_of(filter).is_some() => sql::PAGE_SOURCE,
        _ if filter.key.is_some() => sql::PAGE_OF_KEY,
        None => sql::PAGE_ALL,
        Some(State::Pending) => sql::PAGE_PENDING,
        Some(State::Claimed) => sql::PAGE_CLAIMED,
        Some(State::Done) => sql::PAGE_DONE,
        Some(State::Dead) => sql::PAGE_DEAD,
    };
    let statement = connection.prepare_cached(statement)?;
    // Read one more than requested, to know if there is a next page.
    let (ids, next) = cut(page_ids(statement, filter, limit + 1)?, limit);
    Ok(Page {
        records: find(connection, &ids)?,
        next,
    })
}

/// Returns the event whose deliveries the filter selects.
fn source_of(filter: &Filter) -> Option<i64> {
    let source = filter.source.filter(|_| filter.kind == Kind::Deliveries);
    source.map(ItemId::number)
}

fn page_ids(
    mut statement: CachedStatement<'_>,
    filter: &Filter,
    limit: u32,
) -> rusqlite::Result<Vec<ItemId>> {
    let before = filter.before.map_or(i64::MAX, ItemId::number);
    // The id of an item shows its kind.
    let (after, before) = match filter.kind {
        Kind::Events => (i64::MIN, before.min(ItemId::FIRST_DELIVERY + 1)),
        Kind::Deliveries => (ItemId::FIRST_DELIVERY, before),
    };
    let (since, until) = (
        filter.since.map(Timestamp::as_micros),
        filter.until.map(Timestamp::as_micros),
    );
    let source = source_of(filter);
    let endpoint = filter.endpoint.filter(|_| filter.kind == Kind::Deliveries);
    let queue = filter.queue.as_ref().map(QueueName::as_str);
    let mut ask: Vec<(&str, &dyn ToSql)> = vec![
        (":after", &after),
        (":before", &before),
        (":since", &since),
        (":until", &until),
        (":topic", &filter.topic),
        (":queue", &queue),
        (":endpoint", &endpoint),
        (":limit", &limit),
    ];
    let state = filter.state.map(State::as_str);
    if filter.key.is_some() || source.is_some() {
        ask.push((":key", &filter.key));
        ask.push((":state", &state));
    }
    if source.is_some() {
        ask.push((":source", &source));
    }
    statement
        .query_map(ask.as_slice(), |found| row::id(found, 0))?
        .collect()
}

fn count(connection: &Connection, now: Timestamp) -> rusqlite::Result<Counts> {
    let mut counts = Counts::default();
    let behind: HashMap<i32, u64> = connection
        .prepare_cached(sql::COUNT_BEHIND)?
        .query_map([], |found| Ok((found.get(0)?, row::count(found, 1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut statement = connection.prepare_cached(sql::COUNT_QUEUES)?;
    let mut rows = statement.query([])?;
    while let Some(found) = rows.next()? {
        let (name, number) = (row::queue_name(found, 0)?, found.get(1)?);
        let of_queue = QueueCounts {
            behind: behind.get(&number).copied().unwrap_or_default(),
            ..waiting(connection, number, now)?
        };
        // The separate topics of a queue come behind it.
        match counts.queues.last_mut() {
            Some((last, sum)) if *last == name => {
                sum.due += of_queue.due;
                sum.delayed += of_queue.delayed;
                sum.behind += of_queue.behind;
                sum.oldest_due = sum.oldest_due.max(of_queue.oldest_due);
            }
            _ => counts.queues.push((name, of_queue)),
        }
    }
    let events = settled(connection, Kind::Events, now)?;
    (counts.claimed, counts.lapsed, counts.dead) = (events.claimed, events.lapsed, events.dead);
    let elsewhere = counts.pending() + counts.claimed + counts.dead;
    counts.done = events.total.saturating_sub(elsewhere);
    counts.deliveries = count_deliveries(connection, &behind, now)?;
    let long = now.before(KeyRecord::RETRIED_LONG).as_micros();
    counts.retried_keys = connection
        .prepare_cached(sql::COUNT_RETRIED)?
        .query_row(named_params! {":long": long}, |found| row::count(found, 0))?;
    Ok(counts)
}

fn count_deliveries(
    connection: &Connection,
    behind: &HashMap<i32, u64>,
    now: Timestamp,
) -> rusqlite::Result<DeliveryCounts> {
    let numbers = connection
        .prepare_cached(sql::COUNT_ENDPOINTS)?
        .query_map([], |found| found.get(0))?
        .collect::<rusqlite::Result<Vec<i32>>>()?;
    let mut counts = DeliveryCounts::default();
    let mut pending = 0;
    for number in numbers {
        let of_endpoint = QueueCounts {
            behind: behind.get(&number).copied().unwrap_or_default(),
            ..waiting(connection, number, now)?
        };
        let all = of_endpoint.due + of_endpoint.delayed + of_endpoint.behind;
        if all > 0 {
            let number = u32::try_from(number).unwrap_or_default();
            counts.endpoints.push((number, of_endpoint));
        }
        pending += all;
    }
    let others = settled(connection, Kind::Deliveries, now)?;
    (counts.claimed, counts.lapsed, counts.dead) = (others.claimed, others.lapsed, others.dead);
    let elsewhere = pending + counts.claimed + counts.dead;
    counts.delivered = others.total.saturating_sub(elsewhere);
    Ok(counts)
}

/// Number of items of a kind that do not wait, and the total.
struct SettledCounts {
    claimed: u64,
    lapsed: u64,
    dead: u64,
    total: u64,
}

fn settled(connection: &Connection, kind: Kind, now: Timestamp) -> rusqlite::Result<SettledCounts> {
    let two = |row: &rusqlite::Row<'_>| Ok((row::count(row, 0)?, row::count(row, 1)?));
    let word = kind_word(kind);
    let (claimed, lapsed) = connection
        .prepare_cached(sql::COUNT_HELD)?
        .query_row(named_params! {":now": now.as_micros(), ":kind": word}, two)?;
    let (dead, total) = connection
        .prepare_cached(sql::COUNT_SETTLED)?
        .query_row(named_params! {":kind": word}, two)?;
    Ok(SettledCounts {
        claimed,
        lapsed,
        dead,
        total,
    })
}

fn waiting(connection: &Connection, queue: i32, now: Timestamp) -> rusqlite::Result<QueueCounts> {
    let first = lanes(&[queue]).next().unwrap_or_default();
    let next = lanes(&[queue + 1]).next().unwrap_or_default();
    connection.prepare_cached(sql::COUNT_WAITING)?.query_row(
        named_params! {":now": now.as_micros(), ":lane": first, ":next_lane": next},
        |row| {
            let oldest: Option<i64> = row.get(2)?;
            Ok(QueueCounts {
                due: row::count(row, 0)?,
                delayed: row::count(row, 1)?,
                oldest_due: oldest.map(|from| now.since(Timestamp::from_micros(from))),
                ..QueueCounts::default()
            })
        },
    )
}

fn separate_topics(
    connection: &Connection,
    now: Timestamp,
) -> rusqlite::Result<Vec<SeparateTopic>> {
    let mut statement = connection.prepare_cached(sql::SEPARATE_TOPICS)?;
    let read = |found: &rusqlite::Row<'_>| {
        let waits = waiting(connection, found.get(1)?, now)?;
        Ok(SeparateTopic {
            queue: row::queue_name(found, 0)?,
            topic: found.get(2)?,
            due: waits.due,
            delayed: waits.delayed,
            oldest_due: waits.oldest_due,
        })
    };
    statement.query_map([], read)?.collect()
}

fn due_topics(
    connection: &Connection,
    now: Timestamp,
) -> rusqlite::Result<Vec<(QueueName, Option<String>)>> {
    let mut statement = connection.prepare_cached(sql::DUE_TOPICS)?;
    let read = |found: &rusqlite::Row<'_>| {
        let topic: String = found.get(1)?;
        let topic = Some(topic).filter(|topic| !topic.is_empty());
        Ok((row::queue_name(found, 0)?, topic))
    };
    let rows = statement.query_map(named_params! {":now": now.as_micros()}, read)?;
    rows.collect()
}

pub(super) fn queues(connection: &Connection) -> rusqlite::Result<Vec<Queue>> {
    connection
        .prepare_cached(sql::QUEUES)?
        .query_map([], row::queue)?
        .collect()
}
