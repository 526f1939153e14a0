//! Lease, its holder and its term.

use std::time::Duration;

use crate::invalid::Invalid;
use crate::retry::DELAY_MIN;
use crate::time::{Timestamp, duration_text};
use crate::token::{Fence, Token};

/// Id of a worker: `<name>-<boot nonce>`. The nonce changes at every start, so a restarted program
/// is never taken for its predecessor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(Box<str>);
as_text!(WorkerId);

impl WorkerId {
    /// Maximum length of a worker's name, in bytes.
    pub const NAME_BYTES_MAX: usize = 64;

    /// Creates the id of the worker `name` for the process start that drew `nonce`.
    ///
    /// # Errors
    /// The name is not 1 to 64 of the characters `A–Z a–z 0–9 . _ -`.
    pub fn new(name: &str, nonce: u64) -> Result<Self, Invalid> {
        if Self::is_name(name) {
            return Ok(Self(format!("{name}-{nonce:016x}").into()));
        }
        Err(Invalid::new(
            "worker name",
            format!("{name:?}"),
            "1 to 64 of the characters A-Z a-z 0-9 . _ -",
        ))
    }

    /// Parses an id; `None` if the text is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, nonce) = text.rsplit_once('-')?;
        let id = Self::new(name, u64::from_str_radix(nonce, 16).ok()?).ok()?;
        (id.as_str() == text).then_some(id)
    }

    fn is_name(name: &str) -> bool {
        (1..=Self::NAME_BYTES_MAX).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    }
}

/// Length of a lease: at least a millisecond, at most a day.
///
/// The three constants come from the outbox specification (S1): 30 s, 60 s, and 90 s for work that
/// calls an external service.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::Term;
///
/// assert_eq!(Term::default(), Term::STANDARD);
/// assert!(Term::new(Duration::ZERO).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(Duration);

impl Term {
    /// 30 s: ordinary work.
    pub const STANDARD: Self = Self(Duration::from_secs(30));
    /// 60 s: heavy work, such as complex transformations.
    pub const HEAVY: Self = Self(Duration::from_mins(1));
    /// 90 s: calls to an external service.
    pub const EXTERNAL: Self = Self(Duration::from_secs(90));

    /// Shortest term that a worker renews: a heartbeat may need this long to reach the database and
    /// return. It equals the minimum delay before a lapsed item can be claimed again.
    pub const RENEWABLE_MIN: Duration = DELAY_MIN;

    const SHORTEST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_hours(24);

    /// A term of this length.
    ///
    /// # Errors
    /// The length is shorter than a millisecond or longer than a day.
    pub fn new(length: Duration) -> Result<Self, Invalid> {
        if (Self::SHORTEST..=Self::LONGEST).contains(&length) {
            return Ok(Self(length));
        }
        Err(Invalid::new("term", format!("{length:?}"), "1 ms to 24 h"))
    }

    /// Creates a term for a worker that renews its leases by heartbeat. Shorter terms are for
    /// programs that claim directly and do not renew.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure_core::Term;
    ///
    /// assert!(Term::renewable(Duration::from_secs(30)).is_ok());
    /// let error = Term::renewable(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.to_string(), "term is 1ms; expected 100ms to 24h");
    /// ```
    ///
    /// # Errors
    /// The length is shorter than 100 milliseconds or longer than a day.
    pub fn renewable(length: Duration) -> Result<Self, Invalid> {
        if (Self::RENEWABLE_MIN..=Self::LONGEST).contains(&length) {
            return Ok(Self(length));
        }
        let found = duration_text(length);
        Err(Invalid::new("term", found, Self::renewable_range()))
    }

    /// Valid lengths of a term that a worker renews, as text: `100ms to 24h`.
    pub fn renewable_range() -> String {
        let hours = Self::LONGEST.as_secs() / 3_600;
        format!("{} to {hours}h", duration_text(Self::RENEWABLE_MIN))
    }

    /// Length of the term.
    pub const fn length(self) -> Duration {
        self.0
    }

    /// Length in whole milliseconds, for the databases.
    pub fn millis(self) -> i64 {
        i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX)
    }
}

impl Default for Term {
    fn default() -> Self {
        Self::STANDARD
    }
}

/// Right of one holder to work on items until a point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The proof of the lease, which every guard compares; it contains the holder's id.
    pub token: Token,
    /// Number of this claim.
    pub fence: Fence,
    /// Time of the claim. A renewal does not change it.
    pub claimed_at: Timestamp,
    /// First point in time at which the lease is no longer live.
    pub until: Timestamp,
}

impl Lease {
    /// Returns true while the lease runs: `now < until`.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: S1-009, S1-010, S1-011
    #[test]
    fn the_constant_terms_are_those_of_the_specification() {
        assert_eq!(Term::default().length().as_secs(), 30);
        assert_eq!(Term::HEAVY.length().as_secs(), 60);
        assert!((60..=120).contains(&Term::EXTERNAL.length().as_secs()));
    }

    #[test]
    fn a_renewable_term_is_long_enough_for_a_heartbeat() {
        for (millis, is_legal) in [
            (0, false),
            (1, false),
            (99, false),
            (100, true),
            (30_000, true),
            (86_400_000, true),
            (86_400_001, false),
        ] {
            let answer = Term::renewable(Duration::from_millis(millis));
            assert_eq!(answer.is_ok(), is_legal, "{millis} ms");
        }
    }

    #[test]
    fn a_worker_id_can_be_parsed_from_its_text() {
        let id = WorkerId::new("host-1.eu", 9).unwrap();
        assert_eq!(WorkerId::parse(id.as_str()), Some(id));
        assert!(WorkerId::parse("host").is_none());
        assert!(WorkerId::new("", 1).is_err());
        assert!(WorkerId::new("a b", 1).is_err());
    }
}
