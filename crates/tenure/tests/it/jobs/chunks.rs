//! Chunks: each has one holder at a time; a completed chunk is skipped, a synced one while it is
//! fresh.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::job::{ChunkAnswer, ChunkAsk, HeldChunk, HeldJob, HoldError, MatrixName, NewJob};
use tenure::{Outcome, Tenure};
use tokio::time::sleep;

use super::{HEARTBEAT, ended, import, on_both, soon, term, worker};

const CHUNKS: u32 = 24;

/// The chunks that a worker holds, and the number of times that each was done.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    in_hand: BTreeSet<String>,
    done: BTreeMap<String, u32>,
    twice_at_once: u32,
}

impl Ledger {
    fn begin(&self, name: &str) {
        let mut pages = self.0.lock().unwrap();
        if !pages.in_hand.insert(name.to_owned()) {
            pages.twice_at_once += 1;
        }
    }

    fn end(&self, name: &str) {
        let mut pages = self.0.lock().unwrap();
        pages.in_hand.remove(name);
        *pages.done.entry(name.to_owned()).or_default() += 1;
    }

    /// Works through all chunks while other workers do the same.
    async fn work(&self, ask: impl Fn(&str) -> ChunkAsk) -> Result<(), HoldError> {
        for no in 0..CHUNKS {
            let name = format!("chunk-{no}");
            if let ChunkAnswer::Claimed(chunk) = ask(&name).wait().await? {
                self.begin(&name);
                sleep(Duration::from_millis(10)).await;
                self.end(&name);
                chunk.complete(10).await?;
            }
        }
        Ok(())
    }
}

/// Goal: several workers share the chunks of one matrix, and no chunk has two holders. Method:
/// three workers with three jobs on one matrix, and one without a job; a ledger records the
/// holders.
///
/// Proves: S5-033
#[tokio::test(flavor = "multi_thread")]
async fn several_workers_share_the_chunks_of_one_matrix() {
    on_both(|house| async move {
        let ledger = Ledger::default();
        let orders = MatrixName::new("orders").unwrap();
        let (mut ids, mut workers) = (Vec::new(), Vec::new());
        for name in ["one", "two", "three"] {
            let tenure = house.open(name).await;
            let job = import().matrix(orders.clone());
            ids.push(tenure.jobs().enqueue(job).await.unwrap());
            let ledger = ledger.clone();
            let sharing = worker(&tenure, move |job: HeldJob| {
                let ledger = ledger.clone();
                async move {
                    job.total(u64::from(CHUNKS)).await?;
                    ledger.work(|name| job.chunk(name)).await?;
                    Ok(Outcome::Done)
                }
            });
            workers.push(sharing.concurrency(1).start().await.unwrap());
        }
        let helper = house.open("helper").await;
        let matrix = helper.matrix("orders").unwrap();
        let matrix = matrix.timing(term(), HEARTBEAT).unwrap();
        soon(ledger.work(|name| matrix.chunk(name))).await.unwrap();
        for id in ids {
            ended(&helper, id).await;
        }
        for worker in workers {
            worker.stop().await;
        }
        let progress = matrix.progress().await.unwrap();
        let chunks = u64::from(CHUNKS);
        assert_eq!((progress.total, progress.done), (Some(chunks), chunks));
        assert_eq!(progress.rows, chunks * 10);
        let pages = ledger.0.lock().unwrap();
        assert_eq!(pages.twice_at_once, 0);
        assert_eq!(pages.done.len(), 24);
        assert!(pages.done.values().all(|times| *times == 1), "{pages:?}");
    })
    .await;
}

async fn claimed(ask: ChunkAsk) -> HeldChunk {
    match ask.claim().await.unwrap() {
        ChunkAnswer::Claimed(chunk) => chunk,
        other => panic!("{other:?}"),
    }
}

async fn is_done(ask: ChunkAsk) -> bool {
    matches!(ask.claim().await.unwrap(), ChunkAnswer::Done { .. })
}

/// Proves: S5-035, S5-040, S5-041
#[tokio::test(flavor = "multi_thread")]
async fn a_synced_chunk_is_skipped_while_it_is_fresh_and_a_completed_one_always() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let prices = tenure.matrix("prices").unwrap();
        let hour = Duration::from_hours(1);
        claimed(prices.chunk("EUR")).await.synced(40).await.unwrap();
        assert!(is_done(prices.chunk("EUR").fresh_for(hour)).await);
        let again = claimed(prices.chunk("EUR").fresh_for(Duration::from_micros(1))).await;
        again.synced(41).await.unwrap();
        claimed(prices.chunk("EUR"))
            .await
            .complete(42)
            .await
            .unwrap();
        assert!(is_done(prices.chunk("EUR")).await);
        assert_eq!(prices.progress().await.unwrap().rows, 42);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_or_failed_chunk_can_be_claimed_again() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let orders = tenure.matrix("orders").unwrap();
        let first = claimed(orders.chunk("a")).await;
        assert_eq!((first.attempt(), first.cursor()), (1, None));
        first.note("row 7").await.unwrap();
        let held = orders.chunk("a").claim().await.unwrap();
        assert!(matches!(held, ChunkAnswer::Held { .. }), "{held:?}");
        let fence = first.fence();
        drop(first);

        // Dropping the chunk releases it, and a claim that waits gets it soon.
        let ChunkAnswer::Claimed(second) = soon(orders.chunk("a").wait()).await.unwrap() else {
            panic!("the chunk is not free");
        };
        assert!(second.fence() > fence);
        assert_eq!((second.attempt(), second.cursor()), (2, Some("row 7")));
        second.fail("no such file").await.unwrap();
        let name = MatrixName::new("orders").unwrap();
        let records = tenure.jobs().chunks(&name, None, 10).await.unwrap();
        assert_eq!(records[0].error.as_deref(), Some("no such file"));
        let third = claimed(orders.chunk("a")).await;
        assert_eq!(third.attempt(), 3);
        third.release().await.unwrap();
        claimed(orders.chunk("a")).await.complete(1).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_with_one_name_in_two_matrices_are_independent() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let [one, two] = ["one", "two"].map(|name| tenure.matrix(name).unwrap());
        let first = claimed(one.chunk("a")).await;
        let second = claimed(two.chunk("a")).await;
        first.complete(1).await.unwrap();
        assert!(is_done(one.chunk("a")).await);
        second.complete(2).await.unwrap();
        assert_eq!(two.progress().await.unwrap().rows, 2);
    })
    .await;
}

/// A separate thread renews the chunks of a matrix without a job.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_without_a_job_is_renewed() {
    on_both(|house| async move {
        let (first, second) = (house.open("first").await, house.open("second").await);
        let orders = first.matrix("orders").unwrap();
        let orders = orders.timing(term(), HEARTBEAT).unwrap();
        let chunk = claimed(orders.chunk("a")).await;
        sleep(term().length() * 3 / 2).await;
        let other = second.matrix("orders").unwrap().chunk("a");
        let answer = other.claim().await.unwrap();
        assert!(matches!(answer, ChunkAnswer::Held { .. }), "{answer:?}");
        assert!(!chunk.is_cancelled());
        chunk.complete(1).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn invalid_names_and_timings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("jobs.db").display());
    let tenure = Tenure::open(&url).await.unwrap();
    assert!(tenure.matrix("").is_err());
    let orders = tenure.matrix("orders").unwrap();
    let error = orders.chunk("a\nb").claim().await.unwrap_err();
    assert!(!error.is_over(), "{error}");
    assert!(NewJob::new("", "{}").is_err());
    assert!(orders.timing(term(), term().length()).is_err());
}
