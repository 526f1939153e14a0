//! The table "When a process is killed" of `docs/WEBHOOKS.md`, row by row; the first test of `live`
//! covers the row about a kill during the call.

use std::process::Stdio;

use tenure::State;
use tenure::operate::Filter;
use tenure::webhook::{
    AttemptOutcome::{Superseded, Unknown},
    verify::Verified,
};
use tenure_nemesis::{Process, now, within};

use super::receiver::Answer;
use super::site::{Blocked, Site};
use super::{LONGEST, PAYLOAD};
use crate::serve::get;

/// Holds the first call for an order until the test releases it, and answers every other call at
/// once.
pub(super) fn first_held(_endpoint: &str, call: &Verified, before: usize) -> Answer {
    if before == 0 && call.topic.as_deref() == Some("order") {
        return Answer::Held;
    }
    Answer::Status(200)
}

/// Answers every call with 200 at once.
pub(super) fn well(_endpoint: &str, _call: &Verified, _before: usize) -> Answer {
    Answer::Status(200)
}

/// Pauses a worker while it has no open transaction, which would block all other writers of SQLite.
async fn stop(site: &Site, process: &Process) {
    let blocked = Blocked::begin(site).await;
    process.pause();
    blocked.end().await;
}

/// Proves: S2-041
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_producer_was_killed_before_its_commit_has_no_deliveries() {
    Site::everywhere(first_held, async |site| {
        site.add("billing", &[]);
        let mut blocked = Blocked::begin(&site).await;
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_tenure"));
        let mut command = site.world.place.command(program);
        command.args(["enqueue", "order", PAYLOAD, "--json"]);
        let mut producer = command.stdout(Stdio::piped()).spawn().unwrap();
        within(LONGEST, async || blocked.is_felt().await.then_some(())).await;
        producer.kill().unwrap();
        let said = producer.wait_with_output().unwrap();
        assert!(said.stdout.is_empty(), "nothing was confirmed");
        blocked.end().await;

        let _worker = site.work().await;
        site.send_one_more("after").await;
        assert_eq!(site.deliveries().await.len(), 1);
        assert_eq!(site.receiver.calls().len(), 1);
        let events = site.tenure.list(&Filter::default(), 10).await.unwrap();
        assert_eq!(events.records.len(), 1);
        site.keeps_secrets();
    })
    .await;
}

/// The command for orders creates the file `here` and then waits for the file `go`.
const GATE: &str = r#"
[publishers.gate]
kind = "exec"
command = '''
touch here
for _ in $(seq 1200); do [ -e go ] && break; sleep 0.05; done
'''

[[routes]]
topics = ["order"]
publisher = "gate"
"#;

/// The step before which a worker is killed: the end of its command, or the commit of its settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    TheEnd,
    TheCommit,
}

/// Proves: S2-040, S2-041
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_worker_is_killed_before_the_fan_out_is_delivered_to_each_endpoint_once() {
    for before in [Before::TheEnd, Before::TheCommit] {
        Site::everywhere(well, async |site| {
            site.configure(super::TERM, GATE);
            site.add("billing", &["--topics", "order"]);
            site.add("audit", &[]);
            let mut worker = site.work().await;
            let event = site.enqueue("order");
            let place = &site.world.place;
            within(LONGEST, async || place.path("here").exists().then_some(())).await;
            if before == Before::TheCommit {
                let mut blocked = Blocked::begin(&site).await;
                place.write("go", "");
                let is_worked = || worker.output().contains("\"done\"");
                within(LONGEST, async || is_worked().then_some(())).await;
                within(LONGEST, async || blocked.is_felt().await.then_some(())).await;
                worker.kill();
                blocked.end().await;
            }
            worker.kill();
            place.write("go", "");
            assert_eq!(site.deliveries().await, [], "{before:?}");
            assert_eq!(site.record(event).await.state, State::Claimed);

            let _next = site.work().await;
            within(LONGEST, async || {
                let done = Filter {
                    state: Some(State::Done),
                    ..Filter::default()
                };
                let page = site.tenure.deliveries(&done, 10).await.unwrap();
                (page.records.len() == 2).then_some(())
            })
            .await;
            site.send_one_more("order").await;
            let calls = site.receiver.calls();
            let mut called: Vec<&str> = calls
                .iter()
                .filter(|call| call.call.id == calls[0].call.id)
                .map(|call| call.endpoint.as_str())
                .collect();
            called.sort_unstable();
            assert_eq!(called, ["audit", "billing"], "{before:?}");
            let of_it = site.deliveries().await;
            let of_it = of_it.iter().filter_map(|record| record.content.delivery());
            assert_eq!(of_it.filter(|it| it.source == event).count(), 2);
            site.keeps_secrets();
        })
        .await;
    }
}

/// Proves: S2-040, S2-041, S2-042
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_whose_worker_is_killed_before_the_call_is_sent_after_its_lease_lapses() {
    Site::everywhere_closed(well, async |site| {
        site.add("billing", &[]);
        let mut worker = site.work().await;
        site.enqueue("order");
        let delivery = site.delivery().await;
        let hold = site.hold(delivery).await;
        let _next = site.work().await;
        assert_eq!(site.hold(delivery).await.fence, hold.fence);
        let killed_at = worker.kill();
        site.receiver.open();
        site.is_recovered(killed_at, Unknown, 1).await;
        site.keeps_secrets();
    })
    .await;
}

/// Proves: S2-023, S2-040, S2-041
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_whose_worker_is_killed_between_answer_and_commit_is_sent_again() {
    Site::everywhere(first_held, async |site| {
        site.add("billing", &[]);
        let mut worker = site.work().await;
        site.enqueue("order");
        site.receiver.call(0).await;
        let delivery = site.delivery().await;
        let mut blocked = Blocked::begin(&site).await;
        site.receiver.let_go(0);
        let is_answered = || worker.output().contains("\"delivered\"");
        within(LONGEST, async || is_answered().then_some(())).await;
        within(LONGEST, async || blocked.is_felt().await.then_some(())).await;
        worker.kill();
        blocked.end().await;
        assert_eq!(site.record(delivery).await.state, State::Claimed);
        assert_eq!(
            site.delivery_view(delivery)["timeline"][0]["outcome"],
            "open"
        );
        let _next = site.work().await;
        site.is_recovered(now(), Unknown, 2).await;
        site.keeps_secrets();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_whose_worker_is_killed_after_the_commit_is_not_sent_again() {
    Site::everywhere(well, async |site| {
        site.add("billing", &[]);
        let mut worker = site.work().await;
        site.enqueue("order");
        let delivery = site.delivery().await;
        site.delivered(delivery).await;
        worker.kill();
        let before = site.delivery_view(delivery);
        assert_eq!(before["timeline"][0]["outcome"], "delivered");
        let _next = site.work().await;
        site.send_one_more("after").await;
        let calls = site.receiver.calls();
        assert_eq!(calls.len(), 2);
        assert_ne!(calls[0].call.id, calls[1].call.id);
        assert_eq!(site.delivery_view(delivery), before, "nothing has changed");
        site.keeps_secrets();
    })
    .await;
}

/// The sum of a counter over all series with this label.
fn counted(metrics: &str, [name, label]: [&str; 2]) -> u32 {
    let lines = metrics.lines();
    let lines = lines.filter(|line| line.starts_with(name) && line.contains(label));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u32>().ok());
    values.sum()
}

/// Proves: S2-020, S2-022, S2-023, S2-024, S2-052
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_paused_past_its_term_changes_nothing() {
    for is_answered in [false, true] {
        Site::everywhere(first_held, async |site| {
            site.add("billing", &[]);
            let args = ["serve", "--listen", "127.0.0.1:0"];
            let mut worker = site.world.crew.spawn(&args);
            assert!(site.world.crew.is_ready(&mut worker).await);
            site.enqueue("order");
            site.receiver.call(0).await;
            let delivery = site.delivery().await;
            let _next = site.work().await;
            stop(&site, &worker).await;
            let stopped_at = now();
            site.delivered(delivery).await;
            let before = site.record(delivery).await;
            if is_answered {
                site.receiver.let_go(0);
            }
            worker.resume();
            if !is_answered {
                // The resumed worker cancels its calls in progress.
                site.receiver.left(0).await;
            }
            site.is_recovered(stopped_at, Superseded, 2).await;
            assert_eq!(site.record(delivery).await, before, "nothing has changed");

            let address = address(&worker).await;
            let metrics = within(LONGEST, async || {
                let (_, text) = get(address, "/metrics");
                let superseded = ["tenure_delivery_attempts_total", "\"superseded\""];
                (counted(&text, superseded) == 1).then_some(text)
            })
            .await;
            let lost = counted(&metrics, ["tenure_holds_lost_total", ""]);
            let refused = counted(&metrics, ["tenure_settles_refused_total", ""]);
            assert_eq!(lost + refused, 1, "{metrics}");
            for canary in ["canary", "Canary"] {
                assert!(!metrics.contains(canary));
            }
            site.keeps_secrets();
        })
        .await;
    }
}

/// Waits until the log of a server shows its address.
pub(super) async fn address(process: &Process) -> std::net::SocketAddr {
    within(LONGEST, async || {
        let text = process.output();
        let line = text.lines().find(|line| line.contains("\"listening\""))?;
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line["fields"]["address"].as_str()?.parse().ok()
    })
    .await
}
