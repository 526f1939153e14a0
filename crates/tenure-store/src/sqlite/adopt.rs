//! Adoption in SQLite: each step is its own transaction and can be repeated.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, named_params};
use tenure_core::store::{Answer, OnStep, Rows, StoreError, StoreErrorKind, Tables, WhileHeld};
use tenure_core::{
    Adds, AdoptedTable, Indexes, LeaseTable, Plan, PlannedIndex, Stage, TableFacts, TableLocation,
    Timestamp,
};

use super::error::failed;
use super::rows::SqliteRows;
use super::table_facts::{MARK, ownership_of, table_facts};
use super::{SqliteStore, moment_of};
use crate::adopt::ownership::{TableOwnership, as_seen, check_here, unless};
use crate::adopt::{Kinds, VERB, adopted_of, indexed, names, noted, quoted};
use crate::render::{MARKER, Names};

/// Maximum rows numbered in one transaction.
const ROWS: i64 = 1_000;

macro_rules! text {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../sql/sqlite/adopt/", $name, ".sql")),
        )
    };
}

type Text = (&'static str, &'static str);

const RECORD: Text = text!("record");
const ADD: Text = text!("add");
const NUMBER: Text = text!("number");
const FILL: Text = text!("fill");
const INDEX: Text = text!("index");
const DROP_INDEX: Text = text!("drop_index");
const DROP: Text = text!("drop");
const FINISH: Text = text!("finish");
const FORGET: Text = text!("forget");
const ADOPTED: Text = text!("adopted");
const HELD: Text = text!("held");
const NOTED: Text = text!("noted");

/// A step: a description for the operator, and its statements, which run in one transaction.
struct Step {
    told: String,
    text: String,
    /// Repeat the step until it changes nothing.
    is_repeated: bool,
}

/// Builds the steps of a plan. Existing rows without a creation time get `now`.
fn steps(plan: &Plan, now: Timestamp) -> Result<Vec<Step>, StoreError> {
    let names = || names(&plan.table, None);
    let step = |told: &str, text: String| Step {
        told: told.to_owned(),
        text,
        is_repeated: false,
    };
    let mut begin = render(&noted(names()?, plan), RECORD)?;
    let kinds = kinds(now);
    for added in plan.missing() {
        let addition = kinds.column(&added.column, &added.what);
        begin.push_str(&render(&names()?.with("addition", addition), ADD)?);
    }
    let count = plan.missing().count();
    let mut steps = vec![step(&format!("columns: {count} to add"), begin)];
    let make = |index: &PlannedIndex| -> Result<Step, StoreError> {
        let text = render(&indexed(names()?, index)?, INDEX)?;
        Ok(step(&format!("the index {}", index.name), text))
    };
    let left = || plan.indexes.iter().filter(|i| i.stage != Stage::There);
    // The statements that number rows look them up in this index, so create it first.
    for index in left().filter(|index| index.what == Indexes::Key) {
        steps.push(make(index)?);
    }
    let assignments = assignments(plan);
    if !assignments.is_empty() {
        let filled = names()?.render("number", &assignments.join(", "))?;
        let named = names()?.with("assignments", filled.trim().to_owned());
        let text = statement(&render(&named, NUMBER)?, "number");
        steps.push(step("the trigger for columns without a default", text));
    }
    if plan.adds_key() {
        steps.push(Step {
            told: "numbers for existing rows".to_owned(),
            text: render(&names()?, FILL)?,
            is_repeated: true,
        });
    }
    for index in left().filter(|index| index.what != Indexes::Key) {
        steps.push(make(index)?);
    }
    let finish = unless(names()?, plan.adds_key())?;
    steps.push(step("done", render(&finish, FINISH)?));
    Ok(steps)
}

fn kinds(now: Timestamp) -> Kinds {
    Kinds {
        key: "integer",
        moment: "integer",
        // SQLite requires a constant default for an added column; a trigger fills later rows.
        written_at: format!("integer not null default {}", now.as_micros()),
        counter: "integer not null default 0",
        fence: "integer not null default 0",
        mark: Some(MARK),
    }
}

/// Assignments of the trigger that fills columns without a default in new rows.
fn assignments(plan: &Plan) -> Vec<&'static str> {
    let adds = plan.adds.iter().filter_map(|added| match added.what {
        Adds::Key => Some("{key} = (select ifnull(max({key}), 0) + 1 from {table})"),
        Adds::WrittenAt => {
            // Works in every SQLite version: the application's may be older than Tenure's.
            Some(
                "{created_at} = \
                 cast((julianday('now') - 2440587.5) * 86400000 + 0.5 as integer) * 1000",
            )
        }
        Adds::Moment | Adds::Text | Adds::Counter | Adds::Fence | Adds::Order | Adds::Status(_) => {
            None
        }
    });
    adds.collect()
}

/// Builds the statements that undo an adoption in one transaction.
fn undo_text(adopted: &AdoptedTable) -> Result<String, StoreError> {
    check_here(adopted)?;
    let names = || names(&adopted.table, None);
    let mut text = String::new();
    for index in quoted(&adopted.indexes) {
        text.push_str(&render(&names()?.with("index", index), DROP_INDEX)?);
    }
    // The trigger exists only if columns were added.
    if !adopted.columns.is_empty() {
        let number = render(&names()?.with("assignments", String::new()), NUMBER)?;
        text.push_str(&statement(&number, "drop"));
    }
    for column in quoted(&adopted.columns) {
        text.push_str(&render(&names()?.with("column", column), DROP)?);
    }
    text.push_str(&render(&names()?, FORGET)?);
    Ok(text)
}

/// Renders a file. Drops the marker line unless the file has several statements.
fn render(names: &Names, (file, text): Text) -> Result<String, StoreError> {
    let text = names.render(file, text)?;
    if text.matches(MARKER).count() > 1 {
        return Ok(text);
    }
    let lines = text.lines().filter(|line| !line.starts_with(MARKER));
    Ok(lines.flat_map(|line| [line, "\n"]).collect())
}

/// Picks one statement out of a text with several.
fn statement(text: &str, name: &str) -> String {
    let mut parts = text.split(MARKER);
    let found = parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('\n'));
    found.unwrap_or_default().to_owned()
}

/// Reads all recorded adoptions, complete or not.
fn adopted(conn: &Connection) -> Result<Vec<AdoptedTable>, StoreError> {
    type Columns = ((String, String, String), bool, i64, TableOwnership);
    let read = || -> rusqlite::Result<Vec<Columns>> {
        let mut statement = conn.prepare_cached(ADOPTED.1)?;
        let row = |row: &Row<'_>| {
            let texts = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok((texts, row.get(3)?, row.get(4)?, ownership_of(row, 5)?))
        };
        statement.query_map([], row)?.collect()
    };
    let rows = read().map_err(failed(VERB))?;
    let tables = rows.into_iter().map(|(texts, is_done, at, ownership)| {
        let (name, description, added) = texts;
        let at = Timestamp::from_micros(at);
        let noted = adopted_of(&name, (&description, &added), is_done, at)?;
        Ok(as_seen(noted, ownership))
    });
    tables.collect()
}

fn recorded(conn: &Connection, table: &LeaseTable) -> Result<Option<AdoptedTable>, StoreError> {
    let mut all = adopted(conn)?.into_iter();
    Ok(all.find(|adopted| adopted.table.name == table.name))
}

/// The recorded state of a table between two steps of its adoption; the next step may run while it
/// is unchanged. SQLite has no lock that outlasts a transaction and ends with its process, so each
/// step checks again in its own transaction. Two processes may run the same steps of one plan:
/// every step can be repeated.
#[derive(Clone, Copy)]
enum AdoptionRecord {
    /// No step of this plan has run yet.
    NotYet,
    /// The adoption began at this time.
    Since(i64),
}

impl AdoptionRecord {
    fn of(conn: &Connection, plan: &Plan) -> Result<Self, StoreError> {
        let name = named_params! {":table": plan.table.name.as_str()};
        let noted = conn.query_row(NOTED.1, name, |row| row.get(0)).optional();
        let noted = noted.map_err(failed(VERB))?;
        noted
            .map(Self::Since)
            .ok_or_else(|| in_between(&plan.table))
    }

    fn check(self, conn: &Connection, plan: &Plan) -> Result<(), StoreError> {
        let is_so = match self {
            Self::NotYet => {
                let noted = recorded(conn, &plan.table)?;
                let again = plan
                    .table
                    .plan(&table_facts(conn, &plan.table)?, noted.as_ref());
                again.is_ok_and(|again| {
                    (&again.table, &again.adds, &again.indexes)
                        == (&plan.table, &plan.adds, &plan.indexes)
                })
            }
            Self::Since(then) => matches!(Self::of(conn, plan)?, Self::Since(at) if at == then),
        };
        is_so.then_some(()).ok_or_else(|| in_between(&plan.table))
    }
}

/// The error for a change by another process between two checks.
fn in_between(table: &LeaseTable) -> StoreError {
    let message = format!(
        "another adoption of {} is running, or the table was changed since it was looked at",
        table.name
    );
    StoreError::new(VERB, StoreErrorKind::Conflict, message)
        .with_hint("wait until it is done, and run the same command again")
}

impl Tables for SqliteStore {
    fn inspect<'a>(&'a self, table: &'a LeaseTable) -> Answer<'a, TableFacts> {
        Box::pin(async move {
            let table = table.clone();
            let read = move |conn: &Connection| table_facts(conn, &table);
            self.writer().read(VERB, read).await
        })
    }

    fn adopted(&self) -> Answer<'_, Vec<AdoptedTable>> {
        Box::pin(self.writer().read(VERB, adopted))
    }

    fn adoption_sql(&self, plan: &Plan) -> Result<String, StoreError> {
        let mut text = String::new();
        for (nth, step) in (1..).zip(steps(plan, moment_of(self.clock.as_ref(), None))?) {
            let again = if step.is_repeated {
                ", again until it changes nothing"
            } else {
                ""
            };
            let body = step.text.replace(":limit", &ROWS.to_string());
            let step = format!(
                "-- {nth}. {}{again}\nbegin immediate;\n{body}commit;\n",
                step.told
            );
            text.push_str(&step);
        }
        Ok(text)
    }

    fn adopt<'a>(&'a self, plan: &'a Plan, tell: OnStep<'a>) -> Answer<'a, ()> {
        Box::pin(async move {
            let shared = Arc::new(plan.clone());
            let mut noted = AdoptionRecord::NotYet;
            for step in steps(plan, moment_of(self.clock.as_ref(), None))? {
                tell(&step.told);
                let text: Arc<str> = step.text.into();
                loop {
                    let (plan, text) = (Arc::clone(&shared), Arc::clone(&text));
                    let run = move |conn: &Connection| {
                        noted.check(conn, &plan)?;
                        let rows = if step.is_repeated {
                            conn.execute(&text, named_params! {":limit": ROWS})
                        } else {
                            conn.execute_batch(&text).map(|()| 0)
                        };
                        Ok((
                            rows.map_err(failed(VERB))?,
                            AdoptionRecord::of(conn, &plan)?,
                        ))
                    };
                    let (rows, since) = self.writer().write(VERB, run).await?;
                    noted = since;
                    if rows == 0 {
                        break;
                    }
                }
            }
            Ok(())
        })
    }

    fn undo_sql(&self, adopted: &AdoptedTable) -> Result<String, StoreError> {
        Ok(format!(
            "begin immediate;\n{}commit;\n",
            undo_text(adopted)?
        ))
    }

    fn undo<'a>(&'a self, adopted: &'a AdoptedTable, held: WhileHeld) -> Answer<'a, u64> {
        Box::pin(async move {
            let text = undo_text(adopted)?;
            // An unfinished adoption may lack the lease columns; then no row can be held.
            let is_here = adopted.location == TableLocation::Here;
            let is_whole = is_here && adopted.is_finished && adopted.has_any();
            let ask = (held == WhileHeld::Refuse && is_whole)
                .then(|| render(&names(&adopted.table, None)?, HELD))
                .transpose()?;
            let give_back = move |conn: &Connection| -> rusqlite::Result<u64> {
                if let Some(ask) = &ask {
                    let held: i64 = conn.query_row(ask, [], |row| row.get(0))?;
                    if held > 0 {
                        return Ok(u64::try_from(held).unwrap_or(u64::MAX));
                    }
                }
                conn.execute_batch(&text)?;
                Ok(0)
            };
            let looked = adopted.clone();
            let run = move |conn: &Connection| {
                // Undo would leave behind anything that was added since the inspection.
                if recorded(conn, &looked.table)?.as_ref() != Some(&looked) {
                    return Err(in_between(&looked.table));
                }
                give_back(conn).map_err(failed(VERB))
            };
            self.writer().write(VERB, run).await
        })
    }

    fn rows(&self, table: LeaseTable) -> Answer<'_, Arc<dyn Rows>> {
        Box::pin(async move {
            let rows: Arc<dyn Rows> = Arc::new(Self::rows(self, table).await?);
            Ok(rows)
        })
    }
}

impl Rows for SqliteRows {
    fn table(&self) -> &LeaseTable {
        self.table()
    }
}
