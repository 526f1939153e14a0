//! `tenure enqueue --lines`: what is before a bad line is written, what is after it is not, and it
//! is said where to go on.

use std::fs::File;
use std::process::Stdio;

use crate::program::{Place, everywhere, sqlite};

fn topics(place: &Place) -> Vec<String> {
    let said = place.run(&["events", "--json"]);
    let mut topics = said.column("topic");
    topics.reverse();
    topics
}

fn pending(place: &Place) -> String {
    place.run(&["stats", "--json"]).succeeded().field("pending")
}

#[tokio::test]
async fn each_line_is_an_event_with_all_that_it_says() {
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
        let said = place.run_with(&args, input.as_bytes()).succeeded();
        assert_eq!(
            (said.out.as_str(), said.err.as_str()),
            ("enqueued 3 events\n", "")
        );

        let mut events = place.run(&["events", "--json"]).succeeded().objects();
        events.reverse();
        assert_eq!(events[0]["event_id"], id);
        assert_eq!(events[0]["priority"], 5);
        assert_eq!(events[0]["headers"].to_string(), r#"{"from":"file"}"#);
        let shown = place.run(&["show", "1", "--json"]).succeeded();
        assert!(
            shown.out.contains(r#""payload":{"b" : 1.0, "b":2}"#),
            "{shown:?}"
        );
        assert!(events[1]["payload"].is_null());
        assert_eq!(events[1]["priority"], 3);
        let headers = events[1]["headers"].to_string();
        assert_eq!(headers, r#"{"from":"file","trace":"x"}"#);
        let stats = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(stats.objects()[0]["queues"][0]["delayed"], 1);

        // Again: what has a dedupe key is there already.
        let said = place.run_with(&["enqueue", "--lines"], input.as_bytes());
        let text = "enqueued 2 events; already there: 1\n";
        // The first line brings the same event id again; that is the receiver's to drop.
        assert_eq!(said.succeeded().out, text);
    }
}

#[tokio::test]
async fn a_line_may_have_a_key_of_its_own() {
    for place in everywhere().await {
        let input = b"{\"topic\":\"a\",\"payload\":1,\"key\":\"mine\",\"strict\":true}\n\
                      {\"topic\":\"a\",\"payload\":1}\n\
                      {\"topic\":\"a\",\"payload\":1,\"key\":null}\n";
        let args = ["enqueue", "--lines", "--key", "all"];
        let said = place.run_with(&args, input).succeeded();
        assert_eq!(said.out, "enqueued 3 events\n");
        let said = place.run(&["events", "--json"]).succeeded();
        assert_eq!(said.column("key"), ["\"all\"", "\"all\"", "\"mine\""]);
        // Strict for all: a line without a key is a bad one.
        let said = place.run_with(&["enqueue", "--lines", "--strict"], input);
        said.failed(
            2,
            "line 2: strict is said without a key",
            "line 1 is written",
        );
    }
}

#[test]
fn a_line_whose_key_is_wrong_is_told() {
    let place = sqlite();
    for (key, message) in [
        ("\"key\":[\"canary\"]", "key is of another kind"),
        ("\"key\":\"\"", "ordering key is empty"),
        ("\"strict\":true", "strict is said without a key"),
        ("\"key\":\"k\",\"strict\":1", "strict is of another kind"),
    ] {
        let input = format!("{{\"topic\":\"a\",\"payload\":1,{key}}}");
        let said = place.run_with(&["enqueue", "--lines"], input.as_bytes());
        let said = said.failed(2, message, "nothing is written");
        assert!(!said.err.contains("canary"), "{said:?}");
    }
    assert!(!place.file().exists());
}

#[tokio::test]
async fn with_a_topic_each_line_is_the_payload() {
    for place in everywhere().await {
        let input = b"1\n{\"topic\": \"mine\"}\n\n[3]\n";
        let said = place.run_with(&["enqueue", "--lines", "t", "--json"], input);
        assert_eq!(
            said.succeeded().out,
            "{\"written\":3,\"existed\":0,\"bad\":0,\"bad_lines\":[],\"next_line\":5}\n"
        );
        assert_eq!(topics(&place), ["\"t\"", "\"t\"", "\"t\""]);
        let shown = place.run(&["show", "2", "--json"]).succeeded();
        assert_eq!(shown.field("payload"), "{\"topic\":\"mine\"}");
    }
}

/// Goal: a file that a spreadsheet wrote can be sent as it is. Method: the mark before the first
/// line, also before a blank one; anywhere else it is a part of the line, and no JSON.
#[tokio::test]
async fn a_byte_order_mark_before_the_first_line_is_passed_over() {
    for place in everywhere().await {
        let event = "{\"topic\":\"a\",\"payload\":1}";
        for input in [format!("\u{feff}{event}\r\n"), format!("\u{feff}\n{event}")] {
            let said = place.run_with(&["enqueue", "--lines"], input.as_bytes());
            assert_eq!(said.succeeded().out, "enqueued 1 event\n");
        }
        let said = place.run_with(&["enqueue", "--lines", "t"], "\u{feff}7\n".as_bytes());
        assert_eq!(said.succeeded().out, "enqueued 1 event\n");
        assert_eq!(topics(&place), ["\"a\"", "\"a\"", "\"t\""]);
        let shown = place.run(&["show", "3", "--json"]).succeeded();
        assert_eq!(shown.field("payload"), "7");

        let input = format!("{event}\n\u{feff}{event}\n");
        let said = place.run_with(&["enqueue", "--lines"], input.as_bytes());
        said.failed(2, "line 2: the line is no JSON object", "line 1 is written");
    }
}

/// Goal: nothing is lost and nothing comes twice around a bad line. Method: stop, mend, go on.
#[tokio::test]
async fn a_bad_line_stops_after_all_before_it_and_says_where_to_go_on() {
    for place in everywhere().await {
        let mut lines: Vec<String> = (1..=1_204).map(|number| number.to_string()).collect();
        lines[1_202] = "{".to_owned();
        let args = ["enqueue", "--lines", "t"];
        let said = place.run_with(&args, lines.join("\n").as_bytes());
        let hint = "lines 1 to 1202 are written: mend it and go on with --from-line 1203";
        said.failed(2, "line 1203: payload is not JSON", hint);
        assert_eq!(pending(&place), "1202");

        lines[1_202] = "1203".to_owned();
        let args = [&args[..], &["--from-line", "1203"]].concat();
        let said = place.run_with(&args, lines.join("\n").as_bytes());
        assert_eq!(said.succeeded().out, "enqueued 2 events\n");
        assert_eq!(pending(&place), "1204");
    }
}

#[tokio::test]
async fn bad_lines_are_passed_over_when_asked_for() {
    for place in everywhere().await {
        let long = "x".repeat(3 << 20);
        let input = format!("1\n{{\n2\n\"{long}\"\n3\n");
        let args = ["enqueue", "--lines", "t", "--skip-bad"];
        let said = place.run_with(&args, input.as_bytes()).ended(1);
        assert_eq!(said.out, "enqueued 3 events; 2 lines are no events\n");
        assert!(said.err.contains("line 2: payload is not JSON"), "{said:?}");
        assert!(
            said.err.contains("line 4: the line is over 2 MiB"),
            "{said:?}"
        );

        let said = place.run_with(&[&args[..], &["--json"]].concat(), input.as_bytes());
        let said = said.ended(1);
        let sum = said.objects().remove(0);
        assert_eq!((&sum["written"], &sum["bad"]), (&3.into(), &2.into()));
        assert_eq!(sum["bad_lines"][1]["line"], 4);
        assert_eq!(pending(&place), "6");
    }
}

/// Goal: bad lines are told by what is wrong with them, without what is in them. Method: each is
/// the first line, so that no database is made for it.
#[test]
fn what_is_no_event_is_told_and_makes_no_database() {
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
        (b"\"canary\"", "the line is no JSON object"),
        (
            b"{\"topic\":\"a\"",
            "the line is no event (EOF while parsing an object)",
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
            "topic is of another kind",
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
            "event_id is no UUID",
        ),
        (b"{\"topic\":\"\xff\",\"payload\":1}", "not UTF-8 (byte 10)"),
        (deep.as_bytes(), "nested too deeply"),
        (huge.as_bytes(), "1 MiB"),
        (endless.as_bytes(), "the line is over 2 MiB"),
    ];
    for (input, message) in cases {
        let said = place.run_with(&["enqueue", "--lines"], input);
        let said = said.failed(2, message, "nothing is written");
        assert!(said.err.starts_with("error: line 1: "), "{said:?}");
        assert!(!said.err.contains("canary"), "{said:?}");
    }
    assert!(!place.file().exists());
}

#[tokio::test]
async fn a_line_for_an_unknown_queue_is_a_bad_line() {
    for place in everywhere().await {
        let input = b"{\"topic\":\"a\",\"payload\":1}\n\
                      {\"topic\":\"a\",\"payload\":1,\"queue\":\"mail\"}\n";
        let said = place.run_with(&["enqueue", "--lines"], input);
        let said = said.failed(2, "line 2: queue is mail, unknown", "line 1 is written");
        assert!(said.err.contains("tenure queues add mail"), "{said:?}");
        assert_eq!(pending(&place), "1");
    }
}

#[test]
fn nothing_on_the_input_is_no_event_and_no_error() {
    let place = sqlite();
    let said = place.run(&["enqueue", "--lines"]).succeeded();
    assert_eq!(said.out, "enqueued 0 events\n");
    assert!(!place.file().exists());
}

/// Large events go in several batches, none of which is large; the input is a file here.
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
