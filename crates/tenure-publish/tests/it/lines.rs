//! Lines: complete, in the documented form, and on disk before the event counts as done.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_core::{Event, NewEvent, Publication, PublishError, PublishErrorKind, Publisher};
use tenure_publish::Lines;
use tokio::task::JoinSet;

use super::{another_process, argument, publication, until};

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn values(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'), "the last line is not whole");
    let read = |line| serde_json::from_str(line).unwrap();
    text.lines().map(read).collect()
}

async fn publish(lines: &Lines, event: &Event) -> Result<(), PublishError> {
    lines.publish(&publication(event)).await
}

fn assert_away(answer: Result<(), PublishError>, expected: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind, PublishErrorKind::Away { after: None });
    assert!(error.reason.contains(expected), "{error}");
}

#[tokio::test]
async fn a_line_has_every_field_of_its_event() {
    let folder = folder();
    let path = folder.path().join("events.jsonl");
    let lines = Lines::file(&path).unwrap();
    let id = "0198c0de-0000-7000-8000-000000000001";
    let event = NewEvent::from_json("order.paid", "{\"b\": 1.50,\r\n \"a\": \"x\\ny\"}")
        .event_id(id.parse().unwrap())
        .queue("mail")
        .key("customer-7")
        .header("Trace", "a\"b")
        .build()
        .unwrap();
    publish(&lines, &event).await.unwrap();
    let bytes = Event::from_bytes("raw", &[0, 255]).unwrap();
    publish(&lines, &bytes).await.unwrap();

    let expected = concat!(
        r#"{"id":7,"event_id":"0198c0de-0000-7000-8000-000000000001","topic":"order.paid","#,
        r#""queue":"mail","key":"customer-7","attempt":2,"fence":9,"headers":{"trace":"a\"b"},"#,
        r#""payload":{"b": 1.50,   "a": "x\ny"}}"#,
        "\n",
        r#"{"id":7,"event_id":null,"topic":"raw","queue":"default","key":null,"attempt":2,"#,
        r#""fence":9,"headers":{},"encoding":"base64","payload":"AP8="}"#,
        "\n"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
}

#[tokio::test]
async fn a_large_payload_is_written_unchanged() {
    let folder = folder();
    let path = folder.path().join("events.jsonl");
    let lines = Lines::file(&path).unwrap();
    let payload = "x".repeat(1024 * 1024 - 2);
    publish(&lines, &Event::new("t", &payload).unwrap())
        .await
        .unwrap();
    assert_eq!(values(&path)[0]["payload"], payload);
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_created_again() {
    let folder = folder();
    let path = folder.path().join("events.jsonl");
    let lines = Lines::file(&path).unwrap();
    publish(&lines, &Event::new("one", &1).unwrap())
        .await
        .unwrap();
    let rotated = folder.path().join("events.1.jsonl");
    fs::rename(&path, &rotated).unwrap();
    publish(&lines, &Event::new("two", &2).unwrap())
        .await
        .unwrap();
    assert_eq!(values(&rotated)[0]["topic"], "one");
    assert_eq!(values(&path)[0]["topic"], "two");
}

#[tokio::test]
async fn an_incomplete_last_line_is_ended_before_the_next_line() {
    let folder = folder();
    let path = folder.path().join("events.jsonl");
    fs::write(&path, "{\"id\":6,\"top").unwrap();
    let lines = Lines::file(&path).unwrap();
    publish(&lines, &Event::new("t", &1).unwrap())
        .await
        .unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let (torn, whole) = text.split_once('\n').unwrap();
    assert_eq!(torn, "{\"id\":6,\"top");
    assert_eq!(serde_json::from_str::<Value>(whole).unwrap()["id"], 7);
}

#[tokio::test]
async fn an_unwritable_target_is_away() {
    let event = Event::new("t", &1).unwrap();
    let full = Lines::file("/dev/full").unwrap();
    assert_away(publish(&full, &event).await, "cannot append to /dev/full");

    let folder = folder();
    let a_folder = Lines::file(folder.path()).unwrap();
    assert_away(publish(&a_folder, &event).await, "cannot append to");

    // The publisher writes as soon as it can.
    let path = folder.path().join("not").join("yet");
    let lines = Lines::file(&path).unwrap();
    assert_away(publish(&lines, &event).await, "cannot append to");
    fs::create_dir(folder.path().join("not")).unwrap();
    publish(&lines, &event).await.unwrap();
    assert_eq!(values(&path).len(), 1);
}

#[tokio::test]
async fn a_file_that_may_not_be_read_can_be_appended_to() {
    let folder = folder();
    let path = folder.path().join("events.jsonl");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o200)).unwrap();
    let lines = Lines::file(&path).unwrap();
    publish(&lines, &Event::new("t", &1).unwrap())
        .await
        .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(values(&path).len(), 1);
}

/// Publishes `count` events at once, of many lengths.
async fn publish_many(path: &Path, name: &str, count: usize) {
    let lines = std::sync::Arc::new(Lines::file(path).unwrap());
    let mut under_way = JoinSet::new();
    for number in 0..count {
        let lines = std::sync::Arc::clone(&lines);
        let payload = json!({"number": number, "filling": "x".repeat(number * 37 % 9000)});
        let event = Event::new(name, &payload).unwrap();
        under_way.spawn(async move { publish(&lines, &event).await });
    }
    while let Some(published) = under_way.join_next().await {
        published.unwrap().unwrap();
    }
}

fn numbers(values: &[Value], name: &str) -> Vec<u64> {
    let of_name = values.iter().filter(|value| value["topic"] == name);
    let mut numbers: Vec<u64> = of_name
        .map(|value| value["payload"]["number"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The other half of the next test.
#[tokio::test]
async fn as_the_other_writer() {
    if let Some(path) = argument() {
        publish_many(Path::new(&path), "other", 400).await;
    }
}

#[tokio::test]
async fn two_processes_append_whole_lines_to_one_file() {
    let folder = folder();
    let path = folder.path().join("events.jsonl");
    let mut other = another_process("lines::as_the_other_writer", path.to_str().unwrap())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Both at the same time, not one after the other.
    until("the other one writes", async || path.exists()).await;
    publish_many(&path, "own", 400).await;
    assert!(other.wait().unwrap().success());
    let values = values(&path);
    assert_eq!(values.len(), 800);
    assert_eq!(numbers(&values, "own"), (0..400).collect::<Vec<_>>());
    assert_eq!(numbers(&values, "other"), (0..400).collect::<Vec<_>>());
}

/// The other half of the next test: its files are limited to 4 KiB. An event counts as done only if
/// its whole line is in the file.
#[tokio::test]
async fn as_a_writer_on_a_full_disk() {
    let Some(path) = argument() else { return };
    let path = Path::new(&path);
    let lines = Lines::file(path).unwrap();
    let event = Event::new("t", &"x".repeat(1000)).unwrap();
    for _ in 0..3 {
        publish(&lines, &event).await.unwrap();
    }
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    let whole = length(path);
    assert_away(publish(&lines, &event).await, "the disk may be full");
    assert!(length(path) > whole, "a part of it was written");
    assert_away(publish(&lines, &event).await, "cannot append to");

    // Once there is space again, the next line begins after the incomplete one.
    fs::rename(path, path.with_extension("full")).unwrap();
    let written = fs::read(path.with_extension("full")).unwrap();
    let torn = &written[usize::try_from(whole).unwrap()..];
    fs::write(path, torn).unwrap();
    publish(&lines, &event).await.unwrap();
    let text = fs::read_to_string(path).unwrap();
    let (_, last) = text.split_once('\n').unwrap();
    assert_eq!(serde_json::from_str::<Value>(last).unwrap()["id"], 7);
}

#[tokio::test]
async fn on_a_full_disk_no_missing_line_counts_as_done() {
    let folder = folder();
    let path = folder.path().join("events.jsonl");
    let again = another_process("lines::as_a_writer_on_a_full_disk", path.to_str().unwrap());
    // A limit on the file size simulates a full disk; with the signal ignored it becomes an error.
    let output = Command::new("sh")
        .arg("-c")
        .arg("trap '' XFSZ; ulimit -f 8; exec \"$@\"")
        .arg("sh")
        .arg(again.get_program())
        .args(again.get_args())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

/// The other half of the next test: five lines to the output.
#[tokio::test]
async fn as_a_writer_to_the_output() {
    if argument().is_some() {
        let lines = Lines::stdout().unwrap();
        let event = Event::new("t", &"x".repeat(100_000)).unwrap();
        for _ in 0..5 {
            publish(&lines, &event).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_output_gets_whole_lines_through_a_pipe() {
    let output = another_process("lines::as_a_writer_to_the_output", "")
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    // The test program prints to the same output.
    let whole = text
        .lines()
        .filter_map(|line| line.find("{\"id\":7").map(|start| &line[start..]))
        .filter(|line| serde_json::from_str::<Value>(line).unwrap()["fence"] == 9);
    assert_eq!(whole.count(), 5);
}

#[tokio::test]
async fn a_payload_that_is_not_json_is_rejected() {
    let folder = folder();
    let lines = Lines::file(folder.path().join("events.jsonl")).unwrap();
    let stored = tenure_core::StoredEvent {
        topic: "t".to_owned(),
        payload: "{canary".to_owned(),
        encoding: None,
        event_id: "0198c0de-0000-7000-8000-000000000001".parse().unwrap(),
        queue: tenure_core::QueueName::default(),
        priority: tenure_core::Priority::default(),
        ordering_key: None,
        headers: std::collections::BTreeMap::new(),
    };
    let error = publish(&lines, &stored.into()).await.unwrap_err();
    assert_eq!(error.kind, PublishErrorKind::Reject);
    assert!(!error.reason.contains("canary"));
}

#[tokio::test]
async fn a_pipe_without_a_reader_is_away_before_the_lease_is_over() {
    let folder = folder();
    let path = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let lines = Lines::file(&path).unwrap();
    let event = Event::new("t", &1).unwrap();
    for _ in 0..2 {
        let nearly_over = Publication {
            time_left: Duration::from_millis(40),
            ..publication(&event)
        };
        let answer = lines.publish(&nearly_over).await;
        assert_away(answer, "was not written within 30ms");
    }
    // Once the pipe has a reader, the pending line is written.
    let reader = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        BufReader::new(File::open(path).unwrap())
            .read_line(&mut text)
            .unwrap();
        text
    });
    assert!(reader.await.unwrap().contains(r#""payload":1"#));
}
