//! `tenure deliveries`, and what other commands say of deliveries: from the event to the receiver.

use crate::program::{Place, everywhere, sqlite};
use crate::receiver::Receiver;

/// Adds the endpoint `billing` at this receiver and answers with its secret.
fn add(place: &Place, receiver: &Receiver, rules: &[&str]) -> String {
    receiver.allow(place);
    let url = receiver.url();
    let first = ["endpoints", "add", &url, "--id", "billing", "--json"];
    let said = place.run(&[&first, rules].concat()).succeeded();
    said.field("secret").trim_matches('"').to_owned()
}

/// Works until nothing is due, and answers with what was logged.
fn drain(place: &Place) -> String {
    place.run(&["work", "--drain"]).succeeded().err
}

/// The word for why, of this item.
fn code(place: &Place, id: &str) -> String {
    let said = place.run(&["why", id, "--json"]).succeeded();
    said.field("code").trim_matches('"').to_owned()
}

/// No variable of the environment is needed for it.
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
        let verified = call.verified(&secret).expect("it is ours");
        assert_eq!(call.body, payload.as_bytes(), "byte for byte");
        assert_eq!(verified.attempt, Some(1));
        receiver.is_quiet();

        let said = place.run(&["deliveries", "--json"]).succeeded();
        let delivery = &said.objects()[0];
        assert_eq!(delivery["id"], "d1");
        assert_eq!(delivery["event"].to_string(), event);
        assert_eq!(delivery["event_id"], verified.id);
        assert_eq!(delivery["endpoint"], "billing");
        assert_eq!(delivery["state"], "done");
        assert_eq!(delivery["attempts"], 1);
        let said = place.run(&["show", "d1", "--json"]).succeeded();
        let attempts = &said.objects()[0]["timeline"];
        assert_eq!(attempts.as_array().map(Vec::len), Some(1));
        assert_eq!(attempts[0]["outcome"], "delivered");
        assert_eq!(attempts[0]["status"], 200);
        assert_eq!(attempts[0]["body"], "heard");
        assert_eq!(
            attempts[0]["fence"],
            verified.fence.expect("it has one").number()
        );
        assert_eq!(code(&place, "d1"), "delivered");

        let said = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(said.objects()[0]["deliveries"]["delivered"], 1);
        assert_eq!(said.objects()[0]["done"], 2, "deliveries are no events");
        let said = place.run(&["events", "--json"]).succeeded();
        assert_eq!(said.objects().len(), 2);
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
async fn what_is_dead_is_listed_counted_and_replayed() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[500, 500]);
        let secret = add(&place, &receiver, &["--schedule", "none"]);
        place.enqueue("order.paid");
        place.enqueue("order.paid");
        drain(&place);
        let first = [receiver.next(), receiver.next()];
        let said = place.run(&["deliveries", "list", "--state", "dead", "--json"]);
        let said = said.succeeded();
        assert_eq!(said.column("dead_reason"), ["\"failed\"", "\"failed\""]);
        assert_eq!(said.column("last_error"), ["\"it answered 500\""; 2]);
        assert_eq!(code(&place, "d1"), "dead");
        let said = place.run(&["doctor", "--json"]);
        assert!(said.out.contains("dead deliveries"), "{said:?}");

        let choice = ["deliveries", "replay", "--endpoint", "billing"];
        let run = |more: &[&str]| place.run(&[&choice, more].concat());
        let said = run(&["--dry-run"]).succeeded();
        assert_eq!(said.out, "2 deliveries would be replayed\n");
        run(&[]).failed(2, "2 deliveries would be replayed", "--yes");
        let said = run(&["--until", "1h", "--dry-run"]).ended(3);
        assert!(said.err.contains("--state done"), "{said:?}");
        let said = run(&["--since", "1h", "--rate", "100/s", "--yes"]).succeeded();
        assert_eq!(said.out, "replayed 2 deliveries\n");
        drain(&place);
        for _ in 0..2 {
            let again = receiver.next();
            let verified = again.verified(&secret).expect("it is ours");
            let before = first.iter().filter_map(|call| call.verified(&secret).ok());
            let before = before.filter(|call| call.id == verified.id);
            let fences: Vec<_> = before.map(|call| call.fence).collect();
            assert_eq!(fences.len(), 1, "the same message");
            assert!(fences < vec![verified.fence], "with a newer fence");
        }
        let said = place.run(&["show", "d1", "--json"]).succeeded();
        let attempts = &said.objects()[0]["timeline"];
        assert_eq!(attempts[0]["outcome"], "failed");
        assert_eq!(attempts[1]["outcome"], "delivered");
        assert_eq!(said.objects()[0]["generation"], 1);
        // By id, an event's and a delivery's alike.
        let said = place.run(&["replay", "d1", "--json"]).succeeded();
        assert_eq!(said.field("id"), "\"d1\"");
        let said = place.run(&["deliveries", "bury", "d1", "--reason", "a test"]);
        assert_eq!(said.succeeded().out, "buried d1\n");
        place.run(&["bury", "d1", "--reason", "again"]).ended(4);
    }
}

#[tokio::test]
async fn a_disabled_endpoint_holds_its_deliveries_back() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[503]);
        add(&place, &receiver, &["--schedule", "1s"]);
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
        let said = place.run(&off).succeeded();
        assert!(said.err.contains("are not owed to it"), "{said:?}");
        let said = place.run(&["deliveries"]).succeeded();
        assert!(said.out.contains("its endpoint is disabled"), "{said:?}");
        let said = place.run(&["why", "d1"]).succeeded();
        assert!(said.out.contains("billing has been disabled"), "{said:?}");
        assert!(said.out.contains("they migrate"), "{said:?}");
        assert!(
            said.err.contains("tenure endpoints enable billing"),
            "{said:?}"
        );
        // Nothing is owed to it meanwhile.
        place.enqueue("order.paid");
        drain(&place);
        receiver.is_quiet();
        let said = place.run(&["deliveries", "list", "--json"]).succeeded();
        assert_eq!(said.column("state"), ["\"pending\""]);

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
async fn an_endpoint_that_is_gone_is_disabled_and_what_is_queued_is_buried() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[410]);
        add(&place, &receiver, &["--concurrency", "1"]);
        place.enqueue("order.paid");
        drain(&place);
        receiver.next();
        let said = place
            .run(&["endpoints", "show", "billing", "--json"])
            .succeeded();
        assert_eq!(said.field("why"), "\"gone\"");
        let said = place
            .run(&["deliveries", "show", "d1", "--json"])
            .succeeded();
        assert_eq!(said.field("dead_reason"), "\"gone\"");
        let said = place.run(&["doctor"]);
        assert!(said.out.contains("it answered 410"), "{said:?}");
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
    for (choice, number) in [
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
        let args = [&["deliveries", "list", "--json"], choice].concat();
        let said = place.run(&args).succeeded();
        assert_eq!(said.objects().len(), number, "{choice:?}");
    }
    for choice in [
        &["--until", "1h"][..],
        &["--state", "dead"],
        &["--before", "d1"],
    ] {
        place
            .run(&[&["deliveries", "list"], choice].concat())
            .ended(3);
    }
    let said = place.run(&["deliveries", "list", "--endpoint", "nobody"]);
    said.failed(3, "there is no endpoint nobody", "endpoints list");
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
async fn no_log_has_a_payload_or_a_secret_in_it() {
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
        let key = key.rsplit(':').next().expect("it has a value").trim();
        let bare = secret.trim_start_matches("whsec_");
        for canary in ["canary-payload", "canary-header", bare, key] {
            assert!(!log.contains(canary), "{canary}");
        }
    }
}

/// Of what an endpoint fails is said wherever an operator looks first, also where thousands wait
/// that were never tried; and what is hinted at ends the wait.
#[tokio::test]
async fn an_endpoint_that_is_left_alone_says_of_what_and_is_let_go_on() {
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
            let said = place.run(args);
            assert!(said.out.contains("it answered 500"), "{said:?}");
            assert!(said.out.contains("left alone"), "{said:?}");
        }
        let said = place.run(&["deliveries", "list", "--limit", "1"]);
        let note = "its endpoint is left alone";
        assert!(said.succeeded().out.contains(note));
        assert_eq!(code(&place, "d12"), "endpoint_paused");

        place.run(&["endpoints", "enable", "billing"]).succeeded();
        let said = place.run(&["endpoints", "show", "billing", "--json"]);
        let health = &said.succeeded().objects()[0]["health"];
        assert_eq!(health["failures"], 0, "{health}");
        assert_eq!(health["paused_until"], serde_json::Value::Null, "{health}");
        drain(&place);
        receiver.next();
        let said = place.run(&["deliveries", "list", "--limit", "1"]);
        assert!(!said.succeeded().out.contains(note));
        assert_eq!(code(&place, "d12"), "delivered");
    }
}
