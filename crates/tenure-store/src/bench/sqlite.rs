//! The bare loops on SQLite, and ours: one file each, full sync.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior, params};
use tenure_core::store::{Claim, Intake, LeaseStore, Settle, StoreError};

use super::{Figure, Size, Watch, event, payload, token};
use crate::config::StoreConfig;
use crate::sqlite::SqliteStore;
use crate::sqlite::error::store_error;

/// All figures on SQLite, each handed to `report` as soon as it is known. The files are made in
/// `folder`.
///
/// # Errors
/// The folder cannot be written to.
pub async fn sqlite(
    folder: &Path,
    size: Size,
    mut report: impl FnMut(&Figure),
) -> Result<(), StoreError> {
    let config = StoreConfig::default();
    let store = SqliteStore::open(&folder.join("ours.db"), &config).await?;
    let path = folder.join("theirs.db");
    let mut theirs = blocking(move || bare(&path)).await?;
    for batch in [1000, 100] {
        let name = format!("row loop → SQLite, fused: {batch}");
        let mut figure = Figure {
            name,
            promise: 1.5,
            rounds: Vec::new(),
        };
        for _ in 0..size.rounds {
            let rate;
            (theirs, rate) = blocking(move || row_drain(theirs, size.events, batch)).await?;
            figure
                .rounds
                .push((rate, drain(&store, size.events, batch).await?));
        }
        report(&figure);
    }
    let name = "bare two-table insert → SQLite enqueue: 1000".to_owned();
    let mut figure = Figure {
        name,
        promise: 0.8,
        rounds: Vec::new(),
    };
    for _ in 0..size.rounds {
        let rate;
        (theirs, rate) = blocking(move || bare_enqueue(theirs, size.events)).await?;
        let watch = Watch::start();
        fill(&store, size.events).await?;
        figure.rounds.push((rate, watch.rate(size.events)));
    }
    report(&figure);
    Ok(())
}

/// The bare loops wait for the disk: not on a thread of the runtime.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work)
        .await
        .expect("a bare loop does not panic");
    done.map_err(|error| store_error("bench", error))
}

macro_rules! bare {
    ($name:literal) => {
        include_str!(concat!("../../sql/sqlite/bench/", $name, ".sql"))
    };
}

fn bare(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open(path)?;
    conn.pragma_update(None, "journal_mode", "wal")?;
    conn.pragma_update(None, "synchronous", "full")?;
    conn.execute_batch(bare!("tables"))?;
    Ok(conn)
}

fn row_drain(mut conn: Connection, events: u32, batch: u32) -> rusqlite::Result<(Connection, f64)> {
    conn.execute("delete from bench_row", [])?;
    conn.execute(bare!("row_fill"), params![events, payload()])?;
    conn.execute_batch("analyze; pragma wal_checkpoint(truncate)")?;
    let token = token(0);
    let now = i64::MAX / 2;
    let mut done = 0;
    let watch = Watch::start();
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
    let rate = watch.rate(events);
    Ok((conn, rate))
}

fn bare_enqueue(mut conn: Connection, events: u32) -> rusqlite::Result<(Connection, f64)> {
    let payload = payload();
    let watch = Watch::start();
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
    let rate = watch.rate(events);
    Ok((conn, rate))
}

async fn fill(store: &SqliteStore, events: u32) -> Result<(), StoreError> {
    let batch = vec![event(); 1000];
    for _ in 0..events / 1000 {
        store.enqueue(&batch).await?;
    }
    Ok(())
}

/// Our loop: events per second.
async fn drain(store: &SqliteStore, events: u32, batch: u32) -> Result<f64, StoreError> {
    fill(store, events).await?;
    let claim = || Claim::new(token(rand::random()), batch);
    let mut done = 0;
    let watch = Watch::start();
    let mut held = store.claim(&claim()).await?;
    while let Some(items) = held {
        done += u32::try_from(items.items.len()).unwrap_or(u32::MAX);
        let settle = Settle::new(items.lease.token.clone()).done(items.ids());
        let (settlement, next) = store.settle_and_claim(&settle, &claim()).await?;
        assert!(
            settlement.refused().next().is_none(),
            "a settle was refused"
        );
        held = next;
    }
    assert_eq!(done, events, "our loop lost something");
    Ok(watch.rate(events))
}
