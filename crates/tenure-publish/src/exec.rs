//! Publisher that runs a command for each event; the exit code is the outcome.
//!
//! The command leads its own process group. At the end of the run (the command exits, its time is
//! over, or the future is dropped) the publisher kills the whole group, so that no process keeps
//! working on an event whose lease is over. If this process is killed by `SIGKILL`, the group keeps
//! running; the receiver can then refuse its calls by the fence.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tenure_core::{PAYLOAD_BYTES_MAX, Publication, PublishError, Publisher, Publishing};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

/// Time between `SIGTERM` and `SIGKILL`.
const GRACE: Duration = Duration::from_secs(1);
/// Time for reading the rest of the output after the command has exited, if other processes still
/// hold the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Size of the end of standard error that becomes the reason: bytes read, then characters kept.
const STDERR_BYTES_MAX: usize = 4096;
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

/// Runs a command for each event, through `sh -c`.
///
/// The payload is the command's standard input: the JSON text, or the bytes themselves if they were
/// enqueued as bytes. The command need not read it. The publisher discards the output of the
/// command, except the end of its standard error, which is stored as the reason when the command
/// fails; so the command must not print secrets there.
///
/// | exit code | means |
/// |---|---|
/// | 0 | done |
/// | 65 | the event can never succeed: it is dead |
/// | 75 | the receiver is unavailable: retried later, no failure is counted |
/// | 126, 127 | the shell cannot run or find the command: same as 75 |
/// | any other, or a signal | the event failed: retried by the retry policy |
///
/// The environment of the command is that of this program, without the names given to
/// [`Exec::hide`], plus
///
/// | variable | holds |
/// |---|---|
/// | `TENURE_ID` | the id of the event |
/// | `TENURE_EVENT_ID` | the id by which the receiver drops duplicates |
/// | `TENURE_TOPIC`, `TENURE_QUEUE` | its topic and queue |
/// | `TENURE_KEY` | its ordering key, if it has one |
/// | `TENURE_FENCE` | the number of the claim; refuse a lower number for the same event |
/// | `TENURE_ATTEMPT` | 1 at the first attempt |
/// | `TENURE_TIME_LEFT_MS` | milliseconds that the command may run |
/// | `TENURE_HEADER_<NAME>` | a header; upper case, all but letters and digits become `_` |
///
/// If two header names become the same variable, the last by name wins (`a_b` over `a-b`).
///
/// A command that runs too long gets `SIGTERM` and a second later `SIGKILL`, and so do the
/// processes it started; this counts as a failure, whatever the exit code. When the lease of the
/// event is over, the publisher kills the command at once. It also kills processes that are left in
/// the group when the command exits.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::{Event, Fence, ItemId, Publication, PublishErrorKind, Publisher};
/// use tenure_publish::Exec;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let exec = Exec::new(r#"test "$TENURE_TOPIC" = order.paid || exit 65"#)
///     .timeout(Duration::from_secs(10))
///     .hide(["TENURE_DATABASE"]);
/// let publication = |event| Publication {
///     id: ItemId::new(1),
///     event,
///     fence: Fence::new(1),
///     attempt: 1,
///     time_left: Duration::from_secs(30),
/// };
/// let paid = Event::new("order.paid", &7)?;
/// exec.publish(&publication(&paid)).await?;
///
/// let lost = Event::new("order.lost", &7)?;
/// let refused = exec.publish(&publication(&lost)).await.unwrap_err();
/// assert_eq!(refused.kind, PublishErrorKind::Reject);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Exec {
    shell: String,
    command: String,
    timeout: Option<Duration>,
    hidden: Vec<String>,
}

impl Exec {
    /// Runs `command` for each event, at most until the lease of the event is nearly over.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            shell: "sh".to_owned(),
            command: command.into(),
            timeout: None,
            hidden: Vec::new(),
        }
    }

    /// Stops the command after this time, even if the lease lasts longer. Default: no limit.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Removes these variables, which hold secrets, from the command's environment.
    #[must_use]
    pub fn hide<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.hidden.extend(names.into_iter().map(Into::into));
        self
    }

    async fn run(&self, publication: &Publication<'_>) -> Result<(), PublishError> {
        let payload = publication.event.payload_bytes();
        let call = ExecCall {
            input: payload.map_err(|cause| PublishError::reject(cause.to_string()))?,
            variables: variables(publication),
            time_left: publication.time_left,
        };
        self.output(call, Stdio::null()).await.map(drop)
    }

    /// Runs the command for something other than an event; see [`ExecCall`]. Exit codes have the
    /// same meaning. Returns the last line of the command's output.
    ///
    /// # Errors
    /// The error that the exit code stands for, an invalid variable value, or no time left.
    pub async fn call(&self, call: ExecCall) -> Result<Option<String>, PublishError> {
        let stdout = self.output(call, Stdio::piped()).await?;
        Ok(last_line(&stdout))
    }

    async fn output(&self, call: ExecCall, output: Stdio) -> Result<Vec<u8>, PublishError> {
        let time = self.time(call.time_left);
        if time.is_zero() {
            return Err(PublishError::retry("no time was left to run the command"));
        }
        let left = time.as_millis().to_string();
        let mut variables = call.variables;
        variables.push(("TENURE_TIME_LEFT_MS".to_owned(), left));
        let running = self.spawn(variables, output)?;
        running.answer(call.input, time).await
    }

    /// Time that the command may run. The rest of the lease must suffice to stop the command.
    fn time(&self, time_left: Duration) -> Duration {
        let time = time_left.saturating_sub(GRACE.min(time_left / 4));
        self.timeout.map_or(time, |timeout| timeout.min(time))
    }

    fn spawn(
        &self,
        variables: Vec<(String, String)>,
        output: Stdio,
    ) -> Result<Running, PublishError> {
        if let Some((name, _)) = variables.iter().find(|(_, value)| value.contains('\0')) {
            return Err(PublishError::reject(format!(
                "{name} contains a NUL character, which an environment cannot hold"
            )));
        }
        let mut command = Command::new(&self.shell);
        command
            .arg("-c")
            .arg(&self.command)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(Stdio::piped())
            .process_group(0);
        // A variable that the event does not set must not come from this process's environment.
        for name in self.hidden.iter().map(String::as_str).chain(OPTIONAL) {
            command.env_remove(name);
        }
        command.envs(variables);
        let child = command.spawn().map_err(|cause| {
            let reason = format!("cannot run `{}`: {cause}", self.shell);
            if cause.kind() == io::ErrorKind::ArgumentListTooLong {
                // The headers of the event are the most likely cause.
                return PublishError::retry(reason);
            }
            PublishError::away(reason)
        })?;
        Ok(Running::new(child))
    }
}

/// One run of a command for something other than an event, such as a job.
///
/// ```
/// use std::time::Duration;
/// use tenure_publish::{Exec, ExecCall};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let call = ExecCall {
///     input: b"7".to_vec(),
///     variables: vec![("TENURE_KIND".to_owned(), "import".to_owned())],
///     time_left: Duration::from_secs(30),
/// };
/// let printed = Exec::new(r#"echo "$TENURE_KIND"; cat"#).call(call).await?;
/// assert_eq!(printed.as_deref(), Some("7"), "the last line of its output");
/// # Ok(())
/// # }
/// ```
pub struct ExecCall {
    /// The command's standard input.
    pub input: Vec<u8>,
    /// Variables added to this process's environment.
    pub variables: Vec<(String, String)>,
    /// Rest of the lease. The command gets a slightly shorter time in `TENURE_TIME_LEFT_MS`.
    pub time_left: Duration,
}

impl fmt::Debug for ExecCall {
    /// Leaves out the input and the variables, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecCall")
            .field("time_left", &self.time_left)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Exec {
    /// Leaves out the command, which may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec")
            .field("timeout", &self.timeout)
            .field("hidden", &self.hidden)
            .finish_non_exhaustive()
    }
}

impl Publisher for Exec {
    /// Dropping the future kills the command and the processes it started.
    fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a> {
        Box::pin(self.run(publication))
    }
}

/// Variables that not every event has.
const OPTIONAL: [&str; 2] = ["TENURE_EVENT_ID", "TENURE_KEY"];

fn variables(publication: &Publication<'_>) -> Vec<(String, String)> {
    let event = publication.event;
    let always = [
        ("TENURE_ID", publication.id.to_string()),
        ("TENURE_TOPIC", event.topic().to_owned()),
        ("TENURE_QUEUE", event.queue().to_string()),
        ("TENURE_FENCE", publication.fence.to_string()),
        ("TENURE_ATTEMPT", publication.attempt.to_string()),
    ];
    let id = event
        .event_id()
        .map(|id| ("TENURE_EVENT_ID", id.to_string()));
    let key = event.key().map(|key| ("TENURE_KEY", key.to_owned()));
    let own = always.into_iter().chain(id).chain(key);
    let own = own.map(|(name, value)| (name.to_owned(), value));
    let headers = event.headers().iter();
    own.chain(headers.map(|(header, value)| (variable_of(header), value.clone())))
        .collect()
}

fn variable_of(header: &str) -> String {
    let letters = header.chars().map(|c| match c.to_ascii_uppercase() {
        upper @ ('A'..='Z' | '0'..='9') => upper,
        _ => '_',
    });
    format!("TENURE_HEADER_{}", letters.collect::<String>())
}

/// Feeds a command's input and reads its output; `None` once both are closed.
type PipeIo<'a> = Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>;

/// Waits for `end` while feeding and reading the command.
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
struct Running {
    // Declared before the child, so that the group is killed while the pid still belongs to the
    // leader.
    group: Group,
    child: Child,
}

impl Running {
    fn new(child: Child) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            group: Group(leader.and_then(Pid::from_raw)),
            child,
        }
    }

    /// Feeds and reads the command until it exits or its time is over; returns the end of its
    /// standard output, if that is piped.
    async fn answer(mut self, payload: Vec<u8>, time: Duration) -> Result<Vec<u8>, PublishError> {
        let (mut stderr, mut stdout) = (Vec::new(), Vec::new());
        let input = self.child.stdin.take();
        let (error_pipe, output) = (self.child.stderr.take(), self.child.stdout.take());
        let mut pipes: PipeIo<'_> = Some(Box::pin(async {
            tokio::join!(
                feed(input, payload),
                read_tail(error_pipe, &mut stderr, STDERR_BYTES_MAX),
                read_tail(output, &mut stdout, STDOUT_BYTES_MAX),
            );
        }));
        let Ok(status) = timeout(time, with_pipes(&mut pipes, self.child.wait())).await else {
            self.stop(pipes).await;
            let time = time
                .as_millis()
                .try_into()
                .map_or(time, Duration::from_millis);
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

    /// Sends `SIGTERM`, waits for [`GRACE`], then kills the group.
    async fn stop(&mut self, mut pipes: PipeIo<'_>) {
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

/// Writes the payload and closes the input.
async fn feed(input: Option<ChildStdin>, payload: Vec<u8>) {
    if let Some(mut input) = input
        && let Err(cause) = input.write_all(&payload).await
    {
        // A command need not read its input: the exit code decides.
        tracing::trace!(cause = %cause, "a command did not read its whole input");
    }
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

/// Returns the last line that is not blank; `None` if there is none, or if it exceeds 1 MiB or is
/// not UTF-8.
fn last_line(stdout: &[u8]) -> Option<String> {
    // Find the line before decoding: the start of the buffer may be cut within a character.
    let line = stdout.trim_ascii().rsplit(|byte| *byte == b'\n').next()?;
    if line.len() > PAYLOAD_BYTES_MAX {
        tracing::warn!("ignored the last line of a command's output: it exceeds 1 MiB");
        return None;
    }
    let line = std::str::from_utf8(line).ok()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn judge(status: ExitStatus, stderr: &[u8]) -> Result<(), PublishError> {
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
fn one_line(stderr: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(stderr)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let surplus = line.chars().count().saturating_sub(STDERR_CHARACTERS_MAX);
    line.chars().skip(surplus).collect()
}

#[cfg(test)]
mod tests {
    use tenure_core::{Event, Fence, ItemId, PublishErrorKind};

    use super::*;

    #[tokio::test]
    async fn without_a_shell_the_publisher_is_away() {
        let exec = Exec {
            shell: "no-such-shell-at-all".to_owned(),
            ..Exec::new("true")
        };
        let event = Event::new("t", &1).expect("a topic and a number make an event");
        let publication = Publication {
            id: ItemId::new(1),
            event: &event,
            fence: Fence::new(1),
            attempt: 1,
            time_left: Duration::from_secs(30),
        };
        let error = exec.publish(&publication).await.expect_err("no shell");
        assert_eq!(error.kind, PublishErrorKind::Away { after: None });
        assert!(error.reason.contains("no-such-shell-at-all"), "{error}");
    }
}
