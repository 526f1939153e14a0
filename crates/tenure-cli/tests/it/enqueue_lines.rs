//! `tenure enqueue --lines` writes the events before a bad line, and none after it.

use std::fs::File;
use std::process::Stdio;

use crate::program::{Place, everywhere, sqlite};

fn topics(place: &Place) -> Vec<String> {
    let output = place.run(&["events", "--json"]);
    let mut topics = output.column("topic");
    topics.reverse();
    topics
}

fn pending(place: &Place) -> String {
    place.run(&["stats", "--json"]).succeeded().field("pending")
}

#[tokio::test]
async fn each_line_is_an_event_with_all_its_fields() {
    for place in everywhere().await {
        let id = "01890000-0000-7000-8000-000000000001";
        let input = format!(
            "{{\"topic\":\"a\",\"payload\":{{\"b\" : 1.0, \"b\":2}},\"event_id\":\"{id}\"}}\n\
             \r\n\
             {{\"topic\":\"b\",\"payload\":null,\"priority\":3,\"delay\":\"1h\",\
             \"dedupe\":\"k\",\"headers\":{{\"Trace\":\"x\"}},\"queue\":\"default\"}}\r\n\
             {{\"topic\":\"c\",\"payload\":1,\"queue\":null}}"
        );
        let args = [
            "enqueue",
            "--lines",
            "--header",
            "from=file",
            "--priority",
            "5",
        ];
        let output = place.run_with(&args, input.as_bytes()).succeeded();
        assert_eq!(
            (output.out.as_str(), output.err.as_str()),
            ("enqueued 3 events\n", "")
        );

        let mut events = place.run(&["events", "--json"]).succeeded().objects();
        events.reverse();
        assert_eq!(events[0]["event_id"], id);
        assert_eq!(events[0]["priority"], 5);
        assert_eq!(events[0]["headers"].to_string(), r#"{"from":"file"}"#);
        let details = place.run(&["show", "1", "--json"]).succeeded();
        assert!(
            details.out.contains(r#""payload":{"b" : 1.0, "b":2}"#),
            "{details:?}"
        );
        assert!(events[1]["payload"].is_null());
        assert_eq!(events[1]["priority"], 3);
        let headers = events[1]["headers"].to_string();
        assert_eq!(headers, r#"{"from":"file","trace":"x"}"#);
        let stats = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(stats.objects()[0]["queues"][0]["delayed"], 1);

        // In the second run, the event with a dedupe key exists already.
        let output = place.run_with(&["enqueue", "--lines"], input.as_bytes());
        let text = "enqueued 2 events; existed already: 1\n";
        // The first line has the same event id as before; receivers drop such repeats.
        assert_eq!(output.succeeded().out, text);
    }
}

#[tokio::test]
async fn a_line_may_have_a_key_of_its_own() {
    for place in everywhere().await {
        let input = b"{\"topic\":\"a\",\"payload\":1,\"key\":\"mine\",\"strict\":true}\n\
                      {\"topic\":\"a\",\"payload\":1}\n\
                      {\"topic\":\"a\",\"payload\":1,\"key\":null}\n";
        let args = ["enqueue", "--lines", "--key", "all"];
        let output = place.run_with(&args, input).succeeded();
        assert_eq!(output.out, "enqueued 3 events\n");
        let output = place.run(&["events", "--json"]).succeeded();
        assert_eq!(output.column("key"), ["\"all\"", "\"all\"", "\"mine\""]);
        // With `--strict`, a line without a key is invalid.
        let output = place.run_with(&["enqueue", "--lines", "--strict"], input);
        output.failed(
            2,
            "line 2: strict is set without a key",
            "line 1 was written",
        );
    }
}

#[test]
fn a_line_with_an_invalid_key_is_reported() {
    let place = sqlite();
    for (key, message) in [
        ("\"key\":[\"canary\"]", "key is of another type"),
        ("\"key\":\"\"", "ordering key is empty"),
        ("\"strict\":true", "strict is set without a key"),
        ("\"key\":\"k\",\"strict\":1", "strict is of another type"),
    ] {
        let input = format!("{{\"topic\":\"a\",\"payload\":1,{key}}}");
        let output = place.run_with(&["enqueue", "--lines"], input.as_bytes());
        let output = output.failed(2, message, "nothing was written");
        assert!(!output.err.contains("canary"), "{output:?}");
    }
    assert!(!place.file().exists());
}

#[tokio::test]
async fn with_a_topic_each_line_is_the_payload() {
    for place in everywhere().await {
        let input = b"1\n{\"topic\": \"mine\"}\n\n[3]\n";
        let output = place.run_with(&["enqueue", "--lines", "t", "--json"], input);
        assert_eq!(
            output.succeeded().out,
            "{\"written\":3,\"existed\":0,\"bad\":0,\"bad_lines\":[],\"next_line\":5}\n"
        );
        assert_eq!(topics(&place), ["\"t\"", "\"t\"", "\"t\""]);
        let details = place.run(&["show", "2", "--json"]).succeeded();
        assert_eq!(details.field("payload"), "{\"topic\":\"mine\"}");
    }
}

/// Goal: a file written by a spreadsheet is accepted unchanged. Method: a byte order mark stands
/// before the first line, or before a blank first line; anywhere else it makes its line invalid
/// JSON.
#[tokio::test]
async fn a_byte_order_mark_before_the_first_line_is_ignored() {
    for place in everywhere().await {
        let event = "{\"topic\":\"a\",\"payload\":1}";
        for input in [format!("\u{feff}{event}\r\n"), format!("\u{feff}\n{event}")] {
            let output = place.run_with(&["enqueue", "--lines"], input.as_bytes());
            assert_eq!(output.succeeded().out, "enqueued 1 event\n");
        }
        let output = place.run_with(&["enqueue", "--lines", "t"], "\u{feff}7\n".as_bytes());
        assert_eq!(output.succeeded().out, "enqueued 1 event\n");
        assert_eq!(topics(&place), ["\"a\"", "\"a\"", "\"t\""]);
        let details = place.run(&["show", "3", "--json"]).succeeded();
        assert_eq!(details.field("payload"), "7");

        let input = format!("{event}\n\u{feff}{event}\n");
        let output = place.run_with(&["enqueue", "--lines"], input.as_bytes());
        output.failed(
            2,
            "line 2: the line is not a JSON object",
            "line 1 was written",
        );
    }
}

/// Goal: no event is lost or repeated around a bad line. Method: the program stops at the line; the
/// test fixes the line and continues there.
#[tokio::test]
async fn the_lines_before_a_bad_line_are_written_and_a_hint_says_where_to_continue() {
    for place in everywhere().await {
        let mut lines: Vec<String> = (1..=1_204).map(|number| number.to_string()).collect();
        lines[1_202] = "{".to_owned();
        let args = ["enqueue", "--lines", "t"];
        let output = place.run_with(&args, lines.join("\n").as_bytes());
        let hint = "lines 1 to 1202 were written: fix it and continue with --from-line 1203";
        output.failed(2, "line 1203: payload is not JSON", hint);
        assert_eq!(pending(&place), "1202");

        lines[1_202] = "1203".to_owned();
        let args = [&args[..], &["--from-line", "1203"]].concat();
        let output = place.run_with(&args, lines.join("\n").as_bytes());
        assert_eq!(output.succeeded().out, "enqueued 2 events\n");
        assert_eq!(pending(&place), "1204");
    }
}

#[tokio::test]
async fn bad_lines_are_skipped_on_request() {
    for place in everywhere().await {
        let long = "x".repeat(3 << 20);
        let input = format!("1\n{{\n2\n\"{long}\"\n3\n");
        let args = ["enqueue", "--lines", "t", "--skip-bad"];
        let output = place.run_with(&args, input.as_bytes()).ended(1);
        assert_eq!(output.out, "enqueued 3 events; 2 invalid lines\n");
        assert!(
            output.err.contains("line 2: payload is not JSON"),
            "{output:?}"
        );
        assert!(
            output.err.contains("line 4: the line is over 2 MiB"),
            "{output:?}"
        );

        let output = place.run_with(&[&args[..], &["--json"]].concat(), input.as_bytes());
        let output = output.ended(1);
        let summary = output.objects().remove(0);
        assert_eq!(
            (&summary["written"], &summary["bad"]),
            (&3.into(), &2.into())
        );
        assert_eq!(summary["bad_lines"][1]["line"], 4);
        assert_eq!(pending(&place), "6");
    }
}

/// Goal: the program reports the fault of a bad line, but not its content. Method: each bad line is
/// the first one, so that no database is created.
#[test]
fn an_invalid_line_is_reported_and_creates_no_database() {
    let place = sqlite();
    let deep = format!(
        "{{\"topic\":\"a\",\"payload\":{}{}}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    let huge = format!(
        "{{\"topic\":\"a\",\"payload\":\"{}\"}}",
        "x".repeat(1 << 20)
    );
    let endless = "x".repeat(3 << 20);
    let cases: [(&[u8], &str); 15] = [
        (b"\"canary\"", "the line is not a JSON object"),
        (
            b"{\"topic\":\"a\"",
            "the line is not an event (EOF while parsing an object)",
        ),
        (b"{\"topic\":\"a\"}", "missing field `payload`"),
        (b"{\"payload\":\"canary\"}", "missing field `topic`"),
        (
            b"{\"topic\":\"a\",\"payload\":1,\"kye\":2}",
            "unknown field `kye`",
        ),
        (
            b"{\"topic\":\"a\",\"topic\":\"b\",\"payload\":1}",
            "duplicate field",
        ),
        (
            b"{\"topic\":[\"canary\"],\"payload\":1}",
            "topic is of another type",
        ),
        (b"{\"topic\":\"\",\"payload\":1}", "topic is empty"),
        (
            b"{\"topic\":\"a\",\"payload\":1,\"priority\":8}",
            "priority is 8",
        ),
        (
            b"{\"topic\":\"a\",\"payload\":1,\"headers\":\"canary\"}",
            "headers is of",
        ),
        (
            b"{\"topic\":\"a\",\"payload\":1,\"event_id\":\"7\"}",
            "event_id is not a UUID",
        ),
        (b"{\"topic\":\"\xff\",\"payload\":1}", "not UTF-8 (byte 10)"),
        (deep.as_bytes(), "nested too deeply"),
        (huge.as_bytes(), "1 MiB"),
        (endless.as_bytes(), "the line is over 2 MiB"),
    ];
    for (input, message) in cases {
        let output = place.run_with(&["enqueue", "--lines"], input);
        let output = output.failed(2, message, "nothing was written");
        assert!(output.err.starts_with("error: line 1: "), "{output:?}");
        assert!(!output.err.contains("canary"), "{output:?}");
    }
    assert!(!place.file().exists());
}

#[tokio::test]
async fn a_line_for_an_unknown_queue_is_a_bad_line() {
    for place in everywhere().await {
        let input = b"{\"topic\":\"a\",\"payload\":1}\n\
                      {\"topic\":\"a\",\"payload\":1,\"queue\":\"mail\"}\n";
        let output = place.run_with(&["enqueue", "--lines"], input);
        let output = output.failed(
            2,
            "line 2: queue is mail, which does not",
            "line 1 was written",
        );
        assert!(output.err.contains("tenure queues add mail"), "{output:?}");
        assert_eq!(pending(&place), "1");
    }
}

#[test]
fn an_empty_input_is_not_an_error() {
    let place = sqlite();
    let output = place.run(&["enqueue", "--lines"]).succeeded();
    assert_eq!(output.out, "enqueued 0 events\n");
    assert!(!place.file().exists());
}

/// Large events are written in several batches. The input is a file.
#[tokio::test]
async fn large_events_are_written_from_a_file() {
    for place in everywhere().await {
        let line = format!("\"{}\"\n", "x".repeat(1_000_000));
        let path = place.file().with_file_name("lines.json");
        std::fs::write(&path, line.repeat(20)).unwrap();
        let program = env!("CARGO_BIN_EXE_tenure").as_ref();
        let output = place
            .command(program)
            .args(["enqueue", "--lines", "t"])
            .stdin(Stdio::from(File::open(&path).unwrap()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"enqueued 20 events\n");
        assert_eq!(output.stderr, b"");
        assert_eq!(pending(&place), "20");
    }
}
