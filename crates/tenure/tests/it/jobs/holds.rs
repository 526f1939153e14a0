//! Leases of jobs and chunks are renewed during the work. After the loss of a lease the work stops,
//! and its writes are refused.

use std::time::Duration;

use tenure::job::{ChunkAnswer, HeldChunk, HeldJob, HoldError, JobId, SyncState};
use tenure::lease::{Claim, LapsePolicy, Refusal, Term};
use tenure::store::{Clock as _, SystemClock};
use tenure::{Outcome, Tenure};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::{TERM, ended, import, on_both, soon, term, worker};

/// The job and the chunk that a handler gives to the test.
type HeldNow = (HeldJob, HeldChunk);

/// A handler that gives its job and a chunk of it to the test, and never returns.
async fn hand_out(job: HeldJob, hands: mpsc::Sender<HeldNow>) -> Result<Outcome, tenure::Failure> {
    if let ChunkAnswer::Claimed(chunk) = job.chunk("first").claim().await? {
        hands.send((job, chunk)).await?;
    }
    std::future::pending().await
}

/// Takes over the job, as a worker does after the lease has lapsed.
async fn take_over(tenure: &Tenure, id: JobId) {
    let later = SystemClock.now().after(Duration::from_mins(10));
    let claim = Claim::new(tenure.token(), 1)
        .term(term())
        .recovery(Some(LapsePolicy::default()))
        .at(later);
    let leases = tenure.store().job_store().unwrap().job_leases();
    let held = leases.claim(&claim).await.unwrap().unwrap();
    assert_eq!(held.ids(), [tenure::ItemId::from(id)]);
}

async fn assert_refused(job: &HeldJob, chunk: HeldChunk) {
    let is_over = |written: Result<(), HoldError>| written.unwrap_err().is_over();
    assert!(is_over(job.checkpoint("7").await));
    assert!(is_over(job.total(7).await));
    assert!(is_over(job.result("7").await));
    assert!(job.chunk("other").claim().await.unwrap_err().is_over());
    assert!(is_over(chunk.note("7").await));
    assert!(is_over(chunk.complete(7).await));
}

/// Goal: if two workers both assume that they hold a job, one is stopped and its writes are
/// refused. Method: another worker takes over the job. The handler of the first worker must be
/// dropped, and the job and chunk that it gave to the test cannot write.
///
/// Proves: S5-027, S5-028
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_job_is_cancelled_and_late_writes_are_refused() {
    on_both(|house| async move {
        let tenure = house.open("first").await;
        let id = tenure.jobs().enqueue(import()).await.unwrap();
        let (hands, mut handed) = mpsc::channel(1);
        let losing = worker(&tenure, move |job| hand_out(job, hands.clone()));
        let losing = losing.start().await.unwrap();
        let (job, chunk) = soon(handed.recv()).await.unwrap();
        assert!(!job.is_cancelled() && !chunk.is_cancelled());
        job.checkpoint("5").await.unwrap();

        take_over(&house.open("second").await, id).await;
        soon(job.cancelled()).await;
        assert!(chunk.is_cancelled(), "the chunk is cancelled with its job");
        let work = chunk.during(std::future::pending::<()>());
        assert!(soon(work).await.unwrap_err().is_over());
        assert_refused(&job, chunk).await;
        let now = tenure.jobs().find(id).await.unwrap().unwrap();
        assert_eq!(now.cursor.as_deref(), Some("5"));
        assert_eq!((now.chunks_total, now.result), (None, None));
        let progress = tenure.jobs().progress(&now.matrix).await.unwrap();
        assert_eq!((progress.done, progress.rows), (0, 0));
        losing.stop().await;
    })
    .await;
}

/// Proves: S5-008
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_stops_and_stays_failed() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let jobs = tenure.jobs();
        let id = jobs.enqueue(import()).await.unwrap();
        let (hands, mut handed) = mpsc::channel(1);
        let running = worker(&tenure, move |job| hand_out(job, hands.clone()));
        let running = running.concurrency(1).start().await.unwrap();
        let (job, chunk) = soon(handed.recv()).await.unwrap();
        // The second job waits behind the first, and never starts.
        let waiting = jobs.enqueue(import()).await.unwrap();
        assert!(
            jobs.cancel(waiting, "not needed")
                .await
                .unwrap()
                .is_accepted()
        );

        assert!(
            jobs.cancel(id, "the wrong file")
                .await
                .unwrap()
                .is_accepted()
        );
        soon(job.cancelled()).await;
        assert_refused(&job, chunk).await;
        let again = jobs.cancel(id, "once more").await.unwrap();
        assert_eq!(again.refusal(), Some(Refusal::AlreadySettled));
        let none = jobs.cancel(JobId::new(4711), "no such job").await.unwrap();
        assert_eq!(none.refusal(), Some(Refusal::NotFound));
        running.stop().await;
        for (id, reason) in [(id, "the wrong file"), (waiting, "not needed")] {
            let job = jobs.find(id).await.unwrap().unwrap();
            assert_eq!(job.state, SyncState::Failed);
            assert!(job.error.unwrap().contains(reason));
        }
        assert!(handed.recv().await.is_none(), "the second never started");
    })
    .await;
}

/// Goal: work may take longer than the term of its leases. Method: a job and its chunk are held for
/// two terms, and no other worker gets either of them.
///
/// Proves: S5-005, S5-006
#[tokio::test(flavor = "multi_thread")]
async fn a_job_and_its_chunk_are_renewed_while_the_work_goes_on() {
    on_both(|house| async move {
        let (first, second) = (house.open("first").await, house.open("second").await);
        let id = first.jobs().enqueue(import()).await.unwrap();
        let (hands, mut handed) = mpsc::channel(2);
        let run = |tenure: &Tenure| {
            let hands = hands.clone();
            worker(tenure, move |job: HeldJob| {
                let hands = hands.clone();
                async move {
                    let ChunkAnswer::Claimed(chunk) = job.chunk("first").claim().await? else {
                        return Err(tenure::Failure::new("the chunk is not free"));
                    };
                    hands.send(()).await?;
                    sleep(TERM * 2).await;
                    chunk.complete(1).await?;
                    Ok(Outcome::Done)
                }
            })
        };
        let one = run(&first).start().await.unwrap();
        soon(handed.recv()).await.unwrap();
        let two = run(&second).start().await.unwrap();
        let began = Instant::now();
        let matrix = first.jobs().find(id).await.unwrap().unwrap().matrix;
        let helper = second.matrix(matrix.as_str()).unwrap();
        while began.elapsed() < TERM * 3 / 2 {
            let answer = helper.chunk("first").claim().await.unwrap();
            let ChunkAnswer::Held { holder, .. } = answer else {
                panic!("{answer:?}");
            };
            assert!(holder.starts_with("first-jobs-"), "{holder}");
            sleep(Duration::from_millis(200)).await;
        }
        let job = ended(&first, id).await;
        assert_eq!((job.state, job.counters.crashes), (SyncState::Completed, 0));
        let second_try = timeout(Duration::from_millis(100), handed.recv()).await;
        assert!(second_try.is_err(), "the job started once");
        one.stop().await;
        two.stop().await;
    })
    .await;
}

/// Goal: one process renews many jobs and their chunks at once. Method: 200 jobs are held for
/// longer than their term, and each is done at its first attempt. A renewal has time on a busy
/// machine: four fifths of the heartbeat.
#[tokio::test(flavor = "multi_thread")]
async fn many_jobs_and_their_chunks_are_renewed_at_once() {
    const JOBS: u32 = 200;
    let long = TERM * 3;
    let long_term = Term::new(long).unwrap();
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let new: Vec<_> = (0..JOBS).map(|_| import()).collect();
        let ids = tenure.jobs().enqueue_all(&new).await.unwrap();
        let all = std::sync::Arc::new(tokio::sync::Barrier::new(JOBS.try_into().unwrap()));
        let busy = worker(&tenure, move |job: HeldJob| {
            let all = std::sync::Arc::clone(&all);
            async move {
                let ChunkAnswer::Claimed(chunk) = job.chunk("first").claim().await? else {
                    return Err(tenure::Failure::new("it is this job's alone"));
                };
                all.wait().await;
                chunk.during(sleep(long * 4 / 3)).await?;
                chunk.complete(1).await?;
                Ok(Outcome::Done)
            }
        });
        let busy = busy
            .timing(long_term, long / 4)
            .chunk_timing(long_term, long / 4);
        let busy = busy.concurrency(JOBS).start().await.unwrap();
        for id in ids {
            let job = ended(&tenure, id).await;
            assert_eq!(job.state, SyncState::Completed);
            let counters = job.counters;
            assert_eq!((counters.attempts, counters.crashes), (0, 0), "{job:?}");
        }
        busy.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_continues_after_it_lost_a_chunk() {
    on_both(|house| async move {
        let tenure = house.open("first").await;
        let id = tenure.jobs().enqueue(import()).await.unwrap();
        let (hands, mut handed) = mpsc::channel(1);
        let losing = worker(&tenure, move |job| hand_out(job, hands.clone()));
        let losing = losing.start().await.unwrap();
        let (job, chunk) = soon(handed.recv()).await.unwrap();
        let other = house.open("second").await;
        // This claim is made as a worker makes it after the lease has lapsed.
        let claim = later_claim(&other, &chunk);
        let book = other.store().job_store().unwrap();
        let answer = book.claim_chunk(&claim).await.unwrap();
        let is_taken = matches!(answer, tenure::job::ChunkClaim::Claimed(_));
        assert!(is_taken, "{answer:?}");

        soon(chunk.cancelled()).await;
        assert!(!job.is_cancelled());
        assert!(chunk.complete(7).await.unwrap_err().is_over());
        job.checkpoint("5").await.unwrap();
        assert!(
            tenure
                .jobs()
                .cancel(id, "enough")
                .await
                .unwrap()
                .is_accepted()
        );
        losing.stop().await;
    })
    .await;
}

/// Claims the same chunk ten minutes from now.
fn later_claim(tenure: &Tenure, chunk: &HeldChunk) -> tenure::job::ClaimChunk {
    tenure::job::ClaimChunk {
        key: chunk.key().clone(),
        token: tenure.token(),
        term: term(),
        fresh_for: None,
        job: None,
        now: Some(SystemClock.now().after(Duration::from_mins(10))),
    }
}
