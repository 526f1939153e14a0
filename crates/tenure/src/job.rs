//! Long work, done in chunks. Start with [`Tenure::jobs`](crate::Tenure::jobs).

pub use tenure_core::job::{
    COUNT_MAX, CURSOR_BYTES_MAX, Chunk, ChunkClaim, ChunkKey, ChunkName, ChunkRecord, Job, JobId,
    JobKind, KindStatus, MatrixName, NewJob, Note, Noted, Progress, Retried,
};
pub use tenure_core::store::{ClaimChunk, HeldChunks, HoldError, JobFilter};
pub use tenure_core::{JobFacts, SyncState, why_job};
pub use tenure_store::JobsOn;

pub use crate::chunk::{ChunkAnswer, ChunkAsk, HeldChunk};
pub use crate::held_job::HeldJob;
pub use crate::jobs::Jobs;
pub use crate::matrix::Matrix;
