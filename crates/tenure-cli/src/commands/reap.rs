//! `tenure reap`: ends lapsed leases.

use comfy_table::Cell;
use serde::Serialize;
use tenure::State;
use tenure::lease::{Reap, Reaped};

use super::{Context, TableArg, rows};
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::{events, state};
use crate::problem::Stop;
use crate::time::{brief, relative};

/// Leases per round, to keep transactions small.
const LEASES: u32 = 100;
/// Maximum number of rounds, since leases may lapse as fast as they are reaped.
const ROUNDS: u32 = 10_000;

/// An event whose lease was reaped, in JSON.
#[derive(Serialize)]
struct ReapedView<'a> {
    id: i64,
    state: &'static str,
    holder: &'a str,
    fence: i64,
    stale_ms: u64,
    available_at: Option<String>,
}

pub(super) async fn run(cx: &Context, of: &TableArg) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let table = match &of.table {
        Some(name) => Some(tenure.table(name).await?),
        None => None,
    };
    let request = Reap::new(LEASES, cx.settings(&tenure).await?.lapse_policy());
    let mut reaped = Vec::new();
    for _ in 0..ROUNDS {
        let round = match &table {
            Some(table) => table.reap(&request).await?,
            None => tenure.reap(&request).await?,
        };
        if round.is_empty() {
            break;
        }
        reaped.extend(round);
    }
    if cx.output.is_json() {
        for item in &reaped {
            cx.output.json(&view(item))?;
        }
        return Ok(Exit::Done);
    }
    if reaped.is_empty() {
        cx.output.line("no lease had lapsed")?;
        return Ok(Exit::Done);
    }
    let now = cx.output.now;
    let lines = reaped.iter().map(|item| {
        let due = item.available_at.map(|moment| relative(moment, now));
        vec![
            Cell::new(item.id),
            state(item.state),
            Cell::new(&item.holder),
            Cell::new(brief(item.stale)),
            Cell::new(due.unwrap_or_default()),
        ]
    });
    cx.output.table(
        &["ID", "NOW", "HELD BY", "LAPSED FOR", "DUE"],
        lines.collect(),
    )?;
    let dead = reaped
        .iter()
        .filter(|item| item.state == State::Dead)
        .count();
    cx.output.note(format_args!(
        "{}: {} pending again, {dead} dead",
        match &table {
            Some(_) => rows::rows(reaped.len()),
            None => events(reaped.len()),
        },
        reaped.len() - dead
    ));
    Ok(Exit::Done)
}

fn view(item: &Reaped) -> ReapedView<'_> {
    ReapedView {
        id: item.id.number(),
        state: item.state.as_str(),
        holder: &item.holder,
        fence: item.fence.number(),
        stale_ms: u64::try_from(item.stale.as_millis()).unwrap_or(u64::MAX),
        available_at: item.available_at.map(|moment| moment.to_string()),
    }
}
