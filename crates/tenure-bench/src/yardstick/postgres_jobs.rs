//! The bare checkpoints and the adopted outbox on PostgreSQL.

use tenure::{StoreConfig, StoreError};

use super::jobs::{MATRIX, ROWS};
use super::postgres::{PostgresYardstick, failed, finish};
use super::{Rate, Stopwatch, chunk_name, payload, token};

macro_rules! bare {
    ($name:literal) => {
        include_str!(concat!("../../sql/postgres/", $name, ".sql"))
    };
}

impl PostgresYardstick {
    pub(super) async fn bare_chunks(&self, chunks: u32, loops: u32) -> Rate {
        self.execute("truncate bench_checkpoint").await?;
        let fill = bare!("chunk_fill");
        let filled = sqlx::query(fill)
            .bind(i64::from(chunks))
            .execute(self.pool());
        filled.await.map_err(failed)?;
        self.execute("vacuum (analyze) bench_checkpoint").await?;
        self.checkpoint().await?;
        let watch = Stopwatch::start();
        let all = (0..loops).map(|first| {
            let pool = self.pool().clone();
            tokio::spawn(async move {
                let (claim, complete) = (bare!("chunk_begin"), bare!("chunk_end"));
                let token = token();
                let mut done = 0;
                for number in (first..chunks).step_by(usize::try_from(loops).unwrap_or(1)) {
                    let name = chunk_name(number);
                    let query = sqlx::query(claim)
                        .bind(MATRIX)
                        .bind(&name)
                        .bind(token.holder());
                    query.fetch_one(&pool).await.map_err(failed)?;
                    let query = sqlx::query(complete).bind(MATRIX).bind(&name).bind(ROWS);
                    query.execute(&pool).await.map_err(failed)?;
                    done += 1;
                }
                Ok(done)
            })
        });
        finish(all.collect(), chunks).await?;
        Ok(watch.rate(chunks))
    }

    /// The engine finds an adopted table by its bare name, like any table of the caller.
    pub(super) fn adopted_address(&self) -> (String, StoreConfig) {
        let (url, config) = self.address();
        let mark = if url.contains('?') { '&' } else { '?' };
        let schema = self.schema().as_str();
        let url = format!("{url}{mark}options=-c%20search_path%3D{schema}");
        (url, config)
    }

    pub(super) async fn make_adopted(&self) -> Result<(), StoreError> {
        let made = sqlx::raw_sql(bare!("adopted_table")).execute(self.pool());
        made.await.map(drop).map_err(failed)
    }

    pub(super) async fn fill_adopted(&self, rows: u32) -> Result<(), StoreError> {
        self.execute("truncate outbox").await?;
        let fill = bare!("adopted_fill");
        let query = sqlx::query(fill).bind(i64::from(rows)).bind(payload());
        query.execute(self.pool()).await.map_err(failed)?;
        self.execute("vacuum (analyze) outbox").await?;
        self.checkpoint().await
    }
}
