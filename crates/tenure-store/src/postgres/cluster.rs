//! Settings and workers of a cluster: all processes that use the database.

use sqlx::postgres::PgRow;
use tenure_core::store::{
    Answer, ChangeSettings, Cluster, ClusterSettings, WorkerRecord, WorkerReport,
};
use tenure_core::{Timestamp, TopicSet, WorkerId};

use super::PostgresStore;
use super::error::store_error;
use super::pool::Borrow as _;
use super::row::{get, get_moment, get_timestamp, get_total, moment, unreadable};
use crate::cluster::{from_millis, kept_report, millis, requested, stored_version, unsigned};

impl Cluster for PostgresStore {
    fn settings(&self) -> Answer<'_, ClusterSettings> {
        Box::pin(async move {
            let query = self.statements().settings.query();
            let rows = query.all_from(&self.pool).await;
            rows.and_then(|rows| settings(&rows))
                .map_err(|error| store_error("settings", error))
        })
    }

    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>> {
        Box::pin(async move {
            let asked = requested("change settings", change)?;
            let (names, values): (Vec<&str>, Vec<Option<&str>>) = asked.into_iter().unzip();
            let query = self
                .statements()
                .change_settings
                .query()
                .bind(stored_version(change.version))
                .bind(names)
                .bind(values);
            let row = query.first_from(&self.pool).await;
            row.and_then(|row| row.map(|row| get_total(&row, 0)).transpose())
                .map_err(|error| store_error("change settings", error))
        })
    }

    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()> {
        Box::pin(async move {
            let report = kept_report(report);
            let query = self
                .statements()
                .report
                .query()
                .bind(moment(now))
                .bind(report.worker.as_str())
                .bind(report.host)
                .bind(i64::from(report.pid))
                .bind(report.version)
                .bind(report.queues)
                .bind(i64::from(report.concurrency))
                .bind(i64::from(report.running))
                .bind(i64::from(report.held))
                .bind(stored_version(report.settings_version))
                .bind(millis(report.next_within))
                .bind(report.topics.to_string());
            let done = query.all_from(&self.pool).await;
            done.map(drop).map_err(|error| store_error("report", error))
        })
    }

    fn leave<'a>(&'a self, worker: &'a WorkerId, now: Option<Timestamp>) -> Answer<'a, ()> {
        Box::pin(async move {
            let query = self.statements().leave.query();
            let query = query.bind(moment(now)).bind(worker.as_str());
            let done = query.all_from(&self.pool).await;
            done.map(drop).map_err(|error| store_error("leave", error))
        })
    }

    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)> {
        Box::pin(async move {
            let query = self.statements().workers.query().bind(i64::from(limit));
            let rows = query.all_from(&self.pool).await;
            rows.and_then(|rows| workers(&rows))
                .map_err(|error| store_error("workers", error))
        })
    }
}

fn settings(rows: &[PgRow]) -> Result<ClusterSettings, sqlx::Error> {
    let mut settings = ClusterSettings::default();
    for row in rows {
        settings.version = get_total(row, 0)?;
        if let Some(name) = get(row, 1)? {
            settings.values.push((name, get(row, 2)?));
        }
    }
    Ok(settings)
}

fn workers(rows: &[PgRow]) -> Result<(Timestamp, Vec<WorkerRecord>), sqlx::Error> {
    let first = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let mut records = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(id) = get::<Option<&str>>(row, 1)? {
            records.push(worker(row, id)?);
        }
    }
    Ok((get_timestamp(first, 0)?, records))
}

fn worker(row: &PgRow, id: &str) -> Result<WorkerRecord, sqlx::Error> {
    Ok(WorkerRecord {
        report: WorkerReport {
            worker: WorkerId::parse(id).ok_or_else(|| unreadable(id))?,
            host: get(row, 2)?,
            pid: unsigned(get(row, 3)?),
            version: get(row, 4)?,
            queues: get(row, 5)?,
            concurrency: unsigned(get(row, 6)?),
            running: unsigned(get(row, 7)?),
            held: unsigned(get(row, 8)?),
            settings_version: unsigned(get(row, 9)?),
            next_within: from_millis(get(row, 10)?),
            topics: TopicSet::parse(get(row, 14)?),
        },
        started_at: get_timestamp(row, 11)?,
        reported_at: get_timestamp(row, 12)?,
        left_at: get_moment(row, 13)?,
    })
}
