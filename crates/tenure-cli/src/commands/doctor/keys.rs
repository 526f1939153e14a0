//! The ordering keys that stand still.

use tenure::{DomainFilter, DomainRecord, DomainState, Finding};

use super::judge::Scene;
use crate::time::brief;

/// So many keys are named; the others are counted.
const NAMED_MAX: usize = 3;

/// The keys that stand still: blocked, paused, or for long at an event that fails. One that is both
/// blocked and paused is told of twice: it takes two orders to let it go on.
pub(super) fn keys(scene: &Scene) -> Vec<Finding> {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::{State, Verdict};

    use super::super::judge::judge;
    use super::super::judge::scenes::{domain, found, head, scene, verdict};
    use super::*;

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
}
