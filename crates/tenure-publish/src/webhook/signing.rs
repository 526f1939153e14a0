//! Signing keys in the format of Standard Webhooks: `whsec_` for HMAC-SHA256, `whsk_` and `whpk_`
//! for the private and the public half of an ed25519 key.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use ring::{hmac, signature};
use tenure_core::Invalid;

/// Size of a generated HMAC secret.
const SECRET_BYTES: usize = 32;
/// Sizes accepted for an HMAC secret.
const SECRET_BYTES_ALLOWED: std::ops::RangeInclusive<usize> = 24..=64;
/// Size of the private half of an ed25519 key, and of the public one.
const SEED_BYTES: usize = 32;
/// Size of the private half in libraries that append the public one.
const BOTH_HALVES_BYTES: usize = 64;

const SECRET_PREFIX: &str = "whsec_";
const PRIVATE_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";

/// Signature scheme of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// HMAC-SHA256, `v1`: sender and receiver share a secret.
    #[default]
    Hmac,
    /// Ed25519, `v1a`: the receiver needs only the public half.
    Ed25519,
}

impl Scheme {
    /// Prefix of this scheme's signatures.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Hmac => "v1",
            Self::Ed25519 => "v1a",
        }
    }
}

/// A key that signs calls.
///
/// ```
/// use tenure_publish::webhook::{Scheme, SigningKey};
///
/// let secret = SigningKey::generate(Scheme::Hmac);
/// assert!(secret.expose().starts_with("whsec_") && secret.public().is_none());
/// assert_eq!(SigningKey::parse(&secret.expose())?, secret);
///
/// let pair = SigningKey::generate(Scheme::Ed25519);
/// assert!(pair.public().is_some_and(|public| public.starts_with("whpk_")));
/// assert_eq!(format!("{pair:?}"), "SigningKey(Ed25519)");
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone)]
pub struct SigningKey {
    scheme: Scheme,
    /// The secret, or the private half.
    bytes: Box<[u8]>,
}

impl SigningKey {
    /// Generates a key.
    pub fn generate(scheme: Scheme) -> Self {
        const _: () = assert!(SECRET_BYTES == SEED_BYTES, "one draw fits both");
        let bytes: [u8; SECRET_BYTES] = rand::random();
        Self {
            scheme,
            bytes: bytes.into(),
        }
    }

    /// Parses a key.
    ///
    /// # Errors
    /// The text is neither `whsec_` with 24 to 64 bytes in base64 nor `whsk_` with 32 bytes (64 if
    /// the public half follows). The error contains no part of the key.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let text = text.trim();
        let read = if let Some(rest) = text.strip_prefix(SECRET_PREFIX) {
            decode(rest)
                .filter(|bytes| SECRET_BYTES_ALLOWED.contains(&bytes.len()))
                .map(|bytes| (Scheme::Hmac, bytes))
        } else {
            let rest = text.strip_prefix(PRIVATE_PREFIX);
            rest.and_then(decode)
                .and_then(|bytes| private_half(&bytes))
                .map(|bytes| (Scheme::Ed25519, bytes))
        };
        let Some((scheme, bytes)) = read else {
            let expected = "whsec_ and 24 to 64 bytes in base64, or whsk_ and 32 bytes in base64";
            return Err(Invalid::new("signing key", "unreadable", expected));
        };
        let bytes = bytes.into();
        Ok(Self { scheme, bytes })
    }

    /// Signature scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The whole secret as text, to be shown once to the user who created it.
    pub fn expose(&self) -> String {
        let prefix = match self.scheme {
            Scheme::Hmac => SECRET_PREFIX,
            Scheme::Ed25519 => PRIVATE_PREFIX,
        };
        format!("{prefix}{}", BASE64.encode(&self.bytes))
    }

    /// The public half that the receiver verifies with, `whpk_…`; `None` for a shared secret.
    pub fn public(&self) -> Option<String> {
        match self.signer() {
            Signer::Hmac(_) => None,
            Signer::Ed25519(pair) => {
                let public = BASE64.encode(pair.public_key().as_ref());
                Some(format!("{PUBLIC_PREFIX}{public}"))
            }
        }
    }

    /// Precomputes the parts that do not depend on a message.
    pub(super) fn signer(&self) -> Signer {
        match self.scheme {
            Scheme::Hmac => Signer::Hmac(hmac::Key::new(hmac::HMAC_SHA256, &self.bytes)),
            Scheme::Ed25519 => Signer::Ed25519(Box::new(
                pair(&self.bytes)
                    .expect("the length was checked when the key was parsed or generated"),
            )),
        }
    }
}

impl PartialEq for SigningKey {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        let differ = |sum: u8, (a, b): (&u8, &u8)| sum | (a ^ b);
        self.scheme == other.scheme
            && self.bytes.len() == other.bytes.len()
            && self.bytes.iter().zip(&other.bytes).fold(0, differ) == 0
    }
}

impl Eq for SigningKey {}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.scheme).finish()
    }
}

/// A key that is ready to sign.
pub(super) enum Signer {
    Hmac(hmac::Key),
    Ed25519(Box<Ed25519KeyPair>),
}

impl Signer {
    /// Signs the concatenated parts; the result begins with the scheme's tag.
    pub(super) fn sign(&self, parts: &[&[u8]]) -> String {
        match self {
            Self::Hmac(key) => {
                let mut context = hmac::Context::with_key(key);
                for part in parts {
                    context.update(part);
                }
                format_signature(Scheme::Hmac, context.sign().as_ref())
            }
            Self::Ed25519(pair) => {
                format_signature(Scheme::Ed25519, pair.sign(&parts.concat()).as_ref())
            }
        }
    }
}

fn format_signature(scheme: Scheme, signature: &[u8]) -> String {
    format!("{},{}", scheme.tag(), BASE64.encode(signature))
}

/// A key that is ready to verify.
pub(super) enum VerifyingKey {
    Hmac(hmac::Key),
    Ed25519(signature::UnparsedPublicKey<Vec<u8>>),
}

impl VerifyingKey {
    /// Parses a receiver's key: the shared secret, the public half, or the private one.
    pub(super) fn parse(text: &str) -> Result<Self, Invalid> {
        let public = |bytes| signature::UnparsedPublicKey::new(&signature::ED25519, bytes);
        if let Some(rest) = text.trim().strip_prefix(PUBLIC_PREFIX) {
            let bytes = decode(rest).filter(|bytes| bytes.len() == SEED_BYTES);
            let expected = "whpk_ and 32 bytes in base64";
            let bad = || Invalid::new("public key", "unreadable", expected);
            return Ok(Self::Ed25519(public(bytes.ok_or_else(bad)?)));
        }
        Ok(match SigningKey::parse(text)?.signer() {
            Signer::Hmac(key) => Self::Hmac(key),
            Signer::Ed25519(pair) => Self::Ed25519(public(pair.public_key().as_ref().to_vec())),
        })
    }

    pub(super) fn scheme(&self) -> Scheme {
        match self {
            Self::Hmac(_) => Scheme::Hmac,
            Self::Ed25519(_) => Scheme::Ed25519,
        }
    }

    /// Returns true if any of these signatures is valid for `message`. Checks all of them, in a
    /// time that does not depend on the result.
    pub(super) fn is_any(&self, message: &[u8], signatures: &[Vec<u8>]) -> bool {
        let fold = |is_one: &dyn Fn(&[u8]) -> bool| {
            let all = signatures.iter();
            all.fold(false, |is_good, one| is_good | is_one(one))
        };
        match self {
            Self::Hmac(key) => {
                // Hash a long body only once: compare HMACs of the expected signature and of the
                // received ones.
                let expected = hmac::sign(key, message);
                fold(&|one| {
                    hmac::verify(key, one, hmac::sign(key, expected.as_ref()).as_ref()).is_ok()
                })
            }
            Self::Ed25519(key) => fold(&|one| key.verify(message, one).is_ok()),
        }
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

fn pair(seed: &[u8]) -> Option<Ed25519KeyPair> {
    Ed25519KeyPair::from_seed_unchecked(seed).ok()
}

/// Returns the private half. If the public half follows, it must match.
fn private_half(bytes: &[u8]) -> Option<Vec<u8>> {
    let (seed, public) = bytes.split_at_checked(SEED_BYTES)?;
    let fits = match bytes.len() {
        SEED_BYTES => true,
        BOTH_HALVES_BYTES => pair(seed)?.public_key().as_ref() == public,
        _ => false,
    };
    fits.then(|| seed.to_vec())
}
