//! Keyring: keys that encrypt the secrets of endpoints, so that a copy of the database alone is not
//! enough to sign calls.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use tenure_core::Invalid;

const KEY_BYTES: usize = 32;
const NAME_BYTES_MAX: usize = 64;

/// Named keys. The first key encrypts, and all keys decrypt: put a new key in front, and keep the
/// old keys until all secrets are encrypted again.
///
/// As text it has one key per line, `name:base64 of 32 bytes`; empty lines and lines that begin
/// with `#` are ignored.
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
pub struct Keyring(Vec<NamedKey>);

struct NamedKey {
    name: String,
    key: LessSafeKey,
}

impl Keyring {
    /// Reads keys.
    ///
    /// # Errors
    /// There is no key, a line is not a valid key, or a name occurs twice. The error names the line
    /// but no part of a key.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let mut keys: Vec<NamedKey> = Vec::new();
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
                return Err(bad(format!("ambiguous: the name {name:?} occurs twice")));
            }
            let name = name.to_owned();
            keys.push(NamedKey { name, key });
        }
        if keys.is_empty() {
            return Err(bad("empty".to_owned()));
        }
        Ok(Self(keys))
    }

    /// Returns a line with a fresh key, for the file that [`Keyring::parse`] reads. It is a secret.
    ///
    /// # Errors
    /// The name does not consist of 1 to 64 letters, digits, `-`, `_` and `.`.
    pub fn generate_line(name: &str) -> Result<String, Invalid> {
        if !is_name(name) {
            let expected = "1 to 64 letters, digits, - _ or ., such as 2027-01";
            return Err(Invalid::new("name of a key", format!("{name:?}"), expected));
        }
        let key: [u8; KEY_BYTES] = rand::random();
        Ok(format!("{name}:{}", BASE64.encode(key)))
    }

    /// Names of the keys; the first key encrypts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|named| named.name.as_str())
    }

    /// Encrypts a text. Returns the key's name, and the nonce with the cipher text in base64.
    /// `context` is not stored; [`Keyring::open`] needs the same one.
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

    pub(super) fn has(&self, name: &str) -> bool {
        self.names().any(|other| other == name)
    }

    /// Decrypts text that the key of this name encrypted; `None` if that is not possible.
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
    /// Shows the names only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keyring")
            .field(&self.names().collect::<Vec<_>>())
            .finish()
    }
}

/// Data that a cipher text is bound to: it cannot be decrypted under another key name or for
/// another endpoint.
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
    let expected = "a line `name:base64 of 32 bytes` for each key; the first key encrypts";
    Invalid::new("keyring", found, expected)
}
