//! Lines: writes each event as one line of JSON, to a file or to the standard output.
//!
//! One thread per publisher does the writing. It takes all lines that wait, writes them with one
//! call and syncs them once, so that concurrent events share the wait for the disk. It is a thread
//! and not a task because it blocks: on a slow disk, or on a pipe that nobody reads.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tenure_core::{Encoding, Publication, PublishError, Publisher, Publishing};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Lines that wait for the thread; more wait with their publishers, and go when those are dropped.
const WAITING_MAX: usize = 64;
/// So long before the hold on an event is over, it is given back.
const MARGIN: Duration = Duration::from_secs(1);
/// A write is not made longer than this by another line.
const WRITE_BYTES: usize = 1024 * 1024;

/// Writes each event as one line of JSON, here broken to be read:
///
/// ```json
/// {"id":7,"event_id":"0198…","topic":"order.paid","queue":"default","key":null,
///  "attempt":1,"fence":3,"headers":{},"payload":{"order":7}}
/// ```
///
/// The payload is the JSON of the event, character for character, but for line breaks between its
/// values, which become spaces. A payload that was enqueued as bytes stays a string of base64, and
/// the line says `"encoding":"base64"`.
///
/// An event is taken when its line is written and, where that is a file, synced to the disk. Lines
/// are appended whole, also when several processes append to the same file; a file that another
/// program has locked (`flock`) is waited for. After a crash or on a
/// full disk one line may be left incomplete: it gets a line of its own, is to be skipped, and its
/// event comes again. A file that cannot be written to takes nothing, whatever the event: the
/// publisher is away until it can. So is a pipe that nobody reads, once the hold on an event is
/// nearly over; a line that was on its way into it is written later, and its event comes again.
///
/// The file is opened for each write: it may be moved away (to rotate it) or removed at any time,
/// and is made again.
#[derive(Debug)]
pub struct Lines {
    waiting: mpsc::Sender<Line>,
}

impl Lines {
    /// Appends to the file at `path`, which is made when the first event comes.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn file(path: impl Into<PathBuf>) -> io::Result<Self> {
        Self::start(Target::Path(path.into()))
    }

    /// Writes to the standard output.
    ///
    /// # Errors
    /// The output has no handle to be shared, or no thread could be started.
    pub fn stdout() -> io::Result<Self> {
        // Past the buffer of the standard library, which says yes when the output is closed.
        let handle = io::stdout().as_fd().try_clone_to_owned()?;
        Self::start(Target::Output {
            file: File::from(handle),
            is_torn: false,
        })
    }

    fn start(target: Target) -> io::Result<Self> {
        let (waiting, lines) = mpsc::channel(WAITING_MAX);
        thread::Builder::new()
            .name("tenure-lines".to_owned())
            .spawn(move || write_all_that_comes(target, lines))?;
        Ok(Self { waiting })
    }

    async fn write(&self, publication: &Publication<'_>) -> Result<(), PublishError> {
        let (answer, answered) = oneshot::channel();
        let line = Line {
            text: line_of(publication)?,
            answer,
        };
        let ended = || PublishError::away("the thread that writes the lines has ended");
        let written = async {
            self.waiting.send(line).await.map_err(|_line| ended())?;
            answered.await.unwrap_or_else(|_closed| Err(ended()))
        };
        // Else the event would be blamed for it, and die of it in the end.
        let left = publication.time_left;
        let time = left.saturating_sub(MARGIN.min(left / 4));
        timeout(time, written).await.unwrap_or_else(|_elapsed| {
            Err(PublishError::away(format!(
                "its line was not written within {time:?}: the disk is slow, or nobody reads the \
                 pipe"
            )))
        })
    }
}

impl Publisher for Lines {
    /// Dropped before its line's turn, it writes nothing; later, the line is written.
    fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a> {
        Box::pin(self.write(publication))
    }
}

/// A line on its way, and who waits for it.
struct Line {
    text: Vec<u8>,
    answer: oneshot::Sender<Result<(), PublishError>>,
}

/// The fields of a line, in order.
#[derive(Serialize)]
struct Fields<'a> {
    id: i64,
    event_id: Option<String>,
    topic: &'a str,
    queue: &'a str,
    key: Option<&'a str>,
    attempt: u32,
    fence: i64,
    headers: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    payload: &'a RawValue,
}

fn line_of(publication: &Publication<'_>) -> Result<Vec<u8>, PublishError> {
    let event = publication.event;
    // Within a string JSON has no bare line break, so none of these means anything.
    let payload = event.payload().replace(['\n', '\r'], " ");
    let payload: &RawValue = serde_json::from_str(&payload).map_err(|cause| {
        let place = cause.column();
        PublishError::reject(format!("the payload is not JSON, at its byte {place}"))
    })?;
    let fields = Fields {
        id: publication.id.number(),
        event_id: event.event_id().map(|id| id.to_string()),
        topic: event.topic(),
        queue: event.queue_name().as_str(),
        key: event.ordering_key(),
        attempt: publication.attempt,
        fence: publication.fence.number(),
        headers: event.headers(),
        encoding: event.encoding().map(Encoding::as_str),
        payload,
    };
    let mut text = serde_json::to_vec(&fields)
        .map_err(|cause| PublishError::reject(format!("not writable as JSON ({cause})")))?;
    text.push(b'\n');
    Ok(text)
}

/// The thread: ends when the publisher is dropped and all is written.
fn write_all_that_comes(mut target: Target, mut lines: mpsc::Receiver<Line>) {
    while let Some(first) = lines.blocking_recv() {
        let batch = gather(first, &mut lines);
        let (written, stopped) = target.append(&batch.bytes);
        let reason = stopped.map(|cause| target.reason(&cause));
        for (end, answer) in batch.answers {
            let taken = if end <= written {
                Ok(())
            } else {
                Err(PublishError::away(reason.clone().unwrap_or_default()))
            };
            // Whoever asked may be gone; what is written stays written.
            drop(answer.send(taken));
        }
    }
}

/// Lines that are written together.
struct Batch {
    bytes: Vec<u8>,
    /// Where each line ends, and who waits for it.
    answers: Vec<(usize, oneshot::Sender<Result<(), PublishError>>)>,
}

/// `first` and all that wait behind it, up to a bound.
fn gather(first: Line, lines: &mut mpsc::Receiver<Line>) -> Batch {
    let mut batch = Batch {
        bytes: Vec::new(),
        answers: Vec::new(),
    };
    let mut next = Some(first);
    while let Some(line) = next {
        // Nobody waits for a closed one any more: its event will come again.
        if !line.answer.is_closed() {
            batch.bytes.extend_from_slice(&line.text);
            batch.answers.push((batch.bytes.len(), line.answer));
        }
        let more = batch.bytes.len() < WRITE_BYTES;
        next = if more { lines.try_recv().ok() } else { None };
    }
    batch
}

/// How far a write came: so many bytes are there for good, and what stopped the others.
type Written = (usize, Option<io::Error>);

/// Where lines go.
enum Target {
    /// The file at a path, opened for each write.
    Path(PathBuf),
    /// The standard output.
    Output {
        file: File,
        /// Whether the last write ended within a line.
        is_torn: bool,
    },
}

impl Target {
    fn append(&mut self, bytes: &[u8]) -> Written {
        match self {
            Self::Path(path) => {
                append_to_path(path, bytes).unwrap_or_else(|cause| (0, Some(cause)))
            }
            Self::Output { file, is_torn } => {
                let written = append_to_output(file, bytes, *is_torn);
                let (bytes, stopped) = written.as_ref().map_or((0, true), |w| (w.0, w.1.is_some()));
                *is_torn = stopped && (*is_torn || bytes > 0);
                written.unwrap_or_else(|cause| (0, Some(cause)))
            }
        }
    }

    /// Why a line was not taken, for people.
    fn reason(&self, cause: &io::Error) -> String {
        match self {
            Self::Path(path) => format!("cannot append to {}: {cause}", path.display()),
            Self::Output { .. } => format!("cannot write to the output: {cause}"),
        }
    }
}

fn append_to_output(file: &File, bytes: &[u8], torn: bool) -> io::Result<Written> {
    if !file.metadata()?.is_file() {
        return Ok(write_behind(file, bytes, torn, write_through));
    }
    synced(file, write_behind(file, bytes, torn, write_once))
}

fn append_to_path(path: &Path, bytes: &[u8]) -> io::Result<Written> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(write_behind(&file, bytes, false, write_through));
    }
    // While another process like this one writes, its line looks incomplete. Where a file cannot
    // be locked the worst is an empty line; lines are whole by their one write.
    if let Err(cause) = file.lock() {
        tracing::debug!(cause = %cause, "a file of lines was not locked");
    }
    // A file that may be written to and not read: its last line is taken for whole.
    let torn = is_torn(&file).unwrap_or(false);
    let written = write_behind(&file, bytes, torn, write_once);
    // The others need not wait for the disk.
    if let Err(cause) = file.unlock() {
        tracing::debug!(cause = %cause, "a file of lines was not unlocked");
    }
    synced(&file, written)
}

/// The file, made if need be; readable if it may be read.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true);
    match path.metadata() {
        Ok(found) if found.is_file() => match options.read(true).open(path) {
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                options.read(false).open(path)
            }
            opened => opened,
        },
        Ok(_) => options.open(path),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            let file = options.create(true).read(true).open(path)?;
            // The name, too, must outlive a crash.
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(file)
        }
        Err(cause) => Err(cause),
    }
}

/// Whether the last byte of a file is not the end of a line.
fn is_torn(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else {
        return Ok(false);
    };
    let mut byte = [b'\n'];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

/// What was written, once it is on the disk.
fn synced(file: &File, written: Written) -> io::Result<Written> {
    if written.0 > 0 {
        file.sync_data()?;
    }
    Ok(written)
}

/// Writes `bytes` behind what is there; a break ends an incomplete line, and counts for none.
fn write_behind(
    file: &File,
    bytes: &[u8],
    torn: bool,
    write: fn(&File, &[u8]) -> Written,
) -> Written {
    if !torn {
        return write(file, bytes);
    }
    let (written, stopped) = write(file, &[b"\n", bytes].concat());
    (written.saturating_sub(1), stopped)
}

/// One call, so that no other process comes between: the rest of a short write is not sent after
/// it.
fn write_once(mut file: &File, bytes: &[u8]) -> Written {
    loop {
        match file.write(bytes) {
            Ok(written) if written == bytes.len() => return (written, None),
            Ok(written) => {
                let cause = format!(
                    "only {written} of {} bytes were written; the disk may be full",
                    bytes.len()
                );
                return (written, Some(io::Error::other(cause)));
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return (0, Some(cause)),
        }
    }
}

/// As many calls as it takes: a pipe has room for a part only.
fn write_through(mut file: &File, bytes: &[u8]) -> Written {
    let mut rest = bytes;
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(0) => break,
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return (bytes.len() - rest.len(), Some(cause)),
        }
    }
    let stopped = (!rest.is_empty()).then(|| io::Error::from(io::ErrorKind::WriteZero));
    (bytes.len() - rest.len(), stopped)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use tenure_core::{Event, Fence, ItemId, PublishErrorKind};

    use super::*;

    type Answered = oneshot::Receiver<Result<(), PublishError>>;

    fn line(text: &str) -> (Line, Answered) {
        let (answer, answered) = oneshot::channel();
        let text = text.as_bytes().to_vec();
        (Line { text, answer }, answered)
    }

    #[test]
    fn all_who_wait_share_one_write_and_who_gave_up_is_not_in_it() {
        let (waiting, mut lines) = mpsc::channel(WAITING_MAX);
        let ((first, _first), (second, gone), (third, _third)) =
            (line("1\n"), line("22\n"), line("333\n"));
        drop(gone);
        waiting.try_send(second).unwrap();
        waiting.try_send(third).unwrap();
        let batch = gather(first, &mut lines);
        assert_eq!(batch.bytes, b"1\n333\n");
        let ends: Vec<usize> = batch.answers.iter().map(|(end, _)| *end).collect();
        assert_eq!(ends, [2, 6]);
    }

    #[test]
    fn a_write_does_not_grow_without_bound() {
        let (waiting, mut lines) = mpsc::channel(WAITING_MAX);
        let long = "x".repeat(WRITE_BYTES);
        let ((first, _first), (second, _second)) = (line(&long), line("2\n"));
        waiting.try_send(second).unwrap();
        assert_eq!(gather(first, &mut lines).answers.len(), 1);
        assert_eq!(lines.len(), 1, "the other one waits for the next write");
    }

    fn output(file: impl Into<File>) -> Lines {
        Lines::start(Target::Output {
            file: file.into(),
            is_torn: false,
        })
        .unwrap()
    }

    async fn publish(lines: &Lines) -> Result<(), PublishError> {
        let event = Event::new("t", &"x".repeat(100_000)).unwrap();
        let publication = Publication {
            id: ItemId::new(1),
            event: &event,
            fence: Fence::new(1),
            attempt: 1,
            time_left: Duration::from_secs(30),
        };
        lines.publish(&publication).await
    }

    #[tokio::test]
    async fn an_output_that_nobody_reads_or_that_is_full_takes_nothing() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let broken = output(OwnedFd::from(writer));
        let full = output(File::options().write(true).open("/dev/full").unwrap());
        for (lines, says) in [(broken, "Broken pipe"), (full, "No space left")] {
            for _ in 0..2 {
                let error = publish(&lines).await.unwrap_err();
                assert_eq!(error.kind, PublishErrorKind::Away { after: None });
                assert!(error.reason.starts_with("cannot write to the output: "));
                assert!(error.reason.contains(says), "{error}");
            }
        }
    }

    #[test]
    fn a_break_ends_an_incomplete_line_and_counts_for_none() {
        let (mut reader, writer) = io::pipe().unwrap();
        let file = File::from(OwnedFd::from(writer));
        let (written, stopped) = append_to_output(&file, b"1\n", true).unwrap();
        assert_eq!((written, stopped.is_none()), (2, true));
        drop(file);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "\n1\n");
    }
}
