//! Workers that are killed, stopped or replaced while a command runs.

use std::collections::HashSet;
use std::fs;

use rustix::process::Signal;
use tenure_nemesis::Schedule;

use super::script::script;
use crate::program::{Place, Running, everywhere, postgres, sqlite};

/// Polls until the condition holds; `what` describes it in the panic message.
pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    tenure_nemesis::until(what, async || is_so()).await;
}

fn worker(place: &Place, name: &str, term: &str) -> Running {
    let args = [
        "jobs",
        "run",
        "--kind",
        "import",
        "--exec",
        "sh job.sh",
        "--name",
        name,
        "--term",
        term,
        "--chunk-term",
        term,
    ];
    let mut running = place.start(&args);
    running.line_with(" works on jobs of ");
    running
}

/// Goal: a kill in the middle of a job costs only the chunk in progress. Method: a script records
/// each chunk in a file; its worker is killed with SIGKILL half-way, and another worker takes over
/// the job when the lease has lapsed.
async fn killed_in_the_middle(place: &Place) {
    let chunks = 8 * Schedule::from_environment().kills.min(50);
    let id = place.job("import");
    script(
        place,
        &"first=${TENURE_CURSOR:-1}
         tenure jobs note --total CHUNKS || exit 75
         for chunk in $(seq $first CHUNKS); do
           tenure jobs chunk claim $chunk > /dev/null 2>&1
           case $? in 0) ;; 3) continue ;; *) exit 75 ;; esac
           echo $chunk >> worked
           tenure jobs chunk done $chunk --rows 10 || exit 75
           if [ $((chunk % 10)) = 0 ]; then
             tenure jobs note --cursor $chunk || exit 75
           fi
         done"
            .replace("CHUNKS", &chunks.to_string()),
    );
    let worked = || -> Vec<String> {
        let text = fs::read_to_string(place.path("worked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let first = worker(place, "first", "5s");
    until("the middle is reached", || worked().len() >= chunks / 2).await;
    // Dropping the value kills the worker with SIGKILL.
    drop(first);
    let second = worker(place, "second", "5s");
    until("the job is done", || {
        place.job_field(&id, "state") == r#""completed""#
    })
    .await;
    second.terminate();
    second.wait().succeeded();

    let worked = worked();
    let distinct: HashSet<_> = worked.iter().collect();
    assert_eq!(distinct.len(), chunks, "none is left out");
    // A machine that stands still for a term costs another lease, and with it a chunk.
    let crashes = place.job_field(&id, "crashes");
    let crashes: usize = crashes.parse().unwrap_or_default();
    assert!((1..4).contains(&crashes), "{crashes} crashes");
    let repeated = worked.len() - chunks;
    assert!(repeated <= crashes, "{repeated} repeated");
    assert_eq!(
        place.job_field(&id, "progress.chunks_done"),
        chunks.to_string()
    );
    assert_eq!(
        place.job_field(&id, "progress.rows"),
        (chunks * 10).to_string()
    );
}

/// Proves: S5-001, S5-002, S5-003, S5-007, S5-045
#[tokio::test]
async fn a_kill_costs_only_the_chunk_in_progress_on_sqlite() {
    killed_in_the_middle(&sqlite()).await;
}

/// Proves: S5-001, S5-002, S5-003, S5-007, S5-045
#[tokio::test]
async fn a_kill_costs_only_the_chunk_in_progress_on_postgres() {
    let place = postgres().await;
    place.run(&["migrate"]).succeeded();
    killed_in_the_middle(&place).await;
}

#[tokio::test]
async fn a_cancel_stops_the_command() {
    for place in everywhere().await {
        let id = place.job("import");
        script(&place, "echo $$ > pid; mv pid began; exec sleep 600");
        let running = worker(&place, "only", "5s");
        until("the command runs", || place.path("began").exists()).await;
        let pid = fs::read_to_string(place.path("began")).unwrap();
        place
            .run(&["jobs", "cancel", &id, "--reason", "enough"])
            .succeeded();
        let process = format!("/proc/{}", pid.trim());
        until("the command is gone", || !fs::exists(&process).unwrap()).await;
        assert!(place.job_field(&id, "error").contains("enough"));
        running.terminate();
        running.wait().succeeded();
        assert_eq!(place.job_field(&id, "state"), r#""failed""#);
    }
}

#[tokio::test]
async fn a_command_that_runs_too_long_is_stopped_and_its_job_is_retried() {
    for place in everywhere().await {
        let id = place.job("import");
        script(
            &place,
            "if [ $TENURE_ATTEMPT = 1 ]; then
               echo $$ > pid; mv pid began; exec sleep 600
             fi",
        );
        let args = ["jobs", "run", "--kind", "import", "--exec", "sh job.sh"];
        let running = place.start(&[&args[..], &["--max-hold", "1s"]].concat());
        until("the command runs", || place.path("began").exists()).await;
        let pid = fs::read_to_string(place.path("began")).unwrap();
        let process = format!("/proc/{}", pid.trim());
        until("the command is gone", || !fs::exists(&process).unwrap()).await;
        until("the second attempt is done", || {
            place.job_field(&id, "state") == r#""completed""#
        })
        .await;
        assert_eq!(place.job_field(&id, "failures"), "1");
        assert_eq!(place.job_field(&id, "crashes"), "0");
        running.terminate();
        running.wait().succeeded();
    }
}

/// Goal: the result of a worker that was paused past its term is refused. Method: SIGSTOP; the
/// command of the paused worker succeeds after another worker has taken over and finished the job.
/// Proves: S5-028
#[tokio::test]
async fn the_late_result_of_a_paused_worker_is_refused() {
    for place in everywhere().await {
        let id = place.job("import");
        script(
            &place,
            "if [ $TENURE_ATTEMPT = 1 ]; then
               touch began
               until [ -e go ]; do sleep 0.05; done
               echo '{\"attempt\": 1}'; touch ended
             else
               echo '{\"attempt\": 2}'
             fi",
        );
        let still = worker(&place, "still", "5s");
        until("the command runs", || place.path("began").exists()).await;
        still.pause(&place);
        let next = worker(&place, "next", "5s");
        until("the other worker completes the job", || {
            place.job_field(&id, "state") == r#""completed""#
        })
        .await;
        let completed_at = place.job_field(&id, "completed_at");
        place.write("go", "");
        until("the late command ends", || place.path("ended").exists()).await;
        still.signal(Signal::CONT);
        for worker in [still, next] {
            worker.terminate();
            worker.wait().succeeded();
        }
        assert_eq!(place.job_field(&id, "result"), r#"{"attempt":2}"#);
        assert_eq!(place.job_field(&id, "completed_at"), completed_at);
        assert_eq!(place.job_field(&id, "crashes"), "1");
    }
}
