//! Views of plans and adopted tables.

use comfy_table::Cell;
use serde::Serialize;
use tenure::table::{Addition, AdoptedTable, Plan, Stage, TableLocation};

use super::super::Context;
use crate::exit::Exit;
use crate::problem::Stop;
use crate::time::relative;

/// A plan in JSON.
#[derive(Serialize)]
pub(super) struct PlanView<'a> {
    table: &'a str,
    key: &'a str,
    adopted: bool,
    added: Vec<&'a str>,
    used: Vec<&'a str>,
    indexes: Vec<&'a str>,
    remarks: &'a [String],
}

impl<'a> PlanView<'a> {
    pub(super) fn new(plan: &'a Plan, adopted: bool) -> Self {
        Self {
            table: plan.table.name.as_str(),
            key: plan.table.key.as_str(),
            adopted,
            added: plan
                .adds
                .iter()
                .map(|added| added.column.as_str())
                .collect(),
            used: plan
                .uses
                .iter()
                .map(|(_, column)| column.as_str())
                .collect(),
            indexes: plan
                .indexes
                .iter()
                .map(|index| index.name.as_str())
                .collect(),
            remarks: &plan.remarks,
        }
    }
}

/// An undone adoption in JSON.
#[derive(Serialize)]
pub(super) struct UndoneView<'a> {
    table: &'a str,
    adopted: bool,
    dropped: &'a [String],
    indexes: &'a [String],
}

impl<'a> UndoneView<'a> {
    pub(super) fn new(adopted: &'a AdoptedTable) -> Self {
        Self {
            table: adopted.table.name.as_str(),
            adopted: false,
            dropped: &adopted.columns,
            indexes: &adopted.indexes,
        }
    }
}

/// An adopted table in JSON.
#[derive(Serialize)]
struct AdoptedView<'a> {
    table: &'a str,
    key: &'a str,
    finished: bool,
    adopted_at: String,
    added: &'a [String],
    indexes: &'a [String],
}

/// Prints a plan for people.
pub(super) fn plan_table(cx: &Context, plan: &Plan) -> Result<(), Stop> {
    let used = plan
        .uses
        .iter()
        .map(|(fact, column)| vec![Cell::new(column), Cell::new(fact), Cell::new("exists")]);
    let added = plan.adds.iter().map(|added| {
        vec![
            Cell::new(&added.column),
            Cell::new(purpose(plan, added)),
            Cell::new(column_status(added)),
        ]
    });
    cx.output
        .table(&["COLUMN", "FOR", ""], used.chain(added).collect())?;
    cx.output.line("")?;
    let indexes = plan.indexes.iter().map(|index| {
        let status = match index.stage {
            Stage::Missing => "to be created",
            Stage::Broken => "incomplete: to be created again",
            Stage::There => "exists",
        };
        vec![Cell::new(&index.name), Cell::new(status)]
    });
    cx.output.table(&["INDEX", ""], indexes.collect())
}

fn column_status(added: &Addition) -> &'static str {
    if added.is_there {
        "added before"
    } else {
        "to be added"
    }
}

/// The fact that the table stores in a column; a column without a fact is for the order.
fn purpose(plan: &Plan, added: &Addition) -> &'static str {
    let facts = plan.table.facts();
    let held = facts.iter().find(|(_, column)| **column == added.column);
    held.map_or("order", |(fact, _)| *fact)
}

/// `tenure adopt list`.
pub(super) fn list(cx: &Context, tables: &[AdoptedTable]) -> Result<Exit, Stop> {
    if tables.is_empty() {
        cx.output.note("there are no adopted tables");
        return Ok(Exit::Nothing);
    }
    if cx.output.is_json() {
        for adopted in tables {
            cx.output.json(&AdoptedView {
                table: adopted.table.name.as_str(),
                key: adopted.table.key.as_str(),
                finished: adopted.is_finished,
                adopted_at: adopted.adopted_at.to_string(),
                added: &adopted.columns,
                indexes: &adopted.indexes,
            })?;
        }
        return Ok(Exit::Done);
    }
    let now = cx.output.now;
    let rows = tables.iter().map(|adopted| {
        vec![
            Cell::new(&adopted.table.name),
            Cell::new(&adopted.table.key),
            Cell::new(relative(adopted.adopted_at, now)),
            Cell::new(adopted.columns.len()),
            Cell::new(match adopted.location {
                TableLocation::Gone => "the table no longer exists; `--undo` removes the record",
                TableLocation::Elsewhere => "in another schema",
                TableLocation::Here if adopted.is_finished => "",
                TableLocation::Here => "unfinished: run it again",
            }),
        ]
    });
    let heading = ["TABLE", "KEY", "ADOPTED", " COLUMNS ADDED", ""];
    cx.output.table(&heading, rows.collect())?;
    Ok(Exit::Done)
}
