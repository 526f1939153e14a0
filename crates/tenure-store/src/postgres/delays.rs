//! The delays of pending items.

use std::collections::HashMap;

use sqlx::postgres::PgRow;
use tenure_core::store::{
    Answer, DelayPosition, DelayedIn, DelayedPage, Delays, ListDelayed, RetryAnswer, RetryNow,
    StoreError, StoreErrorKind,
};
use tenure_core::{ItemId, QueueName, Timestamp};

use super::PostgresStore;
use super::error::store_error;
use super::operate::{BURY_PAUSE, BURY_TRIES};
use super::row::{Moment, get, get_timestamp, moment, unreadable};
use crate::delay_answers::{delayed_page, retry_answers};

impl Delays for PostgresStore {
    fn delayed<'a>(&'a self, list: &'a ListDelayed) -> Answer<'a, DelayedPage> {
        Box::pin(async move {
            let (queue, endpoint) = match &list.of {
                DelayedIn::Queues => (None, None),
                DelayedIn::Queue(name) => {
                    self.queue_number("delayed", name).await?;
                    (Some(name), None)
                }
                DelayedIn::Endpoint(number) => (None, Some(i32::try_from(*number).unwrap_or(-1))),
            };
            let start = DelayPosition {
                lane: 0,
                at: Timestamp::from_micros(i64::MIN),
                id: ItemId::new(0),
            };
            let after = list.after.unwrap_or(start);
            let query = self.statements().delayed.query();
            let query = query
                .bind(moment(list.now))
                .bind(queue.map(QueueName::as_str))
                .bind(endpoint)
                .bind(list.topic.as_deref())
                .bind(i64::from(ListDelayed::STEP))
                .bind(after.lane)
                .bind(Moment(after.at))
                .bind(after.id.number());
            let rows = self.fetch("delayed", query).await?;
            let examined = rows.iter().map(examined).collect::<Result<_, _>>();
            let examined = examined.map_err(|error| store_error("delayed", error))?;
            Ok(delayed_page(examined))
        })
    }

    fn retry_now<'a>(&'a self, retry: &'a RetryNow) -> Answer<'a, Vec<(ItemId, RetryAnswer)>> {
        Box::pin(async move {
            let mut left: Vec<i64> = retry.ids.iter().map(|id| id.number()).collect();
            left.sort_unstable();
            left.dedup();
            let mut answers = HashMap::with_capacity(left.len());
            for _ in 0..BURY_TRIES {
                left = self.try_retry(retry, left, &mut answers).await?;
                if left.is_empty() {
                    self.cursors().drop_all();
                    return Ok(retry_answers(&retry.ids, &answers));
                }
                // There is no notification when the row lock is released, so poll.
                tokio::time::sleep(BURY_PAUSE).await;
            }
            let problem = "an item was changed at the same time";
            Err(StoreError::new("retry", StoreErrorKind::Conflict, problem).with_hint("try again"))
        })
    }
}

impl PostgresStore {
    /// Makes items due; returns those whose row is locked.
    async fn try_retry(
        &self,
        retry: &RetryNow,
        ids: Vec<i64>,
        answers: &mut HashMap<ItemId, RetryAnswer>,
    ) -> Result<Vec<i64>, StoreError> {
        let query = self.statements().retry_now.query();
        let query = query
            .bind(moment(retry.now))
            .bind(ids)
            .bind(retry.token.expose())
            .bind(retry.token.holder());
        let rows = self.fetch("retry", query).await?;
        let mut locked = Vec::new();
        for row in &rows {
            let answer = answered(row).map_err(|error| store_error("retry", error))?;
            match answer {
                (id, Some(answer)) => drop(answers.insert(ItemId::new(id), answer)),
                (id, None) => locked.push(id),
            }
        }
        Ok(locked)
    }
}

fn examined(row: &PgRow) -> Result<(DelayPosition, bool), sqlx::Error> {
    let at = DelayPosition {
        lane: get(row, 0)?,
        at: get_timestamp(row, 1)?,
        id: ItemId::new(get(row, 2)?),
    };
    Ok((at, get(row, 3)?))
}

/// Reads an answer; `None`: the row of the item is locked.
fn answered(row: &PgRow) -> Result<(i64, Option<RetryAnswer>), sqlx::Error> {
    let id = get(row, 0)?;
    match get::<&str>(row, 1)? {
        "locked" => Ok((id, None)),
        word => Ok((
            id,
            Some(RetryAnswer::parse(word).ok_or_else(|| unreadable(word))?),
        )),
    }
}
