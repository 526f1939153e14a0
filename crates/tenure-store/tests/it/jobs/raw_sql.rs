//! A hand-written worker on `tenure_checkpoints` runs the literal statements of the specification,
//! next to Tenure's workers.

use tenure_core::job::{ChunkClaim, ChunkKey};
use tenure_core::store::RenewChunks;
use tenure_core::testing::token;
use tenure_core::{Guarded, Refusal, SyncState, Timestamp};

use super::{
    NOW, Place, TWO_MINUTES, asks, ends, failed, hold, key, refused, seconds, synced, take, term,
};

const CLAIM: &str = "UPDATE sync_checkpoints
SET
  locked_until = NOW() + INTERVAL '2 minutes',
  locked_by = $worker_id
WHERE matrix_id = $matrix_id
  AND chunk_hash = $chunk_hash
  AND (locked_until IS NULL OR locked_until <= NOW())
RETURNING *;";

const HEARTBEAT: &str = "UPDATE sync_checkpoints
SET locked_until = NOW() + INTERVAL '2 minutes'
WHERE chunk_hash = $hash AND locked_by = $worker_id;";

const COMPLETE: &str = "UPDATE sync_checkpoints
SET
  locked_until = NULL,
  locked_by = NULL,
  last_synced_at = NOW(),
  row_count = $rows
WHERE chunk_hash = $hash;";

/// A worker that knows only the columns of the specification.
struct SqlWorker<'a> {
    place: &'a Place,
    name: &'static str,
}

impl SqlWorker<'_> {
    /// Runs a statement for this chunk at this time, on Tenure's table. For SQLite, times are
    /// microseconds, and the statement returns no rows.
    async fn run(&self, text: &str, key: &ChunkKey, now: Timestamp) -> u64 {
        let text = text
            .replace("sync_checkpoints", "tenure_checkpoints")
            .replace("NOW()", &self.place.moment(now))
            .replace("$worker_id", &format!("'{}'", self.name))
            .replace("$matrix_id", &format!("'{}'", key.matrix))
            .replace("$chunk_hash", &format!("'{}'", key.chunk))
            .replace("$hash", &format!("'{}'", key.chunk))
            .replace("$rows", "99");
        let text = match self.place {
            Place::Postgres { .. } => text,
            Place::Sqlite { .. } => text
                .replace("INTERVAL '2 minutes'", "120000000")
                .replace("RETURNING *", ""),
        };
        self.place.change(&text).await.unwrap()
    }
}

/// Both kinds of workers respect each other's live leases, take lapsed ones exactly at their end,
/// and see each other's completions.
///
/// Proves: S5-007, S5-034, S5-035, S5-036, S5-038, S5-039, S5-040, S5-041
#[tokio::test]
async fn hand_written_workers_and_tenure_respect_each_others_leases() {
    for place in Place::both().await {
        let (book, key) = (place.jobs(), key("m", "c"));
        let hand = SqlWorker {
            place: &place,
            name: "hand",
        };
        assert_eq!(hand.run(CLAIM, &key, NOW).await, 0, "there is no row yet");
        let mine = token("w", 1);
        take(book, &asks(&key, &mine, NOW)).await;
        let end = NOW.after(TWO_MINUTES);
        let just_before = end.before(std::time::Duration::from_micros(1));
        assert_eq!(
            hand.run(CLAIM, &key, just_before).await,
            0,
            "{}",
            place.name()
        );
        assert_eq!(hand.run(HEARTBEAT, &key, NOW).await, 0, "it has no lease");
        // Tenure's lease lapses, and the hand-written worker takes the chunk at once. Tenure's
        // token is invalid, though it is still stored.
        assert_eq!(hand.run(CLAIM, &key, end).await, 1);
        let told = book.chunks(&key.matrix, None, 9).await.unwrap();
        for answer in [synced(), failed()] {
            let late = ends(&key, &mine, answer, end);
            assert_eq!(book.end_chunk(&late).await.unwrap(), refused(Refusal::Lost));
        }
        let renew = RenewChunks::new(vec![hold(&key, &mine)], term()).at(end);
        let renewed = book.renew_chunks(&renew).await.unwrap().remove(0).1;
        assert_eq!(renewed, Guarded::Refused(Refusal::Lost));
        assert_eq!(book.chunks(&key.matrix, None, 9).await.unwrap(), told);
        let later = end.after(seconds(30));
        assert_eq!(hand.run(HEARTBEAT, &key, later).await, 1);
        let answer = book.claim_chunk(&asks(&key, &token("w", 2), later)).await;
        let until = later.after(TWO_MINUTES);
        let holder = "hand".to_owned();
        assert_eq!(answer.unwrap(), ChunkClaim::Held { holder, until });
        // The hand-written worker's lease lapses, and Tenure takes the chunk at that time.
        take(book, &asks(&key, &token("w", 3), until)).await;
        let done = ends(&key, &token("w", 3), synced(), until);
        assert!(book.end_chunk(&done).await.unwrap().is_accepted());
        let row = "select locked_until is null and locked_by is null and row_count = 7
                   from tenure_checkpoints";
        assert!(["1", "true"].contains(&place.ask(row).await.as_str()));
        // A chunk that the hand-written worker completed counts as recently done.
        assert_eq!(hand.run(CLAIM, &key, until).await, 1);
        let then = until.after(seconds(5));
        assert_eq!(hand.run(COMPLETE, &key, then).await, 1);
        let mut fresh = asks(&key, &token("w", 4), then.after(seconds(5)));
        fresh.fresh_for = Some(seconds(60));
        let answer = book.claim_chunk(&fresh).await.unwrap();
        assert_eq!(answer, ChunkClaim::Done { at: then }, "{}", place.name());
        let told = book.chunks(&key.matrix, None, 9).await.unwrap().remove(0);
        assert_eq!(
            (told.row_count, told.state),
            (Some(99), SyncState::Available)
        );
    }
}

/// The hand-written completion checks only the name, so it can complete a chunk that Tenure's
/// worker holds. The settle of that worker is then refused and changes nothing.
///
/// Proves: S5-042
#[tokio::test]
async fn a_chunk_that_was_completed_by_hand_is_not_ended_again() {
    for place in Place::both().await {
        let (book, key) = (place.jobs(), key("m", "c"));
        let hand = SqlWorker {
            place: &place,
            name: "hand",
        };
        let mine = token("w", 1);
        take(book, &asks(&key, &mine, NOW)).await;
        assert_eq!(hand.run(COMPLETE, &key, NOW).await, 1);
        let told = book.chunks(&key.matrix, None, 9).await.unwrap();
        let late = ends(&key, &mine, synced(), NOW);
        let answer = book.end_chunk(&late).await.unwrap();
        assert_eq!(answer, refused(Refusal::NotClaimed), "{}", place.name());
        assert_eq!(book.chunks(&key.matrix, None, 9).await.unwrap(), told);
        take(book, &asks(&key, &token("w", 2), NOW)).await;
    }
}
