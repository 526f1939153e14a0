//! Spans of handlers, from the producer's `traceparent` to the collector, and to commands and
//! receivers of webhooks.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use prost::Message as _;
use sqlx::{Connection as _, PgConnection};

use crate::program::{Finished, Place, everywhere, finish, postgres, soon, sqlite};
use crate::receiver::{Call, Receiver};
use crate::serve::get;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// Writes the trace variables that a command has to a file.
const WRITE: &str = "echo \"$TRACEPARENT|$TRACESTATE\" >> seen";

/// Routes all events to a file: standard output is a pipe, which nobody reads before the end.
const TO_A_FILE: &str = r#"
[publishers.file]
kind = "lines"
path = "events.jsonl"

[[routes]]
topics = ["*"]
publisher = "file"
"#;

/// Prepares the program with spans sent to `endpoint`.
fn traced(place: &Place, endpoint: &str, args: &[&str]) -> Command {
    let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
    command
        .args(args)
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint);
    command
}

fn drain(place: &Place, collector: &Receiver, exec: &str) -> Finished {
    let command = traced(
        place,
        &collector.url(),
        &["work", "--drain", "--exec", exec],
    );
    finish(command, b"").succeeded()
}

/// Enqueues an event with these headers.
fn enqueue(place: &Place, headers: &[&str]) {
    let mut args = vec!["enqueue", "order.paid", "7", "--key", "customer-7"];
    args.extend(headers.iter().flat_map(|header| ["--header", header]));
    place.run(&args).succeeded();
}

fn request(call: &Call) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest::decode(call.body.as_slice()).expect("the protobuf of OTLP")
}

fn spans(call: &Call) -> Vec<Span> {
    let resources = request(call).resource_spans.into_iter();
    let scopes = resources.flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn attribute(attributes: &[KeyValue], name: &str) -> String {
    let mut all = attributes.iter().filter(|pair| pair.key == name);
    let value = all.next().and_then(|pair| pair.value.clone()?.value);
    assert!(all.next().is_none(), "{name} is there twice");
    match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        None => "none".to_owned(),
        Some(other) => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = |text: String, byte: &u8| text + &format!("{byte:02x}");
    bytes.iter().fold(String::new(), digits)
}

/// The header that a child of this span gets.
fn traceparent(span: &Span) -> String {
    let (trace, id, flags) = (hex(&span.trace_id), hex(&span.span_id), span.flags & 0xff);
    format!("00-{trace}-{id}-{flags:02x}")
}

/// The trace variables of the commands that have run.
fn trace_variables(place: &Place) -> String {
    std::fs::read_to_string(place.path("seen")).expect("the command wrote it")
}

#[tokio::test]
async fn the_span_of_a_handler_is_below_its_producers_and_above_its_commands() {
    for place in everywhere().await {
        let collector = Receiver::start(&[]);
        enqueue(
            &place,
            &[&format!("traceparent={PARENT}"), "tracestate=v=1"],
        );
        let args = ["work", "--drain", "--exec", WRITE];
        let mut command = traced(&place, &collector.url(), &args);
        command
            .env("OTEL_SERVICE_NAME", "mail")
            .env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b")
            .env("TRACESTATE", "of-another-trace");
        finish(command, b"").succeeded();

        let call = collector.next();
        assert_eq!(call.header("content-type"), Some("application/x-protobuf"));
        assert_eq!(call.header("api-key"), Some("a b"));
        let resource = request(&call).resource_spans.remove(0).resource.unwrap();
        assert_eq!(attribute(&resource.attributes, "service.name"), "mail");
        let [span] = &spans(&call)[..] else {
            panic!("one span: {call:?}");
        };
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(hex(&span.parent_span_id), "00f067aa0ba902b7");
        assert_eq!(span.trace_state, "v=1");
        assert_eq!(span.name, "handle order.paid");
        assert_eq!(span.kind(), SpanKind::Consumer);
        assert!(span.start_time_unix_nano > 1_700_000_000_000_000_000);
        assert!(span.start_time_unix_nano < span.end_time_unix_nano);
        assert_eq!(
            span.flags, 0x301,
            "sampled, below a span of another process"
        );
        assert_eq!(span.status, None);
        let listed = place.run(&["events", "--json"]).succeeded();
        for (name, expected) in [
            ("messaging.destination.name", "order.paid".to_owned()),
            ("messaging.system", "tenure".to_owned()),
            ("tenure.queue", "default".to_owned()),
            ("tenure.key", "customer-7".to_owned()),
            ("tenure.attempt", "1".to_owned()),
            ("tenure.outcome", "done".to_owned()),
            ("tenure.item", listed.field("id")),
            (
                "messaging.message.id",
                listed.field("event_id").trim_matches('"').to_owned(),
            ),
        ] {
            assert_eq!(attribute(&span.attributes, name), expected, "{name}");
        }
        let fence: i64 = attribute(&span.attributes, "tenure.fence").parse().unwrap();
        assert!(fence > 0);
        assert_eq!(
            trace_variables(&place),
            format!("{}|v=1\n", traceparent(span))
        );
        collector.is_quiet();
        let kept = place.run(&["show", &listed.field("id"), "--json"]);
        assert!(kept.out.contains(PARENT), "the stored header is unchanged");
    }
}

#[test]
fn an_unsampled_parent_is_passed_on_and_a_malformed_one_is_kept_as_a_header() {
    let place = sqlite();
    let collector = Receiver::start(&[]);
    let unsampled = PARENT.replace("-01", "-00");
    enqueue(&place, &[&format!("traceparent={unsampled}")]);
    drain(&place, &collector, WRITE);
    assert_eq!(trace_variables(&place), format!("{unsampled}|\n"));
    collector.is_quiet();

    // Without a collector, nothing is made.
    enqueue(&place, &["traceparent=malformed", "tracestate=v=1"]);
    enqueue(&place, &[&format!("traceparent={PARENT}")]);
    let write = format!("echo \"$TENURE_HEADER_TRACEPARENT\" >> seen; {WRITE}");
    place
        .run(&["work", "--drain", "--concurrency", "1", "--exec", &write])
        .succeeded();
    let expected = format!("{unsampled}|\nmalformed\n|\n{PARENT}\n{PARENT}|\n");
    assert_eq!(trace_variables(&place), expected);
}

#[test]
fn a_failed_span_has_its_error_and_the_log_has_the_trace() {
    let place = sqlite();
    let collector = Receiver::start(&[]);
    enqueue(&place, &[&format!("traceparent={PARENT}")]);
    let output = drain(&place, &collector, "echo no such user >&2; exit 65");
    let [span] = &spans(&collector.next())[..] else {
        panic!("one span");
    };
    let status = span.status.clone().expect("it failed");
    assert_eq!(status.code(), StatusCode::Error);
    assert!(status.message.contains("no such user"), "{status:?}");
    assert_eq!(attribute(&span.attributes, "error.type"), "dead");
    let line = output.err.lines().find(|line| line.contains("is dead"));
    let line = line.expect("a line about the failure");
    assert!(line.ends_with(&format!(" trace_id={TRACE}")), "{line}");

    enqueue(&place, &[&format!("traceparent={PARENT}")]);
    let args = ["work", "--drain", "--exec", "exit 65"];
    let mut command = traced(&place, &collector.url(), &args);
    command.env("TENURE_LOG_FORMAT", "json");
    let output = finish(command, b"").succeeded();
    let line = output.err.lines().find(|line| line.contains("is dead"));
    let line: serde_json::Value = serde_json::from_str(line.unwrap()).unwrap();
    assert_eq!(line["trace_id"], TRACE);
}

#[test]
fn a_receiver_of_webhooks_gets_the_span_of_its_delivery() {
    let place = sqlite();
    let (collector, receiver) = (Receiver::start(&[]), Receiver::start(&[]));
    receiver.allow(&place);
    let add = ["endpoints", "add", &receiver.url(), "--topics", "order.*"];
    place.run(&add).succeeded();
    enqueue(
        &place,
        &[&format!("traceparent={PARENT}"), "tracestate=v=1"],
    );
    finish(traced(&place, &collector.url(), &["work", "--drain"]), b"").succeeded();
    let mut all = spans(&collector.next());
    while all.len() < 2 {
        all.extend(spans(&collector.next()));
    }
    let mut deliveries = all.iter().filter(|span| span.kind() == SpanKind::Client);
    let delivery = deliveries.next().expect("a span of the delivery");
    let call = receiver.next();
    assert_eq!(call.header("traceparent"), Some(&*traceparent(delivery)));
    assert_eq!(call.header("tracestate"), Some("v=1"));
    assert_eq!(hex(&delivery.parent_span_id), "00f067aa0ba902b7");
    assert_ne!(attribute(&delivery.attributes, "tenure.endpoint"), "none");

    let own = ["endpoints", "set", "--header", "traceparent: x"];
    let refused = place.run(&[&own[..], &["billing"]].concat());
    assert_ne!(refused.code, Some(0), "the protocol sets this header");
}

#[tokio::test]
async fn a_producer_in_sql_and_a_job_have_spans() {
    let place = postgres().await;
    place.run(&["migrate"]).succeeded();
    let collector = Receiver::start(&[]);
    let mut conn = PgConnection::connect(&place.url).await.unwrap();
    let text = "select tenure_enqueue('order.paid', '7'::jsonb, null,
                jsonb_build_object('headers', jsonb_build_object('traceparent', $1::text)))";
    sqlx::query(text)
        .bind(PARENT)
        .execute(&mut conn)
        .await
        .unwrap();
    drain(&place, &collector, WRITE);
    let [span] = &spans(&collector.next())[..] else {
        panic!("one span");
    };
    assert_eq!(hex(&span.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(trace_variables(&place), format!("{}|\n", traceparent(span)));

    place.run(&["jobs", "enqueue", "import", "7"]).succeeded();
    let args = [
        "jobs", "run", "--drain", "--kind", "import", "--exec", WRITE,
    ];
    finish(traced(&place, &collector.url(), &args), b"").succeeded();
    let [job] = &spans(&collector.next())[..] else {
        panic!("one span");
    };
    assert_eq!(job.name, "handle import");
    assert_eq!(job.kind(), SpanKind::Internal);
    assert!(job.parent_span_id.is_empty(), "a trace of its own");
    assert!(trace_variables(&place).ends_with(&format!("{}|\n", traceparent(job))));
}

#[tokio::test]
async fn a_share_of_the_events_is_sampled() {
    let place = sqlite();
    place.enqueue_many(400).await;
    let collector = Receiver::start(&[]);
    let args = ["work", "--drain", "--print"];
    let mut command = traced(&place, &collector.url(), &args);
    command
        .env("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
        .env("OTEL_TRACES_SAMPLER_ARG", "0.25");
    let output = finish(command, b"").succeeded();
    assert_eq!(output.out.lines().count(), 400);
    let with = output.out.matches("\"traceparent\"").count();
    assert!((50..150).contains(&with), "{with} of 400");
    let mut exported = 0;
    while exported < with {
        exported += spans(&collector.next()).len();
    }
    assert_eq!(exported, with);
    collector.is_quiet();
}

#[test]
fn a_collector_that_is_away_or_misnamed_costs_no_work() {
    let away = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("http://{}/v1/traces", away.local_addr().unwrap());
    drop(away);
    for (endpoint, warning) in [
        (dead.as_str(), "spans are dropped: the export failed"),
        ("canary", "no spans are exported"),
        ("ftp://canary/v1", "no spans are exported"),
    ] {
        let place = sqlite();
        place.enqueue("a");
        place.enqueue("b");
        let args = ["work", "--drain", "--exec", "true"];
        let output = finish(traced(&place, endpoint, &args), b"").succeeded();
        assert!(output.err.contains("events: 2 done\n"), "{output:?}");
        assert_eq!(output.err.matches(warning).count(), 1, "{output:?}");
        assert!(!output.err.contains("canary"), "{output:?}");
    }
}

#[tokio::test]
async fn spans_that_a_hanging_collector_does_not_take_are_counted_as_dropped() {
    // Its backlog takes connections; nobody answers.
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1/traces", hanging.local_addr().unwrap());
    let place = sqlite();
    place.enqueue_many(600).await;
    place.write("tenure.toml", TO_A_FILE);
    let args = ["serve", "--listen", "127.0.0.1:0"];
    let mut command = traced(&place, &endpoint, &args);
    command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "100");
    let mut running = Place::start_command(command);
    let line = running.line_with(" on http://");
    let address = line.split("http://").nth(1).unwrap();
    let address = address.split(' ').next().unwrap().parse().unwrap();
    let value = |name: &str| {
        let (_, metrics) = get(address, "/metrics");
        let line = metrics.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        number.unwrap_or_default()
    };
    let done = || place.run(&["stats", "--json"]).succeeded().field("done");
    soon(async || (done() == "600").then_some(())).await;
    soon(async || (value("tenure_spans_dropped_total") >= 512).then_some(())).await;
    assert_eq!(value("tenure_spans_exported_total"), 0);
    running.terminate();
    let output = running.wait().succeeded();
    assert_eq!(output.err.matches("the export failed").count(), 1);
}
