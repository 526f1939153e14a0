//! The worker's side of what a job's command asks: a socket for each job, and the chunks that the
//! command has in hand. The chunks are held here, so that their leases are renewed while the
//! command works on them, and given back when the command is gone.

use std::collections::{HashMap, HashSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tenure::job::Note;
use tenure::{ChunkAnswer, HeldChunk, HeldJob, HoldError};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::ask::{Ask, How, LINE_BYTES_MAX, Reply};

/// How the folders of the sockets are named; a random part follows.
pub(super) const PREFIX: &str = "tenure-job-";
/// The socket in its folder.
pub(super) const SOCKET: &str = "socket";
/// So many claims of one command may wait for others at once.
const WAITS_MAX: usize = 256;
/// So many may speak at once. Those that wait leave room for those that end what is waited for.
const TALKS_MAX: usize = WAITS_MAX + 32;
/// Who connects says what it wants within this time.
const LINE_WITHIN: Duration = Duration::from_secs(10);

/// Where one job's command is answered.
pub(super) struct Desk {
    listener: UnixListener,
    /// Only its owner may enter it; removed with the value.
    folder: TempDir,
    counter: Arc<Counter>,
}

/// The job, and the chunks that its command has in hand.
struct Counter {
    job: HeldJob,
    chunks: Mutex<Chunks>,
    /// How many asks are being carried out that are carried out in any case.
    writes: watch::Sender<usize>,
}

#[derive(Default)]
struct Chunks {
    held: HashMap<String, InHand>,
    /// Those that a claim of this command waits for.
    awaited: HashSet<String>,
}

/// A chunk in hand; empty when its end is on its way. What is written of it is written in turn,
/// and what is written of others does not wait for that.
type InHand = Arc<tokio::sync::Mutex<Option<HeldChunk>>>;

impl Desk {
    pub(super) fn open(job: HeldJob) -> io::Result<Self> {
        // Made so, not made so later: whatever the umask says, nobody else ever gets in.
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir()?;
        let path = folder.path().join(SOCKET);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let counter = Counter {
            job,
            chunks: Mutex::default(),
            writes: watch::Sender::new(0),
        };
        Ok(Self {
            listener,
            folder,
            counter: Arc::new(counter),
        })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// Answers for as long as it is awaited.
    pub(super) async fn serve(&self) -> io::Error {
        let mut talks = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if talks.len() < TALKS_MAX => match accepted {
                    Ok((stream, _)) => {
                        talks.spawn(answer(Arc::clone(&self.counter), stream));
                    }
                    Err(error) => return error,
                },
                Some(ended) = talks.join_next() => {
                    if let Ok(Err(error)) = ended {
                        tracing::debug!(%error, "a job's command did not wait for its answer");
                    }
                }
            }
        }
    }

    /// Waits until all is written that the command has said, while somebody serves.
    pub(super) async fn written(&self) {
        let mut writes = self.counter.writes.subscribe();
        // The sender is there as long as the desk is.
        drop(writes.wait_for(|writes| *writes == 0).await);
    }
}

/// Reads one line and answers it.
async fn answer(counter: Arc<Counter>, stream: UnixStream) -> io::Result<()> {
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input.take(LINE_BYTES_MAX));
    let mut line = String::new();
    timeout(LINE_WITHIN, input.read_line(&mut line)).await??;
    let (reply, name) = match serde_json::from_str(&line) {
        Ok(Ask::Claim {
            chunk,
            fresh_for_ms,
            wait,
        }) => {
            let claim = counter.claim(&chunk, fresh_for_ms, wait);
            let reply = tokio::select! {
                reply = claim => reply,
                // Who hangs up while it waits for a chunk does not want it any more.
                _ = input.read_u8() => return Ok(()),
            };
            let is_claimed = matches!(reply, Reply::Claimed { .. });
            (reply, is_claimed.then_some(chunk))
        }
        // What was said is done, also when nobody waits for the answer.
        Ok(ask) => (counter.write(ask).await, None),
        Err(error) => {
            let message = format!("that is no question: {error}");
            (Reply::Problem { message }, None)
        }
    };
    let mut text = serde_json::to_string(&reply).map_err(io::Error::other)?;
    text.push('\n');
    let written = output.write_all(text.as_bytes()).await;
    if let (Err(_), Some(name)) = (&written, name) {
        // A chunk whose claimer was gone before it knew is given back: it is dropped.
        counter.chunks().held.remove(&name);
    }
    written?;
    output.shutdown().await
}

/// One more write is under way for as long as this is there.
struct Writing<'a>(&'a watch::Sender<usize>);

impl<'a> Writing<'a> {
    fn begin(writes: &'a watch::Sender<usize>) -> Self {
        writes.send_modify(|writes| *writes += 1);
        Self(writes)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|writes| *writes -= 1);
    }
}

/// A claim of this command waits for the chunk for as long as this is there.
struct Waiting<'a> {
    counter: &'a Counter,
    name: &'a str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.counter.chunks().awaited.remove(self.name);
    }
}

impl Counter {
    /// Nothing is half done under it, so a panic there leaves no harm.
    fn chunks(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does anything but a claim.
    async fn write(&self, ask: Ask) -> Reply {
        let _writing = Writing::begin(&self.writes);
        let written = match ask {
            Ask::Note {
                cursor,
                total,
                result,
            } => {
                let note = Note {
                    cursor,
                    chunks_total: total,
                    result,
                };
                self.job.note(&note).await
            }
            Ask::NoteChunk { chunk, cursor } => {
                let held = self.chunks().held.get(&chunk).cloned();
                match held {
                    Some(held) => match held.lock().await.as_ref() {
                        Some(held) => held.note(&cursor).await,
                        None => return Reply::NotClaimed,
                    },
                    None => return Reply::NotClaimed,
                }
            }
            Ask::End { chunk, how } => {
                let held = self.chunks().held.remove(&chunk);
                let held = match held {
                    Some(held) => held.lock().await.take(),
                    None => None,
                };
                match held {
                    Some(held) => end(held, how).await,
                    None => return Reply::NotClaimed,
                }
            }
            Ask::Claim { .. } => return Reply::NotClaimed,
        };
        written.map_or_else(|error| refused(&error), |()| Reply::Kept)
    }

    /// Claims a chunk and keeps it in hand: before it is told, for the claimer may end it at once.
    async fn claim(&self, name: &str, fresh_for_ms: Option<u64>, wait: bool) -> Reply {
        let mut ask = self.job.chunk(name);
        if let Some(millis) = fresh_for_ms {
            ask = ask.fresh_for(Duration::from_millis(millis));
        }
        let answer = if wait {
            let waiting = match self.begin_to_wait(name) {
                Ok(waiting) => waiting,
                Err(reply) => return reply,
            };
            let answer = ask.wait().await;
            drop(waiting);
            answer
        } else {
            ask.claim().await
        };
        match answer {
            Ok(ChunkAnswer::Claimed(held)) => {
                let reply = claimed(&held);
                let held = Arc::new(tokio::sync::Mutex::new(Some(held)));
                self.chunks().held.insert(name.to_owned(), held);
                reply
            }
            Ok(ChunkAnswer::Done { at }) => Reply::Done { at: at.to_string() },
            Ok(ChunkAnswer::Held { holder, until }) => Reply::Held {
                holder,
                until: until.to_string(),
            },
            Ok(ChunkAnswer::Failed) => Reply::Failed,
            Err(error) => refused(&error),
        }
    }

    /// Refuses to wait for what the command itself has or waits for: that may be for ever.
    fn begin_to_wait<'a>(&'a self, name: &'a str) -> Result<Waiting<'a>, Reply> {
        let mut chunks = self.chunks();
        // One that is being written is in hand; one that was lost may be another's by now.
        let is_in_hand = chunks.held.get(name).is_some_and(|held| {
            let held = held.try_lock();
            held.map_or(true, |held| {
                held.as_ref().is_some_and(|held| !held.is_cancelled())
            })
        });
        if is_in_hand || chunks.awaited.contains(name) {
            return Err(Reply::InHand);
        }
        if chunks.awaited.len() >= WAITS_MAX {
            let message = format!("{WAITS_MAX} claims of this job wait already");
            return Err(Reply::Problem { message });
        }
        chunks.awaited.insert(name.to_owned());
        Ok(Waiting {
            counter: self,
            name,
        })
    }
}

fn claimed(held: &HeldChunk) -> Reply {
    Reply::Claimed {
        cursor: held.cursor().map(str::to_owned),
        attempt: held.attempt(),
        fence: held.fence().number(),
    }
}

async fn end(held: HeldChunk, how: How) -> Result<(), HoldError> {
    match how {
        How::Completed { rows } => held.complete(rows).await,
        How::Synced { rows } => held.synced(rows).await,
        How::Failed { error } => held.fail(error).await,
        How::Dead { error } => held.fail_for_good(error).await,
        How::Released => held.release().await,
    }
}

fn refused(error: &HoldError) -> Reply {
    match error {
        HoldError::Refused(why) => Reply::Over {
            why: why.to_string(),
        },
        error @ (HoldError::Store(_) | _) => Reply::Problem {
            message: error.to_string(),
        },
    }
}
