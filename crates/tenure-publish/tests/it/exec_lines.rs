//! Exec lines: the protocol with a process that stays, its faults, and the end of its processes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tenure_core::{Event, NewEvent, Publication, PublishError, PublishErrorKind, Publisher};
use tenure_publish::ExecLines;
use tokio::time::timeout;

use super::exec::{is_gone, process};
use super::{publication, until};

const RETRY: PublishErrorKind = PublishErrorKind::Retry { after: None };
const AWAY: PublishErrorKind = PublishErrorKind::Away { after: None };

/// A process that answers each event with its payload, a string, as an answer.
const ECHO: &str = r#"import json, sys
for line in sys.stdin:
    print(json.loads(line)["payload"], flush=True)
"#;

/// Writes a Python program and returns the command that runs it in the folder.
fn python(folder: &TempDir, program: &str) -> String {
    fs::write(folder.path().join("worker.py"), program).unwrap();
    format!(
        "cd '{}' && exec python3 -S worker.py",
        folder.path().display()
    )
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn text(payload: &str) -> Event {
    Event::new("t", &payload).unwrap()
}

fn event() -> Event {
    Event::new("order.paid", &7).unwrap()
}

async fn send(worker: &ExecLines, event: &Event) -> Result<(), PublishError> {
    // A hang is a failure of the test, not of the machine's patience.
    let publication = publication(event);
    let sent = worker.publish(&publication);
    timeout(Duration::from_mins(1), sent).await.unwrap()
}

/// Lines of a file that a process appends to.
fn lines(folder: &TempDir, name: &str) -> Vec<String> {
    let text = fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_process_gets_one_event_after_another_and_answers_each() {
    let folder = folder();
    let program = r#"import json, os, sys
for line in sys.stdin:
    with open("seen", "a") as seen:
        print(os.getpid(), line, end="", file=seen)
    id = json.loads(line)["id"]
    outcome = json.loads(line)["payload"]["answer"]
    print(json.dumps({"id": id} | outcome), flush=True)
"#;
    let worker = ExecLines::new(python(&folder, program)).timeout(Duration::from_secs(20));
    let minute = Duration::from_mins(1);
    for (answer, expected) in [
        (r#"{"outcome":"done"}"#, Ok(())),
        (
            r#"{"outcome":"retry","error":"SMTP 451","after_ms":60000}"#,
            Err(PublishError::retry("SMTP 451").after(minute)),
        ),
        (
            r#"{"outcome":"dead","error":"no such user"}"#,
            Err(PublishError::reject("no such user")),
        ),
        (
            r#"{"outcome":"release","error":"not yet","after_ms":60000}"#,
            Err(PublishError::release("not yet").after(minute)),
        ),
        (
            r#"{"outcome":"away","error":"no connection"}"#,
            Err(PublishError::away("no connection")),
        ),
    ] {
        let payload = format!("{{\n\"answer\": {answer}}}");
        let event = NewEvent::from_json("order.paid", &payload)
            .event_id("0198c0de-0000-7000-8000-000000000001".parse().unwrap())
            .key("customer-7")
            .header("trace", "7")
            .build()
            .unwrap();
        assert_eq!(send(&worker, &event).await, expected, "{answer}");
    }
    worker.stop().await;
    let seen = lines(&folder, "seen");
    assert_eq!(seen.len(), 5);
    let (first, line) = seen[0].split_once(' ').unwrap();
    assert!(
        seen.iter().all(|line| line.starts_with(first)),
        "one process: {seen:?}"
    );
    let expected = [
        r#"{"id":7,"event_id":"0198c0de-0000-7000-8000-000000000001","topic":"order.paid","#,
        r#""queue":"default","key":"customer-7","attempt":2,"fence":9,"time_left_ms":"#,
    ];
    let rest = line.strip_prefix(&expected.concat()).expect(line);
    let (time, rest) = rest.split_once(',').unwrap();
    assert!((1..=20_000).contains(&time.parse().unwrap()), "{time}");
    let expected = r#""headers":{"trace":"7"},"payload":{ "answer": {"outcome":"done"}}}"#;
    assert_eq!(rest, expected);
}

#[tokio::test]
async fn an_event_larger_than_a_pipe_arrives_whole() {
    let folder = folder();
    let program = r#"import json, sys
for line in sys.stdin:
    event = json.loads(line)
    fine = event["payload"] == "x" * (1024 * 1024 - 2)
    print(json.dumps({"id": event["id"], "outcome": "done" if fine else "dead"}), flush=True)
"#;
    let worker = ExecLines::new(python(&folder, program));
    let event = Event::new("t", &"x".repeat(1024 * 1024 - 2)).unwrap();
    send(&worker, &event).await.unwrap();
    send(&worker, &event).await.unwrap();
}

#[tokio::test]
async fn a_wrong_answer_fails_its_event_and_replaces_the_process() {
    let folder = folder();
    let worker = ExecLines::new(python(&folder, ECHO));
    let done = text(r#"{"id":7,"outcome":"done"}"#);
    let long = "x".repeat(70_000);
    for (answer, reason) in [
        (
            "ready",
            r#"answered "ready"; expected a line such as {"id":7,"#,
        ),
        (
            r#"{"id":8,"outcome":"done"}"#,
            "answered for id 8; expected id 7",
        ),
        (
            long.as_str(),
            "expected at most 65536 bytes and a line break",
        ),
    ] {
        // A process that has answered once is replaced without a delay.
        send(&worker, &done).await.unwrap();
        let wrong = text(answer);
        let error = send(&worker, &wrong).await.unwrap_err();
        assert_eq!(error.kind, RETRY);
        assert!(error.reason.contains(reason), "{error}");
    }
    send(&worker, &done).await.unwrap();

    // A line that nothing asked for must not become the answer to the next event.
    let two = "{\"id\":7,\"outcome\":\"done\"}\n{\"id\":7,\"outcome\":\"dead\"}";
    send(&worker, &text(two)).await.unwrap();
    // Both lines are one write of the process, so the second one is there.
    send(&worker, &done).await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_process_is_the_end_of_its_event_only() {
    let folder = folder();
    let program = r#"import json, sys
for line in sys.stdin:
    event = json.loads(line)
    if event["payload"] == "done":
        print(json.dumps({"id": event["id"], "outcome": "done"}), flush=True)
    elif event["payload"] == "torn":
        print('{"id":7,"outcome":"done"}', end="", flush=True)
        break
    elif event["payload"] == "mute":
        sys.stdout.close()
        import os; os.close(1)
        import time; time.sleep(600)
    else:
        print("traceback\n  of", event["payload"], file=sys.stderr)
        sys.exit(event["payload"])
"#;
    let worker = ExecLines::new(python(&folder, program));
    let done = text("done");
    let ended = "the process ended without an answer: exit code";
    let cases: [(Event, PublishErrorKind, String); 5] = [
        (
            Event::new("t", &1).unwrap(),
            RETRY,
            format!("{ended} 1: traceback of 1"),
        ),
        (
            Event::new("t", &65).unwrap(),
            PublishErrorKind::Reject,
            format!("{ended} 65: traceback of 65"),
        ),
        (
            Event::new("t", &75).unwrap(),
            AWAY,
            format!("{ended} 75: traceback of 75"),
        ),
        (
            text("torn"),
            RETRY,
            r#"ended within its answer "{\"id\":7,\"outcome\":\"done\"}": no line break"#
                .to_owned(),
        ),
        (
            text("mute"),
            RETRY,
            "closed its standard output without an answer, and was stopped".to_owned(),
        ),
    ];
    for (event, kind, reason) in cases {
        send(&worker, &done).await.unwrap();
        let error = send(&worker, &event).await.unwrap_err();
        assert_eq!((error.kind, error.reason), (kind, reason));
    }
    send(&worker, &done).await.unwrap();
}

#[tokio::test]
async fn a_process_may_end_after_some_events_and_its_next_event_goes_to_another() {
    let folder = folder();
    // Exits after its second event, once the third has been written to it.
    let command = format!(
        "cd '{}' && echo $$ >> started\n\
         for event in 1 2; do read -r line; echo '{{\"id\":7,\"outcome\":\"done\"}}'; done\n\
         read -r line; exit 0",
        folder.path().display()
    );
    let worker = ExecLines::new(command);
    for _ in 0..6 {
        send(&worker, &event()).await.unwrap();
    }
    assert_eq!(lines(&folder, "started").len(), 3);
    // The end between two events is noticed, too.
    let pid = lines(&folder, "started")[2].parse::<i32>().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("it is gone", async || is_gone(pid)).await;
    send(&worker, &event()).await.unwrap();
    assert_eq!(lines(&folder, "started").len(), 4);
}

#[tokio::test]
async fn processes_that_never_answer_are_started_ever_more_rarely() {
    let folder = folder();
    let command = format!(
        "cd '{}' && echo >> started; exit 0",
        folder.path().display()
    );
    let worker = ExecLines::new(command);
    let reason = "the process ended without an answer: exit code 0";
    let error = send(&worker, &event()).await.unwrap_err();
    assert_eq!((error.kind, error.reason.as_str()), (RETRY, reason));
    let mut longest = Duration::ZERO;
    while longest <= Duration::from_millis(600) {
        let error = send(&worker, &event()).await.unwrap_err();
        assert_eq!(error.reason, reason);
        if let PublishErrorKind::Away { after: Some(after) } = error.kind {
            longest = longest.max(after);
            tokio::time::sleep(after).await;
        } else {
            assert_eq!(error.kind, RETRY);
        }
    }
    let started = lines(&folder, "started").len();
    assert!((2..=4).contains(&started), "{started} starts");
}

#[tokio::test]
async fn a_command_that_cannot_run_is_away() {
    let worker = ExecLines::new("exec 2>&-; no-such-program-at-all");
    let error = send(&worker, &event()).await.unwrap_err();
    assert_eq!(error.kind, AWAY);
    let reason = "the process ended without an answer: exit code 127 (command not found)";
    assert_eq!(error.reason, reason);
}

#[tokio::test]
async fn a_process_that_takes_too_long_is_stopped_with_what_it_started() {
    let folder = folder();
    let command = format!(
        "cd '{}'\ntrap 'echo term > term; exit 0' TERM\n\
         sleep 600 & echo $! > behind\nread -r line\nwhile :; do sleep 0.01; done",
        folder.path().display()
    );
    let worker = ExecLines::new(command).timeout(Duration::from_millis(1500));
    let error = send(&worker, &event()).await.unwrap_err();
    assert_eq!(error.kind, RETRY);
    assert_eq!(error.reason, "stopped: it had not answered after 1.5s");
    assert_eq!(lines(&folder, "term"), ["term"]);
    let behind = process(&folder, "behind").await;
    until("what it started is gone", async || is_gone(behind)).await;
}

#[tokio::test]
async fn a_dropped_event_kills_its_process() {
    let folder = folder();
    let command = format!(
        "cd '{}' && read -r line && echo $$ > holder && sleep 600",
        folder.path().display()
    );
    let worker = ExecLines::new(command);
    let event = event();
    let publication = publication(&event);
    let pid = tokio::select! {
        answer = worker.publish(&publication) => panic!("it answered: {answer:?}"),
        pid = process(&folder, "holder") => pid,
    };
    until("it is gone", async || is_gone(pid)).await;
}

#[tokio::test]
async fn events_share_the_processes_up_to_their_limit() {
    let folder = folder();
    let command = format!(
        "cd '{}' && echo >> started\n\
         while read -r line; do echo >> at; until [ -e go ]; do sleep 0.01; done\n\
         echo '{{\"id\":7,\"outcome\":\"done\"}}'; done",
        folder.path().display()
    );
    let worker = ExecLines::new(command).processes(2);
    let event = event();
    let one = || send(&worker, &event);
    let go = async {
        until("two are at work", async || lines(&folder, "at").len() == 2).await;
        fs::write(folder.path().join("go"), "").unwrap();
        Ok(())
    };
    tokio::try_join!(one(), one(), one(), one(), one(), go).unwrap();
    assert_eq!(lines(&folder, "started").len(), 2);
    assert_eq!(lines(&folder, "at").len(), 5);

    // An event that waits in vain is not to blame.
    fs::remove_file(folder.path().join("go")).unwrap();
    let short = Publication {
        time_left: Duration::from_millis(400),
        ..publication(&event)
    };
    let before = lines(&folder, "at").len();
    let late = async {
        let busy = async || lines(&folder, "at").len() == before + 2;
        until("both are busy again", busy).await;
        let error = worker.publish(&short).await.unwrap_err();
        fs::write(folder.path().join("go"), "").unwrap();
        assert_eq!(
            error,
            PublishError::away("all processes were busy for 300ms")
        );
        Ok(())
    };
    tokio::try_join!(one(), one(), late).unwrap();
}

#[tokio::test]
async fn a_stop_closes_the_input_and_then_ends_the_process_group() {
    let folder = folder();
    // The first ends by itself when its input is closed; the second ignores that and `SIGTERM`.
    let program = r#"import json, os, signal, sys, time
first = not os.path.exists("first")
open("first" if first else "second.new", "w").write(str(os.getpid()))
for line in sys.stdin:
    if first:
        while not os.path.exists("second"): time.sleep(0.01)
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.rename("second.new", "second")
    print(json.dumps({"id": 7, "outcome": "done"}), flush=True)
if first:
    open("ended", "w").write("by itself")
else:
    time.sleep(600)
"#;
    let worker = ExecLines::new(python(&folder, program));
    let event = event();
    let first = send(&worker, &event);
    let second = async {
        process(&folder, "first").await;
        send(&worker, &event).await
    };
    tokio::try_join!(first, second).unwrap();
    let pids = [
        process(&folder, "first").await,
        process(&folder, "second").await,
    ];
    assert!(pids.iter().all(|pid| !is_gone(*pid)));
    worker.clone().stop().await;
    assert!(pids.iter().all(|pid| is_gone(*pid)));
    assert_eq!(lines(&folder, "ended"), ["by itself"]);
    let error = send(&worker, &event).await.unwrap_err();
    assert_eq!(error, PublishError::away("the publisher was stopped"));
    assert!(Path::new("/proc/self").exists(), "is_gone reads /proc");
}

#[tokio::test]
async fn a_line_has_the_trace_of_its_event() {
    let folder = folder();
    let program = r#"import json, sys
for line in sys.stdin:
    event = json.loads(line)
    error = event["headers"]["traceparent"] + "|" + event["headers"]["tracestate"]
    print(json.dumps({"id": event["id"], "outcome": "dead", "error": error}), flush=True)
"#;
    let worker = ExecLines::new(python(&folder, program));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let event = NewEvent::from(event()).traceparent(parent);
    let event = event.header("tracestate", "v=1").build().unwrap();
    let answer = send(&worker, &event).await.unwrap_err();
    assert_eq!(answer, PublishError::reject(format!("{parent}|v=1")));
}
