//! The bare loops on SQLite: a file for Tenure, one for the yardstick, both `synchronous = full`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, TransactionBehavior, params};
use tenure::store::Store;
use tenure::{StoreConfig, StoreError, StoreErrorKind, Tenure};

use super::{Rate, Stopwatch, bare_loop, cycle, event, fill, payload, token};

#[derive(Debug)]
pub(crate) struct SqliteYardstick {
    ours: PathBuf,
    theirs: PathBuf,
    tenure: Tenure,
    conn: Arc<Mutex<Connection>>,
}

/// A timestamp that takes as many bytes as a real one; it is never read.
const BEGAN: i64 = i64::MAX / 2;

macro_rules! bare {
    ($name:literal) => {
        include_str!(concat!("../../sql/sqlite/", $name, ".sql"))
    };
}

impl SqliteYardstick {
    pub(super) async fn open(ours: PathBuf) -> Result<Self, StoreError> {
        // Derive the name from that of Tenure's file, because several yardsticks are open at once.
        let mut theirs = ours.clone().into_os_string();
        theirs.push(".theirs");
        let theirs = PathBuf::from(theirs);
        remove(&ours);
        remove(&theirs);
        let tenure = Tenure::open(&address(&ours)).await?;
        let conn = bare(&theirs).map_err(failed)?;
        Ok(Self {
            ours,
            theirs,
            tenure,
            conn: Arc::new(Mutex::new(conn)),
        })
    }

    pub(super) fn address(&self) -> (String, StoreConfig) {
        (address(&self.ours), StoreConfig::default())
    }

    pub(super) fn ours(&self) -> &Path {
        &self.ours
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.tenure.store()
    }

    /// Runs a bare loop on a blocking thread, because it waits for the disk.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let conn = Arc::clone(&self.conn);
        let done = tokio::task::spawn_blocking(move || {
            work(&mut conn.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let answer = done.await.expect("a bare loop does not panic");
        answer.map_err(failed)
    }

    pub(super) async fn row_drain(&self, events: u32, batch: u32) -> Rate {
        self.blocking(move |conn| row_drain(conn, events, batch))
            .await
    }

    pub(super) async fn bare_drain(&self, events: u32, batch: u32) -> Rate {
        fill(self.store(), &cycle(&[event()]), events).await?;
        let watch = Stopwatch::start();
        let done = bare_loop(self.store(), batch).await?;
        assert_eq!(done, events, "the bare loop lost something");
        Ok(watch.rate(events))
    }

    pub(super) async fn row_enqueue(&self, events: u32) -> Rate {
        self.blocking(move |conn| row_enqueue(conn, events, 1000))
            .await
    }

    pub(super) async fn bare_enqueue(&self, events: u32) -> Rate {
        self.blocking(move |conn| bare_enqueue(conn, events)).await
    }

    /// SQLite has one writer, so one producer inserts all rows.
    pub(super) async fn row_insert(&self, events: u32, _producers: u32) -> Rate {
        self.blocking(move |conn| row_enqueue(conn, events, 1))
            .await
    }

    /// Inserts the bare record of calls before they are made.
    pub(super) async fn open_attempts(&self, calls: u32) -> Result<Vec<i64>, StoreError> {
        self.blocking(move |conn| {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let ids = {
                let mut open = tx.prepare_cached(bare!("attempts_open"))?;
                let rows = open.query_map(params![calls, BEGAN], |row| row.get(0))?;
                rows.collect::<rusqlite::Result<Vec<i64>>>()?
            };
            tx.commit()?;
            Ok(ids)
        })
        .await
    }

    pub(super) async fn close_attempts(
        &self,
        ids: Vec<i64>,
        status: u16,
    ) -> Result<(), StoreError> {
        self.blocking(move |conn| {
            let ids = serde_json::to_string(&ids).unwrap_or_default();
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            tx.prepare_cached(bare!("attempts_close"))?
                .execute(params![ids, status, BEGAN + 1])?;
            tx.commit()
        })
        .await
    }

    pub(super) async fn tidy(&self) -> Result<(), StoreError> {
        let checkpoint = |conn: &mut Connection| {
            conn.execute_batch("pragma wal_checkpoint(truncate)")?;
            Ok(0.0)
        };
        self.blocking(checkpoint).await?;
        Ok(())
    }

    pub(super) fn close(self) {
        let Self {
            ours,
            theirs,
            tenure,
            conn,
        } = self;
        drop((tenure, conn));
        remove(&ours);
        remove(&theirs);
    }
}

fn address(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::new("bench", StoreErrorKind::Corrupt, error.to_string()).with_cause(error)
}

/// Removes a database with its other files, as far as they exist.
fn remove(path: &Path) {
    for tail in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(tail);
        drop(std::fs::remove_file(PathBuf::from(name)));
    }
}

fn bare(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open(path)?;
    conn.pragma_update(None, "journal_mode", "wal")?;
    conn.pragma_update(None, "synchronous", "full")?;
    conn.execute_batch(bare!("tables"))?;
    Ok(conn)
}

fn row_drain(conn: &mut Connection, events: u32, batch: u32) -> rusqlite::Result<f64> {
    conn.execute("delete from bench_row", [])?;
    conn.execute(bare!("row_fill"), params![events, payload()])?;
    conn.execute_batch("analyze; pragma wal_checkpoint(truncate)")?;
    let token = token();
    let now = i64::MAX / 2;
    let mut done = 0;
    let watch = Stopwatch::start();
    while done < events {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut ids: Vec<i64> = Vec::new();
        {
            let mut claim = tx.prepare_cached(bare!("row_claim"))?;
            let mut rows = claim.query(params![batch, token.expose(), token.holder(), now])?;
            while let Some(row) = rows.next()? {
                std::hint::black_box(row.get::<_, String>(2)?);
                ids.push(row.get(0)?);
            }
        }
        tx.commit()?;
        done += u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let ids = serde_json::to_string(&ids).unwrap_or_default();
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.prepare_cached(bare!("row_complete"))?
            .execute(params![ids, token.expose(), now])?;
        tx.commit()?;
    }
    Ok(watch.rate(events))
}

fn row_enqueue(conn: &mut Connection, events: u32, batch: u32) -> rusqlite::Result<f64> {
    let payload = payload();
    let watch = Stopwatch::start();
    for _ in 0..events / batch {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for now in 0..batch {
            let mut row = tx.prepare_cached(bare!("row_insert"))?;
            row.execute(params!["bench.event", payload, now])?;
        }
        tx.commit()?;
    }
    Ok(watch.rate(events / batch * batch))
}

fn bare_enqueue(conn: &mut Connection, events: u32) -> rusqlite::Result<f64> {
    let payload = payload();
    let watch = Stopwatch::start();
    for _ in 0..events / 1000 {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for now in 0..1000 {
            let mut event = tx.prepare_cached(bare!("bare_enqueue"))?;
            let id: i64 = event.query_row(params!["t", payload, now], |row| row.get(0))?;
            tx.prepare_cached(bare!("bare_ready"))?
                .execute(params![now, id])?;
        }
        tx.commit()?;
    }
    Ok(watch.rate(events / 1000 * 1000))
}
