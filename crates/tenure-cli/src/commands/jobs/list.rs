//! `tenure jobs list`: lists jobs, newest first.

use comfy_table::Cell;
use tenure::job::{JobFilter, JobId};

use super::ListJobs;
use super::view::{JobView, note, state};
use crate::commands::Context;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::Stop;
use crate::time::brief;

pub(super) async fn run(cx: &Context, args: &ListJobs) -> Result<Exit, Stop> {
    let filter = JobFilter {
        kind: args.kind.clone(),
        matrix: args.matrix.clone(),
        state: args.state.map(Into::into),
        before: args.before.map(JobId::new),
    };
    let jobs = cx.database.open(IfMissing::Report).await?.jobs();
    // One more than the limit shows whether there are more.
    let mut listed = jobs.list(&filter, args.limit.saturating_add(1)).await?;
    let most = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let has_more = listed.len() > most;
    listed.truncate(most);
    let Some(last) = listed.last().map(|job| job.id) else {
        cx.output.note("no jobs match");
        return Ok(Exit::Nothing);
    };
    if cx.output.is_json() {
        for job in &listed {
            cx.output.json(&JobView::new(job))?;
        }
        return Ok(Exit::Done);
    }
    let now = cx.output.now;
    let rows = listed.iter().map(|job| {
        vec![
            Cell::new(job.id),
            state(job.state),
            Cell::new(plain(job.kind.as_str())),
            Cell::new(plain(job.matrix.as_str())),
            Cell::new(brief(now.since(job.created_at))),
            Cell::new(job.counters.attempts),
            Cell::new(note(job, now)),
        ]
    });
    let heading = ["ID", "STATE", "KIND", "MATRIX", "AGE", " ATTEMPTS", "NOTE"];
    cx.output.table(&heading, rows.collect())?;
    if has_more {
        cx.output
            .note(format_args!("there are more: add --before {last}"));
    }
    Ok(Exit::Done)
}
