//! What a call said, whether it is believed, and how that is printed.

use anstyle::{AnsiColor, Style};
use hyper::HeaderMap;
use serde::Serialize;
use tenure::webhook::verify::{Freshness, Latest, Verified, Verifier, VerifyError};
use tenure::{Fence, Timestamp};

use crate::commands::Context;
use crate::output::plain;
use crate::problem::Stop;

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// So much of a body is shown to a person.
const SHOWN_MAX: usize = 120;

/// What a call said of itself.
#[derive(Debug)]
pub(super) struct Heard {
    /// What its headers say, believed or not.
    id: Option<String>,
    attempt: Option<String>,
    fence: Option<String>,
    sequence: Option<String>,
    topic: Option<String>,
    /// What `tenure verify` needs beside the id and the body.
    timestamp: Option<String>,
    signature: Option<String>,
    /// `None`: there is no key to verify with.
    verified: Option<Result<Verified, VerifyError>>,
    freshness: Option<Freshness>,
}

impl Heard {
    /// Whether it was verified and is not to be believed.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.verified, Some(Err(_)))
    }
}

/// Judges a call, and remembers it if it is believed.
pub(super) fn judge(
    verifier: Option<&Verifier>,
    latest: &mut Latest,
    headers: &HeaderMap,
    body: Option<&[u8]>,
    now: Timestamp,
) -> Heard {
    let said = |name: &str| {
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
    let mut heard = Heard {
        id: said("webhook-id"),
        attempt: said("webhook-attempt"),
        fence: said("webhook-fence"),
        sequence: said("webhook-sequence"),
        topic: said("webhook-topic"),
        timestamp: said("webhook-timestamp"),
        signature: said("webhook-signature"),
        verified,
        freshness: None,
    };
    let call = match &heard.verified {
        Some(Ok(call)) => Some(call.clone()),
        Some(Err(_)) => None,
        None => heard.unverified(now),
    };
    if let Some(call) = call {
        heard.freshness = Some(latest.judge(&call, None));
        latest.remember(&call, None);
    }
    heard
}

impl Heard {
    /// What it says, taken as true because there is nothing to verify it with.
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

/// A call, in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    at: String,
    path: &'a str,
    /// What it was answered with.
    status: u16,
    /// Null: there was no key to verify with.
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

/// Prints a call and what it was answered with.
pub(super) fn print(
    cx: &Context,
    path: &str,
    heard: &Heard,
    status: u16,
    body: Option<&[u8]>,
) -> Result<(), Stop> {
    let why = match &heard.verified {
        Some(Err(error)) => Some(error.to_string()),
        Some(Ok(_)) | None => None,
    };
    let text = body.map(String::from_utf8_lossy);
    let shown = Shown {
        at: crate::time::now().to_string(),
        path,
        status,
        verified: heard.verified.as_ref().map(Result::is_ok),
        why: why.clone(),
        freshness: heard.freshness.map(word),
        id: heard.id.as_deref(),
        attempt: heard.attempt.as_deref(),
        fence: heard.fence.as_deref(),
        sequence: heard.sequence.as_deref(),
        topic: heard.topic.as_deref(),
        timestamp: heard.timestamp.as_deref(),
        signature: heard.signature.as_deref(),
        body_bytes: body.map(<[u8]>::len),
        body: text.as_deref(),
    };
    cx.output.either(&shown, || {
        let style = if (200..300).contains(&status) {
            GOOD
        } else {
            BAD
        };
        let mut parts = vec![format!("{style}{status}{style:#}"), plain(path)];
        let named = [
            ("message", &heard.id),
            ("attempt", &heard.attempt),
            ("fence", &heard.fence),
            ("sequence", &heard.sequence),
            ("topic", &heard.topic),
        ];
        for (name, value) in named {
            parts.extend(
                value
                    .as_ref()
                    .map(|value| format!("{name} {}", plain(value))),
            );
        }
        parts.push(match (&why, &heard.verified) {
            (Some(why), _) => format!("{BAD}not believed{BAD:#}: {why}"),
            (None, Some(_)) => format!("{GOOD}verified{GOOD:#}"),
            (None, None) => "not verified".to_owned(),
        });
        parts.extend(
            heard
                .freshness
                .filter(|it| *it != Freshness::New)
                .map(|it| word(it).into()),
        );
        let body: String = text
            .as_deref()
            .unwrap_or("")
            .chars()
            .take(SHOWN_MAX)
            .collect();
        format!("{}\n    {}", parts.join("  "), plain(&body))
    })
}

const fn word(freshness: Freshness) -> &'static str {
    match freshness {
        Freshness::New => "new",
        Freshness::Repeat => "repeat",
        Freshness::Stale => "stale",
    }
}
