//! Secrets of an endpoint: its signing keys and extra headers, encrypted for the store.

use std::collections::BTreeMap;
use std::fmt;

use tenure_core::webhook::EndpointId;
use tenure_core::{Invalid, Timestamp};

use super::{Keyring, SigningKey};

/// Prefix of encrypted text: the version of its format.
const FORM: &str = "tenure1";
const HEADERS_MAX: usize = 20;
const VALUE_BYTES_MAX: usize = 4096;
/// Names that Tenure sets itself, or that belong to the connection and not to the request.
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
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];
/// Prefix of the header names that belong to the protocol.
const RESERVED_PREFIX: &str = "webhook-";

/// Secrets of an endpoint that only its caller may know: signing keys, and headers sent with every
/// call.
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
/// // Text sealed for one endpoint does not open for another.
/// assert!(Secrets::open(&sealed, &keyring, &EndpointId::new("mail")?).is_err());
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    /// Signing keys, newest first. Every live key signs every call.
    pub signing: Vec<Signing>,
    /// Headers sent with every call, by lower-case name.
    pub headers: BTreeMap<String, String>,
}

/// A signing key, and the end of its use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signing {
    /// Key with its scheme.
    pub key: SigningKey,
    /// Time until which an old key signs, so that the receiver can switch to the new key. `None`
    /// for the current key.
    pub until: Option<Timestamp>,
}

impl Signing {
    /// Returns true if the key signs at `now`.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct PlainSecrets {
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
    /// Maximum number of live keys.
    pub const LIVE_MAX: usize = 5;

    /// Creates secrets with one key and no headers.
    pub fn new(key: SigningKey) -> Self {
        Self {
            signing: vec![Signing { key, until: None }],
            headers: BTreeMap::new(),
        }
    }

    /// Makes `key` the current key. A previous key without an end signs until `until`. Removes keys
    /// whose end is not after `now`.
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

    /// Checks all keys and headers.
    ///
    /// # Errors
    /// There is no current key (every key has an end), there are too many keys, or a header is not
    /// valid. The error contains no secret value.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.signing.iter().all(|signing| signing.until.is_some()) {
            let expected = "one without an end";
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

    /// Encrypts the secrets with the first key of the keyring, for this endpoint alone.
    ///
    /// # Errors
    /// The errors of [`Secrets::check`].
    pub fn seal(&self, keyring: &Keyring, endpoint: &EndpointId) -> Result<String, Invalid> {
        self.check()?;
        let signing = self.signing.iter().map(|signing| PlainSigning {
            key: signing.key.expose(),
            until: signing.until,
        });
        let plain = PlainSecrets {
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

    /// Decrypts text from the store.
    ///
    /// # Errors
    /// The keyring does not have the key, or the text was changed or encrypted for another
    /// endpoint.
    pub fn open(sealed: &str, keyring: &Keyring, endpoint: &EndpointId) -> Result<Self, Invalid> {
        let expected = "text sealed by this keyring for this endpoint";
        let bad = |found: &str| Invalid::new("sealed text of an endpoint", found, expected);
        let (name, text) = parts(sealed).ok_or_else(|| bad("unreadable"))?;
        if !keyring.has(name) {
            let found = format!("sealed by the key {name:?}, which the keyring does not have");
            return Err(bad(&found));
        }
        let plain = keyring.open(name, text, endpoint.as_str());
        let plain = plain.ok_or_else(|| bad("not sealed by this key for this endpoint"))?;
        // Serde's error could quote the input.
        let plain: PlainSecrets =
            serde_json::from_slice(&plain).map_err(|_cause| bad("in an unknown format"))?;
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

    /// Name of the key that encrypted a text, to find text that must be encrypted again.
    pub fn sealed_by(sealed: &str) -> Option<&str> {
        parts(sealed).map(|(name, _)| name)
    }
}

impl fmt::Debug for Secrets {
    /// Shows the schemes and ends of the keys, and the names of the headers.
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
    let expected = "at most 5 live ones; wait until an old one ends";
    let found = format!("{keys} keys");
    Err(Invalid::new("signing keys", found, expected))
}

fn check_header(name: &str, value: &str) -> Result<(), Invalid> {
    let is_name_byte =
        |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || name.len() > 255 || !name.bytes().all(is_name_byte) {
        let expected = "1 to 255 lower-case letters, digits or any of !#$%&'*+-.^_`|~";
        return Err(Invalid::new("header name", format!("{name:?}"), expected));
    }
    if name.starts_with(RESERVED_PREFIX) || RESERVED.contains(&name) {
        let expected = "a name that neither the protocol nor the connection reserves";
        return Err(Invalid::new("header name", format!("{name:?}"), expected));
    }
    let is_printable = value.bytes().all(|c| (b' '..=b'~').contains(&c));
    if value.len() > VALUE_BYTES_MAX || !is_printable || value.trim() != value || value.is_empty() {
        let found = format!("not valid (header {name})");
        let expected = "1 to 4096 printable ASCII characters, no blank at either end";
        return Err(Invalid::new("header value", found, expected));
    }
    Ok(())
}
