//! Chunks: the parts of a job's work, each with a lease and a checkpoint of its own.

use super::{ChunkName, MatrixName};
use crate::item::Hold;
use crate::lease::Lease;
use crate::table::SyncState;
use crate::time::Timestamp;

/// The whole key of a chunk. Two matrices may have chunks of one name and never touch each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkKey {
    /// Of what.
    pub matrix: MatrixName,
    /// Which.
    pub chunk: ChunkName,
}

/// A chunk in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Which.
    pub key: ChunkKey,
    /// Its lease.
    pub lease: Lease,
    /// Where whoever had it before was, as was written down last.
    pub cursor: Option<String>,
    /// How often it was in hand before.
    pub attempts: u32,
}

/// What came of asking for a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkClaim {
    /// It is ours.
    Claimed(Chunk),
    /// It was done at this moment, and that is recent enough, or it is done for good.
    Done {
        /// When.
        at: Timestamp,
    },
    /// Somebody else has it.
    Held {
        /// Who.
        holder: String,
        /// Until when, unless it is renewed.
        until: Timestamp,
    },
    /// It failed for good.
    Failed,
    /// The job that it was asked for is not the asker's any more.
    JobLost,
}

/// A chunk as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRecord {
    /// Which.
    pub key: ChunkKey,
    /// Where it stands.
    pub state: SyncState,
    /// Who has it, if someone does.
    pub hold: Option<Hold>,
    /// How many rows it had, when it was done last.
    pub row_count: Option<u64>,
    /// When it was done last.
    pub synced_at: Option<Timestamp>,
    /// Where whoever has it or had it was.
    pub cursor: Option<String>,
    /// What went wrong last.
    pub error: Option<String>,
}
