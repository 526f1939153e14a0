//! Diagnosis of unfinished jobs with `tenure jobs why` and `tenure doctor`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::sync::Arc;
use std::time::Duration;

use tenure::job::{ChunkAnswer, HeldJob};
use tenure::lease::Claim;
use tenure::{Outcome, Tenure, Term, Worker};
use tokio::sync::Notify;

use crate::adopt::apply;
use crate::program::{Finished, Place, everywhere, soon};

/// Returns the code from the JSON output, and the plain output.
#[track_caller]
fn why(place: &Place, id: &str) -> (String, Finished) {
    let details = place.run(&["jobs", "why", id, "--json"]).succeeded();
    assert_eq!(details.field("id"), id);
    let output = place.run(&["jobs", "why", id]).succeeded();
    assert_eq!(
        details.field("hint") == "null",
        output.err.is_empty(),
        "{output:?}"
    );
    (details.field("code").trim_matches('"').to_owned(), output)
}

/// Starts a worker that runs one job of this kind at a time; each notification ends a job.
async fn worker(place: &Place, kind: &str) -> (Worker, Arc<Notify>) {
    let go_on = Arc::new(Notify::new());
    let notify = Arc::clone(&go_on);
    let work = move |_: HeldJob| {
        let notify = Arc::clone(&notify);
        async move {
            notify.notified().await;
            Ok(Outcome::Done)
        }
    };
    let jobs = place.tenure().await.jobs();
    let worker = jobs.on(kind, work).concurrency(1).start().await;
    (worker.unwrap(), go_on)
}

/// Claims a job under a lease that has lapsed on return.
async fn lapse(place: &Place, id: &str) -> Tenure {
    let tenure = place.tenure().await;
    let term = Term::new(Duration::from_millis(1)).unwrap();
    let claim = Claim::new(tenure.token(), 1).term(term).recovery(None);
    let jobs = tenure.store().job_store().unwrap();
    assert!(jobs.job_leases().claim(&claim).await.unwrap().is_some());
    soon(async || (place.job_field(id, "state") == r#""lapsed""#).then_some(())).await;
    tenure
}

#[tokio::test]
async fn why_names_the_missing_worker_of_a_waiting_job() {
    for place in everywhere().await {
        place
            .run(&["jobs", "why", "1"])
            .failed(3, "there is no job 1", "jobs list");
        let id = place.job("import");
        let (code, output) = why(&place, &id);
        assert_eq!(code, "no_worker");
        assert_eq!(output.out, "it is due, but no worker for jobs is running\n");
        let hint = "hint: `tenure jobs run --kind import --exec CMD`";
        assert!(output.err.starts_with(hint), "{output:?}");
        // `show` hints at `why`.
        let details = place.run(&["jobs", "show", &id]).succeeded();
        assert!(
            details.err.contains(&format!("`tenure jobs why {id}`")),
            "{details:?}"
        );

        let later = ["jobs", "enqueue", "import", "{}", "--delay", "1h", "--json"];
        let later = place.run(&later).succeeded().field("id");
        let (code, output) = why(&place, &later);
        assert_eq!(code, "delayed");
        let expected = "its producer delayed it: it is due in ";
        assert!(output.out.starts_with(expected), "{output:?}");

        let (other, _) = worker(&place, "export").await;
        soon(async || (why(&place, &id).0 == "unserved").then_some(())).await;
        let (_, output) = why(&place, &id);
        assert_eq!(
            output.out,
            "it is due, but no running worker takes jobs of import\n"
        );
        let workers = place.run(&["workers", "--json"]).succeeded();
        let serves = workers.column("queues");
        assert_eq!(serves, [r#""table tenure_jobs, kind export""#]);
        other.stop().await;
    }
}

#[tokio::test]
async fn why_names_the_holder_of_a_running_job_and_explains_a_waiting_one() {
    for place in everywhere().await {
        let id = place.job("import");
        let (worker, go_on) = worker(&place, "import").await;
        soon(async || (place.job_field(&id, "state") == r#""running""#).then_some(())).await;
        let holder = place.job_field(&id, "holder");
        let holder = holder.trim_matches('"');
        // Another program holds a chunk of the same matrix.
        let helper = place.tenure().await;
        let matrix = helper.matrix(&format!("job-{id}")).unwrap();
        let chunk = matrix.chunk("2026-11").claim().await.unwrap();
        assert!(matches!(chunk, ChunkAnswer::Claimed(_)), "{chunk:?}");
        let (code, output) = why(&place, &id);
        assert_eq!(code, "running");
        let began = format!("{holder} has been at work on it for ");
        assert!(output.out.starts_with(&began), "{output:?}");
        for part in [
            ", under a lease for another 4m ",
            ", its last heartbeat ",
            "; 1 chunk of its matrix is held by others: 2026-11 (by ",
        ] {
            assert!(output.out.contains(part), "no {part:?} in {output:?}");
        }

        let next = place.job("import");
        let (code, output) = why(&place, &next);
        assert_eq!(code, "waiting");
        let expected = "it is the only due job of its kind, for ";
        assert!(output.out.starts_with(expected), "{output:?}");
        let expected = "; its workers run 1 of 1 jobs\n";
        assert!(output.out.ends_with(expected), "{output:?}");
        assert!(output.err.starts_with("hint: all are busy"), "{output:?}");
        go_on.notify_one();
        soon(async || (why(&place, &id).0 == "completed").then_some(())).await;
        go_on.notify_one();
        soon(async || (why(&place, &next).0 == "completed").then_some(())).await;
        worker.stop().await;
    }
}

#[tokio::test]
async fn why_explains_a_job_that_lapsed_failed_or_was_cancelled() {
    for place in everywhere().await {
        let id = place.job("import");
        lapse(&place, &id).await;
        let (code, output) = why(&place, &id);
        assert_eq!(code, "lapsed");
        let expected = "; it may be claimed now, and resumes where it was, but no worker for \
                        jobs is running\n";
        assert!(output.out.ends_with(expected), "{output:?}");

        // The job fails once, or more often if its first delay is short.
        place.drain("exit 1");
        apply(&place, "update tenure_jobs set available_at = NOW + HOUR").await;
        let (code, output) = why(&place, &id);
        assert_eq!(code, "backoff");
        let times = match place.job_field(&id, "failures").as_str() {
            "1" => "once".to_owned(),
            "2" => "twice".to_owned(),
            more => format!("{more} times"),
        };
        let failed = format!("it failed {times} (25 are allowed), last with ");
        assert!(output.out.starts_with(&failed), "{output:?}");
        let lapsed = " and its lease lapsed once (5 are allowed); it is retried in ";
        assert!(output.out.contains(lapsed), "{output:?}");

        let cancel = ["jobs", "cancel", &id, "--reason", "the wrong file"];
        place.run(&cancel).succeeded();
        let (code, output) = why(&place, &id);
        assert_eq!(code, "cancelled");
        assert!(output.out.ends_with(" ago: the wrong file\n"), "{output:?}");
        assert_eq!(place.job_field(&id, "cancelled"), "true");

        let id = place.job("import");
        place.drain("exit 65");
        let (code, output) = why(&place, &id);
        assert_eq!(code, "failed");
        let expected = "because its holder reported that a retry cannot help: ";
        assert!(output.out.contains(expected), "{output:?}");
        assert!(
            output.err.contains(&format!("`tenure jobs retry {id}`")),
            "{output:?}"
        );
        assert_eq!(place.job_field(&id, "cancelled"), "false");
    }
}

/// The first claim of the drain settles a job that lapsed too often as dead. The drain does not
/// count this job, because its worker never worked on it.
#[tokio::test]
async fn a_drain_does_not_count_jobs_that_died_with_other_workers() {
    for place in everywhere().await {
        let id = place.job("import");
        lapse(&place, &id).await;
        apply(&place, "update tenure_jobs set crashes = 5").await;
        let output = place.drain("true");
        assert!(output.err.contains("jobs: 0 done\n"), "{output:?}");
        assert_eq!(place.job_field(&id, "state"), r#""failed""#);
    }
}

/// Returns the doctor's verdict and finding on a subject; `None` if there is no finding.
fn doctor(place: &Place, subject: &str) -> Option<String> {
    let output = place.run(&["doctor", "--json"]);
    let of = |finding: &serde_json::Value| finding["subject"] == subject;
    let finding = output.objects().into_iter().find(of)?;
    let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        text("verdict") == "good",
        finding["hint"].is_null(),
        "{finding}"
    );
    Some(format!("{}: {}", text("verdict"), text("finding")))
}

#[tokio::test]
async fn the_doctor_checks_jobs_and_their_chunks() {
    for place in everywhere().await {
        assert_eq!(doctor(&place, "jobs"), None, "there are none");
        let id = place.job("import");
        let good = doctor(&place, "jobs").unwrap();
        assert_eq!(good, "good: 1 due, 0 delayed, 0 running");

        apply(
            &place,
            "update tenure_jobs set created_at = created_at - HOUR",
        )
        .await;
        let late = doctor(&place, "jobs").unwrap();
        assert!(
            late.starts_with("bad: no active worker takes import (1 due, the first for 1h"),
            "{late}"
        );
        let (worker, go_on) = worker(&place, "import").await;
        go_on.notify_one();
        soon(async || (place.job_field(&id, "state") == r#""completed""#).then_some(())).await;
        assert_eq!(doctor(&place, "jobs"), None, "it is done");
        worker.stop().await;

        let id = place.job("import");
        let tenure = lapse(&place, &id).await;
        let matrix = tenure.matrix(&format!("job-{id}")).unwrap();
        let chunk = matrix.chunk("2026-11").claim().await.unwrap();
        assert_eq!(doctor(&place, "lapsed jobs"), None, "it lapsed just now");
        assert_eq!(doctor(&place, "chunks"), None);
        let long_ago = "update tenure_jobs set locked_until = locked_until - HOUR, crashes = 2
                        where locked_until is not null;
                        update tenure_checkpoints set locked_until = locked_until - HOUR";
        apply(&place, long_ago).await;
        let lapsed = doctor(&place, "lapsed jobs").unwrap();
        let expected = "bad: lapsed and not claimed again: import (1, the first 1h";
        assert!(lapsed.starts_with(expected), "{lapsed}");
        let crashing = doctor(&place, "crashing jobs").unwrap();
        assert_eq!(crashing, "warning: lapsed twice or more: import (1)");
        let chunks = doctor(&place, "chunks").unwrap();
        let expected = format!("warning: lapsed and not claimed again: 2026-11 of job-{id} (5");
        assert!(chunks.starts_with(&expected), "{chunks}");
        drop(chunk);

        place.drain("exit 65");
        let failed = doctor(&place, "failed jobs").unwrap();
        assert_eq!(failed, "warning: in the last day: import (1)");
        assert_eq!(doctor(&place, "lapsed jobs"), None);
        assert_eq!(doctor(&place, "chunks"), None, "its job has ended");
        // A cancelled job does not count as failed.
        let id = place.job("export");
        place.run(&["jobs", "cancel", &id]).succeeded();
        let failed = doctor(&place, "failed jobs").unwrap();
        assert_eq!(failed, "warning: in the last day: import (1)");
        let output = place.run(&["doctor"]);
        let hint = "hint: `tenure jobs list --state failed` lists them";
        assert!(output.out.contains(hint), "{output:?}");
    }
}
