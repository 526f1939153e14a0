//! The operators' commands for events, applied to the rows of an adopted table (`--table`).

use clap::Args;
use comfy_table::Cell;
use serde::Serialize;
use tenure::operate::{Filter, QueueCounts};
use tenure::table::Table;
use tenure::{ItemId, State, Tenure};

use super::replay::DryRunView;
use super::why::WhyView;
use super::{Context, answers, once_each};
use crate::confirm::{Question, confirm};
use crate::database::IfMissing;
use crate::event_view::{EventView, IdView, note, payload};
use crate::exit::Exit;
use crate::output::{plain, state};
use crate::problem::{Problem, Stop};
use crate::time::brief;

/// Rows per page of a replay.
const PAGE: u32 = 1_000;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TableArg {
    /// Use the rows of this adopted table, in place of events
    #[arg(long, value_name = "NAME")]
    pub(crate) table: Option<String>,
}

/// The counts of a table in JSON.
#[derive(Serialize)]
struct TableCounts<'a> {
    table: &'a str,
    pending: u64,
    due: u64,
    delayed: u64,
    oldest_due_ms: Option<u64>,
    claimed: u64,
    lapsed: u64,
    done: u64,
    dead: u64,
}

/// Opens the database and the table.
pub(super) async fn open(cx: &Context, name: &str) -> Result<(Tenure, Table), Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let table = tenure.table(name).await?;
    Ok((tenure, table))
}

pub(super) async fn stats(cx: &Context, name: &str) -> Result<Exit, Stop> {
    let (_, table) = open(cx, name).await?;
    let counts = table.count().await?;
    let waits = counts.queues.first();
    let waits = waits.map_or_else(QueueCounts::default, |(_, waits)| waits.clone());
    if cx.output.is_json() {
        let oldest = waits.oldest_due.map(|age| age.as_millis());
        cx.output.json(&TableCounts {
            table: name,
            pending: counts.pending(),
            due: waits.due,
            delayed: waits.delayed,
            oldest_due_ms: oldest.map(|age| u64::try_from(age).unwrap_or(u64::MAX)),
            claimed: counts.claimed,
            lapsed: counts.lapsed,
            done: counts.done,
            dead: counts.dead,
        })?;
        return Ok(Exit::Done);
    }
    let heading = [
        "TABLE",
        " DUE",
        " DELAYED",
        " CLAIMED",
        " LAPSED",
        " DONE",
        " DEAD",
        "OLDEST DUE",
    ];
    let mut row = vec![Cell::new(name)];
    let numbers = [
        waits.due,
        waits.delayed,
        counts.claimed,
        counts.lapsed,
        counts.done,
        counts.dead,
    ];
    row.extend(numbers.map(Cell::new));
    row.push(Cell::new(waits.oldest_due.map_or_else(String::new, brief)));
    cx.output.table(&heading, vec![row])?;
    if counts.dead > 0 {
        cx.output.hint(format_args!(
            "`tenure events --table {name} --state dead` lists the dead rows with their reasons"
        ));
    }
    Ok(Exit::Done)
}

pub(super) async fn list(
    cx: &Context,
    name: &str,
    filter: &Filter,
    limit: u32,
) -> Result<Exit, Stop> {
    let (_, table) = open(cx, name).await?;
    let page = table.list(filter, limit).await?;
    if page.records.is_empty() {
        cx.output.note("no rows match");
        return Ok(Exit::Nothing);
    }
    if cx.output.is_json() {
        for record in &page.records {
            cx.output.json(&EventView::new(record))?;
        }
        return Ok(Exit::Done);
    }
    let now = cx.output.now;
    let rows = page.records.iter().map(|record| {
        vec![
            Cell::new(record.id),
            state(record.state),
            Cell::new(brief(now.since(record.created_at))),
            Cell::new(record.counters.attempts),
            Cell::new(note(record, now)),
        ]
    });
    let heading = ["ID", "STATE", "AGE", " ATTEMPTS", "NOTE"];
    cx.output.table(&heading, rows.collect())?;
    if let Some(next) = page.next {
        cx.output
            .note(format_args!("there are more: add --before {next}"));
    }
    Ok(Exit::Done)
}

pub(super) async fn show(cx: &Context, name: &str, id: ItemId) -> Result<Exit, Stop> {
    let (_, table) = open(cx, name).await?;
    let Some(record) = table.find(&[id]).await?.pop() else {
        return Err(no_such_row(name, id).into());
    };
    if cx.output.is_json() {
        cx.output.json(&EventView::new(&record))?;
        return Ok(Exit::Done);
    }
    let facts = super::show::facts(&record, cx.output.now);
    cx.output.table(&["ROW", ""], facts)?;
    cx.output
        .line(format_args!("\n{}", payload(&record.content)))?;
    Ok(Exit::Done)
}

pub(super) async fn why(cx: &Context, name: &str, id: ItemId) -> Result<Exit, Stop> {
    let (tenure, table) = open(cx, name).await?;
    let settings = cx.settings(&tenure).await?;
    let Some(answer) = table.why(id, &settings).await? else {
        return Err(no_such_row(name, id).into());
    };
    let object = WhyView {
        id: IdView(id),
        code: answer.code,
        why: &answer.sentence,
        hint: answer.hint.as_deref(),
    };
    cx.output.either(&object, || plain(&answer.sentence))?;
    if let Some(hint) = &answer.hint {
        cx.output.hint(hint);
    }
    Ok(Exit::Done)
}

pub(super) async fn bury(
    cx: &Context,
    name: &str,
    ids: &[ItemId],
    reason: &str,
) -> Result<Exit, Stop> {
    let (_, table) = open(cx, name).await?;
    let mut answered = Vec::with_capacity(ids.len());
    for id in once_each(ids) {
        answered.push((id, table.bury(id, reason).await?));
    }
    answers(cx, "buried", &answered)
}

/// Options of a replay of rows.
pub(super) struct RowReplay<'a> {
    pub(super) ids: &'a [ItemId],
    pub(super) filter: Option<Filter>,
    pub(super) is_dry: bool,
    pub(super) is_sure: bool,
}

pub(super) async fn replay(cx: &Context, name: &str, options: RowReplay<'_>) -> Result<Exit, Stop> {
    let (_, table) = open(cx, name).await?;
    let is_selected = options.filter.is_some();
    let ids = match &options.filter {
        Some(filter) => matching(&table, filter).await?,
        None => once_each(options.ids),
    };
    if ids.is_empty() {
        cx.output.note("no rows match");
        return Ok(Exit::Nothing);
    }
    let count = ids.len();
    if options.is_dry {
        let planned = DryRunView {
            would_replay: count,
        };
        cx.output
            .either(&planned, || format!("would replay {}", rows(count)))?;
        return Ok(Exit::Done);
    }
    if is_selected && !options.is_sure {
        confirm(&Question {
            text: format!("replay {} of {name}?", rows(count)),
            unasked: format!("{} would be replayed", rows(count)),
            hint: "--yes replays them, --dry-run only counts them",
            refused: "nothing was replayed",
        })?;
    }
    let mut answered = Vec::with_capacity(count);
    for page in ids.chunks(usize::try_from(PAGE).unwrap_or(usize::MAX)) {
        answered.extend(table.replay(page).await?);
    }
    answers(cx, "replayed", &answered)
}

/// The ids of all rows that match; dead ones, unless the filter names a state.
async fn matching(table: &Table, filter: &Filter) -> Result<Vec<ItemId>, Stop> {
    let mut filter = Filter {
        state: filter.state.or(Some(State::Dead)),
        ..filter.clone()
    };
    let mut ids = Vec::new();
    loop {
        let page = table.list(&filter, PAGE).await?;
        ids.extend(page.records.iter().map(|record| record.id));
        match page.next {
            Some(next) => filter.before = Some(next),
            None => return Ok(ids),
        }
    }
}

/// `1 row`, `2 rows`.
pub(super) fn rows(number: usize) -> String {
    match number {
        1 => "1 row".to_owned(),
        number => format!("{number} rows"),
    }
}

fn no_such_row(table: &str, id: ItemId) -> Problem {
    Problem::new(Exit::Nothing, format!("there is no row {id} in {table}"))
        .hint(format!("`tenure events --table {table}` lists the newest"))
}
