//! Work leases: one statement reads the inputs of a decision, the core decides, and another
//! statement writes the result, or does nothing if the domain has changed in between. No lock is
//! held between the two.

use std::time::Duration;

use rand::RngExt as _;
use sqlx::postgres::PgRow;
use tenure_core::store::{
    Answer, Contract, DomainAsk, ProvidesWorkLeases, StoreError, StoreErrorKind, WorkLeases,
};
use tenure_core::work_lease::{Change, Decided, NearRanges, Terminal, TerminalRange};
use tenure_core::{
    AcquireResult, DomainName, FailResult, ReplayResult, Reservation, SpaceName, SucceedResult,
    Timestamp, Token,
};

use super::PostgresStore;
use super::error::store_error;
use super::pool::Borrow as _;
use super::queue::Sql;
use super::row::{Moment, get, get_moment, get_timestamp, get_total, moment, unreadable};
use crate::work_lease::inputs::{DecisionInputs, replay};
use crate::work_lease::loaded::{LoadedDomain, PRUNE_LIMIT, PRUNE_ROUNDS, terminal_of};

/// Maximum attempts on a domain that other callers keep changing. Of several concurrent attempts
/// one always succeeds.
const TRIES: u32 = 100;
/// Maximum pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(40);

impl ProvidesWorkLeases for PostgresStore {
    fn work_leases(&self) -> &dyn WorkLeases {
        self
    }
}

impl WorkLeases for PostgresStore {
    fn try_acquire<'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: i64,
        fresh: &'a Token,
    ) -> Answer<'a, Contract<AcquireResult>> {
        let decision = |inputs: &DecisionInputs<'_>| inputs.try_acquire(fresh);
        Box::pin(self.decide("try_acquire", ask, Some(offset), decision))
    }

    fn submit<'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: i64,
        fresh: &'a Token,
    ) -> Answer<'a, Contract<AcquireResult>> {
        let decision = |inputs: &DecisionInputs<'_>| inputs.submit(fresh);
        Box::pin(self.decide("submit", ask, Some(offset), decision))
    }

    fn succeed<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<SucceedResult>> {
        Box::pin(self.decide("succeed", ask, None, |inputs| inputs.succeed(token)))
    }

    fn fail<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<FailResult>> {
        Box::pin(self.decide("fail", ask, None, |inputs| inputs.fail(token)))
    }

    fn renew<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<Option<Timestamp>>> {
        Box::pin(self.decide("renew", ask, None, |inputs| inputs.renew(token)))
    }

    fn replay<'a>(&'a self, ask: &'a DomainAsk, offset: i64) -> Answer<'a, Contract<ReplayResult>> {
        Box::pin(self.decide("replay", ask, Some(offset), replay))
    }

    fn reservation<'a>(&'a self, ask: &'a DomainAsk) -> Answer<'a, Option<Reservation>> {
        Box::pin(async move { Ok(self.see("reservation", ask, None).await?.reservation) })
    }

    fn idle_with_backlog<'a>(
        &'a self,
        space: &'a SpaceName,
        limit: u32,
    ) -> Answer<'a, Vec<(DomainName, i64)>> {
        let query = self.work_lease.idle_with_backlog.query();
        let query = query.bind(space.as_str()).bind(i64::from(limit));
        Box::pin(self.domains("idle_with_backlog", query))
    }

    fn lapsed<'a>(
        &'a self,
        space: &'a SpaceName,
        limit: u32,
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<(DomainName, i64)>> {
        let query = self.work_lease.lapsed.query();
        let query = query
            .bind(moment(now))
            .bind(space.as_str())
            .bind(i64::from(limit));
        Box::pin(self.domains("lapsed", query))
    }

    fn watermark<'a>(&'a self, space: &'a SpaceName) -> Answer<'a, i64> {
        Box::pin(async move {
            let query = self.work_lease.watermark.query().bind(space.as_str());
            let row = query.first_from(&self.pool).await;
            row.and_then(|row| row.map_or(Ok(i64::MIN), |row| get(&row, 0)))
                .map_err(|error| store_error("watermark", error))
        })
    }

    fn advance_watermark<'a>(&'a self, space: &'a SpaceName, offset: i64) -> Answer<'a, i64> {
        Box::pin(self.advance("advance_watermark", space, (offset, i64::MIN)))
    }

    fn forget_failed_below<'a>(&'a self, space: &'a SpaceName, offset: i64) -> Answer<'a, ()> {
        Box::pin(async move {
            let moved = self.advance("forget_failed_below", space, (i64::MIN, offset));
            moved.await.map(drop)
        })
    }
}

impl PostgresStore {
    /// Reads, decides and writes; retries if another change intervened.
    async fn decide<T>(
        &self,
        verb: &'static str,
        ask: &DomainAsk,
        offset: Option<i64>,
        decision: impl Fn(&DecisionInputs<'_>) -> Decided<T>,
    ) -> Result<Contract<T>, StoreError> {
        for tried in 0..TRIES {
            pause(tried).await;
            let loaded = self.see(verb, ask, offset).await?;
            let (answer, change) = match decision(&loaded.inputs(ask, offset)) {
                Ok(decided) => decided,
                Err(mistake) => return Ok(Err(mistake)),
            };
            if change.is_nothing() {
                return Ok(Ok(answer));
            }
            let Some(space) = loaded.space else {
                self.open_space(verb, &ask.space).await?;
                continue;
            };
            if self
                .write_change(verb, ask, (space, &loaded), &change)
                .await?
            {
                return Ok(Ok(answer));
            }
        }
        let message = format!("others changed the domain {TRIES} times while it was looked at");
        Err(StoreError::new(verb, StoreErrorKind::Conflict, message)
            .with_hint("try again; do many callers work on one domain at once?"))
    }

    async fn see(
        &self,
        verb: &'static str,
        ask: &DomainAsk,
        offset: Option<i64>,
    ) -> Result<LoadedDomain<i32>, StoreError> {
        let query = self.work_lease.view.query();
        let query = query
            .bind(moment(ask.now))
            .bind(ask.space.as_str())
            .bind(ask.domain.as_str())
            .bind(offset);
        let rows = query.all_from(&self.pool).await;
        rows.and_then(|rows| loaded(&rows))
            .map_err(|error| store_error(verb, error))
    }

    /// Writes a change; `false`: another change intervened.
    async fn write_change(
        &self,
        verb: &'static str,
        ask: &DomainAsk,
        (space, loaded): (i32, &LoadedDomain<i32>),
        change: &Change,
    ) -> Result<bool, StoreError> {
        let rows = loaded.rows(change);
        let held = rows.reservation;
        let gone: Vec<i64> = rows.ranges.gone.iter().map(|range| range.last).collect();
        let come = rows.ranges.come.iter();
        let (first, (last, kind)): (Vec<i64>, (Vec<i64>, Vec<&str>)) = come
            .map(|range| (range.first, (range.last, range.terminal.as_str())))
            .unzip();
        let query = self.work_lease.change.query();
        let query = query
            .bind(space)
            .bind(loaded.watermark)
            .bind(ask.domain.as_str())
            .bind(loaded.stands.map(|(number, _)| number))
            .bind(loaded.stands.map(|(_, version)| version))
            .bind(held.map(|held| held.offset))
            .bind(held.map(|held| held.token.expose()))
            .bind(held.map(|held| Moment(held.acquired_at)))
            .bind(held.map_or(0, |held| i64::from(held.retry_count)))
            .bind(held.and_then(|held| held.until).map(Moment))
            .bind(rows.popped)
            .bind(rows.pushed)
            .bind(gone)
            .bind(first)
            .bind(last)
            .bind(kind);
        match query.first_from(&self.pool).await {
            Ok(written) => Ok(written.is_some()),
            Err(error) => match store_error(verb, error) {
                // PostgreSQL resolved a conflict in favour of another transaction.
                error if error.kind() == StoreErrorKind::Conflict => Ok(false),
                error => Err(error),
            },
        }
    }

    async fn open_space(&self, verb: &'static str, space: &SpaceName) -> Result<(), StoreError> {
        let query = self.work_lease.open_space.query().bind(space.as_str());
        let done = query.all_from(&self.pool).await;
        done.map(drop).map_err(|error| store_error(verb, error))
    }

    /// Advances the watermark and the bound below which failed offsets are forgotten, then deletes
    /// the ranges below them.
    async fn advance(
        &self,
        verb: &'static str,
        space: &SpaceName,
        (watermark, forgiven): (i64, i64),
    ) -> Result<i64, StoreError> {
        let query = self.work_lease.advance.query();
        let query = query.bind(space.as_str()).bind(watermark).bind(forgiven);
        let row = query.first_from(&self.pool).await;
        let moved = row.and_then(|row| {
            let row = row.ok_or(sqlx::Error::RowNotFound)?;
            Ok((get::<i64>(&row, 0)?, get::<i64>(&row, 1)?))
        });
        let (watermark, forgiven) = moved.map_err(|error| store_error(verb, error))?;
        for (terminal, bound) in [
            (Terminal::Processed, watermark),
            (Terminal::Failed, watermark.min(forgiven)),
        ] {
            self.prune_ranges(verb, space, terminal, bound).await?;
        }
        Ok(watermark)
    }

    /// Deletes the ranges of one kind below a bound, in short transactions.
    async fn prune_ranges(
        &self,
        verb: &'static str,
        space: &SpaceName,
        terminal: Terminal,
        bound: i64,
    ) -> Result<(), StoreError> {
        for _ in 0..PRUNE_ROUNDS {
            let query = self.work_lease.prune.query();
            let query = query
                .bind(space.as_str())
                .bind(terminal.as_str())
                .bind(bound)
                .bind(i64::from(PRUNE_LIMIT));
            let row = query.first_from(&self.pool).await;
            let counts = row.and_then(|row| {
                let row = row.ok_or(sqlx::Error::RowNotFound)?;
                Ok((get_total(&row, 0)?, get_total(&row, 1)?))
            });
            let (found, gone) = counts.map_err(|error| store_error(verb, error))?;
            // Ranges locked by other transactions are left for the next call.
            if found < u64::from(PRUNE_LIMIT) || gone == 0 {
                break;
            }
        }
        Ok(())
    }

    async fn domains(
        &self,
        verb: &'static str,
        query: Sql<'_>,
    ) -> Result<Vec<(DomainName, i64)>, StoreError> {
        let rows = query.all_from(&self.pool).await;
        rows.and_then(|rows| rows.iter().map(domain).collect())
            .map_err(|error| store_error(verb, error))
    }
}

/// Random backoff from the second failed attempt on, longer each time, so that conflicting callers
/// spread out.
async fn pause(tried: u32) {
    if tried > 1 {
        let longest = PAUSE_MAX.min(Duration::from_millis(1 << tried.min(16)));
        let pause = rand::rng().random_range(Duration::ZERO..longest);
        tokio::time::sleep(pause).await;
    }
}

fn domain(row: &PgRow) -> Result<(DomainName, i64), sqlx::Error> {
    let name: &str = get(row, 0)?;
    let name = DomainName::new(name).map_err(|cause| sqlx::Error::Decode(Box::new(cause)))?;
    Ok((name, get(row, 1)?))
}

/// Reads the rows of `view.sql`: each repeats the columns of the domain and adds one range.
fn loaded(rows: &[PgRow]) -> Result<LoadedDomain<i32>, sqlx::Error> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let number: Option<i64> = get(row, 3)?;
    let mut near = Vec::new();
    for row in rows {
        if let Some(word) = get::<Option<&str>>(row, 15)? {
            near.push(TerminalRange {
                first: get(row, 13)?,
                last: get(row, 14)?,
                terminal: terminal_of(word).ok_or_else(|| unreadable(word))?,
            });
        }
    }
    Ok(LoadedDomain {
        now: get_timestamp(row, 0)?,
        space: get(row, 1)?,
        watermark: get::<Option<i64>>(row, 2)?.unwrap_or(i64::MIN),
        forgiven: get::<Option<i64>>(row, 16)?.unwrap_or(i64::MIN),
        stands: match number {
            Some(number) => Some((number, get(row, 4)?)),
            None => None,
        },
        reservation: reservation(row)?,
        waiting: get::<Option<i64>>(row, 10)?.map_or(0, i64::unsigned_abs),
        head: get(row, 11)?,
        is_queued: get(row, 12)?,
        near: NearRanges(near),
    })
}

fn reservation(row: &PgRow) -> Result<Option<Reservation>, sqlx::Error> {
    let Some(offset) = get(row, 5)? else {
        return Ok(None);
    };
    let token: &str = get(row, 6)?;
    Ok(Some(Reservation {
        offset,
        // Do not repeat the stored text in the error: it may be a token.
        token: Token::parse(token).ok_or_else(|| unreadable("the token of a reservation"))?,
        acquired_at: get_timestamp(row, 7)?,
        retry_count: u32::try_from(get::<i64>(row, 8)?).unwrap_or(u32::MAX),
        until: get_moment(row, 9)?,
    }))
}
