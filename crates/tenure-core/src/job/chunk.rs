//! Chunks: parts of a job's work, each with its own lease and checkpoint.

use super::{ChunkName, MatrixName};
use crate::item::Hold;
use crate::lease::Lease;
use crate::table::SyncState;
use crate::time::Timestamp;

/// Complete key of a chunk. Chunks of the same name in two matrices are independent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkKey {
    /// Matrix of the chunk.
    pub matrix: MatrixName,
    /// Name within the matrix.
    pub chunk: ChunkName,
}

/// A claimed chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Key of the chunk.
    pub key: ChunkKey,
    /// Lease of the claim.
    pub lease: Lease,
    /// Last cursor that an earlier holder saved.
    pub cursor: Option<String>,
    /// Number of earlier leases that failed, lapsed or were released.
    pub attempts: u32,
}

/// Result of a claim of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkClaim {
    /// The chunk is claimed.
    Claimed(Chunk),
    /// The chunk is done for good, or was done recently enough for the claim.
    Done {
        /// Time of its last completion.
        at: Timestamp,
    },
    /// Another worker holds the chunk.
    Held {
        /// Worker that holds the chunk.
        holder: String,
        /// End of the lease, unless the holder renews it.
        until: Timestamp,
    },
    /// The chunk failed for good.
    Failed,
    /// The caller has lost its lease on the job for which it claims.
    JobLost,
}

/// A chunk for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRecord {
    /// Key of the chunk.
    pub key: ChunkKey,
    /// State, derived from its timestamps.
    pub state: SyncState,
    /// Current lease, if there is one.
    pub hold: Option<Hold>,
    /// Number of rows when it was last done.
    pub row_count: Option<u64>,
    /// Time when it was last done.
    pub synced_at: Option<Timestamp>,
    /// Cursor of the current or last holder.
    pub cursor: Option<String>,
    /// Last error.
    pub error: Option<String>,
}
