//! A matrix: what is worked through, chunk by chunk, also by those who have no job for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::job::{MatrixName, Progress};
use tenure_core::store::StoreError;
use tenure_core::{Invalid, Term};
use tenure_engine::ChunkKeeper;

use crate::chunk::{ChunkAsk, ChunkHome, Workplace};
use crate::jobs::book;
use crate::tenure::Tenure;

impl Tenure {
    /// What is worked through under this name: chunks that anyone may ask for, with or without a
    /// job. Each is in one hand at a time.
    ///
    /// # Errors
    /// A name is 1 to 200 bytes without control characters.
    pub fn matrix(&self, name: &str) -> Result<Matrix, Invalid> {
        Ok(Matrix {
            tenure: self.clone(),
            home: Arc::clone(self.chunk_home()),
            name: MatrixName::new(name)?,
        })
    }
}

/// What is worked through, chunk by chunk. The leases on its chunks are renewed by the worker on
/// jobs that runs in this program, else on a thread of their own.
///
/// ```
/// use std::time::Duration;
/// use tenure::{ChunkAnswer, Tenure};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
/// let prices = Tenure::open(&url).await?.matrix("prices")?;
/// for currency in ["EUR", "USD"] {
///     // Whoever else does the same has one of them while we have the other.
///     let ask = prices.chunk(currency).fresh_for(Duration::from_secs(3600));
///     if let ChunkAnswer::Claimed(chunk) = ask.claim().await? {
///         chunk.synced(40).await?; // and in an hour again
///     }
/// }
/// assert_eq!(prices.progress().await?.rows, 80);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Matrix {
    tenure: Tenure,
    home: Arc<ChunkHome>,
    name: MatrixName,
}

impl Matrix {
    /// Its name.
    pub fn name(&self) -> &MatrixName {
        &self.name
    }

    /// Leases on its chunks run this long and are renewed this often; 2 minutes and 30 s unless
    /// set. They are then renewed on a thread of their own.
    ///
    /// # Errors
    /// Three heartbeats are not less than the term.
    pub fn rhythm(mut self, term: Term, heartbeat: Duration) -> Result<Self, Invalid> {
        self.home = Arc::new(ChunkHome::new(ChunkKeeper::new(term, heartbeat)?));
        Ok(self)
    }

    /// Asks for a chunk.
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

    /// How far the work on it has come.
    ///
    /// # Errors
    /// The store keeps no jobs, or the database is away.
    pub async fn progress(&self) -> Result<Progress, StoreError> {
        book(&self.tenure)?.progress(&self.name, None).await
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matrix")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
