//! Checks of jobs and their chunks.

use std::time::Duration;

use tenure::Tenure;
use tenure::job::{ChunkRecord, HeldChunks, JobKind, KindStatus};
use tenure::operate::{Finding, Presence};

use super::endpoints::named;
use super::judge::Snapshot;
use crate::problem::Stop;
use crate::time::brief;

/// A job of a kind that no worker takes is overdue after this time.
const DUE_MAX: Duration = Duration::from_mins(1);
/// A job that lapsed longer ago should have been claimed again.
const LAPSED_MAX: Duration = Duration::from_mins(5);
/// A chunk that lapsed longer ago should have been claimed again.
const CHUNK_LAPSED_MAX: Duration = Duration::from_mins(10);
/// Failures are reported for this long.
const FAILED_WITHIN: Duration = Duration::from_hours(24);
/// Maximum number of chunks checked, the longest lapsed first.
const CHUNKS_MAX: u32 = 1_000;

/// The state of jobs, as read from the store.
#[derive(Debug, Default)]
pub(super) struct JobFacts {
    kinds: Vec<KindStatus>,
    /// Only those that lapsed long ago.
    chunks: Vec<ChunkRecord>,
}

/// Reads the state of jobs; `None` for a store without jobs.
pub(super) async fn read(tenure: &Tenure) -> Result<Option<JobFacts>, Stop> {
    if tenure.store().job_store().is_none() {
        return Ok(None);
    }
    let jobs = tenure.jobs();
    let lapsed = HeldChunks {
        matrix: None,
        lapsed_for: Some(CHUNK_LAPSED_MAX),
        limit: CHUNKS_MAX,
    };
    Ok(Some(JobFacts {
        kinds: jobs.kinds(FAILED_WITHIN).await?,
        chunks: jobs.held_chunks(&lapsed).await?,
    }))
}

/// The findings; none without open jobs and recent failures.
pub(super) fn judge(facts: &JobFacts, snapshot: &Snapshot) -> Vec<Finding> {
    let kinds = &facts.kinds;
    let mut findings = Vec::new();
    findings.extend(unserved(kinds, snapshot));
    findings.extend(lapsed(kinds, snapshot));
    findings.extend(crashing(kinds));
    findings.extend(chunks(&facts.chunks, snapshot));
    findings.extend(failed(kinds));
    if findings.is_empty() && !kinds.is_empty() {
        let sum = |number: fn(&KindStatus) -> u64| kinds.iter().map(number).sum::<u64>();
        let text = format!(
            "{} due, {} delayed, {} running",
            sum(|kind| kind.due),
            sum(|kind| kind.delayed),
            sum(|kind| kind.running)
        );
        findings.push(Finding::good("jobs", text));
    }
    findings
}

/// Returns true if an active worker takes jobs of this kind.
fn is_served(kind: &JobKind, snapshot: &Snapshot) -> bool {
    let active = snapshot.workers_that_are(Presence::Active);
    active.iter().any(|worker| worker.report.takes(kind))
}

/// Kinds with overdue jobs that no worker takes.
fn unserved(kinds: &[KindStatus], snapshot: &Snapshot) -> Option<Finding> {
    let mut names = Vec::new();
    let mut first = None;
    for status in kinds {
        let kind = &status.kind;
        let late = status.oldest_due.filter(|age| *age > DUE_MAX);
        if let (Some(age), false) = (late, is_served(kind, snapshot)) {
            let due = status.due;
            names.push(format!("{kind} ({due} due, the first for {})", brief(age)));
            first = first.or(Some(kind));
        }
    }
    first.map(|kind| {
        Finding::bad(
            "jobs",
            format!("no active worker takes {}", named(&names)),
            format!(
                "start `tenure jobs run --kind {kind} --exec CMD` or a program of yours; `tenure \
                 workers` shows which worker takes what"
            ),
        )
    })
}

/// Jobs that lapsed long ago and were not claimed since.
fn lapsed(kinds: &[KindStatus], snapshot: &Snapshot) -> Option<Finding> {
    let is_long = |kind: &&KindStatus| kind.longest_lapsed.is_some_and(|age| age > LAPSED_MAX);
    let late: Vec<&KindStatus> = kinds.iter().filter(is_long).collect();
    let job = late.iter().find_map(|kind| kind.lapsed_job)?;
    let names: Vec<String> = late
        .iter()
        .map(|kind| {
            let age = kind.longest_lapsed.map_or_else(String::new, brief);
            format!("{} ({}, the first {age} ago)", kind.kind, kind.lapsed)
        })
        .collect();
    let text = format!("lapsed and not claimed again: {}", named(&names));
    let hint = format!(
        "a worker that takes the kind continues them; `tenure jobs why {job}` says what one waits \
         for"
    );
    let is_unserved = late.iter().any(|kind| !is_served(&kind.kind, snapshot));
    let verdict = if is_unserved {
        Finding::bad
    } else {
        Finding::warning
    };
    Some(verdict("lapsed jobs", text, hint))
}

/// Jobs whose lease lapsed repeatedly.
fn crashing(kinds: &[KindStatus]) -> Option<Finding> {
    let job = kinds.iter().find_map(|kind| kind.crashing_job)?;
    let names: Vec<String> = kinds
        .iter()
        .filter(|kind| kind.crashing > 0)
        .map(|kind| format!("{} ({})", kind.kind, kind.crashing))
        .collect();
    Some(Finding::warning(
        "crashing jobs",
        format!("lapsed twice or more: {}", named(&names)),
        format!(
            "they may kill their workers: `tenure jobs show {job}` shows one, `tenure jobs cancel \
             {job}` ends it"
        ),
    ))
}

/// Chunks that lapsed long ago and were not claimed since.
fn chunks(chunks: &[ChunkRecord], snapshot: &Snapshot) -> Option<Finding> {
    let first = chunks.first()?;
    let names: Vec<String> = chunks
        .iter()
        .map(|chunk| {
            let until = chunk.hold.as_ref().map_or(snapshot.now, |hold| hold.until);
            let age = brief(snapshot.now.since(until));
            format!("{} of {} ({age} ago)", chunk.key.chunk, chunk.key.matrix)
        })
        .collect();
    let matrix = &first.key.matrix;
    Some(Finding::warning(
        "chunks",
        format!("lapsed and not claimed again: {}", named(&names)),
        format!(
            "the next claim of such a chunk continues from its cursor; `tenure jobs list --matrix \
             {matrix}` lists the jobs that should claim it"
        ),
    ))
}

/// Recent failures.
fn failed(kinds: &[KindStatus]) -> Option<Finding> {
    let job = kinds.iter().filter_map(|kind| kind.failed_job).max()?;
    let names: Vec<String> = kinds
        .iter()
        .filter(|kind| kind.failed > 0)
        .map(|kind| format!("{} ({})", kind.kind, kind.failed))
        .collect();
    Some(Finding::warning(
        "failed jobs",
        format!("in the last day: {}", named(&names)),
        format!(
            "`tenure jobs list --state failed` lists them, `tenure jobs why {job}` explains the \
             last one, `tenure jobs retry {job}` runs it again"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use tenure::Fence;
    use tenure::job::{ChunkKey, ChunkName, JobId, MatrixName, SyncState};
    use tenure::lease::Hold;
    use tenure::operate::Verdict;

    use super::super::judge::snapshots::{now, snapshot, worker};
    use super::*;

    fn kind(name: &str) -> KindStatus {
        KindStatus::none(JobKind::new(name).unwrap())
    }

    fn judged(kinds: Vec<KindStatus>, snapshot: &Snapshot) -> Vec<(&'static str, Verdict)> {
        let facts = JobFacts {
            kinds,
            chunks: Vec::new(),
        };
        let findings = judge(&facts, snapshot);
        for finding in &findings {
            let needs_hint = finding.verdict != Verdict::Good;
            assert_eq!(finding.hint.is_some(), needs_hint, "{finding:?}");
        }
        findings.iter().map(|it| (it.subject, it.verdict)).collect()
    }

    /// A cluster with a worker that takes jobs of these kinds.
    fn served(kinds: &str) -> Snapshot {
        let mut snapshot = snapshot();
        let mut jobs = worker("jobs");
        jobs.report.queues = format!("table tenure_jobs, {kinds}");
        snapshot.workers.push(jobs);
        snapshot
    }

    #[test]
    fn without_jobs_there_is_no_finding_and_without_faults_a_good_one() {
        assert_eq!(judged(Vec::new(), &snapshot()), []);
        let mut calm = kind("import");
        (calm.due, calm.oldest_due) = (1, Some(DUE_MAX));
        assert_eq!(judged(vec![calm], &snapshot()), [("jobs", Verdict::Good)]);
    }

    #[test]
    fn overdue_jobs_are_bad_when_no_worker_takes_their_kind() {
        let mut late = kind("import");
        late.due = 3;
        late.oldest_due = Some(DUE_MAX + Duration::from_millis(1));
        let bad = [("jobs", Verdict::Bad)];
        assert_eq!(judged(vec![late.clone()], &snapshot()), bad);
        let good = [("jobs", Verdict::Good)];
        assert_eq!(judged(vec![late.clone()], &served("kind import")), good);
        assert_eq!(judged(vec![late.clone()], &served("kind other")), bad);
        // A stopped worker takes nothing.
        let mut gone = served("kind import");
        gone.workers[1].left_at = Some(now());
        assert_eq!(judged(vec![late], &gone), bad);
    }

    #[test]
    fn long_lapsed_jobs_are_bad_when_unserved_and_a_warning_when_all_workers_are_busy() {
        let mut lapsed = kind("import");
        (lapsed.lapsed, lapsed.lapsed_job) = (2, Some(JobId::new(7)));
        lapsed.longest_lapsed = Some(LAPSED_MAX);
        assert_eq!(
            judged(vec![lapsed.clone()], &snapshot()),
            [("jobs", Verdict::Good)]
        );
        lapsed.longest_lapsed = Some(LAPSED_MAX + Duration::from_millis(1));
        let lapsed_jobs = |verdict| [("lapsed jobs", verdict)];
        assert_eq!(
            judged(vec![lapsed.clone()], &snapshot()),
            lapsed_jobs(Verdict::Bad)
        );
        let busy = served("kind import");
        assert_eq!(judged(vec![lapsed], &busy), lapsed_jobs(Verdict::Warning));
    }

    #[test]
    fn repeated_crashes_and_recent_failures_are_warnings() {
        let mut sick = kind("import");
        (sick.crashing, sick.crashing_job) = (1, Some(JobId::new(7)));
        (sick.failed, sick.failed_job) = (2, Some(JobId::new(9)));
        let expected = ["crashing jobs", "failed jobs"];
        let warned = expected.map(|subject| (subject, Verdict::Warning));
        assert_eq!(judged(vec![sick], &snapshot()), warned);
    }

    #[test]
    fn a_chunk_that_is_not_claimed_again_is_named_with_its_matrix() {
        let chunk = ChunkRecord {
            key: ChunkKey {
                matrix: MatrixName::new("orders").unwrap(),
                chunk: ChunkName::new("2026-11").unwrap(),
            },
            state: SyncState::Lapsed,
            hold: Some(Hold {
                holder: "gone".to_owned(),
                fence: Fence::new(1),
                claimed_at: now().before(Duration::from_hours(2)),
                until: now().before(Duration::from_hours(1)),
            }),
            row_count: None,
            synced_at: None,
            cursor: None,
            error: None,
        };
        let facts = JobFacts {
            kinds: Vec::new(),
            chunks: vec![chunk],
        };
        let findings = judge(&facts, &snapshot());
        assert_eq!(findings[0].verdict, Verdict::Warning);
        let expected = "lapsed and not claimed again: 2026-11 of orders (1h ago)";
        assert_eq!(findings[0].text, expected);
    }
}
