//! A job whose worker died continues at its last checkpoint. A job that fails too often, or whose
//! workers die too often, becomes dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::job::{ChunkAnswer, HeldJob, JobId, SyncState};
use tenure::{Failure, Outcome, Settings, Tenure};
use tokio::sync::mpsc;

use super::{ended, import, on_both, soon, until, worker};

/// Does the first of two chunks, writes a checkpoint, and hangs in the second.
async fn half(job: HeldJob, at_half: mpsc::Sender<()>) -> Result<Outcome, Failure> {
    job.total(2).await?;
    let ChunkAnswer::Claimed(first) = job.chunk("first").claim().await? else {
        return Err(Failure::new("the first chunk was not claimed"));
    };
    first.complete(100).await?;
    job.checkpoint("second").await?;
    let second = job.chunk("second").claim().await?;
    at_half.send(()).await?;
    std::future::pending::<()>().await;
    drop(second);
    Ok(Outcome::Done)
}

/// Goal: work done before a crash is not repeated, and the rest is done. Method: a worker dies in
/// the second of two chunks; another worker reports the state that it finds.
///
/// Proves: S5-001, S5-002, S5-003, S5-045, S5-046
#[tokio::test(flavor = "multi_thread")]
async fn another_worker_continues_at_the_last_checkpoint() {
    on_both(|house| async move {
        let (first, second) = (house.open("first").await, house.open("second").await);
        let id = first.jobs().enqueue(import()).await.unwrap();
        let (at_half, mut halfway) = mpsc::channel(1);
        let dying = worker(&first, move |job| half(job, at_half.clone()));
        let dying = dying.start().await.unwrap();
        soon(halfway.recv()).await.unwrap();
        drop(dying);

        let (tell, mut told) = mpsc::channel(1);
        let living = worker(&second, move |job: HeldJob| {
            let tell = tell.clone();
            async move {
                let done = job.chunk("first").claim().await?;
                let is_done = matches!(done, ChunkAnswer::Done { .. });
                let cursor = job.cursor().map(str::to_owned);
                // The lease of the dead worker may still be live.
                let ChunkAnswer::Claimed(rest) = job.chunk("second").wait().await? else {
                    return Err(Failure::new("the second chunk was not done"));
                };
                rest.complete(50).await?;
                job.result("{\"rows\": 150}").await?;
                tell.send((is_done, cursor, job.attempt())).await?;
                Ok(Outcome::Done)
            }
        });
        let living = living.start().await.unwrap();
        let (is_done, cursor, attempt) = soon(told.recv()).await.unwrap();
        assert!(is_done, "the first chunk is not done again");
        assert_eq!((cursor.as_deref(), attempt), (Some("second"), 2));
        let job = ended(&second, id).await;
        assert_eq!(job.state, SyncState::Completed);
        assert_eq!((job.counters.crashes, job.counters.failures), (1, 0));
        assert_eq!(job.result.as_deref(), Some("{\"rows\": 150}"));
        assert_eq!(job.chunks_total, Some(2));
        let progress = second.jobs().progress(&job.matrix).await.unwrap();
        assert_eq!((progress.done, progress.rows), (2, 150));
        living.stop().await;
    })
    .await;
}

/// A stop is not a crash: the job is released at once, and no retry is used up.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_releases_its_job() {
    on_both(|house| async move {
        let (first, second) = (house.open("first").await, house.open("second").await);
        let id = first.jobs().enqueue(import()).await.unwrap();
        let (at_half, mut halfway) = mpsc::channel(1);
        let settings = Settings {
            shutdown_timeout: Some(Duration::from_millis(100)),
            ..Settings::default()
        };
        let stopping = worker(&first, move |job| half(job, at_half.clone())).settings(settings);
        let stopping = stopping.start().await.unwrap();
        soon(halfway.recv()).await.unwrap();
        assert_eq!(stopping.stop().await.left, 0);
        let job = first.jobs().find(id).await.unwrap().unwrap();
        assert_eq!(job.state, SyncState::Available);
        assert_eq!((job.counters.crashes, job.counters.failures), (0, 0));
        assert_eq!(job.cursor.as_deref(), Some("second"));
        let matrix = second.matrix(job.matrix.as_str()).unwrap();
        let chunk = matrix.chunk("second").claim().await.unwrap();
        assert!(matches!(chunk, ChunkAnswer::Claimed(_)), "{chunk:?}");

        let next = worker(&second, |_: HeldJob| async { Ok(Outcome::Done) });
        let next = next.start().await.unwrap();
        assert_eq!(ended(&second, id).await.state, SyncState::Completed);
        next.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_too_often_has_failed_for_good() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let id = tenure.jobs().enqueue(import()).await.unwrap();
        let tries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tries);
        let settings = Settings {
            max_retries: 2,
            ..Settings::default()
        };
        let failing = worker(&tenure, move |job: HeldJob| {
            let nth = counted.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                assert_eq!(job.attempt(), nth, "each failure is one attempt");
                Err(Failure::new("no such file").after(Duration::from_millis(100)))
            }
        });
        let failing = failing.settings(settings).start().await.unwrap();
        let job = ended(&tenure, id).await;
        failing.stop().await;
        assert_eq!(job.state, SyncState::Failed);
        assert!(job.error.as_deref().unwrap().contains("no such file"));
        assert_eq!(tries.load(Ordering::Relaxed), 3, "one try and two retries");
        assert_eq!((job.counters.failures, job.counters.crashes), (3, 0));
    })
    .await;
}

/// Starts a worker, kills it while it holds the job, and waits until its lease has lapsed.
async fn die(tenure: &Tenure, id: JobId) {
    let (begin, mut began) = mpsc::channel(1);
    let settings = Settings {
        max_crashes: 3,
        ..Settings::default()
    };
    let dying = worker(tenure, move |_: HeldJob| {
        let begin = begin.clone();
        async move {
            begin.send(()).await?;
            std::future::pending().await
        }
    });
    let dying = dying.settings(settings).start().await.unwrap();
    tokio::select! {
        _ = began.recv() => {}
        _ = ended(tenure, id) => {}
    }
    drop(dying);
    until(tenure, id, |job| job.state != SyncState::Running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_workers_die_too_often_has_failed_for_good() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let id = tenure.jobs().enqueue(import()).await.unwrap();
        for _ in 0..4 {
            die(&tenure, id).await;
        }
        // The job survives three lapses; after the fourth, the next worker settles it as dead.
        let next = worker(&tenure, |_: HeldJob| async { Ok(Outcome::Done) });
        let settings = Settings {
            max_crashes: 3,
            ..Settings::default()
        };
        let next = next.settings(settings).start().await.unwrap();
        let job = ended(&tenure, id).await;
        next.stop().await;
        assert_eq!(job.state, SyncState::Failed);
        assert_eq!((job.counters.crashes, job.counters.failures), (4, 0));
    })
    .await;
}
