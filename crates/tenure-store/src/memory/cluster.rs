//! To come: settings and workers of a cluster, examine.

use tenure_core::store::{
    Answer, ChangeSettings, Cluster, ClusterSettings, Examine, Finding, WorkerRecord, WorkerReport,
};
use tenure_core::{Timestamp, WorkerId};

use super::MemoryStore;

impl Cluster for MemoryStore {
    fn settings(&self) -> Answer<'_, ClusterSettings> {
        Box::pin(async { Ok(ClusterSettings::default()) })
    }

    fn change_settings<'a>(&'a self, _change: &'a ChangeSettings) -> Answer<'a, Option<u64>> {
        Box::pin(async { Ok(None) })
    }

    fn report<'a>(&'a self, _report: &'a WorkerReport, _now: Option<Timestamp>) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn leave<'a>(&'a self, _worker: &'a WorkerId, _now: Option<Timestamp>) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn workers(&self, _limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)> {
        Box::pin(async { Ok((Timestamp::from_micros(0), Vec::new())) })
    }
}

impl Examine for MemoryStore {
    fn examine(&self) -> Answer<'_, Vec<Finding>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
