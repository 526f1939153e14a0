//! `tenure jobs`: operators' commands, and the command that a worker runs for each job.

mod diagnosis;
mod kills;
mod script;
mod socket;
mod terminal;

use serde_json::Value;

use crate::program::{Finished, Place, everywhere, sqlite};

impl Place {
    /// Enqueues a job of this kind; returns its number.
    fn job(&self, kind: &str) -> String {
        let args = ["jobs", "enqueue", kind, r#"{"n":1}"#, "--json"];
        self.run(&args).succeeded().field("id")
    }

    /// Returns one field of a job, as JSON text.
    fn job_field(&self, id: &str, name: &str) -> String {
        let output = self.run(&["jobs", "show", id, "--json"]).succeeded();
        let [job] = output.objects().try_into().expect("one job");
        let part = |value: Value, part| value.get(part).cloned().unwrap_or_default();
        name.split('.').fold(job, part).to_string()
    }

    /// Runs this command for each job of kind `import` until none is due.
    fn drain(&self, command: &str) -> Finished {
        let args = ["jobs", "run", "--kind", "import", "--drain", "--exec"];
        self.run(&[&args[..], &[command]].concat()).succeeded()
    }
}

/// Proves: S5-008, S5-048
#[tokio::test]
async fn jobs_are_enqueued_listed_printed_and_counted() {
    for place in everywhere().await {
        let id = place.job("import");
        let later = [
            "jobs", "enqueue", "report", "{}", "--matrix", "m", "--delay", "1h",
        ];
        place.run(&later).succeeded();
        let urgent = [
            "jobs",
            "enqueue",
            "import",
            "2",
            "--priority",
            "-3",
            "--json",
        ];
        place.run(&urgent).succeeded();

        let list = place.run(&["jobs", "--json"]).succeeded();
        assert_eq!(
            list.column("kind"),
            [r#""import""#, r#""report""#, r#""import""#]
        );
        let of = |args: &[&str]| {
            let args = [&["jobs", "list", "--json"], args].concat();
            place.run(&args).succeeded().column("id")
        };
        assert_eq!(of(&["--kind", "import"]).len(), 2);
        assert_eq!(of(&["--matrix", "m"]).len(), 1);
        assert_eq!(of(&["--state", "available", "--limit", "2"]).len(), 2);
        place.run(&["jobs", "list", "--state", "running"]).ended(3);
        let table = place.run(&["jobs", "list", "--limit", "1"]).succeeded();
        assert!(table.out.contains("available  import"), "{table:?}");
        assert!(
            table.err.contains("there are more: add --before 3"),
            "{table:?}"
        );

        let details = place.run(&["jobs", "show", &id]).succeeded();
        for part in ["state     available", "progress  0 chunks", r#"{"n":1}"#] {
            assert!(details.out.contains(part), "no {part:?} in {details:?}");
        }
        let stats = place.run(&["stats", "--json"]).succeeded();
        let jobs = stats.objects()[0]["jobs"].clone();
        assert_eq!(
            (jobs["due"].as_u64(), jobs["delayed"].as_u64()),
            (Some(2), Some(1))
        );
        let table = place.run(&["stats"]).succeeded();
        assert!(table.out.contains("JOBS DUE"), "{table:?}");
    }
}

/// Proves: S5-008
#[tokio::test]
async fn an_ended_job_does_not_change_and_a_retry_is_a_new_job_on_the_same_chunks() {
    for place in everywhere().await {
        let id = place.job("import");
        let early = place.run(&["jobs", "retry", &id]);
        early.failed(4, "has not ended", "jobs cancel");
        let cancel = ["jobs", "cancel", &id, "99", "--reason", "the wrong file"];
        let output = place.run(&cancel).ended(3);
        assert!(
            output.out.contains(&format!("cancelled {id}\n")),
            "{output:?}"
        );
        assert_eq!(place.job_field(&id, "state"), r#""failed""#);
        assert!(place.job_field(&id, "error").contains("the wrong file"));
        let again = place.run(&["jobs", "cancel", &id]).ended(4);
        assert!(again.out.starts_with("not cancelled"), "{again:?}");

        let retried = place.run(&["jobs", "retry", &id, "--json"]).succeeded();
        let new = retried.field("id");
        assert_ne!(new, id);
        assert_eq!(place.job_field(&new, "retry_of"), id);
        assert_eq!(place.job_field(&new, "payload"), r#"{"n":1}"#);
        let matrix = place.job_field(&id, "matrix");
        assert_eq!(place.job_field(&new, "matrix"), matrix);
        assert_eq!(
            place.job_field(&id, "state"),
            r#""failed""#,
            "the retried job is unchanged"
        );
        let second = place.run(&["jobs", "retry", &id]);
        let retry = format!("tenure jobs retry {new}");
        second.failed(4, &format!("has a retry already: job {new}"), &retry);
        let listed = place.run(&["jobs", "list", "--json"]).succeeded();
        assert_eq!(listed.column("id"), [&*new, &*id], "nothing was written");
        place.drain("true");
        assert_eq!(place.job_field(&new, "state"), r#""completed""#);
        let second = place.run(&["jobs", "retry", &id]);
        second.failed(4, &format!("has a retry already: job {new}"), &retry);
        let third = place.run(&["jobs", "retry", &new, "--json"]).succeeded();
        assert_eq!(third.field("retry_of"), new, "a retry can be retried");
        place.drain("true");
        let ended = place.run(&["jobs", "cancel", &new]).ended(4);
        assert!(ended.out.contains("already settled"), "{ended:?}");
        assert_eq!(place.job_field(&new, "state"), r#""completed""#);
    }
}

#[tokio::test]
async fn a_job_is_followed_to_its_end() {
    for place in everywhere().await {
        let id = place.job("import");
        let mut follower = place.start(&["jobs", "show", &id, "--follow"]);
        assert_eq!(follower.out_line(), "available: 0 chunks\n");
        place.drain("echo '{\"rows\": 7}'");
        let output = follower.wait().succeeded();
        assert!(output.out.contains("state      completed"), "{output:?}");
        assert!(output.out.contains("result: {\"rows\": 7}"), "{output:?}");

        let follow = ["jobs", "enqueue", "import", "1", "--follow", "--json"];
        let mut follower = place.start(&follow);
        let written: Value = serde_json::from_str(&follower.out_line()).unwrap();
        place
            .run(&["jobs", "cancel", &written["id"].to_string()])
            .succeeded();
        let output = follower.wait().ended(1);
        let last = output.objects().pop().unwrap();
        assert_eq!(last["state"], "failed", "a cancelled job has failed");
    }
}

#[test]
fn bad_input_is_refused_with_the_expected_form() {
    let place = sqlite();
    for (args, message) in [
        (&["jobs", "show", "seven"][..], "such as 17"),
        (&["jobs", "show", "-1"], "unexpected argument"),
        (&["jobs", "show", "1", "--chunks", "0"], "1..=1000"),
        (&["jobs", "enqueue", "", "1"], "kind of a job is \"\""),
        (&["jobs", "enqueue", "import", "no json"], "payload"),
        (
            &["jobs", "enqueue", "import", "1", "--priority", "99999"],
            "32767",
        ),
        (
            &["jobs", "enqueue", "import", "1", "--delay", "soon"],
            "such as 30s",
        ),
        (
            &["jobs", "enqueue", "import", "1", "--matrix", ""],
            "1 to 200 bytes",
        ),
        (
            &["jobs", "list", "--state", "pending"],
            "available, running, lapsed",
        ),
        (&["jobs", "list", "--limit", "0"], "1..=1000"),
        (&["jobs", "cancel"], "<ID>"),
        (&["jobs", "cancel", "1", "--reason", " "], "a few words"),
        (&["jobs", "run", "--exec", "true"], "--kind"),
        (&["jobs", "run", "--kind", "import"], "--exec"),
        (
            &[
                "jobs", "run", "--kind", "a", "--exec", "true", "--term", "0s",
            ],
            "term",
        ),
        (
            &[
                "jobs",
                "run",
                "--kind",
                "a",
                "--exec",
                "true",
                "--concurrency",
                "0",
            ],
            "--concurrency",
        ),
        (&["jobs", "note"], "--cursor"),
        (&["jobs", "note", "--total", "-1"], "--total"),
        (&["jobs", "chunk", "done", "a", "--rows", "many"], "--rows"),
    ] {
        let output = place.run(args).ended(2);
        assert_eq!(output.out, "", "{args:?}");
        assert!(
            output.err.contains(message),
            "{args:?}: no {message:?} in {output:?}"
        );
    }
    assert!(!place.file().exists(), "no database was created");
    place
        .run(&["jobs", "show", "1"])
        .failed(3, "there is no database", "tenure");
    place.run(&["migrate"]).succeeded();
    place
        .run(&["jobs", "show", "1"])
        .failed(3, "no job 1", "jobs list");
    place
        .run(&["jobs", "retry", "1"])
        .failed(3, "no job 1", "jobs list");
}

#[test]
fn requests_outside_of_a_job_or_after_its_worker_is_gone_fail() {
    let place = sqlite();
    let output = place.run(&["jobs", "chunk", "claim", "a"]);
    output.failed(2, "not the command of a job", "jobs run");
    let mut lost = place.command(env!("CARGO_BIN_EXE_tenure").as_ref());
    lost.env("TENURE_JOB_SOCKET", place.path("gone"));
    lost.args(["jobs", "note", "--cursor", "7"]);
    let output = crate::program::finish(lost, b"");
    output.failed(4, "does not answer", "stop");
}
