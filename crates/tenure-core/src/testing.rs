//! Test support for the crates above: a clock that tests move, deterministic tokens, an endpoint.

use std::sync::Mutex;
use std::time::Duration;

use crate::lease::WorkerId;
use crate::time::{Clock, Timestamp};
use crate::token::Token;
use crate::topic::TopicPattern;
use crate::webhook::{Endpoint, EndpointHealth, EndpointId, EndpointSettings, EndpointState};

/// A clock that tests move.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// Creates a clock that shows `now`.
    pub fn new(now: Timestamp) -> Self {
        Self(Mutex::new(now))
    }

    /// Moves the clock forward.
    pub fn advance(&self, span: Duration) {
        let mut now = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *now = now.after(span);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The `claim`-th token of the worker `name`; the same arguments give the same token.
///
/// # Panics
/// The name is not valid for a worker.
pub fn token(name: &str, claim: u64) -> Token {
    let worker =
        WorkerId::new(name, 1).expect("a test's worker name is 1 to 64 of A-Z a-z 0-9 . _ -");
    Token::new(&worker, claim, u128::from(claim))
}

/// An endpoint of this name and number for all topics, enabled and healthy, without secrets.
///
/// # Panics
/// The name is not valid for an endpoint.
pub fn endpoint(id: &str, number: u32) -> Endpoint {
    Endpoint {
        id: EndpointId::new(id).expect("a test's endpoint has a valid name"),
        number,
        settings: EndpointSettings::new("https://example.com", vec![TopicPattern::any()]),
        sealed: String::new(),
        state: EndpointState::Enabled,
        health: EndpointHealth::default(),
        version: 1,
        created_at: Timestamp::from_micros(0),
    }
}

/// Extent of a long test. The gate runs one slice of each, a different one each day;
/// `scripts/prove` runs everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// A part that takes a few seconds. All slices together cover everything.
    Slice(usize),
    /// Everything.
    All,
}

impl Extent {
    /// Reads `TENURE_PROVE`: `all`, or the number of a slice. Default 0.
    ///
    /// # Panics
    /// The variable has another value.
    pub fn chosen() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the length of a test is not a setting of the program"
        )]
        let text = std::env::var("TENURE_PROVE").unwrap_or_else(|_| "0".to_owned());
        if text == "all" {
            return Self::All;
        }
        let number = text.parse();
        Self::Slice(number.expect("TENURE_PROVE is `all` or the number of a slice"))
    }

    /// Returns the cases to run: all of them, or the `few` of this slice. Slices are consecutive.
    pub fn of<T: Clone>(self, cases: &[T], few: usize) -> Vec<T> {
        match self {
            Self::All => cases.to_vec(),
            Self::Slice(number) => {
                let first = number % cases.len() * few;
                let rest = cases.iter().cycle().skip(first % cases.len());
                rest.take(few.min(cases.len())).cloned().collect()
            }
        }
    }

    /// Returns `slice` for a slice and `all` for everything.
    pub fn size<T>(self, slice: T, all: T) -> T {
        match self {
            Self::Slice(_) => slice,
            Self::All => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_consecutive_and_together_cover_all_cases() {
        let cases = [0, 1, 2, 3, 4];
        let slices = (7..10).map(|number| Extent::Slice(number).of(&cases, 2));
        assert_eq!(slices.collect::<Vec<_>>(), [[4, 0], [1, 2], [3, 4]]);
        assert_eq!(Extent::Slice(3).of(&cases, 9), [2, 3, 4, 0, 1]);
        assert_eq!(Extent::All.of(&cases, 2), cases);
    }
}
