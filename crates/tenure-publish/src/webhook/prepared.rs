//! Prepared secrets of an endpoint: decrypted once, and cached until the endpoint changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::HeaderMap;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use tenure_core::webhook::{CallError, CallErrorKind, Endpoint, Request};
use tenure_core::{Encoding, Invalid, Timestamp, TraceParent};
use url::form_urlencoded;

use super::signing::Signer;
use super::{Keyring, Secrets, call_error, names};

/// Capacity of the cache, in endpoints; a process usually calls fewer.
const ENDPOINTS_MAX: usize = 10_000;
/// Number of headers of a call besides the endpoint's own.
const CALL_HEADERS: usize = 13;
/// Minimum length of a word in a header value that is masked in replies.
const MASKED_BYTES_MIN: usize = 8;

pub(super) struct Prepared {
    version: u64,
    sealed: String,
    signers: Vec<(Signer, Option<Timestamp>)>,
    headers: HeaderMap,
    /// Byte strings to mask in a reply, in case the receiver echoes them.
    pub(super) masked: Vec<Box<[u8]>>,
}

impl Prepared {
    fn open(endpoint: &Endpoint, keyring: &Keyring) -> Result<Self, Invalid> {
        let secrets = Secrets::open(&endpoint.sealed, keyring, &endpoint.id)?;
        // Check again: the rules may have changed since the secrets were encrypted.
        secrets.check()?;
        let mut headers = HeaderMap::with_capacity(secrets.headers.len());
        let mut masked: Vec<Box<[u8]>> = Vec::new();
        for (name, value) in &secrets.headers {
            let bad = || Invalid::new("header", format!("{name:?}"), "one that can be sent");
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_cause| bad())?;
            let mut sent = HeaderValue::from_str(value).map_err(|_cause| bad())?;
            sent.set_sensitive(true);
            headers.insert(name, sent);
            let words = value.split_whitespace().chain([value.as_str()]);
            let long = words.filter(|word| word.len() >= MASKED_BYTES_MIN);
            masked.extend(long.flat_map(spellings));
        }
        // Longest first, so that no part of a secret is left over.
        masked.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        masked.dedup();
        let signing = secrets.signing.iter();
        Ok(Self {
            version: endpoint.version,
            sealed: endpoint.sealed.clone(),
            signers: signing.map(|one| (one.key.signer(), one.until)).collect(),
            headers,
            masked,
        })
    }

    fn is_of(&self, endpoint: &Endpoint) -> bool {
        self.version == endpoint.version && self.sealed == endpoint.sealed
    }

    /// Builds and signs the headers of one attempt.
    pub(super) fn headers(
        &self,
        request: &Request<'_>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<HeaderMap, CallError> {
        let id = request.message.to_string();
        let seconds = now.as_micros().div_euclid(1_000_000).to_string();
        let fence = request.fence.to_string();
        let attempt = request.attempt.to_string();
        let sequence = request.sequence.map(|number| number.to_string());
        let own = sequence.as_deref().unwrap_or_default();

        let front = format!("{id}.{seconds}.");
        // Receivers strip the blanks around a header's value, so the blanks are not signed.
        let topic = request.event.topic().trim_matches(' ');
        if topic.is_empty() {
            return Err(unsendable("the topic is blank, and a header cannot be"));
        }
        let own_front = names::own_front([&id, &seconds, &fence, &attempt, own, topic]);
        let signature = self.sign(&[front.as_bytes(), body], now)?;
        let own_signature = self.sign(&[own_front.as_bytes(), body], now)?;

        // Reserve space for all headers, including host and user agent, to avoid reallocation.
        let mut headers = HeaderMap::with_capacity(self.headers.len() + CALL_HEADERS);
        headers.extend(self.headers.clone());
        headers.insert(CONTENT_TYPE, content_type(request)?);
        let all = [
            (names::ID, Some(id)),
            (names::TIMESTAMP, Some(seconds)),
            (names::SIGNATURE, Some(signature)),
            (names::ATTEMPT, Some(attempt)),
            (names::FENCE, Some(fence)),
            (names::SEQUENCE, sequence),
            (names::TOPIC, Some(topic.to_owned())),
            (names::OWN_SIGNATURE, Some(own_signature)),
        ];
        for (name, value) in all {
            let Some(value) = value else { continue };
            let value = HeaderValue::try_from(value)
                .map_err(|_cause| unsendable(&format!("the header {name} cannot be written")))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        for (name, value) in TraceParent::passed_on(request.event.headers()) {
            // A trace is worth no delivery: a state that cannot be written is left out.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        Ok(headers)
    }

    /// Signs with every live key.
    fn sign(&self, parts: &[&[u8]], now: Timestamp) -> Result<String, CallError> {
        let live = |until: &Option<Timestamp>| until.is_none_or(|until| now < until);
        let signers = self.signers.iter().filter(|(_, until)| live(until));
        let signatures: Vec<String> = signers.map(|(signer, _)| signer.sign(parts)).collect();
        if signatures.is_empty() {
            return Err(unsendable("the endpoint has no live signing key"));
        }
        Ok(signatures.join(" "))
    }
}

/// Spellings of a word in an echoed request: plain, as JSON, as JSON with escaped slashes, and
/// percent-encoded.
fn spellings(word: &str) -> [Box<[u8]>; 4] {
    let json = word.replace('\\', r"\\").replace('"', "\\\"");
    let slashes = json.replace('/', r"\/");
    let address: String = form_urlencoded::byte_serialize(word.as_bytes()).collect();
    [word, &json, &slashes, &address].map(|text| Box::from(text.as_bytes()))
}

/// Returns the content type: JSON, unless the payload was enqueued as bytes or the event has one.
fn content_type(request: &Request<'_>) -> Result<HeaderValue, CallError> {
    match request.event.headers().get(CONTENT_TYPE.as_str()) {
        Some(value) => HeaderValue::from_str(value)
            .map_err(|_cause| unsendable("the event's content-type cannot be written in a header")),
        None => Ok(HeaderValue::from_static(match request.event.encoding() {
            None => "application/json",
            Some(Encoding::Base64) => "application/octet-stream",
        })),
    }
}

pub(super) fn unsendable(text: &str) -> CallError {
    call_error(CallErrorKind::Unsendable, text)
}

/// Prepared secrets by endpoint number.
#[derive(Default)]
pub(super) struct PreparedCache(Mutex<HashMap<u32, Arc<Prepared>>>);

impl PreparedCache {
    /// Returns the endpoint's secrets; decrypts them unless they are cached.
    pub(super) fn get(
        &self,
        endpoint: &Endpoint,
        keyring: &Keyring,
    ) -> Result<Arc<Prepared>, Invalid> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = all.get(&endpoint.number)
            && prepared.is_of(endpoint)
        {
            return Ok(Arc::clone(prepared));
        }
        let prepared = Arc::new(Prepared::open(endpoint, keyring)?);
        if all.len() >= ENDPOINTS_MAX {
            all.clear();
        }
        all.insert(endpoint.number, Arc::clone(&prepared));
        Ok(prepared)
    }
}
