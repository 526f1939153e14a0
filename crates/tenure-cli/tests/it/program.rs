//! Runs the real program, on an SQLite file and on PostgreSQL.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;
use tenure::lease::{Claim, Held, Settle};
use tenure::operate::OnDead;
use tenure::{Event, Outcome, Tenure, Term};
use tenure_store::testing;

/// The id of the user `nobody`, for tests that run as a superuser.
pub(crate) const NOBODY: u32 = 65_534;

/// A database and a folder to run the program in; both are removed with the value.
pub(crate) struct Place {
    pub(crate) url: String,
    folder: TempDir,
    _database: Option<testing::Database>,
}

/// A place on an SQLite file that does not exist yet.
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

pub(crate) fn on(database: testing::Database) -> Place {
    Place {
        url: database.url.clone(),
        folder: tempfile::tempdir().unwrap(),
        _database: Some(database),
    }
}

/// One place on each database, migrated.
pub(crate) async fn everywhere() -> [Place; 2] {
    let file = sqlite();
    testing::migrated_file(&file.file()).await;
    [file, on(testing::migrated().await)]
}

impl Place {
    /// Runs the program with nothing on its input.
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        self.run_with(args, b"")
    }

    /// Runs the program with this input.
    pub(crate) fn run_with(&self, args: &[&str], input: &[u8]) -> Finished {
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
        command.args(args);
        finish(command, input)
    }

    /// Runs the program while file modes forbid writes to its SQLite file and folder. Modes do not
    /// bind a superuser, so a superuser runs it as the user `nobody`.
    pub(crate) fn run_unwritable(&self, args: &[&str]) -> Finished {
        let folder = self.folder.path();
        let program = folder.join("tenure");
        // Another process makes the copy. If this process opened the copy for writing, a child
        // forked by another test would inherit the open file, and the copy could not be executed.
        let copied = Command::new("cp")
            .args([Path::new(env!("CARGO_BIN_EXE_tenure")), &program])
            .status();
        assert!(copied.unwrap().success());
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
        let output = finish(command, b"");
        mode(folder, 0o755);
        mode(&self.file(), 0o644);
        output
    }

    /// Starts the program in the background.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
        command.args(args);
        Self::start_command(command)
    }

    /// Starts a command in the background.
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
            read: String::new(),
            child,
        }
    }

    /// Writes a file into the folder that the program runs in.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Returns a command in this place, not yet started; its environment is only the address of the
    /// database.
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

    /// Enqueues an event of this topic; returns its id.
    pub(crate) fn enqueue(&self, topic: &str) -> String {
        let output = self.run(&["enqueue", topic, "1", "--json"]).succeeded();
        output.field("id")
    }

    /// Enqueues an event with this ordering key; returns its id.
    pub(crate) fn enqueue_keyed(&self, key: &str) -> String {
        let args = ["enqueue", "keyed", "1", "--key", key, "--json"];
        self.run(&args).succeeded().field("id")
    }

    /// Enqueues this many events of a thousand bytes each.
    pub(crate) async fn enqueue_many(&self, number: usize) {
        let payload = "x".repeat(1000);
        let event = Event::new("many", &payload).unwrap();
        let events = vec![event; number];
        self.tenure().await.enqueue_now(&events).await.unwrap();
    }

    /// Opens the database of this place.
    pub(crate) async fn tenure(&self) -> Tenure {
        Tenure::open(&self.url).await.unwrap()
    }

    /// Claims all due events for the default term. Waits up to half a minute until one is due.
    pub(crate) async fn held(&self) -> (Tenure, Held) {
        let tenure = self.tenure().await;
        let held = soon(async || tenure.claim(10_000).await.unwrap()).await;
        (tenure, held)
    }

    /// Settles all due events as done.
    pub(crate) async fn done(&self) {
        let (tenure, held) = self.held().await;
        let settle = Settle::new(held.lease.token.clone()).done(held.ids());
        assert_eq!(tenure.settle(&settle).await.unwrap().refused().count(), 0);
    }

    /// Settles all due events with this outcome; a dead event blocks its key.
    pub(crate) async fn settled(&self, outcome: Outcome) {
        let (tenure, held) = self.held().await;
        let mut settle = Settle::new(held.lease.token.clone()).on_dead(OnDead::Block);
        for id in held.ids() {
            settle = settle.item(id, outcome.clone());
        }
        assert_eq!(tenure.settle(&settle).await.unwrap().refused().count(), 0);
    }

    /// Claims all due events under a lease that has lapsed on return.
    pub(crate) async fn lapsed(&self) {
        let tenure = self.tenure().await;
        let term = Term::new(Duration::from_millis(1)).unwrap();
        // The claim does not recover lapsed leases, because its term is so short that it would reap
        // its own lease.
        let claim = Claim::new(tenure.token(), 100).term(term).recovery(None);
        assert!(tenure.claim_with(&claim).await.unwrap().is_some());
        soon(async || (tenure.count().await.unwrap().lapsed > 0).then_some(())).await;
    }
}

/// Polls for an answer, for at most half a minute.
pub(crate) async fn soon<T>(poll: impl AsyncFn() -> Option<T>) -> T {
    let answer = async {
        loop {
            if let Some(answer) = poll().await {
                return answer;
            }
            tokio::time::sleep(tenure_nemesis::POLL).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), answer)
        .await
        .expect("an answer within half a minute")
}

/// A running program; dropping the value kills it.
pub(crate) struct Running {
    child: Child,
    err: BufReader<ChildStderr>,
    out: BufReader<ChildStdout>,
    /// Everything read from the error stream so far.
    read: String,
}

impl Running {
    /// Waits for a line on the error stream that contains `part`.
    #[track_caller]
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.err.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended without {part:?}: {}", self.read);
            self.read.push_str(&line);
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Waits for the next line of the program's output.
    #[track_caller]
    pub(crate) fn out_line(&mut self) -> String {
        let mut line = String::new();
        let read = self.out.read_line(&mut line).unwrap();
        assert!(read > 0, "it ended without another line: {}", self.read);
        line
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Pauses the program while it has no open transaction on the SQLite file of the place: a
    /// paused writer would block all other workers.
    pub(crate) fn pause(&self, place: &Place) {
        let writer = place.url.starts_with("sqlite:").then(|| {
            let conn = rusqlite::Connection::open(place.file()).unwrap();
            conn.busy_timeout(Duration::from_mins(1)).unwrap();
            conn.execute_batch("begin immediate").unwrap();
            conn
        });
        self.signal(Signal::STOP);
        let status = waitpid(Some(Pid::from_child(&self.child)), WaitOptions::UNTRACED);
        let status = status.unwrap();
        assert!(status.is_some_and(|(_, status)| status.stopped()));
        // Closing the connection rolls its transaction back.
        drop(writer);
    }

    /// Waits until the program exits.
    pub(crate) fn wait(mut self) -> Finished {
        let mut err = std::mem::take(&mut self.read);
        self.err.read_to_string(&mut err).unwrap();
        let mut out = String::new();
        self.out.read_to_string(&mut out).unwrap();
        let code = self.child.wait().unwrap().code();
        Finished { code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The kill fails if the process has exited, which is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The exit code and the output of a program.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Finished {
    /// Asserts success.
    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        self.ended(0)
    }

    /// Asserts this exit code, and that there was no panic.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        self
    }

    /// Asserts a failure with this code, message and hint, and nothing on standard output.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, message: &str, hint: &str) -> Self {
        let output = self.ended(code);
        assert_eq!(output.out, "", "{output:?}");
        assert!(output.err.starts_with("error: "), "{output:?}");
        assert!(output.err.contains(message), "no {message:?} in {output:?}");
        let hints = output
            .err
            .split_once("hint: ")
            .map_or("", |(_, hints)| hints);
        assert!(hints.contains(hint), "no hint {hint:?} in {output:?}");
        output
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

/// Runs a command to its end. The command may close its input early.
pub(crate) fn finish(mut command: Command, input: &[u8]) -> Finished {
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
    Finished {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
