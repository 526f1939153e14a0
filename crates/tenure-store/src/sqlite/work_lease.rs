//! Work leases: an operation reads, lets the core decide and writes in one transaction, while no
//! other connection can write.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, named_params};
use tenure_core::store::{Answer, Contract, DomainAsk, ProvidesWorkLeases, StoreError, WorkLeases};
use tenure_core::work_lease::{Change, Decided, NearRanges, Terminal, TerminalRange};
use tenure_core::{
    AcquireResult, DomainName, FailResult, ReplayResult, Reservation, SpaceName, SucceedResult,
    Timestamp, Token,
};

use super::error::failed;
use super::{SqliteStore, moment_of, row, statements as sql};
use crate::work_lease::inputs::{DecisionInputs, replay};
use crate::work_lease::loaded::{LoadedDomain, PRUNE_LIMIT, PRUNE_ROUNDS, terminal_of};

impl ProvidesWorkLeases for SqliteStore {
    fn work_leases(&self) -> &dyn WorkLeases {
        self
    }
}

impl WorkLeases for SqliteStore {
    fn try_acquire<'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: i64,
        fresh: &'a Token,
    ) -> Answer<'a, Contract<AcquireResult>> {
        let fresh = fresh.clone();
        let decision = move |inputs: &DecisionInputs<'_>| inputs.try_acquire(&fresh);
        self.decide("try_acquire", ask, Some(offset), decision)
    }

    fn submit<'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: i64,
        fresh: &'a Token,
    ) -> Answer<'a, Contract<AcquireResult>> {
        let fresh = fresh.clone();
        let decision = move |inputs: &DecisionInputs<'_>| inputs.submit(&fresh);
        self.decide("submit", ask, Some(offset), decision)
    }

    fn succeed<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<SucceedResult>> {
        let token = token.clone();
        self.decide("succeed", ask, None, move |inputs| inputs.succeed(&token))
    }

    fn fail<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<FailResult>> {
        let token = token.clone();
        self.decide("fail", ask, None, move |inputs| inputs.fail(&token))
    }

    fn renew<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<Option<Timestamp>>> {
        let token = token.clone();
        self.decide("renew", ask, None, move |inputs| inputs.renew(&token))
    }

    fn replay<'a>(&'a self, ask: &'a DomainAsk, offset: i64) -> Answer<'a, Contract<ReplayResult>> {
        self.decide("replay", ask, Some(offset), replay)
    }

    fn reservation<'a>(&'a self, ask: &'a DomainAsk) -> Answer<'a, Option<Reservation>> {
        let (ask, clock) = (ask.clone(), Arc::clone(&self.clock));
        Box::pin(self.writer.read("reservation", move |connection| {
            let now = moment_of(clock.as_ref(), ask.now);
            let loaded = see(connection, &ask, None, now).map_err(failed("reservation"))?;
            Ok(loaded.reservation)
        }))
    }

    fn idle_with_backlog<'a>(
        &'a self,
        space: &'a SpaceName,
        limit: u32,
    ) -> Answer<'a, Vec<(DomainName, i64)>> {
        let space = space.clone();
        Box::pin(self.writer.read("idle_with_backlog", move |connection| {
            let ask = named_params! {":space": space.as_str(), ":limit": limit};
            domains(connection, sql::IDLE_WITH_BACKLOG, ask).map_err(failed("idle_with_backlog"))
        }))
    }

    fn lapsed<'a>(
        &'a self,
        space: &'a SpaceName,
        limit: u32,
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<(DomainName, i64)>> {
        let (space, clock) = (space.clone(), Arc::clone(&self.clock));
        Box::pin(self.writer.read("lapsed", move |connection| {
            let now = moment_of(clock.as_ref(), now).as_micros();
            let ask = named_params! {":space": space.as_str(), ":limit": limit, ":now": now};
            domains(connection, sql::LAPSED, ask).map_err(failed("lapsed"))
        }))
    }

    fn watermark<'a>(&'a self, space: &'a SpaceName) -> Answer<'a, i64> {
        let space = space.clone();
        Box::pin(self.writer.read("watermark", move |connection| {
            watermark(connection, &space).map_err(failed("watermark"))
        }))
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

impl SqliteStore {
    fn decide<T: Send + 'static>(
        &self,
        verb: &'static str,
        ask: &DomainAsk,
        offset: Option<i64>,
        decision: impl FnOnce(&DecisionInputs<'_>) -> Decided<T> + Send + 'static,
    ) -> Answer<'_, Contract<T>> {
        let ask = ask.clone();
        Box::pin(self.write(verb, ask.now, move |connection, now| {
            let loaded = see(connection, &ask, offset, now).map_err(failed(verb))?;
            let (answer, change) = match decision(&loaded.inputs(&ask, offset)) {
                Ok(decided) => decided,
                Err(mistake) => return Ok(Err(mistake)),
            };
            if !change.is_nothing() {
                write_change(connection, &ask, &loaded, &change).map_err(failed(verb))?;
            }
            Ok(Ok(answer))
        }))
    }

    /// Advances the watermark and the bound below which failed offsets are forgotten, and deletes
    /// the ranges below them, in short transactions.
    async fn advance(
        &self,
        verb: &'static str,
        space: &SpaceName,
        to: (i64, i64),
    ) -> Result<i64, StoreError> {
        let name = space.clone();
        let moved = self.write(verb, None, move |connection, _| {
            advance(connection, &name, to).map_err(failed(verb))
        });
        let (watermark, forgiven) = moved.await?;
        for (terminal, bound) in [
            (Terminal::Processed, watermark),
            (Terminal::Failed, watermark.min(forgiven)),
        ] {
            for _ in 0..PRUNE_ROUNDS {
                let name = space.clone();
                let round = self.write(verb, None, move |connection, _| {
                    prune(connection, &name, terminal, bound).map_err(failed(verb))
                });
                if round.await? < PRUNE_LIMIT {
                    break;
                }
            }
        }
        Ok(watermark)
    }
}

/// Reads everything that a decision needs.
fn see(
    connection: &Connection,
    ask: &DomainAsk,
    offset: Option<i64>,
    now: Timestamp,
) -> rusqlite::Result<LoadedDomain<i64>> {
    let space = connection
        .prepare_cached(sql::VIEW_SPACE)?
        .query_row(named_params! {":space": ask.space.as_str()}, |found| {
            Ok((found.get(0)?, found.get(1)?, found.get(2)?))
        })
        .optional()?;
    let mut loaded = LoadedDomain {
        now,
        space: space.map(|(number, _, _)| number),
        watermark: space.map_or(i64::MIN, |(_, watermark, _)| watermark),
        forgiven: space.map_or(i64::MIN, |(_, _, forgiven)| forgiven),
        stands: None,
        reservation: None,
        waiting: 0,
        head: None,
        is_queued: false,
        near: NearRanges::default(),
    };
    let by_name = named_params! {":space": loaded.space, ":domain": ask.domain.as_str()};
    let found = connection
        .prepare_cached(sql::VIEW_DOMAIN)?
        .query_row(by_name, |found| {
            let stands = (found.get(0)?, found.get(1)?);
            Ok((stands, reservation(found)?, row::count(found, 7)?))
        })
        .optional()?;
    if let Some((stands, reservation, waiting)) = found {
        let offset = offset.or(reservation.as_ref().map(|held| held.offset));
        let number = stands.0;
        loaded.stands = Some(stands);
        loaded.reservation = reservation;
        loaded.waiting = waiting;
        loaded.head = connection
            .prepare_cached(sql::VIEW_HEAD)?
            .query_row(named_params! {":number": number}, |found| found.get(0))
            .optional()?;
        let of_offset = named_params! {":number": number, ":offset": offset};
        loaded.is_queued = connection
            .prepare_cached(sql::VIEW_QUEUED)?
            .query_row(of_offset, |found| found.get(0))?;
        let near = connection
            .prepare_cached(sql::VIEW_NEAR)?
            .query_map(of_offset, range)?
            .collect::<rusqlite::Result<_>>()?;
        loaded.near = NearRanges(near);
    }
    Ok(loaded)
}

fn reservation(found: &Row<'_>) -> rusqlite::Result<Option<Reservation>> {
    let Some(offset) = found.get(2)? else {
        return Ok(None);
    };
    Ok(Some(Reservation {
        offset,
        token: row::token(found, 3)?,
        acquired_at: row::moment(found, 4)?,
        retry_count: found.get(5)?,
        until: row::past(found, 6)?,
    }))
}

fn range(found: &Row<'_>) -> rusqlite::Result<TerminalRange> {
    Ok(TerminalRange {
        first: found.get(0)?,
        last: found.get(1)?,
        terminal: row::word(found, 2, terminal_of)?,
    })
}

fn write_change(
    connection: &Connection,
    ask: &DomainAsk,
    loaded: &LoadedDomain<i64>,
    change: &Change,
) -> rusqlite::Result<()> {
    let rows = loaded.rows(change);
    let space = match loaded.space {
        Some(space) => space,
        None => open_space(connection, &ask.space)?,
    };
    let held = rows.reservation;
    let (current, token) = (
        held.map(|held| held.offset),
        held.map(|held| held.token.expose()),
    );
    let acquired_at = held.map(|held| held.acquired_at.as_micros());
    let retry_count = held.map_or(0, |held| held.retry_count);
    let until = held.and_then(|held| held.until).map(Timestamp::as_micros);
    let (pushed, popped) = (rows.pushed.is_some(), rows.popped.is_some());
    let number: i64 = if let Some((number, _)) = loaded.stands {
        let mut moved = connection.prepare_cached(sql::CHANGE_DOMAIN_MOVED)?;
        moved.execute(named_params! {
            ":number": number, ":current_offset": current, ":token": token,
            ":first_acquired_at": acquired_at, ":retry_count": retry_count,
            ":locked_until": until, ":pushed": pushed, ":popped": popped,
        })?;
        number
    } else {
        let mut made = connection.prepare_cached(sql::CHANGE_DOMAIN_MADE)?;
        let all = named_params! {
            ":space": space, ":domain": ask.domain.as_str(), ":current_offset": current,
            ":token": token, ":first_acquired_at": acquired_at, ":retry_count": retry_count,
            ":locked_until": until, ":pushed": pushed,
        };
        made.query_row(all, |found| found.get(0))?
    };
    for (statement, offset) in [
        (sql::CHANGE_DOMAIN_POPPED, rows.popped),
        (sql::CHANGE_DOMAIN_PUSHED, rows.pushed),
    ] {
        if offset.is_some() {
            let mut statement = connection.prepare_cached(statement)?;
            statement.execute(named_params! {":number": number, ":offset": offset})?;
        }
    }
    for range in &rows.ranges.gone {
        let mut gone = connection.prepare_cached(sql::CHANGE_DOMAIN_GONE)?;
        gone.execute(named_params! {":number": number, ":last": range.last})?;
    }
    for range in &rows.ranges.come {
        let mut come = connection.prepare_cached(sql::CHANGE_DOMAIN_COME)?;
        come.execute(named_params! {
            ":number": number, ":space": space, ":first": range.first, ":last": range.last,
            ":kind": range.terminal.as_str(),
        })?;
    }
    Ok(())
}

/// Creates a space; returns its number.
fn open_space(connection: &Connection, space: &SpaceName) -> rusqlite::Result<i64> {
    let ask = named_params! {":space": space.as_str()};
    connection.prepare_cached(sql::OPEN_SPACE)?.execute(ask)?;
    connection
        .prepare_cached(sql::VIEW_SPACE)?
        .query_row(ask, |found| found.get(0))
}

fn watermark(connection: &Connection, space: &SpaceName) -> rusqlite::Result<i64> {
    let found = connection
        .prepare_cached(sql::WATERMARK)?
        .query_row(named_params! {":space": space.as_str()}, |found| {
            found.get(0)
        })
        .optional()?;
    Ok(found.unwrap_or(i64::MIN))
}

/// Advances the watermark and the bound of forgotten failed offsets; returns both as stored.
fn advance(
    connection: &Connection,
    space: &SpaceName,
    (watermark, forgiven): (i64, i64),
) -> rusqlite::Result<(i64, i64)> {
    connection.prepare_cached(sql::ADVANCE)?.query_row(
        named_params! {
            ":space": space.as_str(), ":watermark": watermark, ":forgiven": forgiven,
        },
        |found| Ok((found.get(0)?, found.get(1)?)),
    )
}

fn domains(
    connection: &Connection,
    statement: &str,
    ask: &[(&str, &dyn rusqlite::ToSql)],
) -> rusqlite::Result<Vec<(DomainName, i64)>> {
    connection
        .prepare_cached(statement)?
        .query_map(ask, |found| Ok((row::domain(found, 0)?, found.get(1)?)))?
        .collect()
}

/// One round of pruning; returns the number of deleted ranges.
fn prune(
    connection: &Connection,
    space: &SpaceName,
    terminal: Terminal,
    bound: i64,
) -> rusqlite::Result<u32> {
    let due: Vec<(i64, i64)> = connection
        .prepare_cached(sql::PRUNE_RANGES_DUE)?
        .query_map(
            named_params! {
                ":space": space.as_str(), ":kind": terminal.as_str(), ":bound": bound,
                ":limit": PRUNE_LIMIT,
            },
            |found| Ok((found.get(0)?, found.get(1)?)),
        )?
        .collect::<rusqlite::Result<_>>()?;
    let mut gone = connection.prepare_cached(sql::PRUNE_RANGES_GONE)?;
    for (number, last) in &due {
        gone.execute(named_params! {":number": number, ":last": last})?;
    }
    let mut evicted = connection.prepare_cached(sql::PRUNE_RANGES_EVICTED)?;
    for number in due
        .iter()
        .map(|(number, _)| number)
        .collect::<BTreeSet<_>>()
    {
        evicted.execute(named_params! {":number": number})?;
    }
    Ok(u32::try_from(due.len()).unwrap_or(u32::MAX))
}
