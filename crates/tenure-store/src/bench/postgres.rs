//! The bare loops on PostgreSQL, in a schema of their own.

use std::sync::Arc;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgPool, Postgres, Transaction};
use tenure_core::store::{Store, StoreError};
use tenure_core::{Identifier, Token};

use super::{Rate, Shape, Watch, bare_loop, cycle, event, fill, join_all, payload, token};
use crate::config::StoreConfig;
use crate::postgres::PostgresStore;
use crate::postgres::error::store_error;
use crate::postgres::row::get;
use crate::postgres::statements::Statement;

/// The bare loops on PostgreSQL.
#[derive(Debug)]
pub struct PostgresYardstick {
    url: String,
    schema: Identifier,
    store: Arc<PostgresStore>,
    /// Theirs: ordinary connections, without our planner's settings.
    pool: PgPool,
}

/// A snapshot that is held open until this is dropped.
#[derive(Debug)]
pub struct OldSnapshot {
    _transaction: Transaction<'static, Postgres>,
}

macro_rules! bare {
    ($name:literal) => {
        Statement::new(
            include_str!(concat!("../../sql/postgres/bench/", $name, ".sql")),
            None,
        )
    };
}

/// What a drain touches.
const TABLES: [&str; 8] = [
    "tenure_delivery_attempts",
    "tenure_events",
    "tenure_ready",
    "tenure_backlog",
    "tenure_arrivals",
    "tenure_domains",
    "tenure_leases",
    "tenure_setbacks",
];

impl PostgresYardstick {
    pub(super) async fn open(url: &str, schema: Identifier) -> Result<Self, StoreError> {
        let options: PgConnectOptions = url.parse().map_err(failed)?;
        let pool = PgPoolOptions::new()
            .max_connections(9)
            .connect_with(options.options([("search_path", schema.as_str())]))
            .await
            .map_err(failed)?;
        drop_schema(&pool, &schema).await?;
        let config = Self::config(&schema);
        PostgresStore::migrate(url, &config).await?;
        let store = Arc::new(PostgresStore::open(url, &config).await?);
        let mut conn = pool.acquire().await.map_err(failed)?;
        bare!("tables").raw(&mut conn).await.map_err(failed)?;
        Ok(Self {
            url: url.to_owned(),
            schema,
            store,
            pool,
        })
    }

    fn config(schema: &Identifier) -> StoreConfig {
        StoreConfig {
            schema: Some(schema.clone()),
            ..StoreConfig::default()
        }
    }

    pub(super) fn address(&self) -> (String, StoreConfig) {
        (self.url.clone(), Self::config(&self.schema))
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    pub(super) fn pool(&self) -> &PgPool {
        &self.pool
    }

    pub(super) fn schema(&self) -> &Identifier {
        &self.schema
    }

    pub(super) async fn say(&self, text: &str) -> Result<(), StoreError> {
        let statement = Statement::new(text, None);
        statement
            .query()
            .execute(&self.pool)
            .await
            .map_err(failed)?;
        Ok(())
    }

    pub(super) async fn tidy(&self, table: &str) -> Result<(), StoreError> {
        self.say(&format!("vacuum (analyze) {table}")).await
    }

    pub(super) async fn place(&self) -> Result<(), StoreError> {
        self.store.place_all(None).await
    }

    pub(super) async fn tidy_all(&self) -> Result<(), StoreError> {
        for table in TABLES {
            self.tidy(table).await?;
        }
        self.checkpoint().await
    }

    /// A role that may not checkpoint measures without it.
    pub(super) async fn checkpoint(&self) -> Result<(), StoreError> {
        drop(self.say("checkpoint").await);
        Ok(())
    }

    pub(super) async fn row_drain(&self, events: u32, shape: Shape) -> Rate {
        self.say("truncate bench_row").await?;
        bare!("row_fill")
            .query()
            .bind(i64::from(events))
            .bind(payload())
            .execute(&self.pool)
            .await
            .map_err(failed)?;
        self.tidy("bench_row").await?;
        self.checkpoint().await?;
        let watch = Watch::start();
        let loops = (0..shape.loops)
            .map(|_| tokio::spawn(row_loop(self.pool.clone(), shape.batch, token())));
        finish(loops.collect(), events).await?;
        Ok(watch.rate(events))
    }

    pub(super) async fn bare_drain(&self, events: u32, shape: Shape) -> Rate {
        fill(self.store(), &cycle(&[event()]), events).await?;
        self.tidy_all().await?;
        let watch = Watch::start();
        let loops = (0..shape.loops).map(|_| {
            let store = Arc::clone(&self.store);
            tokio::spawn(async move { bare_loop(store.as_ref(), shape.batch).await })
        });
        finish(loops.collect(), events).await?;
        Ok(watch.rate(events))
    }

    pub(super) async fn row_enqueue(&self, events: u32) -> Rate {
        self.insert(&bare!("row_enqueue"), events).await
    }

    pub(super) async fn bare_enqueue(&self, events: u32) -> Rate {
        self.insert(&bare!("bare_enqueue"), events).await
    }

    /// A thousand rows per statement, two producers.
    async fn insert(&self, statement: &Statement, events: u32) -> Rate {
        let watch = Watch::start();
        let producer = || async {
            for _ in 0..events / 2000 {
                let query = statement
                    .query()
                    .bind(vec!["bench.event"; 1000])
                    .bind(vec![payload(); 1000]);
                query.fetch_all(&self.pool).await.map_err(failed)?;
            }
            Ok::<(), StoreError>(())
        };
        let (one, other) = tokio::join!(producer(), producer());
        one.and(other)?;
        Ok(watch.rate(events / 2000 * 2000))
    }

    pub(super) async fn row_insert(&self, events: u32, producers: u32) -> Rate {
        let statement = bare!("row_insert");
        let each = events / producers;
        let watch = Watch::start();
        let producer = || async {
            for _ in 0..each {
                let query = statement.query().bind("bench.event").bind(payload());
                query.fetch_one(&self.pool).await.map_err(failed)?;
            }
            Ok::<(), StoreError>(())
        };
        let all = (0..producers).map(|_| producer()).collect();
        for done in join_all(all).await {
            done?;
        }
        Ok(watch.rate(each * producers))
    }

    /// The bare record of calls: opened before they are made.
    pub(super) async fn open_attempts(&self, calls: u32) -> Result<Vec<i64>, StoreError> {
        let statement = bare!("attempts_open");
        let query = statement.query().bind(i64::from(calls));
        let rows = query.fetch_all(&self.pool).await.map_err(failed)?;
        let ids = rows.iter().map(|row| get(row, 0));
        ids.collect::<Result<_, _>>().map_err(failed)
    }

    pub(super) async fn close_attempts(
        &self,
        ids: Vec<i64>,
        status: u16,
    ) -> Result<(), StoreError> {
        let statement = bare!("attempts_close");
        let query = statement.query().bind(ids).bind(i32::from(status));
        query.execute(&self.pool).await.map_err(failed)?;
        Ok(())
    }

    pub(super) async fn sessions(&self) -> Result<Vec<i32>, StoreError> {
        let statement = bare!("sessions");
        let rows = statement.query().fetch_all(&self.pool).await;
        let rows = rows.map_err(failed)?;
        let pids = rows.iter().map(|row| get(row, 0));
        pids.collect::<Result<_, _>>().map_err(failed)
    }

    pub(super) async fn old_snapshot(&self) -> Result<OldSnapshot, StoreError> {
        let mut transaction = self.pool.begin().await.map_err(failed)?;
        for text in [
            "set transaction isolation level repeatable read",
            "select count(*) from bench_ready",
        ] {
            let statement = Statement::new(text, None);
            let done = statement.query().execute(&mut *transaction).await;
            done.map_err(failed)?;
        }
        Ok(OldSnapshot {
            _transaction: transaction,
        })
    }

    pub(super) async fn close(self) -> Result<(), StoreError> {
        self.store.pool().close().await;
        drop_schema(&self.pool, &self.schema).await
    }
}

async fn drop_schema(pool: &PgPool, schema: &Identifier) -> Result<(), StoreError> {
    let text = format!("drop schema if exists {} cascade", schema.quoted());
    let statement = Statement::new(&text, None);
    statement.query().execute(pool).await.map_err(failed)?;
    Ok(())
}

type Looping = tokio::task::JoinHandle<Result<u32, StoreError>>;

pub(super) async fn finish(loops: Vec<Looping>, events: u32) -> Result<(), StoreError> {
    let mut done = 0;
    for each in loops {
        done += each.await.map_err(|cause| crashed(&cause))??;
    }
    assert_eq!(done, events, "a bare loop lost something");
    Ok(())
}

async fn row_loop(pool: PgPool, batch: u32, token: Token) -> Result<u32, StoreError> {
    let (claim, complete) = (bare!("row_claim"), bare!("row_complete"));
    let mut done = 0;
    loop {
        let query = claim
            .query()
            .bind(i64::from(batch))
            .bind(token.expose())
            .bind(token.holder());
        let rows = query.fetch_all(&pool).await.map_err(failed)?;
        if rows.is_empty() {
            return Ok(done);
        }
        let mut ids: Vec<i64> = Vec::with_capacity(rows.len());
        for row in &rows {
            let payload: String = get(row, 3).map_err(failed)?;
            std::hint::black_box(payload);
            ids.push(get(row, 0).map_err(failed)?);
        }
        let query = complete.query().bind(ids).bind(token.expose());
        query.execute(&pool).await.map_err(failed)?;
        done += u32::try_from(rows.len()).unwrap_or(u32::MAX);
    }
}

pub(super) fn failed(error: sqlx::Error) -> StoreError {
    store_error("bench", error)
}

fn crashed(cause: &tokio::task::JoinError) -> StoreError {
    use tenure_core::store::StoreErrorKind::Corrupt;
    StoreError::new("bench", Corrupt, format!("a loop crashed: {cause}"))
}
