//! The bare loops on PostgreSQL, in a separate schema.

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool, Postgres, Row as _, Transaction};
use tenure::lease::Token;
use tenure::store::Store;
use tenure::table::Identifier;
use tenure::{StoreConfig, StoreError, StoreErrorKind, Tenure};

use super::{Rate, Shape, Stopwatch, bare_loop, cycle, event, fill, join_all, payload, token};

#[derive(Debug)]
pub(crate) struct PostgresYardstick {
    url: String,
    schema: Identifier,
    tenure: Tenure,
    /// For the bare loops: ordinary connections, without Tenure's planner settings.
    pool: PgPool,
}

/// An open snapshot; dropping the value ends it.
#[derive(Debug)]
pub(crate) struct OldSnapshot {
    _transaction: Transaction<'static, Postgres>,
}

macro_rules! bare {
    ($name:literal) => {
        include_str!(concat!("../../sql/postgres/", $name, ".sql"))
    };
}

/// Vacuums the tables that a drain uses.
const VACUUM: [&str; 8] = [
    "vacuum (analyze) tenure_delivery_attempts",
    "vacuum (analyze) tenure_events",
    "vacuum (analyze) tenure_ready",
    "vacuum (analyze) tenure_backlog",
    "vacuum (analyze) tenure_arrivals",
    "vacuum (analyze) tenure_keys",
    "vacuum (analyze) tenure_leases",
    "vacuum (analyze) tenure_setbacks",
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
        tenure::migrate(url, &config).await?;
        let tenure = Tenure::open_with(url, &config, "bench").await?;
        let made = sqlx::raw_sql(bare!("tables")).execute(&pool).await;
        made.map_err(failed)?;
        Ok(Self {
            url: url.to_owned(),
            schema,
            tenure,
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
        self.tenure.store()
    }

    pub(super) fn pool(&self) -> &PgPool {
        &self.pool
    }

    pub(super) fn schema(&self) -> &Identifier {
        &self.schema
    }

    pub(super) async fn execute(&self, text: &'static str) -> Result<(), StoreError> {
        let done = sqlx::query(text).execute(&self.pool).await;
        done.map(drop).map_err(failed)
    }

    pub(super) async fn tidy_all(&self) -> Result<(), StoreError> {
        for vacuum in VACUUM {
            self.execute(vacuum).await?;
        }
        self.checkpoint().await
    }

    /// Runs a checkpoint, if the role may.
    pub(super) async fn checkpoint(&self) -> Result<(), StoreError> {
        drop(self.execute("checkpoint").await);
        Ok(())
    }

    pub(super) async fn row_drain(&self, events: u32, shape: Shape) -> Rate {
        self.execute("truncate bench_row").await?;
        sqlx::query(bare!("row_fill"))
            .bind(i64::from(events))
            .bind(payload())
            .execute(&self.pool)
            .await
            .map_err(failed)?;
        self.execute("vacuum (analyze) bench_row").await?;
        self.checkpoint().await?;
        let watch = Stopwatch::start();
        let loops = (0..shape.loops)
            .map(|_| tokio::spawn(row_loop(self.pool.clone(), shape.batch, token())));
        finish(loops.collect(), events).await?;
        Ok(watch.rate(events))
    }

    pub(super) async fn bare_drain(&self, events: u32, shape: Shape) -> Rate {
        fill(self.store(), &cycle(&[event()]), events).await?;
        self.tidy_all().await?;
        let watch = Stopwatch::start();
        let loops = (0..shape.loops).map(|_| {
            let store = self.tenure.shared();
            tokio::spawn(async move { bare_loop(store.as_ref(), shape.batch).await })
        });
        finish(loops.collect(), events).await?;
        Ok(watch.rate(events))
    }

    pub(super) async fn row_enqueue(&self, events: u32) -> Rate {
        self.insert(bare!("row_enqueue"), events).await
    }

    pub(super) async fn bare_enqueue(&self, events: u32) -> Rate {
        self.insert(bare!("bare_enqueue"), events).await
    }

    /// A thousand rows per statement, two producers.
    async fn insert(&self, statement: &'static str, events: u32) -> Rate {
        let watch = Stopwatch::start();
        let producer = || async {
            for _ in 0..events / 2000 {
                let query = sqlx::query(statement)
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
        let watch = Stopwatch::start();
        let producer = || async {
            for _ in 0..each {
                let query = sqlx::query(statement).bind("bench.event").bind(payload());
                query.fetch_one(&self.pool).await.map_err(failed)?;
            }
            Ok::<(), StoreError>(())
        };
        for done in join_all((0..producers).map(|_| producer())).await {
            done?;
        }
        Ok(watch.rate(each * producers))
    }

    /// Inserts the bare record of calls before they are made.
    pub(super) async fn open_attempts(&self, calls: u32) -> Result<Vec<i64>, StoreError> {
        let statement = bare!("attempts_open");
        let query = sqlx::query(statement).bind(i64::from(calls));
        let rows = query.fetch_all(&self.pool).await.map_err(failed)?;
        let ids = rows.iter().map(|row| row.try_get_unchecked(0));
        ids.collect::<Result<_, _>>().map_err(failed)
    }

    pub(super) async fn close_attempts(
        &self,
        ids: Vec<i64>,
        status: u16,
    ) -> Result<(), StoreError> {
        let statement = bare!("attempts_close");
        let query = sqlx::query(statement).bind(ids).bind(i32::from(status));
        query.execute(&self.pool).await.map_err(failed)?;
        Ok(())
    }

    pub(super) async fn sessions(&self) -> Result<Vec<i32>, StoreError> {
        let statement = bare!("sessions");
        let rows = sqlx::query(statement).fetch_all(&self.pool).await;
        let rows = rows.map_err(failed)?;
        let pids = rows.iter().map(|row| row.try_get_unchecked(0));
        pids.collect::<Result<_, _>>().map_err(failed)
    }

    pub(super) async fn old_snapshot(&self) -> Result<OldSnapshot, StoreError> {
        let mut transaction = self.pool.begin().await.map_err(failed)?;
        for text in [
            "set transaction isolation level repeatable read",
            "select count(*) from bench_ready",
        ] {
            let done = sqlx::query(text).execute(&mut *transaction).await;
            done.map_err(failed)?;
        }
        Ok(OldSnapshot {
            _transaction: transaction,
        })
    }

    pub(super) async fn close(self) -> Result<(), StoreError> {
        drop(self.tenure);
        drop_schema(&self.pool, &self.schema).await
    }
}

async fn drop_schema(pool: &PgPool, schema: &Identifier) -> Result<(), StoreError> {
    let text = format!("drop schema if exists {} cascade", schema.quoted());
    // The schema's name is checked and quoted.
    let dropped = sqlx::query(AssertSqlSafe(text)).execute(pool).await;
    dropped.map(drop).map_err(failed)
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
        let query = sqlx::query(claim)
            .bind(i64::from(batch))
            .bind(token.expose())
            .bind(token.holder());
        let rows = query.fetch_all(&pool).await.map_err(failed)?;
        if rows.is_empty() {
            return Ok(done);
        }
        let mut ids: Vec<i64> = Vec::with_capacity(rows.len());
        for row in &rows {
            let payload: String = row.try_get_unchecked(3).map_err(failed)?;
            std::hint::black_box(payload);
            ids.push(row.try_get_unchecked(0).map_err(failed)?);
        }
        let query = sqlx::query(complete).bind(ids).bind(token.expose());
        query.execute(&pool).await.map_err(failed)?;
        done += u32::try_from(rows.len()).unwrap_or(u32::MAX);
    }
}

pub(super) fn failed(error: sqlx::Error) -> StoreError {
    // The error text may contain the address with its password.
    if matches!(error, sqlx::Error::Configuration(_)) {
        let message = "the address of the database is not valid";
        return StoreError::new("bench", StoreErrorKind::Invalid, message)
            .with_hint("expected postgres://user:password@host:port/database");
    }
    let is_away = matches!(
        error,
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut
    );
    if is_away {
        let message = "the database does not answer";
        return StoreError::new("bench", StoreErrorKind::Unavailable, message).with_cause(error);
    }
    StoreError::new("bench", StoreErrorKind::Corrupt, error.to_string())
}

fn crashed(cause: &tokio::task::JoinError) -> StoreError {
    StoreError::new(
        "bench",
        StoreErrorKind::Corrupt,
        format!("a loop crashed: {cause}"),
    )
}
