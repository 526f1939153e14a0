//! The examples run as printed.

#[expect(
    dead_code,
    reason = "the example's `main` is not called here, what it calls is"
)]
#[path = "../../examples/outbox.rs"]
mod outbox;

#[expect(
    dead_code,
    reason = "the example's `main` is not called here, what it calls is"
)]
#[path = "../../examples/partitioned_log.rs"]
mod partitioned_log;

#[expect(
    dead_code,
    reason = "the example's `main` is not called here, what it calls is"
)]
#[path = "../../examples/webhooks.rs"]
mod webhooks;

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
