//! Why a job is not being worked on: one sentence, one word, for every standing it can have.

use tenure_core::job::{ChunkKey, ChunkName, ChunkRecord, Job, JobKind, KindStanding, MatrixName};
use tenure_core::store::{Presence, WorkerRecord, WorkerReport};
use tenure_core::{
    Counters, Fence, Hold, JobFacts, Settings, SyncState, Timestamp, Why, WorkerId, why_job,
};

use super::{now, seconds};

/// A job of the kind `import` that is due.
fn due() -> Job {
    Job {
        id: 7,
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

/// A job that `loader` has held for two minutes, until then.
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

/// `loader`, which says this of what it works on.
fn worker(serves: &str, presence: Presence) -> JobFacts {
    let record = WorkerRecord {
        report: WorkerReport {
            worker: WorkerId::new("loader", 7).unwrap(),
            host: "h".to_owned(),
            pid: 1,
            version: "0.1.0".to_owned(),
            queues: serves.to_owned(),
            concurrency: 4,
            running: 1,
            held: 1,
            settings_version: 0,
            next_within: seconds(60),
        },
        started_at: now().before(seconds(3_600)),
        seen_at: now().before(seconds(40)),
        left_at: None,
    };
    JobFacts {
        workers: vec![(record, presence)],
        ..JobFacts::default()
    }
}

fn here() -> JobFacts {
    worker("table tenure_jobs, kind import", Presence::Here)
}

#[track_caller]
fn says(job: &Job, facts: &JobFacts, code: &str, sentence: &str) -> Why {
    let answer = why_job(job, facts, now());
    assert_eq!((answer.code, answer.sentence.as_str()), (code, sentence));
    answer
}

#[test]
fn what_has_ended_says_how_and_that_it_can_be_done_again() {
    let done = Job {
        state: SyncState::Completed,
        completed_at: Some(now().before(seconds(90))),
        ..due()
    };
    let facts = JobFacts::default();
    let answer = says(&done, &facts, "completed", "it was completed 1m 30s ago");
    assert!(answer.hint.unwrap().starts_with("`tenure jobs retry 7`"));

    let mut cancelled = failed("the wrong file");
    cancelled.is_cancelled = true;
    let sentence = "it was cancelled 1m ago: the wrong file";
    says(&cancelled, &facts, "cancelled", sentence);

    let rejected = failed("no such table");
    let sentence = "it failed for good 1m ago, because its holder said that trying again is no \
                    use: no such table";
    let answer = says(&rejected, &facts, "failed", sentence);
    assert!(answer.hint.unwrap().starts_with("mend the cause"));

    let mut spent = failed("503");
    spent.counters.failures = Settings::default().max_retries + 1;
    let sentence = "it failed for good 1m ago, because it failed 11 times (10 are allowed): 503";
    says(&spent, &facts, "failed", sentence);

    let mut crashed = failed("crash_loop: lease lapsed");
    crashed.counters.crashes = 6;
    let sentence = "it failed for good 1m ago, because its lease lapsed 6 times (5 are allowed): \
                    crash_loop: lease lapsed";
    says(&crashed, &facts, "failed", sentence);
}

#[test]
fn what_is_held_says_by_whom_until_when_and_when_it_was_heard_of() {
    let job = held(now().after(seconds(180)));
    let loader = holder("loader");
    let at_work = format!("{loader} has been at work on it for 2m, under a lease for another 3m");
    // One that claims by hand does not report.
    assert_eq!(
        says(&job, &JobFacts::default(), "running", &at_work).hint,
        None
    );
    let heard = format!("{at_work}, its last heartbeat 40s ago");
    says(&job, &here(), "running", &heard);

    for (presence, how) in [
        (Presence::Silent, "no longer reports"),
        (Presence::Left, "has left"),
    ] {
        let facts = worker("table tenure_jobs", presence);
        let sentence = format!(
            "{loader} holds it but {how}, its last heartbeat 40s ago; its lease runs for another 3m"
        );
        let answer = says(&job, &facts, "silent", &sentence);
        assert!(answer.hint.unwrap().contains("`tenure jobs cancel 7`"));
    }
}

#[test]
fn chunks_that_others_hold_are_named_and_counted() {
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
    // Its own, one that is in nobody's way any more, and another's.
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
fn what_lapsed_may_be_claimed_unless_it_lapsed_too_often_or_nobody_comes() {
    let mut job = held(now().before(seconds(30)));
    let over = format!(
        "{} held it, but that lease lapsed 30s ago",
        holder("loader")
    );
    let free = format!("{over}; it may be claimed now, and is taken up where it was");
    assert_eq!(says(&job, &here(), "lapsed", &free).hint, None);
    let alone = format!("{free}, but no worker on jobs is here");
    let answer = says(&job, &JobFacts::default(), "lapsed", &alone);
    assert!(
        answer
            .hint
            .unwrap()
            .starts_with("`tenure jobs run --kind import --exec CMD`")
    );
    let others = worker("table tenure_jobs, kind export", Presence::Here);
    let unserved = format!("{free}, but no worker here takes jobs of import");
    says(&job, &others, "lapsed", &unserved);
    job.counters.crashes = 5;
    let spent = format!(
        "{over}; the next claim on jobs ends it as failed, for it lapsed 6 times (5 are allowed)"
    );
    says(&job, &here(), "lapsed", &spent);
}

#[test]
fn what_may_not_be_claimed_yet_says_why_and_what_it_has_used_up() {
    let mut job = due();
    job.available_at = Some(now().after(seconds(300)));
    let facts = here();
    let delayed = "its producer held it back: it is due in 5m";
    says(&job, &facts, "delayed", delayed);
    job.counters.attempts = 2;
    let given = "it was given back unworked twice: it is due in 5m";
    says(&job, &facts, "delayed", given);
    job.counters.failures = 3;
    job.counters.crashes = 1;
    job.error = Some("503".to_owned());
    let used = "it failed 3 times (10 are allowed), last with \"503\" and its lease lapsed once \
                (5 are allowed); it is tried again in 5m";
    says(&job, &facts, "backoff", used);
}

#[test]
fn what_is_due_says_whom_it_waits_for() {
    let job = due();
    let nobody = "it is due, but no worker on jobs is here";
    says(&job, &JobFacts::default(), "no_worker", nobody);
    for (serves, presence) in [
        ("", Presence::Here),
        ("default", Presence::Here),
        ("table orders", Presence::Here),
        ("table tenure_jobs, kind import", Presence::Silent),
    ] {
        let answer = says(&job, &worker(serves, presence), "no_worker", nobody);
        assert!(answer.hint.unwrap().contains("--kind import"), "{serves}");
    }
    let others = worker("table tenure_jobs, kind export", Presence::Here);
    let unserved = "it is due, but no worker here takes jobs of import";
    says(&job, &others, "unserved", unserved);

    let only = "it is the only one of its kind that is due; of the places for it 0 of 4 are taken";
    assert_eq!(says(&job, &here(), "waiting", only).hint, None);
    // One of an older version names no kinds.
    let older = worker("table tenure_jobs", Presence::Here);
    says(&job, &older, "waiting", only);

    let standing = |name: &str, running| KindStanding {
        running,
        ..KindStanding::none(JobKind::new(name).unwrap())
    };
    let serves = "table tenure_jobs, kind import, kind export";
    let mut busy = worker(serves, Presence::Here);
    busy.kinds = vec![
        KindStanding {
            due: 3,
            oldest_due: Some(seconds(60)),
            ..standing("import", 1)
        },
        standing("export", 3),
        // Others work on these.
        standing("report", 7),
    ];
    let line = "it is one of 3 of its kind that are due, the first for 1m; of the places for it 4 \
                of 4 are taken";
    let answer = says(&job, &busy, "waiting", line);
    assert!(answer.hint.unwrap().starts_with("all are busy"));
    busy.kinds[0].due = 1;
    busy.kinds[1].running = 2;
    let line = "it is the only one of its kind that is due, for 1m; of the places for it 3 of 4 \
                are taken";
    assert_eq!(says(&job, &busy, "waiting", line).hint, None);
}

/// A worker says what it takes in a text for people, and kinds have any name.
#[test]
fn kinds_are_told_apart_whatever_they_are_called() {
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
        let facts = worker(&serves, Presence::Here);
        for other in names {
            let kind = JobKind::new(other).unwrap();
            let is_taken = facts.workers[0].0.report.takes(&kind);
            assert_eq!(is_taken, name == other, "{name:?} {other:?} {serves:?}");
        }
    }
}
