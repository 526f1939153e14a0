//! The command of a job: its environment, its requests and its exit codes.

use std::fs;
use std::path::Path;

use crate::program::{Place, everywhere, finish, sqlite};

/// Writes the script `job.sh`, in which `tenure` runs the program under test.
pub(super) fn script(place: &Place, text: &str) {
    let program = env!("CARGO_BIN_EXE_tenure");
    place.write(
        "job.sh",
        &format!("tenure() {{ {program} \"$@\"; }}\n{text}"),
    );
}

#[test]
fn a_command_gets_its_job_but_neither_our_settings_nor_our_secrets() {
    let place = sqlite();
    place
        .run(&["jobs", "enqueue", "import", r#"{"secret":"canary"}"#])
        .succeeded();
    let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
    command
        .env("PLAIN", "stays")
        .env("PGPASSWORD", "canary")
        .env("TENURE_CURSOR", "canary")
        .env("TENURE_LOG_LEVEL", "trace")
        .args(["jobs", "run", "--kind", "import", "--drain"])
        .args([
            "--exec",
            "cat > input; env | sort | cut -d= -f1 > names; env > variables",
        ]);
    let ran = finish(command, b"").succeeded();
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    assert_eq!(read("input"), r#"{"secret":"canary"}"#);
    assert!(
        !ran.err.contains("canary"),
        "no log shows a payload: {ran:?}"
    );
    assert!(
        !read("variables").contains("canary"),
        "{}",
        read("variables")
    );
    assert!(read("variables").contains("TENURE_MATRIX=job-1"));
    let names = read("names");
    let ours: Vec<_> = names
        .lines()
        .filter(|name| name.starts_with("TENURE_"))
        .collect();
    // No variable contains a token or an address.
    let expected = [
        "TENURE_ATTEMPT",
        "TENURE_FENCE",
        "TENURE_ID",
        "TENURE_JOB_SOCKET",
        "TENURE_KIND",
        "TENURE_MATRIX",
        "TENURE_PAYLOAD_BYTES",
        "TENURE_TIME_LEFT_MS",
    ];
    assert_eq!(ours, expected);
    assert!(names.contains("PLAIN"));
}

#[tokio::test]
async fn the_exit_code_decides_the_outcome() {
    for place in everywhere().await {
        for (code, state, is_failure) in [
            (0, r#""completed""#, false),
            (65, r#""failed""#, true),
            (75, r#""available""#, false),
            (1, r#""available""#, true),
        ] {
            let id = place.job("import");
            let output = place.drain(&format!("echo oops >&2; exit {code}"));
            let (message, listed) = match code {
                0 => ("jobs: 1 done\n", false),
                65 => ("jobs: 0 done, 1 dead\n", true),
                75 => ("jobs: 0 done, 1 released\n", false),
                _ => (" to be retried\n", false),
            };
            assert!(output.err.contains(message), "{output:?}");
            let hint = "`tenure jobs list --state failed`";
            assert_eq!(output.err.contains(hint), listed, "{output:?}");
            assert_eq!(place.job_field(&id, "state"), state, "exit code {code}");
            // The job may have been tried more than once, because the first delay is short.
            let has_failed = place.job_field(&id, "failures") != "0";
            assert_eq!(has_failed, is_failure, "exit code {code}");
            if is_failure {
                let error = place.job_field(&id, "error");
                assert!(
                    error.contains(&format!("exit code {code}: oops")),
                    "{error}"
                );
            }
            place.run(&["jobs", "cancel", &id]);
        }
    }
}

/// Goal: a script works chunk by chunk, and a retry of its job continues with the unfinished
/// chunks, each at its cursor.
/// Proves: S5-035, S5-037, S5-039, S5-040, S5-041
#[tokio::test]
async fn a_script_claims_chunks_and_a_retry_works_only_on_the_unfinished_ones() {
    for place in everywhere().await {
        let id = place.job("import");
        script(
            &place,
            "tenure jobs note --total 3 --cursor \"try $TENURE_ATTEMPT\" || exit 1
             echo \"cursor: $TENURE_CURSOR\" >> log
             for chunk in a b c; do
               cursor=$(tenure jobs chunk claim $chunk)
               case $? in 0) ;; 3) continue ;; *) exit 1 ;; esac
               echo \"$chunk: $cursor\" >> log
               if [ $chunk$TENURE_ATTEMPT = b1 ]; then
                 tenure jobs chunk note b --cursor half || exit 1
                 tenure jobs chunk fail b --error 'cut off' || exit 1
                 exit 75
               fi
               tenure jobs chunk done $chunk --rows 10 || exit 1
             done
             echo progress; echo '{\"done\": 3}'",
        );
        place.drain("sh job.sh");
        let log = || fs::read_to_string(place.path("log")).unwrap();
        assert_eq!(log(), "cursor: \na: \nb: \n");
        assert_eq!(place.job_field(&id, "progress.chunks_done"), "1");
        let details = place.run(&["jobs", "show", &id]).succeeded();
        assert!(details.out.contains("cut off"), "{details:?}");

        // A job whose command exits with 75 (unavailable) is due again later; the test uses a
        // retry, which runs at once.
        place.run(&["jobs", "cancel", &id]).succeeded();
        let new = place
            .run(&["jobs", "retry", &id, "--json"])
            .succeeded()
            .field("id");
        script(
            &place,
            "for chunk in a b c; do
               cursor=$(tenure jobs chunk claim $chunk) || continue
               echo \"$chunk: $cursor\" >> log
               tenure jobs chunk done $chunk --rows 10 || exit 1
             done
             echo '{\"done\": 3}'",
        );
        place.drain("sh job.sh");
        assert_eq!(log(), "cursor: \na: \nb: \nb: half\nc: \n");
        // A finished job has no remaining time, and its rate no longer changes.
        assert_eq!(place.job_field(&new, "progress.seconds_left"), "null");
        let rate = || place.job_field(&new, "progress.rows_per_second");
        assert_eq!(rate(), rate());
        assert_eq!(place.job_field(&new, "state"), r#""completed""#);
        assert_eq!(place.job_field(&new, "result"), r#"{"done":3}"#);
        assert_eq!(place.job_field(&new, "progress.rows"), "30");
    }
}

/// Goal: a chunk that can never be done does not prevent the end of its job. No later claim gets
/// the chunk, neither by the same command nor by a retry of the job.
///
/// Proves: S5-008, S5-033
#[tokio::test]
async fn a_script_fails_a_chunk_for_good_and_goes_on() {
    for place in everywhere().await {
        let id = place.job("import");
        script(
            &place,
            "tenure jobs note --total 2
             for chunk in a b; do
               tenure jobs chunk claim $chunk --json 2>> log > answer
               code=$?; echo $chunk: $code >> log
               [ $code = 0 ] || { cat answer >> log; continue; }
               if [ $chunk = b ]; then
                 tenure jobs chunk fail b --error 'no such month' --for-good; echo $? >> log
                 tenure jobs chunk claim b 2>> log; echo $? >> log
                 tenure jobs chunk fail b --error again --for-good 2> refused; echo $? >> log
               else
                 tenure jobs chunk done $chunk --rows 10 || exit 1
               fi
             done",
        );
        place.drain("sh job.sh");
        let log = || fs::read_to_string(place.path("log")).unwrap();
        assert_eq!(log(), "a: 0\nb: 0\n0\nchunk b failed for good\n3\n4\n");
        let refused = fs::read_to_string(place.path("refused")).unwrap();
        assert!(refused.contains("has not claimed chunk b"), "{refused}");
        assert_eq!(place.job_field(&id, "state"), r#""completed""#);
        for (field, expected) in [("done", "1"), ("failed", "1"), ("running", "0")] {
            let field = format!("progress.chunks_{field}");
            assert_eq!(place.job_field(&id, &field), expected, "{field}");
        }
        let details = place.run(&["jobs", "show", &id]).succeeded();
        for part in ["1/2 chunks, 1 failed, 10 rows", "no such month"] {
            assert!(details.out.contains(part), "no {part:?} in {details:?}");
        }

        place.run(&["jobs", "retry", &id]).succeeded();
        fs::remove_file(place.path("log")).unwrap();
        place.drain("sh job.sh");
        let log = log();
        assert!(log.contains("b: 3\n"), "{log}");
        assert!(log.ends_with("{\"answer\":\"failed\"}\n"), "{log}");
    }
}

/// Proves: S5-036
#[tokio::test]
async fn a_chunk_has_one_holder_at_a_time_and_is_released_when_the_command_exits() {
    for place in everywhere().await {
        for _ in 0..2 {
            let args = ["jobs", "enqueue", "import", "1", "--matrix", "m"];
            place.run(&args).succeeded();
        }
        // The first command holds the chunk until the second one has tried to claim it.
        script(
            &place,
            "if mkdir first 2> /dev/null; then
               tenure jobs chunk claim a || exit 65
               touch claimed
               until [ -e refused_once ]; do sleep 0.05; done
             else
               until [ -e claimed ]; do sleep 0.05; done
               tenure jobs chunk claim a --no-wait --json > answer; echo $? >> answer
               touch refused_once
               tenure jobs chunk claim a && tenure jobs chunk done a --again --rows 5
               tenure jobs chunk claim a --fresh-for 1h; echo $? >> answer
               tenure jobs chunk claim a --no-wait && tenure jobs chunk release a
               tenure jobs chunk done a 2> refused; echo $? >> answer
             fi",
        );
        place.drain("sh job.sh");
        let answer = fs::read_to_string(place.path("answer")).unwrap();
        assert!(
            answer.starts_with(r#"{"answer":"held","holder":"tenure-jobs-"#),
            "{answer}"
        );
        assert!(answer.ends_with("}\n3\n3\n4\n"), "{answer}");
        let refused = fs::read_to_string(place.path("refused")).unwrap();
        assert!(refused.contains("has not claimed chunk a"), "{refused}");
        let output = place.run(&["jobs", "list", "--state", "completed", "--json"]);
        assert_eq!(output.succeeded().objects().len(), 2);
    }
}

#[tokio::test]
async fn only_a_few_of_many_chunks_are_printed_unless_more_are_requested() {
    for place in everywhere().await {
        let id = place.job("import");
        let jobs = place.tenure().await;
        let matrix = jobs.matrix(&format!("job-{id}")).unwrap();
        for nth in 10..23 {
            let claimed = matrix.chunk(&format!("c{nth}")).claim().await.unwrap();
            let tenure::job::ChunkAnswer::Claimed(chunk) = claimed else {
                panic!("expected a free chunk");
            };
            match nth {
                10 => chunk.complete(1).await.unwrap(),
                22 => chunk.fail_for_good("no such month").await.unwrap(),
                _ => chunk.fail("cut off").await.unwrap(),
            }
        }
        let details = |args: &[&str]| {
            let output = place.run(&[&["jobs", "show", &id], args].concat());
            let output = output.succeeded();
            let lines = |word: &str| output.out.matches(word).count();
            let counts = (lines("no such month"), lines("cut off"));
            assert!(output.out.contains("1 chunk, 1 failed"), "{output:?}");
            (counts, output.err)
        };
        let (counts, more) = details(&[]);
        assert_eq!(counts, (1, 9), "those that failed for good come first");
        assert!(more.contains("there are more: add --chunks 100"), "{more}");
        let (counts, more) = details(&["--chunks", "1"]);
        assert_eq!(counts, (1, 0));
        assert!(more.contains("there are more: add --chunks 10\n"), "{more}");
        let (counts, more) = details(&["--chunks", "12"]);
        assert_eq!(counts, (1, 11));
        assert!(!more.contains("there are more"), "{more}");

        assert_eq!(place.job_field(&id, "chunks"), "null", "not requested");
        let show = ["jobs", "show", &id, "--json", "--chunks", "2"];
        let job = place.run(&show).succeeded().objects().remove(0);
        let chunks = job["chunks"].as_array().unwrap();
        assert_eq!(chunks.len(), 2, "{job}");
        assert_eq!(chunks[0]["chunk"], "c22", "{job}");
        assert_eq!(chunks[0]["state"], "failed", "{job}");
        assert_eq!(chunks[0]["error"], "no such month", "{job}");
        assert_eq!(chunks[1]["error"], "cut off", "{job}");
    }
}
