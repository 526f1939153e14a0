//! Explanations for jobs: one sentence and one code for every state.

use tenure_core::job::{
    ChunkKey, ChunkName, ChunkRecord, Job, JobId, JobKind, KindStatus, MatrixName,
};
use tenure_core::store::{Presence, WorkerRecord, WorkerReport};
use tenure_core::{
    Counters, Fence, Hold, JobFacts, Settings, SyncState, Timestamp, Why, WorkerId, why_job,
};

use super::{now, seconds};

/// A job of the kind `import` that is due.
fn due() -> Job {
    Job {
        id: JobId::new(7),
        kind: JobKind::new("import").unwrap(),
        matrix: MatrixName::new("orders").unwrap(),
        payload: "{}".to_owned(),
        priority: 0,
        state: SyncState::Available,
        hold: None,
        counters: Counters::default(),
        created_at: now().before(seconds(600)),
        available_at: None,
        completed_at: None,
        failed_at: None,
        is_cancelled: false,
        error: None,
        result: None,
        cursor: None,
        chunks_total: None,
        retry_of: None,
    }
}

fn hold(until: Timestamp) -> Hold {
    Hold {
        holder: holder("loader"),
        fence: Fence::new(1),
        claimed_at: now().before(seconds(120)),
        until,
    }
}

fn holder(name: &str) -> String {
    WorkerId::new(name, 7).unwrap().to_string()
}

/// A job that `loader` has held for two minutes; its lease ends at `until`.
fn held(until: Timestamp) -> Job {
    Job {
        state: SyncState::of(Some(until), None, None, now()),
        hold: Some(hold(until)),
        ..due()
    }
}

fn failed(error: &str) -> Job {
    Job {
        state: SyncState::Failed,
        failed_at: Some(now().before(seconds(60))),
        error: Some(error.to_owned()),
        ..due()
    }
}

/// Facts with the worker `loader`; `serves` is the text that it reports about its work.
fn worker(serves: &str, presence: Presence) -> JobFacts {
    let record = WorkerRecord {
        report: WorkerReport {
            worker: WorkerId::new("loader", 7).unwrap(),
            host: "h".to_owned(),
            pid: 1,
            version: "0.1.0".to_owned(),
            queues: serves.to_owned(),
            topics: tenure_core::TopicSet::any(),
            concurrency: 4,
            running: 1,
            held: 1,
            settings_version: 0,
            next_within: seconds(60),
        },
        started_at: now().before(seconds(3_600)),
        reported_at: now().before(seconds(40)),
        left_at: None,
    };
    JobFacts {
        workers: vec![(record, presence)],
        ..JobFacts::default()
    }
}

fn here() -> JobFacts {
    worker("table tenure_jobs, kind import", Presence::Active)
}

#[track_caller]
fn assert_why(job: &Job, facts: &JobFacts, code: &str, sentence: &str) -> Why {
    let answer = why_job(job, facts, now());
    assert_eq!((answer.code, answer.sentence.as_str()), (code, sentence));
    answer
}

#[test]
fn a_settled_job_names_its_outcome_and_can_be_retried() {
    let done = Job {
        state: SyncState::Completed,
        completed_at: Some(now().before(seconds(90))),
        ..due()
    };
    let facts = JobFacts::default();
    let answer = assert_why(&done, &facts, "completed", "it was completed 1m 30s ago");
    assert!(answer.hint.unwrap().starts_with("`tenure jobs retry 7`"));

    let mut cancelled = failed("the wrong file");
    cancelled.is_cancelled = true;
    let sentence = "it was cancelled 1m ago: the wrong file";
    assert_why(&cancelled, &facts, "cancelled", sentence);

    let rejected = failed("no such table");
    let sentence = "it failed for good 1m ago, because its holder reported that a retry cannot \
                    help: no such table";
    let answer = assert_why(&rejected, &facts, "failed", sentence);
    assert!(answer.hint.unwrap().starts_with("fix the cause"));

    let mut spent = failed("503");
    spent.counters.failures = Settings::default().max_retries + 1;
    let sentence = "it failed for good 1m ago, because it failed 26 times (25 are allowed): 503";
    assert_why(&spent, &facts, "failed", sentence);

    let mut crashed = failed("crash_loop: lease lapsed");
    crashed.counters.crashes = 6;
    let sentence = "it failed for good 1m ago, because its lease lapsed 6 times (5 are allowed): \
                    crash_loop: lease lapsed";
    assert_why(&crashed, &facts, "failed", sentence);
}

#[test]
fn a_held_job_names_its_holder_term_and_heartbeat() {
    let job = held(now().after(seconds(180)));
    let loader = holder("loader");
    let at_work = format!("{loader} has been at work on it for 2m, under a lease for another 3m");
    // A program that claims directly does not report.
    assert_eq!(
        assert_why(&job, &JobFacts::default(), "running", &at_work).hint,
        None
    );
    let with_heartbeat = format!("{at_work}, its last heartbeat 40s ago");
    assert_why(&job, &here(), "running", &with_heartbeat);

    for (presence, how) in [
        (Presence::Silent, "no longer reports"),
        (Presence::Left, "has stopped"),
    ] {
        let facts = worker("table tenure_jobs", presence);
        let sentence = format!(
            "{loader} holds it but {how}, its last heartbeat 40s ago; its lease runs for another 3m"
        );
        let answer = assert_why(&job, &facts, "silent", &sentence);
        assert!(answer.hint.unwrap().contains("`tenure jobs cancel 7`"));
    }
}

#[test]
fn chunks_of_other_workers_are_named_and_counted() {
    let chunk = |name: &str, who: &str, until: Timestamp| ChunkRecord {
        key: ChunkKey {
            matrix: MatrixName::new("orders").unwrap(),
            chunk: ChunkName::new(name).unwrap(),
        },
        state: SyncState::Running,
        hold: Some(Hold {
            holder: holder(who),
            until,
            ..hold(until)
        }),
        row_count: None,
        synced_at: None,
        cursor: None,
        error: None,
    };
    let soon = now().after(seconds(60));
    let mut facts = here();
    // The chunks: one of the job's own holder, one whose lease has lapsed, and one of another
    // worker.
    facts.chunks = vec![
        chunk("mine", "loader", soon),
        chunk("over", "other", now().before(seconds(1))),
        chunk("c1", "other", soon),
    ];
    let job = held(now().after(seconds(180)));
    let other = holder("other");
    let sentence = |facts: &JobFacts| why_job(&job, facts, now()).sentence;
    let one = format!("; 1 chunk of its matrix is held by others: c1 (by {other} for another 1m)");
    assert!(sentence(&facts).ends_with(&one), "{}", sentence(&facts));
    for name in ["c2", "c3", "c4", "c5"] {
        facts.chunks.push(chunk(name, "other", soon));
    }
    let text = sentence(&facts);
    assert!(text.contains("5 chunks of its matrix are held"), "{text}");
    assert!(text.ends_with(", 2 more"), "{text}");
}

#[test]
fn a_lapsed_job_may_be_claimed_unless_it_lapsed_too_often() {
    let mut job = held(now().before(seconds(30)));
    let over = format!(
        "{} held it, but that lease lapsed 30s ago",
        holder("loader")
    );
    let free = format!("{over}; it may be claimed now, and resumes where it was");
    assert_eq!(assert_why(&job, &here(), "lapsed", &free).hint, None);
    let alone = format!("{free}, but no worker for jobs is running");
    let answer = assert_why(&job, &JobFacts::default(), "lapsed", &alone);
    assert!(
        answer
            .hint
            .unwrap()
            .starts_with("`tenure jobs run --kind import --exec CMD`")
    );
    let others = worker("table tenure_jobs, kind export", Presence::Active);
    let unserved = format!("{free}, but no running worker takes jobs of import");
    assert_why(&job, &others, "lapsed", &unserved);
    job.counters.crashes = 5;
    let spent = format!(
        "{over}; the next claim of jobs ends it as failed, since it lapsed 6 times (5 are allowed)"
    );
    assert_why(&job, &here(), "lapsed", &spent);
}

#[test]
fn a_delayed_job_names_its_cause_and_its_failures() {
    let mut job = due();
    job.available_at = Some(now().after(seconds(300)));
    let facts = here();
    let delayed = "its producer delayed it: it is due in 5m";
    assert_why(&job, &facts, "delayed", delayed);
    job.counters.attempts = 2;
    let given = "it was released without a result twice: it is due in 5m";
    assert_why(&job, &facts, "delayed", given);
    job.counters.failures = 3;
    job.counters.crashes = 1;
    job.error = Some("503".to_owned());
    let used = "it failed 3 times (25 are allowed), last with \"503\" and its lease lapsed once \
                (5 are allowed); it is retried in 5m, and at most for another 5d 6h";
    assert_why(&job, &facts, "backoff", used);
}

#[test]
fn a_due_job_names_the_workers_it_waits_for() {
    let job = due();
    let no_worker = "it is due, but no worker for jobs is running";
    assert_why(&job, &JobFacts::default(), "no_worker", no_worker);
    for (serves, presence) in [
        ("", Presence::Active),
        ("default", Presence::Active),
        ("table orders", Presence::Active),
        ("table tenure_jobs, kind import", Presence::Silent),
    ] {
        let answer = assert_why(&job, &worker(serves, presence), "no_worker", no_worker);
        assert!(answer.hint.unwrap().contains("--kind import"), "{serves}");
    }
    let others = worker("table tenure_jobs, kind export", Presence::Active);
    let unserved = "it is due, but no running worker takes jobs of import";
    assert_why(&job, &others, "unserved", unserved);

    let only = "it is the only due job of its kind; its workers run 0 of 4 jobs";
    assert_eq!(assert_why(&job, &here(), "waiting", only).hint, None);
    // A worker of an older version reports no kinds.
    let older = worker("table tenure_jobs", Presence::Active);
    assert_why(&job, &older, "waiting", only);

    let status = |name: &str, running| KindStatus {
        running,
        ..KindStatus::none(JobKind::new(name).unwrap())
    };
    let serves = "table tenure_jobs, kind import, kind export";
    let mut busy = worker(serves, Presence::Active);
    busy.kinds = vec![
        KindStatus {
            due: 3,
            oldest_due: Some(seconds(60)),
            ..status("import", 1)
        },
        status("export", 3),
        // Other workers take jobs of these kinds.
        status("report", 7),
    ];
    let line = "it is one of 3 due jobs of its kind, the oldest for 1m; its workers run 4 \
                of 4 jobs";
    let answer = assert_why(&job, &busy, "waiting", line);
    assert!(answer.hint.unwrap().starts_with("all are busy"));
    busy.kinds[0].due = 1;
    busy.kinds[1].running = 2;
    let line = "it is the only due job of its kind, for 1m; its workers run 3 of 4 \
                jobs";
    assert_eq!(assert_why(&job, &busy, "waiting", line).hint, None);
}

/// A worker reports its kinds as a text for people, and a kind may have any name.
#[test]
fn kinds_are_distinguished_whatever_their_names() {
    let names = [
        "import",
        "a, b",
        "a%2C b",
        "100%",
        "%2C",
        "kind import",
        " x ",
    ];
    for name in names {
        let serves = WorkerReport::on_rows("tenure_jobs", &[name.to_owned()]);
        let facts = worker(&serves, Presence::Active);
        for other in names {
            let kind = JobKind::new(other).unwrap();
            let is_taken = facts.workers[0].0.report.takes(&kind);
            assert_eq!(is_taken, name == other, "{name:?} {other:?} {serves:?}");
        }
    }
}
