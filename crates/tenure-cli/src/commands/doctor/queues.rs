//! Checks of queues: waiting events, and workers that serve them.

use std::time::Duration;

use tenure::operate::{Finding, KeyRecord, KeyState, Presence};
use tenure::store::QueueName;

use super::judge::Snapshot;
use crate::output::events;
use crate::time::brief;

/// An event is overdue after this time.
const DUE_MAX: Duration = Duration::from_mins(1);

/// The counts of queues and of topics are read within this time of each other.
const AGES_READ_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn due(snapshot: &Snapshot) -> Finding {
    let queues = snapshot.counts.queues.iter();
    let waits = queues
        .filter(|(name, _)| !snapshot.is_paused(name))
        .filter_map(|(name, counts)| Some((counts.oldest_due?, name)));
    let Some((age, name)) = waits.max() else {
        return behind(snapshot);
    };
    let text = format!("the oldest has waited for {}, in {name}", brief(age));
    if age <= DUE_MAX {
        return Finding::good("due", text);
    }
    if snapshot.workers_that_are(Presence::Active).is_empty() {
        let hint = "no worker is running: `tenure serve` or `tenure work` starts one";
        return Finding::bad("due", text, hint);
    }
    let busy = "`tenure workers` shows how busy they are: start more, or raise the concurrency";
    let hint = if oldest_is_untaken(snapshot, name, age) {
        format!("see `topics` for the oldest; if others wait too, {busy}")
    } else {
        busy.to_owned()
    };
    Finding::warning("due", text, hint)
}

/// Returns true if no active worker takes the topic of the oldest due event of this queue.
fn oldest_is_untaken(snapshot: &Snapshot, queue: &QueueName, age: Duration) -> bool {
    // The two ages are read one after the other.
    let is_oldest = |waited: Duration| waited + AGES_READ_WITHIN >= age;
    let mut untaken = snapshot.untaken.iter();
    untaken.any(|of| of.queue == *queue && of.oldest_due.is_some_and(is_oldest))
}

/// Judges the events behind the heads of their keys when nothing is due: they wait for a claim that
/// makes them heads, or for an operator if their key is blocked or paused.
fn behind(snapshot: &Snapshot) -> Finding {
    let queues = snapshot.counts.queues.iter();
    let all: u64 = queues.map(|(_, counts)| counts.behind).sum();
    let is_held_up = |key: &&KeyRecord| key.is_blocked() || key.state == KeyState::Paused;
    let held_up = snapshot.keys.iter().filter(is_held_up);
    let held_up: u64 = held_up.map(|key| key.waiting).sum();
    let number = all.saturating_sub(held_up);
    if number == 0 || !snapshot.workers_that_are(Presence::Active).is_empty() {
        return Finding::good("due", nothing_is_due(snapshot));
    }
    let wait = match number {
        1 => "1 event with a key waits for its turn".to_owned(),
        number => format!("{number} events with a key wait for their turn"),
    };
    Finding::warning(
        "due",
        format!("{wait}, and no worker is running"),
        "`tenure serve` or `tenure work` starts one",
    )
}

fn nothing_is_due(snapshot: &Snapshot) -> String {
    let queues = snapshot.counts.queues.iter();
    match queues.map(|(_, counts)| counts.delayed).sum::<u64>() {
        0 => "nothing is due".to_owned(),
        delayed => {
            let delayed = usize::try_from(delayed).unwrap_or(usize::MAX);
            format!("nothing is due; delayed: {}", events(delayed))
        }
    }
}

/// Queues with due events that no active worker serves, if there are any workers.
pub(super) fn unserved(snapshot: &Snapshot) -> Option<Finding> {
    let active = snapshot.workers_that_are(Presence::Active);
    if active.is_empty() {
        return None;
    }
    let mut names = Vec::new();
    for (name, counts) in &snapshot.counts.queues {
        let is_served = active.iter().any(|worker| worker.report.serves(name));
        if counts.due > 0 && !is_served && !snapshot.is_paused(name) {
            names.push(format!("{name} ({} due)", counts.due));
        }
    }
    (!names.is_empty()).then(|| {
        Finding::bad(
            "queues",
            format!("no active worker serves {}", names.join(", ")),
            "`tenure work --queue NAME` serves one",
        )
    })
}

pub(super) fn paused(snapshot: &Snapshot) -> Option<Finding> {
    let mut names = Vec::new();
    for (name, counts) in &snapshot.counts.queues {
        let waiting = counts.due + counts.delayed + counts.behind;
        if waiting > 0 && snapshot.is_paused(name) {
            names.push(format!("{name} ({waiting} waiting)"));
        }
    }
    (!names.is_empty()).then(|| {
        Finding::warning(
            "paused",
            names.join(", "),
            "`tenure queues resume NAME` resumes one",
        )
    })
}

#[cfg(test)]
mod tests {
    use tenure::operate::{Queue, QueueRules, SeparateTopic, Verdict};

    use super::super::judge::snapshots::{finding, key, queue, snapshot, verdict, waiting, worker};
    use super::*;

    #[test]
    fn overdue_events_are_a_warning_and_without_workers_bad() {
        let mut snapshot = snapshot();
        let minute = Duration::from_mins(1);
        let late = minute + Duration::from_millis(1);
        for (age, with_worker, without) in [
            (minute, Verdict::Good, Verdict::Good),
            (late, Verdict::Warning, Verdict::Bad),
        ] {
            snapshot.counts.queues = vec![waiting("default", 1, age)];
            snapshot.workers = vec![worker("a")];
            assert_eq!(verdict(&snapshot, "due"), Some(with_worker));
            snapshot.workers.clear();
            assert_eq!(verdict(&snapshot, "due"), Some(without));
        }
    }

    /// Goal: the hint does not blame busy workers for a topic that none of them takes.
    #[test]
    fn the_hint_for_the_oldest_event_names_the_check_of_its_topic() {
        let mut snapshot = snapshot();
        let hour = Duration::from_hours(1);
        snapshot.counts.queues = vec![waiting("default", 2, hour)];
        for (age, is_named) in [(hour, true), (hour / 2, false)] {
            snapshot.untaken = vec![SeparateTopic {
                queue: queue("default"),
                topic: "invoice.sent".to_owned(),
                due: 1,
                delayed: 0,
                oldest_due: Some(age),
            }];
            let hint = due(&snapshot).hint.expect("a hint");
            assert_eq!(hint.contains("`topics`"), is_named, "{hint}");
            assert!(hint.contains("`tenure workers`"), "{hint}");
        }
    }

    #[test]
    fn events_that_wait_for_a_retry_are_counted() {
        let mut snapshot = snapshot();
        snapshot.counts.queues = vec![waiting("default", 0, Duration::ZERO)];
        for (delayed, expected) in [
            (0, "nothing is due"),
            (2, "nothing is due; delayed: 2 events"),
        ] {
            snapshot.counts.queues[0].1.delayed = delayed;
            assert_eq!(finding(&snapshot, "due"), expected);
        }
    }

    #[test]
    fn events_that_wait_for_their_turn_need_a_worker_too() {
        let mut snapshot = snapshot();
        snapshot.counts.queues = vec![waiting("default", 0, Duration::ZERO)];
        snapshot.counts.queues[0].1.behind = 4;
        assert_eq!(verdict(&snapshot, "due"), Some(Verdict::Good));
        snapshot.workers.clear();
        assert_eq!(verdict(&snapshot, "due"), Some(Verdict::Warning));
        // A worker does not help events that wait for an operator.
        let hour = Duration::from_hours(1);
        snapshot.keys = vec![
            key("a", KeyState::Paused, hour),
            key("b", KeyState::Blocked, hour),
        ];
        assert_eq!(verdict(&snapshot, "due"), Some(Verdict::Good));
        snapshot.keys[1].waiting = 1;
        assert_eq!(
            finding(&snapshot, "due"),
            "1 event with a key waits for its turn, and no worker is running"
        );
    }

    #[test]
    fn a_paused_queue_is_a_warning_while_events_wait_in_it() {
        let mut snapshot = snapshot();
        snapshot.queues = vec![Queue {
            name: queue("mail"),
            rules: QueueRules::default(),
            paused: true,
        }];
        snapshot.counts.queues = vec![waiting("mail", 4, Duration::from_hours(1))];
        snapshot.workers[0].report.queues = "default".to_owned();
        assert_eq!(verdict(&snapshot, "paused"), Some(Verdict::Warning));
        // The wait is intended, so neither its age nor the missing worker is reported.
        assert_eq!(verdict(&snapshot, "due"), Some(Verdict::Good));
        assert_eq!(verdict(&snapshot, "queues"), None);
        snapshot.counts.queues = vec![waiting("mail", 0, Duration::ZERO)];
        assert_eq!(verdict(&snapshot, "paused"), None);
    }

    #[test]
    fn an_unserved_queue_is_bad_while_events_are_due_in_it() {
        let mut snapshot = snapshot();
        snapshot.workers[0].report.queues = "default, audit".to_owned();
        snapshot.counts.queues = vec![waiting("mail", 1, Duration::ZERO)];
        assert_eq!(verdict(&snapshot, "queues"), Some(Verdict::Bad));
        snapshot.workers[0].report.queues = "default, mail".to_owned();
        assert_eq!(verdict(&snapshot, "queues"), None);
        snapshot.workers[0].report.queues = "default".to_owned();
        snapshot.counts.queues = vec![waiting("mail", 0, Duration::ZERO)];
        assert_eq!(verdict(&snapshot, "queues"), None);
    }
}
