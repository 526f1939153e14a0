//! Overviews of jobs: counts by kind, held and abandoned chunks, and the jobs that a claim
//! recovered.

use std::time::Duration;

use tenure_core::job::{ChunkRecord, JobId, KindStatus, NewJob};
use tenure_core::store::{Bury, Claim, HeldChunks, Jobs, Recovered, Settle, Tables};
use tenure_core::testing::token;
use tenure_core::{ItemId, LapsePolicy, Outcome, State, Term, Timestamp};

use super::plans::table;
use super::{NOW, Place, asks, claim_job, held_job, key, seconds, take};

const DAY: Duration = Duration::from_hours(24);

async fn kinds(book: &dyn Jobs, now: Timestamp) -> Vec<KindStatus> {
    book.kinds(DAY, Some(now)).await.unwrap()
}

/// Cancelled jobs do not count as failed.
#[tokio::test]
async fn jobs_are_counted_by_kind_and_state() {
    for place in Place::both().await {
        let book = place.jobs();
        assert_eq!(kinds(book, NOW).await, []);
        let job = |kind| NewJob::new(kind, "{}").unwrap();
        let mut later = job("import");
        later.delay = seconds(3600);
        let jobs = [job("import"), job("import"), later, job("export")];
        book.enqueue_jobs(&jobs, Some(NOW)).await.unwrap();
        let then = NOW.after(seconds(60));
        let told = kinds(book, then).await;
        let names: Vec<&str> = told.iter().map(|kind| kind.kind.as_str()).collect();
        assert_eq!(names, ["export", "import"], "{}", place.name());
        let import = &told[1];
        assert_eq!((import.due, import.delayed, import.running), (2, 1, 0));
        assert_eq!(import.oldest_due, Some(seconds(60)));

        // The first job lapses twice, and is held a third time.
        let mut now = then;
        for n in 1..=3 {
            assert!(claim_job(book, &token("w", n), now).await.is_some());
            assert_eq!(kinds(book, now).await[1].running, 1);
            now = now.after(seconds(301));
        }
        let told = kinds(book, now).await;
        let import = &told[1];
        assert_eq!((import.lapsed, import.lapsed_job), (1, Some(JobId::new(1))));
        assert_eq!(import.longest_lapsed, Some(seconds(1)));
        assert_eq!(
            (import.crashing, import.crashing_job),
            (1, Some(JobId::new(1)))
        );
        assert_eq!((import.running, import.failed), (0, 0));

        // The first job fails for good, and an operator cancels the other.
        let last = token("w", 4);
        assert!(claim_job(book, &last, now).await.is_some());
        let dead = Outcome::Dead {
            reason: "rejected".to_owned(),
            error: "no such file".to_owned(),
        };
        let settle = Settle::new(last).item(ItemId::new(1), dead).at(now);
        let answer = book.job_leases().settle(&settle).await.unwrap();
        assert_eq!(answer.refused().count(), 0);
        let bury = Bury::new(ItemId::new(2), token("op", 1), "not needed").at(now);
        assert!(
            book.job_operations()
                .bury(&bury)
                .await
                .unwrap()
                .is_accepted()
        );
        let told = kinds(book, now).await;
        let import = &told[1];
        assert_eq!((import.failed, import.failed_job), (1, Some(JobId::new(1))));
        assert_eq!((import.crashing, import.lapsed, import.due), (0, 0, 0));
        let told = book.job(JobId::new(1), Some(now)).await.unwrap().unwrap();
        assert!(!told.is_cancelled, "{}", place.name());
        // A day later, the failed job no longer counts.
        assert_eq!(kinds(book, now.after(DAY)).await[1].failed, 0);
    }
}

#[tokio::test]
async fn counts_of_jobs_by_index_equal_counts_of_rows() {
    for place in Place::both().await {
        let book = place.jobs();
        let rows = match &place {
            Place::Postgres { store, .. } => Tables::rows(store.as_ref(), table()).await,
            Place::Sqlite { store, .. } => Tables::rows(store, table()).await,
        };
        let rows = rows.unwrap();
        let both = async |now| {
            let counts = book.job_operations().count(Some(now)).await.unwrap();
            assert_eq!(counts, rows.count(Some(now)).await.unwrap());
            let waits = &counts.queues[0].1;
            let open = (waits.due, waits.delayed, waits.oldest_due);
            (
                open,
                counts.claimed,
                counts.lapsed,
                counts.done,
                counts.dead,
            )
        };
        assert_eq!(both(NOW).await, ((0, 0, None), 0, 0, 0, 0));
        let job = |delay| {
            let mut job = NewJob::new("import", "{}").unwrap();
            job.delay = seconds(delay);
            job
        };
        let jobs = [job(0), job(0), job(0), job(0), job(0), job(3600)];
        book.enqueue_jobs(&jobs, Some(NOW)).await.unwrap();
        let mut now = NOW;
        for n in 1..=4 {
            let mine = token("w", n);
            let held = claim_job(book, &mine, now).await.unwrap();
            let outcome = match n {
                1 => Outcome::dead("no such file"),
                2 | 3 => Outcome::Done,
                _ => break,
            };
            let settle = Settle::new(mine).item(held.items[0].id, outcome).at(now);
            let answer = book.job_leases().settle(&settle).await.unwrap();
            assert_eq!(answer.refused().count(), 0);
            now = now.after(seconds(1));
        }
        let waited = |n| Some(seconds(n));
        let told = place.name();
        let is = both(now).await;
        assert_eq!(is, ((1, 1, waited(3)), 1, 0, 2, 1), "{told}");
        // The lease has lapsed, and the last job is due.
        let is = both(now.after(seconds(7200))).await;
        assert_eq!(is, ((2, 0, waited(7203)), 1, 1, 2, 1), "{told}");
    }
}

fn names(chunks: &[ChunkRecord]) -> Vec<(&str, &str)> {
    chunks
        .iter()
        .map(|chunk| (chunk.key.matrix.as_str(), chunk.key.chunk.as_str()))
        .collect()
}

/// A list of held chunks begins with the earliest end. Over all matrices, it has only lapsed chunks
/// whose job has not ended.
#[tokio::test]
async fn held_and_abandoned_chunks_are_listed() {
    for place in Place::both().await {
        let book = place.jobs();
        held_job(book, "m", &token("w", 1), NOW).await;
        let later = NOW.after(seconds(10));
        take(book, &asks(&key("m", "b"), &token("w", 2), later)).await;
        take(book, &asks(&key("m", "a"), &token("w", 3), NOW)).await;
        // One chunk has no job, and the job of another is finished.
        take(book, &asks(&key("free", "c"), &token("w", 4), NOW)).await;
        let ended = held_job(book, "gone", &token("w", 5), NOW).await;
        take(book, &asks(&key("gone", "d"), &token("w", 6), NOW)).await;
        let bury = Bury::new(ItemId::from(ended.id), token("op", 1), "why").at(NOW);
        assert!(
            book.job_operations()
                .bury(&bury)
                .await
                .unwrap()
                .is_accepted()
        );

        let mut ask = HeldChunks {
            matrix: Some(key("m", "a").matrix),
            lapsed_for: None,
            limit: 10,
        };
        let of_m = book.held_chunks(&ask, Some(NOW)).await.unwrap();
        assert_eq!(names(&of_m), [("m", "a"), ("m", "b")], "{}", place.name());
        assert!(of_m[0].hold.is_some());
        ask.matrix = Some(key("gone", "d").matrix);
        let of_gone = book.held_chunks(&ask, Some(NOW)).await.unwrap();
        assert_eq!(names(&of_gone), [("gone", "d")]);

        // Every term is two minutes; the chunk `b` was claimed ten seconds after the others.
        ask = HeldChunks {
            matrix: None,
            lapsed_for: Some(seconds(60)),
            limit: 10,
        };
        let early = book.held_chunks(&ask, Some(NOW.after(seconds(179)))).await;
        assert_eq!(names(&early.unwrap()), []);
        let then = book.held_chunks(&ask, Some(NOW.after(seconds(180)))).await;
        assert_eq!(names(&then.unwrap()), [("m", "a"), ("free", "c")]);
        ask.limit = 1;
        let cut = book.held_chunks(&ask, Some(NOW.after(seconds(180)))).await;
        assert_eq!(names(&cut.unwrap()), [("m", "a")]);
    }
}

/// The reported jobs include those that the claim settled as dead.
#[tokio::test]
async fn a_claim_reports_the_jobs_that_it_recovered() {
    for place in Place::both().await {
        let book = place.jobs();
        held_job(book, "m", &token("w", 1), NOW).await;
        let mut now = NOW;
        let term = Term::new(seconds(300)).unwrap();
        let policy = LapsePolicy::default();
        let mut states = Vec::new();
        for n in 2..=7 {
            now = now.after(seconds(310));
            let recovered = Recovered::default();
            let claim = Claim::new(token("w", n), 1)
                .term(term)
                .recovery(Some(policy.clone()))
                .recovered(recovered.clone());
            let held = book.job_leases().claim(&claim.at(now)).await.unwrap();
            let reaped = recovered.take();
            assert_eq!(reaped.len(), 1, "{}", place.name());
            assert_eq!(reaped[0].stale, seconds(10));
            assert_eq!(held.is_some(), reaped[0].state == State::Pending);
            states.push(reaped[0].state);
        }
        assert_eq!(states.last(), Some(&State::Dead), "it lapsed too often");
    }
}
