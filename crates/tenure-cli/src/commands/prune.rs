//! `tenure prune`: deletes settled events and jobs that are past their retention.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::operate::{Prune as Request, Pruned};

use super::Context;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::progress::{Total, begin};
use crate::time::{self, brief};

/// A shorter retention is probably a mistake and needs `--yes`.
const RETENTION_MIN: Duration = Duration::from_hours(1);

#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// Keep published events and completed jobs for this long [default: retention.published]
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    published: Option<Duration>,

    /// Keep dead events and failed jobs for this long [default: retention.dead]
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    dead: Option<Duration>,

    /// Allow a retention of less than an hour
    #[arg(long)]
    yes: bool,
}

/// Numbers of deleted events and jobs, in JSON.
#[derive(Default, Serialize)]
struct Deleted {
    published: u64,
    dead: u64,
    jobs: DeletedJobs,
}

#[derive(Default, Serialize)]
struct DeletedJobs {
    completed: u64,
    failed: u64,
}

impl Deleted {
    fn add(&mut self, round: Pruned) {
        self.published += round.done;
        self.dead += round.dead;
        self.jobs.completed += round.jobs_completed;
        self.jobs.failed += round.jobs_failed;
    }

    fn total(&self) -> u64 {
        self.published + self.dead + self.jobs.completed + self.jobs.failed
    }

    /// The numbers for people, without events or without jobs if none were deleted.
    fn text(&self) -> String {
        let Self {
            published, dead, ..
        } = self;
        let DeletedJobs { completed, failed } = self.jobs;
        let events = format!("{published} published and {dead} dead");
        let jobs = format!("{completed} completed and {failed} failed jobs");
        match (published + dead, completed + failed) {
            (0, 0) => "nothing was past its retention".to_owned(),
            (_, 0) => format!("deleted {events}"),
            (0, _) => format!("deleted {jobs}"),
            _ => format!("deleted {events}, and {jobs}"),
        }
    }
}

pub(super) async fn run(cx: &Context, args: &Prune) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let settings = cx.settings(&tenure).await?;
    let published = args.published.unwrap_or(settings.retention_published);
    let dead = args.dead.unwrap_or(settings.retention_dead);
    for (name, retention) in [("--published", published), ("--dead", dead)] {
        if retention < RETENTION_MIN && !args.yes {
            let message = format!(
                "{name} is {}; expected at least {}",
                brief(retention),
                brief(RETENTION_MIN)
            );
            return Err(Problem::new(Exit::Usage, message)
                .hint("deleted data is gone; if you mean it, add --yes")
                .into());
        }
    }
    let progress = begin(&cx.output, Total::Unknown, "deleted");
    let request = Request::new(published, dead);
    let mut deleted = Deleted::default();
    loop {
        let round = tenure.prune(&request).await?;
        deleted.add(round);
        progress.set_position(deleted.total());
        if !round.more {
            break;
        }
    }
    progress.finish_and_clear();
    cx.output.either(&deleted, || deleted.text())?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deleted(published: u64, dead: u64, completed: u64, failed: u64) -> Deleted {
        let mut deleted = Deleted::default();
        deleted.add(Pruned {
            done: published,
            dead,
            jobs_completed: completed,
            jobs_failed: failed,
            more: false,
        });
        deleted
    }

    #[test]
    fn deleted_events_and_jobs_are_named_by_their_states() {
        for (deleted, text) in [
            (deleted(0, 0, 0, 0), "nothing was past its retention"),
            (deleted(3, 1, 0, 0), "deleted 3 published and 1 dead"),
            (deleted(0, 0, 2, 0), "deleted 2 completed and 0 failed jobs"),
            (
                deleted(3, 0, 0, 4),
                "deleted 3 published and 0 dead, and 0 completed and 4 failed jobs",
            ),
        ] {
            assert_eq!(deleted.text(), text);
        }
    }
}
