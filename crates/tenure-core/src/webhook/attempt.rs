//! Attempts: the record of each attempt to deliver. The claim opens it before the call is sent; the
//! settle closes it and adds the result of the call.

use std::time::Duration;

use super::{Reply, Timings};
use crate::item::{Hold, ItemId, PastHold};
use crate::outcome::OutcomeKind;
use crate::time::Timestamp;
use crate::token::Fence;

words! {
    /// Result of an attempt.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum AttemptOutcome: as_str, ALL {
        /// The delivery is held; the call is in progress or about to start.
        Open = "open",
        /// The receiver accepted the call.
        Delivered = "delivered",
        /// The receiver refused the call or could not be reached.
        Failed = "failed",
        /// The worker stopped the call because it shut down or because the call took too long.
        Aborted = "aborted",
        /// The lease was lost: another worker holds the delivery or has settled it.
        Superseded = "superseded",
        /// The holder died before it reported a result. The receiver may have got the call.
        Unknown = "unknown",
    }
}

impl AttemptOutcome {
    /// Parses the word of [`AttemptOutcome::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
    }
}

/// A call to record with the settle of its delivery. If the settle is refused, the call is recorded
/// as superseded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Delivery for which the call was made.
    pub delivery: ItemId,
    /// Fence of the claim under which the call was made.
    pub fence: Fence,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// Time from the start of the call to the settle.
    pub ago: Duration,
    /// Result: delivered, failed, aborted or superseded.
    pub outcome: AttemptOutcome,
    /// Reply; `None` if the call was stopped before one arrived.
    pub reply: Option<Reply>,
}

/// A stored call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Delivery for which the call was made.
    pub delivery: ItemId,
    /// Fence of the claim under which the call was made.
    pub fence: Fence,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// Start of the call.
    pub began_at: Timestamp,
    /// Result of the call.
    pub outcome: AttemptOutcome,
    /// Status code of the response.
    pub status: Option<u16>,
    /// Reason for a missing or invalid response.
    pub error: Option<String>,
    /// Details for display.
    pub detail: CallDetail,
}

/// Stored details of a call, besides its result. Stores keep them as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct CallDetail {
    /// Kind of the error, in the words of [`CallErrorKind::as_str`](super::CallErrorKind::as_str).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Response headers, truncated and with secrets masked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// First bytes of the response as text; invalid UTF-8 becomes `�`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// The response was longer than the stored part.
    pub is_cut: bool,
    /// Address that was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Microseconds until the name was resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_us: Option<u64>,
    /// Microseconds until the connection was open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_us: Option<u64>,
    /// Microseconds until the TLS handshake was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_us: Option<u64>,
    /// Microseconds until the head of the response arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// Microseconds of the whole call.
    pub total_us: u64,
}

impl CallDetail {
    /// Stored details of a reply.
    pub fn of(reply: &Reply) -> Self {
        let micros = |length: Duration| u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let Timings {
            dns,
            connect,
            tls,
            first_byte,
            total,
        } = reply.timings;
        // PostgreSQL does not accept NUL in text.
        let body = String::from_utf8_lossy(&reply.body).replace('\0', "\u{fffd}");
        Self {
            trouble: reply
                .status
                .as_ref()
                .err()
                .map(|e| e.kind.as_str().to_owned()),
            headers: reply.headers.clone(),
            body,
            is_cut: reply.is_cut,
            peer: reply.peer.map(|peer| peer.to_string()),
            dns_us: dns.map(micros),
            connect_us: connect.map(micros),
            tls_us: tls.map(micros),
            first_byte_us: first_byte.map(micros),
            total_us: micros(total),
        }
    }

    /// JSON for the store.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }

    /// Parses the JSON of a store; invalid text gives the default.
    pub fn from_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// An attempt to deliver, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Number of the claim.
    pub fence: Fence,
    /// Worker that held the delivery; empty if only the call is still on record.
    pub holder: String,
    /// Time of the claim, or of the call if only the call is on record.
    pub claimed_at: Timestamp,
    /// End of the lease, if it has ended and the time is known.
    pub ended_at: Option<Timestamp>,
    /// Result of the attempt.
    pub outcome: AttemptOutcome,
    /// Record of the call, if one was made.
    pub call: Option<CallRecord>,
}

/// Lists the attempts of a delivery in claim order: one for each lease that may have led to a call.
/// Leases released without a call are left out.
pub fn attempts(timeline: &[PastHold], hold: Option<&Hold>, calls: &[CallRecord]) -> Vec<Attempt> {
    let call_of = |fence| calls.iter().find(|call| call.fence == fence).cloned();
    let closed = timeline.iter().filter_map(|closed| {
        let call = call_of(closed.fence);
        let outcome = match (&call, closed.outcome) {
            (Some(call), _) => call.outcome,
            // An operator buried an unclaimed item: that lease began and ended at the same time.
            (None, OutcomeKind::Buried) if closed.claimed_at == closed.settled_at => return None,
            (None, OutcomeKind::Lapsed | OutcomeKind::Buried) => AttemptOutcome::Unknown,
            // The delivery was settled without a call, for example because its endpoint was
            // removed.
            (
                None,
                OutcomeKind::Done | OutcomeKind::Retry | OutcomeKind::Dead | OutcomeKind::Release,
            ) => return None,
        };
        Some(Attempt {
            fence: closed.fence,
            holder: closed.holder.clone(),
            claimed_at: closed.claimed_at,
            ended_at: Some(closed.settled_at),
            outcome,
            call,
        })
    });
    let open = hold.map(|hold| {
        // The result of the call may be known before the lapsed lease is reaped.
        let call = call_of(hold.fence);
        let outcome = call.as_ref().map(|call| call.outcome);
        Attempt {
            fence: hold.fence,
            holder: hold.holder.clone(),
            claimed_at: hold.claimed_at,
            ended_at: None,
            outcome: outcome.unwrap_or(AttemptOutcome::Open),
            call,
        }
    });
    let held = |fence| {
        let mut fences = timeline.iter().map(|closed| closed.fence);
        fences.any(|other| other == fence) || hold.is_some_and(|hold| hold.fence == fence)
    };
    // The journal may be pruned while a delivery waits; the records of its calls are kept.
    let unheld = calls.iter().filter(|call| !held(call.fence));
    let unheld = unheld.map(|call| Attempt {
        fence: call.fence,
        holder: String::new(),
        claimed_at: call.began_at,
        ended_at: None,
        outcome: call.outcome,
        call: Some(call.clone()),
    });
    let mut attempts: Vec<Attempt> = closed.chain(open).chain(unheld).collect();
    attempts.sort_by_key(|attempt| attempt.fence);
    attempts
}
