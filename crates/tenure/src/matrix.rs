//! `Matrix`: a set of chunks, with or without a job.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::job::{MatrixName, Progress};
use tenure_core::store::StoreError;
use tenure_core::{Invalid, Term};
use tenure_engine::ChunkRenewer;

use crate::chunk::{ChunkAsk, ChunkHome, Workplace};
use crate::tenure::Tenure;

impl Tenure {
    /// Returns the matrix of this name: a set of chunks that any program can claim, with or without
    /// a job. Each chunk has one holder at a time.
    ///
    /// # Errors
    /// The name is empty, longer than 200 bytes, or has control characters.
    pub fn matrix(&self, name: &str) -> Result<Matrix, Invalid> {
        Ok(Matrix {
            tenure: self.clone(),
            home: Arc::clone(self.chunk_home()),
            name: MatrixName::new(name)?,
        })
    }
}

/// A set of chunks to work through. The worker on jobs of this program renews the leases of its
/// chunks; without such a worker, a separate thread does.
///
/// ```
/// use std::time::Duration;
/// use tenure::job::ChunkAnswer;
/// use tenure::Tenure;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
/// let prices = Tenure::open(&url).await?.matrix("prices")?;
/// for currency in ["EUR", "USD"] {
///     // Another program can claim one of them while this one holds the other.
///     let chunk = prices.chunk(currency).fresh_for(Duration::from_secs(3600));
///     if let ChunkAnswer::Claimed(chunk) = chunk.claim().await? {
///         chunk.synced(40).await?; // claimable again in an hour
///     }
/// }
/// assert_eq!(prices.progress().await?.rows, 80);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Matrix {
    tenure: Tenure,
    home: Arc<ChunkHome>,
    name: MatrixName,
}

impl Matrix {
    /// Name of the matrix.
    pub fn name(&self) -> &MatrixName {
        &self.name
    }

    /// Sets term and heartbeat of the leases on its chunks; 2 minutes and 30 s by default. A
    /// separate thread then renews them.
    ///
    /// # Errors
    /// The heartbeat is zero, or the term is not longer than three heartbeats.
    pub fn timing(mut self, term: Term, heartbeat: Duration) -> Result<Self, Invalid> {
        self.home = Arc::new(ChunkHome::new(ChunkRenewer::new(term, heartbeat)?));
        Ok(self)
    }

    /// Creates the request for a chunk.
    pub fn chunk(&self, name: &str) -> ChunkAsk {
        let place = Workplace {
            tenure: self.tenure.clone(),
            home: Arc::clone(&self.home),
            worker: self.tenure.worker_id().clone(),
            matrix: self.name.clone(),
            job: None,
        };
        ChunkAsk::new(Arc::new(place), name)
    }

    /// Returns the progress of the work on the matrix.
    ///
    /// # Errors
    /// The store does not support jobs, or the database is unavailable.
    pub async fn progress(&self) -> Result<Progress, StoreError> {
        self.tenure.job_port()?.progress(&self.name, None).await
    }
}
