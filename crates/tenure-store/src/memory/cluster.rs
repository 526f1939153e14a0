//! Settings and workers of a cluster: of the one process that this store lives in.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tenure_core::store::{
    Answer, ChangeSettings, Cluster, ClusterSettings, WorkerRecord, WorkerReport,
};
use tenure_core::{Timestamp, WorkerId};

use super::MemoryStore;
use crate::cluster::{asked, kept_report};

/// What the processes of a cluster tell each other.
#[derive(Debug, Default)]
pub(super) struct Board {
    settings_version: u64,
    settings: BTreeMap<String, String>,
    workers: BTreeMap<WorkerId, WorkerRecord>,
}

impl Board {
    /// Those that nobody has seen since go.
    pub(super) fn forget_workers(&mut self, before: Timestamp) {
        self.workers.retain(|_, record| record.seen_at >= before);
    }
}

impl Cluster for MemoryStore {
    fn settings(&self) -> Answer<'_, ClusterSettings> {
        Box::pin(async move {
            let board = &self.shelf().board;
            let values = board.settings.iter();
            Ok(ClusterSettings {
                version: board.settings_version,
                values: values
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            })
        })
    }

    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>> {
        Box::pin(async move {
            let asked = asked("change settings", change)?;
            let board = &mut self.shelf().board;
            if board.settings_version != change.version {
                return Ok(None);
            }
            for (name, value) in asked {
                match value {
                    Some(value) => board.settings.insert(name.to_owned(), value.to_owned()),
                    None => board.settings.remove(name),
                };
            }
            board.settings_version += 1;
            Ok(Some(board.settings_version))
        })
    }

    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()> {
        Box::pin(async move {
            let now = self.moment(now);
            let report = kept_report(report);
            let workers = &mut self.shelf().board.workers;
            let before = workers.get(&report.worker);
            let record = WorkerRecord {
                started_at: before.map_or(now, |record| record.started_at),
                seen_at: now,
                left_at: before.and_then(|record| record.left_at),
                report,
            };
            workers.insert(record.report.worker.clone(), record);
            Ok(())
        })
    }

    fn leave<'a>(&'a self, worker: &'a WorkerId, now: Option<Timestamp>) -> Answer<'a, ()> {
        Box::pin(async move {
            let now = self.moment(now);
            if let Some(record) = self.shelf().board.workers.get_mut(worker) {
                record.left_at.get_or_insert(now);
            }
            Ok(())
        })
    }

    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)> {
        Box::pin(async move {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let shelf = self.shelf();
            // By id already; the sort keeps that order among those seen at the same moment.
            let mut records: Vec<&WorkerRecord> = shelf.board.workers.values().collect();
            records.sort_by_key(|record| Reverse(record.seen_at));
            let first = records.into_iter().take(limit).cloned();
            Ok((self.moment(None), first.collect()))
        })
    }
}
