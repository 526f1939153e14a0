//! Received calls: their verification and how they are printed.

use anstyle::{AnsiColor, Style};
use hyper::HeaderMap;
use serde::Serialize;
use tenure::Fence;
use tenure::store::Timestamp;
use tenure::webhook::verify::{Freshness, Latest, Verified, Verifier, VerifyError};

use crate::commands::Context;
use crate::output::plain;
use crate::problem::Stop;

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// Maximum number of characters of a body that are printed for a person.
const BODY_CHARS_MAX: usize = 120;

/// A received call.
#[derive(Debug)]
pub(super) struct ReceivedCall {
    /// This field and the next six have the values of the headers, verified or not.
    id: Option<String>,
    attempt: Option<String>,
    fence: Option<String>,
    sequence: Option<String>,
    topic: Option<String>,
    /// For a later `tenure verify`, together with the signature, the id and the body.
    timestamp: Option<String>,
    signature: Option<String>,
    /// `None` without a key to verify with.
    verified: Option<Result<Verified, VerifyError>>,
    freshness: Option<Freshness>,
}

impl ReceivedCall {
    /// Returns true if the verification failed.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.verified, Some(Err(_)))
    }
}

/// Verifies a call, and remembers it unless that fails.
pub(super) fn receive(
    verifier: Option<&Verifier>,
    latest: &mut Latest,
    headers: &HeaderMap,
    body: Option<&[u8]>,
    now: Timestamp,
) -> ReceivedCall {
    let header = |name: &str| {
        let value = headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let pairs = || {
        headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
    };
    let body = body.unwrap_or_default();
    let verified = verifier.map(|verifier| verifier.verify(pairs(), body, now));
    let mut received = ReceivedCall {
        id: header("webhook-id"),
        attempt: header("webhook-attempt"),
        fence: header("webhook-fence"),
        sequence: header("webhook-sequence"),
        topic: header("webhook-topic"),
        timestamp: header("webhook-timestamp"),
        signature: header("webhook-signature"),
        verified,
        freshness: None,
    };
    let call = match &received.verified {
        Some(Ok(call)) => Some(call.clone()),
        Some(Err(_)) => None,
        None => received.unverified(now),
    };
    if let Some(call) = call {
        received.freshness = Some(latest.judge(&call, None));
        latest.remember(&call, None);
    }
    received
}

impl ReceivedCall {
    /// The call as its headers describe it, unverified for lack of a key.
    fn unverified(&self, now: Timestamp) -> Option<Verified> {
        let number = |text: &Option<String>| text.as_ref()?.parse().ok();
        Some(Verified {
            id: self.id.clone()?,
            timestamp: now,
            attempt: None,
            fence: number(&self.fence).map(Fence::new),
            sequence: None,
            topic: self.topic.clone(),
        })
    }
}

/// A call in JSON.
#[derive(Serialize)]
struct CallView<'a> {
    at: String,
    path: &'a str,
    /// The status of the receiver's answer.
    status: u16,
    /// Null without a key to verify with.
    verified: Option<bool>,
    why: Option<String>,
    /// `new`, `repeat` or `stale`.
    freshness: Option<&'static str>,
    id: Option<&'a str>,
    attempt: Option<&'a str>,
    fence: Option<&'a str>,
    sequence: Option<&'a str>,
    topic: Option<&'a str>,
    timestamp: Option<&'a str>,
    signature: Option<&'a str>,
    body_bytes: Option<usize>,
    body: Option<&'a str>,
}

/// Prints a call and the status of the receiver's answer.
pub(super) fn print(
    cx: &Context,
    path: &str,
    received: &ReceivedCall,
    status: u16,
    body: Option<&[u8]>,
) -> Result<(), Stop> {
    let why = match &received.verified {
        Some(Err(error)) => Some(error.to_string()),
        Some(Ok(_)) | None => None,
    };
    let text = body.map(String::from_utf8_lossy);
    let view = CallView {
        at: crate::time::now().to_string(),
        path,
        status,
        verified: received.verified.as_ref().map(Result::is_ok),
        why: why.clone(),
        freshness: received.freshness.map(name_of),
        id: received.id.as_deref(),
        attempt: received.attempt.as_deref(),
        fence: received.fence.as_deref(),
        sequence: received.sequence.as_deref(),
        topic: received.topic.as_deref(),
        timestamp: received.timestamp.as_deref(),
        signature: received.signature.as_deref(),
        body_bytes: body.map(<[u8]>::len),
        body: text.as_deref(),
    };
    cx.output.either(&view, || {
        let style = if (200..300).contains(&status) {
            GOOD
        } else {
            BAD
        };
        let mut parts = vec![format!("{style}{status}{style:#}"), plain(path)];
        let named = [
            ("message", &received.id),
            ("attempt", &received.attempt),
            ("fence", &received.fence),
            ("sequence", &received.sequence),
            ("topic", &received.topic),
        ];
        for (name, value) in named {
            parts.extend(
                value
                    .as_ref()
                    .map(|value| format!("{name} {}", plain(value))),
            );
        }
        parts.push(match (&why, &received.verified) {
            (Some(why), _) => format!("{BAD}invalid{BAD:#}: {why}"),
            (None, Some(_)) => format!("{GOOD}verified{GOOD:#}"),
            (None, None) => "not verified".to_owned(),
        });
        parts.extend(
            received
                .freshness
                .filter(|it| *it != Freshness::New)
                .map(|it| name_of(it).into()),
        );
        let body: String = text
            .as_deref()
            .unwrap_or("")
            .chars()
            .take(BODY_CHARS_MAX)
            .collect();
        format!("{}\n    {}", parts.join("  "), plain(&body))
    })
}

const fn name_of(freshness: Freshness) -> &'static str {
    match freshness {
        Freshness::New => "new",
        Freshness::Repeat => "repeat",
        Freshness::Stale => "stale",
    }
}
