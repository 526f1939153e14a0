//! A consumer of a log on several threads: the offsets of a customer are processed in order and one
//! at a time, different customers concurrently. The work lease keeps the order; this program
//! schedules retries, follows the hints, recovers lost hints and commits. Run it with `cargo run -p
//! tenure --example partitioned_log`.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tenure::lease::Token;
use tenure::store::{Clock, SystemClock, Timestamp};
use tenure::work_lease::{AcquireResult, DomainRules, FailResult, Offsets, WorkLease};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout())
}

const CUSTOMERS: [&str; 4] = ["ada", "ben", "cyd", "dov"];
const WORKERS: usize = 3;
/// Offsets per batch.
const BATCH: i64 = 20;
const BATCHES: i64 = 2;
/// Delays of retries by number of failures; each counts from the first acquisition of the offset.
const LADDER: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(40)];
/// Interval between two searches for lost hints.
const LOOK: Duration = Duration::from_millis(20);

/// Customer of an offset; a real log would contain it.
fn customer(offset: i64) -> &'static str {
    let number = usize::try_from(offset * 3 % 5).unwrap_or(0);
    CUSTOMERS.get(number % CUSTOMERS.len()).unwrap_or(&"ada")
}

/// Work for a worker.
struct Work {
    domain: &'static str,
    offset: i64,
    token: Token,
}

/// Result of an attempt.
struct News {
    work: Work,
    is_well: bool,
}

/// The actual work. Every seventh offset (3, 10, …) fails at first; 13 always fails.
fn handle(offset: i64, retry_count: u32) -> bool {
    offset != 13 && (offset % 7 != 3 || retry_count > 0)
}

/// A worker: does the work and reports the result. It holds no lock while it works.
fn work(lease: &WorkLease, given: &Receiver<Work>, news: &SyncSender<News>) {
    while let Ok(work) = given.recv() {
        let retries = lease.reservation(work.domain).map(|held| held.retry_count);
        let is_well = handle(work.offset, retries.unwrap_or(0));
        if news.send(News { work, is_well }).is_err() {
            return;
        }
    }
}

/// Schedules the attempts, which the work lease never does.
struct Orchestrator<'a> {
    lease: &'a WorkLease,
    workers: Vec<SyncSender<Work>>,
    /// Scheduled retries.
    later: VecDeque<(Timestamp, Work)>,
    /// Offsets that have ended, for the commit.
    ended: Offsets,
    /// The same per customer, in the order in which they ended.
    order: BTreeMap<&'static str, Vec<i64>>,
    given_up: Vec<i64>,
    hints_to_lose: u32,
    found: u32,
}

/// Runs the example and prints its results to `out`.
pub(crate) fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let lease = WorkLease::new(DomainRules::max_attempts(3)?);
    // At most one offset per domain is in flight, so a channel with one slot per domain is never
    // full.
    let (news, heard) = sync_channel(CUSTOMERS.len());
    let mut workers = Vec::new();
    let mut inboxes = Vec::new();
    for _ in 0..WORKERS {
        let (give, given) = sync_channel(CUSTOMERS.len());
        workers.push(give);
        inboxes.push(given);
    }
    thread::scope(|scope| {
        for given in inboxes {
            let (lease, news) = (&lease, news.clone());
            scope.spawn(move || work(lease, &given, &news));
        }
        // Only the workers send results now: when they are gone, receiving ends.
        drop(news);
        let mut orchestrator = Orchestrator {
            lease: &lease,
            workers,
            later: VecDeque::new(),
            ended: Offsets::default(),
            order: BTreeMap::new(),
            given_up: Vec::new(),
            hints_to_lose: 1,
            found: 0,
        };
        // With a stored work lease, this finds the lost hints of a previous process.
        orchestrator.look()?;
        for batch in 0..BATCHES {
            orchestrator.read(batch * BATCH..(batch + 1) * BATCH, &heard)?;
        }
        orchestrator.report(out)
    })
}

impl Orchestrator<'_> {
    /// Submits a batch of the log, processes it, and commits step by step.
    fn read(
        &mut self,
        batch: std::ops::Range<i64>,
        heard: &Receiver<News>,
    ) -> Result<(), Box<dyn Error>> {
        let mut acquired = Vec::new();
        for offset in batch.clone() {
            let domain = customer(offset);
            // Not `try_acquire`, which refuses a new offset while a hint is on its way.
            let answer = self.lease.submit(domain, offset)?;
            acquired.push((domain, offset, answer));
        }
        for (domain, offset, answer) in acquired {
            self.start(domain, offset, answer)?;
        }
        while self.committed() < batch.end {
            match heard.recv_timeout(self.wait()) {
                Ok(News {
                    work,
                    is_well: true,
                }) => {
                    let answer = self.lease.succeed(work.domain, &work.token)?;
                    self.end(&work, answer.hint())?;
                }
                Ok(News {
                    work,
                    is_well: false,
                }) => self.failed(work)?,
                Err(RecvTimeoutError::Timeout) => self.look()?,
                Err(RecvTimeoutError::Disconnected) => return Err("the workers are gone".into()),
            }
            self.start_due()?;
        }
        Ok(())
    }

    /// Sends an offset to a worker, if it was acquired.
    fn start(
        &self,
        domain: &'static str,
        offset: i64,
        answer: AcquireResult,
    ) -> Result<(), Box<dyn Error>> {
        if let AcquireResult::Acquired(token) | AcquireResult::AlreadyAcquired(token) = answer {
            let number = CUSTOMERS.iter().position(|name| *name == domain);
            let worker = self.workers.get(number.unwrap_or(0) % WORKERS);
            let worker = worker.ok_or("there are workers")?;
            worker.send(Work {
                domain,
                offset,
                token,
            })?;
        }
        Ok(())
    }

    /// Ends an offset: commits, and follows the hint. Loses one hint on purpose.
    fn end(&mut self, work: &Work, hint: Option<i64>) -> Result<(), Box<dyn Error>> {
        self.ended.insert(work.offset);
        self.order.entry(work.domain).or_default().push(work.offset);
        self.lease.advance_watermark(self.committed());
        let Some(next) = hint else {
            return Ok(());
        };
        if self.hints_to_lose > 0 {
            self.hints_to_lose -= 1;
            return Ok(());
        }
        let answer = self.lease.try_acquire(work.domain, next)?;
        self.start(work.domain, next, answer)
    }

    /// Schedules the retry of a failed offset, or ends it after its last attempt.
    fn failed(&mut self, work: Work) -> Result<(), Box<dyn Error>> {
        let answer = self.lease.fail(work.domain, &work.token)?;
        if !matches!(answer, FailResult::RetryScheduled(_)) {
            self.given_up.push(work.offset);
            return self.end(&work, answer.hint());
        }
        let held = self.lease.reservation(work.domain);
        let held = held.ok_or("an offset that is tried again is in flight")?;
        let step = usize::try_from(held.retry_count)?.saturating_sub(1);
        let delay = LADDER.get(step).or(LADDER.last()).copied();
        let due = held.acquired_at.after(delay.unwrap_or_default());
        self.later.push_back((due, work));
        Ok(())
    }

    /// Starts due retries. Their offsets are still in flight, under the same token.
    fn start_due(&mut self) -> Result<(), Box<dyn Error>> {
        let now = SystemClock.now();
        for _ in 0..self.later.len() {
            let Some((due, work)) = self.later.pop_front() else {
                break;
            };
            if due > now {
                self.later.push_back((due, work));
            } else {
                let answer = self.lease.try_acquire(work.domain, work.offset)?;
                self.start(work.domain, work.offset, answer)?;
            }
        }
        Ok(())
    }

    /// Acquires the heads of domains that have a backlog but nothing in flight.
    fn look(&mut self) -> Result<(), Box<dyn Error>> {
        for (domain, head) in self.lease.idle_with_backlog() {
            self.found += 1;
            let answer = self.lease.try_acquire(domain.as_str(), head)?;
            self.start(customer(head), head, answer)?;
        }
        Ok(())
    }

    /// Time to wait for a result: until the next retry or the next search.
    fn wait(&self) -> Duration {
        let now = SystemClock.now();
        let waits = self.later.iter().map(|(due, _)| due.since(now));
        waits.min().map_or(LOOK, |wait| wait.min(LOOK))
    }

    /// Position in the log below which every offset has ended.
    fn committed(&self) -> i64 {
        match self.ended.ranges().next() {
            Some((0, last)) => last + 1,
            _ => 0,
        }
    }

    fn report(&self, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
        let is_ordered = self.order.values().all(|offsets| offsets.is_sorted());
        writeln!(
            out,
            "read {} offsets of {} customers",
            self.ended.count(),
            self.order.len()
        )?;
        writeln!(out, "each customer's in order: {is_ordered}")?;
        writeln!(out, "given up after three tries: {:?}", self.given_up)?;
        writeln!(out, "a lost hint was found by looking: {}", self.found > 0)?;
        writeln!(out, "committed up to {}", self.lease.watermark())?;
        self.lease.evict();
        writeln!(
            out,
            "domains kept, with a failure: {}",
            self.lease.domains()
        )?;
        self.lease.forget_failed_below(self.committed());
        self.lease.evict();
        writeln!(
            out,
            "domains kept, once it is forgotten: {}",
            self.lease.domains()
        )?;
        Ok(())
    }
}
