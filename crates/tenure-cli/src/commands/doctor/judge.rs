//! What counts, queues and workers say about the health of a cluster: a pure function.

use tenure::{Counts, DomainRecord, Finding, Presence, Queue, QueueName, Timestamp, WorkerRecord};

use super::{keys, queues, workers};
use crate::output::events;

/// What is looked at.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) counts: Counts,
    pub(super) queues: Vec<Queue>,
    /// The keys that stand still, those that are blocked first.
    pub(super) domains: Vec<DomainRecord>,
    /// So many of them were asked for: if there are as many, there may be more.
    pub(super) domains_max: usize,
    pub(super) workers: Vec<WorkerRecord>,
    /// The version of the cluster's settings.
    pub(super) settings_version: u64,
    /// The store's moment, by which a silence is judged.
    pub(super) now: Timestamp,
}

/// Everything that was looked at, the good too.
pub(super) fn judge(scene: &Scene) -> Vec<Finding> {
    let mut findings = vec![workers::workers(scene)];
    findings.extend(workers::silent(scene));
    findings.extend(workers::versions(scene));
    findings.extend(workers::settings(scene));
    findings.push(leases(scene));
    findings.push(queues::due(scene));
    findings.extend(queues::unserved(scene));
    findings.extend(queues::paused(scene));
    findings.extend(keys::keys(scene));
    findings.push(dead(scene));
    findings
}

impl Scene {
    /// The workers that stand so.
    pub(super) fn those(&self, presence: Presence) -> Vec<&WorkerRecord> {
        let stands = |worker: &&WorkerRecord| worker.presence(self.now) == presence;
        self.workers.iter().filter(stands).collect()
    }

    pub(super) fn is_paused(&self, name: &QueueName) -> bool {
        let mut queues = self.queues.iter();
        queues.any(|queue| queue.name == *name && queue.paused)
    }
}

fn leases(scene: &Scene) -> Finding {
    let lapsed = scene.counts.lapsed;
    let text = events(usize::try_from(lapsed).unwrap_or(usize::MAX));
    match (lapsed, scene.those(Presence::Here).is_empty()) {
        (0, _) => Finding::good("leases", "none has lapsed"),
        (_, false) => Finding::good("leases", format!("{text} under a lapsed one: reaped soon")),
        (_, true) => Finding::bad(
            "leases",
            format!("{text} under a lapsed one, and no worker is here to reap it"),
            "`tenure reap` ends it now",
        ),
    }
}

fn dead(scene: &Scene) -> Finding {
    match scene.counts.dead {
        0 => Finding::good("dead", "none"),
        number => Finding::warning(
            "dead",
            events(usize::try_from(number).unwrap_or(usize::MAX)),
            "`tenure events --state dead` lists them, `tenure replay --state dead` puts them back",
        ),
    }
}

/// Scenes to judge, for the tests of every part.
#[cfg(test)]
pub(super) mod scenes {
    use std::time::Duration;

    use tenure::{
        Content, Counters, DomainState, Event, ItemId, QueueCounts, Record, State, Verdict,
        WorkerId, WorkerReport,
    };

    use super::*;

    pub(in super::super) fn now() -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }

    pub(in super::super) fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    pub(in super::super) fn scene() -> Scene {
        Scene {
            counts: Counts::default(),
            queues: Vec::new(),
            domains: Vec::new(),
            domains_max: 1000,
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
                concurrency: 10,
                running: 0,
                held: 0,
                settings_version: 3,
                next_within: Duration::from_secs(5),
            },
            started_at: now(),
            seen_at: now(),
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

    /// The verdict on a subject; `None` when nothing is said of it.
    pub(in super::super) fn verdict(scene: &Scene, subject: &str) -> Option<Verdict> {
        let findings = judge(scene);
        let finding = findings.iter().find(|finding| finding.subject == subject)?;
        let needs_hint = finding.verdict != Verdict::Good;
        assert_eq!(finding.hint.is_some(), needs_hint, "{finding:?}");
        Some(finding.verdict)
    }

    /// The first thing that was found of a subject.
    pub(in super::super) fn found(scene: &Scene, subject: &str) -> String {
        let findings = judge(scene);
        let finding = findings.iter().find(|finding| finding.subject == subject);
        finding.unwrap().found.clone()
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

    pub(in super::super) fn domain(key: &str, state: DomainState, age: Duration) -> DomainRecord {
        DomainRecord {
            key: key.to_owned(),
            state,
            since: Some(now().before(age)),
            head: match state {
                DomainState::Idle | DomainState::Paused => None,
                DomainState::Blocked => Some(head(State::Dead)),
                DomainState::Held => Some(head(State::Claimed)),
                DomainState::Due | DomainState::Delayed => Some(head(State::Pending)),
            },
            waiting: 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure::Verdict;

    use super::scenes::{scene, verdict};
    use super::*;

    #[test]
    fn a_quiet_cluster_is_good_all_over() {
        let findings = judge(&scene());
        let is_good = |finding: &Finding| finding.verdict == Verdict::Good;
        assert!(findings.iter().all(is_good), "{findings:?}");
        let subjects: Vec<_> = findings.iter().map(|finding| finding.subject).collect();
        assert_eq!(subjects, ["workers", "leases", "due", "keys", "dead"]);
    }

    #[test]
    fn a_lapsed_lease_is_bad_only_when_nobody_reaps() {
        let mut scene = scene();
        scene.counts.lapsed = 2;
        assert_eq!(verdict(&scene, "leases"), Some(Verdict::Good));
        scene.workers.clear();
        assert_eq!(verdict(&scene, "leases"), Some(Verdict::Bad));
        scene.counts.lapsed = 0;
        assert_eq!(verdict(&scene, "leases"), Some(Verdict::Good));
    }

    #[test]
    fn the_dead_are_counted() {
        let mut scene = scene();
        scene.counts.dead = 3;
        assert_eq!(verdict(&scene, "dead"), Some(Verdict::Warning));
    }
}
