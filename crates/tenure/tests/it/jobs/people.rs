//! Operators list jobs and retry finished ones; a worker refuses invalid options.

use std::time::Duration;

use tenure::job::{
    ChunkAnswer, HeldJob, JobFilter, JobId, JobKind, MatrixName, NewJob, Retried, SyncState,
};
use tenure::lease::Refusal;
use tenure::{Outcome, StoreErrorKind, Tenure, WorkerError};

use super::{HEARTBEAT, ended, import, on_both, term, until, worker};

/// Goal: a finished job stays finished, and a retry works only on the remaining chunks. Method: a
/// job fails after its first chunk; its retry reports the chunks that it found done.
///
/// Proves: S5-008
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_a_new_job_with_the_same_input_on_the_same_matrix() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let jobs = tenure.jobs();
        let id = jobs.enqueue(import().priority(7)).await.unwrap();
        assert_eq!(
            jobs.retry(id).await.unwrap(),
            Retried::Refused(Refusal::NotSettled)
        );
        assert_eq!(
            jobs.retry(JobId::new(4711)).await.unwrap(),
            Retried::Refused(Refusal::NotFound)
        );
        let running = worker(&tenure, |job: HeldJob| async move {
            let mut done = 0;
            for name in ["a", "b"] {
                match job.chunk(name).claim().await? {
                    ChunkAnswer::Claimed(chunk) => chunk.complete(1).await?,
                    _ => done += 1,
                }
                if job.job().retry_of.is_none() {
                    return Ok(Outcome::dead("the disk is full"));
                }
            }
            job.result(&done.to_string()).await?;
            Ok(Outcome::Done)
        });
        let running = running.start().await.unwrap();
        let failed = ended(&tenure, id).await;
        assert_eq!(failed.state, SyncState::Failed);
        let Retried::Written(again) = jobs.retry(id).await.unwrap() else {
            panic!("it has ended");
        };
        let retried = ended(&tenure, again).await;
        running.stop().await;
        assert_eq!(retried.state, SyncState::Completed);
        assert_eq!(retried.result.as_deref(), Some("1"), "one done chunk");
        assert_eq!(retried.retry_of, Some(id));
        assert_eq!(retried.matrix, failed.matrix);
        assert_eq!(
            (retried.payload, retried.priority),
            (failed.payload.clone(), 7)
        );
        assert_eq!(jobs.find(id).await.unwrap().unwrap(), failed, "it is final");
    })
    .await;
}

/// Proves: S5-022
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_takes_only_kinds_with_a_handler_highest_priority_first() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let jobs = tenure.jobs();
        let export = NewJob::new("export", "{}").unwrap().priority(9);
        let new = [import(), import(), import().priority(5), export];
        let ids = jobs.enqueue_all(&new).await.unwrap();
        let (tell, mut told) = tokio::sync::mpsc::channel(9);
        let one = worker(&tenure, move |job: HeldJob| {
            let tell = tell.clone();
            async move {
                tell.send(job.id()).await?;
                Ok(Outcome::Done)
            }
        });
        let one = one.concurrency(1).start().await.unwrap();
        for id in &ids[..3] {
            ended(&tenure, *id).await;
        }
        one.stop().await;
        let mut order = Vec::new();
        while let Some(id) = told.recv().await {
            order.push(id);
        }
        assert_eq!(order, [ids[2], ids[0], ids[1]]);
        let other = jobs.find(ids[3]).await.unwrap().unwrap();
        assert_eq!(other.state, SyncState::Available, "it has no handler");
        assert_eq!(other.counters.attempts, 0, "no worker has tried it");

        let filter = JobFilter {
            kind: Some(JobKind::new("import").unwrap()),
            state: Some(SyncState::Completed),
            ..JobFilter::default()
        };
        let listed = jobs.list(&filter, 10).await.unwrap();
        let listed: Vec<JobId> = listed.iter().map(|job| job.id).collect();
        assert_eq!(listed, [ids[2], ids[1], ids[0]], "the newest first");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_exceeds_the_maximum_hold_of_its_kind_is_retried() {
    on_both(|house| async move {
        // The maximum hold may be as long as the term, or shorter.
        for longest in [term().length(), term().length() / 10] {
            let tenure = house.open("worker").await;
            let id = tenure.jobs().enqueue(import()).await.unwrap();
            let (said, mut heard) = tokio::sync::mpsc::channel(1);
            let cut = worker(&tenure, move |job: HeldJob| {
                let said = said.clone();
                async move {
                    if job.attempt() == 1 {
                        said.send(job.time_left()).await?;
                        std::future::pending::<()>().await;
                    }
                    Ok(Outcome::Done)
                }
            });
            let cut = cut.max_hold("import", longest);
            let cut = cut.start().await.unwrap();
            let left = heard.recv().await.unwrap();
            assert!(left <= longest, "{left:?}");
            let began = tokio::time::Instant::now();
            let failed = until(&tenure, id, |job| job.counters.failures == 1).await;
            assert!(began.elapsed() < longest + term().length() / 2);
            let error = failed.error.unwrap();
            assert!(error.contains("processing time exceeded"), "{error}");
            let job = ended(&tenure, id).await;
            cut.stop().await;
            assert_eq!(job.state, SyncState::Completed);
            assert_eq!((job.counters.failures, job.counters.crashes), (1, 0));
        }
    })
    .await;
}

#[tokio::test]
async fn all_problems_of_a_worker_are_reported_together() {
    let memory = Tenure::open("memory:").await.unwrap();
    let error = memory
        .jobs()
        .on("", |_: HeldJob| async { Ok(Outcome::Done) })
        .max_hold("export", Duration::from_secs(1))
        .chunk_timing(term(), term().length())
        .timing(term(), HEARTBEAT)
        .concurrency(0)
        .start()
        .await
        .unwrap_err();
    let WorkerError::Invalid(problems) = &error else {
        panic!("{error:?}");
    };
    let text = error.to_string();
    for part in [
        "kind of a job",
        "export",
        "chunks",
        "does not support jobs",
        "concurrency",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert_eq!(problems.len(), 5, "{problems:?}");

    let error = memory.jobs().enqueue(import()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    let matrix = MatrixName::new("orders").unwrap();
    assert!(memory.jobs().progress(&matrix).await.is_err());
}
