//! What jobs and their chunks say about the health of a cluster.

use std::time::Duration;

use tenure::job::{ChunkRecord, JobKind, KindStanding};
use tenure::{Finding, HeldChunks, Presence, Tenure};

use super::endpoints::named;
use super::judge::Scene;
use crate::problem::Stop;
use crate::time::brief;

/// A job that has been due for longer, while nobody takes its kind, waits too long.
const DUE_MAX: Duration = Duration::from_mins(1);
/// A job that lapsed longer ago should have been claimed again.
const LAPSED_MAX: Duration = Duration::from_mins(5);
/// A chunk that lapsed longer ago should have been claimed again.
const CHUNK_LAPSED_MAX: Duration = Duration::from_mins(10);
/// What failed longer ago is history.
const LATELY: Duration = Duration::from_hours(24);
/// So many chunks are looked at, the longest lapsed first.
const CHUNKS: u32 = 1_000;

/// What is looked at.
#[derive(Debug, Default)]
pub(super) struct Found {
    kinds: Vec<KindStanding>,
    /// Those that lapsed long ago.
    chunks: Vec<ChunkRecord>,
}

/// Asks the store; `None`: it keeps no jobs.
pub(super) async fn look(tenure: &Tenure) -> Result<Option<Found>, Stop> {
    if tenure.store().job_book().is_none() {
        return Ok(None);
    }
    let jobs = tenure.jobs();
    let lapsed = HeldChunks {
        matrix: None,
        lapsed_for: Some(CHUNK_LAPSED_MAX),
        limit: CHUNKS,
    };
    Ok(Some(Found {
        kinds: jobs.kinds(LATELY).await?,
        chunks: jobs.held_chunks(&lapsed).await?,
    }))
}

/// What they say; nothing when there is nothing open and nothing failed lately.
pub(super) fn judge(found: &Found, scene: &Scene) -> Vec<Finding> {
    let kinds = &found.kinds;
    let mut findings = Vec::new();
    findings.extend(unserved(kinds, scene));
    findings.extend(lapsed(kinds, scene));
    findings.extend(crashing(kinds));
    findings.extend(chunks(&found.chunks, scene));
    findings.extend(failed(kinds));
    if findings.is_empty() && !kinds.is_empty() {
        let sum = |number: fn(&KindStanding) -> u64| kinds.iter().map(number).sum::<u64>();
        let text = format!(
            "{} due, {} delayed, {} in hand",
            sum(|kind| kind.due),
            sum(|kind| kind.delayed),
            sum(|kind| kind.running)
        );
        findings.push(Finding::good("jobs", text));
    }
    findings
}

/// Whether a worker is here that takes jobs of this kind.
fn is_served(kind: &JobKind, scene: &Scene) -> bool {
    let here = scene.those(Presence::Here);
    here.iter().any(|worker| worker.report.takes(kind))
}

/// Kinds with jobs that are overdue, and that no worker takes.
fn unserved(kinds: &[KindStanding], scene: &Scene) -> Option<Finding> {
    let mut names = Vec::new();
    let mut first = None;
    for standing in kinds {
        let kind = &standing.kind;
        let late = standing.oldest_due.filter(|age| *age > DUE_MAX);
        if let (Some(age), false) = (late, is_served(kind, scene)) {
            let due = standing.due;
            names.push(format!("{kind} ({due} due, the first for {})", brief(age)));
            first = first.or(Some(kind));
        }
    }
    first.map(|kind| {
        Finding::bad(
            "jobs",
            format!("no worker here takes {}", named(&names)),
            format!(
                "`tenure jobs run --kind {kind} --exec CMD` takes them, or a program of yours; \
                 `tenure workers` shows who takes what"
            ),
        )
    })
}

/// Jobs that lapsed long ago, and that nobody has claimed since.
fn lapsed(kinds: &[KindStanding], scene: &Scene) -> Option<Finding> {
    let is_long = |kind: &&KindStanding| kind.longest_lapsed.is_some_and(|age| age > LAPSED_MAX);
    let late: Vec<&KindStanding> = kinds.iter().filter(is_long).collect();
    let job = late.iter().find_map(|kind| kind.lapsed_job)?;
    let names: Vec<String> = late
        .iter()
        .map(|kind| {
            let age = kind.longest_lapsed.map_or_else(String::new, brief);
            format!("{} ({}, the first {age} ago)", kind.kind, kind.lapsed)
        })
        .collect();
    let text = format!(
        "lapsed, and nobody has claimed them since: {}",
        named(&names)
    );
    let hint = format!(
        "a worker that takes the kind takes them up where they were; `tenure jobs why {job}` says \
         what it waits for"
    );
    let is_left = late.iter().any(|kind| !is_served(&kind.kind, scene));
    let verdict = if is_left {
        Finding::bad
    } else {
        Finding::warning
    };
    Some(verdict("lapsed jobs", text, hint))
}

/// Jobs whose lease lapses again and again.
fn crashing(kinds: &[KindStanding]) -> Option<Finding> {
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
            "something in them may kill their workers: `tenure jobs show {job}` shows one, \
             `tenure jobs cancel {job}` ends it"
        ),
    ))
}

/// Chunks that lapsed long ago, and that nobody has claimed since.
fn chunks(chunks: &[ChunkRecord], scene: &Scene) -> Option<Finding> {
    let first = chunks.first()?;
    let names: Vec<String> = chunks
        .iter()
        .map(|chunk| {
            let until = chunk.hold.as_ref().map_or(scene.now, |hold| hold.until);
            let age = brief(scene.now.since(until));
            format!("{} of {} ({age} ago)", chunk.key.chunk, chunk.key.matrix)
        })
        .collect();
    let matrix = &first.key.matrix;
    Some(Finding::warning(
        "chunks",
        format!("lapsed and not claimed again: {}", named(&names)),
        format!(
            "the next claim of such a chunk takes it from its cursor; `tenure jobs list --matrix \
             {matrix}` shows the jobs that should come by"
        ),
    ))
}

/// What failed lately.
fn failed(kinds: &[KindStanding]) -> Option<Finding> {
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
            "`tenure jobs list --state failed` lists them, `tenure jobs why {job}` says why the \
             last one failed, `tenure jobs retry {job}` does it again"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use tenure::job::{ChunkKey, ChunkName, MatrixName};
    use tenure::{Fence, Hold, SyncState, Verdict};

    use super::super::judge::scenes::{now, scene, worker};
    use super::*;

    fn kind(name: &str) -> KindStanding {
        KindStanding::none(JobKind::new(name).unwrap())
    }

    fn judged(kinds: Vec<KindStanding>, scene: &Scene) -> Vec<(&'static str, Verdict)> {
        let found = Found {
            kinds,
            chunks: Vec::new(),
        };
        let findings = judge(&found, scene);
        for finding in &findings {
            let needs_hint = finding.verdict != Verdict::Good;
            assert_eq!(finding.hint.is_some(), needs_hint, "{finding:?}");
        }
        findings.iter().map(|it| (it.subject, it.verdict)).collect()
    }

    /// A cluster with a worker on jobs that takes these kinds.
    fn served(kinds: &str) -> Scene {
        let mut scene = scene();
        let mut jobs = worker("jobs");
        jobs.report.queues = format!("table tenure_jobs, {kinds}");
        scene.workers.push(jobs);
        scene
    }

    #[test]
    fn without_jobs_nothing_is_said_and_where_all_is_well_a_word() {
        assert_eq!(judged(Vec::new(), &scene()), []);
        let mut calm = kind("import");
        (calm.due, calm.oldest_due) = (1, Some(DUE_MAX));
        assert_eq!(judged(vec![calm], &scene()), [("jobs", Verdict::Good)]);
    }

    #[test]
    fn what_is_overdue_is_bad_when_no_worker_takes_its_kind() {
        let mut late = kind("import");
        late.due = 3;
        late.oldest_due = Some(DUE_MAX + Duration::from_millis(1));
        let bad = [("jobs", Verdict::Bad)];
        assert_eq!(judged(vec![late.clone()], &scene()), bad);
        let good = [("jobs", Verdict::Good)];
        assert_eq!(judged(vec![late.clone()], &served("kind import")), good);
        assert_eq!(judged(vec![late.clone()], &served("kind other")), bad);
        // One that is gone takes nothing.
        let mut gone = served("kind import");
        gone.workers[1].left_at = Some(now());
        assert_eq!(judged(vec![late], &gone), bad);
    }

    #[test]
    fn what_lapsed_long_ago_is_bad_when_nobody_takes_it_and_a_warning_when_all_are_busy() {
        let mut lapsed = kind("import");
        (lapsed.lapsed, lapsed.lapsed_job) = (2, Some(7));
        lapsed.longest_lapsed = Some(LAPSED_MAX);
        assert_eq!(
            judged(vec![lapsed.clone()], &scene()),
            [("jobs", Verdict::Good)]
        );
        lapsed.longest_lapsed = Some(LAPSED_MAX + Duration::from_millis(1));
        let found = |verdict| [("lapsed jobs", verdict)];
        assert_eq!(judged(vec![lapsed.clone()], &scene()), found(Verdict::Bad));
        let busy = served("kind import");
        assert_eq!(judged(vec![lapsed], &busy), found(Verdict::Warning));
    }

    #[test]
    fn what_crashes_again_and_again_or_failed_lately_is_a_warning() {
        let mut sick = kind("import");
        (sick.crashing, sick.crashing_job) = (1, Some(7));
        (sick.failed, sick.failed_job) = (2, Some(9));
        let expected = ["crashing jobs", "failed jobs"];
        let warned = expected.map(|subject| (subject, Verdict::Warning));
        assert_eq!(judged(vec![sick], &scene()), warned);
    }

    #[test]
    fn a_chunk_that_nobody_takes_up_is_named_with_its_matrix() {
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
        let found = Found {
            kinds: Vec::new(),
            chunks: vec![chunk],
        };
        let findings = judge(&found, &scene());
        assert_eq!(findings[0].verdict, Verdict::Warning);
        let expected = "lapsed and not claimed again: 2026-11 of orders (1h ago)";
        assert_eq!(findings[0].found, expected);
    }
}
