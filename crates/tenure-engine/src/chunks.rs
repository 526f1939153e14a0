//! `ChunkKeeper`: the chunks that this process has in hand. All of them are renewed by one
//! statement per tick, whatever jobs they are worked on for; one whose renewal is refused or that
//! is overdue by our own clock is cancelled for whoever works on it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::store::{ChunkHold, Jobs, RenewChunks, Renewed, Store};
use tenure_core::{Guarded, Invalid, Term, duration_text};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::hold::InHand;
use crate::metrics;

/// How soon a renewal that failed is tried again, within its bound.
const AGAIN: Duration = Duration::from_millis(50);

/// Keeps the leases on chunks alive.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::Term;
/// use tenure_engine::ChunkKeeper;
///
/// let keeper = ChunkKeeper::default();
/// assert_eq!(keeper.term().length(), Duration::from_mins(2));
/// assert_eq!(keeper.heartbeat(), Duration::from_secs(30));
/// assert!(ChunkKeeper::new(Term::STANDARD, Duration::from_secs(10)).is_err(), "too slow");
/// ```
pub struct ChunkKeeper {
    term: Term,
    heartbeat: Duration,
    state: Mutex<State>,
    /// Whoever has it renews; others wait until it is gone.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    last_no: u64,
    chunks: BTreeMap<u64, Kept>,
}

/// A chunk in hand.
struct Kept {
    hold: ChunkHold,
    /// From here on nothing may be done under its lease.
    deadline: Instant,
    /// When it is to be renewed next.
    beat_at: Instant,
    /// Until then its end is on its way to the store. It is not renewed: the row is in the
    /// transaction that ends it.
    ending_until: Option<Instant>,
    cancel: CancellationToken,
}

impl Kept {
    fn is_ending(&self, now: Instant) -> bool {
        self.ending_until.is_some_and(|until| now < until)
    }
}

impl ChunkKeeper {
    const TERM: Duration = Duration::from_mins(2);
    const HEARTBEAT: Duration = Duration::from_secs(30);

    /// Leases of this term, renewed this often.
    ///
    /// # Errors
    /// Three heartbeats are not less than the term.
    pub fn new(term: Term, heartbeat: Duration) -> Result<Self, Invalid> {
        if heartbeat.is_zero() || heartbeat.saturating_mul(3) >= term.length() {
            let found = duration_text(heartbeat);
            let expected = "more than 0s and less than a third of the term of chunks";
            return Err(Invalid::new("the heartbeat of chunks", found, expected));
        }
        Ok(Self {
            term,
            heartbeat,
            state: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// How long a lease runs without being renewed.
    pub fn term(&self) -> Term {
        self.term
    }

    /// How often it is renewed.
    pub fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// How many chunks are in hand.
    pub fn in_hand(&self) -> usize {
        self.state().chunks.len()
    }

    /// Takes a chunk in hand whose claim was sent at `sent_at`; `None`: it came so late that nobody
    /// could renew it in time. Give it back then.
    pub fn keep(self: &Arc<Self>, hold: ChunkHold, sent_at: Instant) -> Option<KeptChunk> {
        let deadline = InHand::deadline(sent_at, self.term.length());
        // It is looked at four times per interval: what ends before that would be kept by nobody.
        if Instant::now() + self.heartbeat / 4 >= deadline {
            return None;
        }
        let cancel = CancellationToken::new();
        let mut state = self.state();
        state.last_no += 1;
        let no = state.last_no;
        let kept = Kept {
            hold,
            deadline,
            beat_at: sent_at + self.heartbeat,
            ending_until: None,
            cancel: cancel.clone(),
        };
        state.chunks.insert(no, kept);
        Some(KeptChunk {
            keeper: Arc::clone(self),
            no,
            cancel,
        })
    }

    /// Renews through this store and watches the deadlines, for as long as it is polled. Several
    /// may run it: one of them works, the others wait until it is dropped. A store without jobs
    /// has nothing to renew.
    pub async fn run(&self, store: &dyn Store) {
        let Some(book) = store.job_book() else {
            return;
        };
        let _turn = self.turn.lock().await;
        tokio::join!(self.beat(book), self.watch());
    }

    /// Does the same on a thread of its own, for processes without a worker on jobs.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn run_on_thread(self: &Arc<Self>, store: Arc<dyn Store>) -> std::io::Result<ChunkThread> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = ChunkThread(CancellationToken::new());
        let (keeper, stop) = (Arc::clone(self), thread.0.clone());
        std::thread::Builder::new()
            .name("tenure-keeper".to_owned())
            .spawn(move || {
                let run = stop.run_until_cancelled(keeper.run(store.as_ref()));
                runtime.block_on(run);
            })?;
        Ok(thread)
    }

    async fn beat(&self, book: &dyn Jobs) {
        loop {
            let now = Instant::now();
            let due = self.due(now);
            if !due.is_empty() {
                self.renew(book, due).await;
            }
            // All are renewed together and beat together from then on: one statement per interval.
            // After a long renewal the next look is not late: each is bounded by its beat.
            let tick = now + self.heartbeat / 4;
            let next = self.state().chunks.values().map(|kept| kept.beat_at).min();
            sleep_until(next.map_or(tick, |next| next.clamp(now + AGAIN, tick.max(now + AGAIN))))
                .await;
        }
    }

    /// Takes chunks away whose deadline has come, also while a renewal hangs.
    async fn watch(&self) {
        loop {
            let now = Instant::now();
            self.cancel_late(now);
            let tick = now + self.heartbeat / 4;
            let next = self.state().chunks.values().map(|kept| kept.deadline).min();
            sleep_until(next.map_or(tick, |next| next.min(tick))).await;
        }
    }

    /// All chunks, if one of them is to be renewed now: one statement.
    fn due(&self, now: Instant) -> Vec<(u64, ChunkHold)> {
        let state = self.state();
        let chunks = state.chunks.iter();
        let kept: Vec<(&u64, &Kept)> = chunks.filter(|(_, kept)| !kept.is_ending(now)).collect();
        if !kept.iter().any(|(_, kept)| kept.beat_at <= now) {
            return Vec::new();
        }
        let kept = kept.into_iter();
        kept.map(|(no, kept)| (*no, kept.hold.clone())).collect()
    }

    async fn renew(&self, book: &dyn Jobs, due: Vec<(u64, ChunkHold)>) {
        // A beat ends before the next one is due, and well before the deadline.
        let bound = Instant::now() + self.heartbeat * 4 / 5;
        let holds = due.iter().map(|(_, hold)| hold.clone()).collect();
        match ask_until(book, &RenewChunks::new(holds, self.term), bound).await {
            Ok((sent_at, answers)) => {
                let answers: HashMap<_, _> = answers.into_iter().collect();
                for (no, hold) in &due {
                    match answers.get(hold) {
                        Some(answer) => self.take(*no, sent_at, answer),
                        None => self.ask_again(*no, hold),
                    }
                }
            }
            Err(reason) => {
                let mut state = self.state();
                let lost = due.iter().filter_map(|(no, _)| state.chunks.remove(no));
                let chunks = lost.map(|kept| kept.cancel.cancel()).count();
                let worker = due.first().map_or("", |(_, hold)| hold.token.holder());
                warn!(worker, reason, chunks, "a renewal of chunks failed");
            }
        }
    }

    /// Its row is in somebody's transaction: it is asked for again soon, until its own deadline.
    fn ask_again(&self, no: u64, hold: &ChunkHold) {
        if let Some(kept) = self.state().chunks.get_mut(&no) {
            kept.beat_at = Instant::now() + self.heartbeat / 4;
            let worker = hold.token.holder();
            debug!(
                worker,
                "a chunk was not renewed: its row is in a transaction"
            );
        }
    }

    fn take(&self, no: u64, sent_at: Instant, answer: &Guarded<Renewed>) {
        let mut state = self.state();
        let Some(kept) = state.chunks.get_mut(&no) else {
            return;
        };
        match answer {
            Guarded::Kept(_) => {
                // A deadline that has come stays: who works on it may have been told.
                if Instant::now() < kept.deadline {
                    kept.deadline = InHand::deadline(sent_at, self.term.length());
                    kept.beat_at = sent_at + self.heartbeat;
                }
            }
            Guarded::Refused(_) if kept.is_ending(Instant::now()) => {
                let worker = kept.hold.token.holder();
                debug!(worker, "stopped renewing a chunk that was ended");
            }
            Guarded::Refused(why) => {
                let (worker, why) = (kept.hold.token.holder(), why.as_str());
                warn!(worker, why, "lost a chunk; its work was cancelled");
                kept.cancel.cancel();
                state.chunks.remove(&no);
            }
        }
    }

    fn cancel_late(&self, now: Instant) {
        let mut state = self.state();
        let late = state.chunks.extract_if(.., |_, kept| kept.deadline <= now);
        for (_, kept) in late {
            kept.cancel.cancel();
            let (worker, why) = (kept.hold.token.holder(), "late");
            warn!(worker, why, "lost a chunk; its work was cancelled");
        }
    }

    /// Nothing is half done under it, so a panic there leaves no harm.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ChunkKeeper {
    /// Two minutes, renewed every 30 s.
    fn default() -> Self {
        Self {
            term: Term::new(Self::TERM).unwrap_or_default(),
            heartbeat: Self::HEARTBEAT,
            state: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }
}

impl fmt::Debug for ChunkKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkKeeper")
            .field("term", &self.term)
            .field("heartbeat", &self.heartbeat)
            .finish_non_exhaustive()
    }
}

type Answers = Vec<(ChunkHold, Guarded<Renewed>)>;

/// Asks until there is an answer or the bound has come; a renewal may be repeated. The moment is
/// the one before the call that was answered.
async fn ask_until(
    book: &dyn Jobs,
    ask: &RenewChunks,
    bound: Instant,
) -> Result<(Instant, Answers), String> {
    let mut reason = "the store did not answer in time".to_owned();
    loop {
        let sent_at = Instant::now();
        let first = ask.holds.first();
        metrics::chunk_call(first.map_or("", |hold| hold.token.holder()));
        match timeout_at(bound, book.renew_chunks(ask)).await {
            Ok(Ok(answers)) => return Ok((sent_at, answers)),
            Ok(Err(error)) => {
                reason = error.to_string();
                if !error.is_transient() {
                    return Err(reason);
                }
            }
            Err(_) => {}
        }
        if Instant::now() + AGAIN >= bound {
            return Err(reason);
        }
        sleep(AGAIN).await;
    }
}

/// A chunk that is kept alive until this is dropped.
#[derive(Debug)]
pub struct KeptChunk {
    keeper: Arc<ChunkKeeper>,
    no: u64,
    cancel: CancellationToken,
}

impl KeptChunk {
    /// Whether the hold on it is over: what is done from now on may be done twice.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until the hold on it is over.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Its end is on its way to the store, maybe in a transaction that is committed soon: for one
    /// heartbeat it is not renewed, and a renewal that is refused says nothing.
    pub fn ends(&self) {
        let until = Instant::now() + self.keeper.heartbeat;
        if let Some(kept) = self.keeper.state().chunks.get_mut(&self.no) {
            kept.ending_until = Some(until);
        }
    }
}

impl Drop for KeptChunk {
    fn drop(&mut self) {
        self.keeper.state().chunks.remove(&self.no);
    }
}

/// The thread of a [`ChunkKeeper`]; dropping it ends the thread.
#[derive(Debug)]
pub struct ChunkThread(CancellationToken);

impl Drop for ChunkThread {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
