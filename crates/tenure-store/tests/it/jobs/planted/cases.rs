//! Every combination of columns that a guard checks, and databases that accept them all.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor as _};
use tenure_core::job::Note;
use tenure_core::store::{EndChunk, HoldError, JobHold};
use tenure_core::testing::token;
use tenure_core::{Guarded, Refusal, SyncState, Timestamp, Token, refusal_of};
use tenure_store::config::{StoreConfig, Synchronous};
use tenure_store::postgres::PostgresStore;
use tenure_store::sqlite::SqliteStore;

use crate::faults::{Plant as _, Planted};
use crate::jobs::{Place, seconds};

pub(super) const HOUR: Duration = Duration::from_hours(1);

/// The token of the caller.
pub(super) fn mine() -> Token {
    token("w", 7)
}

/// The token of another claim of the same worker, with the same length as `mine`.
fn other() -> Token {
    token("w", 6)
}

/// The columns of a row that a guard checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) id: i64,
    pub(super) is_my_token: bool,
    pub(super) is_my_name: bool,
    pub(super) until: Option<Timestamp>,
    pub(super) done_at: Option<Timestamp>,
    pub(super) dead_at: Option<Timestamp>,
}

impl Case {
    pub(super) fn all(now: Timestamp) -> Vec<Self> {
        let untils = [
            None,
            Some(now.before(HOUR)),
            Some(now),
            Some(now.after(HOUR)),
        ];
        let past = Some(now.before(HOUR));
        let ends = [(None, None), (past, None), (None, past)];
        let mut all = Vec::new();
        for (is_my_token, is_my_name) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            for until in untils {
                for (done_at, dead_at) in ends {
                    all.push(Self {
                        id: i64::try_from(all.len()).unwrap() + 1,
                        is_my_token,
                        is_my_name,
                        until,
                        done_at,
                        dead_at,
                    });
                }
            }
        }
        all
    }

    pub(super) fn state(&self, now: Timestamp) -> SyncState {
        SyncState::of(self.until, self.done_at, self.dead_at, now)
    }

    /// Returns true if the caller's token is current, whether the lease is live or has lapsed.
    pub(super) fn is_mine(&self) -> bool {
        let is_open = self.done_at.is_none() && self.dead_at.is_none();
        self.is_my_token && self.is_my_name && is_open
    }

    /// The answer to a write by the holder of `mine`; a lease without an end is never live.
    pub(super) fn judged(&self, is_strict: bool, now: Timestamp) -> Guarded<()> {
        let is_late = is_strict && self.until.is_some_and(|until| until <= now);
        if self.is_mine() && self.until.is_some() && !is_late {
            return Guarded::Accepted(());
        }
        if self.is_mine() {
            return Guarded::Refused(Refusal::Lapsed);
        }
        Guarded::Refused(refusal_of(Some(self.state(now).state())))
    }

    /// The columns of a lease with this case's values.
    pub(super) fn columns(&self, place: &Place) -> String {
        let moment = |at: Option<Timestamp>| at.map_or("null".into(), |at| place.moment(at));
        let of = |is_mine: bool| if is_mine { mine() } else { other() };
        let name = if self.is_my_name {
            mine()
        } else {
            token("x", 1)
        };
        format!(
            "'{}', '{}', {}, {}, {}, '{} synced'",
            of(self.is_my_token).expose(),
            name.holder(),
            moment(self.until),
            moment(self.done_at),
            moment(self.dead_at),
            other().expose(),
        )
    }
}

/// A separate connection, which does not wait for the disk.
fn sql_worker(path: &std::path::Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.busy_timeout(seconds(5)).unwrap();
    conn.execute_batch("pragma synchronous = off").unwrap();
    conn
}

pub(super) const COLUMNS: &str =
    "lease_token, locked_by, locked_until, completed_at, failed_at, settled_token";

impl Place {
    /// Returns a database whose two tables accept any combination of columns.
    pub(super) async fn without_constraints(mut self) -> Self {
        match &mut self {
            Self::Postgres { pool, .. } => {
                let drop = "do $$ declare c record; begin
                    for c in select conrelid::regclass as t, conname from pg_constraint
                             where contype = 'c' and conrelid::regclass::text like 'tenure_%' loop
                        execute format('alter table %s drop constraint %I', c.t, c.conname);
                    end loop; end $$;";
                pool.execute(sqlx::raw_sql(drop)).await.unwrap();
            }
            Self::Sqlite { store, path, .. } => {
                let conn = rusqlite::Connection::open(&*path).unwrap();
                conn.execute_batch(
                    "pragma writable_schema = on;
                     update sqlite_schema
                     set sql = replace(replace(sql,
                         'check ((completed_at is null', 'check (true or (completed_at is null'),
                         'check (completed_at is null', 'check (true or completed_at is null')
                     where name in ('tenure_jobs', 'tenure_checkpoints')",
                )
                .unwrap();
                drop(conn);
                let config = StoreConfig {
                    synchronous: Synchronous::Normal,
                    ..StoreConfig::default()
                };
                *store = SqliteStore::open(path, &config).await.unwrap();
            }
        }
        self
    }

    /// Plants faults in the store's statements.
    pub(super) async fn planted(&mut self, faults: &[Planted]) {
        let config = StoreConfig::default();
        match self {
            Self::Postgres {
                store, database, ..
            } => {
                let opened = PostgresStore::open(&database.url, &config).await.unwrap();
                **store = opened.planted(faults);
            }
            Self::Sqlite { store, .. } => *store = store.clone().planted(faults),
        }
    }

    /// Empties both tables and runs these statements.
    pub(super) async fn filled(&self, sql: &str) {
        let script = format!("delete from tenure_jobs; delete from tenure_checkpoints; {sql}");
        match self {
            Self::Postgres { pool, .. } => {
                let script = sqlx::raw_sql(AssertSqlSafe(script));
                pool.execute(script).await.unwrap();
            }
            Self::Sqlite { path, .. } => {
                let conn = sql_worker(path);
                conn.execute_batch(&format!("begin immediate; {script}; commit"))
                    .unwrap();
            }
        }
    }

    /// Finishes a chunk; if `is_strict`, in the caller's own transaction.
    pub(super) async fn end(&self, end: &EndChunk, is_strict: bool) -> Result<Guarded<()>, String> {
        if !is_strict {
            return self.jobs().end_chunk(end).await.map_err(|e| e.to_string());
        }
        strictly(match self {
            Self::Postgres { store, pool, .. } => {
                let mut conn = pool.acquire().await.unwrap();
                store.end_chunk_in(&mut conn, end).await
            }
            Self::Sqlite { store, path, .. } => {
                let conn = sql_worker(path);
                store.own_end_chunk_in(&conn, end)
            }
        })
    }

    /// Writes a note; if `is_strict`, in the caller's own transaction.
    pub(super) async fn note(
        &self,
        hold: &JobHold,
        is_strict: bool,
    ) -> Result<Guarded<()>, String> {
        let note = Note {
            cursor: Some("here".into()),
            ..Note::default()
        };
        if !is_strict {
            return self
                .jobs()
                .note_job(hold, &note)
                .await
                .map_err(|e| e.to_string());
        }
        strictly(match self {
            Self::Postgres { store, pool, .. } => {
                let mut conn = pool.acquire().await.unwrap();
                store.note_job_in(&mut conn, hold, &note).await
            }
            Self::Sqlite { store, path, .. } => {
                let conn = sql_worker(path);
                store.own_note_job_in(&conn, hold, &note)
            }
        })
    }

    /// The rows of a table, one line each, sorted by name.
    pub(super) async fn lines(&self, name: &str, columns: &str, table: &str) -> Vec<String> {
        let lines = format!(
            "select string_agg({name} || ' ' || {columns}, ';' order by {name}) from {table}"
        );
        let lines = self.ask(&lines).await;
        lines.split(';').map(str::to_owned).collect()
    }

    pub(super) async fn chunk_lines(&self) -> Vec<String> {
        let columns = "coalesce(cast(locked_until as text), '-') || lease_token";
        let columns = format!("coalesce({columns}, '-')");
        self.lines(
            "matrix_id || '/' || chunk_hash",
            &columns,
            "tenure_checkpoints",
        )
        .await
    }
}

fn strictly(answer: Result<(), HoldError>) -> Result<Guarded<()>, String> {
    match answer {
        Ok(()) => Ok(Guarded::Accepted(())),
        Err(HoldError::Refused(why)) => Ok(Guarded::Refused(why)),
        Err(other) => Err(other.to_string()),
    }
}
