//! The worker's side of the protocol with a job's command: a socket per job, and the chunks that
//! the command holds. The worker renews their leases while the command runs, and releases them when
//! the command has ended.

use std::collections::{HashMap, HashSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tenure::job::{ChunkAnswer, HeldChunk, HeldJob, HoldError, Note};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::request::{How, LINE_BYTES_MAX, Reply, Request};

/// Prefix of the socket folders; a random suffix follows.
pub(super) const PREFIX: &str = "tenure-job-";
/// The name of the socket in its folder.
pub(super) const SOCKET: &str = "socket";
/// Maximum number of claims of one command that wait at once.
const WAITING_MAX: usize = 256;
/// Maximum number of connections: the waiting claims, and room for other requests meanwhile.
const OPEN_MAX: usize = WAITING_MAX + 32;
/// Timeout for the request line of a connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The socket on which one job's command is answered.
pub(super) struct CommandSocket {
    listener: UnixListener,
    /// Accessible to its owner only; removed on drop.
    folder: TempDir,
    session: Arc<CommandSession>,
}

/// The job, and the chunks that its command holds.
struct CommandSession {
    job: HeldJob,
    chunks: Mutex<Chunks>,
    /// Number of requests not yet read, and of writes in progress, which run to completion even if
    /// the command disconnects.
    pending: watch::Sender<usize>,
}

#[derive(Default)]
struct Chunks {
    held: HashMap<String, SharedChunk>,
    /// Chunks that a claim of this command waits for.
    awaited: HashSet<String>,
}

/// A held chunk; `None` once it is being settled. The lock orders the writes of one chunk without
/// delaying those of others.
type SharedChunk = Arc<tokio::sync::Mutex<Option<HeldChunk>>>;

impl CommandSocket {
    pub(super) fn open(job: HeldJob) -> io::Result<Self> {
        // Created with these permissions, whatever the umask: no other user can ever enter.
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir()?;
        let path = folder.path().join(SOCKET);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let session = CommandSession {
            job,
            chunks: Mutex::default(),
            pending: watch::Sender::new(0),
        };
        Ok(Self {
            listener,
            folder,
            session: Arc::new(session),
        })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// Answers requests until dropped or until the listener fails.
    pub(super) async fn serve(&self) -> io::Error {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if open.len() < OPEN_MAX => match accepted {
                    Ok((stream, _)) => {
                        open.spawn(answer(PendingRequest::begin(&self.session), stream));
                    }
                    Err(error) => return error,
                },
                Some(closed) = open.join_next() => {
                    if let Ok(Err(error)) = closed {
                        tracing::debug!(%error, "a job's command disconnected before its reply");
                    }
                }
            }
        }
    }

    /// Waits until all requests that the command has sent are written; `serve` must run meanwhile.
    pub(super) async fn written(&self) {
        // Connections are accepted in order, so all earlier ones are accepted before this one.
        let accepted = async {
            let mut stream = UnixStream::connect(self.path()).await?;
            stream.write_all(b"\n").await?;
            stream.read_u8().await
        };
        drop(timeout(REQUEST_TIMEOUT, accepted).await);
        let mut pending = self.session.pending.subscribe();
        // The sender lives as long as `self`.
        drop(pending.wait_for(|pending| *pending == 0).await);
    }
}

/// Reads one request and answers it.
async fn answer(pending: PendingRequest, stream: UnixStream) -> io::Result<()> {
    let session = Arc::clone(&pending.0);
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input.take(LINE_BYTES_MAX));
    let mut line = String::new();
    timeout(REQUEST_TIMEOUT, input.read_line(&mut line)).await??;
    let (reply, name) = match serde_json::from_str(&line) {
        Ok(Request::Claim {
            chunk,
            fresh_for_ms,
            wait,
        }) => {
            drop(pending);
            let claim = session.claim(&chunk, fresh_for_ms, wait);
            let reply = tokio::select! {
                reply = claim => reply,
                // A disconnect cancels a waiting claim.
                _ = input.read_u8() => return Ok(()),
            };
            let is_claimed = matches!(reply, Reply::Claimed { .. });
            (reply, is_claimed.then_some(chunk))
        }
        // A write is carried out even if the command disconnects.
        Ok(request) => {
            let reply = session.write(request).await;
            drop(pending);
            (reply, None)
        }
        Err(error) => {
            let message = format!("invalid request: {error}");
            (Reply::Problem { message }, None)
        }
    };
    let mut text = serde_json::to_string(&reply).map_err(io::Error::other)?;
    text.push('\n');
    let written = output.write_all(text.as_bytes()).await;
    if let (Err(_), Some(name)) = (&written, name) {
        // The claimer left before it got the reply: dropping the chunk releases it.
        session.chunks().held.remove(&name);
    }
    written?;
    output.shutdown().await
}

/// A guard that counts a request as pending until it is written or, if it is a claim, read.
struct PendingRequest(Arc<CommandSession>);

impl PendingRequest {
    fn begin(session: &Arc<CommandSession>) -> Self {
        session.pending.send_modify(|pending| *pending += 1);
        Self(Arc::clone(session))
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.0.pending.send_modify(|pending| *pending -= 1);
    }
}

/// A guard that marks a chunk as awaited by a claim of this command.
struct AwaitedChunk<'a> {
    session: &'a CommandSession,
    name: &'a str,
}

impl Drop for AwaitedChunk<'_> {
    fn drop(&mut self) {
        self.session.chunks().awaited.remove(self.name);
    }
}

impl CommandSession {
    /// Poisoning is ignored: no change under this lock can be left half done.
    fn chunks(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out any request except a claim.
    async fn write(&self, request: Request) -> Reply {
        let written = match request {
            Request::Note {
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
            Request::NoteChunk { chunk, cursor } => {
                let held = self.chunks().held.get(&chunk).cloned();
                match held {
                    Some(held) => match held.lock().await.as_ref() {
                        Some(held) => held.note(&cursor).await,
                        None => return Reply::NotClaimed,
                    },
                    None => return Reply::NotClaimed,
                }
            }
            Request::End { chunk, how } => {
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
            Request::Claim { .. } => return Reply::NotClaimed,
        };
        written.map_or_else(|error| refused(&error), |()| Reply::Accepted)
    }

    /// Claims a chunk and stores it before replying, because the command may settle it at once.
    async fn claim(&self, name: &str, fresh_for_ms: Option<u64>, wait: bool) -> Reply {
        let mut request = self.job.chunk(name);
        if let Some(millis) = fresh_for_ms {
            request = request.fresh_for(Duration::from_millis(millis));
        }
        let answer = if wait {
            let awaited = match self.begin_to_wait(name) {
                Ok(awaited) => awaited,
                Err(reply) => return reply,
            };
            let answer = request.wait().await;
            drop(awaited);
            answer
        } else {
            request.claim().await
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

    /// Refuses to wait for a chunk that the command itself holds or awaits: it could wait forever.
    fn begin_to_wait<'a>(&'a self, name: &'a str) -> Result<AwaitedChunk<'a>, Reply> {
        let mut chunks = self.chunks();
        // A chunk being written is held; a lost one may have another holder by now.
        let is_held = chunks.held.get(name).is_some_and(|held| {
            let held = held.try_lock();
            held.map_or(true, |held| {
                held.as_ref().is_some_and(|held| !held.is_cancelled())
            })
        });
        if is_held || chunks.awaited.contains(name) {
            return Err(Reply::AlreadyClaimed);
        }
        if chunks.awaited.len() >= WAITING_MAX {
            let message = format!("{WAITING_MAX} claims of this job wait already");
            return Err(Reply::Problem { message });
        }
        chunks.awaited.insert(name.to_owned());
        Ok(AwaitedChunk {
            session: self,
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
