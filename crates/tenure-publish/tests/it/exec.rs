//! Exec: input of a command, meaning of its exit, and cleanup of its processes.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;
use tenure_core::{Event, NewEvent, Publication, PublishError, PublishErrorKind, Publisher};
use tenure_publish::Exec;
use tokio::time::{Instant, timeout};

use super::{another_process, argument, publication, until};

const RETRY: PublishErrorKind = PublishErrorKind::Retry { after: None };
const AWAY: PublishErrorKind = PublishErrorKind::Away { after: None };

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn event() -> Event {
    Event::new("order.paid", &7).unwrap()
}

async fn run(command: &str, event: &Event) -> Result<(), PublishError> {
    Exec::new(command).publish(&publication(event)).await
}

/// Builds a command that runs in `folder`.
fn within(folder: &TempDir, command: &str) -> String {
    format!("cd '{}' || exit 9\n{command}", folder.path().display())
}

fn read(folder: &TempDir, name: &str) -> Vec<u8> {
    fs::read(folder.path().join(name)).unwrap()
}

/// Waits for a process id that a command writes to a file.
pub(super) async fn process(folder: &TempDir, name: &str) -> Pid {
    let path = folder.path().join(name);
    let number = || -> Option<i32> { fs::read_to_string(&path).ok()?.trim().parse().ok() };
    until("the command has started", async || number().is_some()).await;
    Pid::from_raw(number().unwrap()).unwrap()
}

/// True if the process is gone, or a zombie left to its new parent.
pub(super) fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let zombie = stat.is_ok_and(|stat| stat.contains(") Z "));
    zombie || test_kill_process(pid).is_err()
}

#[tokio::test]
async fn the_exit_code_is_the_answer() {
    let expected = [
        ("exit 0", None),
        ("exit 65", Some((PublishErrorKind::Reject, "exit code 65"))),
        ("exit 75", Some((AWAY, "exit code 75"))),
        ("exit 1", Some((RETRY, "exit code 1"))),
        ("echo oh >&2; exit 3", Some((RETRY, "exit code 3: oh"))),
        (
            "no-such-program-at-all 2>&-",
            Some((AWAY, "exit code 127 (command not found)")),
        ),
        (
            "exec 2>&-; /",
            Some((AWAY, "exit code 126 (the command cannot be run)")),
        ),
        ("kill -9 $$", Some((RETRY, "signal 9"))),
        ("echo out; echo err >&2; exit 0", None),
    ];
    for (command, answer) in expected {
        let error = run(command, &event()).await.err();
        let error = error.map(|error| (error.kind, error.reason));
        let answer = answer.map(|(kind, reason)| (kind, reason.to_owned()));
        assert_eq!(error, answer, "{command}");
    }
}

#[tokio::test]
async fn the_reason_is_the_end_of_standard_error_in_one_line() {
    let command =
        r"yes abc | head -c 200000 >&2; printf 'x\001\377\r\n\t\033[31mend\n' >&2; exit 1";
    let error = run(command, &event()).await.unwrap_err();
    let words = error.reason.strip_prefix("exit code 1: ").unwrap();
    assert_eq!(words.chars().count(), 500);
    assert!(words.ends_with("abc x \u{fffd} [31mend"), "{words}");
    assert!(!words.contains(char::is_control));
}

#[tokio::test]
async fn a_command_gets_every_field_of_its_event() {
    let folder = folder();
    let id = "0198c0de-0000-7000-8000-000000000001";
    let event = NewEvent::from_json("order.paid", "{\"a\": 1}")
        .event_id(id.parse().unwrap())
        .queue("mail")
        .key("cus'tomer $7")
        .header("x-trace.id", "a \"b\" 'c' $(d)")
        .header("a-b", "first")
        .header("a_b", "second")
        .build()
        .unwrap();
    let command = within(
        &folder,
        "cat > input; env -u TENURE_PROVE | grep ^TENURE_ | sort > variables",
    );
    run(&command, &event).await.unwrap();
    assert_eq!(read(&folder, "input"), b"{\"a\": 1}");
    let expected = format!(
        "TENURE_ATTEMPT=2\nTENURE_EVENT_ID={id}\nTENURE_FENCE=9\nTENURE_HEADER_A_B=second\n\
         TENURE_HEADER_X_TRACE_ID=a \"b\" 'c' $(d)\nTENURE_ID=7\nTENURE_KEY=cus'tomer $7\n\
         TENURE_PAYLOAD_BYTES=8\nTENURE_QUEUE=mail\nTENURE_TIME_LEFT_MS=29000\n\
         TENURE_TOPIC=order.paid\n"
    );
    let variables = String::from_utf8(read(&folder, "variables")).unwrap();
    assert_eq!(variables, expected);
}

#[tokio::test]
async fn a_payload_of_bytes_is_passed_as_bytes() {
    let folder = folder();
    let bytes: Vec<u8> = (0..=255).collect();
    let event = Event::from_bytes("raw", &bytes).unwrap();
    run(&within(&folder, "cat > input"), &event).await.unwrap();
    assert_eq!(read(&folder, "input"), bytes);
}

#[tokio::test]
async fn a_large_payload_is_passed_whole_and_need_not_be_read() {
    let folder = folder();
    let event = Event::new("t", &"x".repeat(1024 * 1024 - 2)).unwrap();
    run(&within(&folder, "cat > input"), &event).await.unwrap();
    assert_eq!(read(&folder, "input"), event.payload().as_bytes());

    // Around the largest input that fits into a pipe.
    for bytes in [4096, 4097] {
        let event = Event::new("t", &"x".repeat(bytes - 2)).unwrap();
        let command = r#"test "$(wc -c)" = "$TENURE_PAYLOAD_BYTES""#;
        run(command, &event).await.unwrap();
    }

    // These are not failures: the command need not read its input.
    for command in ["true", "head -c 1 > /dev/null", "exec <&-; sleep 0.01"] {
        run(command, &event).await.unwrap();
    }
    // This command prints more than a pipe holds before it reads.
    let command = within(&folder, "yes | head -c 300000 >&2; cat > input; exit 0");
    run(&command, &event).await.unwrap();
    assert_eq!(read(&folder, "input"), event.payload().as_bytes());
}

#[tokio::test]
async fn a_value_with_a_nul_character_is_rejected() {
    let stored = tenure_core::StoredEvent {
        topic: "t".to_owned(),
        payload: "1".to_owned(),
        encoding: None,
        event_id: "0198c0de-0000-7000-8000-000000000001".parse().unwrap(),
        queue: tenure_core::QueueName::default(),
        priority: tenure_core::Priority::default(),
        ordering_key: None,
        headers: [("trace".to_owned(), "can\0ary".to_owned())].into(),
    };
    let error = run("true", &stored.into()).await.unwrap_err();
    assert_eq!(error.kind, PublishErrorKind::Reject);
    assert!(
        error
            .reason
            .starts_with("TENURE_HEADER_TRACE contains a NUL")
    );
    assert!(!error.reason.contains("ary"));
}

/// The other half of the next test: a program with a secret in its environment.
#[tokio::test]
async fn as_a_program_with_a_secret() {
    let Some(folder) = argument() else { return };
    let exec = Exec::new(format!("cd '{folder}' && env > variables")).hide(["TENURE_DATABASE"]);
    exec.publish(&publication(&event())).await.unwrap();
}

#[tokio::test]
async fn a_command_inherits_no_hidden_variable_and_none_that_its_event_lacks() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    let program = another_process("exec::as_a_program_with_a_secret", path)
        .env("TENURE_DATABASE", "postgres://canary-hidden@db")
        .env("TENURE_KEY", "canary-of-another-event")
        .env("ORDINARY", "inherited")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(program.success());
    let variables = String::from_utf8(read(&folder, "variables")).unwrap();
    assert!(!variables.contains("canary"));
    assert!(variables.contains("ORDINARY=inherited\n"));
    assert!(variables.contains("TENURE_TOPIC=order.paid\n"));
}

#[tokio::test]
async fn a_dropped_command_is_killed_with_the_processes_it_started() {
    let folder = folder();
    let command = within(
        &folder,
        "trap '' TERM\nsleep 600 & echo $! > grandchild\n\
         (sleep 600 & echo $! > deeper; wait) &\necho $$ > child\nwait",
    );
    let exec = Exec::new(command);
    let event = event();
    let publication = publication(&event);
    let started = async {
        let mut pids = Vec::new();
        for name in ["grandchild", "deeper", "child"] {
            pids.push(process(&folder, name).await);
        }
        assert!(pids.iter().all(|pid| !is_gone(*pid)));
        pids
    };
    // The call that does not finish first is dropped.
    let pids = tokio::select! {
        answer = exec.publish(&publication) => panic!("it exited by itself: {answer:?}"),
        pids = started => pids,
    };
    until("all are gone", async || {
        pids.iter().all(|pid| is_gone(*pid))
    })
    .await;
    // Our own child is not left as a zombie either.
    let child = pids.last().unwrap().as_raw_nonzero();
    let entry = format!("/proc/{child}");
    until("it was waited for", async || !Path::new(&entry).exists()).await;
}

#[tokio::test]
async fn a_command_that_runs_too_long_is_terminated_and_then_killed() {
    let folder = folder();
    // Exits with 0 on `SIGTERM`, which does not count.
    let polite = within(
        &folder,
        "trap 'echo term > term; exit 0' TERM\necho $$ > polite\nwhile :; do sleep 0.01; done",
    );
    // Ignores `SIGTERM` and has a child.
    let deaf = within(
        &folder,
        "trap '' TERM\nsleep 600 & echo $! > behind; echo $$ > deaf; wait",
    );
    let event = event();
    let stopped = async |command: String| {
        // Long enough for a shell to start, however busy the machine.
        let exec = Exec::new(command).timeout(Duration::from_millis(1500));
        exec.publish(&publication(&event)).await.unwrap_err()
    };
    let (first, second) = tokio::join!(stopped(polite), stopped(deaf));
    for (name, error) in [("polite", first), ("deaf", second)] {
        assert_eq!(error.kind, RETRY);
        assert_eq!(error.reason, "stopped: it was still running after 1.5s");
        let pid = process(&folder, name).await;
        assert!(test_kill_process(pid).is_err(), "{name} was waited for");
    }
    assert_eq!(read(&folder, "term"), b"term\n");
    let behind = process(&folder, "behind").await;
    until("what it started is gone", async || is_gone(behind)).await;
}

#[tokio::test]
async fn a_command_is_stopped_before_the_lease_is_over() {
    let event = event();
    let before = Instant::now();
    let publication = Publication {
        time_left: Duration::from_millis(400),
        ..publication(&event)
    };
    let exec = Exec::new("exec sleep 600").timeout(Duration::from_mins(10));
    let error = exec.publish(&publication).await.unwrap_err();
    assert_eq!(error.reason, "stopped: it was still running after 300ms");
    assert!(before.elapsed() < Duration::from_secs(10));

    let publication = Publication {
        time_left: Duration::ZERO,
        ..publication
    };
    let folder = folder();
    let exec = Exec::new(within(&folder, "echo > started"));
    assert_eq!(exec.publish(&publication).await.unwrap_err().kind, RETRY);
    assert!(!folder.path().join("started").exists());
}

#[tokio::test]
async fn processes_left_behind_neither_delay_nor_outlive_a_command() {
    let folder = folder();
    let event = Event::new("t", &"x".repeat(500_000)).unwrap();
    // The process left behind keeps input and standard error open.
    let command = within(&folder, "sleep 600 <&0 & echo $! > left; exit 3");
    let answer = timeout(Duration::from_secs(10), run(&command, &event)).await;
    assert_eq!(answer.unwrap().unwrap_err().reason, "exit code 3");
    let left = process(&folder, "left").await;
    until("it is gone", async || is_gone(left)).await;
}

#[tokio::test]
async fn many_commands_run_at_once() {
    let event = event();
    let publication = publication(&event);
    let folder = folder();
    // Each waits for all the others, so they exit only if they run concurrently.
    let command = within(
        &folder,
        "echo > \"at.$$\"\nwhile [ \"$(ls | grep -c at)\" -lt 5 ]; do sleep 0.01; done",
    );
    let exec = Exec::new(command);
    let one = || exec.publish(&publication);
    let all = async { tokio::try_join!(one(), one(), one(), one(), one()) };
    timeout(Duration::from_secs(20), all)
        .await
        .unwrap()
        .unwrap();
}

#[test]
fn debug_output_leaves_out_the_command() {
    let exec = Exec::new("curl -H 'authorization: canary'");
    assert!(!format!("{exec:?}").contains("canary"));
}

#[tokio::test]
async fn a_command_continues_the_trace_of_its_event() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let echo = r#"echo "$TRACEPARENT|$TRACESTATE" > seen"#;
    for (given, state, expected) in [
        (parent, Some("v=1"), format!("{parent}|v=1\n")),
        (parent, None, format!("{parent}|\n")),
        (parent, Some(""), format!("{parent}|\n")),
        ("malformed", Some("v=1"), "|\n".to_owned()),
    ] {
        let folder = folder();
        let mut event = NewEvent::from(event()).traceparent(given);
        if let Some(state) = state {
            event = event.header("tracestate", state);
        }
        let event = event.build().unwrap();
        run(&within(&folder, echo), &event).await.unwrap();
        assert_eq!(read(&folder, "seen"), expected.into_bytes());
    }
}
