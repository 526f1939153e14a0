//! `tenure jobs show`: the facts, progress, payload and chunks of one job.

use comfy_table::Cell;
use tenure::job::{ChunkRecord, Job, JobId, Jobs, MatrixName, Progress, SyncState};
use tenure::store::Timestamp;

use super::view::{JobView, progress_text, state};
use super::{follow, no_such_job};
use crate::commands::Context;
use crate::database::IfMissing;
use crate::event_view::{fact, moment};
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::Stop;
use crate::time::relative;

/// Chunks listed by default.
const CHUNKS_DEFAULT: u32 = 10;
/// Maximum of `--chunks`.
pub(super) const CHUNKS_MAX: u32 = 1000;

pub(super) async fn run(
    cx: &Context,
    id: i64,
    is_followed: bool,
    chunks: Option<u32>,
) -> Result<Exit, Stop> {
    let jobs = cx.database.open(IfMissing::Report).await?.jobs();
    if is_followed {
        return follow::run(cx, &jobs, id, chunks).await;
    }
    let job = jobs
        .find(JobId::new(id))
        .await?
        .ok_or_else(|| no_such_job(id))?;
    print(cx, &jobs, &job, chunks).await?;
    Ok(Exit::Done)
}

/// Prints a job with at most `most` chunks; JSON has none unless a number is given.
pub(super) async fn print(
    cx: &Context,
    jobs: &Jobs,
    job: &Job,
    most: Option<u32>,
) -> Result<(), Stop> {
    let progress = jobs.progress(&job.matrix).await?;
    if cx.output.is_json() {
        let chunks = match most {
            Some(most) => Some(jobs.notable_chunks(&job.matrix, most).await?),
            None => None,
        };
        let view = JobView::new(job).progress(job, &progress);
        return cx.output.json(&view.chunks(chunks.as_deref()));
    }
    // Not `cx.output.now`: the job may have been followed for hours.
    let now = crate::time::now();
    cx.output.table(&["JOB", ""], facts(job, &progress, now))?;
    cx.output.line(format_args!("\n{}", job.payload))?;
    if let Some(result) = &job.result {
        cx.output.line(format_args!("\nresult: {result}"))?;
    }
    if matches!(job.state, SyncState::Available | SyncState::Lapsed) {
        let id = job.id;
        cx.output.hint(format_args!(
            "`tenure jobs why {id}` explains why it is not running"
        ));
    }
    chunks(cx, jobs, &job.matrix, most.unwrap_or(CHUNKS_DEFAULT)).await
}

/// Prints the chunks that are held, lapsed or failed.
async fn chunks(cx: &Context, jobs: &Jobs, matrix: &MatrixName, most: u32) -> Result<(), Stop> {
    // One more than the limit shows whether there are more.
    let mut chunks = jobs.notable_chunks(matrix, most.saturating_add(1)).await?;
    if chunks.is_empty() {
        return Ok(());
    }
    let limit = usize::try_from(most).unwrap_or(usize::MAX);
    let has_more = chunks.len() > limit;
    chunks.truncate(limit);
    let now = crate::time::now();
    cx.output.line("")?;
    let rows = chunks.iter().map(|chunk| row(chunk, now));
    cx.output
        .table(&["CHUNK", "STATE", "CURSOR", "NOTE"], rows.collect())?;
    if has_more {
        let more = most.saturating_mul(10).min(CHUNKS_MAX);
        if more > most {
            cx.output
                .note(format_args!("there are more: add --chunks {more}"));
        } else {
            cx.output.note("there are more");
        }
    }
    Ok(())
}

/// The facts that have a value, by name.
fn facts(job: &Job, progress: &Progress, now: Timestamp) -> Vec<Vec<Cell>> {
    let counters = job.counters;
    let moment = |at: Option<Timestamp>| moment(at, now);
    let hold = job.hold.as_ref();
    let mut rows = vec![
        fact("id", Some(job.id.to_string())),
        vec![Cell::new("state"), state(job.state)],
        fact(
            "ended by",
            job.is_cancelled.then(|| "an operator".to_owned()),
        ),
        fact("kind", Some(job.kind.to_string())),
        fact("matrix", Some(job.matrix.to_string())),
        fact("priority", Some(job.priority.to_string())),
        fact("retry of", job.retry_of.map(|id| id.to_string())),
        fact("progress", Some(progress_text(job, progress))),
        fact("cursor", job.cursor.clone()),
        fact("attempts", Some(counters.attempts.to_string())),
        fact("failures", Some(counters.failures.to_string())),
        fact("crashes", Some(counters.crashes.to_string())),
        fact("holder", hold.map(|hold| hold.holder.clone())),
        fact("fence", hold.map(|hold| hold.fence.to_string())),
        fact("until", moment(hold.map(|hold| hold.until))),
        fact("error", job.error.clone()),
        fact("created", moment(Some(job.created_at))),
        fact("available", moment(job.available_at)),
        fact("first chunk", moment(progress.began_at)),
        fact("claimed", moment(hold.map(|hold| hold.claimed_at))),
        fact("completed", moment(job.completed_at)),
        fact("failed", moment(job.failed_at)),
    ];
    rows.retain(|row| !row.is_empty());
    rows
}

fn row(chunk: &ChunkRecord, now: Timestamp) -> Vec<Cell> {
    let note = match (&chunk.hold, &chunk.error) {
        (Some(hold), _) => format!("{}; until {}", hold.holder, relative(hold.until, now)),
        (None, Some(error)) => error.clone(),
        (None, None) => String::new(),
    };
    vec![
        Cell::new(plain(chunk.key.chunk.as_str())),
        state(chunk.state),
        Cell::new(plain(chunk.cursor.as_deref().unwrap_or_default())),
        Cell::new(plain(&note)),
    ]
}
