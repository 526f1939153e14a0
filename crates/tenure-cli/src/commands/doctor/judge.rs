//! What counts, queues and workers say about the health of a cluster: a pure function.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure::{
    Counts, DomainFilter, DomainRecord, DomainState, Finding, Presence, Queue, QueueName,
    Timestamp, WorkerRecord,
};

use crate::output::events;
use crate::time::brief;

/// An event that has been due for longer waits too long.
const DUE_MAX: Duration = Duration::from_mins(1);

/// So many keys are named; the others are counted.
const NAMED_MAX: usize = 3;

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
    let mut findings = vec![workers(scene)];
    findings.extend(silent(scene));
    findings.extend(versions(scene));
    findings.extend(settings(scene));
    findings.push(leases(scene));
    findings.push(due(scene));
    findings.extend(unserved(scene));
    findings.extend(paused(scene));
    findings.extend(keys(scene));
    findings.push(dead(scene));
    findings
}

impl Scene {
    /// The workers that stand so.
    fn those(&self, presence: Presence) -> Vec<&WorkerRecord> {
        let stands = |worker: &&WorkerRecord| worker.presence(self.now) == presence;
        self.workers.iter().filter(stands).collect()
    }

    fn is_paused(&self, name: &QueueName) -> bool {
        let mut queues = self.queues.iter();
        queues.any(|queue| queue.name == *name && queue.paused)
    }
}

fn workers(scene: &Scene) -> Finding {
    match scene.those(Presence::Here).len() {
        0 => Finding::warning(
            "workers",
            "none is here: nothing is worked on, and nothing that lapsed is reaped",
            "`tenure serve` or `tenure work` starts one",
        ),
        1 => Finding::good("workers", "1 is here"),
        number => Finding::good("workers", format!("{number} are here")),
    }
}

fn silent(scene: &Scene) -> Option<Finding> {
    let names = names(&scene.those(Presence::Silent), |worker| {
        worker.report.worker.to_string()
    });
    (!names.is_empty()).then(|| {
        Finding::warning(
            "silence",
            format!("no longer reports: {names}"),
            "it hangs, was killed or cannot reach the database; what it held is given to others",
        )
    })
}

fn versions(scene: &Scene) -> Option<Finding> {
    let here = scene.those(Presence::Here);
    let versions: BTreeSet<&str> = here
        .iter()
        .map(|worker| worker.report.version.as_str())
        .collect();
    let versions: Vec<&str> = versions.into_iter().collect();
    (versions.len() > 1).then(|| {
        Finding::warning(
            "versions",
            format!("the workers here run {}", versions.join(", ")),
            "bring all to the same one; during a deployment this is to be expected",
        )
    })
}

fn settings(scene: &Scene) -> Option<Finding> {
    let mut late = scene.those(Presence::Here);
    late.retain(|worker| worker.report.settings_version < scene.settings_version);
    let names = names(&late, |worker| {
        format!(
            "{} ({})",
            worker.report.worker, worker.report.settings_version
        )
    });
    (!names.is_empty()).then(|| {
        Finding::warning(
            "settings",
            format!("older than version {} at: {names}", scene.settings_version),
            "they take it over by themselves within seconds; one that refused it says why in its \
             log: `refused the settings of the cluster`",
        )
    })
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

fn due(scene: &Scene) -> Finding {
    let queues = scene.counts.queues.iter();
    let waits = queues
        .filter(|(name, _)| !scene.is_paused(name))
        .filter_map(|(name, counts)| Some((counts.oldest_due?, name)));
    let Some((age, name)) = waits.max() else {
        return behind(scene);
    };
    let found = format!("the first has waited for {}, in {name}", brief(age));
    if age <= DUE_MAX {
        return Finding::good("due", found);
    }
    if scene.those(Presence::Here).is_empty() {
        let hint = "no worker is here: `tenure serve` or `tenure work` starts one";
        return Finding::bad("due", found, hint);
    }
    let hint = "`tenure workers` shows how busy they are: start more, or raise the concurrency";
    Finding::warning("due", found, hint)
}

/// Nothing is due; but what has a key may wait for a claim to find it its place. What waits in a
/// key that is blocked or paused waits for an operator, and no worker would help.
fn behind(scene: &Scene) -> Finding {
    let queues = scene.counts.queues.iter();
    let all: u64 = queues.map(|(_, counts)| counts.behind).sum();
    let is_held_up =
        |domain: &&DomainRecord| domain.is_blocked() || domain.state == DomainState::Paused;
    let held_up = scene.domains.iter().filter(is_held_up);
    let held_up: u64 = held_up.map(|domain| domain.waiting).sum();
    let number = all.saturating_sub(held_up);
    if number == 0 || !scene.those(Presence::Here).is_empty() {
        return Finding::good("due", "nothing waits that is due");
    }
    let wait = match number {
        1 => "1 event with a key waits for its turn".to_owned(),
        number => format!("{number} events with a key wait for their turn"),
    };
    Finding::warning(
        "due",
        format!("{wait}, and no worker is here to give it"),
        "`tenure serve` or `tenure work` starts one",
    )
}

/// Queues with due events that no worker serves, where there are workers.
fn unserved(scene: &Scene) -> Option<Finding> {
    let here = scene.those(Presence::Here);
    if here.is_empty() {
        return None;
    }
    let mut names = Vec::new();
    for (name, counts) in &scene.counts.queues {
        let is_served = here.iter().any(|worker| worker.report.serves(name));
        if counts.due > 0 && !is_served && !scene.is_paused(name) {
            names.push(format!("{name} ({} due)", counts.due));
        }
    }
    (!names.is_empty()).then(|| {
        Finding::bad(
            "queues",
            format!("no worker here serves {}", names.join(", ")),
            "`tenure work --queue NAME` serves one",
        )
    })
}

fn paused(scene: &Scene) -> Option<Finding> {
    let mut names = Vec::new();
    for (name, counts) in &scene.counts.queues {
        let waiting = counts.due + counts.delayed + counts.behind;
        if waiting > 0 && scene.is_paused(name) {
            let verb = if waiting == 1 { "waits" } else { "wait" };
            names.push(format!("{name} ({waiting} {verb})"));
        }
    }
    (!names.is_empty()).then(|| {
        Finding::warning(
            "paused",
            names.join(", "),
            "`tenure queues resume NAME` lets claims take from it again",
        )
    })
}

/// The keys that stand still: blocked, paused, or for long at an event that fails. One that is both
/// blocked and paused is told of twice: it takes two orders to let it go on.
fn keys(scene: &Scene) -> Vec<Finding> {
    let is_long = |domain: &DomainRecord| {
        let age = domain.since.map(|moment| scene.now.since(moment));
        age.is_some_and(|age| age > DomainFilter::LONG)
    };
    let (mut blocked, mut stuck, mut paused) = (Vec::new(), Vec::new(), Vec::new());
    for domain in &scene.domains {
        if domain.is_blocked() {
            blocked.push(domain);
        } else if domain.is_failing() && is_long(domain) && domain.state != DomainState::Paused {
            stuck.push(domain);
        }
        if domain.state == DomainState::Paused && domain.waiting > 0 {
            paused.push(domain);
        }
    }
    let may_be_more = scene.domains.len() >= scene.domains_max;
    let findings: Vec<Finding> = [
        // They come first: if others are there, all of them are.
        blocked_keys(&blocked, blocked.len() >= scene.domains_max),
        stuck_keys(&stuck, may_be_more),
        paused_keys(&paused, may_be_more),
    ]
    .into_iter()
    .flatten()
    .collect();
    match (findings.is_empty(), may_be_more) {
        (false, _) => findings,
        (true, false) => vec![Finding::good("keys", "none stands still")],
        (true, true) => {
            let number = scene.domains.len();
            vec![Finding::warning(
                "keys",
                format!("{number} or more failed or have been at one event for long"),
                "`tenure domains list --stuck --limit 1000` lists the first of them",
            )]
        }
    }
}

fn blocked_keys(keys: &[&DomainRecord], may_be_more: bool) -> Option<Finding> {
    (!keys.is_empty()).then(|| {
        Finding::bad(
            "keys",
            format!("a dead event blocks {}", key_names(keys, may_be_more)),
            "`tenure domains show KEY` says of what it died; `tenure replay ID` tries it again, \
             `tenure domains skip KEY --reason WHY` goes on without it",
        )
    })
}

fn stuck_keys(keys: &[&DomainRecord], may_be_more: bool) -> Option<Finding> {
    let (names, most) = (key_names(keys, may_be_more), brief(DomainFilter::LONG));
    (!keys.is_empty()).then(|| {
        Finding::warning(
            "keys",
            format!("at one failing event for over {most}: {names}"),
            "`tenure domains list --stuck` lists them, `tenure domains show KEY` says why; \
             `tenure domains skip KEY --reason WHY` goes on without the event",
        )
    })
}

fn paused_keys(keys: &[&DomainRecord], may_be_more: bool) -> Option<Finding> {
    let names = key_names(keys, may_be_more);
    (!keys.is_empty()).then(|| {
        Finding::warning(
            "keys",
            format!("paused, with events that wait: {names}"),
            "`tenure domains resume KEY` lets claims take from it again",
        )
    })
}

/// The first keys by name, and how many more there are.
fn key_names(domains: &[&DomainRecord], may_be_more: bool) -> String {
    let named = domains.iter().take(NAMED_MAX);
    let mut all: Vec<String> = named
        .map(|domain| {
            let also = match (domain.is_blocked(), domain.state) {
                (true, DomainState::Paused) => ", paused and blocked",
                _ => "",
            };
            format!("{:?} ({} behind{also})", domain.key, domain.waiting)
        })
        .collect();
    match domains.len().saturating_sub(NAMED_MAX) {
        _ if may_be_more => all.push(format!("{} or more in all", domains.len())),
        0 => {}
        more => all.push(format!("{more} more")),
    }
    all.join(", ")
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

/// What `text` says of each, in a list.
fn names(workers: &[&WorkerRecord], text: impl Fn(&WorkerRecord) -> String) -> String {
    let all: Vec<String> = workers.iter().map(|worker| text(worker)).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use tenure::{
        Content, Counters, Event, ItemId, QueueCounts, Record, State, Verdict, WorkerId,
        WorkerReport,
    };

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn scene() -> Scene {
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

    fn worker(name: &str) -> WorkerRecord {
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

    fn waiting(name: &str, due: u64, age: Duration) -> (QueueName, QueueCounts) {
        let counts = QueueCounts {
            due,
            delayed: 0,
            behind: 0,
            oldest_due: (due > 0).then_some(age),
        };
        (queue(name), counts)
    }

    /// The verdict on a subject; `None` when nothing is said of it.
    fn verdict(scene: &Scene, subject: &str) -> Option<Verdict> {
        let findings = judge(scene);
        let finding = findings.iter().find(|finding| finding.subject == subject)?;
        let needs_hint = finding.verdict != Verdict::Good;
        assert_eq!(finding.hint.is_some(), needs_hint, "{finding:?}");
        Some(finding.verdict)
    }

    #[test]
    fn a_quiet_cluster_is_good_all_over() {
        let findings = judge(&scene());
        let is_good = |finding: &Finding| finding.verdict == Verdict::Good;
        assert!(findings.iter().all(is_good), "{findings:?}");
        let subjects: Vec<_> = findings.iter().map(|finding| finding.subject).collect();
        assert_eq!(subjects, ["workers", "leases", "due", "keys", "dead"]);
    }

    #[test]
    fn no_worker_is_a_warning_and_a_silent_one_is_named() {
        let mut scene = scene();
        scene.workers[0].seen_at = now().before(Duration::from_secs(16));
        assert_eq!(verdict(&scene, "workers"), Some(Verdict::Warning));
        assert_eq!(verdict(&scene, "silence"), Some(Verdict::Warning));
        scene.workers[0].left_at = Some(now());
        assert_eq!(verdict(&scene, "silence"), None);
        assert_eq!(verdict(&scene, "workers"), Some(Verdict::Warning));
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
    fn what_waits_too_long_is_a_warning_and_without_workers_bad() {
        let mut scene = scene();
        let minute = Duration::from_mins(1);
        let late = minute + Duration::from_millis(1);
        for (age, with_worker, without) in [
            (minute, Verdict::Good, Verdict::Good),
            (late, Verdict::Warning, Verdict::Bad),
        ] {
            scene.counts.queues = vec![waiting("default", 1, age)];
            scene.workers = vec![worker("a")];
            assert_eq!(verdict(&scene, "due"), Some(with_worker));
            scene.workers.clear();
            assert_eq!(verdict(&scene, "due"), Some(without));
        }
    }

    #[test]
    fn what_waits_for_its_turn_needs_a_worker_too() {
        let mut scene = scene();
        scene.counts.queues = vec![waiting("default", 0, Duration::ZERO)];
        scene.counts.queues[0].1.behind = 4;
        assert_eq!(verdict(&scene, "due"), Some(Verdict::Good));
        scene.workers.clear();
        assert_eq!(verdict(&scene, "due"), Some(Verdict::Warning));
        // A worker would not help those that an operator holds up.
        let hour = Duration::from_hours(1);
        scene.domains = vec![
            domain("a", DomainState::Paused, hour),
            domain("b", DomainState::Blocked, hour),
        ];
        assert_eq!(verdict(&scene, "due"), Some(Verdict::Good));
        scene.domains[1].waiting = 1;
        assert_eq!(
            found(&scene, "due"),
            "1 event with a key waits for its turn, and no worker is here to give it"
        );
    }

    #[test]
    fn a_paused_queue_is_a_warning_while_something_waits_in_it() {
        let mut scene = scene();
        scene.queues = vec![Queue {
            name: queue("mail"),
            term: None,
            paused: true,
        }];
        scene.counts.queues = vec![waiting("mail", 4, Duration::from_hours(1))];
        scene.workers[0].report.queues = "default".to_owned();
        assert_eq!(verdict(&scene, "paused"), Some(Verdict::Warning));
        // It is meant to wait: neither its age nor that nobody serves it is told besides.
        assert_eq!(verdict(&scene, "due"), Some(Verdict::Good));
        assert_eq!(verdict(&scene, "queues"), None);
        scene.counts.queues = vec![waiting("mail", 0, Duration::ZERO)];
        assert_eq!(verdict(&scene, "paused"), None);
    }

    #[test]
    fn a_queue_that_nobody_serves_is_bad_while_something_is_due_in_it() {
        let mut scene = scene();
        scene.workers[0].report.queues = "default, audit".to_owned();
        scene.counts.queues = vec![waiting("mail", 1, Duration::ZERO)];
        assert_eq!(verdict(&scene, "queues"), Some(Verdict::Bad));
        scene.workers[0].report.queues = "default, mail".to_owned();
        assert_eq!(verdict(&scene, "queues"), None);
        scene.workers[0].report.queues = "default".to_owned();
        scene.counts.queues = vec![waiting("mail", 0, Duration::ZERO)];
        assert_eq!(verdict(&scene, "queues"), None);
    }

    /// The first thing that was found of a subject.
    fn found(scene: &Scene, subject: &str) -> String {
        let findings = judge(scene);
        let finding = findings.iter().find(|finding| finding.subject == subject);
        finding.unwrap().found.clone()
    }

    /// A head that failed once.
    fn head(state: State) -> Record {
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

    fn domain(key: &str, state: DomainState, age: Duration) -> DomainRecord {
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

    #[test]
    fn a_key_that_stands_still_is_told_by_what_holds_it_up() {
        let ten = Duration::from_mins(10);
        let late = ten + Duration::from_secs(1);
        for (state, age, verdict) in [
            (DomainState::Blocked, Duration::ZERO, Verdict::Bad),
            (DomainState::Paused, Duration::ZERO, Verdict::Warning),
            (DomainState::Delayed, ten, Verdict::Good),
            (DomainState::Delayed, late, Verdict::Warning),
            (DomainState::Held, late, Verdict::Warning),
            (DomainState::Due, late, Verdict::Warning),
        ] {
            let mut scene = scene();
            scene.domains = vec![domain("customer-7", state, age)];
            assert_eq!(self::verdict(&scene, "keys"), Some(verdict), "{state}");
        }
        // Nothing waits for it: an operator may prepare a pause.
        let mut scene = scene();
        scene.domains = vec![domain("customer-7", DomainState::Paused, late)];
        scene.domains[0].waiting = 0;
        assert_eq!(verdict(&scene, "keys"), Some(Verdict::Good));
        // Long work that never failed is no fault.
        scene.domains = vec![domain("customer-7", DomainState::Held, late)];
        scene.domains[0].head = None;
        assert_eq!(verdict(&scene, "keys"), Some(Verdict::Good));
    }

    #[test]
    fn a_pause_does_not_hide_a_block() {
        let mut scene = scene();
        scene.domains = vec![domain("a", DomainState::Paused, Duration::ZERO)];
        scene.domains[0].head = Some(head(State::Dead));
        assert_eq!(verdict(&scene, "keys"), Some(Verdict::Bad));
        let expected = "a dead event blocks \"a\" (2 behind, paused and blocked)";
        assert_eq!(found(&scene, "keys"), expected);
    }

    #[test]
    fn at_the_limit_there_may_be_more() {
        let mut scene = scene();
        scene.domains_max = 2;
        scene.domains = vec![
            domain("a", DomainState::Blocked, Duration::ZERO),
            domain("b", DomainState::Paused, Duration::ZERO),
        ];
        let keys: Vec<String> = judge(&scene)
            .into_iter()
            .filter(|finding| finding.subject == "keys")
            .map(|finding| finding.found)
            .collect();
        let blocked = "a dead event blocks \"a\" (2 behind)";
        let paused = "paused, with events that wait: \"b\" (2 behind), 1 or more in all";
        assert_eq!(keys, [blocked, paused]);
        // What is not looked at is not said to be good.
        for domain in &mut scene.domains {
            domain.state = DomainState::Due;
            domain.head = None;
        }
        assert_eq!(verdict(&scene, "keys"), Some(Verdict::Warning));
    }

    #[test]
    fn only_the_first_keys_are_named() {
        let mut scene = scene();
        let blocked = |key| domain(key, DomainState::Blocked, Duration::ZERO);
        scene.domains = ["a", "b", "c", "d", "e"].map(blocked).into();
        assert_eq!(
            found(&scene, "keys"),
            "a dead event blocks \"a\" (2 behind), \"b\" (2 behind), \"c\" (2 behind), 2 more"
        );
    }

    #[test]
    fn the_dead_are_counted() {
        let mut scene = scene();
        scene.counts.dead = 3;
        assert_eq!(verdict(&scene, "dead"), Some(Verdict::Warning));
    }

    #[test]
    fn workers_that_differ_are_told() {
        let mut scene = scene();
        scene.workers.push(worker("b"));
        assert_eq!(verdict(&scene, "versions"), None);
        assert_eq!(verdict(&scene, "settings"), None);
        scene.workers[1].report.version = "0.2.0".to_owned();
        scene.workers[1].report.settings_version = 2;
        assert_eq!(verdict(&scene, "versions"), Some(Verdict::Warning));
        assert_eq!(verdict(&scene, "settings"), Some(Verdict::Warning));
        // One that is gone does not count.
        scene.workers[1].left_at = Some(now());
        assert_eq!(verdict(&scene, "versions"), None);
        assert_eq!(verdict(&scene, "settings"), None);
    }
}
