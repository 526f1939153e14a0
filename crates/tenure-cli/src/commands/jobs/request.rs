//! The protocol between a job's command and its worker: one line of JSON per request and reply,
//! over a socket that only the worker's user can reach. The tokens stay with the worker.

use serde::{Deserialize, Serialize};

/// Maximum size of a line: an escaped result of 1 MiB and the other fields.
pub(super) const LINE_BYTES_MAX: u64 = 8 * 1024 * 1024;

#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(super) enum Request {
    /// Save values of the job.
    Note {
        cursor: Option<String>,
        total: Option<u64>,
        result: Option<String>,
    },
    Claim {
        chunk: String,
        fresh_for_ms: Option<u64>,
        wait: bool,
    },
    /// Save the cursor of a chunk.
    NoteChunk { chunk: String, cursor: String },
    /// Settle a chunk.
    End { chunk: String, how: How },
}

/// The outcome of a chunk.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub(super) enum How {
    /// Done for good.
    Completed {
        rows: u64,
    },
    /// Done, and may be repeated.
    Synced {
        rows: u64,
    },
    /// Failed, and may be retried.
    Failed {
        error: String,
    },
    /// Failed for good.
    Dead {
        error: String,
    },
    Released,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Reply {
    /// The request took effect.
    Accepted,
    /// The command holds the chunk now.
    Claimed {
        cursor: Option<String>,
        attempt: u32,
        fence: i64,
    },
    /// The chunk is done.
    Done { at: String },
    /// Another worker holds the chunk.
    Held { holder: String, until: String },
    /// The chunk failed for good.
    Failed,
    /// The lease on the job or on the chunk is over.
    Over { why: String },
    /// The command holds the chunk already, or waits for it.
    AlreadyClaimed,
    /// The command does not hold this chunk.
    NotClaimed,
    /// The worker failed to carry out the request.
    Problem { message: String },
}
