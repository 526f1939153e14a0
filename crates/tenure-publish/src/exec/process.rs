//! A process that stays: it takes one event at a time as a line and answers with a line.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::{ItemId, PublishError};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::Instrument as _;

use super::answer::{self, quoted};
use super::running::{GRACE, Running, STDERR_BYTES_MAX, judge, one_line, whole_millis};
use super::shell::Shell;

/// Longest answer, with its line break.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A process between its start and its end. Dropping it kills its process group.
pub(super) struct LineProcess {
    running: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: ErrorLog,
    /// It has answered an event.
    pub(super) has_answered: bool,
}

/// End of one event in a process.
pub(super) enum Exchange {
    /// The process answered and takes the next event.
    Answered(Result<(), PublishError>),
    /// The process had answered earlier events and ended by itself, with exit code 0, instead of
    /// taking this one.
    NotTaken,
    /// The process ended, broke the protocol or took too long; it takes no further event.
    Lost(PublishError),
}

impl LineProcess {
    pub(super) fn start(shell: &Shell) -> Result<Self, PublishError> {
        let mut running = shell.spawn(Vec::new(), Stdio::piped(), Stdio::piped())?;
        let child = &mut running.child;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err(PublishError::away("the process has no pipes"));
        };
        let id = child.id();
        tracing::debug!(process = id, "started a process");
        Ok(Self {
            running,
            input,
            output: BufReader::new(output),
            errors: ErrorLog::start(id, errors),
            has_answered: false,
        })
    }

    /// Returns true if the process still runs and has printed nothing since its last answer.
    pub(super) async fn is_waiting(&mut self) -> bool {
        let process = self.running.child.id();
        // Asked of the system, because the runtime learns of a closed pipe only later.
        if let Ok(Some(status)) = self.running.child.try_wait() {
            tracing::info!(process, %status, "a process ended between two events");
            return false;
        }
        let printed = tokio::select! {
            biased;
            read = self.output.fill_buf() => read.map(quoted).unwrap_or_default(),
            () = std::future::ready(()) => return true,
        };
        tracing::warn!(
            process,
            printed,
            "replaced a process that printed unasked or closed its output"
        );
        false
    }

    /// Gives the event to the process and waits for its answer, for at most `time`.
    pub(super) async fn exchange(&mut self, id: ItemId, line: &[u8], time: Duration) -> Exchange {
        self.errors.clear();
        let talk = talk(&mut self.input, &mut self.output, line);
        let Ok(answer) = timeout(time, talk).await else {
            self.running.stop(None).await;
            let time = whole_millis(time);
            return Exchange::Lost(PublishError::retry(format!(
                "stopped: it had not answered after {time:?}"
            )));
        };
        let fault = match answer {
            Ok(line) if line.is_empty() => return self.ended().await,
            Ok(line) if line.ends_with(b"\n") => match answer::parse(&line, id) {
                Ok(result) => {
                    self.has_answered = true;
                    return Exchange::Answered(result);
                }
                Err(fault) => fault,
            },
            Ok(line) if line.len() < ANSWER_BYTES_MAX => {
                format!("ended within its answer {}: no line break", quoted(&line))
            }
            Ok(line) => format!(
                "answered {}; expected at most {ANSWER_BYTES_MAX} bytes and a line break",
                quoted(&line)
            ),
            Err(cause) => format!("its output cannot be read: {cause}"),
        };
        Exchange::Lost(PublishError::retry(fault))
    }

    /// Reads the exit status of a process that has closed its output.
    async fn ended(&mut self) -> Exchange {
        let status = match timeout(GRACE, self.running.child.wait()).await {
            Ok(Ok(status)) => status,
            Ok(Err(cause)) => {
                let reason = format!("the exit status of the process is unknown: {cause}");
                return Exchange::Lost(PublishError::retry(reason));
            }
            Err(_elapsed) => {
                self.running.stop(None).await;
                let reason = "closed its standard output without an answer, and was stopped";
                return Exchange::Lost(PublishError::retry(reason));
            }
        };
        if status.success() && self.has_answered {
            return Exchange::NotTaken;
        }
        // Processes that are left in the group could keep the standard error open.
        self.running.kill_group();
        Exchange::Lost(unanswered(status, &self.errors.tail().await))
    }

    /// Closes the input, so that the process can end by itself, and stops it if it does not.
    pub(super) async fn close(self) {
        let Self {
            mut running, input, ..
        } = self;
        drop(input);
        if timeout(GRACE, running.child.wait()).await.is_err() {
            running.stop(None).await;
        }
    }
}

/// Writes the event and reads the answer: up to the line break, the end of the output, or
/// [`ANSWER_BYTES_MAX`].
async fn talk(
    input: &mut ChildStdin,
    output: &mut BufReader<ChildStdout>,
    line: &[u8],
) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut output = output.take(ANSWER_BYTES_MAX.try_into().unwrap_or(u64::MAX));
    let read = output.read_until(b'\n', &mut answer);
    tokio::pin!(read);
    // A process may print, or end, before it has read a long line.
    let early = tokio::select! {
        biased;
        written = input.write_all(line) => {
            if let Err(cause) = written {
                // The end of the output and the exit status tell more.
                tracing::trace!(cause = %cause, "a process did not read its event");
            }
            None
        }
        read = &mut read => Some(read),
    };
    let Some(read) = early else {
        read.await?;
        return Ok(answer);
    };
    if read? == 0 {
        return Ok(answer);
    }
    let printed = quoted(&answer);
    Err(io::Error::other(format!(
        "it printed {printed} before it had read its event"
    )))
}

/// Error of an event whose process ended: the exit code means the same as for a command per event,
/// except that 0 without an answer is a failure.
fn unanswered(status: ExitStatus, stderr: &[u8]) -> PublishError {
    let error = match judge(status, stderr) {
        Ok(()) => PublishError::retry("exit code 0"),
        Err(error) => error,
    };
    let reason = format!("the process ended without an answer: {}", error.reason);
    PublishError::new(error.kind, reason)
}

/// Standard error of a process: each line goes to the log, and the last bytes are kept.
struct ErrorLog {
    last: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl ErrorLog {
    fn start(process: Option<u32>, errors: ChildStderr) -> Self {
        let last = Arc::new(Mutex::new(Vec::new()));
        let reader = read_errors(process, errors, Arc::clone(&last));
        Self {
            last,
            reader: tokio::spawn(reader.in_current_span()),
        }
    }

    fn clear(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clear();
    }

    /// The last bytes that a process has printed before it ended.
    async fn tail(&mut self) -> Vec<u8> {
        if timeout(GRACE, &mut self.reader).await.is_err() {
            tracing::debug!("the standard error of a process stayed open after it exited");
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }
}

impl Drop for ErrorLog {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read_errors(process: Option<u32>, errors: ChildStderr, last: Arc<Mutex<Vec<u8>>>) {
    let mut errors = BufReader::new(errors);
    let longest = STDERR_BYTES_MAX.try_into().unwrap_or(u64::MAX);
    let mut line = Vec::new();
    while let Ok(bytes) = (&mut errors)
        .take(longest)
        .read_until(b'\n', &mut line)
        .await
        && bytes > 0
    {
        let text = one_line(&line);
        if !text.is_empty() {
            tracing::info!(process, text, "a process printed");
        }
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        last.append(&mut line);
        let surplus = last.len().saturating_sub(STDERR_BYTES_MAX);
        last.drain(..surplus);
    }
}
