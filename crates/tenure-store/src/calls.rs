//! Calls, as every store keeps them.

use tenure_core::Timestamp;
use tenure_core::webhook::{AttemptOutcome, Call, CallDetail, CallRecord};

use crate::error_text::error_text;

/// A call that ended so, as it is written down at this moment.
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
        detail: call.reply.as_ref().map(CallDetail::of).unwrap_or_default(),
    }
}
