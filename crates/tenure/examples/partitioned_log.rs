//! A consumer of a log: each customer's offsets strictly in order and one at a time, different
//! customers at once on several threads. The work lease keeps the order; this program decides when
//! what is tried, follows the hints, finds what was left behind and commits. Run it with
//! `cargo run -p tenure --example partitioned_log`.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tenure::domain::Offsets;
use tenure::{
    AcquireResult, Clock, DomainRules, FailResult, SystemClock, Timestamp, Token, WorkLease,
};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout())
}

const CUSTOMERS: [&str; 4] = ["ada", "ben", "cyd", "dov"];
const WORKERS: usize = 3;
/// As many offsets are read at once, and as often.
const BATCH: i64 = 20;
const BATCHES: i64 = 2;
/// When an offset is tried again, by the number of its failures, from when it was first acquired.
const LADDER: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(40)];
/// How often to look for what a lost hint left behind.
const LOOK: Duration = Duration::from_millis(20);

/// Whose offset it is: what the log says at this place.
fn customer(offset: i64) -> &'static str {
    let number = usize::try_from(offset * 3 % 5).unwrap_or(0);
    CUSTOMERS.get(number % CUSTOMERS.len()).unwrap_or(&"ada")
}

/// What a worker is given.
struct Work {
    domain: &'static str,
    offset: i64,
    token: Token,
}

/// What it says when it has tried.
struct News {
    work: Work,
    is_well: bool,
}

/// The work itself. Every seventh offset fails at first; 13 fails for good.
fn handle(offset: i64, retry_count: u32) -> bool {
    offset != 13 && (offset % 7 != 3 || retry_count > 0)
}

/// A worker: tries what it is given and says how it went. It holds no lock while it works.
fn work(lease: &WorkLease, given: &Receiver<Work>, news: &SyncSender<News>) {
    while let Ok(work) = given.recv() {
        let retries = lease.reservation(work.domain).map(|held| held.retry_count);
        let is_well = handle(work.offset, retries.unwrap_or(0));
        if news.send(News { work, is_well }).is_err() {
            return;
        }
    }
}

/// Decides when what is tried. The work lease never does.
struct Orchestrator<'a> {
    lease: &'a WorkLease,
    workers: Vec<SyncSender<Work>>,
    /// What is to be tried again, and when.
    later: VecDeque<(Timestamp, Work)>,
    /// What is over, for the commit.
    ended: Offsets,
    /// The same, per customer, in the order in which it ended.
    order: BTreeMap<&'static str, Vec<i64>>,
    given_up: Vec<i64>,
    hints_to_lose: u32,
    found: u32,
}

/// Says on `out` what happens.
pub(crate) fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let lease = WorkLease::new(DomainRules::max_attempts(3)?);
    // At most one offset of a domain is in flight, so that a channel with a place for each domain
    // is never full.
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
        // Only workers have news from here on: without them nothing is waited for.
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
        // On start: a hint may have been lost with whoever was here before.
        orchestrator.look()?;
        for batch in 0..BATCHES {
            orchestrator.read(batch * BATCH..(batch + 1) * BATCH, &heard)?;
        }
        orchestrator.report(out)
    })
}

impl Orchestrator<'_> {
    /// Submits a batch of the log, works it, and commits it bit by bit.
    fn read(
        &mut self,
        batch: std::ops::Range<i64>,
        heard: &Receiver<News>,
    ) -> Result<(), Box<dyn Error>> {
        let mut acquired = Vec::new();
        for offset in batch.clone() {
            let domain = customer(offset);
            // Not `try_acquire`: beside a hint that is on its way, a newcomer would be refused.
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

    /// Gives an offset to a worker, if it is in flight.
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

    /// An offset is over: commits, and follows the hint. One is lost on purpose.
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

    /// An offset failed: the ladder says when it is tried again.
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

    /// Tries again what is due. It is still in flight, under the token that it had.
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

    /// Takes up the domains of which nothing is in flight although something waits.
    fn look(&mut self) -> Result<(), Box<dyn Error>> {
        for (domain, head) in self.lease.idle_with_backlog() {
            self.found += 1;
            let answer = self.lease.try_acquire(domain.as_str(), head)?;
            self.start(customer(head), head, answer)?;
        }
        Ok(())
    }

    /// How long to wait for news: until the next retry, or until it is time to look.
    fn wait(&self) -> Duration {
        let now = SystemClock.now();
        let waits = self.later.iter().map(|(due, _)| due.since(now));
        waits.min().map_or(LOOK, |wait| wait.min(LOOK))
    }

    /// The position of the log up to which everything is over.
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
