//! Chunks in the hands of whoever works on them: asked for by a job's handler, or by others on its
//! matrix.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::job::{Chunk, ChunkClaim, ChunkKey, ChunkName, MatrixName};
use tenure_core::store::{
    ChunkEnd, ChunkHold, ClaimChunk, EndChunk, JobHold, StoreError, StoreErrorKind,
};
use tenure_core::{Fence, Refusal, Timestamp, Token, WorkerId};
use tenure_engine::{ChunkKeeper, ChunkThread, Context, KeptChunk};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::held_job::{HoldError, kept};
use crate::jobs::book;
use crate::tenure::Tenure;

/// How soon a chunk that somebody else has is asked for again, at first and later.
const AGAIN_SOONEST: Duration = Duration::from_millis(100);
const AGAIN_LATEST: Duration = Duration::from_secs(5);
/// How long a worker that stops waits for its chunks to be given back.
const RETURN: Duration = Duration::from_secs(2);

/// Where chunks in hand are kept alive: by the worker on jobs that runs, else on a thread.
#[derive(Debug, Default)]
pub(crate) struct ChunkHome {
    keeper: Arc<ChunkKeeper>,
    thread: Mutex<Option<ChunkThread>>,
    /// How many chunks are being given back.
    returning: Arc<watch::Sender<u32>>,
}

/// A chunk that is being given back.
struct Returning(Arc<watch::Sender<u32>>);

impl Drop for Returning {
    fn drop(&mut self) {
        self.0.send_modify(|chunks| *chunks -= 1);
    }
}

impl ChunkHome {
    pub(crate) fn new(keeper: ChunkKeeper) -> Self {
        Self {
            keeper: Arc::new(keeper),
            ..Self::default()
        }
    }

    fn begin_return(&self) -> Returning {
        self.returning.send_modify(|chunks| *chunks += 1);
        Returning(Arc::clone(&self.returning))
    }

    /// Waits until what was dropped is given back, but not for long: the rest lapses.
    pub(crate) async fn cleared(&self) {
        let mut returning = self.returning.subscribe();
        let cleared = returning.wait_for(|chunks| *chunks == 0);
        drop(timeout(RETURN, cleared).await);
    }

    pub(crate) fn keeper(&self) -> &Arc<ChunkKeeper> {
        &self.keeper
    }

    /// Sees that there is a thread, for those who have no worker.
    pub(crate) fn keep(&self, tenure: &Tenure) -> Result<(), StoreError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let started = self.keeper.run_on_thread(tenure.companion());
            *thread = Some(started.map_err(|error| {
                let message = "the thread that keeps chunks could not be started";
                StoreError::new("chunk", StoreErrorKind::Unavailable, message).cause(error)
            })?);
        }
        Ok(())
    }
}

/// Where chunks are asked for: by whom, of which matrix, for which job.
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

    /// Waits until the hold on the job is over; for ever without one.
    async fn cancelled(&self) {
        match &self.job {
            Some((_, cx)) => cx.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

/// A chunk that is being asked for; `chunk(…)` of a job or a matrix begins one.
#[must_use = "nothing is asked before `claim` or `wait`"]
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

    /// Not if it was synced less than this long ago. One that was completed is done for good.
    pub fn fresh_for(mut self, length: Duration) -> Self {
        self.fresh_for = Some(length);
        self
    }

    /// Asks for it, and waits for nobody.
    ///
    /// # Errors
    /// The hold on the job is over, the name cannot be one, or the store could not answer.
    pub async fn claim(self) -> Result<ChunkAnswer, HoldError> {
        self.ask().await
    }

    /// Asks for it until nobody else has it: it is ours then, or done, or failed.
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
            // A store gives no notice of the end of a hold.
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
        // Given back if this is dropped or fails before the answer is known.
        let mut loose = Loose {
            place: Arc::clone(place),
            key,
            token: claim.token.clone(),
            is_open: true,
        };
        let sent_at = Instant::now();
        let answer = book(&place.tenure)?.claim_chunk(&claim).await;
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

impl fmt::Debug for ChunkAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkAsk")
            .field("matrix", &self.place.matrix)
            .field("name", &self.name)
            .field("fresh_for", &self.fresh_for)
            .finish_non_exhaustive()
    }
}

/// What came of asking for a chunk.
#[derive(Debug)]
#[must_use = "a chunk that is dropped is given back"]
pub enum ChunkAnswer {
    /// It is ours.
    Claimed(HeldChunk),
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
}

/// A hold on a chunk that is given back when this is dropped.
struct Loose {
    place: Arc<Workplace>,
    key: ChunkKey,
    token: Token,
    is_open: bool,
}

impl Drop for Loose {
    /// Without a runtime nobody can be told, and the lease lapses.
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let tenure = self.place.tenure.clone();
        let end = EndChunk {
            key: self.key.clone(),
            token: self.token.clone(),
            // It is given back also when the hold on the job is over.
            job: None,
            end: Some(ChunkEnd::Released),
            cursor: None,
            now: None,
        };
        let returning = self.place.home.begin_return();
        runtime.spawn(async move {
            let _returning = returning;
            if let Ok(book) = book(&tenure) {
                // If this fails the lease lapses by itself.
                drop(book.end_chunk(&end).await);
            }
        });
    }
}

/// A chunk in hand. Its lease is renewed for as long as this is there; dropping it gives it back.
///
/// ```
/// use tenure::{ChunkAnswer, Tenure};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
/// let orders = Tenure::open(&url).await?.matrix("orders")?;
/// let ChunkAnswer::Claimed(chunk) = orders.chunk("2026-11").claim().await? else {
///     panic!("nobody has it");
/// };
/// chunk.note("row 500").await?; // whoever has it next begins there
/// let rows = chunk.during(async { 1000 }).await?; // dropped when the hold is over
/// chunk.complete(rows).await?;
/// let again = orders.chunk("2026-11").claim().await?;
/// assert!(matches!(again, ChunkAnswer::Done { .. }), "it is done for good");
/// # Ok(())
/// # }
/// ```
#[must_use = "a chunk that is dropped is given back"]
pub struct HeldChunk {
    chunk: Chunk,
    kept: KeptChunk,
    loose: Loose,
}

impl HeldChunk {
    /// Which.
    pub fn key(&self) -> &ChunkKey {
        &self.chunk.key
    }

    /// Where whoever had it before was, as that wrote it down; `None`: at the beginning.
    pub fn cursor(&self) -> Option<&str> {
        self.chunk.cursor.as_deref()
    }

    /// How often it was in hand before, and once more: 1 at the first try.
    pub fn attempt(&self) -> u32 {
        self.chunk.attempts.saturating_add(1)
    }

    /// The number of the claim. Hand it to the receiver: it refuses what is older than what it has
    /// seen.
    pub fn fence(&self) -> Fence {
        self.chunk.lease.fence
    }

    /// Whether the hold on it, or on its job, is over: what is done from now on may be done twice.
    pub fn is_cancelled(&self) -> bool {
        let job = self.loose.place.job.as_ref();
        self.kept.is_cancelled() || job.is_some_and(|(_, cx)| cx.is_cancelled())
    }

    /// Waits until the hold on it, or on its job, is over.
    pub async fn cancelled(&self) {
        tokio::select! {
            () = self.kept.cancelled() => {}
            () = self.loose.place.cancelled() => {}
        }
    }

    /// Works on it, and drops the work when the hold is over.
    ///
    /// # Errors
    /// The hold was over before the work was done.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, HoldError> {
        tokio::select! {
            biased;
            () = self.cancelled() => Err(HoldError::Refused(Refusal::Lost)),
            done = work => Ok(done),
        }
    }

    /// Writes down where it is, and keeps it.
    ///
    /// # Errors
    /// The hold on it or on its job is over, or the store could not answer.
    pub async fn note(&self, cursor: &str) -> Result<(), HoldError> {
        let mut end = self.ending(None);
        end.cursor = Some(cursor.to_owned());
        kept(book(&self.loose.place.tenure)?.end_chunk(&end).await?)
    }

    /// It is done for good, with so many rows.
    ///
    /// # Errors
    /// As [`HeldChunk::note`]. When the store could not answer, it may be done or not: ask for the
    /// chunk again.
    pub async fn complete(self, row_count: u64) -> Result<(), HoldError> {
        self.end(ChunkEnd::Completed { row_count }).await
    }

    /// It is done, with so many rows, and may be done again: see [`ChunkAsk::fresh_for`].
    ///
    /// # Errors
    /// As [`HeldChunk::complete`].
    pub async fn synced(self, row_count: u64) -> Result<(), HoldError> {
        self.end(ChunkEnd::Synced { row_count }).await
    }

    /// It went wrong in this way; it may be tried again.
    ///
    /// # Errors
    /// As [`HeldChunk::complete`].
    pub async fn fail(self, error: impl fmt::Display) -> Result<(), HoldError> {
        let error = error.to_string();
        self.end(ChunkEnd::Failed { error }).await
    }

    /// It went wrong in this way, and nobody is to try it again: whoever asks for it is answered
    /// [`ChunkAnswer::Failed`] from then on, also the retry of a job.
    ///
    /// ```
    /// use tenure::{ChunkAnswer, Tenure};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    /// let orders = Tenure::open(&url).await?.matrix("orders")?;
    /// let ChunkAnswer::Claimed(chunk) = orders.chunk("2026-11").claim().await? else {
    ///     panic!("nobody has it");
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

    /// Gives it back as it is, and waits until that is done; dropping it does not wait.
    ///
    /// # Errors
    /// As [`HeldChunk::complete`].
    pub async fn release(self) -> Result<(), HoldError> {
        self.end(ChunkEnd::Released).await
    }

    /// The end that a transaction of the caller's is to write. The hold stands until that is
    /// committed, and is given back by a drop if it never is.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn end_in_transaction(&self, how: ChunkEnd) -> (&Tenure, EndChunk) {
        self.kept.ends();
        (&self.loose.place.tenure, self.ending(Some(how)))
    }

    async fn end(mut self, how: ChunkEnd) -> Result<(), HoldError> {
        self.kept.ends();
        let end = self.ending(Some(how));
        let place = Arc::clone(&self.loose.place);
        let answer = book(&place.tenure)?.end_chunk(&end).await?;
        self.loose.is_open = false;
        kept(answer)
    }

    fn ending(&self, end: Option<ChunkEnd>) -> EndChunk {
        EndChunk {
            key: self.chunk.key.clone(),
            token: self.loose.token.clone(),
            job: self.loose.place.hold(),
            end,
            cursor: None,
            now: None,
        }
    }
}

impl fmt::Debug for HeldChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldChunk")
            .field("key", &self.chunk.key)
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_waits_for_what_is_being_given_back() {
        let home = ChunkHome::default();
        home.cleared().await;
        let returning = home.begin_return();
        let brief = Duration::from_millis(50);
        assert!(timeout(brief, home.cleared()).await.is_err());
        drop(returning);
        timeout(brief, home.cleared()).await.unwrap();
    }
}
