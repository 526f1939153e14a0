//! Keyring: the keys that seal the secrets of endpoints, so that a copy of the database alone
//! signs nothing.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use tenure_core::Invalid;

/// A key has this many bytes.
const KEY_BYTES: usize = 32;
/// No name is longer.
const NAME_BYTES_MAX: usize = 64;

/// Named keys. The first one seals, all of them open: a new key is put in front, and the old ones
/// stay until everything is sealed anew.
///
/// As text it has one key a line, `name:base64 of 32 bytes`; empty lines and those that begin with
/// `#` say nothing.
///
/// ```
/// use tenure_publish::webhook::Keyring;
///
/// let new = Keyring::generate_line("2027")?;
/// let old = Keyring::generate_line("2026")?;
/// let keyring = Keyring::parse(&format!("# ours\n{new}\n{old}\n"))?;
/// assert_eq!(keyring.names().collect::<Vec<_>>(), ["2027", "2026"]);
/// assert!(Keyring::parse("2027:short").is_err());
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
pub struct Keyring(Vec<Named>);

struct Named {
    name: String,
    key: LessSafeKey,
}

impl Keyring {
    /// Reads keys.
    ///
    /// # Errors
    /// There is none, a line is no key, or a name is there twice. The text of the error names the
    /// line and no part of a key.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let mut keys: Vec<Named> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((name, key)) = read_line(line) else {
                let found = format!("unreadable in line {}", number + 1);
                return Err(bad(found));
            };
            if keys.iter().any(|other| other.name == name) {
                return Err(bad(format!("one that has the name {name:?} twice")));
            }
            let name = name.to_owned();
            keys.push(Named { name, key });
        }
        if keys.is_empty() {
            return Err(bad("one without a key".to_owned()));
        }
        Ok(Self(keys))
    }

    /// A line with a fresh key, for the file that [`Keyring::parse`] reads. It is a secret.
    ///
    /// # Errors
    /// The name is not 1 to 64 of letters, digits, `-`, `_` and `.`.
    pub fn generate_line(name: &str) -> Result<String, Invalid> {
        if !is_name(name) {
            let expected = "1 to 64 letters, digits, - _ or ., such as 2027-01";
            return Err(Invalid::new("name of a key", format!("{name:?}"), expected));
        }
        let key: [u8; KEY_BYTES] = rand::random();
        Ok(format!("{name}:{}", BASE64.encode(key)))
    }

    /// The names, that of the key that seals first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|named| named.name.as_str())
    }

    /// Encrypts. The answer is the key's name, and the nonce with the cipher text in base64.
    /// `context` is not kept, and must be the same when it is opened.
    pub(super) fn seal(
        &self,
        plain: Vec<u8>,
        context: &str,
    ) -> Result<(&str, String), ring::error::Unspecified> {
        let first = self.0.first().ok_or(ring::error::Unspecified)?;
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut text = plain;
        let aad = Aad::from(associated(&first.name, context));
        let unique = Nonce::assume_unique_for_key(nonce);
        first
            .key
            .seal_in_place_append_tag(unique, aad, &mut text)
            .map(|()| {
                (
                    first.name.as_str(),
                    BASE64.encode([&nonce[..], &text].concat()),
                )
            })
    }

    /// Whether there is a key of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names().any(|other| other == name)
    }

    /// Decrypts what the key of this name has sealed; `None`: it cannot.
    pub(super) fn open(&self, name: &str, sealed: &str, context: &str) -> Option<Vec<u8>> {
        let named = self.0.iter().find(|named| named.name == name)?;
        let bytes = BASE64.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut text = text.to_vec();
        let aad = Aad::from(associated(name, context));
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = named.key.open_in_place(nonce, aad, &mut text).ok()?;
        Some(plain.to_vec())
    }
}

impl fmt::Debug for Keyring {
    /// The names only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keyring")
            .field(&self.names().collect::<Vec<_>>())
            .finish()
    }
}

/// What a cipher text is bound to: neither another key's name nor another endpoint opens it.
fn associated(name: &str, context: &str) -> String {
    format!("tenure endpoint secrets 1\n{name}\n{context}")
}

fn read_line(line: &str) -> Option<(&str, LessSafeKey)> {
    let (name, key) = line.split_once(':')?;
    let bytes = BASE64.decode(key.trim()).ok()?;
    let key = UnboundKey::new(&AES_256_GCM, &bytes).ok()?;
    is_name(name).then(|| (name, LessSafeKey::new(key)))
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
}

fn bad(found: String) -> Invalid {
    let expected = "a line `name:base64 of 32 bytes` for each key, the first one to seal with";
    Invalid::new("keyring", found, expected)
}
