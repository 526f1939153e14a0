//! Exec: runs a command for each event, and takes its exit code for the answer.
//!
//! The command is the leader of a process group of its own. Whatever ends the run (the command
//! itself, its time, a dropped future) ends the whole group, so that nothing works on for an event
//! whose hold is over. It is not ended by a hard kill of our own process: for that there is the
//! fence.

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

/// Between the polite signal and the one that cannot be ignored.
const GRACE: Duration = Duration::from_secs(1);
/// What the command said before it ended is read for this long, should others keep it open.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// So much of the end of what the command said is kept, in bytes and then in characters.
const SAID_BYTES: usize = 4096;
const SAID_CHARACTERS: usize = 500;
/// So much of the end of what a command printed is kept for whoever wants it: a payload, and the
/// line breaks around it.
const PRINTED_BYTES: usize = PAYLOAD_BYTES_MAX + 16;

/// Of `sysexits.h`: the input was wrong; it will be wrong the next time, too.
const EX_DATAERR: i32 = 65;
/// Of `sysexits.h`: not now.
const EX_TEMPFAIL: i32 = 75;

/// Of the shell: there is such a command, and it cannot be run.
const CANNOT_RUN: i32 = 126;
/// Of the shell: there is no such command.
const NOT_FOUND: i32 = 127;

/// Runs a command for each event, through `sh -c`.
///
/// The payload is the command's standard input: the JSON text, or the bytes themselves if they
/// were enqueued as bytes. A command need not read it. What it prints is thrown away, but for the
/// end of its standard error, which is kept as the reason when it fails; so it must print no
/// secret there.
///
/// | exit code | means |
/// |---|---|
/// | 0 | done |
/// | 65 | this event will never be taken: it is dead |
/// | 75 | nothing can be taken now: tried again later, no failure is counted |
/// | 126, 127 | the shell cannot run the command or does not find it: as 75 |
/// | any other, or a signal | a failure of this event: tried again by the retry policy |
///
/// Its environment is that of this program, without the names given to [`Exec::hide`], and with
///
/// | variable | holds |
/// |---|---|
/// | `TENURE_ID` | the event's handle |
/// | `TENURE_EVENT_ID` | the receiver's key to drop repeats |
/// | `TENURE_TOPIC`, `TENURE_QUEUE` | what it is about, and its queue |
/// | `TENURE_KEY` | its ordering key, if it has one |
/// | `TENURE_FENCE` | the number of the claim: refuse what is older than what you have seen |
/// | `TENURE_ATTEMPT` | 1 at the first try |
/// | `TENURE_TIME_LEFT_MS` | how long the command may run |
/// | `TENURE_HEADER_<NAME>` | a header; the name in upper case, all but letters and digits as `_` |
///
/// Of two headers whose names become the same, the last by name is given (`a_b` over `a-b`).
///
/// A command that runs too long is sent `SIGTERM` and a second later `SIGKILL`, and so is all that
/// it has started; that is a failure, whatever it answers then. When the hold on the event is over
/// it is killed at once. What it leaves running in its process group when it ends is killed, too.
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
    /// Runs `command` for each event, as long as the hold on it lasts.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            shell: "sh".to_owned(),
            command: command.into(),
            timeout: None,
            hidden: Vec::new(),
        }
    }

    /// Lets it run no longer than this, even if the hold lasts.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Keeps these variables of our own environment from it: those that hold secrets.
    #[must_use]
    pub fn hide<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.hidden.extend(names.into_iter().map(Into::into));
        self
    }

    async fn run(&self, publication: &Publication<'_>) -> Result<(), PublishError> {
        let payload = publication
            .event
            .payload_bytes()
            .map_err(|cause| PublishError::reject(cause.to_string()))?;
        let time = self.time(publication.time_left);
        if time.is_zero() {
            return Err(PublishError::retry("there was no time left to run it"));
        }
        let variables = variables(publication, time);
        self.spawn(variables, Stdio::null())?
            .answer(payload, time)
            .await
            .map(drop)
    }

    /// Runs it for something that is no event; see [`ExecCall`]. Its answer is judged alike.
    ///
    /// # Errors
    /// What the exit code says, a variable that no environment can hold, or no time left.
    pub async fn call(&self, call: ExecCall) -> Result<Option<String>, PublishError> {
        let time = self.time(call.time_left);
        if time.is_zero() {
            return Err(PublishError::retry("there was no time left to run it"));
        }
        let mut variables = call.variables;
        variables.push((
            "TENURE_TIME_LEFT_MS".to_owned(),
            time.as_millis().to_string(),
        ));
        let running = self.spawn(variables, Stdio::piped())?;
        let printed = running.answer(call.input, time).await?;
        Ok(last_line(&printed))
    }

    /// How long the command may run: within what is left of the hold there must be time to stop
    /// it.
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
                "{name} would hold a NUL character, which no environment can"
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
        // What the event does not have must not come from our own environment.
        for name in self.hidden.iter().map(String::as_str).chain(OPTIONAL) {
            command.env_remove(name);
        }
        command.envs(variables);
        let child = command.spawn().map_err(|cause| {
            let reason = format!("cannot run `{}`: {cause}", self.shell);
            if cause.kind() == io::ErrorKind::ArgumentListTooLong {
                // By the event's headers, most likely.
                return PublishError::retry(reason);
            }
            PublishError::away(reason)
        })?;
        Ok(Running::new(child))
    }
}

/// A run of a command for something that is no event: a job, for one.
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
/// assert_eq!(printed.as_deref(), Some("7"), "the last line that it printed");
/// # Ok(())
/// # }
/// ```
pub struct ExecCall {
    /// What is on its standard input.
    pub input: Vec<u8>,
    /// What its environment has beside our own.
    pub variables: Vec<(String, String)>,
    /// How long the hold lasts at most; `TENURE_TIME_LEFT_MS` tells the command what that is to it.
    pub time_left: Duration,
}

impl fmt::Debug for ExecCall {
    /// Shows neither the input nor the variables: they may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecCall")
            .field("time_left", &self.time_left)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Exec {
    /// Shows no command: a secret may stand in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec")
            .field("timeout", &self.timeout)
            .field("hidden", &self.hidden)
            .finish_non_exhaustive()
    }
}

impl Publisher for Exec {
    /// Dropped, it kills the command and all that it has started.
    fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a> {
        Box::pin(self.run(publication))
    }
}

/// The variables that not every event has.
const OPTIONAL: [&str; 2] = ["TENURE_EVENT_ID", "TENURE_KEY"];

fn variables(publication: &Publication<'_>, time: Duration) -> Vec<(String, String)> {
    let event = publication.event;
    let mut variables = vec![
        ("TENURE_ID".to_owned(), publication.id.to_string()),
        ("TENURE_TOPIC".to_owned(), event.topic().to_owned()),
        ("TENURE_QUEUE".to_owned(), event.queue_name().to_string()),
        ("TENURE_FENCE".to_owned(), publication.fence.to_string()),
        ("TENURE_ATTEMPT".to_owned(), publication.attempt.to_string()),
        (
            "TENURE_TIME_LEFT_MS".to_owned(),
            time.as_millis().to_string(),
        ),
    ];
    if let Some(id) = event.event_id() {
        variables.push(("TENURE_EVENT_ID".to_owned(), id.to_string()));
    }
    if let Some(key) = event.ordering_key() {
        variables.push(("TENURE_KEY".to_owned(), key.to_owned()));
    }
    for (header, value) in event.headers() {
        variables.push((variable_of(header), value.clone()));
    }
    variables
}

fn variable_of(header: &str) -> String {
    let letters = header.chars().map(|c| match c.to_ascii_uppercase() {
        upper @ ('A'..='Z' | '0'..='9') => upper,
        _ => '_',
    });
    format!("TENURE_HEADER_{}", letters.collect::<String>())
}

/// Feeding a command and listening to it; none once it has closed both.
type Talk<'a> = Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>;

/// Waits for `end`, and lets the talk go on meanwhile.
async fn beside<T>(talk: &mut Talk<'_>, end: impl Future<Output = T>) -> T {
    tokio::pin!(end);
    if let Some(talking) = talk {
        tokio::select! {
            ended = &mut end => return ended,
            () = talking => *talk = None,
        }
    }
    end.await
}

/// Reads what a command said before it ended. That is all there, unless something outside its
/// group keeps its error output open.
async fn hear_out(talk: Talk<'_>) {
    if let Some(talking) = talk
        && timeout(LAST_WORDS, talking).await.is_err()
    {
        tracing::debug!("a command's error output stayed open after its end");
    }
}

/// A command that runs. Dropping it kills the group; the runtime then waits for the leader, so
/// that no zombie stays.
struct Running {
    // Before the child, so that the group is killed while its leader's number is still its own.
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

    /// Feeds it and listens to it until it ends or its time is over; the end of what it printed,
    /// if that is listened to.
    async fn answer(mut self, payload: Vec<u8>, time: Duration) -> Result<Vec<u8>, PublishError> {
        let (mut said, mut printed) = (Vec::new(), Vec::new());
        let input = self.child.stdin.take();
        let (errors, output) = (self.child.stderr.take(), self.child.stdout.take());
        let mut talk: Talk<'_> = Some(Box::pin(async {
            tokio::join!(
                feed(input, payload),
                listen(errors, &mut said, SAID_BYTES),
                listen(output, &mut printed, PRINTED_BYTES),
            );
        }));
        let Ok(ended) = timeout(time, beside(&mut talk, self.child.wait())).await else {
            self.stop(talk).await;
            let time = time
                .as_millis()
                .try_into()
                .map_or(time, Duration::from_millis);
            let reason = format!("stopped: it was still running after {time:?}");
            return Err(PublishError::retry(reason));
        };
        self.group.kill();
        hear_out(talk).await;
        match ended {
            Ok(ended) => judge(ended, &said).map(|()| printed),
            Err(cause) => Err(PublishError::retry(format!(
                "how the command ended is not known: {cause}"
            ))),
        }
    }

    /// Ends it, politely first.
    async fn stop(&mut self, mut talk: Talk<'_>) {
        self.group.signal(Signal::TERM);
        // Still listened to: who speaks to nobody is killed by that before it can tidy up.
        let ended = timeout(GRACE, beside(&mut talk, self.child.wait())).await;
        self.group.kill();
        if ended.is_err()
            && let Err(cause) = self.child.wait().await
        {
            tracing::warn!(cause = %cause, "a killed command was not waited for");
        }
    }
}

/// The process group of a command; killed when dropped, unless it was before.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.0
            && let Err(cause) = kill_process_group(leader, signal)
        {
            // Nobody is left in it.
            tracing::trace!(cause = %cause, "a process group was not signalled");
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
        // It need not read: its exit code says whether it had what it needed.
        tracing::trace!(cause = %cause, "a command did not read its whole input");
    }
}

/// Keeps the end of what the command says, and lets it say as much as it likes.
async fn listen(output: Option<impl AsyncRead + Unpin>, said: &mut Vec<u8>, most: usize) {
    let Some(mut output) = output else { return };
    let mut piece = [0; 1024];
    while let Ok(bytes) = output.read(&mut piece).await
        && bytes > 0
    {
        said.extend_from_slice(piece.get(..bytes).unwrap_or_default());
        // What is too much is cut off now and then: moving it for every piece would cost.
        if said.len() >= most.saturating_mul(2) {
            said.drain(..said.len().saturating_sub(most));
        }
    }
    said.drain(..said.len().saturating_sub(most));
}

/// The last line that is not blank. One that was cut off at its front is none.
fn last_line(printed: &[u8]) -> Option<String> {
    // Cut out first: what stands before it may have lost half a character.
    let line = printed.trim_ascii().rsplit(|byte| *byte == b'\n').next()?;
    if line.len() > PAYLOAD_BYTES_MAX {
        tracing::warn!("the last line that a command printed is over 1 MiB: it is left out");
        return None;
    }
    let line = std::str::from_utf8(line).ok()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn judge(ended: ExitStatus, said: &[u8]) -> Result<(), PublishError> {
    let words = last_words(said);
    let with = |what: String| match words.as_str() {
        "" => what,
        words => format!("{what}: {words}"),
    };
    match (ended.code(), ended.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code @ EX_DATAERR), _) => Err(PublishError::reject(with(exit_code(code)))),
        // A mistyped command says nothing of the event, which must not die of it.
        (Some(code @ (EX_TEMPFAIL | CANNOT_RUN | NOT_FOUND)), _) => {
            Err(PublishError::away(with(exit_code(code))))
        }
        (Some(code), _) => Err(PublishError::retry(with(exit_code(code)))),
        (None, Some(signal)) => Err(PublishError::retry(with(format!("signal {signal}")))),
        (None, None) => Err(PublishError::retry(with(ended.to_string()))),
    }
}

fn exit_code(code: i32) -> String {
    match code {
        CANNOT_RUN => format!("exit code {code} (the command cannot be run)"),
        NOT_FOUND => format!("exit code {code} (there is no such command)"),
        _ => format!("exit code {code}"),
    }
}

/// The end of what the command said, as one line without control characters.
fn last_words(said: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(said)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let surplus = line.chars().count().saturating_sub(SAID_CHARACTERS);
    line.chars().skip(surplus).collect()
}

#[cfg(test)]
mod tests {
    use tenure_core::{Event, Fence, ItemId, PublishErrorKind};

    use super::*;

    #[tokio::test]
    async fn without_a_shell_nothing_can_be_taken() {
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
