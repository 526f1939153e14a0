//! The bare loops on PostgreSQL, and ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::{PgPool, Postgres, Transaction};
use tenure_core::store::{Claim, Intake, LeaseStore, Settle, StoreError};
use tenure_core::{Held, ItemId, Outcome, Token};

use super::{Figure, Size, Watch, event, payload, token};
use crate::config::StoreConfig;
use crate::postgres::PostgresStore;
use crate::postgres::error::store_error;
use crate::postgres::row::get;
use crate::postgres::statements::Statement;

/// How a drain is run.
#[derive(Clone, Copy, Debug)]
struct Shape {
    batch: u32,
    connections: u32,
    is_fused: bool,
    /// One in this many is retried; 0: none.
    retry_one_in: u32,
}

/// All figures on PostgreSQL, each handed to `report` as soon as it is known. The second database
/// is filled, so that a drain of full tables runs in turns with one of empty tables on the first.
///
/// # Errors
/// A database cannot be reached or used. Both must be empty.
pub async fn postgres(
    [url, full_url]: [&str; 2],
    size: Size,
    mut report: impl FnMut(&Figure),
) -> Result<(), StoreError> {
    let bench = Bench::open(url).await?;
    let shapes = [
        ("claim, settle: 1000 × 2", 2.0, shape(1000, 2, false, 0)),
        ("fused: 1000 × 2", 2.0, shape(1000, 2, true, 0)),
        ("fused: 100 × 4", 1.6, shape(100, 4, true, 0)),
        (
            "fused: 1000 × 2, 1 % retried",
            1.3,
            shape(1000, 2, true, 100),
        ),
    ];
    for (name, promise, shape) in shapes {
        let mut figure = Figure {
            name: format!("row loop → {name}"),
            promise,
            rounds: Vec::new(),
        };
        for _ in 0..size.rounds {
            let theirs = bench.row_drain(size.events, shape).await?;
            figure
                .rounds
                .push((theirs, bench.drain(size.events, shape).await?));
        }
        report(&figure);
    }
    report(&bench.enqueue(size).await?);
    let full = Bench::open(full_url).await?;
    on_full_tables(&bench, &full, size, &mut report).await
}

/// The shape in which full tables are compared with empty ones.
const FAST: Shape = shape(1000, 2, true, 0);

const fn shape(batch: u32, connections: u32, is_fused: bool, retry_one_in: u32) -> Shape {
    Shape {
        batch,
        connections,
        is_fused,
        retry_one_in,
    }
}

#[derive(Debug)]
struct Bench {
    store: Arc<PostgresStore>,
    /// Theirs: ordinary connections, without our planner's settings.
    pool: PgPool,
    claims: Arc<AtomicU64>,
}

macro_rules! bare {
    ($name:literal) => {
        Statement::new(
            include_str!(concat!("../../sql/postgres/bench/", $name, ".sql")),
            None,
        )
    };
}

impl Bench {
    async fn open(url: &str) -> Result<Self, StoreError> {
        let config = StoreConfig::default();
        PostgresStore::migrate(url, &config).await?;
        let store = Arc::new(PostgresStore::open(url, &config).await?);
        let pool = PgPool::connect(url).await.map_err(failed)?;
        let mut conn = pool.acquire().await.map_err(failed)?;
        bare!("tables").raw(&mut conn).await.map_err(failed)?;
        Ok(Self {
            store,
            pool,
            claims: Arc::default(),
        })
    }

    fn token(&self) -> Token {
        token(self.claims.fetch_add(1, Ordering::Relaxed))
    }

    async fn tidy(&self, table: &'static str) -> Result<(), StoreError> {
        let text = format!("vacuum (analyze) {table}; checkpoint");
        for step in text.split("; ") {
            Statement::new(step, None)
                .query()
                .execute(&self.pool)
                .await
                .map_err(failed)?;
        }
        Ok(())
    }

    async fn tidy_all(&self) -> Result<(), StoreError> {
        for table in [
            "tenure_events",
            "tenure_ready",
            "tenure_leases",
            "tenure_setbacks",
        ] {
            self.tidy(table).await?;
        }
        Ok(())
    }

    /// The row loop: rows per second.
    async fn row_drain(&self, events: u32, shape: Shape) -> Result<f64, StoreError> {
        Statement::new("truncate bench_row", None)
            .query()
            .execute(&self.pool)
            .await
            .map_err(failed)?;
        bare!("row_fill")
            .query()
            .bind(i64::from(events))
            .bind(payload())
            .execute(&self.pool)
            .await
            .map_err(failed)?;
        self.tidy("bench_row").await?;
        let watch = Watch::start();
        let mut loops = Vec::new();
        for _ in 0..shape.connections {
            loops.push(tokio::spawn(row_loop(
                self.pool.clone(),
                shape.batch,
                self.token(),
            )));
        }
        let mut done = 0;
        for each in loops {
            done += each.await.map_err(|cause| crashed(&cause))??;
        }
        assert_eq!(done, events, "the row loop lost something");
        Ok(watch.rate(events))
    }

    /// Our loop: events per second. What is retried is worked again at once, as in a real drain.
    async fn drain(&self, events: u32, shape: Shape) -> Result<f64, StoreError> {
        self.fill(events).await?;
        for table in [
            "tenure_events",
            "tenure_ready",
            "tenure_leases",
            "tenure_setbacks",
        ] {
            self.tidy(table).await?;
        }
        let watch = Watch::start();
        let done = self.run(shape, u32::MAX).await?;
        assert_eq!(done, events, "our loop lost something");
        Ok(watch.rate(events))
    }

    /// Claims and settles until nothing is left or each loop has made `claims_max` claims; how many
    /// were done.
    async fn run(&self, shape: Shape, claims_max: u32) -> Result<u32, StoreError> {
        let mut loops = Vec::new();
        for _ in 0..shape.connections {
            let each = Loop {
                store: Arc::clone(&self.store),
                claims: Arc::clone(&self.claims),
                shape,
                claims_max,
            };
            loops.push(tokio::spawn(each.run()));
        }
        let mut done = 0;
        for each in loops {
            done += each.await.map_err(|cause| crashed(&cause))??;
        }
        Ok(done)
    }

    async fn fill(&self, events: u32) -> Result<(), StoreError> {
        let batch = vec![event(); 1000];
        for _ in 0..events / 1000 {
            self.store.enqueue(&batch).await?;
        }
        Ok(())
    }

    /// Enqueue 1000 at a time on two connections against the bare two-table insert.
    async fn enqueue(&self, size: Size) -> Result<Figure, StoreError> {
        let name = "bare two-table insert → enqueue: 1000 × 2".to_owned();
        let mut figure = Figure {
            name,
            promise: 0.8,
            rounds: Vec::new(),
        };
        for _ in 0..size.rounds {
            let batches = size.events / 2000;
            let watch = Watch::start();
            let (one, other) = tokio::join!(self.bare_enqueue(batches), self.bare_enqueue(batches));
            one.and(other)?;
            let theirs = watch.rate(batches * 2000);
            let watch = Watch::start();
            let (one, other) = tokio::join!(self.fill(batches * 1000), self.fill(batches * 1000));
            one.and(other)?;
            figure.rounds.push((theirs, watch.rate(batches * 2000)));
        }
        self.run(FAST, u32::MAX).await?;
        Ok(figure)
    }

    async fn bare_enqueue(&self, batches: u32) -> Result<(), StoreError> {
        let statement = bare!("bare_enqueue");
        for _ in 0..batches {
            let query = statement
                .query()
                .bind(vec!["bench.event"; 1000])
                .bind(vec![payload(); 1000]);
            query.fetch_all(&self.pool).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Claims and settles as many events as a drain would, of the many that wait: events per
    /// second.
    async fn drain_some(&self, events: u32) -> Result<f64, StoreError> {
        self.fill(events).await?;
        self.tidy_all().await?;
        let watch = Watch::start();
        let done = self
            .run(FAST, events / FAST.batch / FAST.connections)
            .await?;
        Ok(watch.rate(done))
    }

    /// Opens a transaction whose snapshot stays.
    async fn old_snapshot(&self) -> Result<Transaction<'static, Postgres>, StoreError> {
        let mut old = self.pool.begin().await.map_err(failed)?;
        let isolation = "set transaction isolation level repeatable read";
        Statement::new(isolation, None)
            .query()
            .execute(&mut *old)
            .await
            .map_err(failed)?;
        Statement::new("select 1", None)
            .query()
            .execute(&mut *old)
            .await
            .map_err(failed)?;
        Ok(old)
    }
}

/// The drain with much pending, with much published and with an old snapshot open, in turns with
/// the drain of the same number from empty tables.
async fn on_full_tables(
    empty: &Bench,
    full: &Bench,
    size: Size,
    report: &mut impl FnMut(&Figure),
) -> Result<(), StoreError> {
    let figure = |name: &str| Figure {
        name: format!("empty tables → {name}"),
        promise: 0.8,
        rounds: Vec::new(),
    };
    let mut pending = figure(&format!("{} pending", size.standing));
    full.fill(size.standing).await?;
    for _ in 0..size.rounds {
        let theirs = empty.drain_some(size.events).await?;
        pending
            .rounds
            .push((theirs, full.drain_some(size.events).await?));
    }
    report(&pending);
    let mut published = figure(&format!("{} published", size.standing));
    full.run(FAST, u32::MAX).await?;
    for _ in 0..size.rounds {
        let theirs = empty.drain_some(size.events).await?;
        published
            .rounds
            .push((theirs, full.drain_some(size.events).await?));
    }
    report(&published);
    let mut snapshot = figure("an old snapshot open");
    let old = full.old_snapshot().await?;
    for _ in 0..size.rounds {
        let theirs = empty.drain_some(size.events).await?;
        snapshot
            .rounds
            .push((theirs, full.drain_some(size.events).await?));
    }
    report(&snapshot);
    old.rollback().await.map_err(failed)
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

/// One of our connections.
struct Loop {
    store: Arc<PostgresStore>,
    claims: Arc<AtomicU64>,
    shape: Shape,
    claims_max: u32,
}

impl Loop {
    fn claim(&self) -> Claim {
        Claim::new(
            token(self.claims.fetch_add(1, Ordering::Relaxed)),
            self.shape.batch,
        )
    }

    async fn run(self) -> Result<u32, StoreError> {
        let mut done = 0;
        let mut held = self.store.claim(&self.claim()).await?;
        let mut claims = 1;
        while let Some(batch) = held {
            let (settle, count) = self.settle(&batch);
            done += count;
            let is_last = claims >= self.claims_max;
            if is_last || !self.shape.is_fused {
                let settlement = self.store.settle(&settle).await?;
                assert!(
                    settlement.refused().next().is_none(),
                    "a settle was refused"
                );
                if is_last {
                    break;
                }
                held = self.store.claim(&self.claim()).await?;
            } else {
                let (settlement, next) =
                    self.store.settle_and_claim(&settle, &self.claim()).await?;
                assert!(
                    settlement.refused().next().is_none(),
                    "a settle was refused"
                );
                held = next;
            }
            claims += 1;
        }
        Ok(done)
    }

    /// All done, but every n-th that was not retried before.
    fn settle(&self, batch: &Held) -> (Settle, u32) {
        let mut settle = Settle::new(batch.lease.token.clone());
        let mut count = 0;
        for item in &batch.items {
            if self.is_retried(item.id) && item.counters.failures == 0 {
                let after = Duration::ZERO;
                settle = settle.item(
                    item.id,
                    Outcome::Retry {
                        after,
                        error: "again".into(),
                    },
                );
            } else {
                settle = settle.item(item.id, Outcome::Done);
                count += 1;
            }
        }
        (settle, count)
    }

    fn is_retried(&self, id: ItemId) -> bool {
        id.number().checked_rem(i64::from(self.shape.retry_one_in)) == Some(0)
    }
}

fn failed(error: sqlx::Error) -> StoreError {
    store_error("bench", error)
}

fn crashed(cause: &tokio::task::JoinError) -> StoreError {
    use tenure_core::store::StoreErrorKind::Corrupt;
    StoreError::new("bench", Corrupt, format!("a loop crashed: {cause}"))
}
