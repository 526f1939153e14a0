//! Secrets of an endpoint: what signs its calls and the headers that it wants, sealed for the
//! store.

use std::collections::BTreeMap;
use std::fmt;

use tenure_core::webhook::EndpointId;
use tenure_core::{Invalid, Timestamp};

use super::{Keyring, SigningKey};

/// What sealed text begins with: the version of its form.
const FORM: &str = "tenure1";
/// No endpoint has more headers.
const HEADERS_MAX: usize = 20;
/// No header's value is longer.
const VALUE_BYTES_MAX: usize = 4096;
/// Names that are ours, or that belong to the connection and not to the request.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];
/// Names that begin so are the protocol's.
const RESERVED_PREFIX: &str = "webhook-";

/// What only the caller of an endpoint may know: its signing keys, and the headers that go with
/// every call.
///
/// ```
/// use tenure_core::webhook::EndpointId;
/// use tenure_publish::webhook::{Keyring, Scheme, Secrets, SigningKey};
///
/// let keyring = Keyring::parse(&Keyring::generate_line("2027")?)?;
/// let billing = EndpointId::new("billing")?;
/// let secrets = Secrets::new(SigningKey::generate(Scheme::Hmac));
///
/// let sealed = secrets.seal(&keyring, &billing)?;
/// assert_eq!(Secrets::open(&sealed, &keyring, &billing)?, secrets);
/// // What is sealed for one endpoint is not opened for another.
/// assert!(Secrets::open(&sealed, &keyring, &EndpointId::new("mail")?).is_err());
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    /// The keys; the newest first. All that are live sign every call.
    pub signing: Vec<Signing>,
    /// Headers that go with every call, by their names in lower case.
    pub headers: BTreeMap<String, String>,
}

/// A signing key, and how long it signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signing {
    /// The key.
    pub key: SigningKey,
    /// An old key signs until then, so that the receiver has time to learn the new one. `None`:
    /// it is the present one.
    pub until: Option<Timestamp>,
}

impl Signing {
    /// Whether it signs at this moment.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Plain {
    signing: Vec<PlainSigning>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct PlainSigning {
    key: String,
    until: Option<Timestamp>,
}

impl Secrets {
    /// No endpoint has more live keys.
    pub const LIVE_MAX: usize = 5;

    /// One key and no headers.
    pub fn new(key: SigningKey) -> Self {
        Self {
            signing: vec![Signing { key, until: None }],
            headers: BTreeMap::new(),
        }
    }

    /// Lets `key` sign from now on; what signed without an end until now does so until `until`.
    /// Keys that sign no more at `now` are forgotten.
    ///
    /// # Errors
    /// There would be more than five live keys.
    pub fn rotate(
        &mut self,
        key: SigningKey,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<(), Invalid> {
        let mut signing = vec![Signing { key, until: None }];
        for old in &self.signing {
            let mut old = old.clone();
            old.until = old.until.or(Some(until));
            if old.is_live(now) {
                signing.push(old);
            }
        }
        check_count(signing.len())?;
        self.signing = signing;
        Ok(())
    }

    /// Every problem of the set.
    ///
    /// # Errors
    /// There is no key without an end, there are too many keys, or a header is not one that can be
    /// sent. The texts have no value in them.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.signing.iter().all(|signing| signing.until.is_some()) {
            let expected = "one that signs without an end";
            return Err(Invalid::new("signing key", "missing", expected));
        }
        check_count(self.signing.len())?;
        if self.headers.len() > HEADERS_MAX {
            let found = format!("{} of them", self.headers.len());
            return Err(Invalid::new("headers", found, "at most 20"));
        }
        self.headers
            .iter()
            .try_for_each(|(name, value)| check_header(name, value))
    }

    /// As a store keeps them: encrypted by the first key of the keyring, for this endpoint alone.
    ///
    /// # Errors
    /// As [`Secrets::check`].
    pub fn seal(&self, keyring: &Keyring, endpoint: &EndpointId) -> Result<String, Invalid> {
        self.check()?;
        let signing = self.signing.iter().map(|signing| PlainSigning {
            key: signing.key.expose(),
            until: signing.until,
        });
        let plain = Plain {
            signing: signing.collect(),
            headers: self.headers.clone(),
        };
        let sealed = serde_json::to_vec(&plain)
            .ok()
            .and_then(|plain| keyring.seal(plain, endpoint.as_str()).ok());
        let Some((name, text)) = sealed else {
            return Err(Invalid::new("secrets", "too long", "a few KiB"));
        };
        Ok(format!("{FORM}:{name}:{text}"))
    }

    /// As a store kept them.
    ///
    /// # Errors
    /// The keyring has not the key, or the text was changed, or was sealed for another endpoint.
    pub fn open(sealed: &str, keyring: &Keyring, endpoint: &EndpointId) -> Result<Self, Invalid> {
        let expected = "text that this keyring has sealed for this endpoint";
        let bad = |found: &str| Invalid::new("sealed text of an endpoint", found, expected);
        let (name, text) = parts(sealed).ok_or_else(|| bad("unreadable"))?;
        if !keyring.has(name) {
            let found = format!("sealed by the key {name:?}, which the keyring does not have");
            return Err(bad(&found));
        }
        let plain = keyring.open(name, text, endpoint.as_str());
        let plain = plain.ok_or_else(|| bad("not what this key has sealed for this endpoint"))?;
        // Serde's text quotes what it read.
        let plain: Plain =
            serde_json::from_slice(&plain).map_err(|_cause| bad("of another form"))?;
        let signing = plain
            .signing
            .into_iter()
            .map(|PlainSigning { key, until }| {
                let key = SigningKey::parse(&key)?;
                Ok(Signing { key, until })
            });
        Ok(Self {
            signing: signing.collect::<Result<_, Invalid>>()?,
            headers: plain.headers,
        })
    }

    /// The name of the key that has sealed a text, to find what is to be sealed anew.
    pub fn sealed_by(sealed: &str) -> Option<&str> {
        parts(sealed).map(|(name, _)| name)
    }
}

impl fmt::Debug for Secrets {
    /// How much there is, and the names of the headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets")
            .field("signing", &self.signing)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish()
    }
}

fn parts(sealed: &str) -> Option<(&str, &str)> {
    sealed
        .strip_prefix(FORM)?
        .strip_prefix(':')?
        .split_once(':')
}

fn check_count(keys: usize) -> Result<(), Invalid> {
    if keys <= Secrets::LIVE_MAX {
        return Ok(());
    }
    let expected = "at most 5 live ones; wait until an old one has ended";
    Err(Invalid::new(
        "signing keys",
        format!("{keys} keys"),
        expected,
    ))
}

fn check_header(name: &str, value: &str) -> Result<(), Invalid> {
    let is_name_byte =
        |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || name.len() > 255 || !name.bytes().all(is_name_byte) {
        let expected = "1 to 255 lower-case letters, digits or any of !#$%&'*+-.^_`|~";
        return Err(Invalid::new("header name", format!("{name:?}"), expected));
    }
    if name.starts_with(RESERVED_PREFIX) || RESERVED.contains(&name) {
        let expected = "one that neither the protocol nor the connection needs for itself";
        return Err(Invalid::new("header name", format!("{name:?}"), expected));
    }
    let is_printable = value.bytes().all(|c| (b' '..=b'~').contains(&c));
    if value.len() > VALUE_BYTES_MAX || !is_printable || value.trim() != value || value.is_empty() {
        let found = format!("not one that can be sent (header {name})");
        let expected = "1 to 4096 printable ASCII characters, no blank at either end";
        return Err(Invalid::new("header value", found, expected));
    }
    Ok(())
}
