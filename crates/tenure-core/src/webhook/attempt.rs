//! Attempts: what is known of each try to deliver. A hold opens it, on record before the call
//! leaves; the settle closes it and adds what is known of the call.

use std::time::Duration;

use super::{Reply, Timings};
use crate::item::{EndedHold, Hold, ItemId};
use crate::outcome::Word;
use crate::time::Timestamp;
use crate::token::Fence;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// It is under way, or will be: the delivery is held.
    Open,
    /// The receiver took it.
    Delivered,
    /// It did not, or could not be reached.
    Failed,
    /// We stopped the call: the worker was shut down or the call took too long.
    Aborted,
    /// The lease was lost: somebody else holds the delivery or has settled it.
    Superseded,
    /// The holder never said: it died with the delivery in hand. The receiver may have seen it.
    Unknown,
}

impl AttemptOutcome {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Open,
        Self::Delivered,
        Self::Failed,
        Self::Aborted,
        Self::Superseded,
        Self::Unknown,
    ];

    /// One word, for stores and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
            Self::Superseded => "superseded",
            Self::Unknown => "unknown",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
    }
}

/// A call that was made, to be written down with the settle of its delivery. A call whose settle is
/// refused is written down as superseded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The delivery.
    pub delivery: ItemId,
    /// The claim that it was made under.
    pub fence: Fence,
    /// 1 at the first try.
    pub attempt: u32,
    /// How long before the settle it began.
    pub ago: Duration,
    /// How it ended: delivered, failed, aborted or superseded.
    pub outcome: AttemptOutcome,
    /// What came back; `None`: it was stopped before anything did.
    pub reply: Option<Reply>,
}

/// A call as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// The delivery.
    pub delivery: ItemId,
    /// The claim that it was made under.
    pub fence: Fence,
    /// 1 at the first try.
    pub attempt: u32,
    /// When it began.
    pub began_at: Timestamp,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Why there is no answer, or what was wrong with it.
    pub error: Option<String>,
    /// The rest.
    pub detail: CallDetail,
}

/// What is kept of a call, beside how it ended. A store keeps it as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct CallDetail {
    /// What kind of trouble, as [`CallErrorKind::as_str`](super::CallErrorKind::as_str) says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Headers of the answer, cut and with secrets masked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The first bytes of the answer, as text; what is no text is shown by `�`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// Whether there was more.
    pub is_cut: bool,
    /// Who was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Microseconds until the name was resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_us: Option<u64>,
    /// Until the connection stood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_us: Option<u64>,
    /// Until it was encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_us: Option<u64>,
    /// Until the head of the answer was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// All of it.
    pub total_us: u64,
}

impl CallDetail {
    /// What is kept of a reply.
    pub fn of(reply: &Reply) -> Self {
        let micros = |length: Duration| u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let Timings {
            dns,
            connect,
            tls,
            first_byte,
            total,
        } = reply.timings;
        // A NUL is no text to PostgreSQL.
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

    /// As a store keeps it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }

    /// As a store kept it; what cannot be read is left out.
    pub fn from_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// A try to deliver, as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The claim.
    pub fence: Fence,
    /// Who held the delivery; empty when only the call is still known.
    pub holder: String,
    /// When it was claimed; when it was called, if no more is known.
    pub claimed_at: Timestamp,
    /// When the hold ended, if it has and that is known.
    pub ended_at: Option<Timestamp>,
    /// How.
    pub outcome: AttemptOutcome,
    /// What is known of the call.
    pub call: Option<CallRecord>,
}

/// The attempts of a delivery, in the order of their claims: one for each hold that may have led to
/// a call. A hold that was given back without a call is none.
pub fn attempts(timeline: &[EndedHold], hold: Option<&Hold>, calls: &[CallRecord]) -> Vec<Attempt> {
    let call_of = |fence| calls.iter().find(|call| call.fence == fence).cloned();
    let ended = timeline.iter().filter_map(|ended| {
        let call = call_of(ended.fence);
        let outcome = match (&call, ended.word) {
            (Some(call), _) => call.outcome,
            // Nobody held it: the operator's own hold began and ended at once.
            (None, Word::Buried) if ended.claimed_at == ended.settled_at => return None,
            (None, Word::Lapsed | Word::Buried) => AttemptOutcome::Unknown,
            // Settled without a call, such as for an endpoint that is gone.
            (None, Word::Done | Word::Retry | Word::Dead | Word::Release) => return None,
        };
        Some(Attempt {
            fence: ended.fence,
            holder: ended.holder.clone(),
            claimed_at: ended.claimed_at,
            ended_at: Some(ended.settled_at),
            outcome,
            call,
        })
    });
    let open = hold.map(|hold| {
        // It may be known that the call ended before the lapsed hold is ended.
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
        let mut fences = timeline.iter().map(|ended| ended.fence);
        fences.any(|other| other == fence) || hold.is_some_and(|hold| hold.fence == fence)
    };
    // The journal is pruned while a delivery waits; what is known of its calls is not.
    let forgotten = calls.iter().filter(|call| !held(call.fence));
    let forgotten = forgotten.map(|call| Attempt {
        fence: call.fence,
        holder: String::new(),
        claimed_at: call.began_at,
        ended_at: None,
        outcome: call.outcome,
        call: Some(call.clone()),
    });
    let mut attempts: Vec<Attempt> = ended.chain(open).chain(forgotten).collect();
    attempts.sort_by_key(|attempt| attempt.fence);
    attempts
}
