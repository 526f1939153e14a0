//! The stage: the temporary folder, its database, the worker processes, the flow of events, and the
//! output lines.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;
use tenure::lease::{Held, OutcomeKind};
use tenure::operate::{Filter, QueueRules};
use tenure::store::QueueName;
use tenure::{Event, Fence, ItemId, State, StoreError, Tenure, Term};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::facts::Takeover;
use crate::host::Host;
use crate::stop::{Failure, Stop};

/// The topic of every event of the demo.
pub(super) const TOPIC: &str = "demo.order";
pub(super) const TERM: Duration = Duration::from_secs(2);

/// The handler of every event: it notes the event and the fence, and works for a moment.
const HANDLER: &str = "echo \"$TENURE_ID $TENURE_FENCE\" >> received; sleep 0.5";
/// Interval between two events.
const FLOW: Duration = Duration::from_millis(150);
/// Maximum number of pending events; the flow waits while there are this many. On a busy machine
/// the workers are slower than the flow, and a lapsed event would wait behind the backlog.
const PENDING_MAX: u64 = 8;
/// Interval between two polls.
const POLL: Duration = Duration::from_millis(25);
/// Timeout of a poll.
const PATIENCE: Duration = Duration::from_mins(3);
/// Timeout of a write to the database: a paused process may have locked it.
const FREE: Duration = Duration::from_millis(500);

const QUIET: Style = Style::new().dimmed();
const BAD: Style = AnsiColor::Red.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();

pub(super) fn term() -> Result<Term, Stop> {
    Ok(Term::new(TERM)?)
}

/// An item that a worker holds.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub(super) id: ItemId,
    pub(super) fence: Fence,
    pub(super) holder: String,
}

impl Holding {
    /// Items claimed by this process.
    pub(super) fn own(held: &Held, holder: &str) -> Vec<Self> {
        let ids = held.ids().into_iter();
        ids.map(|id| Self {
            id,
            fence: held.lease.fence,
            holder: holder.to_owned(),
        })
        .collect()
    }
}

/// Formats items as `event 7 (fence 3)`.
pub(super) fn listed(held: &[Holding]) -> String {
    let texts: Vec<_> = held
        .iter()
        .map(|held| format!("event {} (fence {})", held.id, held.fence))
        .collect();
    texts.join(", ")
}

/// A worker process; dropping the value kills it.
struct WorkerProcess {
    name: &'static str,
    child: Child,
}

impl WorkerProcess {
    /// Checks that all threads of the process are paused. A signal is only a request: a thread may
    /// be inside a system call that still takes a lock.
    fn is_paused(&self) -> Result<Option<()>, Stop> {
        let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
        let status = waitpid(Some(Pid::from_child(&self.child)), options);
        let status = status.map_err(|cause| cannot("pause a worker", &cause))?;
        match status {
            Some((_, status)) if status.stopped() => Ok(Some(())),
            Some(_) => Err(cannot("pause a worker", &"it has ended").into()),
            None => Ok(None),
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), Stop> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|cause| Stop::from(std::io::Error::from(cause)))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Fails if the process has exited; a paused process can be killed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The task that writes events at a fixed interval.
struct Flow {
    is_over: Arc<AtomicBool>,
    ids: JoinHandle<Result<Vec<ItemId>, StoreError>>,
}

/// Folder, database and worker processes of the demo.
pub(super) struct Stage<'a> {
    host: &'a Host<'a>,
    began: Instant,
    // Dropped before the folder is removed.
    processes: Vec<WorkerProcess>,
    flow: Option<Flow>,
    /// Events written besides the flow.
    written: Vec<ItemId>,
    tenure: Tenure,
    folder: TempDir,
}

impl<'a> Stage<'a> {
    /// Creates the folder and the database.
    pub(super) async fn set(host: &'a Host<'a>) -> Result<Self, Stop> {
        let folder = tempfile::Builder::new().prefix("tenure-demo-").tempdir();
        let folder = folder.map_err(|cause| cannot("make a temporary folder", &cause))?;
        let url = format!("sqlite://{}", folder.path().join("demo.db").display());
        let tenure = Tenure::open(&url).await?;
        let stage = Self {
            host,
            began: Instant::now(),
            processes: Vec::new(),
            flow: None,
            written: Vec::new(),
            tenure,
            folder,
        };
        stage.tell("a new SQLite database in a temporary folder")?;
        Ok(stage)
    }

    pub(super) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    pub(super) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Ends the workers; returns the folder if it is kept.
    pub(super) fn clear(mut self, keep: bool) -> Option<PathBuf> {
        self.processes.clear();
        if let Some(flow) = &self.flow {
            flow.is_over.store(true, Ordering::Relaxed);
        }
        keep.then(|| self.folder.keep())
    }

    pub(super) fn start(&mut self, name: &'static str) -> Result<(), Stop> {
        let program = std::env::current_exe();
        let program = program.map_err(|cause| cannot("find this program", &cause))?;
        let log = File::create(self.log(name)).map_err(|cause| cannot("make a log", &cause))?;
        let mut command = Command::new(program);
        // The user's own configuration belongs to their own database.
        for variable in self.host.variables {
            command.env_remove(variable);
        }
        command
            .args(["work", "--name", name, "--exec", HANDLER])
            // One worker alone must keep up with the flow, even on a busy machine: a lapsed item
            // waits behind all items that are due earlier.
            .args(["--concurrency", "8", "--batch", "4"])
            .args(["--database", "sqlite://demo.db"])
            .env("TENURE_LEASE_TERM", format!("{}s", TERM.as_secs()))
            // A short term lapses often on a busy machine; no event may become dead because of it.
            .env("TENURE_RETRY_MAX_CRASHES", "1000")
            .env("TENURE_LOG_FORMAT", "json")
            // One worker per process: the demo shows events only.
            .env("TENURE_WEBHOOK_SEND", "false")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn();
        let child = child.map_err(|cause| cannot("start a worker", &cause))?;
        self.processes.push(WorkerProcess { name, child });
        Ok(())
    }

    /// Waits until this many workers are active.
    pub(super) async fn all_here(&self, count: usize) -> Result<(), Stop> {
        self.until("the workers start", async || {
            let (_, workers) = self.tenure.workers(100).await?;
            Ok((workers.len() == count).then_some(()))
        })
        .await
    }

    /// Starts the flow of events.
    pub(super) fn open_flow(&mut self) {
        let is_over = Arc::new(AtomicBool::new(false));
        let (tenure, over) = (self.tenure.clone(), Arc::clone(&is_over));
        let ids = tokio::spawn(async move {
            let mut ids = Vec::new();
            let mut ticks = tokio::time::interval(FLOW);
            while !over.load(Ordering::Relaxed) {
                ticks.tick().await;
                if tenure.count().await?.pending() >= PENDING_MAX {
                    continue;
                }
                let payload = serde_json::json!({ "order": ids.len() + 1 });
                let event = Event::new(TOPIC, &payload)
                    .map_err(|problem| StoreError::invalid("enqueue", &problem))?;
                ids.push(tenure.enqueue_now(event).await?.id());
            }
            Ok(ids)
        });
        self.flow = Some(Flow { is_over, ids });
    }

    /// Writes one event besides the flow.
    pub(super) async fn write(&mut self, event: Event) -> Result<(), Stop> {
        let written = self.tenure.enqueue_now(event).await?;
        self.written.push(written.id());
        Ok(())
    }

    /// Ends the flow; returns all written events.
    pub(super) async fn close_flow(&mut self) -> Result<Vec<ItemId>, Stop> {
        let mut ids = std::mem::take(&mut self.written);
        if let Some(flow) = self.flow.take() {
            flow.is_over.store(true, Ordering::Relaxed);
            let flown = flow.ids.await;
            ids.extend(flown.map_err(|cause| cannot("write events", &cause))??);
        }
        Ok(ids)
    }

    /// Waits until this many more events are published.
    pub(super) async fn published(&self, more: u64) -> Result<(), Stop> {
        let goal = self.tenure.count().await?.done + more;
        let done = self
            .until("events are published", async || {
                let done = self.tenure.count().await?.done;
                Ok((done >= goal).then_some(done))
            })
            .await?;
        self.tell(format_args!("{done} events are published"))
    }

    /// Waits until no event is pending or held.
    pub(super) async fn drained(&self) -> Result<(), Stop> {
        self.until("everything is settled", async || {
            let counts = self.tenure.count().await?;
            Ok((counts.pending() + counts.claimed == 0).then_some(()))
        })
        .await
    }

    /// Pauses a worker while it works and has not locked the database; returns its items.
    pub(super) async fn freeze(&self, name: &str) -> Result<Vec<Holding>, Stop> {
        let process = self.process(name)?;
        self.until("a worker is in the middle of its work", async || {
            if self.in_work(name).await?.is_empty() {
                return Ok(None);
            }
            process.signal(Signal::STOP)?;
            self.until("a worker is paused", async || process.is_paused())
                .await?;
            let default = QueueName::default();
            let write = self.tenure.add_queue(&default, QueueRules::default());
            if tokio::time::timeout(FREE, write).await.is_ok() {
                let held = self.in_work(name).await?;
                if !held.is_empty() {
                    return Ok(Some(held));
                }
            }
            process.signal(Signal::CONT)?;
            Ok(None)
        })
        .await
    }

    pub(super) fn thaw(&self, name: &str) -> Result<(), Stop> {
        self.process(name)?.signal(Signal::CONT)
    }

    pub(super) fn kill(&self, name: &str) -> Result<(), Stop> {
        self.process(name)?.signal(Signal::KILL)
    }

    /// Stops the workers and waits until they have exited; a killed one already has.
    pub(super) async fn end_workers(&mut self) -> Result<(), Stop> {
        let mut processes = std::mem::take(&mut self.processes);
        for process in &mut processes {
            if matches!(process.child.try_wait(), Ok(None)) {
                process.signal(Signal::TERM)?;
            }
        }
        for process in &mut processes {
            let mut left = PATIENCE.as_millis() / POLL.as_millis();
            while left > 0 && matches!(process.child.try_wait(), Ok(None)) {
                // The standard library can poll for the end of a child, but not await it.
                tokio::time::sleep(POLL).await;
                left -= 1;
            }
        }
        Ok(())
    }

    /// Items of this worker whose handler has begun.
    async fn in_work(&self, name: &str) -> Result<Vec<Holding>, Stop> {
        let filter = Filter {
            state: Some(State::Claimed),
            ..Filter::default()
        };
        let page = self.tenure.list(&filter, 1000).await?;
        let begun: BTreeSet<_> = self.received()?.into_iter().collect();
        let ours = format!("{name}-");
        let holds = page.records.into_iter().filter_map(|record| {
            let hold = record.hold?;
            Some(Holding {
                id: record.id,
                fence: hold.fence,
                holder: hold.holder,
            })
        });
        Ok(holds
            .filter(|held| held.holder.starts_with(&ours))
            .filter(|held| begun.contains(&(held.id.number(), held.fence.number())))
            .collect())
    }

    /// Waits until another worker has taken over each of these items; returns the first takeover.
    pub(super) async fn taken_over(
        &self,
        held: &[Holding],
        began: Instant,
    ) -> Result<Takeover, Stop> {
        let mut first = None;
        for held in held {
            let taken = self
                .until("another worker takes it over", async || {
                    self.successor(held, began).await
                })
                .await?;
            first.get_or_insert(taken);
        }
        first.ok_or_else(|| Failure::new("nothing was in hand").into())
    }

    async fn successor(&self, held: &Holding, began: Instant) -> Result<Option<Takeover>, Stop> {
        let timeline = self.tenure.timeline(held.id).await?;
        let is_lapsed = timeline
            .iter()
            .any(|hold| hold.fence == held.fence && hold.outcome == OutcomeKind::Lapsed);
        if !is_lapsed {
            return Ok(None);
        }
        let record = self.tenure.find(&[held.id]).await?.pop();
        let now = record.and_then(|record| record.hold);
        let ended = timeline
            .into_iter()
            .map(|hold| (hold.fence, hold.holder))
            .find(|(fence, _)| *fence > held.fence);
        let next = ended.or_else(|| now.map(|hold| (hold.fence, hold.holder)));
        Ok(next.map(|(fence, holder)| Takeover {
            id: held.id.number(),
            holder_old: held.holder.clone(),
            holder_new: holder,
            fence_old: held.fence.number(),
            fence_new: fence.number(),
            after_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }))
    }

    /// Waits until a worker logs the loss of the item; returns its reason.
    pub(super) async fn noticed(&self, name: &str, taken: &Takeover) -> Result<String, Stop> {
        self.until("it notices that it is too late", async || {
            let log = std::fs::read_to_string(self.log(name));
            let log = log.map_err(|cause| cannot("read a log", &cause))?;
            Ok(log.lines().find_map(|line| reason_of_a_loss(line, taken)))
        })
        .await
    }

    /// The notes of the handlers: item and fence, in order.
    pub(super) fn received(&self) -> Result<Vec<(i64, i64)>, Stop> {
        let text = match std::fs::read_to_string(self.folder.path().join("received")) {
            Ok(text) => text,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(cause) => return Err(cannot("read what was received", &cause).into()),
        };
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        Ok(pairs
            .filter_map(|(id, fence)| Some((id.parse().ok()?, fence.parse().ok()?)))
            .collect())
    }

    /// Polls until the closure returns a value.
    async fn until<T>(
        &self,
        what: &str,
        look: impl AsyncFn() -> Result<Option<T>, Stop>,
    ) -> Result<T, Stop> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(answer) = look().await? {
                return Ok(answer);
            }
            // The other processes change the store and files without a notification.
            tokio::time::sleep(POLL).await;
        }
        let message = format!("waited {} s in vain until {what}", PATIENCE.as_secs());
        Err(Failure::new(message)
            .hint("run it again with --keep and look at the logs of the workers")
            .into())
    }

    fn process(&self, name: &str) -> Result<&WorkerProcess, Stop> {
        let found = self.processes.iter().find(|process| process.name == name);
        found.ok_or_else(|| Failure::new(format!("{name} is not here")).into())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// Prints a line.
    pub(super) fn tell(&self, text: impl Display) -> Result<(), Stop> {
        self.line(' ', Style::new(), text)
    }

    /// Prints a line about a success.
    pub(super) fn good(&self, text: impl Display) -> Result<(), Stop> {
        self.line('+', GOOD, text)
    }

    /// Prints a line about a fault.
    pub(super) fn mishap(&self, text: impl Display) -> Result<(), Stop> {
        self.line('!', BAD, text)
    }

    fn line(&self, mark: char, style: Style, text: impl Display) -> Result<(), Stop> {
        if self.host.console.is_json() {
            return Ok(());
        }
        let seconds = self.seconds();
        self.host.console.line(&format_args!(
            "{QUIET}{seconds:5.1} s{QUIET:#} {style}{mark} {text}{style:#}"
        ))?;
        Ok(())
    }
}

/// The reason, if this log line reports that the lease was lost or its settle refused.
fn reason_of_a_loss(line: &str, taken: &Takeover) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields")?;
    let message = fields.get("message")?.as_str()?;
    let is_refused = message.starts_with("a settle was refused")
        && fields.get("item")?.as_str()? == taken.id.to_string();
    if is_refused {
        return Some("refused".to_owned());
    }
    let is_lost =
        message.starts_with("lost a lease") && fields.get("fence")?.as_i64()? == taken.fence_old;
    is_lost.then(|| fields.get("reason")?.as_str().map(str::to_owned))?
}

fn cannot(what: &str, cause: &dyn Display) -> Failure {
    Failure::new(format!("the demo cannot {what}")).cause(cause)
}
