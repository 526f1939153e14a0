//! For tests: a store with changed statements on leases.

use rusqlite::Connection;
use tenure_core::job::Note;
use tenure_core::store::{EndChunk, HoldError, JobHold};

use super::{end_strictly, note_strictly};
use crate::render::Edit;
use crate::sqlite::SqliteStore;
use crate::sqlite::statements::HoldStatements;

impl SqliteStore {
    /// This store, with `edit` applied to the files (name and text) of the statements that check
    /// the leases of jobs and chunks.
    #[must_use]
    pub fn edited(mut self, edit: Edit<'_>) -> Self {
        self.jobs.holds = HoldStatements::edited(edit);
        self
    }

    /// Like [`SqliteStore::end_chunk_in`], with the statements of this store.
    ///
    /// # Errors
    /// Same as [`SqliteStore::end_chunk_in`].
    pub fn own_end_chunk_in(
        &self,
        connection: &Connection,
        end: &EndChunk,
    ) -> Result<(), HoldError> {
        end_strictly(self.jobs.holds.at(connection), end)
    }

    /// Like [`SqliteStore::note_job_in`], with the statements of this store.
    ///
    /// # Errors
    /// Same as [`SqliteStore::note_job_in`].
    pub fn own_note_job_in(
        &self,
        connection: &Connection,
        hold: &JobHold,
        note: &Note,
    ) -> Result<(), HoldError> {
        note_strictly(self.jobs.holds.at(connection), (hold, note))
    }
}
