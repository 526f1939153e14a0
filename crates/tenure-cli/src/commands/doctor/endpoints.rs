//! Checks of endpoints and deliveries.

use std::time::Duration;

use tenure::operate::Finding;
use tenure::store::Timestamp;
use tenure::webhook::{Disabled, Endpoint, EndpointState};

use super::judge::Snapshot;
use crate::commands::endpoints::waiting;
use crate::config::WebhookConfig;
use crate::output::deliveries;
use crate::time::brief;
use crate::webhook;

/// A delivery is overdue after this time.
const DUE_MAX: Duration = Duration::from_mins(1);
/// An endpoint that has been failing for longer is reported.
const FAILING_MAX: Duration = Duration::from_hours(1);
/// Maximum number of names in a finding; the others are counted.
const NAMED_MAX: usize = 3;

/// The findings; none without endpoints.
pub(super) fn judge(all: &[Endpoint], snapshot: &Snapshot) -> Vec<Finding> {
    if all.is_empty() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    findings.extend(disabled(all, snapshot));
    findings.extend(failing(all, snapshot.now));
    if findings.is_empty() {
        findings.push(Finding::good("endpoints", none_fails_long(all)));
    }
    findings.push(due(all, snapshot));
    findings.push(dead(snapshot));
    findings
}

/// Counts the enabled endpoints, and those that began to fail recently.
fn none_fails_long(all: &[Endpoint]) -> String {
    let enabled = all.iter().filter(|it| it.state == EndpointState::Enabled);
    let failing = enabled
        .clone()
        .filter(|it| it.health.failing_since.is_some());
    match failing.count() {
        0 => format!("{} enabled, none failing", enabled.count()),
        failing => {
            let most = brief(FAILING_MAX);
            format!(
                "{} enabled, {failing} failing for under {most}",
                enabled.count()
            )
        }
    }
}

/// Endpoints that were disabled automatically, or by an operator while deliveries wait.
fn disabled(all: &[Endpoint], snapshot: &Snapshot) -> Option<Finding> {
    let mut names = Vec::new();
    for endpoint in all {
        let EndpointState::Disabled { why, since } = &endpoint.state else {
            continue;
        };
        let counts = waiting(&snapshot.counts, endpoint.number);
        let waits = counts.due + counts.delayed + counts.behind;
        let why = match why {
            Disabled::ByHand(_) if waits == 0 => continue,
            Disabled::ByHand(_) => "by an operator",
            Disabled::Gone => "it answered 410",
            Disabled::Requested => "it requested this",
            Disabled::Failing => "it failed for days",
        };
        let age = brief(snapshot.now.since(*since));
        names.push(format!(
            "{} ({why}, {age} ago, {waits} pending)",
            endpoint.id
        ));
    }
    (!names.is_empty()).then(|| {
        Finding::warning(
            "endpoints",
            format!("disabled: {}", named(&names)),
            "`tenure endpoints test ID` calls one, `tenure endpoints enable ID` enables it, \
             `tenure endpoints remove ID` removes it",
        )
    })
}

/// Endpoints that have failed for long, or that are backing off.
fn failing(all: &[Endpoint], now: Timestamp) -> Option<Finding> {
    let mut names = Vec::new();
    let mut first = None;
    for endpoint in all.iter().filter(|it| it.state == EndpointState::Enabled) {
        let health = &endpoint.health;
        let length = health.failing_since.map(|since| now.since(since));
        let how = match length {
            Some(length) if length > FAILING_MAX => {
                format!("{} failures in {}", health.failures, brief(length))
            }
            _ if health.is_paused(now) => "backing off".to_owned(),
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
                "`tenure endpoints` lists them; `tenure endpoints test {id}` calls one; after a \
                 fix, `tenure endpoints enable {id}` ends its wait; an endpoint that fails for \
                 five days is disabled"
            ),
        )
    })
}

fn due(all: &[Endpoint], snapshot: &Snapshot) -> Finding {
    let is_open = |endpoint: &&Endpoint| {
        endpoint.state == EndpointState::Enabled && !endpoint.health.is_paused(snapshot.now)
    };
    let waits = all.iter().filter(is_open).filter_map(|endpoint| {
        let age = waiting(&snapshot.counts, endpoint.number).oldest_due?;
        Some((age, &endpoint.id))
    });
    let Some((age, id)) = waits.max() else {
        return Finding::good("deliveries", nothing_is_due(all, snapshot));
    };
    let text = format!("the oldest has waited for {}, for {id}", brief(age));
    if age <= DUE_MAX {
        return Finding::good("deliveries", text);
    }
    let hint = "is a process running that sends (`webhook.send`)? If so, raise the concurrency of \
                the endpoint (`tenure endpoints edit ID`) or of the process (webhook.concurrency)";
    Finding::warning("deliveries", text, hint)
}

fn nothing_is_due(all: &[Endpoint], snapshot: &Snapshot) -> String {
    let counts = all.iter().map(|it| waiting(&snapshot.counts, it.number));
    match counts.map(|counts| counts.delayed).sum::<u64>() {
        0 => "nothing is due".to_owned(),
        delayed => {
            let delayed = usize::try_from(delayed).unwrap_or(usize::MAX);
            format!("nothing is due; delayed: {}", deliveries(delayed))
        }
    }
}

fn dead(snapshot: &Snapshot) -> Finding {
    match snapshot.counts.deliveries.dead {
        0 => Finding::good("dead deliveries", "none"),
        number => Finding::warning(
            "dead deliveries",
            deliveries(usize::try_from(number).unwrap_or(usize::MAX)),
            "`tenure deliveries list --state dead` lists them; fix the cause, then `tenure \
             deliveries replay --state dead` sends them again",
        ),
    }
}

/// Checks that this process can decrypt the secrets of all enabled endpoints.
pub(super) fn keys(all: &[Endpoint], config: &WebhookConfig) -> Option<Finding> {
    let is_sent_to = |endpoint: &&Endpoint| endpoint.state == EndpointState::Enabled;
    let mut sealed = all.iter().filter(is_sent_to).peekable();
    sealed.peek()?;
    let hint = "set webhook.key_file to the file that `tenure endpoints add` created, or \
                TENURE_WEBHOOK_KEY to its contents";
    let keys = match webhook::keys(config) {
        Ok(keys) => keys,
        Err(problem) => return Some(Finding::bad("webhook key", problem.message, hint)),
    };
    let closed = sealed.filter(|endpoint| webhook::open(endpoint, &keys).is_err());
    let names: Vec<String> = closed.map(|endpoint| endpoint.id.to_string()).collect();
    if !names.is_empty() {
        let text = format!("does not open the secrets of {}", named(&names));
        return Some(Finding::bad("webhook key", text, hint));
    }
    if webhook::is_open_to_others(config) {
        let file = config.key_file.display();
        let text = format!("{file} is readable by other users");
        let hint = format!("`chmod 600 {file}`");
        return Some(Finding::warning("webhook key", text, hint));
    }
    let text = "opens the secrets of all enabled endpoints";
    Some(Finding::good("webhook key", text))
}

/// The first names, and the number of the others.
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
    use tenure::operate::{Counts, QueueCounts, Verdict};
    use tenure::publish::TopicPattern;
    use tenure::webhook::{EndpointHealth, EndpointId, EndpointSettings};

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
            health: EndpointHealth::default(),
            version: 1,
            created_at: now(),
        }
    }

    fn snapshot(waits: &[(u32, u64, Duration)], dead: u64) -> Snapshot {
        let mut counts = Counts::default();
        counts.deliveries.dead = dead;
        counts.deliveries.endpoints = waits
            .iter()
            .map(|(number, due, age)| {
                let queue = QueueCounts {
                    due: *due,
                    oldest_due: Some(*age),
                    ..QueueCounts::default()
                };
                (*number, queue)
            })
            .collect();
        Snapshot {
            counts,
            queues: Vec::new(),
            untaken: Vec::new(),
            keys: Vec::new(),
            keys_max: 1000,
            workers: Vec::new(),
            settings_version: 0,
            now: now(),
        }
    }

    fn verdicts(all: &[Endpoint], snapshot: &Snapshot) -> Vec<(&'static str, Verdict)> {
        let findings = judge(all, snapshot);
        findings.iter().map(|it| (it.subject, it.verdict)).collect()
    }

    #[test]
    fn without_endpoints_there_is_no_finding() {
        assert!(judge(&[], &snapshot(&[], 0)).is_empty());
        assert!(keys(&[], &WebhookConfig::default()).is_none());
    }

    #[test]
    fn without_faults_everything_is_good() {
        let verdicts = verdicts(&[endpoint(1)], &snapshot(&[(1, 1, DUE_MAX)], 0));
        assert!(
            verdicts
                .iter()
                .all(|(_, verdict)| *verdict == Verdict::Good)
        );
    }

    /// Goal: the first minutes of a receiver's outage show, although they are no fault yet.
    #[test]
    fn an_endpoint_that_began_to_fail_and_what_it_delays_are_counted() {
        let mut all = [endpoint(1), endpoint(2)];
        let mut snapshot = snapshot(&[(1, 0, DUE_MAX)], 0);
        let queue = &mut snapshot.counts.deliveries.endpoints[0].1;
        (queue.oldest_due, queue.delayed) = (None, 2);
        all[0].health.failing_since = Some(now());
        let findings = judge(&all, &snapshot);
        let texts: Vec<_> = findings.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "2 enabled, 1 failing for under 1h",
                "nothing is due; delayed: 2 deliveries",
                "none"
            ]
        );
    }

    #[test]
    fn disabled_failing_late_and_dead_are_warnings() {
        let mut all = [endpoint(1), endpoint(2), endpoint(3)];
        all[0].state = EndpointState::Disabled {
            why: Disabled::Gone,
            since: now(),
        };
        all[1].health.failing_since = Some(now().before(FAILING_MAX * 2));
        let late = DUE_MAX + Duration::from_millis(1);
        let snapshot = snapshot(&[(3, 1, late)], 2);
        let expected = ["endpoints", "endpoints", "deliveries", "dead deliveries"];
        let verdicts = verdicts(&all, &snapshot);
        assert_eq!(
            verdicts,
            expected.map(|subject| (subject, Verdict::Warning))
        );
    }

    #[test]
    fn one_disabled_by_an_operator_is_reported_while_deliveries_wait() {
        let mut one = endpoint(1);
        one.state = EndpointState::Disabled {
            why: Disabled::ByHand("they migrate".to_owned()),
            since: now(),
        };
        let all = [one];
        let quiet = judge(&all, &snapshot(&[], 0));
        assert_eq!(quiet[0].verdict, Verdict::Good);
        // An operator disabled the endpoint, so its deliveries are late on purpose.
        let busy = judge(&all, &snapshot(&[(1, 3, DUE_MAX * 2)], 0));
        assert_eq!(busy[0].verdict, Verdict::Warning);
        assert_eq!(busy[1].verdict, Verdict::Good);
    }

    #[test]
    fn only_the_first_are_named() {
        let names: Vec<String> = (0..5).map(|number| number.to_string()).collect();
        assert_eq!(named(&names), "0, 1, 2, 2 more");
    }
}
