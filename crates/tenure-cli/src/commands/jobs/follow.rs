//! Follows a job until it is settled: a bar on a terminal, a line per change elsewhere.

use std::time::Duration;

use indicatif::ProgressBar;
use tenure::job::{Job, JobId, Jobs, Progress, SyncState};

use super::view::{JobView, progress_text, state_name};
use super::{no_such_job, show};
use crate::commands::Context;
use crate::exit::Exit;
use crate::problem::Stop;
use crate::progress::{Total, UNKNOWN_TOTAL, begin};

/// Interval between reads of the job; the store does not notify of changes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Follows a job until it is settled, then prints it. Fails if the job failed.
pub(super) async fn run(
    cx: &Context,
    jobs: &Jobs,
    id: i64,
    chunks: Option<u32>,
) -> Result<Exit, Stop> {
    let mut follower = Follower::new(cx);
    let job = loop {
        let job = jobs
            .find(JobId::new(id))
            .await?
            .ok_or_else(|| no_such_job(id))?;
        if matches!(job.state, SyncState::Completed | SyncState::Failed) {
            break job;
        }
        let progress = jobs.progress(&job.matrix).await?;
        follower.report(&job, &progress)?;
        // Other processes work on the job, and the store does not notify.
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    follower.progress.finish_and_clear();
    show::print(cx, jobs, &job, chunks).await?;
    if job.state == SyncState::Completed {
        return Ok(Exit::Done);
    }
    Ok(Exit::Failed)
}

struct Follower<'a> {
    cx: &'a Context,
    progress: ProgressBar,
    /// The last printed facts; those that change with every read are left out.
    last: Option<(SyncState, u32, u64, u64, u64)>,
}

impl<'a> Follower<'a> {
    fn new(cx: &'a Context) -> Self {
        let progress = begin(&cx.output, Total::Chunks, "");
        Self {
            cx,
            progress,
            last: None,
        }
    }

    fn report(&mut self, job: &Job, progress: &Progress) -> Result<(), Stop> {
        if !self.progress.is_hidden() {
            self.progress
                .set_length(progress.total.unwrap_or(UNKNOWN_TOTAL));
            self.progress.set_position(progress.ended());
            self.progress.set_message(line(job, progress));
            return Ok(());
        }
        let now = (
            job.state,
            job.counters.attempts,
            progress.done,
            progress.failed,
            progress.rows,
        );
        if self.last.replace(now) == Some(now) {
            return Ok(());
        }
        let output = &self.cx.output;
        output.either(&JobView::new(job).progress(job, progress), || {
            line(job, progress)
        })
    }
}

fn line(job: &Job, progress: &Progress) -> String {
    format!(
        "{}: {}",
        state_name(job.state),
        progress_text(job, progress)
    )
}
