//! Prune on the queue layout: one transaction a round, walked by age.

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

/// Deletes jobs that ended long ago, and the chunks of the matrices that were theirs alone.
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
struct Line {
    number: i64,
    settled_at: Timestamp,
    ids: Vec<i64>,
}

/// One round, and the moments before which an item must have been settled.
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
        // Deliveries first: an event goes with its last one, if it is not to be kept for itself.
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

    /// The oldest journal rows of done items that name about as many as the limit; whether there
    /// may be more.
    fn lines(&self) -> rusqlite::Result<(Vec<Line>, bool)> {
        let mut statement = self.prepare(sql::PRUNE_LINES)?;
        let mut rows = statement.query(named_params! {
            ":done": self.done.as_micros(),
            ":limit": number(self.limit),
        })?;
        let (mut lines, mut named) = (Vec::new(), 0);
        while named < self.limit {
            let Some(found) = rows.next()? else {
                return Ok((lines, false));
            };
            let line = Line {
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

    /// The events of deliveries that will be deleted.
    fn sources(&self, owed: &BTreeMap<i64, bool>) -> rusqlite::Result<Vec<i64>> {
        if owed.is_empty() {
            return Ok(Vec::new());
        }
        let ids = json(&owed.keys().collect::<Vec<_>>());
        self.prepare(sql::PRUNE_SOURCES)?
            .query_map(named_params! {":ids": ids}, |row| row.get(0))?
            .collect()
    }

    /// Those of these items that may be deleted, and whether they are dead; whether they are named
    /// by the lines that this round goes through.
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

    /// Deletes items and all that is theirs alone.
    fn delete(&self, kind: Kind, settled: &BTreeMap<i64, bool>) -> rusqlite::Result<()> {
        if settled.is_empty() {
            return Ok(());
        }
        let ids = json(&settled.keys().collect::<Vec<_>>());
        // What only one of the kinds has.
        let theirs = match kind {
            Kind::Events => sql::PRUNE_KEYS,
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

    /// Ends journal rows that were gone through: one that names an item that is kept stays for its
    /// timeline, up to the longer retention, and is not looked at again.
    fn close(&self, lines: Vec<Line>) -> rusqlite::Result<()> {
        let named: BTreeSet<i64> = lines.iter().flat_map(|line| &line.ids).copied().collect();
        let kept = self.kept(&named)?;
        for mut line in lines {
            line.ids.retain(|id| kept.contains(id));
            match (line.ids.first(), line.ids.last()) {
                (Some(lo), Some(hi)) if line.settled_at >= self.old() => {
                    let spent = named_params! {
                        ":line": line.number, ":ids": json(&line.ids), ":lo": lo, ":hi": hi,
                    };
                    self.change(sql::PRUNE_SPENT, spent)?;
                }
                _ => self.end(line.number)?,
            }
        }
        Ok(())
    }

    fn end(&self, line: i64) -> rusqlite::Result<()> {
        let ended = named_params! {":line": line};
        self.change(sql::PRUNE_ENDED, ended).map(drop)
    }

    fn kept(&self, named: &BTreeSet<i64>) -> rusqlite::Result<BTreeSet<i64>> {
        self.prepare(sql::PRUNE_KEPT)?
            .query_map(named_params! {":ids": json(named)}, |row| row.get(0))?
            .collect()
    }

    /// Deletes journal rows that are past the longer retention; how many.
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

    /// Where the longer retention begins.
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

/// A count as the statements take it.
fn number(items: usize) -> i64 {
    i64::try_from(items).unwrap_or(i64::MAX)
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}
