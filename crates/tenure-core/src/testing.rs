//! What tests of the crates above need: a clock that is moved by hand, tokens that repeat, an
//! endpoint to change as they like.

use std::sync::Mutex;
use std::time::Duration;

use crate::lease::WorkerId;
use crate::time::{Clock, Timestamp};
use crate::token::Token;
use crate::topic::TopicPattern;
use crate::webhook::{Endpoint, EndpointId, EndpointSettings, EndpointState, Health};

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self(Mutex::new(now))
    }

    /// Moves it forward.
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
/// The name is not a worker's.
pub fn token(name: &str, claim: u64) -> Token {
    let worker =
        WorkerId::new(name, 1).expect("a test's worker name is 1 to 64 of A-Z a-z 0-9 . _ -");
    Token::new(&worker, claim, u128::from(claim))
}

/// An endpoint of this name and number for all topics, enabled and healthy, without secrets.
///
/// # Panics
/// The name is not an endpoint's.
pub fn endpoint(id: &str, number: u32) -> Endpoint {
    Endpoint {
        id: EndpointId::new(id).expect("a test's endpoint has a valid name"),
        number,
        settings: EndpointSettings::new("https://example.com", vec![TopicPattern::any()]),
        sealed: String::new(),
        state: EndpointState::Enabled,
        health: Health::default(),
        version: 1,
        created_at: Timestamp::from_micros(0),
    }
}
