//! Retries: a finished job gets one retry, however many callers request it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_core::job::{JobId, MatrixName, NewJob, Retried};
use tenure_core::store::{Bury, Jobs, StoreErrorKind};
use tenure_core::testing::token;
use tenure_core::{ItemId, Refusal};
use tokio::task::JoinSet;

use super::{NOW, Place, held_job, seconds};

/// Number of concurrent callers.
const AT_ONCE: usize = 8;

async fn cancel(book: &dyn Jobs, id: JobId) {
    let bury = Bury::new(
        ItemId::from(id),
        token("op", id.number().unsigned_abs()),
        "why",
    )
    .at(NOW);
    assert!(
        book.job_operations()
            .bury(&bury)
            .await
            .unwrap()
            .is_accepted()
    );
}

/// A cancelled job with a payload, a matrix and a priority.
async fn ended(book: &dyn Jobs) -> JobId {
    let job = NewJob::new("import", r#"{"b": 1,  "a": [2]}"#).unwrap();
    let job = job.matrix(MatrixName::new("orders").unwrap()).priority(3);
    let id = book.enqueue_jobs(&[job], Some(NOW)).await.unwrap()[0];
    cancel(book, id).await;
    id
}

/// Goal: any number of requests creates one new job. Method: eight concurrent requests through two
/// stores, like two processes, in several rounds, so that they collide.
///
/// Proves: S5-008
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_retries_of_a_job_write_one_job() {
    for place in Place::both().await {
        let book = place.jobs();
        let others: [Arc<dyn Jobs>; 2] = [
            Arc::from(place.another().await),
            Arc::from(place.another().await),
        ];
        for _ in 0..5 {
            let id = ended(book).await;
            let count = || place.ask("select count(*) from tenure_jobs");
            let before: usize = count().await.parse().unwrap();
            let mut asks = JoinSet::new();
            for other in others.iter().cycle().take(AT_ONCE) {
                let other = Arc::clone(other);
                asks.spawn(async move { other.retry_job(id, None).await.unwrap() });
            }
            let answers = asks.join_all().await;
            let written = |answer: &&Retried| matches!(answer, Retried::Written(_));
            assert_eq!(answers.iter().filter(written).count(), 1, "{answers:?}");
            let told: BTreeSet<_> = answers.iter().map(|answer| answer.id()).collect();
            assert_eq!(told.len(), 1, "{}: {answers:?}", place.name());
            let after: usize = count().await.parse().unwrap();
            assert_eq!(after, before + 1, "{}", place.name());
        }
    }
}

/// A retry has the same payload, matrix and priority, and the finished job stays unchanged. A retry
/// that fails can get a retry of its own.
///
/// Proves: S5-008
#[tokio::test]
async fn a_job_has_one_retry_which_can_have_its_own() {
    for place in Place::both().await {
        let book = place.jobs();
        let running = held_job(book, "m", &token("w", 1), NOW).await.id;
        for (id, why) in [
            (running, Refusal::NotSettled),
            (JobId::new(4711), Refusal::NotFound),
        ] {
            let answer = book.retry_job(id, Some(NOW)).await.unwrap();
            assert_eq!(answer, Retried::Refused(why), "{}", place.name());
        }
        let id = ended(book).await;
        let old = book.job(id, Some(NOW)).await.unwrap().unwrap();
        let then = NOW.after(seconds(9));
        let Retried::Written(again) = book.retry_job(id, Some(then)).await.unwrap() else {
            panic!("it has ended, on {}", place.name());
        };
        let new = book.job(again, Some(then)).await.unwrap().unwrap();
        assert_eq!(
            (new.kind, new.matrix),
            (old.kind.clone(), old.matrix.clone())
        );
        assert_eq!(
            (new.payload, new.priority, new.retry_of),
            (old.payload.clone(), 3, Some(id))
        );
        assert_eq!((new.created_at, new.available_at), (then, None));
        let untouched = book.job(id, Some(NOW)).await.unwrap().unwrap();
        assert_eq!(untouched, old, "{}", place.name());

        let before = Retried::Before(again);
        assert_eq!(book.retry_job(id, Some(then)).await.unwrap(), before);
        cancel(book, again).await;
        assert_eq!(book.retry_job(id, Some(then)).await.unwrap(), before);
        let third = book.retry_job(again, Some(then)).await.unwrap();
        assert!(matches!(third, Retried::Written(_)), "{third:?}");
    }
}

#[tokio::test]
async fn a_job_that_is_enqueued_as_a_retry_is_the_only_retry() {
    for place in Place::both().await {
        let book = place.jobs();
        let id = ended(book).await;
        let by_hand = NewJob {
            retry_of: Some(id),
            ..NewJob::new("import", "{}").unwrap()
        };
        let jobs = [by_hand];
        let written = book.enqueue_jobs(&jobs, None).await.unwrap()[0];
        let answer = book.retry_job(id, None).await.unwrap();
        assert_eq!(answer, Retried::Before(written), "{}", place.name());
        let error = book.enqueue_jobs(&jobs, None).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Invalid, "{}", place.name());
        let told = error.to_string();
        assert!(told.contains("already a retry of the same job"), "{told}");
    }
}
