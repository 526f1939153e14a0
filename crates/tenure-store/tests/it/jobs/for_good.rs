//! Chunks that failed for good: only the current lease can fail a chunk, it fails no other chunk,
//! and the failure is final.

use tenure_core::job::{ChunkClaim, ChunkRecord, MatrixName};
use tenure_core::store::{ChunkEnd, ClaimChunk, EndChunk, JobHold, RenewChunks, Settle};
use tenure_core::testing::token;
use tenure_core::{Guarded, ItemId, Outcome, Refusal, SyncState};

use super::{
    NOW, Place, TWO_MINUTES, asks, dead, ends, failed, held_job, hold, key, refused, seconds,
    synced, take, term,
};

async fn chunks(place: &Place, matrix: &str) -> Vec<ChunkRecord> {
    let matrix = MatrixName::new(matrix).unwrap();
    place.jobs().chunks(&matrix, None, 9).await.unwrap()
}

/// A worker that was replaced, that holds the chunk of another matrix, or that has lost its job
/// cannot fail the chunk. The holder can, once.
///
/// Proves: S5-002, S5-008, S5-016, S5-033
#[tokio::test]
async fn only_its_holder_can_fail_a_chunk_for_good() {
    for place in Place::both().await {
        let (book, one, two) = (place.jobs(), key("m1", "same"), key("m2", "same"));
        let (old, new, theirs) = (token("w", 1), token("x", 1), token("y", 1));
        take(book, &asks(&one, &old, NOW)).await;
        let then = NOW.after(TWO_MINUTES);
        take(book, &asks(&one, &new, then)).await;
        take(book, &asks(&two, &theirs, then)).await;
        let lost = JobHold {
            token: token("z", 2),
            ..held_job(book, "m1", &token("z", 1), then).await
        };
        let before = (chunks(&place, "m1").await, chunks(&place, "m2").await);
        let without_job = EndChunk {
            job: Some(lost),
            ..ends(&one, &new, dead(), then)
        };
        for end in [
            ends(&one, &old, dead(), then),
            ends(&one, &theirs, dead(), then),
            ends(&two, &new, dead(), then),
            without_job,
        ] {
            let answer = book.end_chunk(&end).await.unwrap();
            assert_eq!(answer, refused(Refusal::Lost), "{}", place.name());
        }
        let after = (chunks(&place, "m1").await, chunks(&place, "m2").await);
        assert_eq!(after, before, "{}", place.name());

        let end = ends(&one, &new, dead(), then);
        assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        let told = chunks(&place, "m1").await.remove(0);
        assert_eq!((told.state, told.hold), (SyncState::Failed, None));
        assert_eq!(told.error.as_deref(), Some("no such month"));
        assert_eq!((told.synced_at, told.row_count), (None, None));
        assert_eq!(
            chunks(&place, "m2").await,
            before.1,
            "the other matrix on {}",
            place.name()
        );
        let row = "select attempts || ' ' || failures || ' ' || crashes || ' ' ||
                          coalesce(locked_by, lease_token, '-') || ' ' || (failed_at = {})
                   from tenure_checkpoints where matrix_id = 'm1'";
        let row = place.ask(&row.replace("{}", &place.moment(then))).await;
        let is_then = if place.name() == "SQLite" {
            "1"
        } else {
            "true"
        };
        assert_eq!(row, format!("2 1 1 - {is_then}"), "{}", place.name());
    }
}

/// A chunk that failed for good stays failed, whatever its last holder or others write. A repeat
/// gets the same answer.
///
/// Proves: S5-008, S5-016, S5-033
#[tokio::test]
async fn a_chunk_that_failed_for_good_stays_failed() {
    for place in Place::both().await {
        let (book, key, mine) = (place.jobs(), key("m", "c"), token("w", 1));
        take(book, &asks(&key, &mine, NOW)).await;
        let mut end = ends(&key, &mine, dead(), NOW);
        end.cursor = Some("row 7".into());
        assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        let before = chunks(&place, "m").await;
        assert_eq!(before[0].cursor.as_deref(), Some("row 7"));

        let later = NOW.after(seconds(90_000));
        for fresh_for in [None, Some(seconds(1))] {
            let ask = ClaimChunk {
                fresh_for,
                ..asks(&key, &token("x", 1), later)
            };
            let answer = book.claim_chunk(&ask).await.unwrap();
            assert_eq!(answer, ChunkClaim::Failed, "{}", place.name());
        }
        let completed = ChunkEnd::Completed { row_count: 1 };
        let every = [synced(), completed, failed(), ChunkEnd::Released];
        for other in every.map(Some).into_iter().chain([None]) {
            let mut end = ends(&key, &mine, synced(), later);
            end.end = other;
            end.cursor = Some("row 8".into());
            let answer = book.end_chunk(&end).await.unwrap();
            assert_eq!(answer, refused(Refusal::AlreadySettled), "{}", place.name());
        }
        let renew = RenewChunks::new(vec![hold(&key, &mine)], term()).at(NOW);
        let renewed = book.renew_chunks(&renew).await.unwrap().remove(0).1;
        assert_eq!(renewed, Guarded::Refused(Refusal::Lost), "{}", place.name());
        assert!(book.end_chunk(&end).await.unwrap().is_accepted());
        assert_eq!(chunks(&place, "m").await, before, "{}", place.name());
    }
}

#[tokio::test]
async fn chunks_that_failed_for_good_are_counted_and_do_not_prevent_success() {
    for place in Place::both().await {
        let book = place.jobs();
        let job = held_job(book, "m", &token("j", 1), NOW).await;
        let total = "update tenure_jobs set chunks_total = 4";
        place.change(total).await.unwrap();
        let matrix = MatrixName::new("m").unwrap();
        let then = NOW.after(seconds(60));
        for (nth, end) in (1..).zip([synced(), dead(), dead(), dead()]) {
            let (key, mine) = (key("m", &format!("c{nth}")), token("w", nth));
            let mut ask = asks(&key, &mine, NOW);
            ask.job = Some(job.clone());
            take(book, &ask).await;
            let mut end = ends(&key, &mine, end, NOW);
            end.job = Some(job.clone());
            assert!(book.end_chunk(&end).await.unwrap().is_accepted());
            let told = book.progress(&matrix, Some(then)).await.unwrap();
            assert_eq!((told.done, told.failed), (1, nth - 1), "{}", place.name());
            assert_eq!((told.ended(), told.running, told.rows), (nth, 0, 7));
            let left = seconds(60 / nth * (4 - nth));
            assert_eq!(told.left(), Some(left), "{}", place.name());
        }
        let settle = Settle::new(job.token);
        let settle = settle.item(ItemId::from(job.id), Outcome::Done).at(NOW);
        let settled = book.job_leases().settle(&settle).await.unwrap();
        assert_eq!(settled.refused().count(), 0, "{}", place.name());
    }
}

/// Goal: an overview of a matrix shows held and failed chunks, and no more rows than requested,
/// however many chunks there are.
#[tokio::test]
async fn an_overview_shows_only_held_and_failed_chunks() {
    for place in Place::both().await {
        let book = place.jobs();
        let end = |name: &'static str, nth: u64, end: Option<ChunkEnd>| async move {
            let (key, mine) = (key("m", name), token("w", nth));
            take(book, &asks(&key, &mine, NOW)).await;
            if let Some(end) = end {
                let end = ends(&key, &mine, end, NOW);
                assert!(book.end_chunk(&end).await.unwrap().is_accepted());
            }
        };
        end("a", 1, Some(failed())).await;
        end("b", 2, Some(dead())).await;
        end("c", 3, None).await;
        end("d", 4, Some(synced())).await;
        end("e", 5, Some(ChunkEnd::Released)).await;
        end("f", 6, Some(failed())).await;
        end("f", 7, Some(ChunkEnd::Completed { row_count: 1 })).await;
        end("g", 8, Some(dead())).await;
        end("h", 9, None).await;
        // These rows are hand-written and have no error.
        let mute = format!(
            "insert into tenure_checkpoints (matrix_id, chunk_hash, failed_at)
             values ('m', 'i', {now}), ('n', 'b', {now})",
            now = place.moment(NOW)
        );
        place.change(&mute).await.unwrap();
        let matrix = MatrixName::new("m").unwrap();
        for (limit, expected) in [(9, "chbgia"), (3, "chb"), (1, "c")] {
            let told = book.notable_chunks(&matrix, limit).await.unwrap();
            let names: String = told.iter().map(|told| told.key.chunk.as_str()).collect();
            assert_eq!(names, expected, "{}", place.name());
        }
        let told = book.notable_chunks(&matrix, 9).await.unwrap();
        assert!(told[0].hold.is_some(), "{}", place.name());
        assert_eq!(told[2].state, SyncState::Failed);
        assert_eq!(told[2].error.as_deref(), Some("no such month"));
    }
}
