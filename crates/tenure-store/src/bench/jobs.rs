//! What jobs are measured against: a table of checkpoints with a lock that expires, written by hand;
//! and an outbox that is adopted.

use std::sync::Arc;

use rusqlite::{Connection, params};
use tenure_core::store::StoreError;

use super::postgres::{PostgresYardstick, bare, failed, finish};
use super::sqlite::{SqliteYardstick, text};
use super::{Rate, Watch, Yardstick, chunk_name, payload, token};
use crate::config::StoreConfig;
use crate::postgres::statements::Statement;

/// The matrix of the bare checkpoints.
const MATRIX: &str = "bench";
/// Rows per chunk, as is said at its end.
const ROWS: i64 = 1000;

impl Yardstick {
    /// Claims and completes so many checkpoints, one by one, as it is written by hand: pairs per
    /// second. They are there before.
    ///
    /// # Errors
    /// The database failed.
    pub async fn bare_chunks(&self, chunks: u32, loops: u32) -> Rate {
        match self {
            Self::Postgres(yardstick) => yardstick.bare_chunks(chunks, loops).await,
            Self::Sqlite(yardstick) => {
                let work = move |conn: &mut Connection| bare_chunks(conn, chunks);
                yardstick.blocking(work).await
            }
        }
    }

    /// Where an engine finds a table that was adopted: on PostgreSQL in the scratch schema.
    pub fn adopted_address(&self) -> (String, StoreConfig) {
        match self {
            Self::Postgres(yardstick) => yardstick.adopted_address(),
            Self::Sqlite(yardstick) => yardstick.address(),
        }
    }

    /// Puts so many rows into the table `outbox`, all pending.
    ///
    /// # Errors
    /// The database failed, or nobody has made the table.
    pub async fn fill_adopted(&self, rows: u32) -> Result<(), StoreError> {
        match self {
            Self::Postgres(yardstick) => yardstick.fill_adopted(rows).await,
            Self::Sqlite(yardstick) => yardstick.fill_adopted(rows).await,
        }
    }
}

impl PostgresYardstick {
    async fn bare_chunks(&self, chunks: u32, loops: u32) -> Rate {
        self.say("truncate bench_checkpoint").await?;
        let fill = bare!("chunk_fill");
        let filled = fill.query().bind(i64::from(chunks)).execute(self.pool());
        filled.await.map_err(failed)?;
        self.tidy("bench_checkpoint").await?;
        self.checkpoint().await?;
        let watch = Watch::start();
        let all = (0..loops).map(|first| {
            let pool = self.pool().clone();
            tokio::spawn(async move {
                let (claim, complete) = (bare!("chunk_claim"), bare!("chunk_complete"));
                let token = token();
                let mut done = 0;
                for number in (first..chunks).step_by(usize::try_from(loops).unwrap_or(1)) {
                    let name = chunk_name(number);
                    let query = claim.query().bind(MATRIX).bind(&name).bind(token.holder());
                    query.fetch_one(&pool).await.map_err(failed)?;
                    let query = complete.query().bind(MATRIX).bind(&name).bind(ROWS);
                    query.execute(&pool).await.map_err(failed)?;
                    done += 1;
                }
                Ok(done)
            })
        });
        finish(all.collect(), chunks).await?;
        Ok(watch.rate(chunks))
    }

    /// An adopted table is found by its bare name, like any table of the caller's.
    fn adopted_address(&self) -> (String, StoreConfig) {
        let (url, config) = self.address();
        let mark = if url.contains('?') { '&' } else { '?' };
        let schema = self.schema().as_str();
        let url = format!("{url}{mark}options=-c%20search_path%3D{schema}");
        (url, config)
    }

    async fn fill_adopted(&self, rows: u32) -> Result<(), StoreError> {
        self.say("truncate outbox").await?;
        let fill = bare!("adopted_fill");
        let query = fill.query().bind(i64::from(rows)).bind(payload());
        query.execute(self.pool()).await.map_err(failed)?;
        self.tidy("outbox").await?;
        self.checkpoint().await
    }
}

impl SqliteYardstick {
    /// By a connection of its own to the file of ours.
    async fn fill_adopted(&self, rows: u32) -> Result<(), StoreError> {
        let path = Arc::<std::path::Path>::from(self.ours());
        let work = move |_: &mut Connection| {
            let conn = Connection::open(&path)?;
            conn.execute("delete from outbox", [])?;
            conn.execute(text!("adopted_fill"), params![rows, payload()])?;
            conn.execute_batch("analyze; pragma wal_checkpoint(truncate)")
        };
        self.blocking(work).await
    }
}

fn bare_chunks(conn: &mut Connection, chunks: u32) -> rusqlite::Result<f64> {
    conn.execute("delete from bench_checkpoint", [])?;
    conn.execute(text!("chunk_fill"), params![chunks])?;
    conn.execute_batch("analyze; pragma wal_checkpoint(truncate)")?;
    let token = token();
    let now = i64::MAX / 2;
    let watch = Watch::start();
    for number in 0..chunks {
        let name = chunk_name(number);
        let mut claim = conn.prepare_cached(text!("chunk_claim"))?;
        let _id: i64 =
            claim.query_row(params![MATRIX, name, token.holder(), now], |row| row.get(0))?;
        conn.prepare_cached(text!("chunk_complete"))?
            .execute(params![MATRIX, name, ROWS, now])?;
    }
    Ok(watch.rate(chunks))
}
