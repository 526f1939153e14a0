//! `ChunkRenewer`: renews all chunks that this process holds in one statement per tick, even if
//! they belong to several jobs. It cancels the work on a chunk whose renewal is refused or whose
//! local deadline has passed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::store::{ChunkHold, Jobs, RenewChunks, Renewed, Store};
use tenure_core::{Guarded, Invalid, Term, duration_text};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, warn};

use crate::heartbeat::{RETRY_DELAY, renew_until};
use crate::held_lease::HeldLease;
use crate::metrics::Metrics;

/// Renews the leases on chunks.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::Term;
/// use tenure_engine::ChunkRenewer;
///
/// let renewer = ChunkRenewer::default();
/// assert_eq!(renewer.term().length(), Duration::from_mins(2));
/// assert_eq!(renewer.heartbeat(), Duration::from_secs(30));
/// assert!(ChunkRenewer::new(Term::STANDARD, Duration::from_secs(10)).is_err(), "too slow");
/// ```
#[derive(Debug)]
pub struct ChunkRenewer {
    term: Term,
    heartbeat: Duration,
    state: Mutex<RenewerState>,
    /// Held by the task that renews; other tasks wait for it.
    run_lock: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct RenewerState {
    last_no: u64,
    chunks: BTreeMap<u64, ChunkState>,
}

#[derive(Debug)]
struct ChunkState {
    hold: ChunkHold,
    /// Time from which no work may be done under the lease.
    deadline: Instant,
    /// Time of the next renewal.
    beat_at: Instant,
    /// End of the time reserved for the settle under way. Until then the chunk is not renewed,
    /// because the settling transaction has locked the row.
    ending_until: Option<Instant>,
    cancel: CancellationToken,
}

impl ChunkState {
    fn is_ending(&self, now: Instant) -> bool {
        self.ending_until.is_some_and(|until| now < until)
    }

    fn lose(&self, reason: &str) {
        self.cancel.cancel();
        let worker = self.hold.token.holder();
        warn!(worker, reason, "lost a chunk; its work was cancelled");
    }
}

impl ChunkRenewer {
    const TERM: Duration = Duration::from_mins(2);
    const HEARTBEAT: Duration = Duration::from_secs(30);

    /// Creates a renewer for leases of this term; `heartbeat` is the interval of renewals.
    ///
    /// # Errors
    /// The heartbeat is zero or not less than a third of the term.
    pub fn new(term: Term, heartbeat: Duration) -> Result<Self, Invalid> {
        if heartbeat.is_zero() || heartbeat.saturating_mul(3) >= term.length() {
            let found = duration_text(heartbeat);
            let expected = "more than 0s and less than a third of the term of chunks";
            return Err(Invalid::new("the heartbeat of chunks", found, expected));
        }
        Ok(Self {
            term,
            heartbeat,
            ..Self::default()
        })
    }

    /// Length of a lease without a renewal.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Interval of renewals.
    pub fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// Number of held chunks.
    pub fn in_hand(&self) -> usize {
        self.state().chunks.len()
    }

    /// Renews a chunk whose claim was sent at `sent_at`, until the returned guard is dropped.
    /// Returns `None` if it is too late to renew the chunk in time; release it then.
    pub fn keep(self: &Arc<Self>, hold: ChunkHold, sent_at: Instant) -> Option<RenewedChunk> {
        let deadline = HeldLease::deadline(sent_at, self.term.length());
        // The renewer checks four times per interval; it would miss a chunk whose lease ends before
        // the next check.
        if Instant::now() + self.heartbeat / 4 >= deadline {
            return None;
        }
        let cancel = CancellationToken::new();
        let mut state = self.state();
        state.last_no += 1;
        let no = state.last_no;
        let chunk = ChunkState {
            hold,
            deadline,
            beat_at: sent_at + self.heartbeat,
            ending_until: None,
            cancel: cancel.clone(),
        };
        state.chunks.insert(no, chunk);
        Some(RenewedChunk {
            renewer: Arc::clone(self),
            no,
            cancel,
        })
    }

    /// Renews through this store and watches deadlines for as long as it is polled. Several tasks
    /// may run it: one task works, the other tasks wait until the first is dropped. Returns at once
    /// if the store has no jobs.
    pub async fn run(&self, store: &dyn Store) {
        let Some(jobs) = store.job_store() else {
            return;
        };
        let _guard = self.run_lock.lock().await;
        tokio::join!(self.beat(jobs), self.watch());
    }

    /// Runs the renewer on a thread of its own, for processes without a worker on jobs.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub fn run_on_thread(self: &Arc<Self>, store: Arc<dyn Store>) -> std::io::Result<ChunkThread> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (renewer, stop) = (Arc::clone(self), CancellationToken::new());
        let thread = stop.clone().drop_guard();
        std::thread::Builder::new()
            .name("tenure-keeper".to_owned())
            .spawn(move || {
                let run = stop.run_until_cancelled(renewer.run(store.as_ref()));
                runtime.block_on(run);
            })?;
        Ok(thread)
    }

    async fn beat(&self, jobs: &dyn Jobs) {
        loop {
            let now = Instant::now();
            let due = self.due(now);
            if !due.is_empty() {
                self.renew(jobs, due).await;
            }
            // All chunks are renewed together, one statement per interval. A slow renewal does not
            // delay the next one, because its timeout is shorter than the interval.
            let tick = now + self.heartbeat / 4;
            let soonest = now + RETRY_DELAY;
            let next = self.first(|chunk| chunk.beat_at);
            let next = next.map_or(tick, |next| next.clamp(soonest, tick.max(soonest)));
            sleep_until(next).await;
        }
    }

    /// Cancels chunks at their deadline, even while a renewal hangs.
    async fn watch(&self) {
        loop {
            let now = Instant::now();
            self.cancel_late(now);
            let tick = now + self.heartbeat / 4;
            let next = self.first(|chunk| chunk.deadline);
            sleep_until(next.map_or(tick, |next| next.min(tick))).await;
        }
    }

    /// All chunks, if one of them is due.
    fn due(&self, now: Instant) -> Vec<(u64, ChunkHold)> {
        let state = self.state();
        let chunks = state.chunks.iter();
        let chunks = chunks.filter(|(_, chunk)| !chunk.is_ending(now));
        if !chunks.clone().any(|(_, chunk)| chunk.beat_at <= now) {
            return Vec::new();
        }
        chunks
            .map(|(no, chunk)| (*no, chunk.hold.clone()))
            .collect()
    }

    /// The earliest `moment` of all chunks.
    fn first(&self, moment: impl Fn(&ChunkState) -> Instant) -> Option<Instant> {
        self.state().chunks.values().map(moment).min()
    }

    async fn renew(&self, jobs: &dyn Jobs, due: Vec<(u64, ChunkHold)>) {
        // A renewal ends before the next one is due, and well before the deadline.
        let bound = Instant::now() + self.heartbeat * 4 / 5;
        let holds = due.iter().map(|(_, hold)| hold.clone()).collect();
        let request = RenewChunks::new(holds, self.term);
        let worker = due.first().map_or("", |(_, hold)| hold.token.holder());
        let metrics = Metrics::new(worker);
        let renewal = || jobs.renew_chunks(&request);
        match renew_until(&metrics, "renew_chunks", bound, renewal).await {
            Ok((sent_at, answers)) => {
                let answers: HashMap<_, _> = answers.into_iter().collect();
                for (no, hold) in &due {
                    match answers.get(hold) {
                        Some(answer) => self.apply(*no, sent_at, answer),
                        None => self.retry_soon(*no, hold),
                    }
                }
            }
            Err(reason) => {
                let mut state = self.state();
                let lost = due.iter().filter_map(|(no, _)| state.chunks.remove(no));
                let chunks = lost.map(|chunk| chunk.cancel.cancel()).count();
                warn!(worker, reason, chunks, "a renewal of chunks failed");
            }
        }
    }

    /// Repeats the renewal after a quarter of the interval, because another transaction has locked
    /// the row.
    fn retry_soon(&self, no: u64, hold: &ChunkHold) {
        if let Some(chunk) = self.state().chunks.get_mut(&no) {
            chunk.beat_at = Instant::now() + self.heartbeat / 4;
            let worker = hold.token.holder();
            debug!(
                worker,
                "a chunk was not renewed: its row is locked by a transaction"
            );
        }
    }

    fn apply(&self, no: u64, sent_at: Instant, answer: &Guarded<Renewed>) {
        let mut state = self.state();
        let Some(chunk) = state.chunks.get_mut(&no) else {
            return;
        };
        match answer {
            Guarded::Accepted(_) => {
                // A deadline that has passed is final: the handler may already be cancelled.
                if Instant::now() < chunk.deadline {
                    chunk.deadline = HeldLease::deadline(sent_at, self.term.length());
                    chunk.beat_at = sent_at + self.heartbeat;
                }
            }
            Guarded::Refused(_) if chunk.is_ending(Instant::now()) => {
                let worker = chunk.hold.token.holder();
                debug!(worker, "stopped renewing a chunk that was settled");
            }
            Guarded::Refused(why) => {
                chunk.lose(why.as_str());
                state.chunks.remove(&no);
            }
        }
    }

    fn cancel_late(&self, now: Instant) {
        let mut state = self.state();
        let is_late = |_: &u64, chunk: &mut ChunkState| chunk.deadline <= now;
        for (_, chunk) in state.chunks.extract_if(.., is_late) {
            chunk.lose("late");
        }
    }

    /// A poisoned lock is safe to use, because no update under it can fail half way.
    fn state(&self) -> MutexGuard<'_, RenewerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ChunkRenewer {
    /// Leases of two minutes, renewed every 30 s.
    fn default() -> Self {
        Self {
            term: Term::new(Self::TERM).unwrap_or_default(),
            heartbeat: Self::HEARTBEAT,
            state: Mutex::default(),
            run_lock: tokio::sync::Mutex::default(),
        }
    }
}

/// Guard of a chunk, which is renewed until the guard is dropped.
#[derive(Debug)]
pub struct RenewedChunk {
    renewer: Arc<ChunkRenewer>,
    no: u64,
    cancel: CancellationToken,
}

impl RenewedChunk {
    /// True if the lease is over: another worker may do the same work.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until the lease is over.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Announces a settle, perhaps in a transaction to be committed soon: for one heartbeat
    /// interval the chunk is not renewed, and a refused renewal is ignored.
    pub fn ends(&self) {
        let until = Instant::now() + self.renewer.heartbeat;
        if let Some(chunk) = self.renewer.state().chunks.get_mut(&self.no) {
            chunk.ending_until = Some(until);
        }
    }
}

impl Drop for RenewedChunk {
    fn drop(&mut self) {
        self.renewer.state().chunks.remove(&self.no);
    }
}

/// Thread of a [`ChunkRenewer`]; dropping it stops the thread.
pub type ChunkThread = DropGuard;
