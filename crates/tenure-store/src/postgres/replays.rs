//! Bulk replays: each step is one transaction that locks the replay.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection};
use tenure_core::store::{
    Answer, Filter, Kind, NewReplay, ProvidesReplays, ReplayOperation, ReplayRate, ReplayState,
    Replays, StepReplay, Stepped, StoreError,
};
use tenure_core::{Guarded, ItemId, QueueName, Refusal, State, Timestamp};

use super::PostgresStore;
use super::error::store_error;
use super::row::{get, get_moment, get_timestamp, get_total, moment, unreadable};
use super::session::RunOn as _;
use crate::limits::micros;
use crate::replay_step::{Progress, WALK, stepped};

impl ProvidesReplays for PostgresStore {
    fn replay_operations(&self) -> &dyn Replays {
        self
    }
}

impl Replays for PostgresStore {
    fn start_replay<'a>(&'a self, replay: &'a NewReplay) -> Answer<'a, ReplayOperation> {
        Box::pin(async move {
            if let Some(queue) = &replay.filter().queue {
                self.queue_number("start replay", queue).await?;
            }
            let (behind, last) = replay.span();
            let query = self.statements().start_replay.query();
            let query = query
                .bind(moment(replay.now))
                .bind(replay.filter().to_json())
                .bind(replay.rate.map(|rate| signed(rate.number())))
                .bind(replay.expected.map(number))
                .bind(behind.number())
                .bind(last.number())
                .bind(micros(ReplayOperation::RETENTION_MIN));
            let rows = self.fetch("start replay", query).await?;
            let started = rows.first().ok_or(sqlx::Error::RowNotFound);
            let started = started.and_then(operation);
            started.map_err(|error| store_error("start replay", error))
        })
    }

    fn step_replay<'a>(&'a self, step: &'a StepReplay) -> Answer<'a, Stepped> {
        Box::pin(async move {
            let lent = self.pool.borrow().await;
            let mut lent = lent.map_err(|error| store_error("step replay", error))?;
            let answer = self.take_step(lent.connection(), step).await;
            lent.give_back(&answer);
            answer.map_err(|error| store_error("step replay", error))
        })
    }

    fn replays(&self, limit: u32) -> Answer<'_, Vec<ReplayOperation>> {
        Box::pin(self.replays_on_record(limit, None))
    }

    fn replay_operation(&self, id: u64) -> Answer<'_, Option<ReplayOperation>> {
        Box::pin(async move {
            let found = self.replays_on_record(1, Some(id)).await?;
            Ok(found.into_iter().next())
        })
    }

    fn cancel_replay(
        &self,
        id: u64,
        now: Option<Timestamp>,
    ) -> Answer<'_, Guarded<ReplayOperation>> {
        Box::pin(async move {
            let query = self.statements().cancel_replay.query();
            let query = query.bind(moment(now)).bind(number(id));
            let rows = self.fetch("cancel replay", query).await?;
            if let Some(row) = rows.first() {
                let cancelled = operation(row);
                let cancelled = cancelled.map_err(|error| store_error("cancel replay", error))?;
                return Ok(Guarded::Accepted(cancelled));
            }
            Ok(Guarded::Refused(match self.replay_operation(id).await? {
                Some(_) => Refusal::AlreadySettled,
                None => Refusal::NotFound,
            }))
        })
    }
}

impl PostgresStore {
    async fn replays_on_record(
        &self,
        limit: u32,
        id: Option<u64>,
    ) -> Result<Vec<ReplayOperation>, StoreError> {
        let query = self.statements().replays.query();
        let query = query.bind(i64::from(limit)).bind(id.map(number));
        let rows = self.fetch("replays", query).await?;
        let found = rows.iter().map(operation).collect::<Result<_, _>>();
        found.map_err(|error| store_error("replays", error))
    }

    async fn take_step(
        &self,
        conn: &mut PgConnection,
        step: &StepReplay,
    ) -> Result<Stepped, sqlx::Error> {
        // Read committed, independent of the database's default: the replay must see current rows.
        let mut tx = conn.begin_with(self.pool.begin_text()).await?;
        let next = self.statements().next_replay.query();
        let next = next.bind(moment(step.now)).bind(step.only.map(number));
        let row = next.row_on(&mut tx).await?;
        let others = get::<Option<i64>>(&row, 12)?;
        let others = others.map(|us| Duration::from_micros(u64::try_from(us).unwrap_or(0)));
        if get::<Option<i64>>(&row, 0)?.is_none() {
            tx.commit().await?;
            return Ok(Stepped {
                operation: None,
                next_in: others,
            });
        }
        let before = operation(&row)?;
        let size = before.step(step.limit);
        let (found, bound) = self.to_replay(&mut tx, &before, size).await?;
        let numbers: Vec<i64> = found.iter().map(|id| id.number()).collect();
        let replay = self.statements().replay.query();
        let replay = replay.bind(moment(step.now)).bind(numbers);
        let replayed = replay.rows_on(&mut tx).await?.len();
        let progress = Progress::new(&before, (&found, size), bound, replayed);
        let moved = self.statements().move_replay.query();
        let moved = moved
            .bind(moment(step.now))
            .bind(number(before.id))
            .bind(progress.reached.number())
            .bind(i64::from(progress.replayed))
            .bind(i64::from(progress.refused))
            .bind(micros(progress.wait))
            .bind(progress.is_all);
        let after = operation(&moved.row_on(&mut tx).await?)?;
        tx.commit().await?;
        Ok(stepped(after, progress.wait, others))
    }

    /// Returns the next items to replay, and the id up to which the statement searched.
    async fn to_replay(
        &self,
        conn: &mut PgConnection,
        operation: &ReplayOperation,
        size: u32,
    ) -> Result<(Vec<ItemId>, ItemId), sqlx::Error> {
        let filter = &operation.filter;
        let statement = match filter.state {
            Some(State::Done) => &self.statements().replay_done,
            _ => &self.statements().replay_dead,
        };
        let is_delivery = filter.kind == Kind::Deliveries;
        let endpoint = filter.endpoint.filter(|_| is_delivery).map(signed);
        let source = filter.source.filter(|_| is_delivery);
        let query = statement
            .query()
            .bind(operation.reached.number())
            .bind(operation.last.number())
            .bind(i64::from(size))
            .bind(i64::from(WALK))
            .bind(filter.topic.as_deref())
            .bind(filter.queue.as_ref().map(QueueName::as_str))
            .bind(moment(filter.since))
            .bind(filter.key.as_deref())
            .bind(moment(filter.until))
            .bind(endpoint)
            .bind(source.map(ItemId::number));
        let row = query.row_on(conn).await?;
        let ids: Vec<i64> = get(&row, 0)?;
        let ids = ids.into_iter().map(ItemId::new).collect();
        Ok((ids, ItemId::new(get(&row, 1)?)))
    }
}

/// Reads an operation from the columns of `replays.sql`.
fn operation(row: &PgRow) -> Result<ReplayOperation, sqlx::Error> {
    let filter: &str = get(row, 1)?;
    let state: &str = get(row, 8)?;
    let rate = get::<Option<i32>>(row, 2)?;
    let expected = get::<Option<i64>>(row, 3)?;
    Ok(ReplayOperation {
        id: get_total(row, 0)?,
        filter: Filter::from_json(filter).ok_or_else(|| unreadable(filter))?,
        rate: rate.and_then(|rate| ReplayRate::per_minute(rate.unsigned_abs())),
        expected: expected.map(|expected| u64::try_from(expected).unwrap_or(0)),
        reached: ItemId::new(get(row, 4)?),
        last: ItemId::new(get(row, 5)?),
        replayed: get_total(row, 6)?,
        refused: get_total(row, 7)?,
        state: ReplayState::parse(state).ok_or_else(|| unreadable(state))?,
        created_at: get_timestamp(row, 9)?,
        next_at: get_timestamp(row, 10)?,
        ended_at: get_moment(row, 11)?,
    })
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
