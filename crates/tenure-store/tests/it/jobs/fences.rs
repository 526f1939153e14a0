//! The lease of the job guards its chunks: a worker that has lost its job can neither claim nor
//! finish a chunk.

use tenure_core::job::ChunkClaim;
use tenure_core::store::{Bury, ClaimChunk, EndChunk, Settle};
use tenure_core::testing::token;
use tenure_core::{ItemId, Refusal};

use super::{NOW, Place, asks, claim_job, ends, held_job, key, refused, seconds, synced, take};

/// The lease of a chunk may end later than that of its job, but is invalid once the job is lost.
///
/// Proves: S5-001, S5-002, S5-045
#[tokio::test]
async fn a_worker_that_lost_its_job_can_neither_claim_nor_end_a_chunk() {
    for place in Place::both().await {
        let book = place.jobs();
        let hold = held_job(book, "m", &token("w", 1), NOW).await;
        let late = NOW.after(seconds(290));
        let (one, two) = (key("m", "1"), key("m", "2"));
        let claim = |key, nth, now| ClaimChunk {
            job: Some(hold.clone()),
            ..asks(key, &token("c", nth), now)
        };
        let end = |key, nth, now| EndChunk {
            job: Some(hold.clone()),
            ..ends(key, &token("c", nth), synced(), now)
        };
        take(book, &claim(&one, 1, late)).await;
        take(book, &claim(&two, 2, late)).await;
        // The term of the job is over, but no other worker holds the job. The worker gets no new
        // chunk, but may still finish one.
        let over = NOW.after(seconds(300));
        let three = key("m", "3");
        let answer = book.claim_chunk(&claim(&three, 3, over)).await.unwrap();
        assert_eq!(answer, ChunkClaim::JobLost, "{}", place.name());
        assert!(
            book.end_chunk(&end(&one, 1, over))
                .await
                .unwrap()
                .is_accepted()
        );
        // Now a later claim holds the job, though it is a claim of the same worker.
        claim_job(book, &token("w", 2), over).await.unwrap();
        let before = book.chunks(&two.matrix, None, 9).await.unwrap();
        let answer = book.claim_chunk(&claim(&three, 4, over)).await.unwrap();
        assert_eq!(answer, ChunkClaim::JobLost);
        let answer = book.end_chunk(&end(&two, 2, over)).await.unwrap();
        assert_eq!(answer, refused(Refusal::Lost), "{}", place.name());
        let mut note = end(&two, 2, over);
        note.end = None;
        note.cursor = Some("far".into());
        assert_eq!(book.end_chunk(&note).await.unwrap(), refused(Refusal::Lost));
        assert_eq!(book.chunks(&two.matrix, None, 9).await.unwrap(), before);
        // For a call that names no job, the worker still holds the chunk.
        let alone = ends(&two, &token("c", 2), synced(), over);
        assert!(book.end_chunk(&alone).await.unwrap().is_accepted());
    }
}

#[tokio::test]
async fn chunks_of_a_cancelled_or_done_job_can_be_neither_claimed_nor_ended() {
    for place in Place::both().await {
        let book = place.jobs();
        for nth in 1..=2 {
            let hold = held_job(book, "m", &token("w", nth), NOW).await;
            let chunk = key("m", &format!("c{nth}"));
            let mut claim = asks(&chunk, &token("c", nth), NOW);
            claim.job = Some(hold.clone());
            take(book, &claim).await;
            if nth == 1 {
                let bury = Bury::new(ItemId::from(hold.id), token("op", 1), "why").at(NOW);
                assert!(
                    book.job_operations()
                        .bury(&bury)
                        .await
                        .unwrap()
                        .is_accepted()
                );
            } else {
                let done = Settle::new(hold.token.clone()).done([ItemId::from(hold.id)]);
                let done = book.job_leases().settle(&done.at(NOW)).await.unwrap();
                assert_eq!(done.refused().count(), 0);
            }
            let mut end = ends(&chunk, &token("c", nth), synced(), NOW);
            end.job = Some(hold.clone());
            let answer = book.end_chunk(&end).await.unwrap();
            assert_eq!(answer, refused(Refusal::Lost), "{}", place.name());
            claim.key = key("m", "other");
            claim.token = token("c", 10 + nth);
            assert_eq!(book.claim_chunk(&claim).await.unwrap(), ChunkClaim::JobLost);
        }
    }
}
