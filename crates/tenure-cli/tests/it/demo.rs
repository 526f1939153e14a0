//! `tenure demo` prints real facts and removes its files.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use tenure::Tenure;

use crate::program::sqlite;

#[test]
fn the_demo_shows_that_the_promises_hold() {
    let place = sqlite();
    // The demo ignores an invalid configuration and another database.
    place.write("tenure.toml", "wrong =");
    let said = place.run(&["demo", "--json"]).succeeded();
    let objects = said.objects();
    assert_eq!(objects.len(), 1, "{said:?}");
    let facts = &objects[0];
    assert_eq!(facts["published"], facts["enqueued"], "{facts}");
    assert!(facts["enqueued"].as_u64() > Some(42), "{facts}");
    assert_eq!(facts["taken_over"], true, "{facts}");
    assert_eq!(facts["late_answer"], "refused", "{facts}");
    assert_eq!(facts["lost"], 0, "{facts}");
    assert_eq!(facts["broken"], serde_json::json!([]), "{facts}");
    // Other workers repeated the events that the killed and the paused worker had begun.
    assert!(facts["duplicates"].as_u64() >= Some(2), "{facts}");
    assert_eq!(facts["unexplained"], 0, "{facts}");
    for (part, name) in [("killed", "alpha-"), ("paused", "bravo-")] {
        let holder = facts[part]["holder_old"].as_str().unwrap();
        assert!(holder.starts_with(name), "{facts}");
    }
    assert!(!place.file().exists());
}

#[tokio::test]
async fn an_interrupted_demo_ends_its_workers_and_with_keep_keeps_its_files() {
    let place = sqlite();
    let mut child = place
        .command(Path::new(env!("CARGO_BIN_EXE_tenure")))
        .env("PATH", "/usr/bin:/bin")
        .args(["demo", "--keep"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let is_going = |line: &String| line.contains("events are being written");
    let mut lines = out.lines().map(Result::unwrap);
    lines.find(is_going).expect("the events begin to flow");
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    // The output closes when the program ends.
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("the demo was interrupted"), "{err}");

    let kept = err.lines().find_map(|line| line.strip_prefix("kept "));
    let kept = Path::new(kept.unwrap_or_else(|| panic!("{err}")));
    let url = format!("sqlite://{}", kept.join("demo.db").display());
    let (_, workers) = Tenure::open(&url).await.unwrap().workers(10).await.unwrap();
    assert_eq!(workers.len(), 3);
    for worker in workers {
        let id = i32::try_from(worker.report.pid).unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        assert!(
            rustix::process::test_kill_process(id).is_err(),
            "{worker:?}"
        );
    }
    std::fs::remove_dir_all(kept).unwrap();
}
