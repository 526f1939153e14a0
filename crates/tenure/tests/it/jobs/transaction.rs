//! Checkpoints in the caller's own transaction: its writes exist if and only if the checkpoint
//! does, and after the end of the hold nothing is committed.

use sqlx::{Connection as _, PgConnection, Row as _};
use tenure::job::{ChunkAnswer, HeldChunk, HeldJob, HoldError, SyncState};
use tenure::{Outcome, Tenure};
use tokio::sync::mpsc;

use super::{JobPlace, ended, import, on_both, soon, worker};

/// The user's own connection.
enum Shop {
    Lite(rusqlite::Connection),
    Postgres(PgConnection),
}

/// The checkpoint that is written after the order, as the last statement.
enum Mark<'a> {
    Job(&'a HeldJob),
    Chunk(&'a HeldChunk),
    /// The chunk failed for good.
    Dead(&'a HeldChunk),
}

impl Shop {
    async fn open(house: &JobPlace) -> Self {
        let table = "create table if not exists orders (id bigint primary key)";
        if house.is_sqlite() {
            let conn = rusqlite::Connection::open(&house.path).unwrap();
            conn.busy_timeout(std::time::Duration::from_secs(10))
                .unwrap();
            conn.execute_batch(table).unwrap();
            return Self::Lite(conn);
        }
        let mut conn = PgConnection::connect(&house.url).await.unwrap();
        sqlx::query(table).execute(&mut conn).await.unwrap();
        Self::Postgres(conn)
    }

    /// Writes an order and a checkpoint, and commits if the checkpoint was accepted.
    async fn write(&mut self, order: i64, mark: Mark<'_>) -> Result<(), HoldError> {
        let cursor = (order + 1).to_string();
        match self {
            Self::Lite(conn) => {
                let immediate = rusqlite::TransactionBehavior::Immediate;
                let tx = conn.transaction_with_behavior(immediate).unwrap();
                tx.execute("insert into orders (id) values (?1)", [order])
                    .unwrap();
                match mark {
                    Mark::Job(job) => job.checkpoint_in(&tx, &cursor)?,
                    Mark::Chunk(chunk) => chunk.complete_in(&tx, 1)?,
                    Mark::Dead(chunk) => chunk.fail_for_good_in(&tx, "no such month")?,
                }
                tx.commit().unwrap();
            }
            Self::Postgres(conn) => {
                let mut tx = conn.begin().await.unwrap();
                let insert = sqlx::query("insert into orders (id) values ($1)").bind(order);
                insert.execute(&mut *tx).await.unwrap();
                match mark {
                    Mark::Job(job) => job.checkpoint_in(&mut tx, &cursor).await?,
                    Mark::Chunk(chunk) => chunk.complete_in(&mut tx, 1).await?,
                    Mark::Dead(chunk) => {
                        chunk.fail_for_good_in(&mut tx, "no such month").await?;
                    }
                }
                tx.commit().await.unwrap();
            }
        }
        Ok(())
    }

    async fn orders(&mut self) -> i64 {
        let count = "select count(*) from orders";
        match self {
            Self::Lite(conn) => conn.query_row(count, [], |row| row.get(0)).unwrap(),
            Self::Postgres(conn) => sqlx::query(count).fetch_one(conn).await.unwrap().get(0),
        }
    }
}

type HeldNow = (HeldJob, HeldChunk);

/// Starts a worker whose handler gives its job and a chunk to the test; returns these, and a sender
/// that lets the handler finish.
async fn in_hand(tenure: &Tenure) -> (tenure::Worker, HeldNow, mpsc::Sender<()>) {
    let (hands, mut handed) = mpsc::channel(1);
    let (finish, finished) = mpsc::channel::<()>(1);
    let finished = std::sync::Arc::new(tokio::sync::Mutex::new(finished));
    let running = worker(tenure, move |job: HeldJob| {
        let (hands, finished) = (hands.clone(), std::sync::Arc::clone(&finished));
        async move {
            if let ChunkAnswer::Claimed(chunk) = job.chunk("first").claim().await? {
                hands.send((job, chunk)).await?;
            }
            finished.lock().await.recv().await;
            Ok(Outcome::Done)
        }
    });
    let running = running.start().await.unwrap();
    let held = soon(handed.recv()).await.unwrap();
    (running, held, finish)
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_exist_if_and_only_if_their_checkpoint_does() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let mut shop = Shop::open(&house).await;
        let id = tenure.jobs().enqueue(import()).await.unwrap();
        let (running, (job, chunk), finish) = in_hand(&tenure).await;
        shop.write(7, Mark::Job(&job)).await.unwrap();
        let now = tenure.jobs().find(id).await.unwrap().unwrap();
        assert_eq!(now.cursor.as_deref(), Some("8"));
        shop.write(8, Mark::Chunk(&chunk)).await.unwrap();
        assert_eq!(shop.orders().await, 2);
        drop(chunk);
        let progress = tenure.jobs().progress(&now.matrix).await.unwrap();
        assert_eq!((progress.done, progress.rows), (1, 1));

        finish.send(()).await.unwrap();
        assert_eq!(ended(&tenure, id).await.state, SyncState::Completed);
        let refused = shop.write(9, Mark::Job(&job)).await.unwrap_err();
        assert!(refused.is_over(), "{refused}");
        assert_eq!(shop.orders().await, 2, "it was rolled back");
        running.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_commits_nothing() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let mut shop = Shop::open(&house).await;
        let id = tenure.jobs().enqueue(import()).await.unwrap();
        let (running, (job, chunk), _finish) = in_hand(&tenure).await;
        let cancelled = tenure.jobs().cancel(id, "enough").await.unwrap();
        assert!(cancelled.is_accepted());
        // The cancel is too recent for a heartbeat to notice it; the database refuses the writes.
        let first = shop.write(7, Mark::Job(&job)).await.unwrap_err();
        let second = shop.write(8, Mark::Chunk(&chunk)).await.unwrap_err();
        assert!(first.is_over() && second.is_over(), "{first}, {second}");
        assert_eq!(shop.orders().await, 0);
        running.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_fails_for_good_in_a_transaction() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let mut shop = Shop::open(&house).await;
        let id = tenure.jobs().enqueue(import()).await.unwrap();
        let (running, (job, chunk), finish) = in_hand(&tenure).await;
        shop.write(7, Mark::Dead(&chunk)).await.unwrap();
        let refused = shop.write(8, Mark::Dead(&chunk)).await.unwrap_err();
        assert!(refused.is_over(), "{refused}");
        assert_eq!(shop.orders().await, 1);
        // Dropping the failed chunk changes nothing.
        drop(chunk);
        let answer = job.chunk("first").wait().await.unwrap();
        assert!(matches!(answer, ChunkAnswer::Failed), "{answer:?}");
        let ChunkAnswer::Claimed(second) = job.chunk("second").claim().await.unwrap() else {
            panic!("the chunk is not free");
        };
        second.fail_for_good("no such month, either").await.unwrap();
        let answer = job.chunk("second").claim().await.unwrap();
        assert!(matches!(answer, ChunkAnswer::Failed), "{answer:?}");
        finish.send(()).await.unwrap();
        let ended = ended(&tenure, id).await;
        assert_eq!(ended.state, SyncState::Completed);
        let progress = tenure.jobs().progress(&ended.matrix).await.unwrap();
        assert_eq!((progress.done, progress.failed), (0, 2));
        running.stop().await;
    })
    .await;
}

/// After a rollback of the transaction the worker still holds the chunk, and can release it.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_whose_transaction_was_rolled_back_can_be_released() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let orders = tenure.matrix("orders").unwrap();
        let ChunkAnswer::Claimed(chunk) = orders.chunk("a").claim().await.unwrap() else {
            panic!("the chunk is not free");
        };
        match &mut Shop::open(&house).await {
            Shop::Lite(conn) => {
                let tx = conn.transaction().unwrap();
                chunk.complete_in(&tx, 1).unwrap();
                tx.rollback().unwrap();
            }
            Shop::Postgres(conn) => {
                let mut tx = conn.begin().await.unwrap();
                chunk.complete_in(&mut tx, 1).await.unwrap();
                tx.rollback().await.unwrap();
            }
        }
        chunk.note("row 7").await.unwrap();
        drop(chunk);
        let again = soon(orders.chunk("a").wait()).await.unwrap();
        let ChunkAnswer::Claimed(again) = again else {
            panic!("it is not done");
        };
        assert_eq!(again.cursor(), Some("row 7"));
        again.complete(1).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_exists_if_and_only_if_the_transaction_commits() {
    on_both(|house| async move {
        let tenure = house.open("worker").await;
        let jobs = tenure.jobs();
        let ids = match &mut Shop::open(&house).await {
            Shop::Lite(conn) => {
                let wrong = jobs.enqueue_in(&*conn, import());
                wrong.unwrap();
                let tx = conn.transaction().unwrap();
                let lost = jobs.enqueue_in(&tx, import()).unwrap();
                tx.rollback().unwrap();
                let tx = conn.transaction().unwrap();
                let kept = jobs.enqueue_in(&tx, import()).unwrap();
                tx.commit().unwrap();
                (lost, kept)
            }
            Shop::Postgres(conn) => {
                jobs.enqueue_in(&mut *conn, import()).await.unwrap();
                let mut tx = conn.begin().await.unwrap();
                let lost = jobs.enqueue_in(&mut tx, import()).await.unwrap();
                tx.rollback().await.unwrap();
                let mut tx = conn.begin().await.unwrap();
                let kept = jobs.enqueue_in(&mut tx, import()).await.unwrap();
                tx.commit().await.unwrap();
                let wrong = rusqlite::Connection::open_in_memory().unwrap();
                assert!(jobs.enqueue_in(&wrong, import()).is_err());
                (lost, kept)
            }
        };
        let filter = tenure::job::JobFilter::default();
        assert_eq!(jobs.list(&filter, 10).await.unwrap().len(), 2);
        assert!(jobs.find(ids.1).await.unwrap().is_some());
        if house.is_sqlite() {
            // SQLite reuses the number of the rolled-back job.
            assert_eq!(ids.0, ids.1);
        } else {
            assert!(jobs.find(ids.0).await.unwrap().is_none());
        }
    })
    .await;
}
