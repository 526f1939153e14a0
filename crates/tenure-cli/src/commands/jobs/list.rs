//! `tenure jobs list`: lists jobs, newest first.

use comfy_table::Cell;
use tenure::JobFilter;

use super::ListJobs;
use super::shown::{Shown, note, state};
use crate::commands::Context;
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::Stop;
use crate::time::brief;

pub(super) async fn run(cx: &Context, args: &ListJobs) -> Result<Exit, Stop> {
    let filter = JobFilter {
        kind: args.kind.clone(),
        matrix: args.matrix.clone(),
        state: args.state.map(Into::into),
        before: args.before,
    };
    let jobs = cx.database.open(Absent::Report).await?.jobs();
    // One more than asked for tells whether there are more.
    let mut found = jobs.list(&filter, args.limit.saturating_add(1)).await?;
    let most = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let has_more = found.len() > most;
    found.truncate(most);
    let Some(last) = found.last().map(|job| job.id) else {
        cx.output.note("no jobs match");
        return Ok(Exit::Nothing);
    };
    if cx.output.is_json() {
        for job in &found {
            cx.output.json(&Shown::new(job))?;
        }
        return Ok(Exit::Done);
    }
    let now = cx.output.now;
    let rows = found.iter().map(|job| {
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
            .note(format_args!("there are more: --before {last}"));
    }
    Ok(Exit::Done)
}
