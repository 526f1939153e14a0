//! What jobs are measured against: a table of checkpoints with a hold of limited time, written by
//! hand; and an outbox that is adopted.

use tenure_core::store::StoreError;

use super::{Rate, Yardstick};
use crate::config::StoreConfig;

/// The matrix of the bare checkpoints.
pub(super) const MATRIX: &str = "bench";
/// Rows per chunk, as is said at its end.
pub(super) const ROWS: i64 = 1000;

impl Yardstick {
    /// Claims and completes so many checkpoints, one by one, as it is written by hand: pairs per
    /// second. They are there before.
    ///
    /// # Errors
    /// The database failed.
    pub async fn bare_chunks(&self, chunks: u32, loops: u32) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.bare_chunks(chunks, loops).await,
            Self::Sqlite(yardstick) => yardstick.bare_chunks(chunks).await,
        }
    }

    /// Where an engine finds a table that was adopted: on PostgreSQL in the scratch schema.
    pub fn adopted_address(&self) -> (String, StoreConfig) {
        match self {
            Self::Postgres(yardstick) => yardstick.adopted_address(),
            Self::Sqlite(yardstick) => yardstick.address(),
        }
    }

    /// Makes the table `outbox`, as it is written by hand.
    ///
    /// # Errors
    /// The database failed.
    pub async fn make_adopted(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.make_adopted().await,
            Self::Sqlite(yardstick) => yardstick.make_adopted().await,
        }
    }

    /// Puts so many rows into the table `outbox`, all pending.
    ///
    /// # Errors
    /// The database failed, or nobody has made the table.
    pub async fn fill_adopted(&self, rows: u32) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.fill_adopted(rows).await,
            Self::Sqlite(yardstick) => yardstick.fill_adopted(rows).await,
        }
    }
}
