//! Reads the facts of a table to be adopted from the PostgreSQL catalog and its rows.

use sqlx::postgres::PgRow;
use tenure_core::store::StoreError;
use tenure_core::{ColumnFacts, Holds, IndexFacts, LeaseTable, TableFacts, TableKind};

use super::PostgresStore;
use super::error::store_error;
use super::pool::Borrow as _;
use super::row::{get, get_total};
use super::statements::Statement;
use crate::adopt::ownership::needed;
use crate::adopt::{VERB, names};

macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../../sql/postgres/adopt/", $name, ".sql"))
    };
}

/// A check constraint on the status: its name, whether it uses only that column, and its
/// expression.
type Check = (String, bool, String);

impl PostgresStore {
    /// Reads the facts of a table to be adopted.
    pub(super) async fn table_facts(&self, table: &LeaseTable) -> Result<TableFacts, StoreError> {
        let failed = |e| store_error(VERB, e);
        let status = table.states.status().map(|status| &status.column);
        let name = table.name.quoted();
        let ask = Statement::new(text!("look"), None).query().bind(&name);
        let columns = ask.all_from(&self.pool).await.map_err(failed)?;
        let ask = Statement::new(text!("parts"), None).query().bind(&name);
        let ask = ask.bind(needed(table, "tenure_id_seq"));
        let ask = ask.bind(status.map(ToString::to_string));
        let parts = ask.all_from(&self.pool).await.map_err(failed)?;
        let mut found = found_of(&columns).map_err(failed)?;
        let checks = sort_parts(&mut found, &parts).map_err(failed)?;
        if found.kind != TableKind::Table {
            return Ok(found);
        }
        for check in checks {
            self.judge(table, check, &mut found).await?;
        }
        self.rows_of(table, &mut found).await?;
        Ok(found)
    }

    /// Tests whether a check constraint allows every status word. One that also uses other columns,
    /// or that cannot be evaluated without a row, is reported for the operator to review.
    async fn judge(
        &self,
        table: &LeaseTable,
        (name, is_alone, asks): Check,
        found: &mut TableFacts,
    ) -> Result<(), StoreError> {
        let Some(status) = table.states.status().filter(|_| is_alone) else {
            found.checks.push(name);
            return Ok(());
        };
        let declared = found.column(status.column.as_str());
        let declared = declared.map(|column| column.declared.clone());
        let text = names(table, self.schema.as_ref())?
            .with("status_type", declared.unwrap_or_default())
            .with("check", asks)
            .render("allows", text!("allows"))?;
        let words: Vec<String> = status.words.all().iter().map(ToString::to_string).collect();
        let ask = Statement::new(&text, None).query().bind(words);
        let Ok(refused) = ask.all_from(&self.pool).await else {
            found.checks.push(name);
            return Ok(());
        };
        for row in &refused {
            let word = get(row, 0).map_err(|e| store_error(VERB, e))?;
            found.refused.push((name.clone(), word));
        }
        Ok(())
    }

    /// Reads facts from the rows: the status words in use, and whether a row has no number.
    async fn rows_of(&self, table: &LeaseTable, found: &mut TableFacts) -> Result<(), StoreError> {
        let failed = |e| store_error(VERB, e);
        if let Some(status) = table.states.status() {
            let is_there = found.column(status.column.as_str()).is_some();
            let word = if is_there {
                format!("t.{}::text", status.column.quoted())
            } else {
                "null::text".to_owned()
            };
            let names = names(table, self.schema.as_ref())?.with("word", word);
            let text = names.render("words", text!("words"))?;
            let ask = Statement::new(&text, None).query();
            let rows = ask.all_from(&self.pool).await.map_err(failed)?;
            found.has_rows = !rows.is_empty();
            for row in rows.iter().filter(|_| is_there) {
                let word = get(row, 0).map_err(failed)?;
                found.words.push((word, get_total(row, 1).map_err(failed)?));
            }
        }
        if found.column("tenure_id").is_some() {
            let names = names(table, self.schema.as_ref())?;
            let text = names.render("unnumbered", text!("unnumbered"))?;
            let ask = Statement::new(&text, None).query();
            let rows = ask.all_from(&self.pool).await.map_err(failed)?;
            let first = rows.first().map_or(Ok(false), |row| get(row, 0));
            found.has_unnumbered = first.map_err(failed)?;
        }
        Ok(())
    }
}

fn found_of(columns: &[PgRow]) -> Result<TableFacts, sqlx::Error> {
    let Some(first) = columns.first() else {
        return Ok(TableFacts::missing());
    };
    let kind = match get(first, 0)? {
        "r" => TableKind::Table,
        "v" | "m" => TableKind::View,
        "p" => TableKind::Partitioned,
        "partition" => TableKind::Partition,
        "parent" => TableKind::Parent,
        _ => TableKind::Other,
    };
    let column = |row: &PgRow| {
        let declared: String = get(row, 2)?;
        Ok(ColumnFacts {
            name: get(row, 1)?,
            holds: holds(&declared),
            declared,
            is_nullable: get(row, 3)?,
            is_unique: get(row, 4)?,
            is_generated: get(row, 5)?,
        })
    };
    Ok(TableFacts {
        kind,
        columns: columns
            .iter()
            .map(column)
            .collect::<Result<_, sqlx::Error>>()?,
        schema: get(first, 6)?,
        ..TableFacts::missing()
    })
}

/// Adds indexes and taken names to `found`; returns the check constraints for the caller to judge.
fn sort_parts(found: &mut TableFacts, parts: &[PgRow]) -> Result<Vec<Check>, sqlx::Error> {
    let mut checks = Vec::new();
    for row in parts {
        let (name, is_valid) = (get(row, 1)?, get(row, 2)?);
        match get(row, 0)? {
            "index" => found.indexes.push(IndexFacts { name, is_valid }),
            "check" => checks.push((name, is_valid, get(row, 3)?)),
            _ => found.taken.push(name),
        }
    }
    Ok(checks)
}

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
