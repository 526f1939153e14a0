//! Receivers that take longer than the term, and leases that are lost during a call.

use tenure::webhook::AttemptOutcome::{Delivered, Failed, Superseded, Unknown};
use tenure::webhook::verify::Verified;
use tenure_nemesis::{now, within};

use super::receiver::Answer;
use super::site::{Blocked, Site};
use super::table::first_held;
use super::{LONGEST, PAYLOAD, TERM};

/// Proves: S2-010, S2-011, S2-012, S2-040, S2-041, S2-042, S2-043, S2-044, S2-061
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_takes_four_terms_is_called_once_and_again_only_after_a_kill() {
    Site::everywhere(first_held, async |site| {
        site.add("billing", &[]);
        let mut worker = site.work().await;
        site.enqueue("order");
        let call = site.receiver.call(0).await;
        assert_eq!(call.body, PAYLOAD.as_bytes());
        let delivery = site.delivery().await;
        let open = site.delivery_view(delivery);
        let attempt = &open["timeline"][0];
        assert_eq!(attempt["outcome"], "open", "an open call is recorded");
        assert_eq!(attempt["fence"], call.fence());
        let first = site.hold(delivery).await;
        // The second worker claims all the time and gets nothing.
        let _second = site.work().await;
        let mut until = first.until;
        within(LONGEST, async || {
            let record = site.record(delivery).await;
            let hold = record.hold.expect("the delivery is held");
            assert_eq!((hold.fence, &hold.holder), (first.fence, &first.holder));
            assert!(hold.until >= until, "a renewal moves the end forward");
            assert_eq!((record.counters.failures, record.counters.crashes), (0, 0));
            until = hold.until;
            (now() >= first.claimed_at.after(4 * TERM)).then_some(())
        })
        .await;
        assert!(until > first.claimed_at.after(4 * TERM));
        assert_eq!(site.receiver.calls().len(), 1, "it is called once");
        let killed_at = worker.kill();
        site.is_recovered(killed_at, Unknown, 2).await;
        site.keeps_secrets();
    })
    .await;
}

/// Closes the connection of the first call for an order after one term.
fn cut(_endpoint: &str, call: &Verified, before: usize) -> Answer {
    if before == 0 && call.topic.as_deref() == Some("order") {
        return Answer::Cut(TERM);
    }
    Answer::Status(200)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_closes_the_connection_is_called_again_only_by_the_schedule() {
    Site::everywhere(cut, async |site| {
        site.add("billing", &["--schedule", "1s"]);
        let _worker = site.work().await;
        // The first event leaves a connection open, which the next call uses.
        site.send_one_more("before").await;
        site.send_one_more("order").await;
        let calls = site.receiver.calls();
        let calls = calls.iter().map(|call| (call.attempt(), call.is_cut));
        let calls: Vec<_> = calls.collect();
        assert_eq!(calls, [(1, false), (1, true), (2, false)]);
        let delivery = site.deliveries().await.remove(1).id;
        let attempts = site.attempted(delivery, &[Failed, Delivered]).await;
        assert!(attempts[0].fence < attempts[1].fence);
        site.keeps_secrets();
    })
    .await;
}

/// Proves: S2-050, S2-051, S2-052, S2-062, S2-064
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_call_of_a_lost_lease_ends_before_the_term_is_over() {
    Site::everywhere(first_held, async |site| {
        site.add("billing", &[]);
        let worker = site.work().await;
        site.enqueue("order");
        site.receiver.call(0).await;
        let delivery = site.delivery().await;
        let blocked = Blocked::begin(&site).await;
        let hold = site.hold(delivery).await;
        let left_at = site.receiver.left(0).await;
        assert!(left_at < hold.until, "the call ends within the term");
        blocked.end().await;
        site.is_recovered(now(), Superseded, 2).await;

        let said = worker.output();
        let lost = said.lines().find(|line| line.contains("lost a lease"));
        let lost: serde_json::Value = serde_json::from_str(lost.unwrap()).unwrap();
        let fields = &lost["fields"];
        assert_eq!(fields["fence"], hold.fence.number(), "{lost}");
        assert_eq!(fields["running"], delivery.to_string(), "{lost}");
        assert!(["failed", "late"].contains(&fields["reason"].as_str().unwrap()));
        assert_eq!(lost["worker"], hold.holder.as_str(), "{lost}");
        let event = site.record(delivery).await.content;
        let event = event.delivery().unwrap().source.to_string();
        assert_eq!(fields["events"], event, "{lost}");
        site.keeps_secrets();
    })
    .await;
}
