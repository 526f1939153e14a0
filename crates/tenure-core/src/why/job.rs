//! Explanation of why a job is not being worked on: its workers, its holder, its retries.

use std::time::Duration;

use super::{Why, ago, holder_of, rest, times, used};
use crate::item::Hold;
use crate::job::{ChunkRecord, Job, KindStatus};
use crate::reason;
use crate::settings::Settings;
use crate::store::{Presence, WorkerRecord};
use crate::table::SyncState;
use crate::time::{Timestamp, brief_duration};

/// Maximum number of chunks listed by name; the others are counted.
const NAMED_MAX: usize = 3;

/// Facts around a job.
#[derive(Clone, Debug, Default)]
pub struct JobFacts {
    /// Status of every kind with open jobs.
    pub kinds: Vec<KindStatus>,
    /// Workers, and the presence of each by the store's clock.
    pub workers: Vec<(WorkerRecord, Presence)>,
    /// Settings of the workers.
    pub settings: Settings,
    /// Chunks of its matrix under a lease, live or lapsed.
    pub chunks: Vec<ChunkRecord>,
}

/// Explains why a job is not being worked on, or which worker holds it.
///
/// Codes: `completed`, `failed`, `cancelled`; `running`, `silent` (its holder no longer reports),
/// `lapsed`; `delayed`, `backoff`; `no_worker`, `unserved` (no worker takes its kind), `waiting`.
///
/// ```
/// use tenure_core::job::{Job, JobId, JobKind, MatrixName};
/// use tenure_core::{Counters, JobFacts, SyncState, Timestamp, why_job};
///
/// let now = Timestamp::from_micros(0);
/// let job = Job {
///     id: JobId::new(7),
///     kind: JobKind::new("import.orders")?,
///     matrix: MatrixName::new("job-7")?,
///     payload: "{}".to_owned(),
///     priority: 0,
///     state: SyncState::Available,
///     hold: None,
///     counters: Counters::default(),
///     created_at: now,
///     available_at: None,
///     completed_at: None,
///     failed_at: None,
///     is_cancelled: false,
///     error: None,
///     result: None,
///     cursor: None,
///     chunks_total: None,
///     retry_of: None,
/// };
/// let answer = why_job(&job, &JobFacts::default(), now);
/// assert_eq!(answer.code, "no_worker");
/// assert_eq!(answer.sentence, "it is due, but no worker for jobs is running");
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
pub fn why_job(job: &Job, facts: &JobFacts, now: Timestamp) -> Why {
    match (job.state, &job.hold) {
        (SyncState::Completed, _) => {
            let when = ago(job.completed_at, now);
            Why::new("completed", format!("it was completed{when}")).hint(retry(job))
        }
        (SyncState::Failed, _) => failed(job, facts, now),
        (SyncState::Running, Some(hold)) => running(job, hold, facts, now),
        (SyncState::Lapsed, Some(hold)) => lapsed(job, hold, facts, now),
        // Tenure always stores a lease with a claimed job; this case needs rows that other programs
        // write.
        (SyncState::Running | SyncState::Lapsed, None) => {
            Why::new("running", "it is held, but its holder is not recorded")
        }
        (SyncState::Available, _) => available(job, facts, now),
    }
}

fn retry(job: &Job) -> String {
    let id = job.id;
    format!(
        "`tenure jobs retry {id}` writes a new job with its payload; chunks that are done are \
         not repeated"
    )
}

fn failed(job: &Job, facts: &JobFacts, now: Timestamp) -> Why {
    let when = ago(job.failed_at, now);
    let error = job.error.as_deref();
    let text = error.map_or_else(String::new, |error| format!(": {error}"));
    if job.is_cancelled {
        return Why::new("cancelled", format!("it was cancelled{when}{text}")).hint(retry(job));
    }
    let counters = job.counters;
    let is_crash = error.is_some_and(|error| error.starts_with(reason::CRASH_LOOP));
    let cause = if is_crash {
        let allowed = facts.settings.max_crashes;
        let lapses = times(counters.crashes);
        format!(", because its lease lapsed {lapses} ({allowed} are allowed)")
    } else if counters.failures > facts.settings.max_retries {
        let allowed = facts.settings.max_retries;
        format!(
            ", because it failed {} ({allowed} are allowed)",
            times(counters.failures)
        )
    } else {
        ", because its holder reported that a retry cannot help".to_owned()
    };
    Why::new("failed", format!("it failed for good{when}{cause}{text}"))
        .hint(format!("fix the cause, then {}", retry(job)))
}

fn running(job: &Job, hold: &Hold, facts: &JobFacts, now: Timestamp) -> Why {
    let holder = &hold.holder;
    let rest = brief_duration(hold.until.since(now));
    let worker = holder_of(hold, &facts.workers);
    let heartbeat = worker.map_or_else(String::new, |(worker, _)| {
        let silence = brief_duration(now.since(worker.reported_at));
        format!(", its last heartbeat {silence} ago")
    });
    let others = others(hold, facts, now);
    let how = match worker {
        Some((_, Presence::Silent)) => "no longer reports",
        Some((_, Presence::Left)) => "has stopped",
        // Programs that claim directly do not report.
        Some((_, Presence::Active)) | None => {
            let length = brief_duration(now.since(hold.claimed_at));
            let sentence = format!(
                "{holder} has been at work on it for {length}, under a lease for another \
                 {rest}{heartbeat}"
            );
            return Why::new("running", sentence + &others);
        }
    };
    let sentence =
        format!("{holder} holds it but {how}{heartbeat}; its lease runs for another {rest}");
    Why::new("silent", sentence + &others).hint(format!(
        "when the lease lapses, the next claim resumes the job: wait, or `tenure jobs cancel {}`",
        job.id
    ))
}

/// Chunks of the job's matrix that other workers hold; the job's holder may wait for them.
fn others(hold: &Hold, facts: &JobFacts, now: Timestamp) -> String {
    let mut named = Vec::new();
    for chunk in &facts.chunks {
        let held = chunk.hold.as_ref();
        let Some(other) = held.filter(|other| other.holder != hold.holder && other.until > now)
        else {
            continue;
        };
        let rest = brief_duration(other.until.since(now));
        named.push(format!(
            "{} (by {} for another {rest})",
            chunk.key.chunk, other.holder
        ));
    }
    let count = match named.len() {
        0 => return String::new(),
        1 => "1 chunk of its matrix is held by others".to_owned(),
        number => format!("{number} chunks of its matrix are held by others"),
    };
    let more = named.len().saturating_sub(NAMED_MAX);
    named.truncate(NAMED_MAX);
    if more > 0 {
        named.push(format!("{more} more"));
    }
    format!("; {count}: {}", named.join(", "))
}

fn lapsed(job: &Job, hold: &Hold, facts: &JobFacts, now: Timestamp) -> Why {
    let over = brief_duration(now.since(hold.until));
    let over = format!("{} held it, but that lease lapsed {over} ago", hold.holder);
    let allowed = facts.settings.max_crashes;
    let lapses = job.counters.crashes.saturating_add(1);
    let next = if lapses > allowed {
        format!(
            "the next claim of jobs ends it as failed, since it lapsed {} ({allowed} are allowed)",
            times(lapses)
        )
    } else {
        "it may be claimed now, and resumes where it was".to_owned()
    };
    let why = |rest: &str| Why::new("lapsed", format!("{over}; {next}{rest}"));
    if facts.on_jobs().next().is_none() {
        return why(", but no worker for jobs is running").hint(start(job));
    }
    if facts.serving(job).next().is_none() {
        return why(&format!(
            ", but no running worker takes jobs of {}",
            job.kind
        ))
        .hint(start(job));
    }
    why("")
}

fn available(job: &Job, facts: &JobFacts, now: Timestamp) -> Why {
    if let Some(moment) = job.available_at.filter(|moment| *moment > now) {
        return not_due(job, facts, moment.since(now));
    }
    if facts.on_jobs().next().is_none() {
        return Why::new("no_worker", "it is due, but no worker for jobs is running")
            .hint(start(job));
    }
    if facts.serving(job).next().is_none() {
        let sentence = format!(
            "it is due, but no running worker takes jobs of {}",
            job.kind
        );
        return Why::new("unserved", sentence).hint(start(job));
    }
    waiting(job, facts)
}

fn start(job: &Job) -> String {
    let kind = &job.kind;
    format!(
        "`tenure jobs run --kind {kind} --exec CMD` takes them, or a program of yours with \
         `jobs().on({:?}, …)`; `tenure workers` lists the kinds of each",
        kind.as_str()
    )
}

/// Explains an available job that is due in `wait`.
fn not_due(job: &Job, facts: &JobFacts, wait: Duration) -> Why {
    let rest = rest(job.counters, &facts.settings, wait);
    let wait = brief_duration(wait);
    let used = used(job.counters, job.error.as_deref(), &facts.settings);
    if used.is_empty() {
        let sentence = match job.counters.attempts {
            0 => format!("its producer delayed it: it is due in {wait}"),
            number => format!(
                "it was released without a result {}: it is due in {wait}",
                times(number)
            ),
        };
        return Why::new("delayed", sentence);
    }
    let sentence = format!("{}; it is retried in {wait}{rest}", used.join(" and "));
    Why::new("backoff", sentence)
}

/// Explains a due job for which there are workers.
fn waiting(job: &Job, facts: &JobFacts) -> Why {
    let capacity = facts.serving(job).map(|worker| worker.report.concurrency);
    let capacity: u64 = capacity.map(u64::from).sum();
    // Counted by the store: the workers' own reports may be one heartbeat interval old.
    let shares = |kind: &&KindStatus| {
        let mut workers = facts.serving(job);
        workers.any(|worker| worker.report.takes(&kind.kind))
    };
    let taken = facts.kinds.iter().filter(shares).map(|kind| kind.running);
    let taken: u64 = taken.sum();
    let kind = facts.kinds.iter().find(|kind| kind.kind == job.kind);
    let age = kind.and_then(|kind| kind.oldest_due).map(brief_duration);
    let position = match (kind.map_or(0, |kind| kind.due), age) {
        (0 | 1, None) => "it is the only due job of its kind".to_owned(),
        (0 | 1, Some(age)) => format!("it is the only due job of its kind, for {age}"),
        (due, age) => {
            let oldest = age.map_or_else(String::new, |age| format!(", the oldest for {age}"));
            format!("it is one of {due} due jobs of its kind{oldest}")
        }
    };
    let mut parts = vec![position];
    parts.push(format!("its workers run {taken} of {capacity} jobs"));
    parts.extend(used(job.counters, job.error.as_deref(), &facts.settings));
    let why = Why::new("waiting", parts.join("; "));
    if taken >= capacity {
        return why.hint("all are busy: start another worker, or raise its concurrency");
    }
    why
}

impl JobFacts {
    /// Active workers that work on jobs.
    fn on_jobs(&self) -> impl Iterator<Item = &WorkerRecord> {
        let active = |(worker, presence): &&(WorkerRecord, Presence)| {
            *presence == Presence::Active && worker.report.works_on_jobs()
        };
        self.workers.iter().filter(active).map(|(worker, _)| worker)
    }

    /// Active workers that take jobs of this job's kind.
    fn serving(&self, job: &Job) -> impl Iterator<Item = &WorkerRecord> {
        self.on_jobs()
            .filter(|worker| worker.report.takes(&job.kind))
    }
}
