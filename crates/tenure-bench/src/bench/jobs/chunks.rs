//! Chunks of a matrix, each claimed and synced by itself through the public API, with tokens,
//! fences and the thread that renews chunks.

use futures_util::future::try_join_all;
use tenure::job::{ChunkAnswer, HoldError, Matrix};

use crate::bench::drain::open;
use crate::stop::{Failure, Stop};
use crate::yardstick::{Stopwatch, Yardstick, chunk_name};

/// Number of concurrent loops, with Tenure and with SQL alone; on SQLite, which has one writer,
/// there is one SQL loop.
pub(super) const LOOPS: u32 = 4;
/// Number of rows reported at the end of a chunk.
const ROWS: u64 = 1000;

pub(super) struct Chunks {
    matrix: Matrix,
    chunks: u32,
}

impl Chunks {
    /// Creates all chunks beforehand, as the SQL loops do.
    pub(super) async fn prepare(yardstick: &Yardstick, chunks: u32) -> Result<Self, Stop> {
        let tenure = open(yardstick).await?;
        let ours = Self {
            matrix: tenure.matrix("bench")?,
            chunks,
        };
        ours.all().await?;
        Ok(ours)
    }

    /// Pairs of a claim and an end, per second.
    pub(super) async fn rate(&self, yardstick: &Yardstick) -> Result<f64, Stop> {
        yardstick.tidy().await?;
        let watch = Stopwatch::start();
        self.all().await?;
        Ok(watch.rate(self.chunks))
    }

    async fn all(&self) -> Result<(), Stop> {
        let loops = (0..LOOPS).map(|first| {
            let (matrix, chunks) = (self.matrix.clone(), self.chunks);
            tokio::spawn(share(matrix, first, chunks))
        });
        let ended = try_join_all(loops).await.map_err(broken)?;
        for each in ended {
            each.map_err(broken)?;
        }
        Ok(())
    }
}

async fn share(matrix: Matrix, first: u32, chunks: u32) -> Result<(), HoldError> {
    let step = usize::try_from(LOOPS).unwrap_or(1);
    for number in (first..chunks).step_by(step) {
        match matrix.chunk(&chunk_name(number)).claim().await? {
            ChunkAnswer::Claimed(chunk) => chunk.synced(ROWS).await?,
            other @ (ChunkAnswer::Done { .. } | ChunkAnswer::Held { .. } | ChunkAnswer::Failed) => {
                return Err(HoldError::Store(unexpected(&other)));
            }
        }
    }
    Ok(())
}

fn unexpected(answer: &ChunkAnswer) -> tenure::StoreError {
    let message = format!("a chunk of the scratch tables was not free: {answer:?}");
    tenure::StoreError::new("bench", tenure::StoreErrorKind::Corrupt, message)
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::new("the chunks could not be measured").cause(error)
}
