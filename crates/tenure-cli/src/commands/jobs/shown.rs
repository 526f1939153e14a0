//! A job as the program shows it: the JSON that scripts read, and what tables say. The field names
//! are stable; none of them is a token.

use std::time::Duration;

use comfy_table::{Cell, Color};
use serde::Serialize;
use serde_json::value::RawValue;
use tenure::job::{ChunkRecord, Job, Progress};
use tenure::{SyncState, Timestamp};

use crate::output::plain;
use crate::record::{raw, text, waits};
use crate::time::{brief, relative};

/// A job, in JSON. A field that has nothing to say is null.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
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
    /// It failed because somebody cancelled it.
    cancelled: bool,
    error: Option<&'a str>,
    cursor: Option<&'a str>,
    retry_of: Option<i64>,
    result: Option<Box<RawValue>>,
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<ShownProgress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<Vec<ShownChunk<'a>>>,
}

/// A chunk of the job's matrix, in JSON. A field that has nothing to say is null.
#[derive(Serialize)]
struct ShownChunk<'a> {
    chunk: &'a str,
    state: &'static str,
    holder: Option<&'a str>,
    fence: Option<i64>,
    claimed_at: Option<String>,
    until: Option<String>,
    /// Of the last time that it was done.
    rows: Option<u64>,
    synced_at: Option<String>,
    cursor: Option<&'a str>,
    error: Option<&'a str>,
}

/// How far the work on the job's matrix has come, in JSON.
#[derive(PartialEq, Serialize)]
pub(super) struct ShownProgress {
    chunks_total: Option<u64>,
    chunks_done: u64,
    chunks_running: u64,
    chunks_failed: u64,
    rows: u64,
    rows_per_second: Option<f64>,
    seconds_left: Option<u64>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(job: &'a Job) -> Self {
        let hold = job.hold.as_ref();
        Self {
            id: job.id,
            kind: job.kind.as_str(),
            matrix: job.matrix.as_str(),
            state: word(job.state),
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
            retry_of: job.retry_of,
            result: job.result.as_deref().and_then(raw),
            payload: raw(&job.payload),
            progress: None,
            chunks: None,
        }
    }

    /// With how far it has come.
    pub(super) fn whole(mut self, job: &Job, progress: &Progress) -> Self {
        self.progress = Some(ShownProgress::new(&Pace::of(job, progress), progress));
        self
    }

    /// With these chunks of its matrix, if they were asked for.
    pub(super) fn chunks(mut self, chunks: Option<&'a [ChunkRecord]>) -> Self {
        self.chunks = chunks.map(|chunks| chunks.iter().map(ShownChunk::new).collect());
        self
    }
}

impl<'a> ShownChunk<'a> {
    fn new(chunk: &'a ChunkRecord) -> Self {
        let hold = chunk.hold.as_ref();
        Self {
            chunk: chunk.key.chunk.as_str(),
            state: word(chunk.state),
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

impl ShownProgress {
    fn new(pace: &Pace, progress: &Progress) -> Self {
        Self {
            chunks_total: progress.total,
            chunks_done: progress.done,
            chunks_running: progress.running,
            chunks_failed: progress.failed,
            rows: progress.rows,
            rows_per_second: pace.rows_per_second,
            seconds_left: pace.left.map(|left| left.as_secs()),
        }
    }
}

/// How fast the work goes; of a job that has ended, how fast it went.
struct Pace {
    rows_per_second: Option<f64>,
    left: Option<Duration>,
}

impl Pace {
    fn of(job: &Job, progress: &Progress) -> Self {
        let Some(ended_at) = job.completed_at.or(job.failed_at) else {
            return Self {
                rows_per_second: progress.rows_per_second(),
                left: progress.left(),
            };
        };
        let at_its_end = Progress {
            now: ended_at,
            ..progress.clone()
        };
        Self {
            rows_per_second: at_its_end.rows_per_second(),
            left: None,
        }
    }
}

/// The word for a state, as `--state` takes it.
pub(super) const fn word(state: SyncState) -> &'static str {
    match state {
        SyncState::Available => "available",
        SyncState::Running => "running",
        SyncState::Lapsed => "lapsed",
        SyncState::Completed => "completed",
        SyncState::Failed => "failed",
    }
}

/// A state in its colour.
pub(super) fn state(state: SyncState) -> Cell {
    Cell::new(word(state)).fg(match state {
        SyncState::Available => Color::Yellow,
        SyncState::Running => Color::Cyan,
        SyncState::Lapsed => Color::Magenta,
        SyncState::Completed => Color::Green,
        SyncState::Failed => Color::Red,
    })
}

/// What is worth knowing of a job in this state, in a few words.
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

/// How far it has come, in a line: chunks, rows, the rate and the time left.
pub(super) fn headway(job: &Job, progress: &Progress) -> String {
    let pace = Pace::of(job, progress);
    let done = match progress.total {
        Some(total) => format!("{}/{total} chunks", progress.done),
        None => format!("{} chunks", progress.done),
    };
    let mut parts = vec![done];
    let mut add = |number: u64, word: &str| {
        if number > 0 {
            parts.push(format!("{number} {word}"));
        }
    };
    add(progress.running, "in hand");
    add(progress.failed, "failed");
    add(progress.rows, "rows");
    if let Some(rate) = pace.rows_per_second.filter(|rate| *rate > 0.0) {
        parts.push(format!("{rate:.0} rows/s"));
    }
    let left = pace.left.filter(|left| !left.is_zero());
    parts.extend(left.map(|left| format!("{} left", brief(left))));
    parts.join(", ")
}
