//! Domains: what operators ask about ordering keys.

use std::fmt;
use std::time::Duration;

use super::Answer;
use super::operate::Pause;
use crate::guard::Guarded;
use crate::item::{ItemId, Record};
use crate::state::State;
use crate::time::Timestamp;
use crate::token::Token;

/// Where a domain stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainState {
    /// Nothing of it is open, or nothing is placed yet.
    Idle,
    /// Its head may be claimed.
    Due,
    /// Its head may be claimed later: it was held back, or waits to be tried again.
    Delayed,
    /// Its head, or a run from the head on, is held.
    Held,
    /// Its head is dead and blocks it.
    Blocked,
    /// An operator holds it back.
    Paused,
}

impl DomainState {
    /// One word, for JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Due => "due",
            Self::Delayed => "delayed",
            Self::Held => "held",
            Self::Blocked => "blocked",
            Self::Paused => "paused",
        }
    }
}

impl fmt::Display for DomainState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Everything that is known of a domain, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainRecord {
    /// The ordering key.
    pub key: String,
    /// Where it stands. A paused domain is paused, whatever its head does.
    pub state: DomainState,
    /// Since when it has had this head, or has been paused.
    pub since: Option<Timestamp>,
    /// The item whose turn it is: claimable, held, or dead and blocking. In a paused domain only
    /// what is still held, or blocks it.
    pub head: Option<Record>,
    /// How many wait behind the head; counted up to [`DomainRecord::WAITING_MAX`].
    pub waiting: u64,
}

impl DomainRecord {
    /// More are not counted one by one.
    pub const WAITING_MAX: u64 = 10_000;

    /// Whether its head is dead and blocks it; also while it is paused, which is what its state
    /// then says.
    pub fn is_blocked(&self) -> bool {
        let is_dead = |head: &Record| head.state == State::Dead;
        self.state == DomainState::Blocked || self.head.as_ref().is_some_and(is_dead)
    }

    /// Whether its head has failed or lapsed before.
    pub fn is_failing(&self) -> bool {
        let counters = self.head.as_ref().map(|head| head.counters);
        counters.is_some_and(|of| of.failures > 0 || of.crashes > 0)
    }
}

/// What a store has written down of a domain.
#[derive(Clone, Debug)]
pub struct DomainFacts {
    /// The ordering key.
    pub key: String,
    /// Since when it has had this head, or has been paused.
    pub since: Option<Timestamp>,
    /// The first that is held of it, or the one in line, or the dead one that blocks.
    pub head: Option<Record>,
    /// Whether the head is dead and blocks it.
    pub is_blocked: bool,
    /// Whether an operator holds it back.
    pub is_paused: bool,
    /// How many wait behind the head.
    pub waiting: u64,
}

impl DomainFacts {
    /// The domain as people see it at this moment.
    pub fn record(self, now: Timestamp) -> DomainRecord {
        let is_held = |head: &Record| head.state == State::Claimed;
        let state = match &self.head {
            _ if self.is_paused => DomainState::Paused,
            _ if self.is_blocked => DomainState::Blocked,
            None => DomainState::Idle,
            Some(head) if is_held(head) => DomainState::Held,
            Some(head) if head.available_at.is_some_and(|from| from > now) => DomainState::Delayed,
            Some(_) => DomainState::Due,
        };
        DomainRecord {
            key: self.key,
            state,
            since: self.since,
            head: self.head.filter(|head| {
                let is_blocking = self.is_blocked && head.state == State::Dead;
                !self.is_paused || is_held(head) || is_blocking
            }),
            waiting: self.waiting.min(DomainRecord::WAITING_MAX),
        }
    }
}

/// Which domains to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DomainFilter {
    /// All that have something open or are paused.
    #[default]
    Open,
    /// Those that stand still: blocked; paused, with something open; with a head that failed or
    /// lapsed before, or has been the head for longer than [`DomainFilter::LONG`] with something
    /// behind it.
    Stuck,
}

impl DomainFilter {
    /// With something behind it, a head that is it for longer stands still.
    pub const LONG: Duration = Duration::from_mins(10);
}

/// Asks to go on without a domain's head.
#[derive(Clone, Debug)]
pub struct Skip {
    /// The ordering key.
    pub key: String,
    /// Only if this is the head: the one that the operator has seen; `None`: whichever is.
    pub only: Option<ItemId>,
    /// The operator's token, as for a bury.
    pub token: Token,
    /// Why, for people.
    pub reason: String,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

impl Skip {
    /// Goes on without the head of this domain.
    pub fn new(key: impl Into<String>, token: Token, reason: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            only: None,
            token,
            reason: reason.into(),
            now: None,
        }
    }

    /// Only if this is the head.
    #[must_use]
    pub fn only(mut self, head: ItemId) -> Self {
        self.only = Some(head);
        self
    }

    /// Whether this head is the one that is meant.
    pub fn is_meant(&self, head: ItemId) -> bool {
        self.only.is_none_or(|only| only == head)
    }

    /// What is written before the last error of a dead head that is left behind: by whom, when and
    /// why. There is no hold that its end could tell it.
    ///
    /// ```
    /// use tenure_core::store::Skip;
    /// use tenure_core::{Timestamp, Token, WorkerId};
    ///
    /// let operator = Token::new(&WorkerId::new("ops", 7)?, 1, 9);
    /// let skip = Skip::new("customer-7", operator, "the order was a test");
    /// let note = skip.note(Timestamp::from_micros(0));
    /// assert!(note.starts_with("skipped by ops-"));
    /// assert!(note.ends_with(" at 1970-01-01T00:00:00Z: the order was a test"));
    /// # Ok::<(), tenure_core::Invalid>(())
    /// ```
    pub fn note(&self, now: Timestamp) -> String {
        format!(
            "skipped by {} at {now}: {}",
            self.token.holder(),
            self.reason
        )
    }

    /// Stands between the note and the error of before.
    pub const BEFORE: &'static str = "; last error before: ";

    /// At this moment.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// The ordering keys of the outbox.
pub trait Domains: Send + Sync + fmt::Debug {
    /// Up to `limit` domains, those first that have had their head, or have been paused, for
    /// longest; of those that stand still, first all that are blocked.
    fn domains(&self, filter: DomainFilter, limit: u32) -> Answer<'_, Vec<DomainRecord>>;

    /// One domain; `None` when nothing is known of the key.
    fn domain<'a>(&'a self, key: &'a str) -> Answer<'a, Option<DomainRecord>>;

    /// Begins or ends the pause of a domain, known or not. While it is paused none of its items is
    /// claimed; what is held goes on.
    fn pause_domain<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()>;

    /// Goes on without the head: one that is dead and blocks is left behind, and its last error
    /// says by whom and why; any other one is buried. Answers with the item. Refused when there is
    /// no head, or another one than was meant.
    ///
    /// Laws: 5, 6, 7.
    fn skip<'a>(&'a self, skip: &'a Skip) -> Answer<'a, Guarded<ItemId>>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::item::{Content, Counters};

    fn head(state: State) -> Record {
        let now = Timestamp::from_micros(0);
        Record {
            id: ItemId::new(9),
            state,
            content: Content::Event(Event::new("order.paid", &7).unwrap()),
            counters: Counters::default(),
            created_at: now,
            available_at: Some(now),
            hold: None,
            last_error: None,
            done_at: None,
            dead_at: None,
            dead_reason: None,
        }
    }

    #[test]
    fn a_pause_hides_neither_what_is_held_nor_what_blocks() {
        for (state, is_blocked, is_shown) in [
            (State::Pending, false, false),
            (State::Claimed, false, true),
            (State::Dead, true, true),
            // It was replayed while the domain was looked at: it waits with the others.
            (State::Pending, true, false),
        ] {
            let facts = DomainFacts {
                key: "a".to_owned(),
                since: None,
                head: Some(head(state)),
                is_blocked,
                is_paused: true,
                waiting: 1,
            };
            let record = facts.record(Timestamp::from_micros(0));
            assert_eq!(record.state, DomainState::Paused);
            assert_eq!(record.head.is_some(), is_shown, "{state} {is_blocked}");
            assert_eq!(record.is_blocked(), state == State::Dead);
        }
    }
}
