//! Views of a delivery's attempts: JSON, a table, and the last answer.

use comfy_table::{Cell, Color};
use serde::Serialize;
use std::time::Duration;
use tenure::store::Timestamp;
use tenure::webhook::{Attempt, AttemptOutcome, CallDetail, CallRecord};

use crate::commands::Context;
use crate::event_view::text;
use crate::output::plain;
use crate::problem::Stop;
use crate::time::{brief, relative};

/// Maximum number of characters of a response that are shown.
const BODY_CHARS_MAX: usize = 400;

/// An attempt in JSON.
#[derive(Serialize)]
pub(super) struct AttemptView<'a> {
    attempt: Option<u32>,
    fence: i64,
    outcome: &'static str,
    holder: &'a str,
    claimed_at: String,
    began_at: Option<String>,
    ended_at: Option<String>,
    status: Option<u16>,
    error: Option<&'a str>,
    /// Kind of error, headers, first bytes, times.
    #[serde(flatten)]
    detail: Option<&'a CallDetail>,
}

impl<'a> AttemptView<'a> {
    pub(super) fn new(attempt: &'a Attempt) -> Self {
        let call = attempt.call.as_ref();
        Self {
            attempt: call.map(|call| call.attempt),
            fence: attempt.fence.number(),
            outcome: attempt.outcome.as_str(),
            holder: &attempt.holder,
            claimed_at: attempt.claimed_at.to_string(),
            began_at: text(call.map(|call| call.began_at)),
            ended_at: text(attempt.ended_at),
            status: call.and_then(|call| call.status),
            error: call.and_then(|call| call.error.as_deref()),
            detail: call.map(|call| &call.detail),
        }
    }
}

/// Prints the attempts as a table, and below it the last answer with a body.
pub(super) fn print(cx: &Context, attempts: &[Attempt]) -> Result<(), Stop> {
    if attempts.is_empty() {
        return Ok(());
    }
    cx.output.line("")?;
    let rows = attempts.iter().map(|attempt| row(attempt, cx.output.now));
    let heading = [
        "BEGAN", "OUTCOME", " STATUS", " TOOK", "TIMES", " FENCE", "HOLDER", "ERROR",
    ];
    cx.output.table(&heading, rows.collect())?;
    let answered = attempts
        .iter()
        .rev()
        .filter_map(|attempt| attempt.call.as_ref());
    let with_body = answered
        .map(|call| &call.detail)
        .find(|detail| !detail.body.is_empty());
    if let Some(detail) = with_body {
        cx.output
            .line(format_args!("\nthe last answer:\n{}", beginning(detail)))?;
    }
    Ok(())
}

fn row(attempt: &Attempt, now: Timestamp) -> Vec<Cell> {
    let call = attempt.call.as_ref();
    let began = call.map_or(attempt.claimed_at, |call| call.began_at);
    let detail = call.map(|call| &call.detail);
    vec![
        Cell::new(format!("{began} ({})", relative(began, now))),
        outcome(attempt.outcome),
        Cell::new(
            call.and_then(|call| call.status)
                .map_or_else(String::new, |status| status.to_string()),
        ),
        Cell::new(detail.map_or_else(String::new, |detail| micros(detail.total_us))),
        Cell::new(detail.map_or_else(String::new, times)),
        Cell::new(attempt.fence),
        Cell::new(&attempt.holder),
        Cell::new(error(call)),
    ]
}

fn error(call: Option<&CallRecord>) -> String {
    call.and_then(|call| call.error.as_deref())
        .map_or_else(String::new, plain)
}

fn outcome(outcome: AttemptOutcome) -> Cell {
    Cell::new(outcome.as_str()).fg(match outcome {
        AttemptOutcome::Open => Color::Cyan,
        AttemptOutcome::Delivered => Color::Green,
        AttemptOutcome::Failed => Color::Red,
        AttemptOutcome::Aborted | AttemptOutcome::Superseded | AttemptOutcome::Unknown => {
            Color::Yellow
        }
    })
}

/// The durations of the parts of a call.
pub(in crate::commands) fn times(detail: &CallDetail) -> String {
    let parts = [
        ("dns", detail.dns_us),
        ("connect", detail.connect_us),
        ("tls", detail.tls_us),
        ("answer", detail.first_byte_us),
    ];
    let known = parts
        .into_iter()
        .filter_map(|(name, length)| Some((name, length?)));
    let texts: Vec<_> = known
        .map(|(name, length)| format!("{name} {}", micros(length)))
        .collect();
    texts.join(", ")
}

/// Formats a duration, in microseconds if it is shorter than a millisecond.
pub(in crate::commands) fn micros(micros: u64) -> String {
    match micros {
        0..=999 => format!("{micros}us"),
        _ => brief(Duration::from_micros(micros)),
    }
}

/// The first characters of a response, without control characters.
pub(in crate::commands) fn beginning(detail: &CallDetail) -> String {
    let lines = detail.body.lines().map(plain);
    let all = lines.collect::<Vec<_>>().join("\n");
    let mut text: String = all.chars().take(BODY_CHARS_MAX).collect();
    if detail.is_cut || text.len() < all.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_printed_without_control_characters() {
        let detail = CallDetail {
            body: "no\u{1b}[2Jpe\r\nsecond".to_owned(),
            ..CallDetail::default()
        };
        assert_eq!(beginning(&detail), "no\u{fffd}[2Jpe\nsecond");
        let long = CallDetail {
            body: "x".repeat(BODY_CHARS_MAX + 1),
            ..CallDetail::default()
        };
        assert_eq!(beginning(&long).chars().count(), BODY_CHARS_MAX + 1);
        assert!(beginning(&long).ends_with('…'));
    }
}
