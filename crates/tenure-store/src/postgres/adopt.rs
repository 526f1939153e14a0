//! Adoption on PostgreSQL: adds the missing columns and indexes while writers continue.
//!
//! The steps that need an exclusive table lock are one short transaction. It waits briefly for the
//! lock; on timeout it lets the queued writers pass and retries. Existing rows get their numbers
//! page by page, and indexes are created concurrently. Every step can be repeated.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use tenure_core::store::{Answer, OnStep, Rows, StoreError, StoreErrorKind, Tables, WhileHeld};
use tenure_core::{
    Adds, AdoptedTable, Identifier, LeaseTable, Plan, Stage, TableFacts, TableLocation,
};

use super::PostgresStore;
use super::error::{is_in_use, store_error};
use super::pool::Borrow as _;
use super::row::{get, get_timestamp, get_total};
use super::rows::PostgresRows;
use super::session::RunOn as _;
use super::statements::Statement;
use crate::adopt::ownership::{TableOwnership, as_seen, check_here, unless};
use crate::adopt::{Kinds, VERB, adopted_of, indexed, literal, names, noted, quoted};
use crate::render::Names;

/// Lock timeout; writers queued behind the adoption wait no longer than this.
const WAIT: &str = "set local lock_timeout = '200ms'";
/// Comment on every column that Tenure added.
const MARKED: &str = "added by Tenure: tenure adopt --undo takes it away";
/// Begins the transaction that holds the advisory lock; it holds no snapshot between statements,
/// so that concurrent index builds do not wait for it.
const ENTER: &str = "begin isolation level read committed; \
     set local idle_in_transaction_session_timeout = 0";
/// Maximum attempts to lock a table that is in use.
const TRIES: u32 = 150;
/// Pause between two attempts, so that writers can proceed.
const PAUSE: Duration = Duration::from_millis(300);
/// Pages whose rows one transaction numbers.
const PAGES: i64 = 32;
/// Maximum passes over all pages, for rows that other transactions had locked.
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

const RECORD: Text = text!("record");
const ADD: Text = text!("add");
const MARK: Text = text!("mark");
const TURN: Text = text!("turn");
const NUMBER: Text = text!("number");
const FILL: Text = text!("fill");
const INDEX: Text = text!("index");
const DROP_INDEX: Text = text!("drop_index");
const DROP: Text = text!("drop");
const FINISH: Text = text!("finish");
const FORGET: Text = text!("forget");
const ADOPTED: Text = text!("adopted");
const HELD: Text = text!("held");

/// The SQL steps of an adoption.
struct Script {
    /// One transaction: the record, and the changes that need an exclusive lock.
    begin: String,
    fill: Option<String>,
    /// Drops invalid indexes and creates missing ones; each statement runs by itself.
    indexes: Vec<String>,
    finish: String,
}

impl Script {
    fn of(plan: &Plan, schema: Option<&Identifier>) -> Result<Self, StoreError> {
        let place = plan.schema.as_deref();
        let names = || Ok(led(names(&plan.table, schema)?, &plan.table, place));
        let mut begin = render(&noted(names()?, plan), RECORD)?;
        let kinds = kinds();
        let additions = plan.missing().map(|added| {
            let column = kinds.column(&added.column, &added.what);
            format!("add column if not exists {column}")
        });
        let additions: Vec<String> = additions.collect();
        if !additions.is_empty() {
            let mut marks = String::new();
            for added in plan.missing() {
                let named = names()?.with("column", added.column.quoted());
                marks.push_str(&render(&named.with("mark", literal(MARKED)), MARK)?);
            }
            let named = names()?.with("additions", additions.join(",\n    "));
            let named = named.with("marks", marks.trim_end().to_owned());
            begin.push_str(&render(&named, ADD)?);
        }
        let fill = plan
            .adds_key()
            .then(|| render(&names()?, FILL))
            .transpose()?;
        // The sequence is created with the column, in one transaction.
        if plan.missing().any(|added| added.what == Adds::Key) {
            begin.push_str(&render(&names()?, NUMBER)?);
        }
        let mut indexes = Vec::new();
        for index in plan.indexes.iter().filter(|i| i.stage != Stage::There) {
            let named = indexed(names()?, index)?.with("concurrently", "concurrently".to_owned());
            indexes.push(render(&named, INDEX)?);
            if index.stage == Stage::Broken {
                let named = named.with("index", placed(&index.name.quoted(), place));
                indexes.insert(indexes.len() - 1, render(&named, DROP_INDEX)?);
            }
        }
        Ok(Self {
            begin,
            fill,
            indexes,
            finish: render(&unless(names()?, plan.adds_key())?, FINISH)?,
        })
    }

    async fn run(&self, conn: &mut PgConnection, tell: OnStep<'_>) -> Result<(), StoreError> {
        in_turn(conn, &self.begin, tell).await?;
        if let Some(fill) = &self.fill {
            fill_all(conn, &Statement::new(fill, None), tell).await?;
        }
        for text in &self.indexes {
            tell(text.lines().next().unwrap_or_default());
            let made = Statement::new(text, None).raw(conn).await;
            made.map_err(|error| {
                let hint = "run the same command again: it drops an incomplete index and \
                            continues; a statement_timeout of the role must leave time for it";
                store_error(VERB, error).with_hint(hint)
            })?;
        }
        let finish = Statement::new(&self.finish, None);
        finish.raw(conn).await.map_err(|e| store_error(VERB, e))
    }

    /// The whole script, for an administrator.
    fn whole(&self) -> String {
        let mut text = format!(
            "-- 1. Locks the table briefly; run it again after a lock timeout.\n\
             begin;\n{WAIT};\n{}commit;\n",
            self.begin
        );
        if let Some(fill) = &self.fill {
            let all = fill.replace("$1", "0").replace("$2", "4294967295");
            text.push_str(
                "\n-- 2. Numbers the existing rows at once; `tenure adopt` goes page by page.\n\
                 --    Locked rows are skipped: repeat until `seen` is 0.\n",
            );
            text.extend([all.trim_end(), ";\n"]);
        }
        text.push_str("\n-- 3. Run each by itself, outside a transaction; writers continue.\n");
        text.extend(self.indexes.iter().map(String::as_str));
        text.push_str(
            "\n-- 4. Completes the adoption; if rows still lack a number, repeat step 2.\n",
        );
        text.push_str(&self.finish);
        text
    }
}

fn kinds() -> Kinds {
    Kinds {
        key: "bigint",
        moment: "timestamptz",
        // PostgreSQL evaluates the default once, when it adds the column: it rewrites no row.
        written_at: "timestamptz not null default now()".to_owned(),
        counter: "integer not null default 0",
        fence: "bigint not null default 0",
        mark: None,
    }
}

fn render(names: &Names, (file, text): Text) -> Result<String, StoreError> {
    names.render(file, text)
}

/// Builds the script that reverts an adoption, in one transaction.
fn undo_text(adopted: &AdoptedTable, schema: Option<&Identifier>) -> Result<String, StoreError> {
    check_here(adopted)?;
    let place = adopted.schema.as_deref();
    let names = || Ok(led(names(&adopted.table, schema)?, &adopted.table, place));
    let mut text = String::new();
    for index in quoted(&adopted.indexes) {
        let named = names()?
            .with("index", placed(&index, place))
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
    fn inspect<'a>(&'a self, table: &'a LeaseTable) -> Answer<'a, TableFacts> {
        Box::pin(self.table_facts(table))
    }

    fn adopted(&self) -> Answer<'_, Vec<AdoptedTable>> {
        Box::pin(async move {
            let failed = |e| store_error(VERB, e);
            let statement = Statement::new(ADOPTED.1, self.schema.as_ref());
            let rows = statement
                .query()
                .bind(MARKED)
                .all_from(&self.pool)
                .await
                .map_err(failed)?;
            let mut tables = Vec::with_capacity(rows.len());
            for row in &rows {
                let name: &str = get(row, 0).map_err(failed)?;
                let texts = (get(row, 1).map_err(failed)?, get(row, 2).map_err(failed)?);
                let is_finished = get(row, 3).map_err(failed)?;
                let at = get_timestamp(row, 4).map_err(failed)?;
                let noted = adopted_of(name, texts, is_finished, at)?;
                tables.push(as_seen(noted, ownership_of(row).map_err(failed)?));
            }
            Ok(tables)
        })
    }

    fn adoption_sql(&self, plan: &Plan) -> Result<String, StoreError> {
        Ok(Script::of(plan, self.schema.as_ref())?.whole())
    }

    fn adopt<'a>(&'a self, plan: &'a Plan, tell: OnStep<'a>) -> Answer<'a, ()> {
        Box::pin(async move {
            let script = Script::of(plan, self.schema.as_ref())?;
            let mut turn = self.take_turn(&plan.table.name).await?;
            let added = plan.missing().count();
            tell(&format!("columns: {added} to add"));
            let adopted = script.run(&mut turn.conn, tell).await;
            adopted.and(turn.end().await)
        })
    }

    fn undo_sql(&self, adopted: &AdoptedTable) -> Result<String, StoreError> {
        let text = undo_text(adopted, self.schema.as_ref())?;
        Ok(format!("begin;\n{WAIT};\n{text}commit;\n"))
    }

    fn undo<'a>(&'a self, adopted: &'a AdoptedTable, held: WhileHeld) -> Answer<'a, u64> {
        Box::pin(async move {
            let undo = Undo::of(adopted, self.schema.as_ref(), held)?;
            let mut turn = self.take_turn(&adopted.table.name).await?;
            let mut answer = undo.once(&mut turn.conn).await;
            for _ in 1..TRIES {
                if !answer.as_ref().is_err_and(is_in_use) {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
                answer = undo.once(&mut turn.conn).await;
            }
            turn.end().await?;
            answer.map_err(|error| in_use(&error).unwrap_or_else(|| store_error(VERB, error)))
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
    /// Opens two dedicated connections, since the work takes long.
    async fn take_turn(&self, table: &Identifier) -> Result<Turn, StoreError> {
        let failed = |e| store_error(VERB, e);
        let hosts = self.pool.hosts();
        let mut lock = hosts.connect(VERB).await?;
        let begun = sqlx::raw_sql(ENTER).execute(&mut lock).await;
        begun.map_err(failed)?;
        let turn = Statement::new(TURN.1, None).query().bind(table.as_str());
        let row = turn.row_on(&mut lock).await.map_err(failed)?;
        if get(&row, 0).map_err(failed)? {
            let conn = hosts.connect(VERB).await?;
            return Ok(Turn { conn, lock });
        }
        let message = format!("another adoption of {table} is running");
        Err(StoreError::new(VERB, StoreErrorKind::Conflict, message)
            .with_hint("wait until it is done, and run the same command again"))
    }
}

/// The right to adopt or revert a table, against other processes.
struct Turn {
    conn: PgConnection,
    /// Holds an advisory lock in a transaction: a pooler could give a session with a lock of its
    /// own to another client.
    lock: PgConnection,
}

impl Turn {
    async fn end(mut self) -> Result<(), StoreError> {
        let ended = sqlx::raw_sql("rollback").execute(&mut self.lock).await;
        let closed = self.conn.close().await;
        let closed = ended.map(drop).and(closed).and(self.lock.close().await);
        closed.map_err(|e| store_error(VERB, e))
    }
}

fn ownership_of(row: &PgRow) -> Result<TableOwnership, sqlx::Error> {
    Ok(TableOwnership {
        leads_to: get(row, 5)?,
        is_kept: get(row, 6)?,
        marked: get(row, 7)?,
        unmarked: get(row, 8)?,
        indexes: get(row, 9)?,
    })
}

/// The statements that revert an adoption.
struct Undo {
    take: Option<Statement>,
    held: Option<Statement>,
    text: Statement,
}

impl Undo {
    fn of(
        adopted: &AdoptedTable,
        schema: Option<&Identifier>,
        held: WhileHeld,
    ) -> Result<Self, StoreError> {
        let place = adopted.schema.as_deref();
        let names = led(names(&adopted.table, schema)?, &adopted.table, place);
        let is_here = adopted.location == TableLocation::Here;
        let take = names.render("take", "lock table {table} in access exclusive mode")?;
        // An unfinished adoption may lack the lease columns; then no row can be held.
        let is_whole = is_here && adopted.is_finished && adopted.has_any();
        let held = (held == WhileHeld::Refuse && is_whole)
            .then(|| render(&names, HELD))
            .transpose()?;
        Ok(Self {
            take: is_here.then(|| Statement::new(&take, None)),
            held: held.map(|text| Statement::new(&text, None)),
            text: Statement::new(&undo_text(adopted, schema)?, None),
        })
    }

    /// Counts held rows while the table lock blocks claims; if there are none, removes what the
    /// adoption added. Returns the count.
    async fn once(&self, conn: &mut PgConnection) -> Result<u64, sqlx::Error> {
        let mut tx = conn.begin().await?;
        sqlx::raw_sql(WAIT).execute(&mut *tx).await?;
        if let Some(take) = &self.take {
            take.raw(&mut tx).await?;
        }
        if let Some(held) = &self.held {
            let row = held.query().row_on(&mut tx).await?;
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

/// Runs a short transaction that needs an exclusive table lock; retries while the table is in use.
async fn in_turn(conn: &mut PgConnection, text: &str, tell: OnStep<'_>) -> Result<(), StoreError> {
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

/// Error for a table that stayed in use during all attempts.
fn in_use(error: &sqlx::Error) -> Option<StoreError> {
    is_in_use(error).then(|| {
        let message = "the table is in use: a transaction has locked it for a long time";
        StoreError::new(VERB, StoreErrorKind::Unavailable, message).with_hint(
            "look for it in pg_stat_activity (state 'idle in transaction'), end it, and run the \
             same command again",
        )
    })
}

/// Numbers the rows that existed before the key column, page by page, until all have a number.
async fn fill_all(
    conn: &mut PgConnection,
    fill: &Statement,
    tell: OnStep<'_>,
) -> Result<(), StoreError> {
    let failed = |e| store_error(VERB, e);
    for round in 0..ROUNDS {
        if round > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let (mut from, mut pages, mut unnumbered) = (0, 1, 0);
        while from < pages {
            let query = fill.query().bind(from).bind(from + PAGES);
            let row = query.row_on(conn).await.map_err(failed)?;
            unnumbered += get::<i64>(&row, 0).map_err(failed)?;
            pages = get::<i64>(&row, 1).map_err(failed)?;
            from += PAGES;
            if from % (PAGES * 100) == 0 {
                tell(&format!("numbered the rows of {from} of {pages} pages"));
            }
        }
        if unnumbered == 0 {
            return Ok(());
        }
    }
    let message = "some rows have no number yet: other transactions kept them locked";
    Err(StoreError::new(VERB, StoreErrorKind::Unavailable, message)
        .with_hint("run the same command again when the table is less busy: it goes on"))
}

/// Qualifies a name with its schema, if that is a valid identifier.
fn placed(name: &str, schema: Option<&str>) -> String {
    let schema = schema.and_then(|schema| Identifier::new(schema).ok());
    match schema {
        Some(schema) => format!("{}.{name}", schema.quoted()),
        None => name.to_owned(),
    }
}

/// Qualifies the names of the table and its sequence with this schema.
fn led(names: Names, table: &LeaseTable, schema: Option<&str>) -> Names {
    let sequence = table.index_name("tenure_id_seq").quoted();
    names
        .with("table", placed(&table.name.quoted(), schema))
        .with("key_sequence", placed(&sequence, schema))
}
