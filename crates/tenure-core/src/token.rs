//! Token (identity of a lease) and fence (order of the claims).
//!
//! Every guard compares the token, which is never issued twice: it contains the worker's id with
//! the nonce of its start, the number of the claim, and 128 random bits. A fence is a number that
//! rises with every claim of a store; receivers use it to refuse the calls of older claims. One
//! counter for both was considered and rejected: after a failover a number can be issued twice, and
//! then a stale holder passes the guard.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lease::WorkerId;

/// Proof of a lease: `<worker id>.<claim number>.<128 random bits>`.
///
/// The worker chooses it before it sends the claim, so it can release a claim whose answer was
/// lost. It is a bearer secret of its holder: `Debug` and `Display` hide the random part.
///
/// ```
/// use tenure_core::{Token, WorkerId};
///
/// let worker = WorkerId::new("mailer", 7)?;
/// let token = Token::new(&worker, 1, 0xfeed);
/// assert_eq!(token.holder(), "mailer-0000000000000007");
/// assert!(!format!("{token:?}").contains("feed"));
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(Box<str>);

impl Token {
    /// Token of a worker's `claim`-th claim. `random` must be fresh for each claim.
    pub fn new(worker: &WorkerId, claim: u64, random: u128) -> Self {
        // Built in one allocation: `format!` takes several times as long, and an in-process work
        // lease draws a million tokens per second.
        let digits = usize::try_from(claim.checked_ilog10().unwrap_or(0)).unwrap_or(19) + 1;
        let worker = worker.as_str();
        let mut text = String::with_capacity(worker.len() + digits + Self::RANDOM_DIGITS + 2);
        text.push_str(worker);
        text.push('.');
        push_decimal(&mut text, claim);
        text.push('.');
        for byte in random.to_be_bytes() {
            text.push(hex_digit(byte >> 4));
            text.push(hex_digit(byte & 0xf));
        }
        Self(text.into())
    }

    /// Length of the random part, in hexadecimal digits.
    const RANDOM_DIGITS: usize = 32;

    /// Parses a token that was issued earlier; `None` if the text is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        let (front, random) = text.rsplit_once('.')?;
        let (holder, claim) = front.rsplit_once('.')?;
        let worker = WorkerId::parse(holder)?;
        let random = u128::from_str_radix(random, 16).ok()?;
        // Accept only the exact text: an equivalent one (other case, leading zeros) was never
        // issued.
        let token = Self::new(&worker, claim.parse().ok()?, random);
        (token.expose() == text).then_some(token)
    }

    /// The whole secret, for the store only.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Id of the worker that this token was made for.
    pub fn holder(&self) -> &str {
        self.front()
            .rsplit_once('.')
            .map_or("", |(holder, _)| holder)
    }

    /// Everything except the random part.
    fn front(&self) -> &str {
        self.0.rsplit_once('.').map_or("", |(front, _)| front)
    }
}

fn push_decimal(text: &mut String, number: u64) {
    if number >= 10 {
        push_decimal(text, number / 10);
    }
    let digit = u32::try_from(number % 10).unwrap_or(0);
    text.push(char::from_digit(digit, 10).unwrap_or('0'));
}

fn hex_digit(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0')
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.…", self.front())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

/// Counts the tokens of a process, so that each has a number of its own.
#[derive(Debug, Default)]
pub struct Tokens(AtomicU64);

impl Tokens {
    /// Issues the next token, for this worker. `random` must be fresh for each token.
    pub fn issue(&self, worker: &WorkerId, random: u128) -> Token {
        Token::new(worker, self.0.fetch_add(1, Ordering::Relaxed) + 1, random)
    }
}

/// Number of a claim: higher than that of every earlier claim of the store, and below 2^53, so that
/// JSON keeps it. Fences jump: only their order has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(i64);

impl Fence {
    /// The fence with this number.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// Number to send to the receiver.
    pub const fn number(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_can_be_parsed_from_its_text_and_names_its_holder() {
        let worker = WorkerId::new("relay.eu-1", u64::MAX).unwrap();
        let token = Token::new(&worker, 42, u128::MAX);
        let again = Token::parse(token.expose()).unwrap();
        assert_eq!(again, token);
        assert_eq!(again.holder(), worker.as_str());
    }

    #[test]
    fn a_token_has_the_text_that_format_would_make() {
        let worker = WorkerId::new("mailer", 7).unwrap();
        for (claim, random) in [
            (0, 0),
            (9, 1),
            (10, 0xfeed),
            (u64::MAX, u128::MAX),
            (1, 1 << 127),
        ] {
            let token = Token::new(&worker, claim, random);
            assert_eq!(token.expose(), format!("{worker}.{claim}.{random:032x}"));
        }
    }

    #[test]
    fn invalid_text_is_not_parsed_as_a_token() {
        for text in [
            "",
            "a",
            "a.1",
            "mailer.1.xyz",
            ".1.00000000000000000000000000000000",
            "mailer-1",
            "mailer-000000000000000a.01.0000000000000000000000000000000a",
            "mailer-000000000000000a.1.0000000000000000000000000000000A",
            "mailer-000000000000000A.1.0000000000000000000000000000000a",
            "mailer-000000000000000a.99999999999999999999.0000000000000000000000000000000a",
        ] {
            assert!(Token::parse(text).is_none(), "{text:?} was accepted");
        }
    }
}
