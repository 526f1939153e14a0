//! What only tests need: a store whose statements on holds have planted faults.

use rusqlite::Connection;
use tenure_core::job::Note;
use tenure_core::store::{CheckpointError, EndChunk, JobHold};

use super::{end_strictly, note_strictly};
use crate::Planted;
use crate::sqlite::SqliteStore;
use crate::sqlite::statements::HoldStatements;

impl SqliteStore {
    /// This store with faults planted in the statements that judge the holds on jobs and chunks.
    ///
    /// # Panics
    /// A statement does not say what a fault replaces.
    #[must_use]
    pub fn planted(mut self, faults: &[Planted]) -> Self {
        self.jobs.holds = HoldStatements::planted(faults);
        self
    }

    /// As [`SqliteStore::end_chunk_in`], with the faults of this store.
    ///
    /// # Errors
    /// As [`SqliteStore::end_chunk_in`].
    pub fn planted_end_chunk_in(
        &self,
        connection: &Connection,
        end: &EndChunk,
    ) -> Result<(), CheckpointError> {
        end_strictly(self.jobs.holds.at(connection), end)
    }

    /// As [`SqliteStore::note_job_in`], with the faults of this store.
    ///
    /// # Errors
    /// As [`SqliteStore::note_job_in`].
    pub fn planted_note_job_in(
        &self,
        connection: &Connection,
        hold: &JobHold,
        note: &Note,
    ) -> Result<(), CheckpointError> {
        note_strictly(self.jobs.holds.at(connection), (hold, note))
    }
}
