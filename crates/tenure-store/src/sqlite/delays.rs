//! The delays of pending items.

use std::collections::HashMap;

use rusqlite::{Connection, named_params};
use tenure_core::store::{
    Answer, DelayPosition, DelayedIn, DelayedPage, Delays, ListDelayed, RetryAnswer, RetryNow,
    StoreError,
};
use tenure_core::{ItemId, OutcomeKind, Timestamp};

use super::bury::leave_ready;
use super::error::failed;
use super::holds::{Leased, json, make_ready};
use super::queue::{QueueNumbers, draw_fence, queues_named};
use super::{SqliteStore, row, statements as sql};
use crate::delay_answers::{delayed_page, retry_answers};
use crate::lane::{Lane, alone_lane, lanes};
use crate::messages::unknown_queue;

impl Delays for SqliteStore {
    fn delayed<'a>(&'a self, list: &'a ListDelayed) -> Answer<'a, DelayedPage> {
        let (now, list) = (self.moment(list.now), list.clone());
        Box::pin(self.writer.read("delayed", move |connection| {
            let lanes = lanes_of(connection, &list.of)?;
            delayed(connection, &list, &lanes, now).map_err(failed("delayed"))
        }))
    }

    fn retry_now<'a>(&'a self, ask: &'a RetryNow) -> Answer<'a, Vec<(ItemId, RetryAnswer)>> {
        let (now, ask) = (ask.now, ask.clone());
        Box::pin(self.write("retry", now, move |connection, now| {
            let answers = answers(connection, &ask, now).map_err(failed("retry"))?;
            let is_delayed =
                |(_, answer): &(&ItemId, &RetryAnswer)| **answer == RetryAnswer::DueNow;
            let delayed = answers.iter().filter(is_delayed);
            let delayed: Vec<i64> = delayed.map(|(id, _)| id.number()).collect();
            if !delayed.is_empty() {
                let fence = draw_fence(connection, "retry")?.number();
                make_due(connection, &ask, (&delayed, fence), now).map_err(failed("retry"))?;
            }
            Ok(retry_answers(&ask.ids, &answers))
        }))
    }
}

/// The lanes of the queues or of the endpoint, ascending.
fn lanes_of(connection: &Connection, of: &DelayedIn) -> Result<Vec<Lane>, StoreError> {
    let numbers = match of {
        DelayedIn::Queues => {
            let queues = super::operate::queues(connection).map_err(failed("delayed"))?;
            let names: Vec<_> = queues.into_iter().map(|queue| queue.name).collect();
            let known = queues_named(connection, &names).map_err(failed("delayed"))?;
            known.values().flat_map(QueueNumbers::numbers).collect()
        }
        DelayedIn::Queue(name) => {
            let known = queues_named(connection, std::slice::from_ref(name));
            let known = known.map_err(failed("delayed"))?;
            let queue = known.values().next();
            let queue = queue.ok_or_else(|| unknown_queue("delayed", name))?;
            queue.numbers().collect()
        }
        DelayedIn::Endpoint(number) => vec![i32::try_from(*number).unwrap_or(-1)],
    };
    let numbers: Vec<i32> = numbers;
    let alone = numbers.iter().map(|number| alone_lane(*number));
    let mut all: Vec<Lane> = lanes(&numbers).chain(alone).collect();
    all.sort_unstable();
    Ok(all)
}

fn delayed(
    connection: &Connection,
    list: &ListDelayed,
    lanes: &[Lane],
    now: Timestamp,
) -> rusqlite::Result<DelayedPage> {
    let after = list.after;
    let left = lanes.iter().copied();
    let left: Vec<Lane> = left
        .filter(|lane| after.is_none_or(|after| *lane >= after.lane))
        .collect();
    let ask = named_params! {
        ":lanes": json(&left),
        ":now": now.as_micros(),
        ":topic": list.topic,
        ":limit": ListDelayed::STEP,
        ":lane": after.map_or(-1, |after| after.lane),
        ":at": after.map_or(0, |after| after.at.as_micros()),
        ":id": after.map_or(0, |after| after.id.number()),
    };
    let examined = connection
        .prepare_cached(sql::DELAYED)?
        .query_map(ask, |found| {
            let at = DelayPosition {
                lane: found.get(0)?,
                at: row::moment(found, 1)?,
                id: ItemId::new(found.get(2)?),
            };
            Ok((at, found.get(3)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(delayed_page(examined))
}

fn answers(
    connection: &Connection,
    ask: &RetryNow,
    now: Timestamp,
) -> rusqlite::Result<HashMap<ItemId, RetryAnswer>> {
    let ids: Vec<i64> = ask.ids.iter().map(|id| id.number()).collect();
    connection
        .prepare_cached(sql::RETRY_NOW_ANSWERS)?
        .query_map(
            named_params! {":ids": json(&ids), ":now": now.as_micros()},
            |found| {
                let word = found.get_ref(1)?.as_str()?;
                let answer = RetryAnswer::parse(word).unwrap_or(RetryAnswer::NotFound);
                Ok((ItemId::new(found.get(0)?), answer))
            },
        )?
        .collect()
}

fn make_due(
    connection: &Connection,
    ask: &RetryNow,
    (ids, fence): (&[i64], i64),
    now: Timestamp,
) -> rusqlite::Result<()> {
    for id in ids {
        leave_ready(connection, *id)?;
    }
    connection
        .prepare_cached(sql::RETRY_NOW_SETBACKS)?
        .execute(named_params! {":ids": json(ids), ":now": now.as_micros()})?;
    make_ready(connection, ids)?;
    let lease = Leased {
        token: ask.token.expose().to_owned(),
        fence,
        holder: ask.token.holder().to_owned(),
        claimed_at: now,
        until: now,
        ids: json(ids),
        ids_by_key: None,
    };
    lease.note(connection, OutcomeKind::Release, ids.to_vec(), now)
}
