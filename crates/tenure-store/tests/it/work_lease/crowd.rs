//! Many threads at once: one lock per domain; each offset is worked once and in the order of
//! submission, with and without lost hints.
//!
//! The machine decides the interleaving. The seed is printed when a run fails, and repeats the
//! calls of each thread.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tenure_core::{
    AcquireResult, Clock, DomainRules, FailResult, Timestamp, Token, WorkLeaseError, testing,
};
use tenure_store::memory::WorkLease;

use super::invariants::violations;
use super::{T0, acquire, acquired, current};

const THREADS: u64 = 8;
const DOMAINS: usize = 1_000;
const STEPS: u32 = 1_500;

fn rules(max_retries: u32) -> DomainRules {
    DomainRules {
        max_retries,
        ..DomainRules::default()
    }
}

/// One domain and its expected work.
struct Line {
    name: String,
    /// Number of submitted offsets: 0, 1, 2 …
    submitted: Mutex<i64>,
    /// The offsets in the order of acquisition. Only a holder writes here.
    worked: Mutex<Vec<i64>>,
    holders: AtomicU32,
}

struct Crowd {
    lease: WorkLease,
    lines: Vec<Line>,
    lost: AtomicU32,
    seed: u64,
}

impl Crowd {
    fn new(seed: u64) -> Self {
        let line = |number| Line {
            name: format!("customer-{number}"),
            submitted: Mutex::new(0),
            worked: Mutex::new(Vec::new()),
            holders: AtomicU32::new(0),
        };
        Self {
            lease: WorkLease::new(rules(2)),
            lines: (0..DOMAINS).map(line).collect(),
            lost: AtomicU32::new(0),
            seed,
        }
    }

    /// Makes random calls on random domains, half of them on a few domains, where all threads
    /// collide.
    fn run(&self, number: u64) {
        let mut dice = StdRng::seed_from_u64(self.seed.wrapping_add(number));
        for _ in 0..STEPS {
            let among = if dice.random_bool(0.5) { 5 } else { DOMAINS };
            let line = &self.lines[dice.random_range(0..among)];
            self.step(line, &mut dice);
            if let Some(kept) = self.lease.domain(&line.name) {
                let found = violations(&kept);
                assert!(found.is_empty(), "seed {}: {found:?}", self.seed);
            }
        }
    }

    fn step(&self, line: &Line, dice: &mut StdRng) {
        match dice.random_range(0..8) {
            0..5 => {
                let mut submitted = line.submitted.lock().unwrap();
                let offset = *submitted;
                *submitted += 1;
                let answer = self.lease.submit(&line.name, offset).unwrap();
                drop(submitted);
                self.work(line, offset, answer, dice);
            }
            5 => {
                let submitted = *line.submitted.lock().unwrap();
                let offset = dice.random_range(0..submitted.max(1));
                if offset >= submitted {
                    return;
                }
                match self.lease.try_acquire(&line.name, offset) {
                    Ok(answer) => self.work(line, offset, answer, dice),
                    Err(WorkLeaseError::BacklogOrdering { .. }) => {}
                    Err(other) => panic!("seed {}: {other}", self.seed),
                }
            }
            6 => {
                let stranger = testing::token("stranger", 1);
                let error = self.lease.succeed(&line.name, &stranger).unwrap_err();
                assert!(error.is_illegal_state());
            }
            _ => self.kick(line, dice),
        }
    }

    /// Works on an idle domain with a backlog.
    fn kick(&self, line: &Line, dice: &mut StdRng) {
        let kept = self.lease.domain(&line.name);
        let head = kept.and_then(|kept| match kept.reservation() {
            Some(_) => None,
            None => kept.backlog().head(),
        });
        if let Some(head) = head {
            let answer = self.lease.try_acquire(&line.name, head).unwrap();
            self.work(line, head, answer, dice);
        }
    }

    /// Works on an acquired offset and on those that the hints name; ignores some of the hints.
    fn work(&self, line: &Line, mut offset: i64, mut answer: AcquireResult, dice: &mut StdRng) {
        while let AcquireResult::Acquired(token) = answer {
            let others = line.holders.fetch_add(1, Ordering::SeqCst);
            assert_eq!(others, 0, "seed {}: two holders", self.seed);
            line.worked.lock().unwrap().push(offset);
            // Lets other threads run while the offset is in flight.
            thread::yield_now();
            let Some(next) = self.end(line, &token, dice) else {
                return;
            };
            if dice.random_bool(0.25) {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            offset = next;
            answer = self.lease.try_acquire(&line.name, next).unwrap();
        }
    }

    /// Finishes the offset in flight, as processed or given up, after some failures.
    fn end(&self, line: &Line, token: &Token, dice: &mut StdRng) -> Option<i64> {
        loop {
            line.holders.fetch_sub(1, Ordering::SeqCst);
            if !dice.random_bool(0.25) {
                return self.lease.succeed(&line.name, token).unwrap().hint();
            }
            let answer = self.lease.fail(&line.name, token).unwrap();
            if !matches!(answer, FailResult::RetryScheduled(_)) {
                return answer.hint();
            }
            line.holders.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Asserts that every submitted offset was worked once and in order.
    fn judge(&self) {
        for line in &self.lines {
            let submitted = *line.submitted.lock().unwrap();
            let worked = line.worked.lock().unwrap();
            let expected: Vec<i64> = (0..submitted).collect();
            assert_eq!(*worked, expected, "seed {}: {}", self.seed, line.name);
            assert_eq!(self.lease.reservation(&line.name), None);
            if let Some(kept) = self.lease.domain(&line.name) {
                let ended = kept.processed().count() + kept.failed().count();
                assert_eq!(ended, u128::try_from(submitted).unwrap());
            }
        }
    }
}

/// Proves: S3-001, S3-007, S3-013, S3-030, S3-033, S3-046, S3-054, S3-072
#[test]
fn many_threads_work_every_submitted_offset_once_and_in_order() {
    let crowd = Crowd::new(rand::random());
    thread::scope(|scope| {
        for number in 0..THREADS {
            let crowd = &crowd;
            scope.spawn(move || crowd.run(number));
        }
    });
    // The ignored hints left idle domains; a search finds and finishes them.
    let mut dice = StdRng::seed_from_u64(crowd.seed);
    loop {
        let idle = crowd.lease.idle_with_backlog();
        if idle.is_empty() {
            break;
        }
        for (name, head) in idle {
            let line = crowd.lines.iter().find(|line| line.name == name.as_str());
            let answer = crowd.lease.try_acquire(name.as_str(), head).unwrap();
            crowd.work(line.unwrap(), head, answer, &mut dice);
        }
    }
    assert!(crowd.lost.load(Ordering::Relaxed) > 0, "no hint was lost");
    crowd.judge();
}

/// Eight threads make a call at the same time; returns their results.
fn all_at_once<T: Send>(call: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let gate = std::sync::Barrier::new(8);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (gate, call) = (&gate, &call);
                scope.spawn(move || {
                    gate.wait();
                    call(number)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// Proves: S3-033, S3-071, S3-025
#[test]
fn one_of_many_threads_acquires_an_offset() {
    let lease = WorkLease::new(rules(0));
    for round in 0..200 {
        let domain = format!("new-{round}");
        let answers = all_at_once(|_| lease.try_acquire(&domain, 1).unwrap());
        let first = answers
            .iter()
            .filter(|a| matches!(a, AcquireResult::Acquired(_)));
        assert_eq!(first.count(), 1);
        let token = answers[0].token();
        assert!(answers.iter().all(|answer| answer.token() == token));
    }
}

/// Proves: S3-046, S3-031
#[test]
fn one_of_many_concurrent_successes_is_accepted() {
    let lease = WorkLease::new(rules(0));
    for offset in 0..200 {
        let token = acquire(&lease, offset);
        let answers = all_at_once(|_| lease.succeed("A", &token));
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    }
}

/// Proves: S3-054, S3-017
#[test]
fn every_concurrent_failure_is_counted() {
    let lease = WorkLease::new(rules(8));
    for offset in 0..200 {
        let token = acquire(&lease, offset);
        let mut counts: Vec<u32> = all_at_once(|_| match lease.fail("A", &token) {
            Ok(FailResult::RetryScheduled(count)) => count,
            other => panic!("{other:?}"),
        });
        counts.sort_unstable();
        assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(current(&lease).retry_count, 8);
        assert_eq!(lease.fail("A", &token), Ok(FailResult::GiveUpNoBacklog));
    }
}

/// A clock that blocks its first call until it is released.
#[derive(Debug)]
struct StuckClock {
    is_asked: Mutex<Option<mpsc::Sender<()>>>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Clock for StuckClock {
    fn now(&self) -> Timestamp {
        let first = self.is_asked.lock().unwrap().take();
        if let Some(first) = first {
            first.send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
        T0
    }
}

/// Each domain has its own lock, and there is no common one: while the decision of one domain
/// hangs, the calls, searches and evictions of all others continue.
///
/// Proves: S3-073, S3-033
#[test]
fn a_domain_that_hangs_does_not_delay_others() {
    let (asked, is_asked) = mpsc::channel();
    let (go, go_on) = mpsc::channel();
    let clock = StuckClock {
        is_asked: Mutex::new(Some(asked)),
        go_on: Mutex::new(go_on),
    };
    let lease = Arc::new(WorkLease::new(rules(0)).clock(Arc::new(clock)));
    let stuck = thread::spawn({
        let lease = Arc::clone(&lease);
        move || acquired(lease.try_acquire("stuck", 1).unwrap())
    });
    is_asked.recv().unwrap();
    let (done, is_done) = mpsc::channel();
    let others = thread::spawn({
        let lease = Arc::clone(&lease);
        move || {
            for number in 0..500 {
                let domain = format!("customer-{number}");
                let token = acquired(lease.try_acquire(&domain, 1).unwrap());
                assert!(lease.succeed(&domain, &token).is_ok());
            }
            lease.advance_watermark(2);
            done.send(lease.evict()).unwrap();
        }
    });
    let evicted = is_done.recv_timeout(Duration::from_secs(30));
    go.send(()).unwrap();
    others.join().unwrap();
    // The assertion is made here, because later the test would hang instead of fail.
    assert_eq!(evicted, Ok(500), "the others waited for the one that hangs");
    let token = stuck.join().unwrap();
    assert!(lease.succeed("stuck", &token).is_ok());
}

/// No lock is held between two calls, so a holder may take as long as it needs.
///
/// Proves: S3-073
#[test]
fn a_holder_at_work_holds_no_lock() {
    let lease = WorkLease::new(rules(0));
    let token = acquire(&lease, 1);
    let is_waiting = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let answer = lease.try_acquire("A", 2);
            assert_eq!(answer, Ok(AcquireResult::Enqueued));
            is_waiting.store(true, Ordering::SeqCst);
        });
    });
    assert!(is_waiting.load(Ordering::SeqCst));
    assert_eq!(lease.succeed("A", &token).unwrap().hint(), Some(2));
}
