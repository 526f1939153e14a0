//! Jobs and checkpoints on both databases: their specification, and holders that die, are late or
//! race.

mod bounds;
mod chunks;
mod fences;
mod for_good;
mod held_up;
mod looks;
pub(crate) mod plans;
mod planted;
mod raw_sql;
mod retries;
mod rows;
mod transaction;

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};
use tenure_core::job::{Chunk, ChunkClaim, ChunkKey, ChunkName, MatrixName, NewJob};
use tenure_core::store::{
    ChunkEnd, ChunkHold, Claim, ClaimChunk, EndChunk, JobHold, Jobs, ProvidesJobs, Pruner,
};
use tenure_core::{Guarded, Held, LapsePolicy, Refusal, Term, Timestamp, Token};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::sqlite::SqliteStore;

use crate::place::Place;

/// The time of the tests.
const NOW: Timestamp = Timestamp::from_micros(4_102_444_800_000_000);

/// The term of a checkpoint.
const TWO_MINUTES: Duration = Duration::from_mins(2);

impl Place {
    fn jobs(&self) -> &dyn Jobs {
        let book = match self {
            Self::Postgres { store, .. } => store.job_store(),
            Self::Sqlite { store, .. } => store.job_store(),
        };
        book.expect("both keep jobs")
    }

    fn pruner(&self) -> &dyn Pruner {
        match self {
            Self::Postgres { store, .. } => store.as_ref(),
            Self::Sqlite { store, .. } => store,
        }
    }

    /// Opens the same store as another process would, through separate connections.
    async fn another(&self) -> Box<dyn Jobs> {
        let config = StoreConfig::default();
        match self {
            Self::Postgres { database, .. } => {
                Box::new(PostgresStore::open(&database.url, &config).await.unwrap())
            }
            Self::Sqlite { path, .. } => Box::new(SqliteStore::open(path, &config).await.unwrap()),
        }
    }

    /// A timestamp in this database's form.
    fn moment(&self, at: Timestamp) -> String {
        let micros = at.as_micros();
        match self {
            Self::Postgres { .. } => {
                format!("(timestamptz 'epoch' + {micros} * interval '1 microsecond')")
            }
            Self::Sqlite { .. } => micros.to_string(),
        }
    }

    /// Runs a statement directly; returns the number of changed rows, or the database's error.
    async fn change(&self, sql: &str) -> Result<u64, String> {
        match self {
            Self::Postgres { pool, .. } => {
                let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
                let done = query.execute(pool).await.map_err(|e| e.to_string())?;
                Ok(done.rows_affected())
            }
            Self::Sqlite { path, .. } => {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.busy_timeout(Duration::from_secs(5)).unwrap();
                let done = connection.execute(sql, []).map_err(|e| e.to_string())?;
                Ok(u64::try_from(done).unwrap())
            }
        }
    }

    /// Runs a query directly; returns its result as text, with `null` for null.
    async fn ask(&self, sql: &str) -> String {
        match self {
            Self::Postgres { pool, .. } => {
                let text = format!("select ({sql})::text");
                let row = sqlx::query(AssertSqlSafe(text)).fetch_one(pool).await;
                let told: Option<String> = row.unwrap().get(0);
                told.unwrap_or_else(|| "null".into())
            }
            Self::Sqlite { path, .. } => {
                let connection = rusqlite::Connection::open(path).unwrap();
                let text = format!("select cast(({sql}) as text)");
                let told: Option<String> =
                    connection.query_row(&text, [], |row| row.get(0)).unwrap();
                told.unwrap_or_else(|| "null".into())
            }
        }
    }
}

fn term() -> Term {
    Term::new(TWO_MINUTES).unwrap()
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn key(matrix: &str, chunk: &str) -> ChunkKey {
    ChunkKey {
        matrix: MatrixName::new(matrix).unwrap(),
        chunk: ChunkName::new(chunk).unwrap(),
    }
}

/// The lease of this chunk under this token.
fn hold(key: &ChunkKey, token: &Token) -> ChunkHold {
    ChunkHold {
        key: key.clone(),
        token: token.clone(),
    }
}

fn asks(key: &ChunkKey, token: &Token, now: Timestamp) -> ClaimChunk {
    ClaimChunk {
        key: key.clone(),
        token: token.clone(),
        term: term(),
        fresh_for: None,
        job: None,
        now: Some(now),
    }
}

fn ends(key: &ChunkKey, token: &Token, end: ChunkEnd, now: Timestamp) -> EndChunk {
    EndChunk {
        key: key.clone(),
        token: token.clone(),
        job: None,
        end: Some(end),
        cursor: None,
        now: Some(now),
    }
}

fn synced() -> ChunkEnd {
    ChunkEnd::Synced { row_count: 7 }
}

fn failed() -> ChunkEnd {
    let error = "no such column".into();
    ChunkEnd::Failed { error }
}

fn dead() -> ChunkEnd {
    let error = "no such month".into();
    ChunkEnd::Dead { error }
}

fn refused(why: Refusal) -> Guarded<()> {
    Guarded::Refused(why)
}

/// Claims the chunk; the claim must succeed.
async fn take(book: &dyn Jobs, ask: &ClaimChunk) -> Chunk {
    let answer = book.claim_chunk(ask).await.unwrap();
    let ChunkClaim::Claimed(chunk) = answer else {
        panic!("{:?} was not claimed: {answer:?}", ask.key);
    };
    chunk
}

/// Claims one job as a worker does.
async fn claim_job(book: &dyn Jobs, token: &Token, now: Timestamp) -> Option<Held> {
    let claim = Claim::new(token.clone(), 1).term(Term::new(Duration::from_mins(5)).unwrap());
    let claim = claim.recovery(Some(LapsePolicy::default())).at(now);
    book.job_leases().claim(&claim).await.unwrap()
}

/// Enqueues and claims a job on a matrix; returns its lease.
async fn held_job(book: &dyn Jobs, matrix: &str, token: &Token, now: Timestamp) -> JobHold {
    let job = NewJob::new("import", "{}").unwrap();
    let job = job.matrix(MatrixName::new(matrix).unwrap());
    let ids = book.enqueue_jobs(&[job], Some(now)).await.unwrap();
    let held = claim_job(book, token, now).await.unwrap();
    assert_eq!(held.items[0].id, ids[0].into());
    JobHold {
        id: ids[0],
        token: token.clone(),
    }
}
