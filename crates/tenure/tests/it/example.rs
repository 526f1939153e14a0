//! The examples run as printed.

#[expect(
    dead_code,
    reason = "the example's `main` is not called here, what it calls is"
)]
#[path = "../../examples/outbox.rs"]
mod outbox;

#[tokio::test]
async fn the_outbox_example_runs_as_printed() {
    let mut printed = Vec::new();
    outbox::run(&mut printed).await.unwrap();
    assert_eq!(
        String::from_utf8(printed).unwrap(),
        "\
order 6 was rolled back: 0 events wait
order 7 was committed: 1 event waits
the first worker holds event 1 and dies
its lease lapsed: event 1 is pending again
the second worker takes over; its fence is newer: true
the first worker's late answer is refused: someone else holds it now
the second worker settles, 0 refused
done: 1, waiting: 0
- a hold that ended: lapsed
- a hold that ended: done
"
    );
}
