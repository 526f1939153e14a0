//! A running command and its process group: reading its output, stopping it, judging its exit.

use std::future::Future;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tenure_core::{PAYLOAD_BYTES_MAX, PublishError};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::time::timeout;

/// Time between `SIGTERM` and `SIGKILL`.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// Time for reading the rest of the output after the command has exited, if other processes still
/// hold the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Size of the end of standard error that becomes the reason: bytes read, then characters kept.
pub(super) const STDERR_BYTES_MAX: usize = 4096;
const STDERR_CHARACTERS_MAX: usize = 500;
/// Size of the end of standard output that is returned: a payload and the line breaks around it.
const STDOUT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 16;

/// From `sysexits.h`: the input is invalid, so a retry cannot help.
const EX_DATAERR: i32 = 65;
/// From `sysexits.h`: temporary failure.
const EX_TEMPFAIL: i32 = 75;

/// From the shell: the command exists but cannot be run.
const CANNOT_RUN: i32 = 126;
/// From the shell: command not found.
const NOT_FOUND: i32 = 127;

/// Reads a command's output; `None` once it is closed.
pub(super) type PipeIo<'a> = Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>;

/// Waits for `end` while reading the command's output.
async fn with_pipes<T>(pipes: &mut PipeIo<'_>, end: impl Future<Output = T>) -> T {
    tokio::pin!(end);
    if let Some(running) = pipes {
        tokio::select! {
            value = &mut end => return value,
            () = running => *pipes = None,
        }
    }
    end.await
}

/// Reads the rest of the output. The output is complete unless a process outside the group holds a
/// pipe open.
async fn drain(pipes: PipeIo<'_>) {
    if let Some(running) = pipes
        && timeout(DRAIN_TIMEOUT, running).await.is_err()
    {
        tracing::debug!("the command's output stayed open after it exited");
    }
}

/// A running command. Dropping it kills the group; the runtime then reaps the leader, so that no
/// zombie stays.
pub(super) struct Running {
    // Declared before the child, so that the group is killed while the pid still belongs to the
    // leader.
    group: Group,
    pub(super) child: Child,
}

impl Running {
    pub(super) fn new(child: Child) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            group: Group(leader.and_then(Pid::from_raw)),
            child,
        }
    }

    /// Reads the command's output until it exits or its time is over; returns the end of its
    /// standard output, if that is piped.
    pub(super) async fn answer(mut self, time: Duration) -> Result<Vec<u8>, PublishError> {
        let (mut stderr, mut stdout) = (Vec::new(), Vec::new());
        let (error_pipe, output) = (self.child.stderr.take(), self.child.stdout.take());
        let mut pipes: PipeIo<'_> = Some(Box::pin(async {
            tokio::join!(
                read_tail(error_pipe, &mut stderr, STDERR_BYTES_MAX),
                read_tail(output, &mut stdout, STDOUT_BYTES_MAX),
            );
        }));
        let Ok(status) = timeout(time, with_pipes(&mut pipes, self.child.wait())).await else {
            self.stop(pipes).await;
            let time = whole_millis(time);
            let reason = format!("stopped: it was still running after {time:?}");
            return Err(PublishError::retry(reason));
        };
        self.group.kill();
        drain(pipes).await;
        match status {
            Ok(status) => judge(status, &stderr).map(|()| stdout),
            Err(cause) => Err(PublishError::retry(format!(
                "the exit status of the command is unknown: {cause}"
            ))),
        }
    }

    /// Kills the processes that are left in the group.
    pub(super) fn kill_group(&mut self) {
        self.group.kill();
    }

    /// Sends `SIGTERM`, waits for [`GRACE`], then kills the group.
    pub(super) async fn stop(&mut self, mut pipes: PipeIo<'_>) {
        self.group.signal(Signal::TERM);
        // Keep reading: a closed pipe would kill the command before it can clean up.
        let status = timeout(GRACE, with_pipes(&mut pipes, self.child.wait())).await;
        self.group.kill();
        if status.is_err()
            && let Err(cause) = self.child.wait().await
        {
            tracing::warn!(cause = %cause, "could not wait for a killed command");
        }
    }
}

/// Process group of a command; killed once, at the latest when dropped.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.0
            && let Err(cause) = kill_process_group(leader, signal)
        {
            // The group is empty.
            tracing::trace!(cause = %cause, "could not signal a process group");
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The time without fractions of a millisecond, for messages.
pub(super) fn whole_millis(time: Duration) -> Duration {
    let millis = time.as_millis().try_into();
    millis.map_or(time, Duration::from_millis)
}

/// Keeps the last `most` bytes of the output and discards the rest.
async fn read_tail(output: Option<impl AsyncRead + Unpin>, tail: &mut Vec<u8>, most: usize) {
    let Some(mut output) = output else { return };
    let mut piece = [0; 1024];
    while let Ok(bytes) = output.read(&mut piece).await
        && bytes > 0
    {
        tail.extend_from_slice(piece.get(..bytes).unwrap_or_default());
        // Truncate rarely: moving the bytes for every piece would be slow.
        if tail.len() >= most.saturating_mul(2) {
            tail.drain(..tail.len().saturating_sub(most));
        }
    }
    tail.drain(..tail.len().saturating_sub(most));
}

/// Error that the exit of a command stands for, with the end of its standard error.
pub(super) fn judge(status: ExitStatus, stderr: &[u8]) -> Result<(), PublishError> {
    if status.success() {
        return Ok(());
    }
    let what = match (status.code(), status.signal()) {
        (Some(code), _) => exit_code(code),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    };
    let reason = match one_line(stderr).as_str() {
        "" => what,
        message => format!("{what}: {message}"),
    };
    Err(match status.code() {
        Some(EX_DATAERR) => PublishError::reject(reason),
        // A mistyped command is not the fault of the event, so the event must not become dead
        // because of it.
        Some(EX_TEMPFAIL | CANNOT_RUN | NOT_FOUND) => PublishError::away(reason),
        _ => PublishError::retry(reason),
    })
}

fn exit_code(code: i32) -> String {
    match code {
        CANNOT_RUN => format!("exit code {code} (the command cannot be run)"),
        NOT_FOUND => format!("exit code {code} (command not found)"),
        _ => format!("exit code {code}"),
    }
}

/// Joins the end of standard error into one line without control characters.
pub(super) fn one_line(stderr: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(stderr)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let surplus = line.chars().count().saturating_sub(STDERR_CHARACTERS_MAX);
    line.chars().skip(surplus).collect()
}
