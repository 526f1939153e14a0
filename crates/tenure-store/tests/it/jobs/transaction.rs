//! Checkpoints in the user's own transaction: the work exists if and only if the checkpoint does,
//! wherever the transaction is aborted, and never for a holder that was replaced.

use std::time::Duration;

use rusqlite::TransactionBehavior;
use sqlx::{Connection as _, PgConnection, Row as _};
use tenure_core::job::{ChunkClaim, ChunkKey, JobId, NewJob, Note};
use tenure_core::store::{Claim, ClaimChunk, EndChunk, HoldError, JobHold};
use tenure_core::testing::token;
use tenure_core::{Refusal, Term, Timestamp};
use tenure_store::postgres::PostgresStore;
use tenure_store::sqlite::SqliteStore;

use super::{NOW, Place, TWO_MINUTES, asks, dead, ends, held_job, key, seconds, synced, take};

/// The point at which a transaction is aborted, as if its process were killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    BeforeTheCheckpoint,
    BeforeTheCommit,
    AfterTheCommit,
    Nowhere,
}

/// The checkpoint of the transaction.
#[derive(Clone, Copy)]
enum Checkpoint<'a> {
    Chunk(&'a EndChunk),
    Job(&'a JobHold, &'a Note),
}

impl Checkpoint<'_> {
    async fn postgres(
        self,
        store: &PostgresStore,
        conn: &mut PgConnection,
    ) -> Result<(), HoldError> {
        match self {
            Self::Chunk(end) => store.end_chunk_in(conn, end).await,
            Self::Job(hold, note) => store.note_job_in(conn, hold, note).await,
        }
    }

    fn sqlite(self, conn: &rusqlite::Connection) -> Result<(), HoldError> {
        match self {
            Self::Chunk(end) => SqliteStore::end_chunk_in(conn, end),
            Self::Job(hold, note) => SqliteStore::note_job_in(conn, hold, note),
        }
    }
}

/// Writes an order and a checkpoint in one transaction on a separate connection.
async fn work(place: &Place, what: Checkpoint<'_>, cut: Cut) -> Result<(), HoldError> {
    match place {
        Place::Postgres {
            store, database, ..
        } => {
            let mut conn = PgConnection::connect(&database.url).await.unwrap();
            let pid = sqlx::query("select pg_backend_pid()").fetch_one(&mut conn);
            let pid: i32 = pid.await.unwrap().get(0);
            let mut tx = conn.begin().await.unwrap();
            let order = sqlx::query("insert into orders values (1)");
            order.execute(&mut *tx).await.unwrap();
            if cut != Cut::BeforeTheCheckpoint {
                what.postgres(store, &mut tx).await?;
            }
            if matches!(cut, Cut::AfterTheCommit | Cut::Nowhere) {
                tx.commit().await.unwrap();
            } else {
                let kill = format!("select pg_terminate_backend({pid}, 5000)");
                place.ask(&kill).await;
            }
        }
        Place::Sqlite { path, .. } => {
            let mut conn = rusqlite::Connection::open(path).unwrap();
            conn.busy_timeout(Duration::from_secs(5)).unwrap();
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate);
            let tx = tx.unwrap();
            tx.execute("insert into orders values (1)", []).unwrap();
            if cut != Cut::BeforeTheCheckpoint {
                what.sqlite(&tx)?;
            }
            if matches!(cut, Cut::AfterTheCommit | Cut::Nowhere) {
                tx.commit().unwrap();
            }
        }
    }
    Ok(())
}

async fn orders(place: &Place) -> String {
    place.ask("select count(*) from orders").await
}

async fn places() -> [Place; 2] {
    let places = Place::both().await;
    for place in &places {
        place
            .change("create table orders (id integer)")
            .await
            .unwrap();
    }
    places
}

fn here(end: EndChunk) -> EndChunk {
    EndChunk {
        cursor: Some("here".into()),
        ..end
    }
}

/// Returns the refusal; asserts that there is one.
fn why(answer: Result<(), HoldError>) -> Refusal {
    match answer {
        Err(HoldError::Refused(why)) => why,
        other => panic!("no refusal: {other:?}"),
    }
}

/// Goal: a chunk is done if and only if its work is. Method: the transaction is aborted at each
/// point; the next worker does the rest, and nothing is done twice.
///
/// Proves: S5-001, S5-003, S5-039, S5-045
#[tokio::test]
async fn a_chunk_is_done_if_and_only_if_its_work_is() {
    for place in places().await {
        let book = place.jobs();
        let cuts = [
            Cut::BeforeTheCheckpoint,
            Cut::BeforeTheCommit,
            Cut::AfterTheCommit,
        ];
        for (nth, cut) in (1..).zip(cuts) {
            let (chunk, mine) = (key("m", &format!("c{nth}")), token("w", nth));
            take(book, &asks(&chunk, &mine, NOW)).await;
            let end = here(ends(&chunk, &mine, synced(), NOW));
            work(&place, Checkpoint::Chunk(&end), cut).await.unwrap();
            let is_done = cut == Cut::AfterTheCommit;
            let expected = if is_done { "1" } else { "0" };
            assert_eq!(
                orders(&place).await,
                expected,
                "{cut:?} on {}",
                place.name()
            );
            let next = ClaimChunk {
                fresh_for: Some(seconds(3600)),
                ..asks(&chunk, &token("x", nth), NOW.after(TWO_MINUTES))
            };
            let answer = book.claim_chunk(&next).await.unwrap();
            let expected = match &answer {
                ChunkClaim::Claimed(chunk) => !is_done && chunk.cursor.is_none(),
                ChunkClaim::Done { at } => is_done && *at == NOW,
                ChunkClaim::Held { .. } | ChunkClaim::Failed | ChunkClaim::JobLost => false,
            };
            assert!(expected, "{cut:?} on {}: {answer:?}", place.name());
            // The old holder does not know whether its commit succeeded, and must not repeat the
            // work.
            let again = work(&place, Checkpoint::Chunk(&end), Cut::Nowhere).await;
            let refusal = why(again);
            assert!([Refusal::Lost, Refusal::NotClaimed].contains(&refusal));
        }
        assert_eq!(orders(&place).await, "1", "{}", place.name());
    }
}

/// A holder that was replaced is refused and its work rolled back. So is a holder whose lease has
/// lapsed, by the current time and not by that of the transaction's start.
///
/// Proves: S5-002, S5-028, S5-033
#[tokio::test]
async fn the_transaction_of_a_replaced_or_lapsed_holder_is_rolled_back() {
    for place in places().await {
        let (book, chunk, mine) = (place.jobs(), key("m", "c"), token("w", 1));
        take(book, &asks(&chunk, &mine, NOW)).await;
        let over = NOW.after(TWO_MINUTES);
        let late = here(ends(&chunk, &mine, synced(), over));
        let answer = work(&place, Checkpoint::Chunk(&late), Cut::Nowhere).await;
        assert_eq!(why(answer), Refusal::Lapsed, "{}", place.name());
        take(book, &asks(&chunk, &token("x", 1), over)).await;
        let answer = work(&place, Checkpoint::Chunk(&late), Cut::Nowhere).await;
        assert_eq!(why(answer), Refusal::Lost, "{}", place.name());
        assert_eq!(orders(&place).await, "0");
        let gone = EndChunk {
            key: key("m", "none"),
            ..late
        };
        let answer = work(&place, Checkpoint::Chunk(&gone), Cut::Nowhere).await;
        assert_eq!(why(answer), Refusal::NotFound);
    }
    let place = Place::postgres().await;
    let Place::Postgres { store, pool, .. } = &place else {
        return;
    };
    let (chunk, mine) = (key("m", "c"), token("w", 1));
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("select now()").execute(&mut *tx).await.unwrap();
    let mut claim = asks(&chunk, &mine, NOW);
    claim.now = None;
    claim.term = Term::new(Duration::from_millis(50)).unwrap();
    take(place.jobs(), &claim).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut end = ends(&chunk, &mine, synced(), NOW);
    end.now = None;
    let answer = store.end_chunk_in(&mut tx, &end).await;
    assert_eq!(why(answer), Refusal::Lapsed);
}

/// Goal: a chunk has failed for good if and only if the failure was committed. Method: the
/// transaction is aborted at each point.
///
/// Proves: S5-003, S5-033
#[tokio::test]
async fn a_chunk_fails_for_good_if_and_only_if_the_transaction_commits() {
    for place in places().await {
        let book = place.jobs();
        let cuts = [Cut::BeforeTheCommit, Cut::AfterTheCommit];
        for (nth, cut) in (1..).zip(cuts) {
            let (chunk, mine) = (key("m", &format!("c{nth}")), token("w", nth));
            take(book, &asks(&chunk, &mine, NOW)).await;
            let late = ends(&chunk, &mine, dead(), NOW.after(TWO_MINUTES));
            let answer = work(&place, Checkpoint::Chunk(&late), Cut::Nowhere).await;
            assert_eq!(why(answer), Refusal::Lapsed, "{}", place.name());
            let end = ends(&chunk, &mine, dead(), NOW);
            work(&place, Checkpoint::Chunk(&end), cut).await.unwrap();
            let next = asks(&chunk, &token("x", nth), NOW.after(TWO_MINUTES));
            let answer = book.claim_chunk(&next).await.unwrap();
            let has_failed = answer == ChunkClaim::Failed;
            assert_eq!(has_failed, cut == Cut::AfterTheCommit, "{answer:?}");
        }
        assert_eq!(orders(&place).await, "1", "{}", place.name());
    }
}

/// A transaction that moves the cursor keeps the lease; after an abort, the next worker begins at
/// the stored cursor.
#[tokio::test]
async fn a_cursor_moves_with_the_work_and_the_lease_stays() {
    for place in places().await {
        let (book, chunk, mine) = (place.jobs(), key("m", "c"), token("w", 1));
        take(book, &asks(&chunk, &mine, NOW)).await;
        for (nth, cut) in [
            (1, Cut::Nowhere),
            (2, Cut::Nowhere),
            (3, Cut::BeforeTheCommit),
        ] {
            let note = EndChunk {
                end: None,
                cursor: Some(format!("row {nth}")),
                ..ends(&chunk, &mine, synced(), NOW)
            };
            work(&place, Checkpoint::Chunk(&note), cut).await.unwrap();
        }
        assert_eq!(orders(&place).await, "2", "{}", place.name());
        let over = NOW.after(TWO_MINUTES);
        let next = take(book, &asks(&chunk, &token("x", 1), over)).await;
        assert_eq!(next.cursor.as_deref(), Some("row 2"), "{}", place.name());
        // A completion without a cursor keeps the stored one.
        let end = ends(&chunk, &token("x", 1), synced(), over);
        work(&place, Checkpoint::Chunk(&end), Cut::Nowhere)
            .await
            .unwrap();
        let next = take(book, &asks(&chunk, &token("x", 2), over)).await;
        assert_eq!(next.cursor.as_deref(), Some("row 2"), "{}", place.name());
    }
}

/// The transaction ends a chunk of the job, or writes a note of the job.
#[tokio::test]
async fn a_transaction_for_a_lost_job_is_rolled_back() {
    for place in places().await {
        let book = place.jobs();
        let hold = held_job(book, "m", &token("w", 1), NOW).await;
        let (chunk, mine) = (key("m", "c"), token("c", 1));
        let almost = NOW.after(seconds(299));
        take(book, &asks(&chunk, &mine, almost)).await;
        let end = EndChunk {
            job: Some(hold.clone()),
            ..ends(&chunk, &mine, synced(), NOW.after(seconds(300)))
        };
        let answer = work(&place, Checkpoint::Chunk(&end), Cut::Nowhere).await;
        assert_eq!(why(answer), Refusal::Lapsed, "{}", place.name());
        super::claim_job(book, &token("x", 1), NOW.after(seconds(300))).await;
        let answer = work(&place, Checkpoint::Chunk(&end), Cut::Nowhere).await;
        assert_eq!(why(answer), Refusal::Lost, "{}", place.name());
        let note = Note {
            cursor: Some("far".into()),
            ..Note::default()
        };
        let answer = work(&place, Checkpoint::Job(&hold, &note), Cut::Nowhere).await;
        assert_eq!(why(answer), Refusal::Lost, "{}", place.name());
        assert_eq!(orders(&place).await, "0");
        assert_eq!(
            book.job(hold.id, Some(NOW)).await.unwrap().unwrap().cursor,
            None
        );
    }
}

/// The cursor of a job matches its work, wherever the transaction is aborted. A holder whose lease
/// has lapsed is refused even if no other worker has taken the job.
#[tokio::test]
async fn the_cursor_of_a_job_matches_its_work() {
    for place in places().await {
        let book = place.jobs();
        let job = NewJob::new("import", "{}").unwrap();
        book.enqueue_jobs(&[job], None).await.unwrap();
        let mine = token("w", 1);
        let claim = Claim::new(mine.clone(), 1).term(Term::new(Duration::from_mins(5)).unwrap());
        book.job_leases().claim(&claim).await.unwrap().unwrap();
        let hold = JobHold {
            id: JobId::new(1),
            token: mine,
        };
        let cuts = [Cut::Nowhere, Cut::BeforeTheCommit, Cut::BeforeTheCheckpoint];
        for (nth, cut) in (1..).zip(cuts) {
            let note = Note {
                cursor: Some(format!("row {nth}")),
                ..Note::default()
            };
            work(&place, Checkpoint::Job(&hold, &note), cut)
                .await
                .unwrap();
        }
        let cursor = book.job(JobId::new(1), None).await.unwrap().unwrap().cursor;
        assert_eq!(cursor.as_deref(), Some("row 1"), "{}", place.name());
        assert_eq!(orders(&place).await, "1");
        let ended = place.moment(Timestamp::from_micros(0));
        let lapse = format!("update tenure_jobs set locked_until = {ended}");
        place.change(&lapse).await.unwrap();
        let note = Note::default();
        let answer = work(&place, Checkpoint::Job(&hold, &note), Cut::Nowhere).await;
        assert_eq!(why(answer), Refusal::Lapsed, "{}", place.name());
        assert_eq!(orders(&place).await, "1");
        // Outside of a transaction the holder may still write its cursor, because it was not
        // replaced.
        assert!(book.note_job(&hold, &note).await.unwrap().is_accepted());
    }
}

/// Goal: a claim neither waits for a user's transaction nor overtakes it. Method: a holder whose
/// term ends has written its checkpoint without committing; another worker claims the chunk.
///
/// Proves: S5-017
#[tokio::test]
async fn a_claim_skips_a_chunk_whose_checkpoint_is_not_committed() {
    let place = Place::postgres().await;
    let Place::Postgres { store, pool, .. } = &place else {
        return;
    };
    let book = place.jobs();
    let (chunk, mine): (ChunkKey, _) = (key("m", "c"), token("w", 1));
    take(book, &asks(&chunk, &mine, NOW)).await;
    let mut tx = pool.begin().await.unwrap();
    let end = ends(&chunk, &mine, synced(), NOW);
    store.end_chunk_in(&mut tx, &end).await.unwrap();
    let over = NOW.after(TWO_MINUTES);
    let next = ClaimChunk {
        fresh_for: Some(seconds(3600)),
        ..asks(&chunk, &token("x", 1), over)
    };
    let asked = tokio::time::timeout(Duration::from_secs(5), book.claim_chunk(&next));
    let answer = asked.await.expect("it does not wait").unwrap();
    let holder = mine.holder().to_owned();
    let held = ChunkClaim::Held {
        holder,
        until: over,
    };
    assert_eq!(answer, held);
    tx.commit().await.unwrap();
    let answer = book.claim_chunk(&next).await.unwrap();
    assert_eq!(answer, ChunkClaim::Done { at: NOW });
}
