//! Prepared: an endpoint's secrets, opened once and ready to sign, for as long as the endpoint
//! stays as it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::HeaderMap;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use tenure_core::webhook::{CallError, CallErrorKind, Endpoint, Request};
use tenure_core::{Encoding, Invalid, Timestamp};
use url::form_urlencoded;

use super::signing::Signer;
use super::{Keyring, Secrets, names};

/// Remembers no more endpoints; a process calls fewer.
const ENDPOINTS_MAX: usize = 10_000;
/// Headers of a call beside the endpoint's own.
const HEADERS: usize = 11;
/// A word of a header's value that is at least so long is hidden where it comes back.
const HIDDEN_BYTES_MIN: usize = 8;

/// An endpoint's secrets, ready to use.
pub(super) struct Prepared {
    version: u64,
    sealed: String,
    signers: Vec<(Signer, Option<Timestamp>)>,
    headers: HeaderMap,
    /// What must not be kept of an answer, should the receiver send it back.
    pub(super) hidden: Vec<Box<[u8]>>,
}

impl Prepared {
    fn open(endpoint: &Endpoint, keyring: &Keyring) -> Result<Self, Invalid> {
        let secrets = Secrets::open(&endpoint.sealed, keyring, &endpoint.id)?;
        // Whatever was allowed when it was sealed.
        secrets.check()?;
        let mut headers = HeaderMap::with_capacity(secrets.headers.len());
        let mut hidden: Vec<Box<[u8]>> = Vec::new();
        for (name, value) in &secrets.headers {
            let bad = || Invalid::new("header", format!("{name:?}"), "one that can be sent");
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_cause| bad())?;
            let mut sent = HeaderValue::from_str(value).map_err(|_cause| bad())?;
            sent.set_sensitive(true);
            headers.insert(name, sent);
            let words = value.split_whitespace().chain([value.as_str()]);
            let long = words.filter(|word| word.len() >= HIDDEN_BYTES_MIN);
            hidden.extend(long.flat_map(spellings));
        }
        // The longest first, so that no part of it is left over.
        hidden.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        hidden.dedup();
        let signing = secrets.signing.iter();
        Ok(Self {
            version: endpoint.version,
            sealed: endpoint.sealed.clone(),
            signers: signing.map(|one| (one.key.signer(), one.until)).collect(),
            headers,
            hidden,
        })
    }

    fn is_of(&self, endpoint: &Endpoint) -> bool {
        self.version == endpoint.version && self.sealed == endpoint.sealed
    }

    /// The headers of one attempt, signed.
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
        // What is around a header's value is lost on the way, so it is not signed either.
        let topic = request.event.topic().trim_matches(' ');
        if topic.is_empty() {
            return Err(unsendable("its topic is blank, and no header can be"));
        }
        let own_front = names::own_front([&id, &seconds, &fence, &attempt, own, topic]);
        let signature = self.sign(&[front.as_bytes(), body], now)?;
        let own_signature = self.sign(&[own_front.as_bytes(), body], now)?;

        // Room for all, with the host and the user agent, so that it does not grow step by step.
        let mut headers = HeaderMap::with_capacity(self.headers.len() + HEADERS);
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
                .map_err(|_cause| unsendable(&format!("its header {name} cannot be written")))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(headers)
    }

    /// The signatures of all live keys.
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

/// A word as it is, as JSON writes it, as JSON with its slashes marked, and as an address has it: a
/// receiver that sends back what it was sent mostly does so in one of these.
fn spellings(word: &str) -> [Box<[u8]>; 4] {
    let json = word.replace('\\', r"\\").replace('"', "\\\"");
    let slashes = json.replace('/', r"\/");
    let address: String = form_urlencoded::byte_serialize(word.as_bytes()).collect();
    [word, &json, &slashes, &address].map(|text| Box::from(text.as_bytes()))
}

/// JSON, unless the payload was given as bytes or the event says what it is.
fn content_type(request: &Request<'_>) -> Result<HeaderValue, CallError> {
    match request.event.headers().get(CONTENT_TYPE.as_str()) {
        Some(said) => HeaderValue::from_str(said)
            .map_err(|_cause| unsendable("the event's content-type cannot be written in a header")),
        None => Ok(HeaderValue::from_static(match request.event.encoding() {
            None => "application/json",
            Some(Encoding::Base64) => "application/octet-stream",
        })),
    }
}

pub(super) fn unsendable(text: &str) -> CallError {
    CallError {
        kind: CallErrorKind::Unsendable,
        text: text.to_owned(),
    }
}

/// What is prepared, by the number of the endpoint.
#[derive(Default)]
pub(super) struct Cache(Mutex<HashMap<u32, Arc<Prepared>>>);

impl Cache {
    /// The endpoint's secrets, opened now or earlier.
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
