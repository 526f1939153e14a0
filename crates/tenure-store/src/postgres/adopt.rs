//! Adoption on PostgreSQL: a table is given what it lacks while its writers go on.
//!
//! What needs the table for itself is one short transaction: it waits a moment for it, and if
//! someone else has it, lets those behind pass and comes again. Rows get their numbers page by
//! page, and indexes are made concurrently. Every step can be done again.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{Connection, PgConnection};
use tenure_core::store::{Answer, Rows, StoreError, StoreErrorKind, Tables, Tell, WhileHeld};
use tenure_core::{
    AdoptedTable, FoundColumn, FoundIndex, FoundKind, FoundTable, Holds, Identifier, LeaseTable,
    Plan, Stage,
};

use super::error::{is_in_use, store_error};
use super::lend::Borrow as _;
use super::row::{get, get_timestamp, get_total};
use super::rows::PostgresRows;
use super::statements::Statement;
use super::{PostgresStore, connect};
use crate::adopt::{Kinds, VERB, adopted_of, indexed, names, noted, quoted};
use crate::render::Names;

/// A writer that comes after us waits no longer than this.
const WAIT: &str = "set local lock_timeout = '200ms'";
/// How often a table that is in use is asked for.
const TRIES: u32 = 150;
/// How long its writers have it to themselves in between.
const PAUSE: Duration = Duration::from_millis(300);
/// Pages whose rows are numbered in one transaction.
const PAGES: i64 = 32;
/// How often all pages are gone through, for rows that someone had in hand.
const ROUNDS: u32 = 300;

macro_rules! text {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../sql/postgres/adopt/", $name, ".sql")),
        )
    };
}

type Text = (&'static str, &'static str);

const LOOK: Text = text!("look");
const PARTS: Text = text!("parts");
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

/// The steps of an adoption, as text.
struct Script {
    /// One transaction: the record, and what needs the table for itself.
    begin: String,
    fill: Option<String>,
    /// Indexes that were broken off, and those that are to be made; each by itself.
    indexes: Vec<String>,
    finish: String,
}

impl Script {
    fn of(plan: &Plan, schema: Option<&Identifier>) -> Result<Self, StoreError> {
        let names = || names(&plan.table, schema);
        let mut begin = render(&noted(names()?, plan), RECORD)?;
        let kinds = kinds();
        let additions = plan.missing().map(|added| {
            let column = kinds.column(&added.column, &added.what);
            format!("add column if not exists {column}")
        });
        let additions: Vec<String> = additions.collect();
        if !additions.is_empty() {
            let named = names()?.with("additions", additions.join(",\n    "));
            begin.push_str(&render(&named, ADD)?);
        }
        let fill = plan
            .adds_key()
            .then(|| render(&names()?, FILL))
            .transpose()?;
        if plan.adds_key() {
            begin.push_str(&render(&names()?, NUMBER)?);
        }
        let mut indexes = Vec::new();
        for index in plan.indexes.iter().filter(|i| i.stage != Stage::There) {
            let named = indexed(names()?, index)?.with("concurrently", "concurrently".to_owned());
            if index.stage == Stage::Broken {
                indexes.push(render(&named, DROP_INDEX)?);
            }
            indexes.push(render(&named, INDEX)?);
        }
        Ok(Self {
            begin,
            fill,
            indexes,
            finish: render(&names()?, FINISH)?,
        })
    }

    /// All of it, for an administrator.
    fn whole(&self) -> String {
        let mut text = format!(
            "-- 1. Needs the table for a moment; when it waits too long, run it again.\n\
             begin;\n{WAIT};\n{}commit;\n",
            self.begin
        );
        if let Some(fill) = &self.fill {
            let all = fill.replace("$1", "0").replace("$2", "4294967295");
            text.push_str(
                "\n-- 2. Numbers the rows that are there, all at once; `tenure adopt` goes page by \
                 page.\n",
            );
            text.extend([all.trim_end(), ";\n"]);
        }
        text.push_str("\n-- 3. Each by itself, outside of a transaction; writers go on.\n");
        text.extend(self.indexes.iter().map(String::as_str));
        text.push_str("\n-- 4. It is done.\n");
        text.push_str(&self.finish);
        text
    }
}

fn kinds() -> Kinds {
    Kinds {
        key: "bigint",
        moment: "timestamptz",
        // Judged once, when it is added: no row is written.
        written_at: "timestamptz not null default now()".to_owned(),
        counter: "integer not null default 0",
        fence: "bigint not null default 0",
    }
}

fn render(names: &Names, (file, text): Text) -> Result<String, StoreError> {
    names.render(file, text)
}

/// What gives a table back: one transaction.
fn undo_text(adopted: &AdoptedTable, schema: Option<&Identifier>) -> Result<String, StoreError> {
    let names = || names(&adopted.table, schema);
    let mut text = String::new();
    for index in quoted(&adopted.indexes) {
        let named = names()?
            .with("index", index)
            .with("concurrently", String::new());
        text.push_str(&render(&named, DROP_INDEX)?);
    }
    let columns = quoted(&adopted.columns);
    if !columns.is_empty() {
        let removals = columns
            .iter()
            .map(|name| format!("drop column if exists {name}"));
        let removals: Vec<String> = removals.collect();
        let named = names()?.with("removals", removals.join(",\n    "));
        text.push_str(&render(&named, DROP)?);
    }
    text.push_str(&render(&names()?, FORGET)?);
    Ok(text)
}

impl Tables for PostgresStore {
    fn look<'a>(&'a self, table: &'a Identifier) -> Answer<'a, FoundTable> {
        Box::pin(async move {
            let ask = |(_, text): Text| {
                Statement::new(text, None)
                    .query()
                    .bind(table.quoted())
                    .all_from(&self.pool)
            };
            let failed = |e| store_error(VERB, e);
            let columns = ask(LOOK).await.map_err(failed)?;
            let parts = ask(PARTS).await.map_err(failed)?;
            found_of(&columns, &parts).map_err(failed)
        })
    }

    fn adopted(&self) -> Answer<'_, Vec<AdoptedTable>> {
        Box::pin(async move {
            let failed = |e| store_error(VERB, e);
            let statement = Statement::new(ADOPTED.1, self.schema.as_ref());
            let rows = statement
                .query()
                .all_from(&self.pool)
                .await
                .map_err(failed)?;
            let mut tables = Vec::with_capacity(rows.len());
            for row in &rows {
                let name: &str = get(row, 0).map_err(failed)?;
                let texts = (get(row, 1).map_err(failed)?, get(row, 2).map_err(failed)?);
                let is_finished = get(row, 3).map_err(failed)?;
                let at = get_timestamp(row, 4).map_err(failed)?;
                tables.push(adopted_of(name, texts, is_finished, at)?);
            }
            Ok(tables)
        })
    }

    fn adoption_sql(&self, plan: &Plan) -> Result<String, StoreError> {
        Ok(Script::of(plan, self.schema.as_ref())?.whole())
    }

    fn adopt<'a>(&'a self, plan: &'a Plan, tell: Tell<'a>) -> Answer<'a, ()> {
        Box::pin(async move {
            let script = Script::of(plan, self.schema.as_ref())?;
            let mut conn = self.own_connection().await?;
            let told = plan.missing().count();
            tell(&format!("columns: {told} to add"));
            in_turn(&mut conn, &script.begin, tell).await?;
            if let Some(fill) = &script.fill {
                fill_all(&mut conn, &Statement::new(fill, None), tell).await?;
            }
            for text in &script.indexes {
                tell(text.lines().next().unwrap_or_default());
                let made = Statement::new(text, None).raw(&mut conn).await;
                made.map_err(|error| {
                    let hint = "run the same command again: it drops what is half made, and goes \
                                on; a statement_timeout of the role must leave time for it";
                    store_error(VERB, error).hint(hint)
                })?;
            }
            let finish = Statement::new(&script.finish, None);
            finish
                .raw(&mut conn)
                .await
                .map_err(|e| store_error(VERB, e))?;
            conn.close().await.map_err(|e| store_error(VERB, e))
        })
    }

    fn undo_sql(&self, adopted: &AdoptedTable) -> Result<String, StoreError> {
        let text = undo_text(adopted, self.schema.as_ref())?;
        Ok(format!("begin;\n{WAIT};\n{text}commit;\n"))
    }

    fn undo<'a>(&'a self, adopted: &'a AdoptedTable, held: WhileHeld) -> Answer<'a, u64> {
        Box::pin(async move {
            let undo = Undo::of(adopted, self.schema.as_ref(), held)?;
            let mut conn = self.own_connection().await?;
            for _ in 1..TRIES {
                match undo.once(&mut conn).await {
                    Err(error) if is_in_use(&error) => tokio::time::sleep(PAUSE).await,
                    answer => return answer.map_err(|e| store_error(VERB, e)),
                }
            }
            let last = undo.once(&mut conn).await;
            last.map_err(|error| in_use(&error).unwrap_or_else(|| store_error(VERB, error)))
        })
    }

    fn rows(&self, table: LeaseTable) -> Answer<'_, Arc<dyn Rows>> {
        Box::pin(async move {
            let rows: Arc<dyn Rows> = Arc::new(Self::rows(self, table).await?);
            Ok(rows)
        })
    }
}

impl Rows for PostgresRows {
    fn table(&self) -> &LeaseTable {
        self.table()
    }
}

impl PostgresStore {
    /// A connection that nobody else uses: what is done on it takes long.
    async fn own_connection(&self) -> Result<PgConnection, StoreError> {
        let options = PgConnectOptions::clone(&self.pool.connect_options());
        connect(VERB, &options).await
    }
}

/// A table on its way back.
struct Undo {
    take: Statement,
    held: Option<Statement>,
    text: Statement,
}

impl Undo {
    fn of(
        adopted: &AdoptedTable,
        schema: Option<&Identifier>,
        held: WhileHeld,
    ) -> Result<Self, StoreError> {
        let names = names(&adopted.table, schema)?;
        let take = names.render("take", "lock table {table} in access exclusive mode")?;
        // Half way there, the columns that tell may be missing; then nothing can be held.
        let held = (held == WhileHeld::Refuse && adopted.is_finished)
            .then(|| render(&names, HELD))
            .transpose()?;
        Ok(Self {
            take: Statement::new(&take, None),
            held: held.map(|text| Statement::new(&text, None)),
            text: Statement::new(&undo_text(adopted, schema)?, None),
        })
    }

    /// Asks who holds something while nobody can claim, and takes away what was added.
    async fn once(&self, conn: &mut PgConnection) -> Result<u64, sqlx::Error> {
        let mut tx = conn.begin().await?;
        sqlx::raw_sql(WAIT).execute(&mut *tx).await?;
        self.take.raw(&mut tx).await?;
        if let Some(held) = &self.held {
            let row = held.query().fetch_one(&mut *tx).await?;
            let held = get_total(&row, 0)?;
            if held > 0 {
                return Ok(held);
            }
        }
        self.text.raw(&mut tx).await?;
        tx.commit().await?;
        Ok(0)
    }
}

/// Runs a short transaction that needs the table for itself, when its turn has come.
async fn in_turn(conn: &mut PgConnection, text: &str, tell: Tell<'_>) -> Result<(), StoreError> {
    let script = Statement::new(text, None);
    for nth in 1..=TRIES {
        match once(conn, &script).await {
            Err(error) if is_in_use(&error) => {
                if nth == TRIES {
                    return Err(in_use(&error).unwrap_or_else(|| store_error(VERB, error)));
                }
                if nth.is_multiple_of(10) {
                    tell("the table is in use: still waiting for a moment to add the columns");
                }
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer.map_err(|e| store_error(VERB, e)),
        }
    }
    Ok(())
}

async fn once(conn: &mut PgConnection, script: &Statement) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin().await?;
    sqlx::raw_sql(WAIT).execute(&mut *tx).await?;
    script.raw(&mut tx).await?;
    tx.commit().await
}

/// The report that a table is in use all the time.
fn in_use(error: &sqlx::Error) -> Option<StoreError> {
    is_in_use(error).then(|| {
        let message = "the table is in use: a transaction has had it for long";
        StoreError::new(VERB, StoreErrorKind::Unavailable, message).hint(
            "look for it in pg_stat_activity (state 'idle in transaction'), end it, and run the \
             same command again",
        )
    })
}

/// Numbers the rows that were there before the key was, page by page, until all have a number.
async fn fill_all(
    conn: &mut PgConnection,
    fill: &Statement,
    tell: Tell<'_>,
) -> Result<(), StoreError> {
    let failed = |e| store_error(VERB, e);
    for round in 0..ROUNDS {
        if round > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let (mut from, mut pages, mut seen) = (0, 1, 0);
        while from < pages {
            let query = fill.query().bind(from).bind(from + PAGES);
            let row = query.fetch_one(&mut *conn).await.map_err(failed)?;
            seen += get::<i64>(&row, 0).map_err(failed)?;
            pages = get::<i64>(&row, 1).map_err(failed)?;
            from += PAGES;
            if from % (PAGES * 100) == 0 {
                tell(&format!("numbered the rows of {from} of {pages} pages"));
            }
        }
        if seen == 0 {
            return Ok(());
        }
    }
    let message = "some rows have no number yet: others have had them in hand all the time";
    Err(StoreError::new(VERB, StoreErrorKind::Unavailable, message)
        .hint("run the same command again when the table is less busy: it goes on"))
}

fn found_of(columns: &[PgRow], parts: &[PgRow]) -> Result<FoundTable, sqlx::Error> {
    let Some(first) = columns.first() else {
        return Ok(FoundTable::missing());
    };
    let kind = match get(first, 0)? {
        "r" => FoundKind::Table,
        "v" | "m" => FoundKind::View,
        "p" => FoundKind::Partitioned,
        _ => FoundKind::Other,
    };
    let column = |row: &PgRow| {
        let declared: String = get(row, 2)?;
        Ok(FoundColumn {
            name: get(row, 1)?,
            holds: holds(&declared),
            declared,
            is_nullable: get(row, 3)?,
            is_unique: get(row, 4)?,
        })
    };
    let mut found = FoundTable {
        kind,
        columns: columns
            .iter()
            .map(column)
            .collect::<Result<_, sqlx::Error>>()?,
        ..FoundTable::missing()
    };
    for row in parts {
        let (name, is_valid) = (get(row, 1)?, get(row, 2)?);
        if get(row, 0)? {
            found.indexes.push(FoundIndex { name, is_valid });
        } else {
            found.checks.push(name);
        }
    }
    Ok(found)
}

/// What a column of this type can hold.
fn holds(declared: &str) -> Holds {
    match declared {
        "timestamp with time zone" => Holds::Moment,
        "text" | "character varying" => Holds::Text(None),
        "integer" => Holds::Integer,
        "bigint" => Holds::BigInteger,
        other => {
            let most = other
                .strip_prefix("character varying(")
                .and_then(|rest| rest.strip_suffix(')'))
                .and_then(|number| number.parse().ok());
            most.map_or(Holds::Other, |most| Holds::Text(Some(most)))
        }
    }
}
