//! Explanation of why a delivery is not being sent: the state of its endpoint, and its failures.

use super::{Facts, Why, ago, key, last_with, times};
use crate::item::Record;
use crate::reason;
use crate::state::State;
use crate::time::{Timestamp, brief_duration};
use crate::webhook::{Disabled, Endpoint, EndpointState};

/// Explains a delivery that is not being sent; `None` if the general explanation applies.
pub(super) fn why(record: &Record, facts: &Facts, now: Timestamp) -> Option<Why> {
    let endpoint = facts.endpoint.as_ref()?;
    match record.state {
        State::Done => Some(delivered(record, endpoint, now)),
        State::Pending => Some(pending(record, endpoint, facts, now)),
        State::Dead => dead(record, endpoint, now),
        State::Claimed => None,
    }
}

fn delivered(record: &Record, endpoint: &Endpoint, now: Timestamp) -> Why {
    let when = ago(record.done_at, now);
    Why::new(
        "delivered",
        format!("it was delivered to {}{when}", endpoint.id),
    )
    .hint(format!(
        "`tenure replay {}` puts it back, to be delivered again",
        record.id
    ))
}

/// Explains a delivery that died with its endpoint: a replay does not help before the endpoint
/// works. `None` if the general explanation applies.
fn dead(record: &Record, endpoint: &Endpoint, now: Timestamp) -> Option<Why> {
    let id = &endpoint.id;
    let when = ago(record.dead_at, now);
    let (cause, hint) = match record.dead_reason.as_deref()? {
        reason::GONE => (
            "answered that it is gone for good",
            format!(
                "if it is back: `tenure endpoints enable {id}`, then `tenure replay {}`",
                record.id
            ),
        ),
        reason::REMOVED => (
            "was removed",
            format!(
                "`tenure endpoints add URL` adds another one; `tenure replay {}` publishes the \
                 event again, to that one as well",
                record.content.delivery()?.source
            ),
        ),
        _ => return None,
    };
    let sentence = format!("it died{when}, because its endpoint {id} {cause}");
    Some(Why::new("dead", sentence).hint(hint))
}

fn pending(record: &Record, endpoint: &Endpoint, facts: &Facts, now: Timestamp) -> Why {
    if let Some(why) = unavailable(endpoint, now) {
        return why;
    }
    if let Some(why) = key::pending(record, facts, now) {
        return why;
    }
    if let Some(moment) = record.available_at.filter(|moment| *moment > now) {
        return not_due(record, endpoint, &brief_duration(moment.since(now)));
    }
    if !facts.is_any_active() {
        return Why::new("no_worker", "it is due, but no worker is running")
            .hint("start one that sends: `tenure serve`, or `tenure work`");
    }
    due(endpoint, facts, now)
}

/// Explains why nothing at all is sent to the endpoint now.
fn unavailable(endpoint: &Endpoint, now: Timestamp) -> Option<Why> {
    let id = &endpoint.id;
    let ago = |since: Timestamp| brief_duration(now.since(since));
    match &endpoint.state {
        EndpointState::Removed { since } => Some(Why::new(
            "endpoint_removed",
            format!(
                "its endpoint {id} was removed {} ago: a sender buries it soon",
                ago(*since)
            ),
        )),
        EndpointState::Disabled { why, since } => Some(
            Why::new(
                "endpoint_disabled",
                format!(
                    "its endpoint {id} has been disabled for {}{}",
                    ago(*since),
                    cause_of(why)
                ),
            )
            .hint(format!(
                "fix the cause, then `tenure endpoints enable {id}`"
            )),
        ),
        EndpointState::Enabled => paused(endpoint, now),
    }
}

fn paused(endpoint: &Endpoint, now: Timestamp) -> Option<Why> {
    let id = &endpoint.id;
    let until = endpoint.health.paused_until.filter(|until| *until > now)?;
    let cause = endpoint.health.pause.as_deref().unwrap_or("calls failed");
    let rest = brief_duration(until.since(now));
    let why = Why::new(
        "endpoint_paused",
        format!(
            "its endpoint {id} is backing off for another {rest}, because {cause}{}",
            last(endpoint)
        ),
    );
    Some(why.hint(format!(
        "no attempt is lost; `tenure endpoints test {id}` calls it once, `tenure endpoints \
         enable {id}` ends the pause"
    )))
}

/// Error of the last call to the endpoint, as a clause.
fn last(endpoint: &Endpoint) -> String {
    match &endpoint.health.last_error {
        Some(error) => format!("; its last call failed with {error:?}"),
        None => String::new(),
    }
}

fn cause_of(why: &Disabled) -> String {
    match why {
        Disabled::ByHand(text) if text.is_empty() => " by an operator".to_owned(),
        Disabled::ByHand(text) => format!(" by an operator: {text}"),
        Disabled::Gone => ", because it answered 410 Gone".to_owned(),
        Disabled::Requested => ", because it requested that in a response".to_owned(),
        Disabled::Failing => ", because nothing had succeeded for days".to_owned(),
    }
}

/// Explains a delivery that is due in `wait`.
fn not_due(record: &Record, endpoint: &Endpoint, wait: &str) -> Why {
    let counters = record.counters;
    let error = last_with(record.last_error.as_deref());
    let mut causes = Vec::new();
    if counters.failures > 0 {
        causes.push(format!(
            "it failed {} of {} attempts{error}",
            counters.failures,
            endpoint.settings.schedule.attempts()
        ));
    }
    if counters.crashes > 0 {
        causes.push(format!("its lease lapsed {}", times(counters.crashes)));
    }
    if causes.is_empty() {
        return Why::new("delayed", format!("it is due in {wait}"));
    }
    let causes = causes.join(" and ");
    Why::new("backoff", format!("{causes}; it is retried in {wait}"))
}

/// Explains a due delivery for which a sender is running.
fn due(endpoint: &Endpoint, facts: &Facts, now: Timestamp) -> Why {
    let id = &endpoint.id;
    let due = match facts.counts.due {
        0 | 1 => format!("it is the only due delivery for {id}"),
        due => format!("it is one of {due} due deliveries for {id}"),
    };
    if endpoint.health.is_on_probe(now) {
        return Why::new(
            "endpoint_on_trial",
            format!(
                "{due}, which gets one call at a time until one succeeds{}",
                last(endpoint)
            ),
        )
        .hint(format!(
            "`tenure endpoints test {id}` calls it once, and shows the answer"
        ));
    }
    let rate = endpoint.settings.rate.map_or_else(String::new, |rate| {
        format!(" and {} per second", rate.per_second)
    });
    Why::new(
        "waiting",
        format!(
            "{due}; a process makes at most {} calls to it at once{rate}{}",
            endpoint.settings.concurrency,
            last(endpoint)
        ),
    )
}
