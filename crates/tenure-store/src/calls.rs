//! Webhook calls in the form in which every store saves them.

use tenure_core::Timestamp;
use tenure_core::webhook::{AttemptOutcome, Call, CallDetail, CallRecord, Reply};

use crate::error_text::error_text;

/// Maximum bytes saved of a response body; the replacement of an invalid byte has three bytes.
const BODY_BYTES_MAX: usize = 3 * Reply::BODY_BYTES_MAX;
/// Maximum bytes saved of the response headers.
const HEADER_BYTES_MAX: usize = 8 * 1024;

/// Converts a finished call into the record to save at `now`.
pub(crate) fn kept_call(call: &Call, outcome: AttemptOutcome, now: Timestamp) -> CallRecord {
    let status = call.reply.as_ref().map(|reply| reply.status.as_ref());
    let error = status.and_then(Result::err);
    CallRecord {
        delivery: call.delivery,
        fence: call.fence,
        attempt: call.attempt,
        began_at: now.before(call.ago),
        outcome,
        status: status.and_then(Result::ok).copied(),
        error: error.map(|error| error_text(&error.text)),
        detail: call.reply.as_ref().map(kept_detail).unwrap_or_default(),
    }
}

/// Details of a reply, truncated. The caller has truncated them already; the store enforces its own
/// limit.
fn kept_detail(reply: &Reply) -> CallDetail {
    let mut detail = CallDetail::of(reply);
    if detail.body.len() > BODY_BYTES_MAX {
        let end = detail.body.floor_char_boundary(BODY_BYTES_MAX);
        detail.body.truncate(end);
        detail.is_cut = true;
    }
    let mut left = HEADER_BYTES_MAX;
    detail.headers.retain(|(name, value)| {
        let size = name.len() + value.len();
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    });
    detail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_cut_between_characters() {
        let mut reply = Reply::status(500);
        reply.body = "é".repeat(BODY_BYTES_MAX).into_bytes();
        reply.body.insert(0, b'a');
        let long = ("x".to_owned(), "y".repeat(HEADER_BYTES_MAX));
        reply.headers = vec![("a".to_owned(), "b".to_owned()), long];
        let detail = kept_detail(&reply);
        assert!(detail.is_cut && detail.body.len() == BODY_BYTES_MAX - 1);
        assert_eq!(detail.headers.len(), 1);
    }
}
