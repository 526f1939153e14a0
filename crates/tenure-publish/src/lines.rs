//! Publisher that writes each event as one line of JSON, to a file or to the standard output.
//!
//! One thread per publisher does the writing. It takes all waiting lines, writes them with one call
//! and syncs once, so that concurrent events share the wait for the disk. It is a thread and not a
//! task because it blocks: on a slow disk, or on a pipe without a reader.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tenure_core::{Publication, PublishError, Publisher, Publishing};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::event_line::event_line;

/// Maximum number of lines queued for the thread. Further lines wait in their publish calls and are
/// dropped with them.
const WAITING_MAX: usize = 64;
/// Time before the end of the lease at which the publisher reports that it is unavailable.
const DEADLINE_MARGIN: Duration = Duration::from_secs(1);
/// Limit of one write in bytes; a batch that has reached it takes no further line.
const WRITE_BYTES_MAX: usize = 1024 * 1024;

/// Writes each event as one line of JSON (wrapped here):
///
/// ```json
/// {"id":7,"event_id":"0198…","topic":"order.paid","queue":"default","key":null,
///  "attempt":1,"fence":3,"headers":{},"payload":{"order":7}}
/// ```
///
/// The payload is the JSON of the event, character for character, except that line breaks between
/// its values become spaces. A payload that was enqueued as bytes stays a base64 string, and the
/// line has `"encoding":"base64"`.
///
/// An event is done when its line is written and, for a file, synced to the disk. Lines are
/// appended whole, even when several processes append to the same file; the publisher waits for a
/// file that another program has locked (`flock`). A crash or a full disk may leave one incomplete
/// line: the next write ends it with a line break, readers should skip it, and its event is
/// published again. While the file cannot be written to, the publisher reports that it is
/// unavailable. It also does so for a pipe without a reader, once the lease of the event is nearly
/// over; a line already being written to the pipe is written later, and its event is published
/// again.
///
/// The publisher opens the file for each write and creates it if needed, so the file may be moved
/// away (to rotate it) or removed at any time.
#[derive(Debug)]
pub struct Lines {
    waiting: mpsc::Sender<PendingLine>,
}

impl Lines {
    /// Appends to the file at `path`, which is created for the first event.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn file(path: impl Into<PathBuf>) -> io::Result<Self> {
        Self::start(Output::Path(path.into()))
    }

    /// Writes to the standard output.
    ///
    /// # Errors
    /// The handle of the standard output could not be duplicated, or the thread could not be
    /// started.
    pub fn stdout() -> io::Result<Self> {
        // Bypasses the buffer of the standard library, which reports success for a closed output.
        let handle = io::stdout().as_fd().try_clone_to_owned()?;
        Self::start(Output::Handle {
            file: File::from(handle),
            is_torn: false,
        })
    }

    fn start(target: Output) -> io::Result<Self> {
        let (waiting, lines) = mpsc::channel(WAITING_MAX);
        thread::Builder::new()
            .name("tenure-lines".to_owned())
            .spawn(move || run_writer(target, lines))?;
        Ok(Self { waiting })
    }

    async fn write(&self, publication: &Publication<'_>) -> Result<(), PublishError> {
        let (reply, outcome) = oneshot::channel();
        let line = PendingLine {
            text: event_line(publication, None)?,
            reply,
        };
        let stopped = || PublishError::away("the thread that writes the lines has stopped");
        let written = async {
            self.waiting.send(line).await.map_err(|_line| stopped())?;
            outcome.await.unwrap_or_else(|_closed| Err(stopped()))
        };
        // Without this timeout, each blocked write would count as a failure, until the event is
        // dead.
        let left = publication.time_left;
        let time = left.saturating_sub(DEADLINE_MARGIN.min(left / 4));
        timeout(time, written).await.unwrap_or_else(|_elapsed| {
            Err(PublishError::away(format!(
                "the line was not written within {time:?}: the disk is slow, or the pipe has no \
                 reader"
            )))
        })
    }
}

impl Publisher for Lines {
    /// If the future is dropped before the thread takes the line, nothing is written; if it is
    /// dropped later, the line is still written.
    fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a> {
        Box::pin(self.write(publication))
    }
}

/// A line that waits to be written, and the channel for its result.
struct PendingLine {
    text: Vec<u8>,
    reply: oneshot::Sender<Result<(), PublishError>>,
}

/// Body of the thread: ends when the publisher is dropped and every line is written.
fn run_writer(mut target: Output, mut lines: mpsc::Receiver<PendingLine>) {
    while let Some(first) = lines.blocking_recv() {
        let batch = gather(first, &mut lines);
        let (written, stopped) = target.append(&batch.bytes);
        let reason = stopped.map(|cause| target.reason(&cause));
        for (end, reply) in batch.replies {
            let result = if end <= written {
                Ok(())
            } else {
                Err(PublishError::away(reason.clone().unwrap_or_default()))
            };
            // The publish call may have been dropped; its line stays written.
            drop(reply.send(result));
        }
    }
}

/// Lines that are written together.
struct WriteBatch {
    bytes: Vec<u8>,
    /// End of each line in `bytes`, and the channel for its result.
    replies: Vec<(usize, oneshot::Sender<Result<(), PublishError>>)>,
}

/// Collects `first` and the lines waiting behind it, up to [`WRITE_BYTES_MAX`].
fn gather(first: PendingLine, lines: &mut mpsc::Receiver<PendingLine>) -> WriteBatch {
    let mut batch = WriteBatch {
        bytes: Vec::new(),
        replies: Vec::new(),
    };
    let mut next = Some(first);
    while let Some(line) = next {
        // A closed channel means that the publish call was dropped: the event is published again.
        if !line.reply.is_closed() {
            batch.bytes.extend_from_slice(&line.text);
            batch.replies.push((batch.bytes.len(), line.reply));
        }
        let more = batch.bytes.len() < WRITE_BYTES_MAX;
        next = if more { lines.try_recv().ok() } else { None };
    }
    batch
}

/// Number of bytes written, and the error that stopped the rest.
type Written = (usize, Option<io::Error>);

enum Output {
    /// The file at a path, opened for each write.
    Path(PathBuf),
    /// The standard output.
    Handle {
        file: File,
        /// The last write stopped within a line.
        is_torn: bool,
    },
}

impl Output {
    fn append(&mut self, bytes: &[u8]) -> Written {
        match self {
            Self::Path(path) => {
                append_to_path(path, bytes).unwrap_or_else(|cause| (0, Some(cause)))
            }
            Self::Handle { file, is_torn } => {
                let written = append_to_output(file, bytes, *is_torn);
                let (bytes, stopped) = written.as_ref().map_or((0, true), |w| (w.0, w.1.is_some()));
                *is_torn = stopped && (*is_torn || bytes > 0);
                written.unwrap_or_else(|cause| (0, Some(cause)))
            }
        }
    }

    /// User-facing reason for a line that was not written.
    fn reason(&self, cause: &io::Error) -> String {
        match self {
            Self::Path(path) => format!("cannot append to {}: {cause}", path.display()),
            Self::Handle { .. } => format!("cannot write to the output: {cause}"),
        }
    }
}

fn append_to_output(file: &File, bytes: &[u8], torn: bool) -> io::Result<Written> {
    if !file.metadata()?.is_file() {
        return Ok(write_after(file, bytes, torn, write_through));
    }
    sync(file, write_after(file, bytes, torn, write_once))
}

fn append_to_path(path: &Path, bytes: &[u8]) -> io::Result<Written> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(write_after(&file, bytes, false, write_through));
    }
    // Without the lock, a line that another process is still writing would look incomplete. If the
    // file cannot be locked, the worst result is an empty line, because each write is one call.
    if let Err(cause) = file.lock() {
        tracing::debug!(cause = %cause, "could not lock the file of lines");
    }
    // If the file is not readable, assume that its last line is complete.
    let torn = is_torn(&file).unwrap_or(false);
    let written = write_after(&file, bytes, torn, write_once);
    // Other processes need not wait for the sync.
    if let Err(cause) = file.unlock() {
        tracing::debug!(cause = %cause, "could not unlock the file of lines");
    }
    sync(&file, written)
}

/// Opens the file, creating it if needed; readable where permissions allow.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true);
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => match options.read(true).open(path) {
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                options.read(false).open(path)
            }
            opened => opened,
        },
        Ok(_) => options.open(path),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            let file = options.create(true).read(true).open(path)?;
            // Sync the folder, so that the name survives a crash, too.
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(file)
        }
        Err(cause) => Err(cause),
    }
}

/// Returns true if the file's last byte is not a line break.
fn is_torn(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else {
        return Ok(false);
    };
    let mut byte = [b'\n'];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

/// Syncs to the disk if anything was written.
fn sync(file: &File, written: Written) -> io::Result<Written> {
    if written.0 > 0 {
        file.sync_data()?;
    }
    Ok(written)
}

/// Appends `bytes`. After an incomplete line it first writes a line break, which is not counted.
fn write_after(
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

/// Makes one call, so that no other process writes in between; a short write is not completed.
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

/// Repeats the call until everything is written: a pipe may have room for only a part.
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

    type Outcome = oneshot::Receiver<Result<(), PublishError>>;

    fn line(text: &str) -> (PendingLine, Outcome) {
        let (reply, outcome) = oneshot::channel();
        let text = text.as_bytes().to_vec();
        (PendingLine { text, reply }, outcome)
    }

    #[test]
    fn waiting_lines_share_one_write_and_abandoned_ones_are_left_out() {
        let (waiting, mut lines) = mpsc::channel(WAITING_MAX);
        let ((first, _first), (second, gone), (third, _third)) =
            (line("1\n"), line("22\n"), line("333\n"));
        drop(gone);
        waiting.try_send(second).unwrap();
        waiting.try_send(third).unwrap();
        let batch = gather(first, &mut lines);
        assert_eq!(batch.bytes, b"1\n333\n");
        let ends: Vec<usize> = batch.replies.iter().map(|(end, _)| *end).collect();
        assert_eq!(ends, [2, 6]);
    }

    #[test]
    fn a_write_does_not_grow_without_bound() {
        let (waiting, mut lines) = mpsc::channel(WAITING_MAX);
        let long = "x".repeat(WRITE_BYTES_MAX);
        let ((first, _first), (second, _second)) = (line(&long), line("2\n"));
        waiting.try_send(second).unwrap();
        assert_eq!(gather(first, &mut lines).replies.len(), 1);
        assert_eq!(lines.len(), 1, "the second line waits for the next write");
    }

    fn output(file: impl Into<File>) -> Lines {
        Lines::start(Output::Handle {
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
    async fn an_output_without_a_reader_or_without_space_is_away() {
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
    fn a_line_break_ends_an_incomplete_line_and_is_not_counted() {
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
