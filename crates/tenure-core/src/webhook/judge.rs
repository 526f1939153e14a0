//! Judgement of a reply: its consequences for the delivery and the endpoint.

use std::time::Duration;

use super::{CallErrorKind, Directive, Disabled, EndpointSettings, OnGone, Reply};
use crate::outcome::Outcome;
use crate::reason;

/// Maximum pause that an endpoint can request.
const PAUSE_MAX: Duration = Duration::from_hours(6);
/// Pause after status 429 without a `retry-after`.
const BUSY_PAUSE: Duration = Duration::from_mins(1);

/// Consequences of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallVerdict {
    /// Outcome of the delivery.
    pub outcome: Outcome,
    /// Result for the endpoint's health; `None` if the endpoint is not at fault.
    pub is_success: Option<bool>,
    /// Pause that the endpoint requests.
    pub pause: Option<Duration>,
    /// Reason to disable the endpoint.
    pub disable: Option<Disabled>,
}

/// Judges a reply. `failures` counts the earlier failures of the delivery; `chance` from 0 to 1 is
/// the jitter of the next attempt.
///
/// ```
/// use tenure_core::Outcome;
/// use tenure_core::webhook::{Disabled, EndpointSettings, Reply, judge};
///
/// let rules = EndpointSettings::new("https://example.com", vec![]);
/// assert_eq!(judge(&rules, &Reply::status(204), 0, 0.5).outcome, Outcome::Done);
/// assert_eq!(judge(&rules, &Reply::status(410), 0, 0.5).disable, Some(Disabled::Gone));
/// ```
pub fn judge(rules: &EndpointSettings, reply: &Reply, failures: u32, chance: f64) -> CallVerdict {
    let mut verdict = judge_status(rules, reply, failures, chance);
    match reply.directive {
        Some(Directive::Disable) => verdict.disable = verdict.disable.or(Some(Disabled::Requested)),
        Some(Directive::AbortMessage) if verdict.is_success == Some(false) => {
            verdict.outcome = dead(reason::ABORTED, "the receiver wants no further attempts");
        }
        Some(Directive::AbortMessage) | None => {}
    }
    verdict
}

fn judge_status(
    rules: &EndpointSettings,
    reply: &Reply,
    failures: u32,
    chance: f64,
) -> CallVerdict {
    let failed = |outcome| CallVerdict {
        outcome,
        is_success: Some(false),
        pause: None,
        disable: None,
    };
    let status = match &reply.status {
        Ok(status) => *status,
        Err(error) => {
            let is_to_blame = error.kind != CallErrorKind::Unsendable;
            return CallVerdict {
                is_success: is_to_blame.then_some(false),
                ..failed(retry(rules, reply, failures, chance, error.text.clone()))
            };
        }
    };
    let error = format!("it answered {status}{}", hint(status));
    match status {
        200..=299 => CallVerdict {
            outcome: Outcome::Done,
            is_success: Some(true),
            pause: None,
            disable: None,
        },
        410 => CallVerdict {
            disable: Some(Disabled::Gone),
            ..failed(match rules.on_gone {
                OnGone::Bury => dead(reason::GONE, &error),
                OnGone::Keep => retry(rules, reply, failures, chance, error),
            })
        },
        _ => CallVerdict {
            pause: pause(status, reply),
            ..failed(if rules.no_retry.contains(&status) {
                dead(reason::REJECTED, &error)
            } else {
                retry(rules, reply, failures, chance, error)
            })
        },
    }
}

/// Pause of an endpoint that answered 429 or 503.
fn pause(status: u16, reply: &Reply) -> Option<Duration> {
    let default = match status {
        429 => Some(BUSY_PAUSE),
        503 => None,
        _ => return None,
    };
    let requested = reply.retry_after.map(|pause| pause.min(PAUSE_MAX));
    requested.or(default)
}

/// Retries if the schedule has another attempt, not before the time that the receiver requested (at
/// most [`PAUSE_MAX`]); otherwise the delivery is dead.
fn retry(
    rules: &EndpointSettings,
    reply: &Reply,
    failures: u32,
    chance: f64,
    error: String,
) -> Outcome {
    let Some(step) = rules.schedule.delay(failures, chance) else {
        return dead(reason::FAILED, &error);
    };
    let requested = reply.retry_after.unwrap_or_default().min(PAUSE_MAX);
    let after = step.max(requested);
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
