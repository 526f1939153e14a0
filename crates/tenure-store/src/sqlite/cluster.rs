//! Settings and workers of a cluster: the processes that have the file open.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, named_params};
use tenure_core::store::{
    Answer, ChangeSettings, Cluster, ClusterSettings, WorkerRecord, WorkerReport,
};
use tenure_core::{Timestamp, TopicSet, WorkerId};

use super::error::failed;
use super::holds::json;
use super::{SqliteStore, moment_of, row, statements as sql};
use crate::cluster::{from_millis, kept_report, millis, requested, stored_version, unsigned};

impl Cluster for SqliteStore {
    fn settings(&self) -> Answer<'_, ClusterSettings> {
        Box::pin(self.writer.read("settings", |connection| {
            settings(connection).map_err(failed("settings"))
        }))
    }

    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>> {
        Box::pin(async move {
            let asked = requested("change settings", change)?;
            let asked = json(&asked.into_iter().collect::<Vec<_>>());
            let version = stored_version(change.version);
            self.write("change settings", None, move |connection, _| {
                change_settings(connection, version, &asked).map_err(failed("change settings"))
            })
            .await
        })
    }

    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()> {
        let report = kept_report(report);
        Box::pin(self.write("report", now, move |connection, now| {
            write_report(connection, &report, now).map_err(failed("report"))
        }))
    }

    fn leave<'a>(&'a self, worker: &'a WorkerId, now: Option<Timestamp>) -> Answer<'a, ()> {
        let worker = worker.clone();
        Box::pin(self.write("leave", now, move |connection, now| {
            let ask = named_params! {":worker": worker.as_str(), ":now": now.as_micros()};
            let left = connection
                .prepare_cached(sql::LEAVE)
                .and_then(|mut statement| statement.execute(ask));
            left.map(drop).map_err(failed("leave"))
        }))
    }

    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)> {
        let clock = Arc::clone(&self.clock);
        Box::pin(self.writer.read("workers", move |connection| {
            let records = workers(connection, limit).map_err(failed("workers"))?;
            // Read the clock last, so that no report is later than this moment.
            Ok((moment_of(clock.as_ref(), None), records))
        }))
    }
}

fn settings(connection: &Connection) -> rusqlite::Result<ClusterSettings> {
    let mut settings = ClusterSettings::default();
    let mut statement = connection.prepare_cached(sql::SETTINGS)?;
    let mut rows = statement.query([])?;
    while let Some(found) = rows.next()? {
        settings.version = row::count(found, 0)?;
        if let Some(name) = found.get(1)? {
            settings.values.push((name, found.get(2)?));
        }
    }
    Ok(settings)
}

fn change_settings(
    connection: &Connection,
    version: i64,
    asked: &str,
) -> rusqlite::Result<Option<u64>> {
    let moved = connection
        .prepare_cached(sql::CHANGE_MOVED)?
        .query_row(named_params! {":version": version}, |found| {
            row::count(found, 0)
        })
        .optional()?;
    if moved.is_some() {
        for statement in [sql::CHANGE_TAKEN_OUT, sql::CHANGE_WRITTEN] {
            let mut statement = connection.prepare_cached(statement)?;
            statement.execute(named_params! {":change": asked})?;
        }
    }
    Ok(moved)
}

fn write_report(
    connection: &Connection,
    report: &WorkerReport,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(sql::REPORT)?;
    let written = statement.execute(named_params! {
        ":now": now.as_micros(),
        ":worker": report.worker.as_str(),
        ":host": report.host,
        ":pid": report.pid,
        ":version": report.version,
        ":queues": report.queues,
        ":concurrency": report.concurrency,
        ":running": report.running,
        ":held": report.held,
        ":settings_version": stored_version(report.settings_version),
        ":next_report_within_ms": millis(report.next_within),
        ":topics": report.topics.to_string(),
    });
    written.map(drop)
}

fn workers(connection: &Connection, limit: u32) -> rusqlite::Result<Vec<WorkerRecord>> {
    connection
        .prepare_cached(sql::WORKERS)?
        .query_map(named_params! {":limit": limit}, worker)?
        .collect()
}

fn worker(found: &Row<'_>) -> rusqlite::Result<WorkerRecord> {
    Ok(WorkerRecord {
        report: WorkerReport {
            worker: row::worker_id(found, 0)?,
            host: found.get(1)?,
            pid: found.get(2)?,
            version: found.get(3)?,
            queues: found.get(4)?,
            concurrency: found.get(5)?,
            running: found.get(6)?,
            held: found.get(7)?,
            settings_version: unsigned(found.get(8)?),
            next_within: from_millis(found.get(9)?),
            topics: TopicSet::parse(&found.get::<_, String>(13)?),
        },
        started_at: row::moment(found, 10)?,
        reported_at: row::moment(found, 11)?,
        left_at: row::past(found, 12)?,
    })
}
