//! Chunks of a matrix, claimed and synced one by one through the front door: tokens, fences and
//! the keeper of chunks are on.

use futures_util::future::try_join_all;
use tenure::bench::{Watch, Yardstick, chunk_name};
use tenure::{ChunkAnswer, HoldError, Matrix};

use crate::commands::bench::drain::open;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

/// Loops at once, ours and theirs; SQLite has one writer, hence theirs is one there.
pub(super) const LOOPS: u32 = 4;
/// Rows per chunk, as is said at its end.
const ROWS: u64 = 1000;

pub(super) struct Chunks {
    matrix: Matrix,
    chunks: u32,
}

impl Chunks {
    /// All of them are there, as theirs are.
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
        let watch = Watch::start();
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

fn broken(error: impl std::fmt::Display) -> Problem {
    Problem::new(Exit::Failed, "the chunks could not be measured").cause(error)
}
