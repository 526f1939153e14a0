//! `tenure reap`: ends lapsed leases.

use comfy_table::Cell;
use serde::Serialize;
use tenure::{Reap, Reaped, State};

use super::{Context, OfTable, rows};
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::{events, state};
use crate::problem::Stop;
use crate::time::{brief, relative};

/// Leases per round, so that no round is one giant transaction.
const LEASES: u32 = 100;
/// Rounds per call: more would have lapsed while we worked.
const ROUNDS: u32 = 10_000;

/// An event whose lease was ended, in JSON.
#[derive(Serialize)]
struct Ended<'a> {
    id: i64,
    state: &'static str,
    holder: &'a str,
    fence: i64,
    stale_ms: u64,
    available_at: Option<String>,
}

pub(super) async fn run(cx: &Context, of: &OfTable) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let table = match &of.table {
        Some(name) => Some(tenure.table(name).await?),
        None => None,
    };
    let ask = Reap::new(LEASES, cx.settings(&tenure).await?.lapse_policy());
    let mut reaped = Vec::new();
    for _ in 0..ROUNDS {
        let round = match &table {
            Some(table) => table.reap(&ask).await?,
            None => tenure.reap(&ask).await?,
        };
        if round.is_empty() {
            break;
        }
        reaped.extend(round);
    }
    if cx.output.is_json() {
        for item in &reaped {
            cx.output.json(&ended(item))?;
        }
        return Ok(Exit::Done);
    }
    if reaped.is_empty() {
        cx.output.line("nothing had lapsed")?;
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
        "{}: {} wait again, {dead} are dead",
        match &table {
            Some(_) => rows::rows(reaped.len()),
            None => events(reaped.len()),
        },
        reaped.len() - dead
    ));
    Ok(Exit::Done)
}

fn ended(item: &Reaped) -> Ended<'_> {
    Ended {
        id: item.id.number(),
        state: item.state.as_str(),
        holder: &item.holder,
        fence: item.fence.number(),
        stale_ms: u64::try_from(item.stale.as_millis()).unwrap_or(u64::MAX),
        available_at: item.available_at.map(|moment| moment.to_string()),
    }
}
