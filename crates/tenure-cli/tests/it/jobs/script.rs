//! The command that is run for a job: what it is told, what it can say, what its end means.

use std::fs;
use std::path::Path;

use crate::program::{Place, everywhere, said, sqlite};

/// A script in the place's folder, with the program as `tenure`.
pub(super) fn script(place: &Place, text: &str) {
    let program = env!("CARGO_BIN_EXE_tenure");
    place.write(
        "job.sh",
        &format!("tenure() {{ {program} \"$@\"; }}\n{text}"),
    );
}

#[test]
fn a_command_sees_its_job_and_neither_our_settings_nor_our_secrets() {
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
            "cat > input; env | sort | cut -d= -f1 > names; env > seen",
        ]);
    let ran = said(command, b"").succeeded();
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    assert_eq!(read("input"), r#"{"secret":"canary"}"#);
    assert!(
        !ran.err.contains("canary"),
        "no log shows a payload: {ran:?}"
    );
    assert!(!read("seen").contains("canary"), "{}", read("seen"));
    assert!(read("seen").contains("TENURE_MATRIX=job-1"));
    let names = read("names");
    let ours: Vec<_> = names
        .lines()
        .filter(|name| name.starts_with("TENURE_"))
        .collect();
    // Nothing here is a token or an address.
    let expected = [
        "TENURE_ATTEMPT",
        "TENURE_FENCE",
        "TENURE_ID",
        "TENURE_JOB_SOCKET",
        "TENURE_KIND",
        "TENURE_MATRIX",
        "TENURE_TIME_LEFT_MS",
    ];
    assert_eq!(ours, expected);
    assert!(names.contains("PLAIN"));
}

#[tokio::test]
async fn an_exit_code_is_the_outcome() {
    for place in everywhere().await {
        for (code, state, is_failure) in [
            (0, r#""completed""#, false),
            (65, r#""failed""#, true),
            (75, r#""available""#, false),
            (1, r#""available""#, true),
        ] {
            let id = place.job("import");
            let said = place.drain(&format!("echo oops >&2; exit {code}"));
            let (told, listed) = match code {
                0 => ("jobs: 1 done\n", false),
                65 => ("jobs: 0 done, 1 dead\n", true),
                75 => ("jobs: 0 done, 1 given back\n", false),
                _ => (" to be tried again\n", false),
            };
            assert!(said.err.contains(told), "{said:?}");
            let hint = "`tenure jobs list --state failed`";
            assert_eq!(said.err.contains(hint), listed, "{said:?}");
            assert_eq!(place.job_field(&id, "state"), state, "exit code {code}");
            // It may have been tried more than once: the first pause is short.
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

/// Goal: a script works chunk by chunk, and whoever comes next goes on where it was.
/// Proves: S5-035, S5-037, S5-039, S5-040, S5-041
#[tokio::test]
async fn a_script_claims_chunks_and_the_next_try_does_only_what_is_left() {
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
        let shown = place.run(&["jobs", "show", &id]).succeeded();
        assert!(shown.out.contains("cut off"), "{shown:?}");

        // What said "not now" is due again in a while; here at once, as a new job.
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
        // What has ended has no time left, and its rate does not fall while one looks on.
        assert_eq!(place.job_field(&new, "progress.seconds_left"), "null");
        let rate = || place.job_field(&new, "progress.rows_per_second");
        assert_eq!(rate(), rate());
        assert_eq!(place.job_field(&new, "state"), r#""completed""#);
        assert_eq!(place.job_field(&new, "result"), r#"{"done":3}"#);
        assert_eq!(place.job_field(&new, "progress.rows"), "30");
    }
}

/// Goal: a chunk that can never be done does not keep its job from its end, and nobody is given it
/// again: neither the same command nor a retry of the job.
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
        assert!(refused.contains("chunk b is not in hand"), "{refused}");
        assert_eq!(place.job_field(&id, "state"), r#""completed""#);
        for (field, expected) in [("done", "1"), ("failed", "1"), ("running", "0")] {
            let field = format!("progress.chunks_{field}");
            assert_eq!(place.job_field(&id, &field), expected, "{field}");
        }
        let shown = place.run(&["jobs", "show", &id]).succeeded();
        for part in ["1/2 chunks, 1 failed, 10 rows", "no such month"] {
            assert!(shown.out.contains(part), "no {part:?} in {shown:?}");
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
async fn a_chunk_is_in_one_hand_at_a_time_and_given_back_with_the_command() {
    for place in everywhere().await {
        for _ in 0..2 {
            let args = ["jobs", "enqueue", "import", "1", "--matrix", "m"];
            place.run(&args).succeeded();
        }
        // The first has it until the second has seen that.
        script(
            &place,
            "if mkdir first 2> /dev/null; then
               tenure jobs chunk claim a || exit 65
               touch claimed
               until [ -e seen ]; do sleep 0.05; done
             else
               until [ -e claimed ]; do sleep 0.05; done
               tenure jobs chunk claim a --no-wait --json > answer; echo $? >> answer
               touch seen
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
        assert!(refused.contains("chunk a is not in hand"), "{refused}");
        let said = place.run(&["jobs", "list", "--state", "completed", "--json"]);
        assert_eq!(said.succeeded().objects().len(), 2);
    }
}

#[tokio::test]
async fn of_many_chunks_a_few_are_shown_and_more_if_asked_for() {
    for place in everywhere().await {
        let id = place.job("import");
        let jobs = place.tenure().await;
        let matrix = jobs.matrix(&format!("job-{id}")).unwrap();
        for nth in 10..23 {
            let claimed = matrix.chunk(&format!("c{nth}")).claim().await.unwrap();
            let tenure::ChunkAnswer::Claimed(chunk) = claimed else {
                panic!("nobody has it");
            };
            match nth {
                10 => chunk.complete(1).await.unwrap(),
                22 => chunk.fail_for_good("no such month").await.unwrap(),
                _ => chunk.fail("cut off").await.unwrap(),
            }
        }
        let shown = |args: &[&str]| {
            let said = place.run(&[&["jobs", "show", &id], args].concat());
            let said = said.succeeded();
            let lines = |word: &str| said.out.matches(word).count();
            let counts = (lines("no such month"), lines("cut off"));
            assert!(said.out.contains("1 chunks, 1 failed"), "{said:?}");
            (counts, said.err)
        };
        let (counts, more) = shown(&[]);
        assert_eq!(counts, (1, 9), "what failed for good comes first");
        assert!(more.contains("there are more: --chunks 100"), "{more}");
        let (counts, more) = shown(&["--chunks", "1"]);
        assert_eq!(counts, (1, 0));
        assert!(more.contains("there are more: --chunks 10\n"), "{more}");
        let (counts, more) = shown(&["--chunks", "12"]);
        assert_eq!(counts, (1, 11));
        assert!(!more.contains("there are more"), "{more}");

        assert_eq!(place.job_field(&id, "chunks"), "null", "not asked for");
        let asked = ["jobs", "show", &id, "--json", "--chunks", "2"];
        let job = place.run(&asked).succeeded().objects().remove(0);
        let chunks = job["chunks"].as_array().unwrap();
        assert_eq!(chunks.len(), 2, "{job}");
        assert_eq!(chunks[0]["chunk"], "c22", "{job}");
        assert_eq!(chunks[0]["state"], "failed", "{job}");
        assert_eq!(chunks[0]["error"], "no such month", "{job}");
        assert_eq!(chunks[1]["error"], "cut off", "{job}");
    }
}
