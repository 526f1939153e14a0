//! Runs the real program, on an SQLite file and on PostgreSQL.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also where it is not in the test function itself"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tenure::{Claim, Event, Held, OnDead, Outcome, Settle, Tenure, Term};
use tenure_store::testing;

/// A user that owns nothing, for tests that a superuser runs.
pub(crate) const NOBODY: u32 = 65_534;

/// A database to run the program on; removed with the value.
pub(crate) struct Place {
    pub(crate) url: String,
    folder: TempDir,
    _database: Option<testing::Database>,
}

/// A place on an SQLite file that is not there yet.
pub(crate) fn sqlite() -> Place {
    let folder = tempfile::tempdir().unwrap();
    Place {
        url: format!("sqlite://{}", folder.path().join("tenure.db").display()),
        folder,
        _database: None,
    }
}

/// A place on an empty PostgreSQL database.
pub(crate) async fn postgres() -> Place {
    on(testing::postgres().await)
}

/// A place on this database.
pub(crate) fn on(database: testing::Database) -> Place {
    Place {
        url: database.url.clone(),
        folder: tempfile::tempdir().unwrap(),
        _database: Some(database),
    }
}

/// One place on each database, migrated.
pub(crate) async fn everywhere() -> [Place; 2] {
    let places = [sqlite(), postgres().await];
    for place in &places {
        place.run(&["migrate"]).succeeded();
    }
    places
}

impl Place {
    /// Runs the program with nothing on its input.
    pub(crate) fn run(&self, args: &[&str]) -> Said {
        self.run_with(args, b"")
    }

    /// Runs the program with this on its input.
    pub(crate) fn run_with(&self, args: &[&str], input: &[u8]) -> Said {
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
        command.args(args);
        said(command, input)
    }

    /// Runs the program while its SQLite file and folder take no writes. Modes forbid them; a
    /// superuser, whom modes do not bind, runs it as nobody.
    pub(crate) fn run_unwritable(&self, args: &[&str]) -> Said {
        let folder = self.folder.path();
        let program = folder.join("tenure");
        fs::copy(env!("CARGO_BIN_EXE_tenure"), &program).unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&self.file(), 0o444);
        mode(folder, 0o555);
        let mut command = self.command(&program);
        let mut append = fs::OpenOptions::new();
        if append.append(true).open(self.file()).is_ok() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.args(args);
        let said = said(command, b"");
        mode(folder, 0o755);
        mode(&self.file(), 0o644);
        said
    }

    /// Starts the program and lets it run.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
        command.args(args);
        Self::start_command(command)
    }

    /// Starts a command and lets it run.
    pub(crate) fn start_command(mut command: Command) -> Running {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running {
            err: BufReader::new(child.stderr.take().unwrap()),
            out: BufReader::new(child.stdout.take().unwrap()),
            seen: String::new(),
            child,
        }
    }

    /// Writes a file into the folder that the program runs in.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// The program, on this place and not yet started. It sees nothing of our environment.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("TENURE_DATABASE", &self.url)
            .current_dir(self.folder.path());
        command
    }

    /// The SQLite file of this place.
    pub(crate) fn file(&self) -> PathBuf {
        self.path("tenure.db")
    }

    /// A file in the folder that the program runs in.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The id of a fresh event of this topic.
    pub(crate) fn enqueue(&self, topic: &str) -> String {
        let said = self.run(&["enqueue", topic, "1", "--json"]).succeeded();
        said.field("id")
    }

    /// The id of a fresh event with this ordering key.
    pub(crate) fn enqueue_keyed(&self, key: &str) -> String {
        let args = ["enqueue", "keyed", "1", "--key", key, "--json"];
        self.run(&args).succeeded().field("id")
    }

    /// This many fresh events of a thousand bytes each.
    pub(crate) async fn enqueue_many(&self, number: usize) {
        let payload = "x".repeat(1000);
        let event = Event::new("many", &payload).unwrap();
        let events = vec![event; number];
        self.tenure().await.enqueue_all(&events).await.unwrap();
    }

    /// The place as a worker sees it.
    pub(crate) async fn tenure(&self) -> Tenure {
        Tenure::open(&self.url).await.unwrap()
    }

    /// What is due, or soon will be, held by a worker for half a minute.
    pub(crate) async fn held(&self) -> (Tenure, Held) {
        let tenure = self.tenure().await;
        let held = soon(async || tenure.claim(10_000).await.unwrap()).await;
        (tenure, held)
    }

    /// What is due, settled as done.
    pub(crate) async fn done(&self) {
        let (tenure, held) = self.held().await;
        let settle = Settle::new(held.lease.token.clone()).done(held.ids());
        assert_eq!(tenure.settle(&settle).await.unwrap().refused().count(), 0);
    }

    /// What is due, settled with this outcome; a dead event blocks its key.
    pub(crate) async fn settled(&self, outcome: Outcome) {
        let (tenure, held) = self.held().await;
        let mut settle = Settle::new(held.lease.token.clone()).on_dead(OnDead::Block);
        for id in held.ids() {
            settle = settle.item(id, outcome.clone());
        }
        assert_eq!(tenure.settle(&settle).await.unwrap().refused().count(), 0);
    }

    /// What is due, held under a lease that has lapsed by now.
    pub(crate) async fn lapsed(&self) {
        let tenure = self.tenure().await;
        let term = Term::new(Duration::from_millis(1)).unwrap();
        // Without recovery: this very claim would reap its own lease, so short is the term.
        let ask = Claim::new(tenure.token(), 100).term(term).recovery(None);
        assert!(tenure.claim_with(&ask).await.unwrap().is_some());
        soon(async || (tenure.count().await.unwrap().lapsed > 0).then_some(())).await;
    }
}

/// Asks until there is an answer; half a minute without one is a failure.
pub(crate) async fn soon<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let answer = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), answer)
        .await
        .expect("it comes about within half a minute")
}

/// A program that runs; it is killed with the value.
pub(crate) struct Running {
    child: Child,
    err: BufReader<ChildStderr>,
    out: BufReader<ChildStdout>,
    /// What it said on the error stream so far.
    seen: String,
}

impl Running {
    /// Waits for a line on the error stream that holds `part`.
    #[track_caller]
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.err.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended without {part:?}: {}", self.seen);
            self.seen.push_str(&line);
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Waits for the next line of its output.
    #[track_caller]
    pub(crate) fn out_line(&mut self) -> String {
        let mut line = String::new();
        let read = self.out.read_line(&mut line).unwrap();
        assert!(read > 0, "it ended without another line: {}", self.seen);
        line
    }

    /// Tells it to end.
    pub(crate) fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Sends it this signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> Said {
        let mut err = std::mem::take(&mut self.seen);
        self.err.read_to_string(&mut err).unwrap();
        let mut out = String::new();
        self.out.read_to_string(&mut out).unwrap();
        let code = self.child.wait().unwrap().code();
        Said { code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended cannot be killed any more.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What the program said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// It did what it was asked for.
    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        self.ended(0)
    }

    /// It ended with this code, and never by a panic.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        self
    }

    /// It failed with this code, message and hint, and put nothing where a script would read it.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, message: &str, hint: &str) -> Self {
        let said = self.ended(code);
        assert_eq!(said.out, "", "{said:?}");
        assert!(said.err.starts_with("error: "), "{said:?}");
        assert!(said.err.contains(message), "no {message:?} in {said:?}");
        let hints = said.err.split_once("hint: ").map_or("", |(_, hints)| hints);
        assert!(hints.contains(hint), "no hint {hint:?} in {said:?}");
        said
    }

    /// A field of the only line of JSON, as text.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> String {
        let objects = self.objects();
        assert_eq!(objects.len(), 1, "{self:?}");
        objects[0][name].to_string()
    }

    /// The lines of JSON.
    #[track_caller]
    pub(crate) fn objects(&self) -> Vec<serde_json::Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// One field of every line of JSON, as text.
    #[track_caller]
    pub(crate) fn column(&self, name: &str) -> Vec<String> {
        self.objects()
            .iter()
            .map(|object| object[name].to_string())
            .collect()
    }
}

/// Runs a command to its end. The input is closed early when the command does not want it all.
pub(crate) fn said(mut command: Command, input: &[u8]) -> Said {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let written = child.stdin.take().unwrap().write_all(input);
    let output: Output = child.wait_with_output().unwrap();
    if let Err(error) = written {
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    }
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
