//! The processes of a run: workers of the real program on one database, each of which can be
//! killed, stopped and continued. Whatever happens to the test, they end with it.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tenure::{Clock as _, ItemId, SystemClock, Timestamp};
use tenure_store::testing::Server;
use tokio::time::{Instant, sleep};

use super::history::{About, Fault, Harm, Told};
use crate::program::{self, Place};

/// How often a fact is looked for.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// A worker that says nothing for so long after its start will not any more.
const START_MAX: Duration = Duration::from_secs(45);

/// A worker that goes on looks at its deadlines far more often than this.
const NOTICE_MAX: Duration = Duration::from_secs(1);

/// What every worker is configured to. The receiver is two files, one written by the publisher
/// `lines`, one by commands that take their time: those of odd events write before they sleep, the
/// others after it, by then perhaps as orphans of a worker that was killed.
const CONFIG: &str = r#"
[lease]
term = "TERM"

[retry]
max_crashes = CRASHES

[worker]
concurrency = 8
batch = 16

[log]
format = "json"
level = "info"

[publishers.file]
kind = "lines"
path = "lines.jsonl"

[publishers.command]
kind = "exec"
command = '''
RECEIVE
[ $((TENURE_ID % 2)) = 0 ] || receive
sleep 0.$(((TENURE_ID * 37 + TENURE_FENCE * 11) % 60 + 30))
[ $((TENURE_ID % 2)) = 1 ] || receive
'''

[publishers.brisk]
kind = "exec"
command = '''
RECEIVE
receive
sleep 0.02
'''

[[routes]]
topics = ["quick"]
publisher = "file"

[[routes]]
topics = ["slow"]
publisher = "command"

[[routes]]
topics = ["brisk"]
publisher = "brisk"
"#;

/// How a command says what it has received.
const RECEIVE: &str = r#"receive() {
    printf '{"id":%s,"event_id":"%s","fence":%s,"attempt":%s}\n' \
        "$TENURE_ID" "$TENURE_EVENT_ID" "$TENURE_FENCE" "$TENURE_ATTEMPT" >> exec.jsonl
}"#;

/// A database and the workers on it.
pub(super) struct World {
    pub(super) place: Place,
    /// The server of this run alone, where there is one.
    pub(super) server: Option<Server>,
    /// Whoever does something to a worker has its seat meanwhile.
    pub(super) seats: Vec<tokio::sync::Mutex<Option<Process>>>,
    faults: Mutex<Vec<Fault>>,
    ended: Mutex<Vec<String>>,
    starts: AtomicU32,
}

impl World {
    /// On an SQLite file.
    pub(super) fn sqlite() -> Self {
        Self::new(program::sqlite(), None)
    }

    /// On a PostgreSQL server of its own that keeps what it has committed.
    pub(super) async fn postgres() -> Self {
        let server = Server::start().await;
        let place = program::on(server.database().await);
        Self::new(place, Some(server))
    }

    /// On a database of the PostgreSQL server that all tests share; nobody kills that one.
    pub(super) async fn shared_postgres() -> Self {
        Self::new(program::postgres().await, None)
    }

    fn new(place: Place, server: Option<Server>) -> Self {
        place.run(&["migrate"]).succeeded();
        Self {
            place,
            server,
            seats: Vec::new(),
            faults: Mutex::default(),
            ended: Mutex::default(),
            starts: AtomicU32::new(0),
        }
    }

    /// Writes the configuration of the workers.
    pub(super) fn configure(&self, term: Duration, max_crashes: u32) {
        let text = CONFIG
            .replace("RECEIVE", RECEIVE)
            .replace("TERM", &tenure::duration_text(term))
            .replace("CRASHES", &max_crashes.to_string());
        self.place.write("tenure.toml", &text);
    }

    /// Starts so many workers; they are ready.
    pub(super) async fn crew(&mut self, workers: usize, args: &[&str]) {
        for _ in 0..workers {
            let process = self.start(args).await;
            self.seats.push(tokio::sync::Mutex::new(Some(process)));
        }
    }

    /// Starts a worker until it is ready, as a supervisor would.
    pub(super) async fn start(&self, args: &[&str]) -> Process {
        loop {
            let mut process = self.spawn(args);
            if process.is_ready().await {
                return process;
            }
        }
    }

    /// Starts a worker that is not ready yet.
    pub(super) fn spawn(&self, args: &[&str]) -> Process {
        self.spawn_as("work", args)
    }

    /// Starts a worker by this command; its name is `w` and the number of its start.
    pub(super) fn spawn_as(&self, command: &str, args: &[&str]) -> Process {
        let number = self.starts.fetch_add(1, Ordering::Relaxed);
        let log = self.place.path(&format!("worker-{number}.log"));
        let program = PathBuf::from(env!("CARGO_BIN_EXE_tenure"));
        let child = self
            .place
            .command(&program)
            // The shell of the commands finds its programs there.
            .env("PATH", "/usr/bin:/bin")
            .args([command, "--name", &format!("w{number}")])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Process {
            child,
            log,
            holder: String::new(),
        }
    }

    pub(super) fn note(&self, what: Harm, from: Timestamp, to: Timestamp) {
        self.faults.lock().unwrap().push(Fault { what, from, to });
    }

    pub(super) fn faults(&self) -> Vec<Fault> {
        self.faults.lock().unwrap().clone()
    }

    /// The workers that ended by themselves.
    pub(super) fn ended(&self) -> Vec<String> {
        self.ended.lock().unwrap().clone()
    }

    /// The worker in this seat. One that has ended by itself is noted, and replaced.
    async fn seated<'a>(&self, seat: &'a mut Option<Process>) -> &'a mut Process {
        if seat.as_mut().is_some_and(|process| self.has_ended(process)) {
            *seat = None;
        }
        if seat.is_none() {
            *seat = Some(self.start(&[]).await);
        }
        seat.as_mut().unwrap()
    }

    /// Whether a worker has ended although nobody ended it; that is noted.
    fn has_ended(&self, process: &mut Process) -> bool {
        let has_ended = process.has_ended();
        if has_ended {
            self.ended.lock().unwrap().push(process.holder.clone());
        }
        has_ended
    }

    /// Kills the worker in this seat and puts a new one there.
    pub(super) async fn kill(&self, seat: &mut Option<Process>) {
        let process = self.seated(seat).await;
        let from = now();
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        self.note(Harm::Killed(process.holder.clone()), from, now());
        *seat = Some(self.start(&[]).await);
    }

    /// Stops the worker in this seat for so long, then lets it go on until it has taken notice.
    pub(super) async fn pause(&self, seat: &mut Option<Process>, length: Duration) {
        let process = self.seated(seat).await;
        let from = now();
        process.signal(Signal::STOP);
        let is_blocked = self.is_blocked().await;
        sleep(length.saturating_sub(now().since(from))).await;
        let to = now();
        process.signal(Signal::CONT);
        self.note(Harm::Paused(process.holder.clone()), from, to);
        if is_blocked {
            self.note(Harm::Outage, from, to);
        }
        process.has_spoken().await;
    }

    /// Whether a stopped worker keeps all others from writing: it was stopped in the middle of a
    /// transaction, and in SQLite there is one writer.
    async fn is_blocked(&self) -> bool {
        if !self.place.url.starts_with("sqlite:") {
            return false;
        }
        let file = self.place.file();
        let probe = move || {
            let conn = rusqlite::Connection::open(file).unwrap();
            // Longer than any transaction of a worker that runs.
            conn.busy_timeout(Duration::from_secs(1)).unwrap();
            conn.execute_batch("begin immediate; rollback").is_err()
        };
        tokio::task::spawn_blocking(probe).await.unwrap()
    }

    /// Kills the database server and starts it again.
    pub(super) async fn kill_database(&self) {
        let server = self.server.as_ref().expect("there is a server to kill");
        let from = now();
        server.kill().await;
        server.restart().await;
        self.note(Harm::Outage, from, now());
    }

    /// Ends all workers in peace; what they said of lost holds since the world began.
    pub(super) async fn end(&mut self) -> Vec<Told> {
        for seat in std::mem::take(&mut self.seats) {
            let mut process = seat.into_inner().unwrap();
            if self.has_ended(&mut process) {
                continue;
            }
            process.signal(Signal::TERM);
            within(START_MAX, async || process.has_ended().then_some(())).await;
            assert!(process.child.wait().unwrap().success());
        }
        let starts = self.starts.load(Ordering::Relaxed);
        (0..starts).flat_map(|nth| self.told(nth)).collect()
    }

    /// What all workers have said so far.
    pub(super) fn logs(&self) -> String {
        let starts = self.starts.load(Ordering::Relaxed);
        (0..starts).map(|start| self.log(start)).collect()
    }

    fn log(&self, start: u32) -> String {
        let path = self.place.path(&format!("worker-{start}.log"));
        std::fs::read_to_string(path).unwrap()
    }

    /// What the worker of this start said of holds that it lost.
    fn told(&self, start: u32) -> Vec<Told> {
        let text = self.log(start);
        assert!(!text.contains("panicked"), "a worker panicked: {text}");
        assert!(!text.contains("a fault of Tenure"), "{text}");
        text.lines().filter_map(told).collect()
    }
}

/// What a line of the log says of a lost hold.
fn told(line: &str) -> Option<Told> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields")?;
    let number = |name: &str| fields.get(name)?.as_i64();
    let message = fields.get("message")?.as_str()?;
    let about = if message.starts_with("lost a hold") {
        About::Lease(number("fence")?)
    } else if message.starts_with("a settle was refused") {
        let item = fields.get("item")?.as_str()?;
        About::Event(item.parse::<ItemId>().ok()?.number())
    } else if message.starts_with("gave up a settle") {
        About::Settle
    } else if message.starts_with("gave back a claim") {
        About::Claim
    } else {
        return None;
    };
    Some(Told {
        holder: line.get("worker")?.as_str()?.to_owned(),
        about,
    })
}

/// A worker's process; killed with the value.
pub(super) struct Process {
    child: Child,
    log: PathBuf,
    /// Its id in the store, once it is ready.
    pub(super) holder: String,
}

impl Process {
    /// Kills it, and answers when.
    pub(super) fn kill(&mut self) -> Timestamp {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        now()
    }

    /// What it has said so far.
    pub(super) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it works; `false` when it ended before.
    pub(super) async fn is_ready(&mut self) -> bool {
        within(START_MAX, async || {
            if let Some(holder) = holder(&std::fs::read_to_string(&self.log).unwrap()) {
                self.holder = holder;
                return Some(true);
            }
            self.has_ended().then_some(false)
        })
        .await
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it; nothing of it runs any more.
    pub(super) fn stop(&self) {
        self.signal(Signal::STOP);
        let id = Pid::from_child(&self.child);
        let stopped = waitpid(Some(id), WaitOptions::UNTRACED).unwrap();
        assert!(stopped.is_some_and(|(_, status)| status.stopped()));
    }

    /// Waits until a worker that goes on has said something, for as long as it takes one to find
    /// out what it has lost: one that held nothing has nothing to say.
    async fn has_spoken(&self) {
        let length = || std::fs::metadata(&self.log).unwrap().len();
        let (before, start) = (length(), Instant::now());
        while length() == before && start.elapsed() < NOTICE_MAX {
            sleep(LOOK).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended cannot be killed any more.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The id of the worker that says in its log that it is ready.
fn holder(log: &str) -> Option<String> {
    let lines = log
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let mut lines = lines.filter(|line| line.contains("\"opened\""));
    let line: serde_json::Value = serde_json::from_str(lines.next()?).unwrap();
    Some(line["worker"].as_str().unwrap().to_owned())
}

/// The present moment, by the clock of this machine.
pub(super) fn now() -> Timestamp {
    SystemClock.now()
}

/// Asks until there is an answer; none in time is a failure.
pub(super) async fn within<T>(longest: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            start.elapsed() < longest,
            "it did not come about within {longest:?}"
        );
        sleep(LOOK).await;
    }
}
