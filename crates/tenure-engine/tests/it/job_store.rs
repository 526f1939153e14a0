//! A minimal job store over the faulty store: an event stands for a job. It renews a chunk unless
//! the test gave it to another worker.

use std::time::Duration;

use tenure_core::job::{
    ChunkClaim, ChunkName, ChunkRecord, Job, JobId, KindStatus, MatrixName, NewJob, Note, Noted,
    Progress, Retried,
};
use tenure_core::store::{
    Answer, ChunkHold, ClaimChunk, EndChunk, HeldChunks, JobFilter, JobHold, Jobs, LeaseStore,
    Operate, ProvidesJobs, RenewChunks, Renewed, StoreError, StoreErrorKind,
};
use tenure_core::{Fence, Guarded, Refusal, Timestamp};

use crate::faulty_store::{FaultyStore, Verb};

fn unused<'a, T: Send + 'a>() -> Answer<'a, T> {
    let error = StoreError::new(
        "test",
        StoreErrorKind::Invalid,
        "an engine does not call this",
    );
    Box::pin(std::future::ready(Err(error)))
}

impl ProvidesJobs for FaultyStore {
    fn job_store(&self) -> Option<&dyn Jobs> {
        Some(self)
    }
}

impl Jobs for FaultyStore {
    fn enqueue_jobs<'a>(&'a self, _: &'a [NewJob], _: Option<Timestamp>) -> Answer<'a, Vec<JobId>> {
        unused()
    }

    fn retry_job(&self, _: JobId, _: Option<Timestamp>) -> Answer<'_, Retried> {
        unused()
    }

    fn job(&self, _: JobId, _: Option<Timestamp>) -> Answer<'_, Option<Job>> {
        unused()
    }

    fn jobs<'a>(&'a self, _: &'a JobFilter, _: u32) -> Answer<'a, Vec<Job>> {
        unused()
    }

    fn note_job<'a>(&'a self, _: &'a JobHold, _: &'a Note) -> Answer<'a, Noted> {
        unused()
    }

    fn job_leases(&self) -> &dyn LeaseStore {
        self
    }

    fn job_operations(&self) -> &dyn Operate {
        self
    }

    fn claim_chunk<'a>(&'a self, _: &'a ClaimChunk) -> Answer<'a, ChunkClaim> {
        unused()
    }

    fn renew_chunks<'a>(
        &'a self,
        renew: &'a RenewChunks,
    ) -> Answer<'a, Vec<(ChunkHold, Guarded<Renewed>)>> {
        let answer = |hold: &ChunkHold| {
            if self.is_taken(&hold.token) {
                return Guarded::Refused(Refusal::Lost);
            }
            Guarded::Accepted(Renewed {
                until: Timestamp::from_micros(0),
                fence: Fence::new(1),
                ids: Vec::new(),
            })
        };
        let holds = renew.holds.iter();
        let holds = holds.filter(|hold| !self.is_busy(&hold.token));
        let answers: Vec<_> = holds.map(|hold| (hold.clone(), answer(hold))).collect();
        self.through(Verb::RenewChunks(renew.clone()), || {
            Box::pin(std::future::ready(Ok(answers)))
        })
    }

    fn end_chunk<'a>(&'a self, _: &'a EndChunk) -> Answer<'a, Guarded<()>> {
        unused()
    }

    fn chunks<'a>(
        &'a self,
        _: &'a MatrixName,
        _: Option<&'a ChunkName>,
        _: u32,
    ) -> Answer<'a, Vec<ChunkRecord>> {
        unused()
    }

    fn notable_chunks<'a>(&'a self, _: &'a MatrixName, _: u32) -> Answer<'a, Vec<ChunkRecord>> {
        unused()
    }

    fn held_chunks<'a>(
        &'a self,
        _: &'a HeldChunks,
        _: Option<Timestamp>,
    ) -> Answer<'a, Vec<ChunkRecord>> {
        unused()
    }

    fn kinds(&self, _: Duration, _: Option<Timestamp>) -> Answer<'_, Vec<KindStatus>> {
        unused()
    }

    fn progress<'a>(&'a self, _: &'a MatrixName, _: Option<Timestamp>) -> Answer<'a, Progress> {
        unused()
    }
}
