//! The worker's side of what a job's command asks: a socket for each job, and the chunks that the
//! command has in hand. The chunks are held here, so that their leases are renewed while the
//! command works on them, and given back when the command is gone.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure::{ChunkAnswer, HeldChunk, HeldJob, HoldError};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::ask::{Ask, How, LINE_BYTES_MAX, Reply};

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
    chunks: Mutex<HashMap<String, HeldChunk>>,
}

impl Desk {
    pub(super) fn open(job: HeldJob) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tenure-job-").tempdir()?;
        let counter = Counter {
            job,
            chunks: Mutex::default(),
        };
        Ok(Self {
            listener: UnixListener::bind(folder.path().join("socket"))?,
            folder,
            counter: Arc::new(counter),
        })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Answers for as long as it is awaited.
    pub(super) async fn serve(&self) -> io::Error {
        let mut talks = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
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
}

/// Reads one line and answers it.
async fn answer(counter: Arc<Counter>, stream: UnixStream) -> io::Result<()> {
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input.take(LINE_BYTES_MAX));
    let mut line = String::new();
    input.read_line(&mut line).await?;
    let (reply, claimed) = match serde_json::from_str(&line) {
        Ok(ask) => tokio::select! {
            answered = counter.reply(ask) => answered,
            // Who hangs up while it waits for a chunk does not want it any more.
            _ = input.read_u8() => return Ok(()),
        },
        Err(error) => {
            let message = format!("that is no question: {error}");
            (Reply::Problem { message }, None)
        }
    };
    let mut text = serde_json::to_string(&reply).map_err(io::Error::other)?;
    text.push('\n');
    let name = claimed.as_ref().map(|(name, _)| name.clone());
    // In hand before it is told: the claimer may end it at once.
    counter.chunks.lock().await.extend(claimed);
    let written = output.write_all(text.as_bytes()).await;
    if let (Err(_), Some(name)) = (&written, name) {
        // A chunk whose claimer was gone before it knew is given back: it is dropped.
        counter.chunks.lock().await.remove(&name);
    }
    written?;
    output.shutdown().await
}

type Answered = (Reply, Option<(String, HeldChunk)>);

impl Counter {
    async fn reply(&self, ask: Ask) -> Answered {
        let answered = match ask {
            Ask::Note {
                cursor,
                total,
                result,
            } => self.note(cursor, total, result).await.map(|()| kept()),
            Ask::Claim {
                chunk,
                fresh_for_ms,
                wait,
            } => self.claim(chunk, fresh_for_ms, wait).await,
            Ask::NoteChunk { chunk, cursor } => match self.chunks.lock().await.get(&chunk) {
                Some(held) => held.note(&cursor).await.map(|()| kept()),
                None => Ok((Reply::NotClaimed, None)),
            },
            Ask::End { chunk, how } => {
                let held = self.chunks.lock().await.remove(&chunk);
                match held {
                    Some(held) => end(held, how).await.map(|()| kept()),
                    None => Ok((Reply::NotClaimed, None)),
                }
            }
        };
        answered.unwrap_or_else(|error| (refused(&error), None))
    }

    async fn note(
        &self,
        cursor: Option<String>,
        total: Option<u64>,
        result: Option<String>,
    ) -> Result<(), HoldError> {
        if let Some(total) = total {
            self.job.total(total).await?;
        }
        if let Some(cursor) = cursor {
            self.job.checkpoint(&cursor).await?;
        }
        match result {
            Some(result) => self.job.result(&result).await,
            None => Ok(()),
        }
    }

    async fn claim(
        &self,
        name: String,
        fresh_for_ms: Option<u64>,
        wait: bool,
    ) -> Result<Answered, HoldError> {
        let mut ask = self.job.chunk(&name);
        if let Some(millis) = fresh_for_ms {
            ask = ask.fresh_for(Duration::from_millis(millis));
        }
        let answer = if wait {
            ask.wait().await?
        } else {
            ask.claim().await?
        };
        Ok(match answer {
            ChunkAnswer::Claimed(held) => (claimed(&held), Some((name, held))),
            ChunkAnswer::Done { at } => (Reply::Done { at: at.to_string() }, None),
            ChunkAnswer::Held { holder, until } => {
                let until = until.to_string();
                (Reply::Held { holder, until }, None)
            }
            ChunkAnswer::Failed => (Reply::Failed, None),
        })
    }
}

fn kept() -> Answered {
    (Reply::Kept, None)
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
