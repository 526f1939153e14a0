//! `tenure deliveries`, and other commands on deliveries: from the event to the receiver.

use crate::program::{Place, everywhere, sqlite};
use crate::receiver::Receiver;

/// Adds the endpoint `billing` at this receiver and returns its secret.
fn add(place: &Place, receiver: &Receiver, rules: &[&str]) -> String {
    receiver.allow(place);
    let url = receiver.url();
    let first = ["endpoints", "add", &url, "--id", "billing", "--json"];
    let output = place.run(&[&first, rules].concat()).succeeded();
    output.field("secret").trim_matches('"').to_owned()
}

/// Runs a worker until nothing is due, and returns its log.
fn drain(place: &Place) -> String {
    place.run(&["work", "--drain"]).succeeded().err
}

/// The code of `tenure why` for this item.
fn code(place: &Place, id: &str) -> String {
    let output = place.run(&["why", id, "--json"]).succeeded();
    output.field("code").trim_matches('"').to_owned()
}

/// Webhooks need no environment variable; the test sets only the address of the database.
///
/// Proves: S2-034
#[tokio::test]
async fn an_event_reaches_its_endpoint_signed_and_once() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[]);
        let secret = add(&place, &receiver, &["--topics", "order.*"]);
        let payload = r#"{"order":   7, "big": 12345678901234567890}"#;
        let args = ["enqueue", "order.paid", payload, "--json"];
        let event = place.run(&args).succeeded().field("id");
        place.enqueue("mail.sent");
        drain(&place);

        let call = receiver.next();
        let verified = call.verified(&secret).expect("a valid signature");
        assert_eq!(call.body, payload.as_bytes(), "byte for byte");
        assert_eq!(verified.attempt, Some(1));
        receiver.is_quiet();

        let output = place.run(&["deliveries", "--json"]).succeeded();
        let delivery = &output.objects()[0];
        assert_eq!(delivery["id"], "d1");
        assert_eq!(delivery["event"].to_string(), event);
        assert_eq!(delivery["event_id"], verified.id);
        assert_eq!(delivery["endpoint"], "billing");
        assert_eq!(delivery["state"], "done");
        assert_eq!(delivery["attempts"], 1);
        let output = place.run(&["show", "d1", "--json"]).succeeded();
        let attempts = &output.objects()[0]["timeline"];
        assert_eq!(attempts.as_array().map(Vec::len), Some(1));
        assert_eq!(attempts[0]["outcome"], "delivered");
        assert_eq!(attempts[0]["status"], 200);
        assert_eq!(attempts[0]["body"], "noted");
        assert_eq!(
            attempts[0]["fence"],
            verified.fence.expect("a call has a fence").number()
        );
        assert_eq!(code(&place, "d1"), "delivered");

        let output = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(output.objects()[0]["deliveries"]["delivered"], 1);
        assert_eq!(output.objects()[0]["done"], 1, "deliveries are not events");
        assert_eq!(output.objects()[0]["pending"], 1, "no endpoint takes it");
        let output = place.run(&["events", "--json"]).succeeded();
        assert_eq!(output.objects().len(), 2);
        for args in [
            &["deliveries", "show", "d1"][..],
            &["show", "d1"],
            &["stats"],
        ] {
            place.run(args).succeeded();
        }
    }
}

#[tokio::test]
async fn dead_deliveries_are_listed_counted_and_replayed() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[500, 500]);
        let secret = add(&place, &receiver, &["--schedule", "none"]);
        place.enqueue("order.paid");
        place.enqueue("order.paid");
        drain(&place);
        let first = [receiver.next(), receiver.next()];
        let output = place.run(&["deliveries", "list", "--state", "dead", "--json"]);
        let output = output.succeeded();
        assert_eq!(output.column("dead_reason"), ["\"failed\"", "\"failed\""]);
        assert_eq!(output.column("last_error"), ["\"it answered 500\""; 2]);
        assert_eq!(code(&place, "d1"), "dead");
        let output = place.run(&["doctor", "--json"]);
        assert!(output.out.contains("dead deliveries"), "{output:?}");

        let replay = ["deliveries", "replay", "--endpoint", "billing"];
        let run = |more: &[&str]| place.run(&[&replay, more].concat());
        let output = run(&["--dry-run"]).succeeded();
        assert_eq!(output.out, "2 deliveries would be replayed\n");
        run(&[]).failed(2, "2 deliveries would be replayed", "--yes");
        let output = run(&["--until", "1h", "--dry-run"]).ended(3);
        assert!(output.err.contains("--state done"), "{output:?}");
        let output = run(&["--since", "1h", "--rate", "100/s", "--yes"]).succeeded();
        assert_eq!(output.out, "replayed 2 deliveries\n");
        drain(&place);
        for _ in 0..2 {
            let again = receiver.next();
            let verified = again.verified(&secret).expect("a valid signature");
            let before = first.iter().filter_map(|call| call.verified(&secret).ok());
            let before = before.filter(|call| call.id == verified.id);
            let fences: Vec<_> = before.map(|call| call.fence).collect();
            assert_eq!(fences.len(), 1, "the same message");
            assert!(fences < vec![verified.fence], "with a newer fence");
        }
        let output = place.run(&["show", "d1", "--json"]).succeeded();
        let attempts = &output.objects()[0]["timeline"];
        assert_eq!(attempts[0]["outcome"], "failed");
        assert_eq!(attempts[1]["outcome"], "delivered");
        assert_eq!(output.objects()[0]["generation"], 1);
        // `replay` and `bury` accept the id of a delivery, as does `deliveries bury`.
        let output = place.run(&["replay", "d1", "--json"]).succeeded();
        assert_eq!(output.field("id"), "\"d1\"");
        let output = place.run(&["deliveries", "bury", "d1", "--reason", "a test"]);
        assert_eq!(output.succeeded().out, "buried d1\n");
        place.run(&["bury", "d1", "--reason", "again"]).ended(4);
    }
}

#[tokio::test]
async fn the_deliveries_of_a_disabled_endpoint_wait() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[503]);
        // The delay is longer than a drain, which would otherwise deliver the retry.
        add(&place, &receiver, &["--schedule", "8s"]);
        place.enqueue("order.paid");
        drain(&place);
        receiver.next();
        let off = [
            "endpoints",
            "disable",
            "billing",
            "--reason",
            "they migrate",
        ];
        let output = place.run(&off).succeeded();
        assert!(output.err.contains("are not queued for it"), "{output:?}");
        let output = place.run(&["deliveries"]).succeeded();
        assert!(
            output.out.contains("its endpoint is disabled"),
            "{output:?}"
        );
        let output = place.run(&["why", "d1"]).succeeded();
        assert!(
            output.out.contains("billing has been disabled"),
            "{output:?}"
        );
        assert!(output.out.contains("they migrate"), "{output:?}");
        assert!(
            output.err.contains("tenure endpoints enable billing"),
            "{output:?}"
        );
        // A disabled endpoint gets no new deliveries.
        place.enqueue("order.paid");
        drain(&place);
        receiver.is_quiet();
        let output = place.run(&["deliveries", "list", "--json"]).succeeded();
        assert_eq!(output.column("state"), ["\"pending\""]);

        place.run(&["endpoints", "enable", "billing"]).succeeded();
        let mut work = place.start(&["work"]);
        work.line_with("works on");
        receiver.next();
        work.terminate();
        work.wait().succeeded();
        assert_eq!(code(&place, "d1"), "delivered");
    }
}

#[tokio::test]
async fn an_endpoint_that_answers_gone_is_disabled_and_its_delivery_is_dead() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[410]);
        add(&place, &receiver, &["--concurrency", "1"]);
        place.enqueue("order.paid");
        drain(&place);
        receiver.next();
        let output = place
            .run(&["endpoints", "show", "billing", "--json"])
            .succeeded();
        assert_eq!(output.field("why"), "\"gone\"");
        let output = place
            .run(&["deliveries", "show", "d1", "--json"])
            .succeeded();
        assert_eq!(output.field("dead_reason"), "\"gone\"");
        let output = place.run(&["doctor"]);
        assert!(output.out.contains("it answered 410"), "{output:?}");
    }
}

#[test]
fn deliveries_are_chosen_by_endpoint_event_topic_time_and_state() {
    let place = sqlite();
    let receiver = Receiver::start(&[]);
    add(&place, &receiver, &["--topics", "order.*"]);
    let url = receiver.url();
    place
        .run(&["endpoints", "add", &url, "--id", "audit"])
        .succeeded();
    let order = place.enqueue("order.paid");
    place.enqueue("mail.sent");
    drain(&place);
    for (filter, number) in [
        (&[][..], 3),
        (&["--endpoint", "billing"], 1),
        (&["--endpoint", "audit"], 2),
        (&["--topic", "order.paid"], 2),
        (&["--event", &order], 2),
        (&["--event", &order, "--endpoint", "audit"], 1),
        (&["--since", "1h"], 3),
        (&["--state", "done"], 3),
        (&["--limit", "2"], 2),
    ] {
        let args = [&["deliveries", "list", "--json"], filter].concat();
        let output = place.run(&args).succeeded();
        assert_eq!(output.objects().len(), number, "{filter:?}");
    }
    for filter in [
        &["--until", "1h"][..],
        &["--state", "dead"],
        &["--before", "d1"],
    ] {
        place
            .run(&[&["deliveries", "list"], filter].concat())
            .ended(3);
    }
    let output = place.run(&["deliveries", "list", "--endpoint", "absent"]);
    output.failed(3, "there is no endpoint absent", "endpoints list");
    for (args, code) in [
        (&["deliveries", "show", "17"][..], 2),
        (&["deliveries", "list", "--event", "d1"], 2),
        (&["deliveries", "replay"], 2),
        (&["deliveries", "replay", "d1", "--topic", "x"], 2),
        (&["deliveries", "show", "d99"], 3),
        (&["show", "d99"], 3),
        (&["why", "d99"], 3),
        (&["deliveries", "bury", "d99", "--reason", "x"], 3),
    ] {
        place.run(args).ended(code);
    }
}

/// Proves: S2-053, S2-062
#[tokio::test]
async fn no_log_contains_a_payload_or_a_secret() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[500]);
        let rules = ["--schedule", "none", "--header", "x-api-key=canary-header"];
        let secret = add(&place, &receiver, &rules);
        let config = std::fs::read_to_string(place.path("tenure.toml")).expect("it was written");
        place.write(
            "tenure.toml",
            &format!("{config}[log]\nlevel = \"trace\"\n"),
        );
        for _ in 0..2 {
            let payload = r#"{"card": "canary-payload"}"#;
            place.run(&["enqueue", "order.paid", payload]).succeeded();
        }
        let args = ["work", "--drain", "--exec", "cat > /dev/null"];
        let log = place.run(&args).succeeded().err;
        receiver.next();
        receiver.next();
        assert!(log.contains("billing"), "the endpoint is named");
        let key = std::fs::read_to_string(place.path("tenure.key")).expect("it was made");
        let key = key.rsplit(':').next().expect("the key has a value").trim();
        let bare = secret.trim_start_matches("whsec_");
        for canary in ["canary-payload", "canary-header", bare, key] {
            assert!(!log.contains(canary), "{canary}");
        }
    }
}

/// Every command that an operator may try first prints why an endpoint fails, even for deliveries
/// that were never tried. `endpoints enable` ends the wait.
#[tokio::test]
async fn an_endpoint_that_backs_off_says_why_and_can_be_enabled() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[500; 10]);
        add(
            &place,
            &receiver,
            &["--concurrency", "1", "--schedule", "1s"],
        );
        for _ in 0..12 {
            place.enqueue("order.paid");
        }
        drain(&place);
        for _ in 0..10 {
            receiver.next();
        }
        for args in [
            &["endpoints"][..],
            &["endpoints", "show", "billing"],
            &["stats"],
            &["why", "d12"],
            &["doctor"],
        ] {
            let output = place.run(args);
            assert!(output.out.contains("it answered 500"), "{output:?}");
            assert!(output.out.contains("backing off"), "{output:?}");
        }
        let output = place.run(&["deliveries", "list", "--limit", "1"]);
        let note = "its endpoint is backing off";
        assert!(output.succeeded().out.contains(note));
        assert_eq!(code(&place, "d12"), "endpoint_paused");

        place.run(&["endpoints", "enable", "billing"]).succeeded();
        let output = place.run(&["endpoints", "show", "billing", "--json"]);
        let health = &output.succeeded().objects()[0]["health"];
        assert_eq!(health["failures"], 0, "{health}");
        assert_eq!(health["paused_until"], serde_json::Value::Null, "{health}");
        drain(&place);
        receiver.next();
        let output = place.run(&["deliveries", "list", "--limit", "1"]);
        assert!(!output.succeeded().out.contains(note));
        assert_eq!(code(&place, "d12"), "delivered");
    }
}
