//! What waits in queues, and whether anybody takes it.

use std::time::Duration;

use tenure::{DomainRecord, DomainState, Finding, Presence};

use super::judge::Scene;
use crate::time::brief;

/// An event that has been due for longer waits too long.
const DUE_MAX: Duration = Duration::from_mins(1);

pub(super) fn due(scene: &Scene) -> Finding {
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
pub(super) fn unserved(scene: &Scene) -> Option<Finding> {
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

pub(super) fn paused(scene: &Scene) -> Option<Finding> {
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

#[cfg(test)]
mod tests {
    use tenure::{Queue, Verdict};

    use super::super::judge::scenes::{domain, found, queue, scene, verdict, waiting, worker};
    use super::*;

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
}
