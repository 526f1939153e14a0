//! Settings and workers of a cluster; here the cluster is one process.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tenure_core::store::{
    Answer, ChangeSettings, Cluster, ClusterSettings, WorkerRecord, WorkerReport,
};
use tenure_core::{Timestamp, WorkerId};

use super::MemoryStore;
use crate::cluster::{kept_report, requested};

/// State shared by the workers of the cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterState {
    settings_version: u64,
    settings: BTreeMap<String, String>,
    workers: BTreeMap<WorkerId, WorkerRecord>,
}

impl ClusterState {
    /// Deletes the workers that were last seen before this moment.
    pub(super) fn forget_workers(&mut self, before: Timestamp) {
        self.workers
            .retain(|_, record| record.reported_at >= before);
    }
}

impl Cluster for MemoryStore {
    fn settings(&self) -> Answer<'_, ClusterSettings> {
        Box::pin(async move {
            let cluster = &self.state().cluster;
            let values = cluster.settings.iter();
            Ok(ClusterSettings {
                version: cluster.settings_version,
                values: values
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            })
        })
    }

    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>> {
        Box::pin(async move {
            let asked = requested("change settings", change)?;
            let cluster = &mut self.state().cluster;
            if cluster.settings_version != change.version {
                return Ok(None);
            }
            for (name, value) in asked {
                match value {
                    Some(value) => cluster.settings.insert(name.to_owned(), value.to_owned()),
                    None => cluster.settings.remove(name),
                };
            }
            cluster.settings_version += 1;
            Ok(Some(cluster.settings_version))
        })
    }

    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()> {
        Box::pin(async move {
            let now = self.moment(now);
            let report = kept_report(report);
            let workers = &mut self.state().cluster.workers;
            let before = workers.get(&report.worker);
            let record = WorkerRecord {
                started_at: before.map_or(now, |record| record.started_at),
                reported_at: now,
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
            if let Some(record) = self.state().cluster.workers.get_mut(worker) {
                record.left_at.get_or_insert(now);
            }
            Ok(())
        })
    }

    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)> {
        Box::pin(async move {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let state = self.state();
            // Already sorted by id; the stable sort keeps that order among workers seen at the same
            // moment.
            let mut records: Vec<&WorkerRecord> = state.cluster.workers.values().collect();
            records.sort_by_key(|record| Reverse(record.reported_at));
            let first = records.into_iter().take(limit).cloned();
            Ok((self.moment(None), first.collect()))
        })
    }
}
