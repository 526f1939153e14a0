//! Chunks: claimed by the handler of a job, or by other programs on the same matrix.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::job::{Chunk, ChunkClaim, ChunkKey, ChunkName, MatrixName};
use tenure_core::store::{
    ChunkEnd, ChunkHold, ClaimChunk, EndChunk, HoldError, JobHold, StoreError, StoreErrorKind,
    accepted,
};
use tenure_core::{Fence, Refusal, Timestamp, Token, WorkerId};
use tenure_engine::{ChunkRenewer, ChunkThread, Context, RenewedChunk};
use tenure_store::JobsOn;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::tenure::Tenure;

/// First and longest delay between two claims of a chunk that another worker holds.
const AGAIN_SOONEST: Duration = Duration::from_millis(100);
const AGAIN_LATEST: Duration = Duration::from_secs(5);
/// Maximum time that a stopping worker waits for the release of its chunks.
const RETURN: Duration = Duration::from_secs(2);

/// Renews the leases of held chunks: in the worker on jobs if one runs, otherwise on a thread.
#[derive(Debug, Default)]
pub(crate) struct ChunkHome {
    keeper: Arc<ChunkRenewer>,
    thread: Mutex<Option<ChunkThread>>,
    /// Number of chunks that are being released.
    returning: Arc<watch::Sender<u32>>,
}

/// Counts a chunk while it is being released.
struct Returning(Arc<watch::Sender<u32>>);

impl Drop for Returning {
    fn drop(&mut self) {
        self.0.send_modify(|chunks| *chunks -= 1);
    }
}

impl ChunkHome {
    pub(crate) fn new(keeper: ChunkRenewer) -> Self {
        Self {
            keeper: Arc::new(keeper),
            ..Self::default()
        }
    }

    fn begin_return(&self) -> Returning {
        self.returning.send_modify(|chunks| *chunks += 1);
        Returning(Arc::clone(&self.returning))
    }

    /// Waits until dropped chunks are released, at most `RETURN`; the leases of others lapse.
    pub(crate) async fn cleared(&self) {
        let mut returning = self.returning.subscribe();
        let cleared = returning.wait_for(|chunks| *chunks == 0);
        drop(timeout(RETURN, cleared).await);
    }

    pub(crate) fn keeper(&self) -> &Arc<ChunkRenewer> {
        &self.keeper
    }

    /// Starts the thread that renews chunks, if it does not run yet.
    pub(crate) fn keep(&self, tenure: &Tenure) -> Result<(), StoreError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let started = self.keeper.run_on_thread(tenure.companion());
            *thread = Some(started.map_err(|error| {
                let message = "the thread that renews chunks could not be started";
                StoreError::new("chunk", StoreErrorKind::Unavailable, message).with_cause(error)
            })?);
        }
        Ok(())
    }
}

/// The worker, the matrix and the job for which chunks are claimed.
#[derive(Debug)]
pub(crate) struct Workplace {
    pub(crate) tenure: Tenure,
    pub(crate) home: Arc<ChunkHome>,
    pub(crate) worker: WorkerId,
    pub(crate) matrix: MatrixName,
    pub(crate) job: Option<(JobHold, Context)>,
}

impl Workplace {
    fn hold(&self) -> Option<JobHold> {
        self.job.as_ref().map(|(hold, _)| hold.clone())
    }

    /// Waits until the hold on the job is over; without a job, waits forever.
    async fn cancelled(&self) {
        match &self.job {
            Some((_, cx)) => cx.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

/// Request for a chunk, created by [`HeldJob::chunk`](crate::job::HeldJob::chunk) or
/// [`Matrix::chunk`](crate::job::Matrix::chunk).
#[must_use = "nothing is claimed before `claim` or `wait`"]
#[derive(Debug)]
pub struct ChunkAsk {
    place: Arc<Workplace>,
    name: String,
    fresh_for: Option<Duration>,
}

impl ChunkAsk {
    pub(crate) fn new(place: Arc<Workplace>, name: &str) -> Self {
        Self {
            place,
            name: name.to_owned(),
            fresh_for: None,
        }
    }

    /// Skips the chunk if it was synced less than this long ago. A completed chunk is always
    /// skipped.
    pub fn fresh_for(mut self, length: Duration) -> Self {
        self.fresh_for = Some(length);
        self
    }

    /// Claims the chunk, without waiting for another holder.
    ///
    /// # Errors
    /// The hold on the job is over, the name is not valid, or the store failed.
    pub async fn claim(self) -> Result<ChunkAnswer, HoldError> {
        self.ask().await
    }

    /// Claims the chunk, and waits while another worker holds it.
    ///
    /// # Errors
    /// As [`ChunkAsk::claim`].
    pub async fn wait(self) -> Result<ChunkAnswer, HoldError> {
        let mut again = AGAIN_SOONEST;
        loop {
            let answer = self.ask().await?;
            if !matches!(answer, ChunkAnswer::Held { .. }) {
                return Ok(answer);
            }
            // The store sends no notice when a hold ends, so poll.
            sleep(again).await;
            again = (again * 2).min(AGAIN_LATEST);
        }
    }

    async fn ask(&self) -> Result<ChunkAnswer, HoldError> {
        let place = &self.place;
        let name = ChunkName::new(&self.name);
        let name = name.map_err(|problem| StoreError::invalid("chunk", &problem))?;
        let key = ChunkKey {
            matrix: place.matrix.clone(),
            chunk: name,
        };
        if place.job.is_none() {
            place.home.keep(&place.tenure)?;
        }
        let keeper = place.home.keeper();
        let claim = ClaimChunk {
            key: key.clone(),
            token: place.tenure.token_of(&place.worker),
            term: keeper.term(),
            fresh_for: self.fresh_for,
            job: place.hold(),
            now: None,
        };
        // Releases the chunk if this future is dropped, or if the claim may have succeeded although
        // its answer is lost.
        let mut loose = Loose {
            place: Arc::clone(place),
            key,
            token: claim.token.clone(),
            is_open: true,
        };
        let sent_at = Instant::now();
        let answer = place.tenure.job_port()?.claim_chunk(&claim).await;
        loose.is_open = match &answer {
            Ok(answer) => matches!(answer, ChunkClaim::Claimed(_)),
            Err(error) => error.is_transient(),
        };
        match answer? {
            ChunkClaim::Claimed(chunk) => {
                let (key, token) = (claim.key, claim.token);
                match keeper.keep(ChunkHold { key, token }, sent_at) {
                    Some(kept) => Ok(ChunkAnswer::Claimed(HeldChunk { chunk, kept, loose })),
                    None => Err(HoldError::Refused(Refusal::Lapsed)),
                }
            }
            ChunkClaim::Done { at } => Ok(ChunkAnswer::Done { at }),
            ChunkClaim::Held { holder, until } => Ok(ChunkAnswer::Held { holder, until }),
            ChunkClaim::Failed => Ok(ChunkAnswer::Failed),
            ChunkClaim::JobLost => Err(HoldError::Refused(Refusal::Lost)),
        }
    }
}

/// Answer to the request for a chunk.
#[derive(Debug)]
#[must_use = "a chunk that is dropped is released"]
pub enum ChunkAnswer {
    /// The caller holds it now.
    Claimed(HeldChunk),
    /// It is completed, or was synced within [`ChunkAsk::fresh_for`].
    Done {
        /// Time at which it was completed or synced.
        at: Timestamp,
    },
    /// Another worker holds it.
    Held {
        /// Worker id of the holder.
        holder: String,
        /// End of the lease, unless it is renewed.
        until: Timestamp,
    },
    /// It failed for good.
    Failed,
}

/// A claim; while `is_open`, dropping it releases the chunk.
#[derive(Debug)]
struct Loose {
    place: Arc<Workplace>,
    key: ChunkKey,
    token: Token,
    is_open: bool,
}

impl Loose {
    fn ending(&self, job: Option<JobHold>, end: Option<ChunkEnd>) -> EndChunk {
        EndChunk {
            key: self.key.clone(),
            token: self.token.clone(),
            job,
            end,
            cursor: None,
            now: None,
        }
    }
}

impl Drop for Loose {
    /// Without a Tokio runtime nothing can be written, and the lease lapses.
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let tenure = self.place.tenure.clone();
        // Released even if the hold on the job is over.
        let end = self.ending(None, Some(ChunkEnd::Released));
        let returning = self.place.home.begin_return();
        runtime.spawn(async move {
            let _returning = returning;
            if let Ok(book) = tenure.job_port() {
                // If this fails, the lease lapses.
                drop(book.end_chunk(&end).await);
            }
        });
    }
}

/// A held chunk. Its lease is renewed until the chunk is ended or dropped; dropping it releases it.
///
/// ```
/// use tenure::job::ChunkAnswer;
/// use tenure::Tenure;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
/// let orders = Tenure::open(&url).await?.matrix("orders")?;
/// let ChunkAnswer::Claimed(chunk) = orders.chunk("2026-11").claim().await? else {
///     panic!("no worker holds it");
/// };
/// chunk.note("row 500").await?; // a next holder would begin there
/// let rows = chunk.during(async { 1000 }).await?; // dropped when the hold is over
/// chunk.complete(rows).await?;
/// let again = orders.chunk("2026-11").claim().await?;
/// assert!(matches!(again, ChunkAnswer::Done { .. }), "it is done for good");
/// # Ok(())
/// # }
/// ```
#[must_use = "a chunk that is dropped is released"]
#[derive(Debug)]
pub struct HeldChunk {
    chunk: Chunk,
    kept: RenewedChunk,
    loose: Loose,
}

impl HeldChunk {
    /// Matrix and name of the chunk.
    pub fn key(&self) -> &ChunkKey {
        &self.chunk.key
    }

    /// Cursor of the previous holder; `None` at the beginning.
    pub fn cursor(&self) -> Option<&str> {
        self.chunk.cursor.as_deref()
    }

    /// Number of the attempt, starting with 1.
    pub fn attempt(&self) -> u32 {
        self.chunk.attempts.saturating_add(1)
    }

    /// Number of the claim. Send it along: the receiver can refuse a lower fence for the same
    /// chunk.
    pub fn fence(&self) -> Fence {
        self.chunk.lease.fence
    }

    /// Returns true if the hold on the chunk, or on its job, is over. Work from then on may be done
    /// twice.
    pub fn is_cancelled(&self) -> bool {
        let job = self.loose.place.job.as_ref();
        self.kept.is_cancelled() || job.is_some_and(|(_, cx)| cx.is_cancelled())
    }

    /// Waits until the hold on the chunk, or on its job, is over.
    pub async fn cancelled(&self) {
        tokio::select! {
            () = self.kept.cancelled() => {}
            () = self.loose.place.cancelled() => {}
        }
    }

    /// Runs `work`, and drops it when the hold is over.
    ///
    /// # Errors
    /// The hold ended before `work` did.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, HoldError> {
        tokio::select! {
            biased;
            () = self.cancelled() => Err(HoldError::Refused(Refusal::Lost)),
            done = work => Ok(done),
        }
    }

    /// Saves the cursor and keeps the hold.
    ///
    /// # Errors
    /// The hold on the chunk or on its job is over, or the store failed.
    pub async fn note(&self, cursor: &str) -> Result<(), HoldError> {
        let mut end = self.ending(None);
        end.cursor = Some(cursor.to_owned());
        accepted(self.loose.place.tenure.job_port()?.end_chunk(&end).await?)
    }

    /// Ends the chunk as done for good, with this number of rows.
    ///
    /// # Errors
    /// As [`HeldChunk::note`]. After a failure of the store the chunk may or may not be done: claim
    /// it again.
    pub async fn complete(self, row_count: u64) -> Result<(), HoldError> {
        self.end(ChunkEnd::Completed { row_count }).await
    }

    /// Ends the chunk as done with this number of rows, but repeatable: see
    /// [`ChunkAsk::fresh_for`].
    ///
    /// # Errors
    /// As [`HeldChunk::complete`].
    pub async fn synced(self, row_count: u64) -> Result<(), HoldError> {
        self.end(ChunkEnd::Synced { row_count }).await
    }

    /// Ends the chunk as failed with this error; it may be claimed again.
    ///
    /// # Errors
    /// As [`HeldChunk::complete`].
    pub async fn fail(self, error: impl fmt::Display) -> Result<(), HoldError> {
        let error = error.to_string();
        self.end(ChunkEnd::Failed { error }).await
    }

    /// Ends the chunk as failed for good with this error. From then on every claim of it returns
    /// [`ChunkAnswer::Failed`], also in the retry of a job.
    ///
    /// ```
    /// use tenure::job::ChunkAnswer;
    /// use tenure::Tenure;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    /// let orders = Tenure::open(&url).await?.matrix("orders")?;
    /// let ChunkAnswer::Claimed(chunk) = orders.chunk("2026-11").claim().await? else {
    ///     panic!("no worker holds it");
    /// };
    /// chunk.fail_for_good("there is no such month").await?;
    /// let again = orders.chunk("2026-11").claim().await?;
    /// assert!(matches!(again, ChunkAnswer::Failed));
    /// assert_eq!(orders.progress().await?.failed, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`HeldChunk::complete`].
    pub async fn fail_for_good(self, error: impl fmt::Display) -> Result<(), HoldError> {
        let error = error.to_string();
        self.end(ChunkEnd::Dead { error }).await
    }

    /// Releases the chunk unchanged, and waits until that is written; a drop does not wait.
    ///
    /// # Errors
    /// As [`HeldChunk::complete`].
    pub async fn release(self) -> Result<(), HoldError> {
        self.end(ChunkEnd::Released).await
    }

    /// Ends the chunk in the caller's transaction. The hold lasts until the commit; if the
    /// transaction never commits, dropping the chunk releases it.
    pub(crate) fn end_in<'c, C>(&'c self, connection: C, how: ChunkEnd) -> C::Answer<(), HoldError>
    where
        C: JobsOn<'c>,
    {
        self.kept.ends();
        connection.end_chunk(self.loose.place.tenure.opened(), self.ending(Some(how)))
    }

    async fn end(mut self, how: ChunkEnd) -> Result<(), HoldError> {
        self.kept.ends();
        let end = self.ending(Some(how));
        let place = Arc::clone(&self.loose.place);
        let answer = place.tenure.job_port()?.end_chunk(&end).await?;
        self.loose.is_open = false;
        accepted(answer)
    }

    fn ending(&self, end: Option<ChunkEnd>) -> EndChunk {
        self.loose.ending(self.loose.place.hold(), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_waits_for_chunks_that_are_being_released() {
        let home = ChunkHome::default();
        home.cleared().await;
        let returning = home.begin_return();
        let brief = Duration::from_millis(50);
        assert!(timeout(brief, home.cleared()).await.is_err());
        drop(returning);
        timeout(brief, home.cleared()).await.unwrap();
    }
}
