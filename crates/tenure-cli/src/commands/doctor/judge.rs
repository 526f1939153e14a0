//! Judges the health of a cluster by a snapshot of it: pure functions.

use tenure::operate::{Counts, Finding, KeyRecord, Presence, Queue, SeparateTopic, WorkerRecord};
use tenure::store::{QueueName, Timestamp};

use super::{keys, queues, workers};
use crate::output::events;

/// The state of a cluster, as read from the store.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) counts: Counts,
    pub(super) queues: Vec<Queue>,
    /// Topics that no active worker takes.
    pub(super) untaken: Vec<SeparateTopic>,
    /// The stuck keys, blocked ones first.
    pub(super) keys: Vec<KeyRecord>,
    /// The limit of that list; a full list may be incomplete.
    pub(super) keys_max: usize,
    pub(super) workers: Vec<WorkerRecord>,
    /// The version of the cluster's settings.
    pub(super) settings_version: u64,
    /// The store's time, which decides whether a worker is missing.
    pub(super) now: Timestamp,
}

/// All findings, good ones included.
pub(super) fn judge(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = vec![workers::workers(snapshot)];
    findings.extend(workers::missing(snapshot));
    findings.extend(workers::versions(snapshot));
    findings.extend(workers::settings(snapshot));
    findings.extend(workers::topics(snapshot));
    findings.push(leases(snapshot));
    findings.push(queues::due(snapshot));
    findings.extend(queues::unserved(snapshot));
    findings.extend(queues::paused(snapshot));
    findings.extend(keys::keys(snapshot));
    findings.push(dead(snapshot));
    findings
}

impl Snapshot {
    pub(super) fn workers_that_are(&self, presence: Presence) -> Vec<&WorkerRecord> {
        let matches = |worker: &&WorkerRecord| worker.presence(self.now) == presence;
        self.workers.iter().filter(matches).collect()
    }

    pub(super) fn is_paused(&self, name: &QueueName) -> bool {
        let mut queues = self.queues.iter();
        queues.any(|queue| queue.name == *name && queue.paused)
    }
}

fn leases(snapshot: &Snapshot) -> Finding {
    let lapsed = snapshot.counts.lapsed;
    let text = events(usize::try_from(lapsed).unwrap_or(usize::MAX));
    match (
        lapsed,
        snapshot.workers_that_are(Presence::Active).is_empty(),
    ) {
        (0, _) => Finding::good("leases", "none has lapsed"),
        (_, false) => Finding::good("leases", format!("lapsed: {text}, to be reaped soon")),
        (_, true) => Finding::bad(
            "leases",
            format!("lapsed: {text}, and no worker is running to reap"),
            "`tenure reap` ends them now",
        ),
    }
}

fn dead(snapshot: &Snapshot) -> Finding {
    match snapshot.counts.dead {
        0 => Finding::good("dead", "none"),
        number => Finding::warning(
            "dead",
            events(usize::try_from(number).unwrap_or(usize::MAX)),
            "`tenure events --state dead` lists them; fix the cause, then `tenure replay --state \
            dead` makes them pending again",
        ),
    }
}

/// Snapshots for the tests of all checks.
#[cfg(test)]
pub(super) mod snapshots {
    use std::time::Duration;

    use tenure::lease::{Content, Counters, Record, WorkerId};
    use tenure::operate::{KeyState, QueueCounts, Verdict, WorkerReport};
    use tenure::{Event, ItemId, State};

    use super::*;

    pub(in super::super) fn now() -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }

    pub(in super::super) fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    pub(in super::super) fn snapshot() -> Snapshot {
        Snapshot {
            counts: Counts::default(),
            queues: Vec::new(),
            untaken: Vec::new(),
            keys: Vec::new(),
            keys_max: 1000,
            workers: vec![worker("a")],
            settings_version: 3,
            now: now(),
        }
    }

    pub(in super::super) fn worker(name: &str) -> WorkerRecord {
        WorkerRecord {
            report: WorkerReport {
                worker: WorkerId::new(name, 7).unwrap(),
                host: "h".to_owned(),
                pid: 1,
                version: "0.1.0".to_owned(),
                queues: String::new(),
                topics: tenure::publish::TopicSet::any(),
                concurrency: 10,
                running: 0,
                held: 0,
                settings_version: 3,
                next_within: Duration::from_secs(5),
            },
            started_at: now(),
            reported_at: now(),
            left_at: None,
        }
    }

    pub(in super::super) fn waiting(
        name: &str,
        due: u64,
        age: Duration,
    ) -> (QueueName, QueueCounts) {
        let counts = QueueCounts {
            due,
            delayed: 0,
            behind: 0,
            oldest_due: (due > 0).then_some(age),
        };
        (queue(name), counts)
    }

    /// The verdict on a subject; `None` without a finding.
    pub(in super::super) fn verdict(snapshot: &Snapshot, subject: &str) -> Option<Verdict> {
        let findings = judge(snapshot);
        let finding = findings.iter().find(|finding| finding.subject == subject)?;
        let needs_hint = finding.verdict != Verdict::Good;
        assert_eq!(finding.hint.is_some(), needs_hint, "{finding:?}");
        Some(finding.verdict)
    }

    /// The text of the first finding on a subject.
    pub(in super::super) fn finding(snapshot: &Snapshot, subject: &str) -> String {
        let findings = judge(snapshot);
        let finding = findings.iter().find(|finding| finding.subject == subject);
        finding.unwrap().text.clone()
    }

    /// A head that failed once.
    pub(in super::super) fn head(state: State) -> Record {
        Record {
            id: ItemId::new(9),
            state,
            content: Content::Event(Event::new("order.paid", &7).unwrap()),
            counters: Counters {
                failures: 1,
                ..Counters::default()
            },
            created_at: now(),
            available_at: Some(now()),
            hold: None,
            last_error: None,
            done_at: None,
            dead_at: None,
            dead_reason: None,
        }
    }

    pub(in super::super) fn key(name: &str, state: KeyState, age: Duration) -> KeyRecord {
        KeyRecord {
            name: name.to_owned(),
            state,
            since: Some(now().before(age)),
            head: match state {
                KeyState::Idle | KeyState::Paused => None,
                KeyState::Blocked => Some(head(State::Dead)),
                KeyState::Held => Some(head(State::Claimed)),
                KeyState::Due | KeyState::Delayed => Some(head(State::Pending)),
            },
            waiting: 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure::operate::Verdict;

    use super::snapshots::{snapshot, verdict};
    use super::*;

    #[test]
    fn everything_is_good_in_a_quiet_cluster() {
        let findings = judge(&snapshot());
        let is_good = |finding: &Finding| finding.verdict == Verdict::Good;
        assert!(findings.iter().all(is_good), "{findings:?}");
        let subjects: Vec<_> = findings.iter().map(|finding| finding.subject).collect();
        assert_eq!(subjects, ["workers", "leases", "due", "keys", "dead"]);
    }

    #[test]
    fn a_lapsed_lease_is_bad_only_without_a_worker_to_reap_it() {
        let mut snapshot = snapshot();
        snapshot.counts.lapsed = 2;
        assert_eq!(verdict(&snapshot, "leases"), Some(Verdict::Good));
        snapshot.workers.clear();
        assert_eq!(verdict(&snapshot, "leases"), Some(Verdict::Bad));
        snapshot.counts.lapsed = 0;
        assert_eq!(verdict(&snapshot, "leases"), Some(Verdict::Good));
    }

    #[test]
    fn dead_events_are_a_warning() {
        let mut snapshot = snapshot();
        snapshot.counts.dead = 3;
        assert_eq!(verdict(&snapshot, "dead"), Some(Verdict::Warning));
    }
}
