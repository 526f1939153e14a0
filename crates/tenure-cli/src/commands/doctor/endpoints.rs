//! What endpoints and deliveries say about the health of a cluster.

use std::time::Duration;

use tenure::webhook::{Disabled, Endpoint, EndpointState};
use tenure::{Finding, Timestamp};

use super::judge::Scene;
use crate::commands::endpoints::waiting;
use crate::config::WebhookConfig;
use crate::output::deliveries;
use crate::time::brief;
use crate::webhook;

/// A delivery that has been due for longer waits too long.
const DUE_MAX: Duration = Duration::from_mins(1);
/// An endpoint at which nothing has succeeded for longer is worth a look.
const FAILING_MAX: Duration = Duration::from_hours(1);
/// So many endpoints are named; the others are counted.
const NAMED_MAX: usize = 3;

/// What endpoints and their lines say; nothing when there are none.
pub(super) fn judge(all: &[Endpoint], scene: &Scene) -> Vec<Finding> {
    if all.is_empty() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    findings.extend(disabled(all, scene));
    findings.extend(failing(all, scene.now));
    if findings.is_empty() {
        let enabled = all.iter().filter(|it| it.state == EndpointState::Enabled);
        let found = format!("{} enabled, none fails", enabled.count());
        findings.push(Finding::good("endpoints", found));
    }
    findings.push(due(all, scene));
    findings.push(dead(scene));
    findings
}

/// Those that are disabled: by themselves, or by hand while something waits for them.
fn disabled(all: &[Endpoint], scene: &Scene) -> Option<Finding> {
    let mut names = Vec::new();
    for endpoint in all {
        let EndpointState::Disabled { why, since } = &endpoint.state else {
            continue;
        };
        let counts = waiting(&scene.counts, endpoint.number);
        let waits = counts.due + counts.delayed + counts.behind;
        let why = match why {
            Disabled::ByHand(_) if waits == 0 => continue,
            Disabled::ByHand(_) => "by hand",
            Disabled::Gone => "it answered 410",
            Disabled::Asked => "it asked for it",
            Disabled::Failing => "it failed for days",
        };
        let age = brief(scene.now.since(*since));
        names.push(format!("{} ({why}, {age} ago, {waits} wait)", endpoint.id));
    }
    (!names.is_empty()).then(|| {
        Finding::warning(
            "endpoints",
            format!("disabled: {}", named(&names)),
            "`tenure endpoints test ID` tries one, `tenure endpoints enable ID` sends again, \
             `tenure endpoints remove ID` gives it up",
        )
    })
}

/// Those at which nothing has succeeded for long, or that are left alone.
fn failing(all: &[Endpoint], now: Timestamp) -> Option<Finding> {
    let mut names = Vec::new();
    let mut first = None;
    for endpoint in all.iter().filter(|it| it.state == EndpointState::Enabled) {
        let health = &endpoint.health;
        let length = health.failing_since.map(|since| now.since(since));
        let how = match length {
            Some(length) if length > FAILING_MAX => {
                format!("{} times in {}", health.failures, brief(length))
            }
            _ if health.is_paused(now) => "left alone".to_owned(),
            _ => continue,
        };
        let error = match &health.last_error {
            Some(error) => format!(": {error}"),
            None => String::new(),
        };
        names.push(format!("{} ({how}{error})", endpoint.id));
        first = first.or(Some(&endpoint.id));
    }
    first.map(|id| {
        Finding::warning(
            "endpoints",
            format!("failing: {}", named(&names)),
            format!(
                "`tenure endpoints` lists them; `tenure endpoints test {id}` calls it once, \
                 `tenure endpoints enable {id}` ends the wait once it is mended; one that fails \
                 for five days is disabled"
            ),
        )
    })
}

fn due(all: &[Endpoint], scene: &Scene) -> Finding {
    let is_open = |endpoint: &&Endpoint| {
        endpoint.state == EndpointState::Enabled && !endpoint.health.is_paused(scene.now)
    };
    let waits = all.iter().filter(is_open).filter_map(|endpoint| {
        let age = waiting(&scene.counts, endpoint.number).oldest_due?;
        Some((age, &endpoint.id))
    });
    let Some((age, id)) = waits.max() else {
        return Finding::good("deliveries", "nothing waits that is due");
    };
    let found = format!("the first has waited for {}, for {id}", brief(age));
    if age <= DUE_MAX {
        return Finding::good("deliveries", found);
    }
    let hint = "is a process here that sends (`webhook.send`)? Raise the concurrency of the \
                endpoint (`tenure endpoints edit ID`) or of the process (`webhook.concurrency`)";
    Finding::warning("deliveries", found, hint)
}

fn dead(scene: &Scene) -> Finding {
    match scene.counts.deliveries.dead {
        0 => Finding::good("dead deliveries", "none"),
        number => Finding::warning(
            "dead deliveries",
            deliveries(usize::try_from(number).unwrap_or(usize::MAX)),
            "`tenure deliveries list --state dead` lists them, `tenure deliveries replay --state \
             dead` puts them back",
        ),
    }
}

/// Whether this process can open what is sealed.
pub(super) fn keys(all: &[Endpoint], config: &WebhookConfig) -> Option<Finding> {
    let is_sent_to = |endpoint: &&Endpoint| endpoint.state == EndpointState::Enabled;
    let mut sealed = all.iter().filter(is_sent_to).peekable();
    sealed.peek()?;
    let hint = "webhook.key_file names the file that `tenure endpoints add` made, \
                TENURE_WEBHOOK_KEY holds what is in it";
    let keys = match webhook::keys(config) {
        Ok(keys) => keys,
        Err(problem) => return Some(Finding::bad("webhook key", problem.message, hint)),
    };
    let closed = sealed.filter(|endpoint| webhook::open(endpoint, &keys).is_err());
    let names: Vec<String> = closed.map(|endpoint| endpoint.id.to_string()).collect();
    if !names.is_empty() {
        let found = format!("does not open what is sealed for {}", named(&names));
        return Some(Finding::bad("webhook key", found, hint));
    }
    if webhook::is_open_to_others(config) {
        let file = config.key_file.display();
        let found = format!("{file} can be read by others than its owner");
        let hint = format!("`chmod 600 {file}`");
        return Some(Finding::warning("webhook key", found, hint));
    }
    Some(Finding::good(
        "webhook key",
        "opens everything that is sealed",
    ))
}

/// The first by name, and how many more there are.
pub(super) fn named(names: &[String]) -> String {
    let mut all: Vec<String> = names.iter().take(NAMED_MAX).cloned().collect();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => {}
        more => all.push(format!("{more} more")),
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use tenure::webhook::{EndpointId, EndpointSettings, Health};
    use tenure::{Counts, QueueCounts, TopicPattern, Verdict};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }

    fn endpoint(number: u32) -> Endpoint {
        Endpoint {
            id: EndpointId::new(&format!("e{number}")).unwrap(),
            number,
            settings: EndpointSettings::new("https://example.com", vec![TopicPattern::any()]),
            sealed: String::new(),
            state: EndpointState::Enabled,
            health: Health::default(),
            version: 1,
            created_at: now(),
        }
    }

    fn scene(waits: &[(u32, u64, Duration)], dead: u64) -> Scene {
        let mut counts = Counts::default();
        counts.deliveries.dead = dead;
        counts.deliveries.endpoints = waits
            .iter()
            .map(|(number, due, age)| {
                let line = QueueCounts {
                    due: *due,
                    oldest_due: Some(*age),
                    ..QueueCounts::default()
                };
                (*number, line)
            })
            .collect();
        Scene {
            counts,
            queues: Vec::new(),
            domains: Vec::new(),
            domains_max: 1000,
            workers: Vec::new(),
            settings_version: 0,
            now: now(),
        }
    }

    fn verdicts(all: &[Endpoint], scene: &Scene) -> Vec<(&'static str, Verdict)> {
        let findings = judge(all, scene);
        findings.iter().map(|it| (it.subject, it.verdict)).collect()
    }

    #[test]
    fn without_endpoints_nothing_is_said() {
        assert!(judge(&[], &scene(&[], 0)).is_empty());
        assert!(keys(&[], &WebhookConfig::default()).is_none());
    }

    #[test]
    fn all_is_well() {
        let verdicts = verdicts(&[endpoint(1)], &scene(&[(1, 1, DUE_MAX)], 0));
        assert!(
            verdicts
                .iter()
                .all(|(_, verdict)| *verdict == Verdict::Good)
        );
    }

    #[test]
    fn what_is_disabled_failing_late_or_dead_is_a_warning() {
        let mut all = [endpoint(1), endpoint(2), endpoint(3)];
        all[0].state = EndpointState::Disabled {
            why: Disabled::Gone,
            since: now(),
        };
        all[1].health.failing_since = Some(now().before(FAILING_MAX * 2));
        let late = DUE_MAX + Duration::from_millis(1);
        let scene = scene(&[(3, 1, late)], 2);
        let expected = ["endpoints", "endpoints", "deliveries", "dead deliveries"];
        let found = verdicts(&all, &scene);
        assert_eq!(found, expected.map(|subject| (subject, Verdict::Warning)));
    }

    #[test]
    fn one_that_is_disabled_by_hand_is_worth_a_word_while_something_waits() {
        let mut one = endpoint(1);
        one.state = EndpointState::Disabled {
            why: Disabled::ByHand("they migrate".to_owned()),
            since: now(),
        };
        let all = [one];
        let quiet = judge(&all, &scene(&[], 0));
        assert_eq!(quiet[0].verdict, Verdict::Good);
        // What waits for it is late on purpose.
        let busy = judge(&all, &scene(&[(1, 3, DUE_MAX * 2)], 0));
        assert_eq!(busy[0].verdict, Verdict::Warning);
        assert_eq!(busy[1].verdict, Verdict::Good);
    }

    #[test]
    fn only_the_first_are_named() {
        let names: Vec<String> = (0..5).map(|number| number.to_string()).collect();
        assert_eq!(named(&names), "0, 1, 2, 2 more");
    }
}
