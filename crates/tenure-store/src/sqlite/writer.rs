//! Writer: the one thread that writes to the file, and the readers beside it.
//!
//! SQLite has one writer at a time, and a commit costs a sync of the disk. So all writes go through
//! a bounded channel to one thread. It takes the waiting operations, up to a number of operations
//! and of changed rows, and commits them in one transaction, each in its own savepoint; it answers
//! after the commit has returned, never before. An operation that was sent runs even if its caller
//! no longer waits, except a reap: while another program locks the file, calls time out, and a reap
//! that ran after its timeout would end leases that their holders are about to release. The thread
//! ends when the last handle is dropped and the channel is empty.

use std::fmt;
use std::iter::Peekable;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rusqlite::Connection;
use tenure_core::store::{StoreError, StoreErrorKind};
use tokio::sync::{mpsc, oneshot};

use super::connect;
use super::error::BatchFailure;
use super::readers::Readers;
use crate::config::StoreConfig;

/// Capacity of the channel; beyond it, callers wait.
const WAITING_MAX: usize = 1024;
/// Maximum writes per commit.
const BATCH_MAX: usize = 256;
/// Changed rows after which the thread commits; waiting writes get the next transaction. Otherwise
/// all callers would be answered at once and work at the same time, while the thread is idle.
const ROWS_ENOUGH: u64 = 500;

/// A handle to the writer thread; clones share it.
#[derive(Clone)]
pub struct Writer {
    waiting: mpsc::Sender<Box<dyn Operation>>,
    readers: Arc<Readers>,
    commits: Arc<AtomicU64>,
}

impl Writer {
    /// Opens the file, creating it if necessary, and starts the thread.
    ///
    /// # Errors
    /// The file cannot be opened or created, or is not a database.
    pub async fn open(path: &Path, config: &StoreConfig) -> Result<Self, StoreError> {
        let (waiting, inbox) = mpsc::channel(WAITING_MAX);
        let (opened, answer) = oneshot::channel();
        let commits = Arc::new(AtomicU64::new(0));
        let (file, settings, count) = (path.to_owned(), config.clone(), Arc::clone(&commits));
        thread::Builder::new()
            .name("tenure-writer".to_owned())
            .spawn(move || {
                let connection = match connect::writer(&file, &settings) {
                    Ok(connection) => connection,
                    Err(error) => return drop(opened.send(Err(error))),
                };
                if opened.send(Ok(())).is_ok() {
                    Thread {
                        connection,
                        inbox,
                        commits: count,
                    }
                    .run();
                }
            })
            .map_err(|cause| stopped("open").with_cause(cause))?;
        answer
            .await
            .map_err(|cause| stopped("open").with_cause(cause))??;
        Ok(Self {
            waiting,
            readers: Arc::new(Readers::new(path, config)),
            commits,
        })
    }

    /// Runs `op` in a transaction that it may share with other writes, and returns after the
    /// commit. If `op` returns an error, only its own changes are undone.
    ///
    /// `op` must not begin, commit or roll back.
    ///
    /// # Errors
    /// The error of `op`; `Unavailable` if the commit failed.
    pub async fn write<T: Send + 'static>(
        &self,
        verb: &'static str,
        op: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.send(verb, op, |_| true).await
    }

    /// Like [`Writer::write`], for an `op` that may return `None`: its changes are undone then,
    /// too, without an error.
    ///
    /// # Errors
    /// Same as [`Writer::write`].
    pub async fn write_or_undo<T: Send + 'static>(
        &self,
        verb: &'static str,
        op: impl FnOnce(&Connection) -> Result<Option<T>, StoreError> + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        self.send(verb, op, Option::is_some).await
    }

    async fn send<T: Send + 'static>(
        &self,
        verb: &'static str,
        op: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        is_kept: fn(&T) -> bool,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let operation = Box::new(Write {
            verb,
            op: Some(op),
            is_kept,
            result: None,
            reply,
        });
        if self.waiting.send(operation).await.is_err() {
            return Err(stopped(verb));
        }
        answer
            .await
            .map_err(|cause| stopped(verb).with_cause(cause))?
    }

    /// Runs `op` on a read-only connection, in one snapshot.
    ///
    /// # Errors
    /// The error of `op`.
    pub async fn read<T: Send + 'static>(
        &self,
        verb: &'static str,
        op: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = Arc::clone(&self.readers);
        let turn = Arc::clone(&readers.turns)
            .acquire_owned()
            .await
            .map_err(|cause| stopped(verb).with_cause(cause))?;
        tokio::task::spawn_blocking(move || {
            let result = readers.run(verb, op);
            drop(turn);
            result
        })
        .await
        .map_err(|cause| stopped(verb).with_cause(cause))?
    }

    /// Number of committed transactions: fewer than writes under load.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("path", &self.readers.path)
            .finish_non_exhaustive()
    }
}

/// Verb of the writes that are skipped when their caller no longer waits.
const SKIPPED_IF_ABANDONED: &str = "reap";

/// A pending write: it runs within a batch and is answered after the commit.
trait Operation: Send {
    /// True if the write must not run, because its caller no longer waits.
    fn is_abandoned(&self) -> bool;
    /// Runs the write; returns false if its changes must be undone.
    fn run(&mut self, connection: &Connection) -> bool;
    /// Sends the caller its own result, or the failure of the batch.
    fn answer(self: Box<Self>, failure: Option<&BatchFailure>);
}

struct Write<T, F> {
    verb: &'static str,
    op: Option<F>,
    /// Returns false if the changes must be undone for this result.
    is_kept: fn(&T) -> bool,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F> Operation for Write<T, F>
where
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
{
    fn is_abandoned(&self) -> bool {
        self.verb == SKIPPED_IF_ABANDONED && self.reply.is_closed()
    }

    fn run(&mut self, connection: &Connection) -> bool {
        let Some(op) = self.op.take() else {
            return false;
        };
        let result = caught(self.verb, || op(connection));
        let is_kept = result.as_ref().is_ok_and(self.is_kept);
        self.result = Some(result);
        is_kept
    }

    fn answer(self: Box<Self>, failure: Option<&BatchFailure>) {
        let result = match (self.result, failure) {
            // The error of the operation says more than the failure of its batch.
            (Some(Err(error)), _) => Err(error),
            // The changes are undone in either case.
            (Some(Ok(told)), _) if !(self.is_kept)(&told) => Ok(told),
            (_, Some(failure)) => Err(failure.told(self.verb)),
            (Some(result), None) => result,
            (None, None) => Err(stopped(self.verb)),
        };
        // A caller that no longer waits is not an error: the write stands.
        drop(self.reply.send(result));
    }
}

/// State of the writer thread.
struct Thread {
    connection: Connection,
    inbox: mpsc::Receiver<Box<dyn Operation>>,
    commits: Arc<AtomicU64>,
}

type CommitBatch = Peekable<std::vec::IntoIter<Box<dyn Operation>>>;

impl Thread {
    fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while self.inbox.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
            let mut left: CommitBatch = std::mem::take(&mut batch).into_iter().peekable();
            // More than one round if a transaction became large, or if SQLite rolled one back (a
            // full disk can cause that): then the operations that ran have failed, and the rest get
            // a new transaction.
            while left.peek().is_some() {
                self.commit_together(&mut left);
            }
        }
    }

    fn commit_together(&self, left: &mut CommitBatch) {
        let (ran, failure) = match self.connection.execute_batch("begin immediate") {
            Ok(()) => {
                let ran = self.run_all(left);
                (ran, self.commit().err())
            }
            Err(error) => (left.collect(), Some(BatchFailure::of(&error))),
        };
        for op in ran {
            op.answer(failure.as_ref());
        }
    }

    fn commit(&self) -> Result<(), BatchFailure> {
        if self.connection.is_autocommit() {
            return Err(BatchFailure::given_up());
        }
        self.connection.execute_batch("commit").map_err(|error| {
            self.rollback();
            BatchFailure::of_commit(&error)
        })?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Runs the remaining operations; stops once the transaction is large or was rolled back.
    fn run_all(&self, left: &mut CommitBatch) -> Vec<Box<dyn Operation>> {
        let before = self.connection.total_changes();
        let mut ran = Vec::new();
        while let Some(mut op) = left.next() {
            if op.is_abandoned() {
                continue;
            }
            if ran.is_empty() && left.peek().is_none() {
                // A single write needs no savepoint: it can roll back the transaction.
                if !op.run(&self.connection) {
                    self.rollback();
                }
            } else {
                self.run_in_savepoint(op.as_mut());
            }
            ran.push(op);
            let changed = self.connection.total_changes() - before;
            if changed >= ROWS_ENOUGH || self.connection.is_autocommit() {
                break;
            }
        }
        ran
    }

    fn run_in_savepoint(&self, op: &mut dyn Operation) {
        let run = |statements| self.connection.execute_batch(statements);
        let ended = run("savepoint operation").and_then(|()| {
            if op.run(&self.connection) {
                run("release operation")
            } else {
                run("rollback to operation; release operation")
            }
        });
        if ended.is_err() {
            self.rollback();
        }
    }

    /// Rolls back; ignores the error if SQLite has already done so.
    fn rollback(&self) {
        drop(self.connection.execute_batch("rollback"));
    }
}

/// Runs `op` and turns a panic into an error, so that one bad operation does not end the thread
/// that serves all others.
pub(super) fn caught<T>(
    verb: &'static str,
    op: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(op)).unwrap_or_else(|panic| {
        let said = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        let message = format!("the operation panicked: {said}");
        Err(StoreError::new(verb, StoreErrorKind::Corrupt, message))
    })
}

fn stopped(verb: &'static str) -> StoreError {
    StoreError::new(verb, StoreErrorKind::Unavailable, "the writer has stopped")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as blocking;

    use rusqlite::params;

    use super::*;
    use crate::sqlite::error::failed;

    /// A writer on a new file with a table of lines; dropping the folder deletes it.
    async fn bench() -> (Writer, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::open(&folder.path().join("t.db"), &StoreConfig::default())
            .await
            .unwrap();
        writer
            .write("make", |connection| {
                connection
                    .execute_batch("create table line (n integer primary key)")
                    .map_err(failed("make"))
            })
            .await
            .unwrap();
        (writer, folder)
    }

    fn insert(connection: &Connection, n: u32) -> Result<(), StoreError> {
        connection
            .execute("insert into line values (?1)", params![n])
            .map_err(failed("insert"))?;
        Ok(())
    }

    /// Inserts a line and returns `None`.
    fn insert_in_vain(connection: &Connection, n: u32) -> Result<Option<()>, StoreError> {
        insert(connection, n).map(|()| None)
    }

    async fn write_line(writer: &Writer, n: u32) {
        let written = writer.write("insert", move |connection| insert(connection, n));
        written.await.unwrap();
    }

    async fn lines(writer: &Writer) -> Vec<u32> {
        let all = |connection: &Connection| -> rusqlite::Result<Vec<u32>> {
            let mut rows = connection.prepare("select n from line order by n")?;
            rows.query_map([], |row| row.get(0))?.collect()
        };
        writer
            .read("lines", move |connection| {
                all(connection).map_err(failed("lines"))
            })
            .await
            .unwrap()
    }

    /// Blocks the thread until the returned sender is dropped, so that later writes wait together.
    async fn hold_up(writer: &Writer) -> blocking::Sender<()> {
        let (release, held) = blocking::channel::<()>();
        let (started, has_started) = oneshot::channel();
        let writer = writer.clone();
        tokio::spawn(async move {
            writer
                .write("hold up", move |_| {
                    started.send(()).unwrap();
                    assert!(held.recv().is_err());
                    Ok(())
                })
                .await
        });
        has_started.await.unwrap();
        release
    }

    /// Sends a write without waiting for its answer.
    async fn send<T: Send + 'static>(
        writer: &Writer,
        op: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        send_if(writer, op, |_| true).await
    }

    /// Like `send`, for a write that is undone depending on its result.
    async fn send_if<T: Send + 'static>(
        writer: &Writer,
        op: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        is_kept: fn(&T) -> bool,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        send_as("send", writer, op, is_kept).await
    }

    async fn send_as<T: Send + 'static>(
        verb: &'static str,
        writer: &Writer,
        op: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        is_kept: fn(&T) -> bool,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let write = Write {
            verb,
            op: Some(op),
            is_kept,
            result: None,
            reply,
        };
        assert!(writer.waiting.send(Box::new(write)).await.is_ok());
        answer
    }

    #[tokio::test]
    async fn writes_that_wait_together_are_committed_together() {
        let (writer, _folder) = bench().await;
        let release = hold_up(&writer).await;
        let before = writer.commits();
        let mut answers = Vec::new();
        for n in 0..200 {
            answers.push(send(&writer, move |connection| insert(connection, n)).await);
        }
        drop(release);
        for answer in answers {
            answer.await.unwrap().unwrap();
        }
        assert_eq!(lines(&writer).await.len(), 200);
        // One commit for the blocking write, one for the two hundred.
        assert_eq!(writer.commits() - before, 2);
    }

    #[tokio::test]
    async fn a_write_behind_a_large_one_gets_its_own_commit() {
        let (writer, _folder) = bench().await;
        let release = hold_up(&writer).await;
        let before = writer.commits();
        let big = |from: u32| {
            move |connection: &Connection| {
                (from..from + 500).try_for_each(|n| insert(connection, n))
            }
        };
        let first = send(&writer, big(0)).await;
        let second = send(&writer, big(500)).await;
        let small = send(&writer, |connection| insert(connection, 1000)).await;
        drop(release);
        for answer in [first, second, small] {
            answer.await.unwrap().unwrap();
        }
        assert_eq!(lines(&writer).await.len(), 1001);
        // Includes one commit for the blocking write.
        assert_eq!(writer.commits() - before, 4);
    }

    #[tokio::test]
    async fn a_failed_write_does_not_affect_the_others_of_its_batch() {
        let (writer, _folder) = bench().await;
        let release = hold_up(&writer).await;
        let good = send(&writer, |connection| insert(connection, 1)).await;
        let bad = send(&writer, |connection| {
            insert(connection, 2)?;
            insert(connection, 1)
        })
        .await;
        let panics = send(&writer, |connection| -> Result<(), StoreError> {
            insert(connection, 3)?;
            panic!("a planted fault")
        })
        .await;
        let last = send(&writer, |connection| insert(connection, 4)).await;
        drop(release);
        good.await.unwrap().unwrap();
        let error = bad.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Conflict);
        let error = panics.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Corrupt);
        assert!(error.to_string().contains("a planted fault"));
        last.await.unwrap().unwrap();
        assert_eq!(lines(&writer).await, [1, 4]);
    }

    #[tokio::test]
    async fn a_lone_write_that_fails_leaves_nothing_behind() {
        let (writer, _folder) = bench().await;
        let failed_write = writer.write("fail", |connection| -> Result<(), StoreError> {
            insert(connection, 1)?;
            Err(stopped("fail"))
        });
        assert!(failed_write.await.is_err());
        write_line(&writer, 2).await;
        assert_eq!(lines(&writer).await, [2]);
    }

    #[tokio::test]
    async fn a_write_that_returns_none_is_undone_alone_and_in_a_batch() {
        let (writer, _folder) = bench().await;
        let undone = writer.write_or_undo("undo", |connection| insert_in_vain(connection, 1));
        assert_eq!(undone.await.unwrap(), None);
        let kept = writer.write_or_undo("keep", |connection| insert(connection, 2).map(Some));
        assert_eq!(kept.await.unwrap(), Some(()));
        let release = hold_up(&writer).await;
        let before = writer.commits();
        let good = send(&writer, |connection| insert(connection, 3)).await;
        let undone = |connection: &Connection| insert_in_vain(connection, 4);
        let undone = send_if(&writer, undone, Option::is_some).await;
        let kept = |connection: &Connection| insert(connection, 5).map(Some);
        let kept = send_if(&writer, kept, Option::is_some).await;
        drop(release);
        good.await.unwrap().unwrap();
        assert_eq!(undone.await.unwrap().unwrap(), None);
        assert_eq!(kept.await.unwrap().unwrap(), Some(()));
        assert_eq!(lines(&writer).await, [2, 3, 5]);
        // One commit for the blocking write, one for the three.
        assert_eq!(writer.commits() - before, 2);
    }

    #[tokio::test]
    async fn a_write_whose_caller_went_away_takes_effect() {
        let (writer, _folder) = bench().await;
        let release = hold_up(&writer).await;
        drop(send(&writer, |connection| insert(connection, 7)).await);
        drop(release);
        write_line(&writer, 8).await;
        assert_eq!(lines(&writer).await, [7, 8]);
    }

    #[tokio::test]
    async fn a_reap_whose_caller_went_away_is_skipped() {
        let (writer, _folder) = bench().await;
        let release = hold_up(&writer).await;
        let reap = |connection: &Connection| insert(connection, 7);
        drop(send_as("reap", &writer, reap, |()| true).await);
        let awaited = |connection: &Connection| insert(connection, 8);
        let awaited = send_as("reap", &writer, awaited, |()| true).await;
        drop(release);
        awaited.await.unwrap().unwrap();
        assert_eq!(lines(&writer).await, [8]);
    }

    /// A deferred foreign key makes the commit fail.
    #[tokio::test]
    async fn a_commit_that_fails_fails_all_of_its_writes() {
        let (writer, _folder) = bench().await;
        writer
            .write("make", |connection| {
                let sql =
                    "create table leaf (n integer references line deferrable initially deferred)";
                connection.execute_batch(sql).map_err(failed("make"))
            })
            .await
            .unwrap();
        let release = hold_up(&writer).await;
        let innocent = send(&writer, |connection| insert(connection, 1)).await;
        let guilty = send(&writer, |connection| {
            connection
                .execute("insert into leaf values (99)", [])
                .map_err(failed("insert"))
        })
        .await;
        drop(release);
        assert_eq!(
            innocent.await.unwrap().unwrap_err().kind(),
            StoreErrorKind::Unavailable
        );
        assert_eq!(
            guilty.await.unwrap().unwrap_err().kind(),
            StoreErrorKind::Unavailable
        );
        assert!(lines(&writer).await.is_empty());
        write_line(&writer, 2).await;
        assert_eq!(lines(&writer).await, [2]);
    }

    /// A file that may not grow stands for a full disk: SQLite rolls back the whole transaction.
    #[tokio::test]
    async fn a_full_disk_fails_the_batch_and_the_thread_lives_on() {
        let (writer, _folder) = bench().await;
        let fill = "create table heap (x blob); pragma max_page_count = 10";
        writer
            .write("make", move |connection| {
                connection.execute_batch(fill).map_err(failed("make"))
            })
            .await
            .unwrap();
        let release = hold_up(&writer).await;
        let first = send(&writer, |connection| insert(connection, 1)).await;
        let large = send(&writer, |connection| {
            connection
                .execute("insert into heap values (zeroblob(1000000))", [])
                .map_err(failed("insert"))
        })
        .await;
        let last = send(&writer, |connection| insert(connection, 3)).await;
        drop(release);
        let error = large.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(error.to_string().contains("full"), "{error}");
        // The rollback also undid the earlier writes; later ones get a new transaction.
        let error = first.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        last.await.unwrap().unwrap();
        assert_eq!(lines(&writer).await, [3]);
    }

    #[tokio::test]
    async fn a_reader_cannot_write() {
        let (writer, _folder) = bench().await;
        let error = writer
            .read("insert", |connection| insert(connection, 1))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(lines(&writer).await.is_empty());
    }

    #[tokio::test]
    async fn the_thread_writes_all_sent_operations_and_ends_with_the_last_handle() {
        let (writer, folder) = bench().await;
        let release = hold_up(&writer).await;
        drop(send(&writer, |connection| insert(connection, 1)).await);
        // The thread holds a handle of the counter.
        let counter = Arc::downgrade(&writer.commits);
        drop(writer);
        drop(release);
        while counter.upgrade().is_some() {
            tokio::task::yield_now().await;
        }
        let path = folder.path().join("t.db");
        let again = Writer::open(&path, &StoreConfig::default()).await.unwrap();
        assert_eq!(lines(&again).await, [1]);
    }
}
