//! Answer: the part of a response that is stored. It is untrusted text: it is truncated, and
//! possible secrets are masked.

use std::time::Duration;

use hyper::header::{HeaderMap, RETRY_AFTER};
use tenure_core::Timestamp;
use tenure_core::webhook::{Directive, Reply};

use super::names;

/// Limit for reading a body; beyond it the connection is closed.
pub(super) const READ_BYTES_MAX: usize = 64 * 1024;
/// Limit of all stored header names and values together.
const HEADER_BYTES_MAX: usize = 8 * 1024;
/// Bytes read beyond the stored part, so that a secret across the cut is still recognised, even if
/// each of its bytes is encoded as three.
const MASK_MARGIN_BYTES: usize = 12 * 1024;

const MASK: &str = "***";
/// Headers whose values are not stored.
const SECRET_HEADERS: &[&str] = &[
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
/// Parts of the names of further headers whose values are not stored.
const SECRET_HEADER_PARTS: &[&str] = &[
    "api-key",
    "apikey",
    "credential",
    "csrf",
    "password",
    "secret",
    "session",
    "token",
];

/// The stored part of a response.
pub(super) struct Answer {
    pub(super) status: u16,
    retry_after: Option<Duration>,
    directive: Option<Directive>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    read: usize,
}

#[derive(PartialEq, Eq)]
pub(super) enum Reading {
    Continue,
    Enough,
}

impl Answer {
    /// Starts an answer from the head of a response.
    pub(super) fn new(
        status: u16,
        headers: &HeaderMap,
        secrets: &[Box<[u8]>],
        now: Timestamp,
    ) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            status,
            retry_after: text(RETRY_AFTER.as_str()).and_then(|text| retry_after(text, now)),
            directive: text(names::DIRECTIVE).and_then(directive),
            headers: stored_headers(headers, secrets),
            body: Vec::new(),
            read: 0,
        }
    }

    /// Adds one more part of the body.
    pub(super) fn push(&mut self, part: &[u8]) -> Reading {
        let room = (Reply::BODY_BYTES_MAX + MASK_MARGIN_BYTES).saturating_sub(self.body.len());
        self.body.extend(part.iter().take(room));
        self.read = self.read.saturating_add(part.len());
        if self.read > READ_BYTES_MAX {
            Reading::Enough
        } else {
            Reading::Continue
        }
    }

    /// Copies the stored part into a reply.
    pub(super) fn fill(self, reply: &mut Reply, secrets: &[Box<[u8]>]) {
        let mut body = masked(self.body, secrets);
        body.truncate(Reply::BODY_BYTES_MAX);
        reply.is_cut = self.read > Reply::BODY_BYTES_MAX;
        reply.body = body;
        reply.headers = self.headers;
        reply.retry_after = self.retry_after;
        reply.directive = self.directive;
    }
}

fn stored_headers(headers: &HeaderMap, secrets: &[Box<[u8]>]) -> Vec<(String, String)> {
    let mut left = HEADER_BYTES_MAX;
    let mut stored = Vec::new();
    for (name, value) in headers {
        let name = name.as_str();
        let is_secret = SECRET_HEADERS.contains(&name)
            || SECRET_HEADER_PARTS.iter().any(|part| name.contains(part));
        let value = if is_secret {
            MASK.to_owned()
        } else {
            let value = masked(value.as_bytes().to_vec(), secrets);
            String::from_utf8_lossy(&value).into_owned()
        };
        let Some(room) = left.checked_sub(name.len()) else {
            break;
        };
        let value = cut(value, room);
        left = room - value.len();
        stored.push((name.to_owned(), value));
    }
    stored
}

fn cut(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    text
}

/// Masks the endpoint's own secrets, in case the receiver echoes them.
fn masked(bytes: Vec<u8>, secrets: &[Box<[u8]>]) -> Vec<u8> {
    secrets.iter().fold(bytes, |bytes, secret| {
        let Some(first) = find(&bytes, secret) else {
            return bytes;
        };
        let mut clean = Vec::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        let mut next = Some(first);
        while let Some((before, matched)) = next.and_then(|at| rest.split_at_checked(at)) {
            clean.extend_from_slice(before);
            clean.extend_from_slice(MASK.as_bytes());
            rest = matched.get(secret.len()..).unwrap_or_default();
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

/// Parses seconds or a date.
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
