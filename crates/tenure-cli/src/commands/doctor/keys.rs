//! Checks of ordering keys.

use tenure::operate::{Finding, KeyFilter, KeyRecord, KeyState};
use tenure::store::Timestamp;

use super::judge::Snapshot;
use crate::time::brief;

/// Maximum number of keys in a finding; the others are counted.
const NAMED_MAX: usize = 3;

/// Findings on keys that are blocked, paused, or stuck at a failing event. A key that is both
/// blocked and paused is reported twice, because it takes two commands to release it.
pub(super) fn keys(snapshot: &Snapshot) -> Vec<Finding> {
    let is_long = |key: &KeyRecord| {
        let age = key.since.map(|moment| snapshot.now.since(moment));
        age.is_some_and(|age| age > KeyFilter::LONG)
    };
    let (mut blocked, mut stuck, mut paused) = (Vec::new(), Vec::new(), Vec::new());
    for key in &snapshot.keys {
        if key.is_blocked() {
            blocked.push(key);
        } else if key.is_failing() && is_long(key) && key.state != KeyState::Paused {
            stuck.push(key);
        }
        if key.state == KeyState::Paused && key.waiting > 0 {
            paused.push(key);
        }
    }
    let may_be_more = snapshot.keys.len() >= snapshot.keys_max;
    let findings: Vec<Finding> = [
        // Blocked keys come first, so a list with other keys contains all blocked ones.
        blocked_keys(&blocked, blocked.len() >= snapshot.keys_max),
        stuck_keys(&stuck, may_be_more, snapshot.now),
        paused_keys(&paused, may_be_more),
    ]
    .into_iter()
    .flatten()
    .collect();
    match (findings.is_empty(), may_be_more) {
        (false, _) => findings,
        (true, false) => vec![Finding::good("keys", none_is_stuck())],
        (true, true) => {
            let number = snapshot.keys.len();
            vec![Finding::warning(
                "keys",
                format!("{number} or more have failed or have been at one event for long"),
                "`tenure keys list --stuck --limit 1000` lists the first of them",
            )]
        }
    }
}

fn none_is_stuck() -> String {
    let most = brief(KeyFilter::LONG);
    format!("none is blocked, paused or at one failing event for over {most}")
}

fn blocked_keys(keys: &[&KeyRecord], may_be_more: bool) -> Option<Finding> {
    (!keys.is_empty()).then(|| {
        Finding::bad(
            "keys",
            format!("a dead event blocks {}", key_names(keys, may_be_more)),
            "`tenure keys show KEY` shows why it is dead; `tenure replay ID` tries it again, \
             `tenure keys skip KEY --reason WHY` continues without it",
        )
    })
}

fn stuck_keys(keys: &[&KeyRecord], may_be_more: bool, now: Timestamp) -> Option<Finding> {
    let (names, most) = (key_names(keys, may_be_more), brief(KeyFilter::LONG));
    let is_retried_long = |key: &&&KeyRecord| key.retried_long(now).is_some();
    let retried = match keys.iter().filter(is_retried_long).count() {
        0 => String::new(),
        number => format!(
            "; {number} retried for over {}",
            brief(KeyRecord::RETRIED_LONG)
        ),
    };
    (!keys.is_empty()).then(|| {
        Finding::warning(
            "keys",
            format!("at one failing event for over {most}: {names}{retried}"),
            "`tenure keys list --stuck` lists them, `tenure keys show KEY` shows why; \
             `tenure keys skip KEY --reason WHY` continues without the event; `tenure queues add \
             QUEUE --max-retries N` gives up sooner",
        )
    })
}

fn paused_keys(keys: &[&KeyRecord], may_be_more: bool) -> Option<Finding> {
    let names = key_names(keys, may_be_more);
    (!keys.is_empty()).then(|| {
        Finding::warning(
            "keys",
            format!("paused, with events waiting: {names}"),
            "`tenure keys resume KEY` resumes one",
        )
    })
}

/// The first keys, and the number of the others.
fn key_names(keys: &[&KeyRecord], may_be_more: bool) -> String {
    let named = keys.iter().take(NAMED_MAX);
    let mut all: Vec<String> = named
        .map(|key| {
            let also = match (key.is_blocked(), key.state) {
                (true, KeyState::Paused) => ", paused and blocked",
                _ => "",
            };
            format!("{:?} ({} behind{also})", key.name, key.waiting)
        })
        .collect();
    match keys.len().saturating_sub(NAMED_MAX) {
        _ if may_be_more => all.push(format!("{} or more in all", keys.len())),
        0 => {}
        more => all.push(format!("{more} more")),
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::State;
    use tenure::operate::Verdict;

    use super::super::judge::judge;
    use super::super::judge::snapshots::{finding, head, key, snapshot, verdict};
    use super::*;

    #[test]
    fn a_stuck_key_is_reported_by_its_cause() {
        let ten = Duration::from_mins(10);
        let late = ten + Duration::from_secs(1);
        for (state, age, verdict) in [
            (KeyState::Blocked, Duration::ZERO, Verdict::Bad),
            (KeyState::Paused, Duration::ZERO, Verdict::Warning),
            (KeyState::Delayed, ten, Verdict::Good),
            (KeyState::Delayed, late, Verdict::Warning),
            (KeyState::Held, late, Verdict::Warning),
            (KeyState::Due, late, Verdict::Warning),
        ] {
            let mut snapshot = snapshot();
            snapshot.keys = vec![key("customer-7", state, age)];
            assert_eq!(self::verdict(&snapshot, "keys"), Some(verdict), "{state}");
        }
        // No event waits: a pause in advance is fine.
        let mut snapshot = snapshot();
        snapshot.keys = vec![key("customer-7", KeyState::Paused, late)];
        snapshot.keys[0].waiting = 0;
        assert_eq!(verdict(&snapshot, "keys"), Some(Verdict::Good));
        // Long work that never failed is fine.
        snapshot.keys = vec![key("customer-7", KeyState::Held, late)];
        snapshot.keys[0].head = None;
        assert_eq!(verdict(&snapshot, "keys"), Some(Verdict::Good));
    }

    #[test]
    fn a_head_that_was_retried_for_over_an_hour_is_counted() {
        let hour = KeyRecord::RETRIED_LONG;
        for (age, end) in [(hour, ""), (hour * 2, "; 1 retried for over 1h")] {
            let mut snapshot = snapshot();
            let mut stuck = key("a", KeyState::Delayed, age);
            if let Some(head) = &mut stuck.head {
                head.counters.failures = 2;
            }
            snapshot.keys = vec![stuck];
            let expected = format!("at one failing event for over 10m: \"a\" (2 behind){end}");
            assert_eq!(finding(&snapshot, "keys"), expected);
        }
    }

    #[test]
    fn a_pause_does_not_hide_a_block() {
        let mut snapshot = snapshot();
        snapshot.keys = vec![key("a", KeyState::Paused, Duration::ZERO)];
        snapshot.keys[0].head = Some(head(State::Dead));
        assert_eq!(verdict(&snapshot, "keys"), Some(Verdict::Bad));
        let expected = "a dead event blocks \"a\" (2 behind, paused and blocked)";
        assert_eq!(finding(&snapshot, "keys"), expected);
    }

    #[test]
    fn at_the_limit_there_may_be_more() {
        let mut snapshot = snapshot();
        snapshot.keys_max = 2;
        snapshot.keys = vec![
            key("a", KeyState::Blocked, Duration::ZERO),
            key("b", KeyState::Paused, Duration::ZERO),
        ];
        let keys: Vec<String> = judge(&snapshot)
            .into_iter()
            .filter(|finding| finding.subject == "keys")
            .map(|finding| finding.text)
            .collect();
        let blocked = "a dead event blocks \"a\" (2 behind)";
        let paused = "paused, with events waiting: \"b\" (2 behind), 1 or more in all";
        assert_eq!(keys, [blocked, paused]);
        // Keys that were not checked are not reported as good.
        for key in &mut snapshot.keys {
            key.state = KeyState::Due;
            key.head = None;
        }
        assert_eq!(verdict(&snapshot, "keys"), Some(Verdict::Warning));
    }

    #[test]
    fn only_the_first_keys_are_named() {
        let mut snapshot = snapshot();
        let blocked = |name| key(name, KeyState::Blocked, Duration::ZERO);
        snapshot.keys = ["a", "b", "c", "d", "e"].map(blocked).into();
        assert_eq!(
            finding(&snapshot, "keys"),
            "a dead event blocks \"a\" (2 behind), \"b\" (2 behind), \"c\" (2 behind), 2 more"
        );
    }
}
