//! What a job's command says to the worker that runs it, and what it is answered: one line of JSON
//! each, over a socket that only the worker's own user can reach. The tokens stay with the worker.

use serde::{Deserialize, Serialize};

/// No line is longer: a result of 1 MiB, escaped, and some words.
pub(super) const LINE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What a command asks for.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(super) enum Ask {
    /// Write this down of the job.
    Note {
        cursor: Option<String>,
        total: Option<u64>,
        result: Option<String>,
    },
    /// Claim a chunk.
    Claim {
        chunk: String,
        fresh_for_ms: Option<u64>,
        wait: bool,
    },
    /// Write down where a chunk is.
    NoteChunk { chunk: String, cursor: String },
    /// End the hold on a chunk.
    End { chunk: String, how: How },
}

/// How the hold on a chunk ends.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub(super) enum How {
    /// Done for good.
    Completed { rows: u64 },
    /// Done, and may be done again.
    Synced { rows: u64 },
    /// It went wrong, and may be tried again.
    Failed { error: String },
    /// It went wrong, for good.
    Dead { error: String },
    /// Given back.
    Released,
}

/// What it is answered.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Reply {
    /// It was written.
    Kept,
    /// The chunk is the asker's.
    Claimed {
        cursor: Option<String>,
        attempt: u32,
        fence: i64,
    },
    /// The chunk was done then.
    Done { at: String },
    /// Somebody else has the chunk.
    Held { holder: String, until: String },
    /// The chunk failed for good.
    Failed,
    /// The hold on the job or on the chunk is over.
    Over { why: String },
    /// The command has the chunk already, or waits for it.
    InHand,
    /// The command did not claim this chunk.
    NotClaimed,
    /// The worker could not do it.
    Problem { message: String },
}
