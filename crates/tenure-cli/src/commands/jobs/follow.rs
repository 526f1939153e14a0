//! Follows a job to its end: a bar on a terminal, a line for every change elsewhere.

use std::time::Duration;

use indicatif::ProgressBar;
use tenure::job::{Job, Progress};
use tenure::{Jobs, SyncState};

use super::shown::{Shown, headway, word};
use super::{no_such_job, show};
use crate::commands::Context;
use crate::exit::Exit;
use crate::problem::Stop;
use crate::progress::{UNSAID, Whole, begin};

/// How often the job is looked at; a store gives no notice.
const LOOK: Duration = Duration::from_millis(500);

/// Follows it until it has ended, then shows it; what failed is a failure.
pub(super) async fn run(
    cx: &Context,
    jobs: &Jobs,
    id: i64,
    chunks: Option<u32>,
) -> Result<Exit, Stop> {
    let mut watched = Watched::new(cx);
    let job = loop {
        let job = jobs.find(id).await?.ok_or_else(|| no_such_job(id))?;
        if matches!(job.state, SyncState::Completed | SyncState::Failed) {
            break job;
        }
        let progress = jobs.progress(&job.matrix).await?;
        watched.tell(&job, &progress)?;
        // Nobody tells that something has changed.
        tokio::time::sleep(LOOK).await;
    };
    watched.progress.finish_and_clear();
    show::whole(cx, jobs, &job, chunks).await?;
    if job.state == SyncState::Completed {
        return Ok(Exit::Done);
    }
    Ok(Exit::Failed)
}

/// What was told last.
struct Watched<'a> {
    cx: &'a Context,
    progress: ProgressBar,
    /// Of the job and its progress, but for what changes with every look.
    last: Option<(SyncState, u32, u64, u64, u64)>,
}

impl<'a> Watched<'a> {
    fn new(cx: &'a Context) -> Self {
        let progress = begin(&cx.output, Whole::Chunks, "");
        Self {
            cx,
            progress,
            last: None,
        }
    }

    fn tell(&mut self, job: &Job, progress: &Progress) -> Result<(), Stop> {
        if !self.progress.is_hidden() {
            self.progress.set_length(progress.total.unwrap_or(UNSAID));
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
        output.either(&Shown::new(job).whole(job, progress), || {
            line(job, progress)
        })
    }
}

fn line(job: &Job, progress: &Progress) -> String {
    format!("{}: {}", word(job.state), headway(job, progress))
}
