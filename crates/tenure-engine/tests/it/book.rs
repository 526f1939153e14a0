//! A book of jobs over the events of the store, as far as an engine asks for one: what it leases
//! are events, and the hold on a chunk is renewed unless its token was taken away.

use std::time::Duration;

use tenure_core::job::{
    ChunkClaim, ChunkName, ChunkRecord, Job, KindStanding, MatrixName, NewJob, Note, Noted,
    Progress, Retried,
};
use tenure_core::store::{
    Answer, ChunkHold, ClaimChunk, EndChunk, HeldChunks, JobFilter, JobHold, Jobs, KeepsJobs,
    LeaseStore, Operate, RenewChunks, Renewed, StoreError, StoreErrorKind,
};
use tenure_core::{Fence, Guarded, Refusal, Timestamp};

use crate::faulty::{Ask, Faulty};

fn unasked<'a, T: Send + 'a>() -> Answer<'a, T> {
    let error = StoreError::new("test", StoreErrorKind::Invalid, "no engine asks this");
    Box::pin(std::future::ready(Err(error)))
}

impl KeepsJobs for Faulty {
    fn job_book(&self) -> Option<&dyn Jobs> {
        Some(self)
    }
}

impl Jobs for Faulty {
    fn enqueue_jobs<'a>(&'a self, _: &'a [NewJob], _: Option<Timestamp>) -> Answer<'a, Vec<i64>> {
        unasked()
    }

    fn retry_job(&self, _: i64, _: Option<Timestamp>) -> Answer<'_, Retried> {
        unasked()
    }

    fn job(&self, _: i64, _: Option<Timestamp>) -> Answer<'_, Option<Job>> {
        unasked()
    }

    fn jobs<'a>(&'a self, _: &'a JobFilter, _: u32) -> Answer<'a, Vec<Job>> {
        unasked()
    }

    fn note_job<'a>(&'a self, _: &'a JobHold, _: &'a Note) -> Answer<'a, Noted> {
        unasked()
    }

    fn job_leases(&self) -> &dyn LeaseStore {
        self
    }

    fn job_desk(&self) -> &dyn Operate {
        self
    }

    fn claim_chunk<'a>(&'a self, _: &'a ClaimChunk) -> Answer<'a, ChunkClaim> {
        unasked()
    }

    fn renew_chunks<'a>(
        &'a self,
        renew: &'a RenewChunks,
    ) -> Answer<'a, Vec<(ChunkHold, Guarded<Renewed>)>> {
        let answer = |hold: &ChunkHold| {
            if self.is_taken(&hold.token) {
                return Guarded::Refused(Refusal::Lost);
            }
            Guarded::Kept(Renewed {
                until: Timestamp::from_micros(0),
                fence: Fence::new(1),
                ids: Vec::new(),
            })
        };
        let holds = renew.holds.iter();
        let holds = holds.filter(|hold| !self.is_busy(&hold.token));
        let answers: Vec<_> = holds.map(|hold| (hold.clone(), answer(hold))).collect();
        self.through(Ask::RenewChunks(renew.clone()), || {
            Box::pin(std::future::ready(Ok(answers)))
        })
    }

    fn end_chunk<'a>(&'a self, _: &'a EndChunk) -> Answer<'a, Guarded<()>> {
        unasked()
    }

    fn chunks<'a>(
        &'a self,
        _: &'a MatrixName,
        _: Option<&'a ChunkName>,
        _: u32,
    ) -> Answer<'a, Vec<ChunkRecord>> {
        unasked()
    }

    fn notable_chunks<'a>(&'a self, _: &'a MatrixName, _: u32) -> Answer<'a, Vec<ChunkRecord>> {
        unasked()
    }

    fn held_chunks<'a>(
        &'a self,
        _: &'a HeldChunks,
        _: Option<Timestamp>,
    ) -> Answer<'a, Vec<ChunkRecord>> {
        unasked()
    }

    fn kinds(&self, _: Duration, _: Option<Timestamp>) -> Answer<'_, Vec<KindStanding>> {
        unasked()
    }

    fn progress<'a>(&'a self, _: &'a MatrixName, _: Option<Timestamp>) -> Answer<'a, Progress> {
        unasked()
    }
}
