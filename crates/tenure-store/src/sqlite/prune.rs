//! Prune on the queue layout: one transaction per round, oldest first.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{CachedStatement, Connection, Params, ToSql, named_params};
use tenure_core::Timestamp;
use tenure_core::store::{Answer, Kind, Prune, Pruned, Pruner};

use super::error::failed;
use super::holds::{json, parse};
use super::intake::{kind_of, kind_word};
use super::{SqliteStore, row, statements as sql};
use crate::cluster::WORKERS_KEPT;
use crate::jobs::PRUNED_MAX;

impl Pruner for SqliteStore {
    fn prune<'a>(&'a self, ask: &'a Prune) -> Answer<'a, Pruned> {
        let (now, ask) = (ask.now, ask.clone());
        Box::pin(self.write("prune", now, move |connection, now| {
            if ask.limit == 0 {
                return Ok(Pruned::default());
            }
            let before = named_params! {":before": now.before(WORKERS_KEPT).as_micros()};
            let workers = connection
                .prepare_cached(sql::PRUNE_WORKERS)
                .and_then(|mut statement| statement.execute(before));
            workers.map_err(failed("prune"))?;
            let jobs = prune_jobs(connection, &ask, now).map_err(failed("prune"))?;
            let round = Round {
                connection,
                done: now.before(ask.done),
                dead: now.before(ask.dead),
                limit: usize::try_from(ask.limit).unwrap_or(usize::MAX),
            };
            let items = round.run().map_err(failed("prune"))?;
            Ok(Pruned {
                jobs_completed: jobs.jobs_completed,
                jobs_failed: jobs.jobs_failed,
                more: items.more || jobs.more,
                ..items
            })
        }))
    }
}

/// Deletes jobs past their retention; with the last job on a matrix `job-…`, also its chunks.
fn prune_jobs(connection: &Connection, ask: &Prune, now: Timestamp) -> rusqlite::Result<Pruned> {
    let limit = ask.limit.min(PRUNED_MAX);
    let old = |text: &str, name: &str, before: Timestamp| {
        let ask: [(&str, &dyn ToSql); 2] = [(name, &before.as_micros()), (":limit", &limit)];
        connection
            .prepare_cached(text)?
            .query_map(&ask[..], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<Vec<(i64, String)>>>()
    };
    let completed = old(sql::PRUNE_JOBS_COMPLETED, ":done", now.before(ask.done))?;
    let failed = old(sql::PRUNE_JOBS_FAILED, ":dead", now.before(ask.dead))?;
    let all = || completed.iter().chain(&failed);
    let ids = json(&all().map(|(id, _)| *id).collect::<Vec<_>>());
    let mut gone = connection.prepare_cached(sql::PRUNE_JOBS_GONE)?;
    gone.execute(named_params! {":ids": ids})?;
    let mut forgotten = connection.prepare_cached(sql::PRUNE_JOBS_FORGOTTEN)?;
    for matrix in all().map(|(_, matrix)| matrix).collect::<BTreeSet<_>>() {
        forgotten.execute(named_params! {":matrix": matrix})?;
    }
    let (jobs_completed, jobs_failed) = (count(completed.len()), count(failed.len()));
    Ok(Pruned {
        jobs_completed,
        jobs_failed,
        more: jobs_completed.max(jobs_failed) >= u64::from(limit),
        ..Pruned::default()
    })
}

/// A journal row of done items.
struct JournalRow {
    number: i64,
    settled_at: Timestamp,
    ids: Vec<i64>,
}

/// One round; the bounds are the moments before which an item must have been settled.
struct Round<'a> {
    connection: &'a Connection,
    done: Timestamp,
    dead: Timestamp,
    limit: usize,
}

impl Round<'_> {
    fn run(&self) -> rusqlite::Result<Pruned> {
        let (lines, is_cut) = self.lines()?;
        let dead = self.dead()?;
        let more = is_cut || dead.len() >= self.limit;
        let named: BTreeSet<i64> = lines.iter().flat_map(|line| &line.ids).copied().collect();
        let (owed, events): (Vec<i64>, Vec<i64>) = named
            .into_iter()
            .chain(dead)
            .partition(|id| kind_of(*id) == Kind::Deliveries);
        // Deliveries first: an event that is past its own retention goes with its last delivery.
        let owed = self.settled(&owed, true)?;
        let sources = self.sources(&owed)?;
        self.delete(Kind::Deliveries, &owed)?;
        let mut gone = self.settled(&events, true)?;
        gone.extend(self.settled(&sources, false)?);
        self.delete(Kind::Events, &gone)?;
        self.close(lines)?;
        let others = self.delete_others()?;
        let all = gone.len() + owed.len();
        let dead = gone
            .values()
            .chain(owed.values())
            .filter(|is_dead| **is_dead)
            .count();
        Ok(Pruned {
            done: count(all - dead),
            dead: count(dead),
            more: more || others >= self.limit,
            ..Pruned::default()
        })
    }

    /// Returns the oldest journal rows of done items, until they name about `limit` items; the flag
    /// is true if there may be more.
    fn lines(&self) -> rusqlite::Result<(Vec<JournalRow>, bool)> {
        let mut statement = self.prepare(sql::PRUNE_ENTRIES)?;
        let mut rows = statement.query(named_params! {
            ":done": self.done.as_micros(),
            ":limit": number(self.limit),
        })?;
        let (mut lines, mut named) = (Vec::new(), 0);
        while named < self.limit {
            let Some(found) = rows.next()? else {
                return Ok((lines, false));
            };
            let line = JournalRow {
                number: found.get(0)?,
                settled_at: row::moment(found, 1)?,
                ids: parse(found.get_ref(2)?.as_str()?, 2)?,
            };
            named += line.ids.len();
            lines.push(line);
        }
        Ok((lines, true))
    }

    fn dead(&self) -> rusqlite::Result<Vec<i64>> {
        let ask = named_params! {":dead": self.dead.as_micros(), ":limit": number(self.limit)};
        self.prepare(sql::PRUNE_DEAD)?
            .query_map(ask, |row| row.get(0))?
            .collect()
    }

    /// Returns the events of the deliveries to delete.
    fn sources(&self, owed: &BTreeMap<i64, bool>) -> rusqlite::Result<Vec<i64>> {
        if owed.is_empty() {
            return Ok(Vec::new());
        }
        let ids = json(&owed.keys().collect::<Vec<_>>());
        self.prepare(sql::PRUNE_SOURCES)?
            .query_map(named_params! {":ids": ids}, |row| row.get(0))?
            .collect()
    }

    /// Returns the items among these that may be deleted, with true for a dead one. `is_named`:
    /// this round chose them by their own age, not as the events of deliveries.
    fn settled(&self, ids: &[i64], is_named: bool) -> rusqlite::Result<BTreeMap<i64, bool>> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let ask = named_params! {
            ":ids": json(ids),
            ":named": is_named,
            ":done": self.done.as_micros(),
            ":dead": self.dead.as_micros(),
        };
        self.prepare(sql::PRUNE_SETTLED)?
            .query_map(ask, |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
    }

    /// Deletes items and all rows that belong only to them.
    fn delete(&self, kind: Kind, settled: &BTreeMap<i64, bool>) -> rusqlite::Result<()> {
        if settled.is_empty() {
            return Ok(());
        }
        let ids = json(&settled.keys().collect::<Vec<_>>());
        // The table that only this kind has.
        let theirs = match kind {
            Kind::Events => sql::PRUNE_DEDUPE_KEYS,
            Kind::Deliveries => sql::PRUNE_ATTEMPTS,
        };
        for text in [
            sql::PRUNE_EVENTS,
            sql::PRUNE_SETBACKS,
            sql::PRUNE_BURIED,
            theirs,
        ] {
            self.change(text, named_params! {":ids": ids})?;
        }
        let items = named_params! {":items": number(settled.len()), ":kind": kind_word(kind)};
        self.change(sql::PRUNE_COUNTED, items).map(drop)
    }

    /// Deletes or marks the journal rows of this round: a row that names a retained item stays for
    /// its timeline, up to the longer retention; its mark makes later rounds skip it.
    fn close(&self, lines: Vec<JournalRow>) -> rusqlite::Result<()> {
        let named: BTreeSet<i64> = lines.iter().flat_map(|line| &line.ids).copied().collect();
        let kept = self.retained(&named)?;
        for mut line in lines {
            line.ids.retain(|id| kept.contains(id));
            match (line.ids.first(), line.ids.last()) {
                (Some(first), Some(last)) if line.settled_at >= self.old() => {
                    let pruned = named_params! {
                        ":entry": line.number, ":ids": json(&line.ids),
                        ":first_id": first, ":last_id": last,
                    };
                    self.change(sql::PRUNE_PRUNED, pruned)?;
                }
                _ => self.end(line.number)?,
            }
        }
        Ok(())
    }

    fn end(&self, line: i64) -> rusqlite::Result<()> {
        let ended = named_params! {":entry": line};
        self.change(sql::PRUNE_ENDED, ended).map(drop)
    }

    fn retained(&self, named: &BTreeSet<i64>) -> rusqlite::Result<BTreeSet<i64>> {
        self.prepare(sql::PRUNE_KEPT)?
            .query_map(named_params! {":ids": json(named)}, |row| row.get(0))?
            .collect()
    }

    /// Deletes journal rows past the longer retention; returns their number.
    fn delete_others(&self) -> rusqlite::Result<usize> {
        let ask = named_params! {":old": self.old().as_micros(), ":limit": number(self.limit)};
        let lines = self
            .prepare(sql::PRUNE_OTHERS)?
            .query_map(ask, |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        for line in &lines {
            self.end(*line)?;
        }
        Ok(lines.len())
    }

    /// Time before which a journal row is past the longer retention.
    fn old(&self) -> Timestamp {
        self.done.min(self.dead)
    }

    fn prepare(&self, text: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(text)
    }

    fn change(&self, text: &str, ask: impl Params) -> rusqlite::Result<usize> {
        self.prepare(text)?.execute(ask)
    }
}

/// Converts a count to a statement parameter.
fn number(items: usize) -> i64 {
    i64::try_from(items).unwrap_or(i64::MAX)
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}
