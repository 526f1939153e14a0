//! Publisher that gives events to processes that stay, as lines of JSON; each answers with a line.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{Publication, PublishError, Publisher, Publishing};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::process::{Exchange, LineProcess};
use super::running::whole_millis;
use super::shell::{Shell, usable};
use crate::event_line::event_line;

/// Delay before the next start after a process that never answered; it doubles each time.
const START_DELAY: Duration = Duration::from_millis(500);
const START_DELAY_MAX: Duration = Duration::from_secs(30);

/// Runs processes that stay, through `sh -c`, and gives each one event at a time.
///
/// An event is one line of JSON on the standard input of a process, as [`Lines`](crate::Lines)
/// writes it, with `time_left_ms` besides. The process answers with one line on its standard
/// output, flushed, and then gets the next event:
///
/// ```json
/// {"id":7,"outcome":"done"}
/// {"id":7,"outcome":"retry","error":"SMTP 451","after_ms":60000}
/// ```
///
/// | outcome | means |
/// |---|---|
/// | `done` | done |
/// | `retry` | the event failed: retried by the retry policy, or after `after_ms` (at most 6 h) |
/// | `dead` | the event can never succeed: it is dead |
/// | `release` | not yet: the event comes back after `after_ms`, no failure is counted |
/// | `away` | the receiver is unavailable: the same, and three in a row pause the publisher |
///
/// `id` is that of the event. `error` and `after_ms` are optional; `done` takes neither and `dead`
/// no `after_ms`. An answer has at most 64 KiB.
///
/// Processes start when events need them and stay: as many as events are worked on at once, or
/// [`ExecLines::processes`]. They do not get the variables of [`Exec`](crate::Exec). Each line on
/// their standard error goes to the log.
///
/// | the process | its event |
/// |---|---|
/// | ends without an answer | the exit code means the same as for [`Exec`](crate::Exec); 0 is a failure |
/// | ends with 0, after answers to earlier events | goes to another process |
/// | prints another line, or answers for another event | failed; the process is killed |
/// | has not answered in time | failed; the process is stopped as for [`Exec`](crate::Exec) |
///
/// A new process takes the place of one that ended. If a process ends without any answer since its
/// start, the next start waits for half a second, and for up to 30 s if that happens again;
/// meanwhile the publisher reports that it is unavailable.
///
/// A process must end when its standard input ends, without an answer to an incomplete line. Its
/// input also ends when this process dies.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::{Event, Fence, ItemId, Publication, Publisher};
/// use tenure_publish::ExecLines;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let command = r#"while read -r event; do echo '{"id":1,"outcome":"done"}'; done"#;
/// let worker = ExecLines::new(command).processes(2).hide(["TENURE_DATABASE"]);
/// let event = Event::new("order.paid", &7)?;
/// let publication = Publication {
///     id: ItemId::new(1),
///     event: &event,
///     fence: Fence::new(1),
///     attempt: 1,
///     time_left: Duration::from_secs(30),
/// };
/// worker.publish(&publication).await?;
/// worker.publish(&publication).await?;
/// worker.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ExecLines {
    shell: Shell,
    /// A permit per process that works on an event.
    slots: Arc<Semaphore>,
    pool: Arc<Mutex<ProcessPool>>,
}

#[derive(Default)]
struct ProcessPool {
    /// Processes without an event; the last one is used first.
    idle: Vec<LineProcess>,
    is_stopped: bool,
    /// Consecutive processes that ended without any answer, counted once per delay.
    failures: u32,
    /// No process is started earlier.
    start_at: Option<Instant>,
    /// End of the last process that never answered.
    reason: String,
}

impl ExecLines {
    /// Runs `command` and keeps it running.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            shell: Shell::new(command),
            slots: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            pool: Arc::default(),
        }
    }

    /// Stops a process that works on one event for longer than this, even if the lease lasts
    /// longer. Default: no limit.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.shell.timeout = Some(timeout);
        self
    }

    /// Removes these variables, which hold secrets, from the environment of the processes.
    #[must_use]
    pub fn hide<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.shell.hide(names);
        self
    }

    /// Keeps at most this many processes, at least one; further events wait for a free one.
    /// Default: no limit.
    #[must_use]
    pub fn processes(mut self, most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        self.slots = Arc::new(Semaphore::new(most));
        self
    }

    /// Ends the processes that have no event: closes their input, sends `SIGTERM` a second later
    /// and `SIGKILL` another second later. Afterwards the publisher takes no event.
    ///
    /// Call it when the worker has stopped; a clone that is kept for this purpose will do. Dropping
    /// the last clone kills the processes at once.
    pub async fn stop(&self) {
        let idle = {
            let mut pool = self.pool();
            pool.is_stopped = true;
            std::mem::take(&mut pool.idle)
        };
        let mut ending = JoinSet::new();
        for process in idle {
            ending.spawn(process.close());
        }
        while ending.join_next().await.is_some() {}
    }

    async fn send(&self, publication: &Publication<'_>) -> Result<(), PublishError> {
        let began = Instant::now();
        let whole = usable(publication.time_left);
        let Ok(_slot) = timeout(whole, self.slots.acquire()).await else {
            let whole = whole_millis(whole);
            return Err(PublishError::away(format!(
                "all processes were busy for {whole:?}"
            )));
        };
        loop {
            let time_left = publication.time_left.saturating_sub(began.elapsed());
            let time = self.shell.time(time_left);
            if time.is_zero() {
                return Err(PublishError::retry("no time was left for a process"));
            }
            let line = event_line(publication, Some(time))?;
            let mut process = self.process().await?;
            match process.exchange(publication.id, &line, time).await {
                Exchange::Answered(result) => {
                    self.keep(process);
                    return result;
                }
                Exchange::NotTaken => {}
                Exchange::Lost(error) => {
                    if !process.has_answered {
                        self.pool().failed(&error.reason);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// A process without an event: one that waits, or a new one.
    async fn process(&self) -> Result<LineProcess, PublishError> {
        while let Some(mut process) = self.take()? {
            if process.is_waiting().await {
                return Ok(process);
            }
        }
        LineProcess::start(&self.shell)
    }

    // Its own function, so that no lock is held across an await.
    fn take(&self) -> Result<Option<LineProcess>, PublishError> {
        self.pool().take()
    }

    fn keep(&self, process: LineProcess) {
        let mut pool = self.pool();
        pool.failures = 0;
        pool.start_at = None;
        if !pool.is_stopped {
            pool.idle.push(process);
        }
    }

    fn pool(&self) -> MutexGuard<'_, ProcessPool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProcessPool {
    /// A process without an event; `None` if one may be started.
    fn take(&mut self) -> Result<Option<LineProcess>, PublishError> {
        if self.is_stopped {
            return Err(PublishError::away("the publisher was stopped"));
        }
        let now = Instant::now();
        match (self.idle.pop(), self.start_at) {
            (None, Some(start_at)) if now < start_at => {
                let error = PublishError::away(self.reason.as_str());
                Err(error.after(start_at - now))
            }
            (process, _) => Ok(process),
        }
    }

    /// Delays the next start. Processes that started together and failed together count once.
    fn failed(&mut self, reason: &str) {
        let now = Instant::now();
        if self.start_at.is_none_or(|start_at| start_at <= now) {
            let doubled = START_DELAY.saturating_mul(2_u32.saturating_pow(self.failures));
            self.failures = self.failures.saturating_add(1);
            self.start_at = Some(now + doubled.min(START_DELAY_MAX));
        }
        reason.clone_into(&mut self.reason);
    }
}

impl fmt::Debug for ExecLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExecLines").field(&self.shell).finish()
    }
}

impl Publisher for ExecLines {
    /// Dropping the future kills the process that works on the event.
    fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a> {
        Box::pin(self.send(publication))
    }
}
