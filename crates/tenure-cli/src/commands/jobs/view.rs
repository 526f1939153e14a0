//! Views of jobs: the JSON for scripts, and texts for tables. Field names are stable; no field is a
//! token.

use std::time::Duration;

use comfy_table::{Cell, Color};
use serde::Serialize;
use serde_json::value::RawValue;
use tenure::job::{ChunkRecord, Job, JobId, Progress, SyncState};
use tenure::store::Timestamp;

use crate::event_view::{raw, text, waits};
use crate::output::plain;
use crate::time::{brief, relative};

/// A job in JSON. A field that does not apply is null.
#[derive(Serialize)]
pub(super) struct JobView<'a> {
    id: i64,
    kind: &'a str,
    matrix: &'a str,
    state: &'static str,
    priority: i16,
    attempts: u32,
    failures: u32,
    crashes: u32,
    created_at: String,
    available_at: Option<String>,
    holder: Option<&'a str>,
    fence: Option<i64>,
    claimed_at: Option<String>,
    until: Option<String>,
    completed_at: Option<String>,
    failed_at: Option<String>,
    /// It failed because an operator cancelled it.
    cancelled: bool,
    error: Option<&'a str>,
    cursor: Option<&'a str>,
    retry_of: Option<i64>,
    result: Option<Box<RawValue>>,
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<ProgressView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<Vec<ChunkView<'a>>>,
}

/// A chunk of the job's matrix in JSON. A field that does not apply is null.
#[derive(Serialize)]
struct ChunkView<'a> {
    chunk: &'a str,
    state: &'static str,
    holder: Option<&'a str>,
    fence: Option<i64>,
    claimed_at: Option<String>,
    until: Option<String>,
    /// Number of rows when the chunk was last done.
    rows: Option<u64>,
    synced_at: Option<String>,
    cursor: Option<&'a str>,
    error: Option<&'a str>,
}

/// Progress on the job's matrix, in JSON.
#[derive(PartialEq, Serialize)]
pub(super) struct ProgressView {
    chunks_total: Option<u64>,
    chunks_done: u64,
    chunks_running: u64,
    chunks_failed: u64,
    rows: u64,
    rows_per_second: Option<f64>,
    seconds_left: Option<u64>,
}

impl<'a> JobView<'a> {
    pub(super) fn new(job: &'a Job) -> Self {
        let hold = job.hold.as_ref();
        Self {
            id: job.id.number(),
            kind: job.kind.as_str(),
            matrix: job.matrix.as_str(),
            state: state_name(job.state),
            priority: job.priority,
            attempts: job.counters.attempts,
            failures: job.counters.failures,
            crashes: job.counters.crashes,
            created_at: job.created_at.to_string(),
            available_at: text(job.available_at),
            holder: hold.map(|hold| hold.holder.as_str()),
            fence: hold.map(|hold| hold.fence.number()),
            claimed_at: text(hold.map(|hold| hold.claimed_at)),
            until: text(hold.map(|hold| hold.until)),
            completed_at: text(job.completed_at),
            failed_at: text(job.failed_at),
            cancelled: job.is_cancelled,
            error: job.error.as_deref(),
            cursor: job.cursor.as_deref(),
            retry_of: job.retry_of.map(JobId::number),
            result: job.result.as_deref().and_then(raw),
            payload: raw(&job.payload),
            progress: None,
            chunks: None,
        }
    }

    pub(super) fn progress(mut self, job: &Job, progress: &Progress) -> Self {
        self.progress = Some(ProgressView::new(&Speed::of(job, progress), progress));
        self
    }

    /// Adds chunks of its matrix, if requested.
    pub(super) fn chunks(mut self, chunks: Option<&'a [ChunkRecord]>) -> Self {
        self.chunks = chunks.map(|chunks| chunks.iter().map(ChunkView::new).collect());
        self
    }
}

impl<'a> ChunkView<'a> {
    fn new(chunk: &'a ChunkRecord) -> Self {
        let hold = chunk.hold.as_ref();
        Self {
            chunk: chunk.key.chunk.as_str(),
            state: state_name(chunk.state),
            holder: hold.map(|hold| hold.holder.as_str()),
            fence: hold.map(|hold| hold.fence.number()),
            claimed_at: text(hold.map(|hold| hold.claimed_at)),
            until: text(hold.map(|hold| hold.until)),
            rows: chunk.row_count,
            synced_at: text(chunk.synced_at),
            cursor: chunk.cursor.as_deref(),
            error: chunk.error.as_deref(),
        }
    }
}

impl ProgressView {
    fn new(speed: &Speed, progress: &Progress) -> Self {
        Self {
            chunks_total: progress.total,
            chunks_done: progress.done,
            chunks_running: progress.running,
            chunks_failed: progress.failed,
            rows: progress.rows,
            rows_per_second: speed.rows_per_second,
            seconds_left: speed.left.map(|left| left.as_secs()),
        }
    }
}

/// Speed of the work; for a settled job, until it was settled.
struct Speed {
    rows_per_second: Option<f64>,
    left: Option<Duration>,
}

impl Speed {
    fn of(job: &Job, progress: &Progress) -> Self {
        let Some(ended_at) = job.completed_at.or(job.failed_at) else {
            return Self {
                rows_per_second: progress.rows_per_second(),
                left: progress.left(),
            };
        };
        let at_the_end = Progress {
            now: ended_at,
            ..progress.clone()
        };
        Self {
            rows_per_second: at_the_end.rows_per_second(),
            left: None,
        }
    }
}

/// The name of a state, as in `--state`.
pub(super) const fn state_name(state: SyncState) -> &'static str {
    match state {
        SyncState::Available => "available",
        SyncState::Running => "running",
        SyncState::Lapsed => "lapsed",
        SyncState::Completed => "completed",
        SyncState::Failed => "failed",
    }
}

pub(super) fn state(state: SyncState) -> Cell {
    Cell::new(state_name(state)).fg(match state {
        SyncState::Available => Color::Yellow,
        SyncState::Running => Color::Cyan,
        SyncState::Lapsed => Color::Magenta,
        SyncState::Completed => Color::Green,
        SyncState::Failed => Color::Red,
    })
}

/// A short remark that fits the state of a job.
pub(super) fn note(job: &Job, now: Timestamp) -> String {
    let error = job.error.as_deref().map(plain);
    match job.state {
        SyncState::Available => waits(job.available_at, error, now),
        SyncState::Running | SyncState::Lapsed => {
            job.hold.as_ref().map_or_else(String::new, |hold| {
                let is_over = job.state == SyncState::Lapsed;
                let word = if is_over { "lapsed" } else { "lapses" };
                format!(
                    "{}; {word} {}",
                    plain(&hold.holder),
                    relative(hold.until, now)
                )
            })
        }
        SyncState::Completed => job
            .completed_at
            .map_or_else(String::new, |moment| relative(moment, now)),
        SyncState::Failed => error.unwrap_or_default(),
    }
}

/// Progress in one line: chunks, rows, rate and time left.
pub(super) fn progress_text(job: &Job, progress: &Progress) -> String {
    let speed = Speed::of(job, progress);
    let chunks = match progress.total.unwrap_or(progress.done) {
        1 => "chunk",
        _ => "chunks",
    };
    let done = match progress.total {
        Some(total) => format!("{}/{total} {chunks}", progress.done),
        None => format!("{} {chunks}", progress.done),
    };
    let mut parts = vec![done];
    let mut add = |number: u64, word: &str| {
        if number > 0 {
            parts.push(format!("{number} {word}"));
        }
    };
    add(progress.running, "running");
    add(progress.failed, "failed");
    add(
        progress.rows,
        if progress.rows == 1 { "row" } else { "rows" },
    );
    if let Some(rate) = speed.rows_per_second.filter(|rate| *rate > 0.0) {
        parts.push(format!("{rate:.0} rows/s"));
    }
    let left = speed.left.filter(|left| !left.is_zero());
    parts.extend(left.map(|left| format!("{} left", brief(left))));
    parts.join(", ")
}
