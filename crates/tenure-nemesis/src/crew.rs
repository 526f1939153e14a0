//! The workers of a run. Each can be killed, paused and replaced; the crew records every fault.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_core::Timestamp;
use tenure_store::testing::{Cluster, Server};
use tokio::time::sleep;

use crate::history::{Fault, FaultKind};
use crate::process::Process;
use crate::wait::{POLL, now, until, within};

/// Timeout for the start of a worker.
const START_MAX: Duration = Duration::from_mins(1);
/// Timeout of the search for a worker in the middle of its work.
const BUSY_MAX: Duration = Duration::from_mins(2);
/// Maximum pause for the last check before a kill. After a longer one the worker is killed anyway,
/// because the pause itself may have cost a lease.
const PEEK_MAX: Duration = Duration::from_millis(500);
/// Time for a resumed worker to notice its lost leases.
const NOTICE: Duration = Duration::from_secs(2);

/// Makes the command of a start from its number and the arguments.
type Start = dyn Fn(u32, &[&str]) -> Command + Send + Sync;
/// The arguments of a worker.
const WORK: &[&str] = &["work"];
/// Returns the name of a worker once its log shows that it is ready.
type Ready = dyn Fn(&str) -> Option<String> + Send + Sync;
/// Returns true while a paused worker blocks all other writers.
type Blocked = dyn Fn() -> bool + Send + Sync;

/// The database servers that a run started for itself and may kill.
#[derive(Debug)]
pub enum Servers {
    /// A server that is started again after a kill.
    One(Server),
    /// A cluster, in which another server takes over from a killed leader.
    Cluster(Cluster),
}

/// Workers on one database, and their logs.
pub struct Crew {
    /// The servers of the database, if the run may kill them.
    pub servers: Option<Servers>,
    seats: Vec<tokio::sync::Mutex<Process>>,
    folder: PathBuf,
    start: Box<Start>,
    ready: Box<Ready>,
    blocked: Box<Blocked>,
    faults: Mutex<Vec<Fault>>,
    exits: Mutex<Vec<String>>,
    starts: AtomicU32,
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew").finish_non_exhaustive()
    }
}

impl Crew {
    /// Creates a crew without workers. Logs go into the folder.
    pub fn new(
        folder: PathBuf,
        start: impl Fn(u32, &[&str]) -> Command + Send + Sync + 'static,
        ready: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            servers: None,
            seats: Vec::new(),
            folder,
            start: Box::new(start),
            ready: Box::new(ready),
            blocked: Box::new(|| false),
            faults: Mutex::default(),
            exits: Mutex::default(),
            starts: AtomicU32::new(0),
        }
    }

    /// Sets the check for a paused worker that blocks all other writers, as one inside an SQLite
    /// transaction does. Such a pause also counts as an outage.
    #[must_use]
    pub fn blocked(mut self, blocked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.blocked = Box::new(blocked);
        self
    }

    /// Sets the servers that the schedule may kill.
    #[must_use]
    pub fn servers(mut self, servers: Servers) -> Self {
        self.servers = Some(servers);
        self
    }

    /// Number of workers.
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// Returns true if the crew has no workers.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Starts workers until this many are ready.
    pub async fn fill(&mut self, workers: usize) {
        while self.seats.len() < workers {
            let process = self.ready().await;
            self.seats.push(tokio::sync::Mutex::new(process));
        }
    }

    /// Starts a process that the caller owns, without waiting until it is ready.
    pub fn spawn(&self, args: &[&str]) -> Process {
        let number = self.starts.fetch_add(1, Ordering::Relaxed);
        Process::start(&mut (self.start)(number, args), &self.log(number))
    }

    /// Starts a worker and waits until it is ready; if it exits before, starts another.
    pub async fn ready(&self) -> Process {
        loop {
            let mut process = self.spawn(WORK);
            if self.is_ready(&mut process).await {
                return process;
            }
        }
    }

    /// Waits until a worker is ready; `false` if it exits first.
    pub async fn is_ready(&self, process: &mut Process) -> bool {
        within(START_MAX, async || {
            if let Some(name) = (self.ready)(&process.output()) {
                process.name = name;
                return Some(true);
            }
            process.has_exited().then_some(false)
        })
        .await
    }

    /// Replaces a worker that has exited by itself, and records the exit.
    async fn revive(&self, process: &mut Process) {
        if process.has_exited() {
            self.exits.lock().unwrap().push(process.name.clone());
            *process = self.ready().await;
        }
    }

    /// Kills one of the workers that are not paused, and waits until its successor is ready.
    pub async fn kill_any(&self, choose: impl FnOnce(usize) -> usize) {
        let seats = self.seats.iter();
        let mut free: Vec<_> = seats.filter_map(|seat| seat.try_lock().ok()).collect();
        let mut process = free.swap_remove(choose(free.len()));
        drop(free);
        self.revive(&mut process).await;
        self.replace(&mut process).await;
    }

    /// Kills a worker in the middle of its work, and waits until its successor is ready. The worker
    /// is paused before the last check, so it can settle nothing between the check and the kill.
    pub async fn kill_busy(&self, is_busy: impl AsyncFn(&str) -> bool) {
        let start = now();
        loop {
            for seat in &self.seats {
                let Ok(mut process) = seat.try_lock() else {
                    continue;
                };
                self.revive(&mut process).await;
                if !is_busy(&process.name).await {
                    continue;
                }
                let from = now();
                process.pause();
                if is_busy(&process.name).await || now().since(from) > PEEK_MAX {
                    return self.replace(&mut process).await;
                }
                process.resume();
            }
            let waited = now().since(start);
            assert!(waited < BUSY_MAX, "no worker is in the middle of its work");
            sleep(POLL).await;
        }
    }

    /// Kills a worker, and starts its successor.
    async fn replace(&self, process: &mut Process) {
        let from = process.kill();
        self.note(FaultKind::Killed(process.name.clone()), from);
        *process = self.ready().await;
    }

    /// Pauses a worker for this long.
    pub async fn pause(&self, nth: usize, length: Duration) {
        let mut process = self.seats[nth].lock().await;
        self.revive(&mut process).await;
        let from = now();
        process.pause();
        let is_blocked = (self.blocked)();
        sleep(length.saturating_sub(now().since(from))).await;
        self.note(FaultKind::Paused(process.name.clone()), from);
        if is_blocked {
            self.note(FaultKind::Outage, from);
        }
        process.resume();
        sleep(NOTICE).await;
    }

    /// Kills the database server, or the leader of the cluster, and starts it again. The outage
    /// ends when a server accepts writes.
    pub async fn kill_server(&self) {
        let from = now();
        match self.servers.as_ref().expect("there is a server to kill") {
            Servers::One(server) => {
                server.kill().await;
                server.restart().await;
                self.note(FaultKind::Outage, from);
            }
            Servers::Cluster(cluster) => {
                let killed = cluster.kill_leader().await;
                self.note(FaultKind::Outage, from);
                cluster.restart(killed).await;
            }
        }
    }

    /// Records a fault that ends now.
    fn note(&self, kind: FaultKind, from: Timestamp) {
        let fault = Fault {
            kind,
            from,
            to: now(),
        };
        self.faults.lock().unwrap().push(fault);
    }

    /// All faults so far.
    pub fn faults(&self) -> Vec<Fault> {
        self.faults.lock().unwrap().clone()
    }

    /// Workers that exited without being killed by the schedule.
    pub fn exits(&self) -> Vec<String> {
        self.exits.lock().unwrap().clone()
    }

    /// Shuts down all running workers; panics unless each exits with success.
    pub async fn shut_down(&mut self) {
        for seat in std::mem::take(&mut self.seats) {
            let mut process = seat.into_inner();
            if process.has_exited() {
                self.exits.lock().unwrap().push(process.name.clone());
                continue;
            }
            process.terminate();
            until("a worker shuts down", async || process.has_exited()).await;
            assert_eq!(process.succeeded(), Some(true), "{}", process.output());
        }
    }

    /// The logs of all workers, including those that were killed.
    pub fn logs(&self) -> Vec<String> {
        let starts = 0..self.starts.load(Ordering::Relaxed);
        let logs = starts.map(|start| std::fs::read_to_string(self.log(start)).unwrap());
        logs.collect()
    }

    fn log(&self, start: u32) -> PathBuf {
        self.folder.join(format!("worker-{start}.log"))
    }
}
