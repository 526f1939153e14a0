//! Answer of a process to an event: one line of JSON.

use std::time::Duration;

use serde::Deserialize;
use tenure_core::{ItemId, PublishError};

/// Characters of a line that an error message quotes.
const QUOTED_CHARACTERS_MAX: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerFields {
    id: i64,
    outcome: AnswerOutcome,
    after_ms: Option<u64>,
    error: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum AnswerOutcome {
    Done,
    Retry,
    Dead,
    Release,
    Away,
}

/// Reads the answer to event `id`: the result of its publication, or the fault of the line.
pub(super) fn parse(line: &[u8], id: ItemId) -> Result<Result<(), PublishError>, String> {
    let id = id.number();
    let fields: AnswerFields = serde_json::from_slice(line).map_err(|cause| {
        format!(
            "answered {}; expected a line such as {{\"id\":{id},\"outcome\":\"done\"}} ({cause})",
            quoted(line)
        )
    })?;
    if fields.id != id {
        let other = fields.id;
        return Err(format!("answered for id {other}; expected id {id}"));
    }
    let is_final = matches!(fields.outcome, AnswerOutcome::Done | AnswerOutcome::Dead);
    if is_final && fields.after_ms.is_some() {
        return Err("answered with after_ms; expected it only for retry, release or away".into());
    }
    if fields.outcome == AnswerOutcome::Done && fields.error.is_some() {
        return Err("answered done with an error; expected done alone, or another outcome".into());
    }
    let error = fields.error.unwrap_or_else(|| "no error given".to_owned());
    let error = match fields.outcome {
        AnswerOutcome::Done => return Ok(Ok(())),
        AnswerOutcome::Retry => PublishError::retry(error),
        AnswerOutcome::Dead => PublishError::reject(error),
        AnswerOutcome::Release => PublishError::release(error),
        AnswerOutcome::Away => PublishError::away(error),
    };
    Ok(Err(match fields.after_ms {
        Some(millis) => error.after(Duration::from_millis(millis)),
        None => error,
    }))
}

/// The beginning of a line, for an error message.
pub(super) fn quoted(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line.trim_ascii());
    let beginning: String = text.chars().take(QUOTED_CHARACTERS_MAX).collect();
    let more = if beginning.len() < text.len() {
        "…"
    } else {
        ""
    };
    format!("{beginning:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(line: &str) -> Result<Result<(), PublishError>, String> {
        parse(line.as_bytes(), ItemId::new(7))
    }

    #[test]
    fn each_outcome_has_its_result() {
        let minute = Duration::from_mins(1);
        for (line, expected) in [
            (r#"{"id":7,"outcome":"done"}"#, Ok(())),
            (
                r#" {"outcome":"retry", "error":null, "id":7}"#,
                Err(PublishError::retry("no error given")),
            ),
            (
                r#"{"id":7,"outcome":"retry","error":"busy","after_ms":60000}"#,
                Err(PublishError::retry("busy").after(minute)),
            ),
            (
                r#"{"id":7,"outcome":"dead","error":"no such customer"}"#,
                Err(PublishError::reject("no such customer")),
            ),
            (
                r#"{"id":7,"outcome":"release","error":"not yet","after_ms":60000}"#,
                Err(PublishError::release("not yet").after(minute)),
            ),
            (
                r#"{"id":7,"outcome":"away","error":"no connection"}"#,
                Err(PublishError::away("no connection")),
            ),
        ] {
            assert_eq!(answer(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_with_what_was_expected() {
        for (line, part) in [
            (
                "ready",
                r#"answered "ready"; expected a line such as {"id":7,"#,
            ),
            ("", r#"answered """#),
            (r#"{"id":7}"#, "missing field `outcome`"),
            (
                r#"{"id":7,"outcome":"ok"}"#,
                "unknown variant `ok`, expected one of `done`",
            ),
            (
                r#"{"id":7,"outcome":"done","eror":"x"}"#,
                "unknown field `eror`",
            ),
            (r#"{"id":"7","outcome":"done"}"#, "invalid type: string"),
            (
                r#"{"id":8,"outcome":"done"}"#,
                "answered for id 8; expected id 7",
            ),
            (
                r#"{"id":7,"outcome":"dead","after_ms":1}"#,
                "only for retry",
            ),
            (
                r#"{"id":7,"outcome":"done","error":"x"}"#,
                "done with an error",
            ),
            (r#"{"id":7,"outcome":"done"} {}"#, "trailing characters"),
        ] {
            let fault = answer(line).unwrap_err();
            assert!(fault.contains(part), "{line}: {fault}");
        }
        let fault = answer(&"x".repeat(5000)).unwrap_err();
        assert!(fault.len() < 300 && fault.contains("x\"…"), "{fault}");
    }
}
