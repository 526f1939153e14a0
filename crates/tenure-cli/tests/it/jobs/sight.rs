//! What an operator sees of jobs that are not done: `tenure jobs why`, `tenure doctor`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also where it is not in the test function itself"
)]

use std::sync::Arc;
use std::time::Duration;

use tenure::{ChunkAnswer, Claim, HeldJob, Outcome, Tenure, Term, Worker};
use tokio::sync::Notify;

use crate::adopt::apply;
use crate::program::{Place, Said, everywhere, soon};

/// What is said of a job: the word for programs, and what a person reads.
#[track_caller]
fn why(place: &Place, id: &str) -> (String, Said) {
    let shown = place.run(&["jobs", "why", id, "--json"]).succeeded();
    assert_eq!(shown.field("id"), id);
    let said = place.run(&["jobs", "why", id]).succeeded();
    assert_eq!(
        shown.field("hint") == "null",
        said.err.is_empty(),
        "{said:?}"
    );
    (shown.field("code").trim_matches('"').to_owned(), said)
}

/// A worker with one place that takes jobs of this kind and works until it is told to go on.
async fn worker(place: &Place, kind: &str) -> (Worker, Arc<Notify>) {
    let go_on = Arc::new(Notify::new());
    let told = Arc::clone(&go_on);
    let work = move |_: HeldJob| {
        let told = Arc::clone(&told);
        async move {
            told.notified().await;
            Ok(Outcome::Done)
        }
    };
    let jobs = place.tenure().await.jobs();
    let worker = jobs.on(kind, work).concurrency(1).start().await;
    (worker.unwrap(), go_on)
}

/// Holds a job under a lease that has lapsed by now.
async fn lapse(place: &Place, id: &str) -> Tenure {
    let tenure = place.tenure().await;
    let term = Term::new(Duration::from_millis(1)).unwrap();
    let claim = Claim::new(tenure.token(), 1).term(term).recovery(None);
    let book = tenure.store().job_book().unwrap();
    assert!(book.job_leases().claim(&claim).await.unwrap().is_some());
    soon(async || (place.job_field(id, "state") == r#""lapsed""#).then_some(())).await;
    tenure
}

#[tokio::test]
async fn a_job_that_waits_says_for_whom() {
    for place in everywhere().await {
        place
            .run(&["jobs", "why", "1"])
            .failed(3, "there is no job 1", "jobs list");
        let id = place.job("import");
        let (code, said) = why(&place, &id);
        assert_eq!(code, "no_worker");
        assert_eq!(said.out, "it is due, but no worker on jobs is here\n");
        let hint = "hint: `tenure jobs run --kind import --exec CMD`";
        assert!(said.err.starts_with(hint), "{said:?}");
        // Whoever looks at it is told where to ask.
        let shown = place.run(&["jobs", "show", &id]).succeeded();
        assert!(
            shown.err.contains(&format!("`tenure jobs why {id}`")),
            "{shown:?}"
        );

        let later = ["jobs", "enqueue", "import", "{}", "--delay", "1h", "--json"];
        let later = place.run(&later).succeeded().field("id");
        let (code, said) = why(&place, &later);
        assert_eq!(code, "delayed");
        let expected = "its producer held it back: it is due in ";
        assert!(said.out.starts_with(expected), "{said:?}");

        let (other, _) = worker(&place, "export").await;
        soon(async || (why(&place, &id).0 == "unserved").then_some(())).await;
        let (_, said) = why(&place, &id);
        assert_eq!(
            said.out,
            "it is due, but no worker here takes jobs of import\n"
        );
        let workers = place.run(&["workers", "--json"]).succeeded();
        let serves = workers.column("queues");
        assert_eq!(serves, [r#""table tenure_jobs, kind export""#]);
        other.stop().await;
    }
}

#[tokio::test]
async fn a_job_in_hand_says_by_whom_and_what_waits_behind_it_says_so() {
    for place in everywhere().await {
        let id = place.job("import");
        let (worker, go_on) = worker(&place, "import").await;
        soon(async || (place.job_field(&id, "state") == r#""running""#).then_some(())).await;
        let holder = place.job_field(&id, "holder");
        let holder = holder.trim_matches('"');
        // Somebody else works on a chunk of the same matrix.
        let helper = place.tenure().await;
        let matrix = helper.matrix(&format!("job-{id}")).unwrap();
        let chunk = matrix.chunk("2026-11").claim().await.unwrap();
        assert!(matches!(chunk, ChunkAnswer::Claimed(_)), "{chunk:?}");
        let (code, said) = why(&place, &id);
        assert_eq!(code, "running");
        let began = format!("{holder} has been at work on it for ");
        assert!(said.out.starts_with(&began), "{said:?}");
        for part in [
            ", under a lease for another 4m ",
            ", its last heartbeat ",
            "; 1 chunk of its matrix is held by others: 2026-11 (by ",
        ] {
            assert!(said.out.contains(part), "no {part:?} in {said:?}");
        }

        let next = place.job("import");
        let (code, said) = why(&place, &next);
        assert_eq!(code, "waiting");
        let expected = "it is the only one of its kind that is due, for ";
        assert!(said.out.starts_with(expected), "{said:?}");
        let expected = "; of the places for it 1 of 1 is taken\n";
        assert!(said.out.ends_with(expected), "{said:?}");
        assert!(said.err.starts_with("hint: all are busy"), "{said:?}");
        go_on.notify_one();
        soon(async || (why(&place, &id).0 == "completed").then_some(())).await;
        go_on.notify_one();
        soon(async || (why(&place, &next).0 == "completed").then_some(())).await;
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_job_that_lapsed_failed_or_was_cancelled_says_so() {
    for place in everywhere().await {
        let id = place.job("import");
        lapse(&place, &id).await;
        let (code, said) = why(&place, &id);
        assert_eq!(code, "lapsed");
        let expected = "; it may be claimed now, and is taken up where it was, but no worker on \
                        jobs is here\n";
        assert!(said.out.ends_with(expected), "{said:?}");

        // It fails by a command that says so: once, or again if its first wait was short.
        place.drain("exit 1");
        apply(&place, "update tenure_jobs set available_at = NOW + HOUR").await;
        let (code, said) = why(&place, &id);
        assert_eq!(code, "backoff");
        let times = match place.job_field(&id, "failures").as_str() {
            "1" => "once".to_owned(),
            "2" => "twice".to_owned(),
            more => format!("{more} times"),
        };
        let failed = format!("it failed {times} (10 are allowed), last with ");
        assert!(said.out.starts_with(&failed), "{said:?}");
        let lapsed = " and its lease lapsed once (5 are allowed); it is tried again in ";
        assert!(said.out.contains(lapsed), "{said:?}");

        let cancel = ["jobs", "cancel", &id, "--reason", "the wrong file"];
        place.run(&cancel).succeeded();
        let (code, said) = why(&place, &id);
        assert_eq!(code, "cancelled");
        assert!(said.out.ends_with(" ago: the wrong file\n"), "{said:?}");
        assert_eq!(place.job_field(&id, "cancelled"), "true");

        let id = place.job("import");
        place.drain("exit 65");
        let (code, said) = why(&place, &id);
        assert_eq!(code, "failed");
        let expected = "because its holder said that trying again is no use: ";
        assert!(said.out.contains(expected), "{said:?}");
        assert!(
            said.err.contains(&format!("`tenure jobs retry {id}`")),
            "{said:?}"
        );
        assert_eq!(place.job_field(&id, "cancelled"), "false");
    }
}

/// Whoever claims next ends what lapsed once too often; it did not work on that.
#[tokio::test]
async fn a_drain_does_not_count_what_died_in_the_hands_of_others() {
    for place in everywhere().await {
        let id = place.job("import");
        lapse(&place, &id).await;
        apply(&place, "update tenure_jobs set crashes = 5").await;
        let said = place.drain("true");
        assert!(said.err.contains("jobs: 0 done\n"), "{said:?}");
        assert_eq!(place.job_field(&id, "state"), r#""failed""#);
    }
}

/// What the doctor says of a subject, its verdict first; nothing if it does not mention it.
fn doctor(place: &Place, subject: &str) -> Option<String> {
    let said = place.run(&["doctor", "--json"]);
    let of = |found: &serde_json::Value| found["subject"] == subject;
    let found = said.objects().into_iter().find(of)?;
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        text("verdict") == "good",
        found["hint"].is_null(),
        "{found}"
    );
    Some(format!("{}: {}", text("verdict"), text("found")))
}

#[tokio::test]
async fn the_doctor_looks_at_jobs_and_their_chunks() {
    for place in everywhere().await {
        assert_eq!(doctor(&place, "jobs"), None, "there are none");
        let id = place.job("import");
        let good = doctor(&place, "jobs").unwrap();
        assert_eq!(good, "good: 1 due, 0 delayed, 0 in hand");

        apply(
            &place,
            "update tenure_jobs set created_at = created_at - HOUR",
        )
        .await;
        let late = doctor(&place, "jobs").unwrap();
        assert!(
            late.starts_with("bad: no worker here takes import (1 due, the first for 1h"),
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
        assert_eq!(doctor(&place, "lapsed jobs"), None, "that is no time");
        assert_eq!(doctor(&place, "chunks"), None);
        let long_ago = "update tenure_jobs set locked_until = locked_until - HOUR, crashes = 2
                        where locked_until is not null;
                        update tenure_checkpoints set locked_until = locked_until - HOUR";
        apply(&place, long_ago).await;
        let lapsed = doctor(&place, "lapsed jobs").unwrap();
        let expected = "bad: lapsed, and nobody has claimed them since: import (1, the first 1h";
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
        // One that was cancelled has not failed.
        let id = place.job("export");
        place.run(&["jobs", "cancel", &id]).succeeded();
        let failed = doctor(&place, "failed jobs").unwrap();
        assert_eq!(failed, "warning: in the last day: import (1)");
        let said = place.run(&["doctor"]);
        let hint = "hint: `tenure jobs list --state failed` lists them";
        assert!(said.out.contains(hint), "{said:?}");
    }
}
