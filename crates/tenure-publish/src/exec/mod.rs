//! Publisher that runs a command for each event; the exit code is the outcome.
//!
//! The command leads its own process group. At the end of the run (the command exits, its time is
//! over, or the future is dropped) the publisher kills the whole group, so that no process keeps
//! working on an event whose lease is over. If this process is killed by `SIGKILL`, the group keeps
//! running; the receiver can then refuse its calls by the fence.

mod answer;
mod input;
mod lines;
mod process;
mod running;
mod shell;

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use tenure_core::{
    PAYLOAD_BYTES_MAX, Publication, PublishError, Publisher, Publishing, TraceParent,
};

pub use self::lines::ExecLines;
use self::shell::Shell;

/// Runs a command for each event, through `sh -c`.
///
/// The payload is the command's standard input: the JSON text, or the bytes themselves if they were
/// enqueued as bytes. It is there as a whole before the command starts, so that the death of this
/// process cannot cut it off: in a pipe, or above 4 KiB in a file without a name in the folder for
/// temporary files (`TMPDIR`). The command need not read it. The publisher discards the output of
/// the command, except the end of its standard error, which is stored as the reason when the
/// command fails; so the command must not print secrets there.
///
/// | exit code | means |
/// |---|---|
/// | 0 | done |
/// | 65 | the event can never succeed: it is dead |
/// | 75 | the receiver is unavailable: retried later, no failure is counted |
/// | 126, 127 | the shell cannot run or find the command: same as 75, and so is a full `TMPDIR` |
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
/// | `TENURE_PAYLOAD_BYTES` | length of the standard input |
/// | `TENURE_HEADER_<NAME>` | a header; upper case, all but letters and digits become `_` |
/// | `TRACEPARENT`, `TRACESTATE` | the headers of these names, if the first is valid |
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
    shell: Shell,
}

impl Exec {
    /// Runs `command` for each event, at most until the lease of the event is nearly over.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            shell: Shell::new(command),
        }
    }

    /// Stops the command after this time, even if the lease lasts longer. Default: no limit.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.shell.timeout = Some(timeout);
        self
    }

    /// Removes these variables, which hold secrets, from the command's environment.
    #[must_use]
    pub fn hide<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.shell.hide(names);
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
        let time = self.shell.time(call.time_left);
        if time.is_zero() {
            return Err(PublishError::retry("no time was left to run the command"));
        }
        let mut variables = call.variables;
        variables.extend([
            (
                "TENURE_TIME_LEFT_MS".to_owned(),
                time.as_millis().to_string(),
            ),
            (
                "TENURE_PAYLOAD_BYTES".to_owned(),
                call.input.len().to_string(),
            ),
        ]);
        let input = input::prepared(call.input).await?;
        let running = self.shell.spawn(variables, input, output)?;
        running.answer(time).await
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exec").field(&self.shell).finish()
    }
}

impl Publisher for Exec {
    /// Dropping the future kills the command and the processes it started.
    fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a> {
        Box::pin(self.run(publication))
    }
}

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
    let headers = headers.map(|(header, value)| (variable_of(header), value.clone()));
    let trace = TraceParent::passed_on(event.headers());
    let trace = trace.map(|(name, value)| (name.to_ascii_uppercase(), value.to_owned()));
    own.chain(headers).chain(trace).collect()
}

fn variable_of(header: &str) -> String {
    let letters = header.chars().map(|c| match c.to_ascii_uppercase() {
        upper @ ('A'..='Z' | '0'..='9') => upper,
        _ => '_',
    });
    format!("TENURE_HEADER_{}", letters.collect::<String>())
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

#[cfg(test)]
mod tests {
    use tenure_core::{Event, Fence, ItemId, PublishErrorKind};

    use super::*;

    #[tokio::test]
    async fn without_a_shell_the_publisher_is_away() {
        let mut exec = Exec::new("true");
        exec.shell.program = "no-such-shell-at-all";
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
