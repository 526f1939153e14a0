//! Stage: the temporary folder, its database, the worker processes, the events that flow, and the
//! lines that tell of them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tenure::{
    Event, Fence, Filter, Held, ItemId, QueueName, State, StoreError, Tenure, Term, Word,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::facts::Takeover;
use crate::env;
use crate::exit::Exit;
use crate::output::{Output, plain};
use crate::problem::{Problem, Stop};

/// The topic of every event of the demo.
pub(super) const TOPIC: &str = "demo.order";
/// How long a lease lasts.
pub(super) const TERM: Duration = Duration::from_secs(2);

/// What is run for each event: it notes what it received under which fence, and takes a moment.
const HANDLER: &str = "echo \"$TENURE_ID $TENURE_FENCE\" >> received; sleep 0.5";
/// How often an event is written.
const FLOW: Duration = Duration::from_millis(150);
/// How often a fact that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(25);
/// What does not come about within this time does not come about.
const PATIENCE: Duration = Duration::from_secs(30);
/// A store that is written to within this time is not kept by a process that stands still.
const FREE: Duration = Duration::from_millis(500);

const QUIET: Style = Style::new().dimmed();
const BAD: Style = AnsiColor::Red.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();

/// The term of the leases.
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
    /// What was claimed by this process.
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

/// `event 7 (fence 3)`, for people.
pub(super) fn listed(held: &[Holding]) -> String {
    let texts: Vec<_> = held
        .iter()
        .map(|held| format!("event {} (fence {})", held.id, held.fence))
        .collect();
    texts.join(", ")
}

/// A worker process; it ends with the value.
struct Hand {
    name: &'static str,
    child: Child,
}

impl Hand {
    fn signal(&self, signal: Signal) -> Result<(), Stop> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|cause| Stop::from(std::io::Error::from(cause)))
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        // One that has ended cannot be killed any more; one that stands still can.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The events that flow.
struct Flow {
    is_over: Arc<AtomicBool>,
    ids: JoinHandle<Result<Vec<ItemId>, StoreError>>,
}

/// Where the demo takes place.
pub(super) struct Stage {
    output: Output,
    began: Instant,
    // Ended before the folder is removed.
    hands: Vec<Hand>,
    flow: Option<Flow>,
    /// The events that were written beside the flow.
    written: Vec<ItemId>,
    tenure: Tenure,
    folder: TempDir,
}

impl Stage {
    /// Makes the folder and the database.
    pub(super) async fn set(output: Output) -> Result<Self, Stop> {
        let folder = tempfile::Builder::new().prefix("tenure-demo-").tempdir();
        let folder = folder.map_err(|cause| cannot("make a temporary folder", &cause))?;
        let url = format!("sqlite://{}", folder.path().join("demo.db").display());
        let tenure = Tenure::open(&url).await?;
        let stage = Self {
            output,
            began: Instant::now(),
            hands: Vec::new(),
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

    /// Ends the workers; answers where the folder is when it is to be kept.
    pub(super) fn clear(mut self, keep: bool) -> Option<PathBuf> {
        self.hands.clear();
        if let Some(flow) = &self.flow {
            flow.is_over.store(true, Ordering::Relaxed);
        }
        keep.then(|| self.folder.keep())
    }

    /// Starts a worker process.
    pub(super) fn start(&mut self, name: &'static str) -> Result<(), Stop> {
        let program = std::env::current_exe();
        let program = program.map_err(|cause| cannot("find this program", &cause))?;
        let log = File::create(self.log(name)).map_err(|cause| cannot("make a log", &cause))?;
        let mut command = Command::new(program);
        // The user's own configuration is for their own database.
        for (variable, _) in env::given() {
            command.env_remove(variable);
        }
        command
            .args(["work", "--name", name, "--exec", HANDLER])
            .args(["--concurrency", "4", "--batch", "4"])
            .args(["--database", "sqlite://demo.db"])
            .env("TENURE_LEASE_TERM", format!("{}s", TERM.as_secs()))
            .env("TENURE_LOG_FORMAT", "json")
            // One worker per process: the story is about events.
            .env("TENURE_WEBHOOK_SEND", "false")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn();
        let child = child.map_err(|cause| cannot("start a worker", &cause))?;
        self.hands.push(Hand { name, child });
        Ok(())
    }

    /// Waits until this many workers are here.
    pub(super) async fn all_here(&self, count: usize) -> Result<(), Stop> {
        self.until("the workers start", async || {
            let (_, workers) = self.tenure.workers(100).await?;
            Ok((workers.len() == count).then_some(()))
        })
        .await
    }

    /// Lets events be written from now on.
    pub(super) fn open_flow(&mut self) {
        let is_over = Arc::new(AtomicBool::new(false));
        let (tenure, over) = (self.tenure.clone(), Arc::clone(&is_over));
        let ids = tokio::spawn(async move {
            let mut ids = Vec::new();
            let mut ticks = tokio::time::interval(FLOW);
            while !over.load(Ordering::Relaxed) {
                ticks.tick().await;
                let payload = serde_json::json!({ "order": ids.len() + 1 });
                let event = Event::new(TOPIC, &payload)
                    .map_err(|problem| StoreError::invalid("enqueue", &problem))?;
                ids.push(tenure.enqueue_now(event).await?.id());
            }
            Ok(ids)
        });
        self.flow = Some(Flow { is_over, ids });
    }

    /// Writes one event beside the flow.
    pub(super) async fn write(&mut self, event: Event) -> Result<(), Stop> {
        let written = self.tenure.enqueue_now(event).await?;
        self.written.push(written.id());
        Ok(())
    }

    /// Ends the flow; answers all events that were written.
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

    /// Waits until nothing waits and nothing is held.
    pub(super) async fn drained(&self) -> Result<(), Stop> {
        self.until("everything is settled", async || {
            let counts = self.tenure.count().await?;
            Ok((counts.pending() + counts.claimed == 0).then_some(()))
        })
        .await
    }

    /// Stops a worker in the middle of its work; answers what it holds then. It does not stand
    /// still with the database in its hands.
    pub(super) async fn freeze(&self, name: &str) -> Result<Vec<Holding>, Stop> {
        let hand = self.hand(name)?;
        self.until("a worker is in the middle of its work", async || {
            if self.in_work(name).await?.is_empty() {
                return Ok(None);
            }
            hand.signal(Signal::STOP)?;
            let default = QueueName::default();
            let write = self.tenure.add_queue(&default, None);
            if tokio::time::timeout(FREE, write).await.is_ok() {
                let held = self.in_work(name).await?;
                if !held.is_empty() {
                    return Ok(Some(held));
                }
            }
            hand.signal(Signal::CONT)?;
            Ok(None)
        })
        .await
    }

    /// Lets a worker go on.
    pub(super) fn thaw(&self, name: &str) -> Result<(), Stop> {
        self.hand(name)?.signal(Signal::CONT)
    }

    /// Kills a worker.
    pub(super) fn kill(&self, name: &str) -> Result<(), Stop> {
        self.hand(name)?.signal(Signal::KILL)
    }

    /// Tells the workers to end and waits until they have; one that was killed has already.
    pub(super) async fn end_workers(&mut self) -> Result<(), Stop> {
        let mut hands = std::mem::take(&mut self.hands);
        for hand in &mut hands {
            if matches!(hand.child.try_wait(), Ok(None)) {
                hand.signal(Signal::TERM)?;
            }
        }
        for hand in &mut hands {
            let mut left = PATIENCE.as_millis() / LOOK.as_millis();
            while left > 0 && matches!(hand.child.try_wait(), Ok(None)) {
                // The end of a child of the standard library can be asked for, not awaited.
                tokio::time::sleep(LOOK).await;
                left -= 1;
            }
        }
        Ok(())
    }

    /// What this worker holds and has begun: the handler has noted it.
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

    /// Waits until each of these was taken from its holder and given to another; tells of the
    /// first.
    pub(super) async fn taken_over(
        &self,
        held: &[Holding],
        began: Instant,
    ) -> Result<Takeover, Stop> {
        let mut first = None;
        for held in held {
            let taken = self
                .until("someone else takes it over", async || {
                    self.successor(held, began).await
                })
                .await?;
            first.get_or_insert(taken);
        }
        first.ok_or_else(|| Problem::new(Exit::Failed, "nothing was in hand").into())
    }

    async fn successor(&self, held: &Holding, began: Instant) -> Result<Option<Takeover>, Stop> {
        let timeline = self.tenure.timeline(held.id).await?;
        let is_lapsed = timeline
            .iter()
            .any(|hold| hold.fence == held.fence && hold.word == Word::Lapsed);
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

    /// Waits until a worker logs that it lost a hold; answers its reason.
    pub(super) async fn noticed(&self, name: &str) -> Result<String, Stop> {
        self.until("it notices that it is too late", async || {
            let log = std::fs::read_to_string(self.log(name));
            let log = log.map_err(|cause| cannot("read a log", &cause))?;
            Ok(log.lines().find_map(reason_of_a_loss))
        })
        .await
    }

    /// What the handlers have noted: item and fence, in order.
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

    /// Looks until there is an answer.
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
            // What other processes do is seen in the store and in files, which give no notice.
            tokio::time::sleep(LOOK).await;
        }
        let message = format!("waited {} s in vain until {what}", PATIENCE.as_secs());
        Err(Problem::new(Exit::Failed, message)
            .hint("run it again with --keep and look at the logs of the workers")
            .into())
    }

    fn hand(&self, name: &str) -> Result<&Hand, Stop> {
        let found = self.hands.iter().find(|hand| hand.name == name);
        found.ok_or_else(|| Problem::new(Exit::Failed, format!("{name} is not here")).into())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// Tells what happens.
    pub(super) fn tell(&self, text: impl Display) -> Result<(), Stop> {
        self.line(' ', Style::new(), text)
    }

    /// Tells of something good.
    pub(super) fn good(&self, text: impl Display) -> Result<(), Stop> {
        self.line('+', GOOD, text)
    }

    /// Tells of something bad.
    pub(super) fn mishap(&self, text: impl Display) -> Result<(), Stop> {
        self.line('!', BAD, text)
    }

    fn line(&self, mark: char, style: Style, text: impl Display) -> Result<(), Stop> {
        if self.output.is_json() {
            return Ok(());
        }
        let text = plain(&text.to_string());
        self.output.line(format_args!(
            "{QUIET}{:5.1} s{QUIET:#} {style}{mark} {text}{style:#}",
            self.seconds()
        ))
    }
}

/// The reason, if this line of a log tells that a hold was lost.
fn reason_of_a_loss(line: &str) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields")?;
    let message = fields.get("message")?.as_str()?;
    let reason = fields.get("reason")?.as_str()?;
    message
        .starts_with("lost a hold")
        .then(|| reason.to_owned())
}

fn cannot(what: &str, cause: &dyn Display) -> Problem {
    Problem::new(Exit::Failed, format!("the demo cannot {what}")).cause(cause)
}
