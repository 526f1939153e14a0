//! Commands of workers: their input when the worker is killed, and processes that stay.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, test_kill_process};

use crate::adopt::{MAKE, adopted, apply};
use crate::program::{Place, everywhere, sqlite};

/// A payload of 300 kB: several times the capacity of a pipe.
const PAYLOAD_BYTES: usize = 300_000;

async fn until(what: &str, is_so: impl Fn() -> bool) {
    tenure_nemesis::until(what, async || is_so()).await;
}

fn read(place: &Place, name: &str) -> Option<String> {
    let text = fs::read_to_string(place.path(name)).ok()?;
    text.ends_with('\n').then(|| text.trim().to_owned())
}

/// True once the process whose id is in this file is gone.
fn is_gone(place: &Place, name: &str) -> bool {
    let pid = read(place, name).and_then(|pid| pid.parse().ok());
    let pid = pid.and_then(Pid::from_raw).expect("the id of a process");
    test_kill_process(pid).is_err()
}

/// The Python program of the README.
fn documented_worker() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(path).expect("the README");
    let (_, rest) = text.split_once("```python\n").expect("a Python program");
    let (program, _) = rest.split_once("```").expect("its end");
    program.to_owned()
}

/// Goal: a command never takes a part of its payload for the whole. Method: the command waits
/// before it reads, and its worker is killed with SIGKILL meanwhile.
#[tokio::test]
async fn a_command_gets_its_whole_payload_although_its_worker_is_killed() {
    let payload = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES - 2));
    let exec = "echo $$ > pid; until [ -e go ]; do sleep 0.01; done\n\
                echo $(wc -c) of $TENURE_PAYLOAD_BYTES > seen";
    let events: &[&str] = &["work", "--exec", exec];
    let jobs: &[&str] = &["jobs", "run", "--kind", "t", "--exec", exec];
    for (enqueue, work) in [
        (&["enqueue", "t", "-"][..], events),
        (&["jobs", "enqueue", "t", "-"], jobs),
    ] {
        let place = sqlite();
        place.run_with(enqueue, payload.as_bytes()).succeeded();
        let worker = place.start(work);
        until("the command waits", || read(&place, "pid").is_some()).await;
        // Dropping the value kills the worker with SIGKILL and waits for it.
        drop(worker);
        place.write("go", "");
        until("the command has read", || read(&place, "seen").is_some()).await;
        let expected = format!("{PAYLOAD_BYTES} of {PAYLOAD_BYTES}");
        assert_eq!(read(&place, "seen"), Some(expected), "{work:?}");
    }
}

#[test]
fn without_room_for_a_large_payload_the_publisher_is_unavailable() {
    let place = sqlite();
    let payload = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES - 2));
    place
        .run_with(&["enqueue", "large", "-"], payload.as_bytes())
        .succeeded();
    let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
    command
        .env("TMPDIR", place.path("missing"))
        .args(["work", "--exec", "cat > seen"]);
    let mut worker = Place::start_command(command);
    let line = worker.line_with("publisher is unavailable");
    let parts = [
        "input of 300000 bytes",
        "missing: No such file",
        "set TMPDIR",
    ];
    for part in parts {
        assert!(line.contains(part), "no {part:?} in {line}");
    }
    let event = place.run(&["show", "1", "--json"]).succeeded();
    assert_eq!(event.field("failures"), "0", "{event:?}");
    // A small payload needs no folder.
    place.enqueue("small");
    worker.line_with("publisher is back");
    assert_eq!(
        fs::read_to_string(place.path("seen")).ok().as_deref(),
        Some("1")
    );
}

#[tokio::test]
async fn the_python_worker_of_the_readme_works() {
    for place in everywhere().await {
        place.write("worker.py", &documented_worker());
        for payload in [r#"{"order": 7}"#, "{}", r#"{"order": 8}"#] {
            place.run(&["enqueue", "order.paid", payload]).succeeded();
        }
        let exec = ["--exec-lines", "python3 worker.py", "--concurrency", "1"];
        let work = [&["work", "--drain"], &exec[..]].concat();
        let output = place.run(&work).succeeded();
        let counts = output.err.lines().find(|line| line.starts_with("events: "));
        assert!(
            counts.is_some_and(|counts| counts.starts_with("events: 2 done, ")),
            "{output:?}"
        );
        for order in ["order 7", "order 8"] {
            assert!(output.err.contains(order), "{output:?}");
        }
        let failed = place.run(&["show", "2", "--json"]).succeeded();
        let error = r#""publisher exec-lines: KeyError('order')""#;
        assert_eq!(failed.field("last_error"), error, "{failed:?}");
    }
}

/// A process that notes its id, answers `done` and notes the end of its input.
const STAYING: &str = "echo $$ > pid\n\
    while read -r line; do\n\
    id=${line#*:}; echo \"{\\\"id\\\":${id%%,*},\\\"outcome\\\":\\\"done\\\"}\"; done\n\
    echo input > ended";

#[tokio::test]
async fn serve_keeps_the_processes_of_a_route_and_ends_them_when_it_stops() {
    let place = sqlite();
    place.write("staying.sh", STAYING);
    place.write(
        "tenure.toml",
        "[publishers.staying]\nkind = \"exec-lines\"\ncommand = \"sh staying.sh\"\nprocesses = 1\n\
         [[routes]]\ntopics = [\"*\"]\npublisher = \"staying\"\n",
    );
    let mut serving = place.start(&["serve", "--listen", "127.0.0.1:0"]);
    serving.line_with(" serves ");
    place.enqueue("a");
    until("the event is done", || {
        let event = place.run(&["show", "1", "--json"]).succeeded();
        event.field("state") == r#""done""#
    })
    .await;
    assert!(!is_gone(&place, "pid"), "it stays after its event");
    serving.terminate();
    serving.wait().succeeded();
    assert!(is_gone(&place, "pid"));
    assert_eq!(read(&place, "ended").as_deref(), Some("input"));
}

#[tokio::test]
async fn processes_end_when_their_worker_is_killed() {
    let place = sqlite();
    place.write("staying.sh", STAYING);
    place.enqueue("a");
    let worker = place.start(&["work", "--exec-lines", "sh staying.sh"]);
    until("the process runs", || read(&place, "pid").is_some()).await;
    drop(worker);
    until("its input has ended", || read(&place, "ended").is_some()).await;
}

#[tokio::test]
async fn the_rows_of_a_table_go_to_processes_that_stay() {
    for place in everywhere().await {
        apply(&place, MAKE).await;
        adopted(&place);
        place.write("staying.sh", STAYING);
        let work = [
            "work",
            "--table",
            "outbox",
            "--drain",
            "--exec-lines",
            "sh staying.sh",
        ];
        let output = place.run(&work).succeeded();
        assert!(output.err.contains("rows: 2 done\n"), "{output:?}");
    }
}

#[test]
fn a_worker_takes_one_kind_of_command() {
    let place = sqlite();
    let output = place
        .run(&["work", "--exec", "a", "--exec-lines", "b"])
        .ended(2);
    assert!(output.err.contains("--exec-lines"), "{output:?}");
}
