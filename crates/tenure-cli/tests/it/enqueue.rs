//! `tenure enqueue` stores events byte for byte and refuses bad input.

use crate::program::{everywhere, sqlite};

#[tokio::test]
async fn an_event_is_written_as_it_was_given() {
    for place in everywhere().await {
        let payload =
            r#"{ "b":1,"a" : 1.0, "b": 2, "n": 123456789012345678901234567890, "z":"\u0001]" }"#;
        let args = [
            "enqueue",
            "order.paid",
            payload,
            "--delay",
            "1h 30m",
            "--priority",
            "7",
            "--header",
            "trace=a=b",
            "--header",
            "Tenant=7",
            "--json",
        ];
        let output = place.run(&args).succeeded();
        assert_eq!(output.field("fresh"), "true");
        let details = place
            .run(&["show", &output.field("id"), "--json"])
            .succeeded();
        assert!(
            details.out.contains(&format!("\"payload\":{payload}")),
            "{details:?}"
        );
        assert_eq!(details.field("event_id"), output.field("event_id"));
        assert_eq!(details.field("priority"), "7");
        assert_eq!(details.field("headers"), r#"{"tenant":"7","trace":"a=b"}"#);
        let stats = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(stats.objects()[0]["queues"][0]["delayed"], 1);
    }
}

#[tokio::test]
async fn a_missing_payload_is_read_from_the_input() {
    for place in everywhere().await {
        for args in [
            &["enqueue", "numbers", "--json"][..],
            &["enqueue", "numbers", "-", "--json"],
        ] {
            let output = place.run_with(args, b"[1,\n2]\n").succeeded();
            let details = place
                .run(&["show", &output.field("id"), "--json"])
                .succeeded();
            assert!(details.out.contains(r#""payload":[1, 2]"#), "{details:?}");
        }
    }
}

#[tokio::test]
async fn a_known_dedupe_key_writes_nothing_and_names_the_first_event() {
    for place in everywhere().await {
        let args = ["enqueue", "order.paid", "1", "--dedupe", "order-7"];
        assert_eq!(place.run(&args).succeeded().out, "enqueued 1\n");
        let output = place.run(&args).succeeded();
        assert_eq!(output.out, "exists already as 1: nothing was written\n");
        let output = place.run(&[&args[..], &["--json"]].concat()).succeeded();
        assert_eq!(output.out, "{\"id\":1,\"event_id\":null,\"fresh\":false}\n");
    }
}

#[tokio::test]
async fn an_unknown_queue_is_refused_with_a_hint_how_to_add_it() {
    for place in everywhere().await {
        let args = ["enqueue", "mail.send", "1", "--queue", "mail"];
        place.run(&args).failed(2, "mail", "queues add");
        place.run(&["queues", "add", "mail"]).succeeded();
        place.run(&args).succeeded();
        let output = place
            .run(&["events", "--queue", "mail", "--json"])
            .succeeded();
        assert_eq!(output.column("topic"), [r#""mail.send""#]);
    }
}

#[tokio::test]
async fn a_key_is_stored_with_the_event() {
    for place in everywhere().await {
        for (key, options) in [
            ("customer-7", &[][..]),
            ("customer-7", &["--strict"]),
            ("-7 straße/\"x\" 'y'", &[]),
        ] {
            let args = ["enqueue", "order.paid", "1", "--json", "--key", key];
            let output = place.run(&[&args[..], options].concat()).succeeded();
            let details = place.run(&["show", &output.field("id"), "--json"]);
            assert_eq!(details.succeeded().objects()[0]["key"], key);
        }
        let longest = "k".repeat(255);
        place
            .run(&["enqueue", "order.paid", "1", "--key", &longest])
            .succeeded();
    }
}

/// Goal: the program reports bad input before it opens a database. Method: no database exists, and
/// none is created.
#[test]
fn bad_input_is_reported_and_nothing_is_written() {
    let place = sqlite();
    let long = "k".repeat(10 << 10);
    let cases: [(&[&str], &str); 18] = [
        (&["", "1"], "topic is empty; expected 1 to 255 bytes"),
        (&["a\nb", "1"], "with a control character"),
        (&["t", "{"], "payload is not JSON"),
        (&["t", "{} {}"], "payload is not JSON"),
        (&["t", ""], "payload is not JSON"),
        (&["t", r#"{"a": "\u0000"}"#], r"text with the escape \u0000"),
        (&["t", "1", "--delay", "-5s"], "negative"),
        (&["t", "1", "--delay", "30"], "expected one such as 30s"),
        (&["t", "1", "--delay", "11 years"], "without a fixed length"),
        (&["t", "1", "--delay", "4000d"], "expected at most 10 years"),
        (&["t", "1", "--priority", "8"], "0 to 7"),
        (&["t", "1", "--priority", "-1"], "0 to 7"),
        (&["t", "1", "--header", "trace"], "expected NAME=VALUE"),
        (&["t", "1", "--key", ""], "ordering key is empty"),
        (
            &["t", "1", "--key", &long],
            "ordering key is 10240 bytes long",
        ),
        (&["t", "1", "--key", "a\nb"], "with a control character"),
        (&["t", "1", "--strict"], "strict is set without a key"),
        (&["t", "--strict"], "strict is set without a key"),
    ];
    for (args, message) in cases {
        let output = place.run(&[&["enqueue"], args].concat()).ended(2);
        assert!(output.err.starts_with("error: "), "{args:?}: {output:?}");
        assert!(output.err.contains(message), "{args:?}: {output:?}");
        assert!(output.err.len() < 1000, "{} bytes", output.err.len());
        assert_eq!(output.out, "");
    }
    assert!(!place.file().exists());
}

#[test]
fn a_bad_payload_from_the_input_is_reported_and_nothing_is_written() {
    let place = sqlite();
    let huge = format!("\"{}\"", "x".repeat(10 << 20));
    let deep = "[".repeat(200) + &"]".repeat(200);
    let cases: [(&[u8], &str); 6] = [
        (b"", "payload is not JSON"),
        (b"{\"a\":", "payload is not JSON"),
        (b"\"a\0b\"", "payload is not JSON"),
        (b"\"\xff\"", "payload is not UTF-8"),
        (huge.as_bytes(), "over 1 MiB"),
        (deep.as_bytes(), "nested too deeply"),
    ];
    for (input, message) in cases {
        let output = place.run_with(&["enqueue", "t"], input).ended(2);
        assert!(output.err.contains(message), "{message}: {output:?}");
        assert_eq!(output.out, "");
    }
    assert!(!place.file().exists());
}

#[tokio::test]
async fn the_largest_payload_is_accepted() {
    let payload = format!("\"{}\"", "x".repeat((1 << 20) - 2));
    for place in everywhere().await {
        let input = format!("{payload}\n");
        let output = place
            .run_with(&["enqueue", "t", "--json"], input.as_bytes())
            .succeeded();
        let details = place
            .run(&["show", &output.field("id"), "--json"])
            .succeeded();
        assert_eq!(details.field("payload"), payload);
    }
}

/// Goal: producers that start at the same time lose nothing. Method: several programs race to
/// create the file, its tables and the first events.
#[test]
fn programs_that_create_the_database_at_once_lose_nothing() {
    let place = sqlite();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| place.enqueue("race"));
        }
    });
    let output = place.run(&["stats", "--json"]).succeeded();
    assert_eq!(output.field("pending"), "8");
}
