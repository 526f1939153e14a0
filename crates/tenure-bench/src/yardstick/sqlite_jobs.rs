//! The bare checkpoints and the adopted outbox on SQLite.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, params};
use tenure::StoreError;

use super::jobs::{MATRIX, ROWS};
use super::sqlite::SqliteYardstick;
use super::{Rate, Stopwatch, chunk_name, payload, token};

macro_rules! bare {
    ($name:literal) => {
        include_str!(concat!("../../sql/sqlite/", $name, ".sql"))
    };
}

impl SqliteYardstick {
    pub(super) async fn bare_chunks(&self, chunks: u32) -> Rate {
        self.blocking(move |conn| bare_chunks(conn, chunks)).await
    }

    pub(super) async fn make_adopted(&self) -> Result<(), StoreError> {
        let path = Arc::<Path>::from(self.ours());
        let make = move |_: &mut Connection| {
            Connection::open(&path)?.execute_batch(bare!("adopted_table"))
        };
        self.blocking(make).await
    }

    /// Uses a separate connection to Tenure's file.
    pub(super) async fn fill_adopted(&self, rows: u32) -> Result<(), StoreError> {
        let path = Arc::<Path>::from(self.ours());
        let work = move |_: &mut Connection| {
            let conn = Connection::open(&path)?;
            conn.execute("delete from outbox", [])?;
            conn.execute(bare!("adopted_fill"), params![rows, payload()])?;
            conn.execute_batch("analyze; pragma wal_checkpoint(truncate)")
        };
        self.blocking(work).await
    }
}

fn bare_chunks(conn: &mut Connection, chunks: u32) -> rusqlite::Result<f64> {
    conn.execute("delete from bench_checkpoint", [])?;
    conn.execute(bare!("chunk_fill"), params![chunks])?;
    conn.execute_batch("analyze; pragma wal_checkpoint(truncate)")?;
    let token = token();
    let now = i64::MAX / 2;
    let watch = Stopwatch::start();
    for number in 0..chunks {
        let name = chunk_name(number);
        let mut claim = conn.prepare_cached(bare!("chunk_begin"))?;
        let _id: i64 =
            claim.query_row(params![MATRIX, name, token.holder(), now], |row| row.get(0))?;
        conn.prepare_cached(bare!("chunk_end"))?
            .execute(params![MATRIX, name, ROWS, now])?;
    }
    Ok(watch.rate(chunks))
}
