//! Answer: what is kept of what a receiver says. It is somebody else's text: it is cut, and what
//! may be a secret is masked.

use std::time::Duration;

use hyper::header::{HeaderMap, RETRY_AFTER};
use tenure_core::Timestamp;
use tenure_core::webhook::{Directive, Reply};

use super::names;

/// At most this much of a body is read; then the connection is closed.
pub(super) const READ_BYTES_MAX: usize = 64 * 1024;
/// At most this much of the names and values of headers is kept.
const HEADER_BYTES_MAX: usize = 8 * 1024;
/// Kept beyond what is shown, so that a secret which the cut goes through is known as one, also
/// where each of its bytes is written as three.
const MARGIN: usize = 12 * 1024;

const MASK: &str = "***";
/// Headers whose values are not kept.
const SECRET: &[&str] = &[
    "authentication-info",
    "authorization",
    "cookie",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "set-cookie",
    "set-cookie2",
    "www-authenticate",
];
/// Nor those of headers with this in their names.
const SECRET_PARTS: &[&str] = &[
    "api-key",
    "apikey",
    "credential",
    "csrf",
    "password",
    "secret",
    "session",
    "token",
];

/// What is kept of an answer.
pub(super) struct Answer {
    pub(super) status: u16,
    retry_after: Option<Duration>,
    directive: Option<Directive>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    read: usize,
}

/// Whether to go on reading.
#[derive(PartialEq, Eq)]
pub(super) enum Reading {
    On,
    Enough,
}

impl Answer {
    /// An answer whose head has come.
    pub(super) fn new(
        status: u16,
        headers: &HeaderMap,
        hidden: &[Box<[u8]>],
        now: Timestamp,
    ) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            status,
            retry_after: text(RETRY_AFTER.as_str()).and_then(|text| retry_after(text, now)),
            directive: text(names::DIRECTIVE).and_then(directive),
            headers: kept(headers, hidden),
            body: Vec::new(),
            read: 0,
        }
    }

    /// One more part of its body.
    pub(super) fn push(&mut self, part: &[u8]) -> Reading {
        let room = (Reply::BODY_BYTES_MAX + MARGIN).saturating_sub(self.body.len());
        self.body.extend(part.iter().take(room));
        self.read = self.read.saturating_add(part.len());
        if self.read > READ_BYTES_MAX {
            Reading::Enough
        } else {
            Reading::On
        }
    }

    /// Puts what is kept into a reply.
    pub(super) fn fill(self, reply: &mut Reply, hidden: &[Box<[u8]>]) {
        let mut body = masked(self.body, hidden);
        body.truncate(Reply::BODY_BYTES_MAX);
        reply.is_cut = self.read > Reply::BODY_BYTES_MAX;
        reply.body = body;
        reply.headers = self.headers;
        reply.retry_after = self.retry_after;
        reply.directive = self.directive;
    }
}

fn kept(headers: &HeaderMap, hidden: &[Box<[u8]>]) -> Vec<(String, String)> {
    let mut left = HEADER_BYTES_MAX;
    let mut kept = Vec::new();
    for (name, value) in headers {
        let name = name.as_str();
        let is_secret =
            SECRET.contains(&name) || SECRET_PARTS.iter().any(|part| name.contains(part));
        let value = if is_secret {
            MASK.to_owned()
        } else {
            let value = masked(value.as_bytes().to_vec(), hidden);
            String::from_utf8_lossy(&value).into_owned()
        };
        let Some(room) = left.checked_sub(name.len()) else {
            break;
        };
        let value = cut(value, room);
        left = room - value.len();
        kept.push((name.to_owned(), value));
    }
    kept
}

fn cut(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    text
}

/// Without our own secrets, should the receiver send back what it was sent.
fn masked(bytes: Vec<u8>, hidden: &[Box<[u8]>]) -> Vec<u8> {
    hidden.iter().fold(bytes, |bytes, secret| {
        let Some(first) = find(&bytes, secret) else {
            return bytes;
        };
        let mut clean = Vec::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        let mut next = Some(first);
        while let Some((before, found)) = next.and_then(|at| rest.split_at_checked(at)) {
            clean.extend_from_slice(before);
            clean.extend_from_slice(MASK.as_bytes());
            rest = found.get(secret.len()..).unwrap_or_default();
            next = find(rest, secret);
        }
        clean.extend_from_slice(rest);
        clean
    })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

/// Seconds, or a date.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let since = date.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_micros(0).after(since).since(now))
}

fn directive(text: &str) -> Option<Directive> {
    match text.trim().to_ascii_lowercase().as_str() {
        "abort-message" => Some(Directive::AbortMessage),
        "disable" => Some(Directive::Disable),
        _ => None,
    }
}
