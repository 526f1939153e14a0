//! What an answer means for a delivery and for its endpoint.

use std::time::Duration;

use super::{CallErrorKind, Directive, Disabled, EndpointSettings, OnGone, Reply};
use crate::outcome::Outcome;
use crate::reason;

/// However long an endpoint wants to be left alone, it is asked again after this.
const ASKED_MAX: Duration = Duration::from_hours(6);
/// An endpoint that says *too many requests* without saying how long is left alone this long.
const TOO_MANY: Duration = Duration::from_mins(1);

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// For the delivery.
    pub outcome: Outcome,
    /// Whether the endpoint took it. `None`: the endpoint is not to blame.
    pub is_success: Option<bool>,
    /// How long the endpoint wants to be left alone.
    pub pause: Option<Duration>,
    /// Why nothing is to be sent to it any more.
    pub disable: Option<Disabled>,
}

/// Judges a reply. `failures` is how often the delivery failed before, `chance` from 0 to 1 moves
/// the time of the next attempt.
///
/// ```
/// use tenure_core::Outcome;
/// use tenure_core::webhook::{Disabled, EndpointSettings, Reply, judge};
///
/// let rules = EndpointSettings::new("https://example.com", vec![]);
/// assert_eq!(judge(&rules, &Reply::status(204), 0, 0.5).outcome, Outcome::Done);
/// assert_eq!(judge(&rules, &Reply::status(410), 0, 0.5).disable, Some(Disabled::Gone));
/// ```
pub fn judge(rules: &EndpointSettings, reply: &Reply, failures: u32, chance: f64) -> Verdict {
    let mut verdict = judge_status(rules, reply, failures, chance);
    match reply.directive {
        Some(Directive::Disable) => verdict.disable = verdict.disable.or(Some(Disabled::Asked)),
        Some(Directive::AbortMessage) if verdict.is_success == Some(false) => {
            verdict.outcome = dead(reason::ABORTED, "the receiver wants it no more");
        }
        Some(Directive::AbortMessage) | None => {}
    }
    verdict
}

fn judge_status(rules: &EndpointSettings, reply: &Reply, failures: u32, chance: f64) -> Verdict {
    let failed = |outcome| Verdict {
        outcome,
        is_success: Some(false),
        pause: None,
        disable: None,
    };
    let status = match &reply.status {
        Ok(status) => *status,
        Err(error) => {
            let is_to_blame = error.kind != CallErrorKind::Unsendable;
            return Verdict {
                is_success: is_to_blame.then_some(false),
                ..failed(again(rules, reply, failures, chance, error.text.clone()))
            };
        }
    };
    let error = format!("it answered {status}{}", hint(status));
    match status {
        200..=299 => Verdict {
            outcome: Outcome::Done,
            is_success: Some(true),
            pause: None,
            disable: None,
        },
        410 => Verdict {
            disable: Some(Disabled::Gone),
            ..failed(match rules.on_gone {
                OnGone::Bury => dead(reason::GONE, &error),
                OnGone::Keep => again(rules, reply, failures, chance, error),
            })
        },
        _ => Verdict {
            pause: pause(status, reply),
            ..failed(if rules.no_retry.contains(&status) {
                dead(reason::REJECTED, &error)
            } else {
                again(rules, reply, failures, chance, error)
            })
        },
    }
}

/// How long an endpoint that is busy is left alone.
fn pause(status: u16, reply: &Reply) -> Option<Duration> {
    let unasked = match status {
        429 => Some(TOO_MANY),
        503 => None,
        _ => return None,
    };
    let asked = reply.retry_after.map(|asked| asked.min(ASKED_MAX));
    asked.or(unasked)
}

/// The next attempt, if the schedule has one: never earlier than the receiver asked for.
fn again(
    rules: &EndpointSettings,
    reply: &Reply,
    failures: u32,
    chance: f64,
    error: String,
) -> Outcome {
    let Some(step) = rules.schedule.delay(failures, chance) else {
        return dead(reason::FAILED, &error);
    };
    let asked = reply.retry_after.unwrap_or_default().min(ASKED_MAX);
    let after = step.max(asked);
    Outcome::Retry { after, error }
}

fn dead(reason: &str, error: &str) -> Outcome {
    Outcome::Dead {
        reason: reason.to_owned(),
        error: error.to_owned(),
    }
}

fn hint(status: u16) -> &'static str {
    match status {
        300..=399 => "; redirects are not followed, update the address",
        _ => "",
    }
}
