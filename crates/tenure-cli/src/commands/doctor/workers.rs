//! Checks of the workers.

use std::collections::BTreeSet;

use tenure::operate::{Finding, Presence, WorkerRecord};
use tenure::settings::brief_duration;

use super::judge::Snapshot;
use crate::output::events;

/// Maximum number of workers listed.
const WORKERS_MAX: usize = 5;

/// Maximum number of topics listed.
const TOPICS_MAX: usize = 5;

pub(super) fn workers(snapshot: &Snapshot) -> Finding {
    match snapshot.workers_that_are(Presence::Active).len() {
        0 => Finding::warning(
            "workers",
            "none is active: nothing is worked on, and lapsed leases are not reaped",
            "`tenure serve` or `tenure work` starts one",
        ),
        number => Finding::good("workers", format!("{number} active")),
    }
}

/// Topics with due events that no active worker takes.
pub(super) fn topics(snapshot: &Snapshot) -> Option<Finding> {
    let untaken = &snapshot.untaken;
    let due: u64 = untaken.iter().map(|of| of.due).sum();
    let oldest = untaken.iter().filter_map(|of| of.oldest_due).max()?;
    let names: Vec<String> = untaken
        .iter()
        .take(TOPICS_MAX)
        .map(|of| of.topic.clone())
        .collect();
    let more = match untaken.len().saturating_sub(TOPICS_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(Finding::warning(
        "topics",
        format!(
            "no active worker takes {}{more}: {} due, the oldest for {}",
            names.join(", "),
            events(usize::try_from(due).unwrap_or(usize::MAX)),
            brief_duration(oldest)
        ),
        "start a worker with a handler, a route or a subscribed endpoint for them; they wait and \
         use up no retry",
    ))
}

pub(super) fn missing(snapshot: &Snapshot) -> Option<Finding> {
    let names = names(&snapshot.workers_that_are(Presence::Silent), |worker| {
        worker.report.worker.to_string()
    });
    (!names.is_empty()).then(|| {
        Finding::warning(
            "missing workers",
            format!("no longer reporting: {names}"),
            "a missing worker hangs, was killed or cannot reach the database; its leases lapse, \
             and other workers take over",
        )
    })
}

pub(super) fn versions(snapshot: &Snapshot) -> Option<Finding> {
    let active = snapshot.workers_that_are(Presence::Active);
    let versions: BTreeSet<&str> = active
        .iter()
        .map(|worker| worker.report.version.as_str())
        .collect();
    let versions: Vec<&str> = versions.into_iter().collect();
    (versions.len() > 1).then(|| {
        Finding::warning(
            "versions",
            format!("the active workers run {}", versions.join(", ")),
            "upgrade all to the same version; during a deployment this is expected",
        )
    })
}

pub(super) fn settings(snapshot: &Snapshot) -> Option<Finding> {
    let mut late = snapshot.workers_that_are(Presence::Active);
    late.retain(|worker| worker.report.settings_version < snapshot.settings_version);
    let names = names(&late, |worker| {
        format!(
            "{} ({})",
            worker.report.worker, worker.report.settings_version
        )
    });
    (!names.is_empty()).then(|| {
        Finding::warning(
            "settings",
            format!(
                "older than version {} in: {names}",
                snapshot.settings_version
            ),
            "workers apply new settings within seconds; one that refused them logs why: `refused \
             the cluster settings`",
        )
    })
}

/// The texts of the first workers, separated by commas, and the number of the others.
fn names(workers: &[&WorkerRecord], text: impl Fn(&WorkerRecord) -> String) -> String {
    let named = workers.iter().take(WORKERS_MAX);
    let named: Vec<String> = named.map(|worker| text(worker)).collect();
    match workers.len().saturating_sub(WORKERS_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::operate::{SeparateTopic, Verdict};

    use super::super::judge::snapshots::{finding, now, queue, snapshot, verdict, worker};
    use super::topics;

    #[test]
    fn no_worker_is_a_warning_and_a_missing_one_is_named() {
        let mut snapshot = snapshot();
        snapshot.workers[0].reported_at = now().before(Duration::from_secs(16));
        assert_eq!(verdict(&snapshot, "workers"), Some(Verdict::Warning));
        assert_eq!(
            verdict(&snapshot, "missing workers"),
            Some(Verdict::Warning)
        );
        snapshot.workers[0].left_at = Some(now());
        assert_eq!(verdict(&snapshot, "missing workers"), None);
        assert_eq!(verdict(&snapshot, "workers"), Some(Verdict::Warning));
    }

    #[test]
    fn a_crash_loop_does_not_fill_the_page_with_names() {
        let mut snapshot = snapshot();
        snapshot.workers = (0..8).map(|n| worker(&format!("w{n}"))).collect();
        for worker in &mut snapshot.workers {
            worker.reported_at = now().before(Duration::from_mins(1));
        }
        let text = finding(&snapshot, "missing workers");
        assert!(text.contains("w4") && !text.contains("w5"), "{text}");
        assert!(text.ends_with(" and 3 more"), "{text}");
    }

    #[test]
    fn topics_that_no_worker_takes_are_named() {
        let mut snapshot = snapshot();
        assert_eq!(verdict(&snapshot, "topics"), None);
        snapshot.untaken = (0..7)
            .map(|n| SeparateTopic {
                queue: queue("default"),
                topic: format!("mail.{n}"),
                due: 3,
                delayed: 0,
                oldest_due: Some(Duration::from_secs(90)),
            })
            .collect();
        let finding = topics(&snapshot).unwrap();
        assert_eq!(finding.verdict, Verdict::Warning);
        assert_eq!(
            finding.text,
            "no active worker takes mail.0, mail.1, mail.2, mail.3, mail.4 and 2 more: 21 events \
             due, the oldest for 1m 30s"
        );
    }

    #[test]
    fn workers_with_another_version_or_older_settings_are_reported() {
        let mut snapshot = snapshot();
        snapshot.workers.push(worker("b"));
        assert_eq!(verdict(&snapshot, "versions"), None);
        assert_eq!(verdict(&snapshot, "settings"), None);
        snapshot.workers[1].report.version = "0.2.0".to_owned();
        snapshot.workers[1].report.settings_version = 2;
        assert_eq!(verdict(&snapshot, "versions"), Some(Verdict::Warning));
        assert_eq!(verdict(&snapshot, "settings"), Some(Verdict::Warning));
        // A stopped worker does not count.
        snapshot.workers[1].left_at = Some(now());
        assert_eq!(verdict(&snapshot, "versions"), None);
        assert_eq!(verdict(&snapshot, "settings"), None);
    }
}
