//! Runs the examples and compares their output.

#[expect(dead_code, reason = "the test does not call the example's `main`")]
#[path = "../../examples/outbox.rs"]
mod outbox;

#[expect(dead_code, reason = "the test does not call the example's `main`")]
#[path = "../../examples/partitioned_log.rs"]
mod partitioned_log;

#[expect(dead_code, reason = "the test does not call the example's `main`")]
#[path = "../../examples/resumable_import.rs"]
mod resumable_import;

#[expect(dead_code, reason = "the test does not call the example's `main`")]
#[path = "../../examples/webhooks.rs"]
mod webhooks;

/// Goal: a killed import continues without missing or repeated rows. Method: the test aborts the
/// import after some of its rows exist, and runs it again.
///
/// Proves: S5-001, S5-003
#[tokio::test(flavor = "multi_thread")]
async fn the_import_example_continues_after_an_abort() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("import.db");
    let first = tokio::spawn({
        let path = path.clone();
        async move {
            let mut printed = Vec::new();
            let pace = std::time::Duration::from_millis(20);
            drop(resumable_import::run(&mut printed, &path, pace).await);
        }
    });
    while rows(&path) < resumable_import::LINES {
        tokio::task::yield_now().await;
    }
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let before = rows(&path);
    let all = resumable_import::CHUNKS * resumable_import::LINES;
    assert!(before < all, "the import was aborted in the middle");
    assert!(before.is_multiple_of(resumable_import::LINES));

    let mut printed = Vec::new();
    let pace = std::time::Duration::ZERO;
    resumable_import::run(&mut printed, &path, pace)
        .await
        .unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert!(printed.starts_with("going on with job 1\n"), "{printed}");
    let end = "the job is completed\nrows in the table: 30000; in the file: 30000\n";
    assert!(printed.to_lowercase().ends_with(end), "{printed}");
}

/// Counts the imported rows.
fn rows(path: &std::path::Path) -> u32 {
    let Ok(shop) = rusqlite::Connection::open(path) else {
        return 0;
    };
    // The table does not exist before the first run.
    let count = "select count(*) from orders";
    shop.query_row(count, [], |row| row.get(0)).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhooks_example_runs_as_printed() {
    let mut printed = Vec::new();
    webhooks::run(&mut printed).await.unwrap();
    assert_eq!(
        String::from_utf8(printed).unwrap(),
        "\
order 7 was committed, and its event with it
the receiver believes it: 7, attempt 1
d1: delivered with 204
"
    );
}

/// Proves: S3-003, S3-011, S3-013
#[test]
fn the_log_example_runs_as_printed() {
    let mut printed = Vec::new();
    partitioned_log::run(&mut printed).unwrap();
    assert_eq!(
        String::from_utf8(printed).unwrap(),
        "\
read 40 offsets of 4 customers
each customer's in order: true
given up after three tries: [13]
a lost hint was found by looking: true
committed up to 40
domains kept, with a failure: 1
domains kept, once it is forgotten: 0
"
    );
}

#[tokio::test]
async fn the_outbox_example_runs_as_printed() {
    let mut printed = Vec::new();
    outbox::run(&mut printed).await.unwrap();
    assert_eq!(
        String::from_utf8(printed).unwrap(),
        "\
order 6 was rolled back: 0 events wait
order 7 was committed: 1 event waits
the first worker published event 1 and died
the second worker published it again, and settled
the receiver drops a repeat: true
its fence is newer than the dead worker's: true
done: 1, waiting: 0
- a hold that ended: lapsed
- a hold that ended: done
"
    );
}
