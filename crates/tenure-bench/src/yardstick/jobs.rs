//! The yardstick of jobs: a hand-written table of checkpoints with expiring locks, and an outbox to
//! adopt.

use tenure::{StoreConfig, StoreError};

use super::{Rate, Yardstick};

/// The matrix of the bare checkpoints.
pub(super) const MATRIX: &str = "bench";
/// Number of rows reported at the end of a chunk.
pub(super) const ROWS: i64 = 1000;

impl Yardstick {
    /// Claims and completes this many existing checkpoints, one by one, with hand-written SQL;
    /// returns pairs per second.
    pub(crate) async fn bare_chunks(&self, chunks: u32, loops: u32) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.bare_chunks(chunks, loops).await,
            Self::Sqlite(yardstick) => yardstick.bare_chunks(chunks).await,
        }
    }

    /// The address of the adopted table for an engine: on PostgreSQL in the scratch schema.
    pub(crate) fn adopted_address(&self) -> (String, StoreConfig) {
        match self {
            Self::Postgres(yardstick) => yardstick.adopted_address(),
            Self::Sqlite(yardstick) => yardstick.address(),
        }
    }

    /// Creates the hand-written table `outbox`.
    pub(crate) async fn make_adopted(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.make_adopted().await,
            Self::Sqlite(yardstick) => yardstick.make_adopted().await,
        }
    }

    /// Inserts this many pending rows into the table `outbox`.
    pub(crate) async fn fill_adopted(&self, rows: u32) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.fill_adopted(rows).await,
            Self::Sqlite(yardstick) => yardstick.fill_adopted(rows).await,
        }
    }
}
