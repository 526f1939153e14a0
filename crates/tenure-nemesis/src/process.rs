//! A child process that can be killed, paused and resumed. Dropping the value kills it.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tenure_core::Timestamp;

use crate::wait::now;

/// A running program.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The worker's id in the store, or its name in the notes.
    pub name: String,
    log: PathBuf,
    out: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a program that appends all its output to a file.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let file = OpenOptions::new().append(true).create(true).open(log);
        let file = file.unwrap();
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Self::spawn(command, log)
    }

    /// Starts a program whose output is read line by line.
    pub fn piped(command: &mut Command) -> Self {
        let mut process = Self::spawn(command.stdout(Stdio::piped()), Path::new(""));
        process.out = process.child.stdout.take().map(BufReader::new);
        process
    }

    fn spawn(command: &mut Command, log: &Path) -> Self {
        Self {
            child: command.stdin(Stdio::null()).spawn().unwrap(),
            name: String::new(),
            log: log.to_owned(),
            out: None,
        }
    }

    /// The command that runs one test of this test program again, as a separate process. The test
    /// reads the argument with [`argument`], and does nothing without one.
    pub fn test(name: &str, argument: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // The test runner takes the argument for an additional filter.
        let argument = format!("argument={argument}");
        command.args(["--exact", name, "--nocapture", &argument]);
        command
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of a piped program; `None` at its end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let out = self.out.as_mut().expect("the output is piped");
        let read = out.read_line(&mut line).unwrap();
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// All output so far of a program with a log.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Kills the process with SIGKILL and waits for its end. Returns the time before the signal.
    pub fn kill(&mut self) -> Timestamp {
        let at = now();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        at
    }

    /// Stops the process with SIGSTOP; waits until all its threads are stopped.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let id = Pid::from_child(&self.child);
        let stopped = waitpid(Some(id), WaitOptions::UNTRACED).unwrap();
        let is_stopped = stopped.is_some_and(|(_, status)| status.stopped());
        assert!(is_stopped, "{} has exited: {}", self.name, self.output());
    }

    /// Resumes a paused process.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns true if the process exited with success; `None` while it runs.
    pub fn succeeded(&mut self) -> Option<bool> {
        let status = self.child.try_wait().unwrap()?;
        Some(status.success())
    }

    /// Returns true if the process has exited.
    pub fn has_exited(&mut self) -> bool {
        self.succeeded().is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has already exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The argument from [`Process::test`], if this process was started by it.
pub fn argument() -> Option<String> {
    std::env::args().find_map(|word| Some(word.strip_prefix("argument=")?.to_owned()))
}
