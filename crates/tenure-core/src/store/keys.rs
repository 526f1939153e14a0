//! Ordering keys: their state for operators, and the operations on them.

use std::fmt;
use std::time::Duration;

use super::Answer;
use super::operate::Pause;
use crate::guard::Guarded;
use crate::item::{ItemId, Record};
use crate::state::State;
use crate::time::Timestamp;
use crate::token::Token;

words! {
    /// The state of a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum KeyState: as_str, Display {
        /// The key has no open items, or none of them is the head yet.
        Idle = "idle",
        /// The head may be claimed.
        Due = "due",
        /// The head may be claimed later: it was enqueued with a delay, or waits for a retry.
        Delayed = "delayed",
        /// A worker holds the head, or a run that begins with the head.
        Held = "held",
        /// The head is dead and blocks the key.
        Blocked = "blocked",
        /// An operator has paused the key.
        Paused = "paused",
    }
}

/// A key as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The ordering key itself.
    pub name: String,
    /// The state. Always `Paused` while the key is paused.
    pub state: KeyState,
    /// Time at which the key got this head or was paused.
    pub since: Option<Timestamp>,
    /// The current head: claimable, held, or dead and blocking. `None` for a paused key, unless its
    /// head is held or blocks the key.
    pub head: Option<Record>,
    /// Number of items behind the head; counted up to [`KeyRecord::WAITING_MAX`].
    pub waiting: u64,
}

impl KeyRecord {
    /// Maximum of `waiting`; further items are not counted.
    pub const WAITING_MAX: u64 = 10_000;
    /// A head that has been retried for longer needs an operator: the items behind it wait.
    pub const RETRIED_LONG: Duration = Duration::from_hours(1);

    /// Returns whether the head is dead and blocks the key. This also holds for a paused key, whose
    /// `state` is `Paused`.
    pub fn is_blocked(&self) -> bool {
        let is_dead = |head: &Record| head.state == State::Dead;
        self.state == KeyState::Blocked || self.head.as_ref().is_some_and(is_dead)
    }

    /// Returns for how long the key has had its head, if that is over
    /// [`RETRIED_LONG`](Self::RETRIED_LONG), a retry of the head has failed and items wait behind
    /// it; `None` for a blocked or paused key.
    pub fn retried_long(&self, now: Timestamp) -> Option<Duration> {
        let is_open = !self.is_blocked() && self.state != KeyState::Paused && self.waiting > 0;
        let head = self.head.as_ref().filter(|_| is_open)?;
        let age = self.since.map(|since| now.since(since))?;
        (head.counters.failures > 1 && age > Self::RETRIED_LONG).then_some(age)
    }

    /// Returns whether an earlier attempt of the head failed or lapsed.
    pub fn is_failing(&self) -> bool {
        let counters = self.head.as_ref().map(|head| head.counters);
        counters.is_some_and(|of| of.failures > 0 || of.crashes > 0)
    }
}

/// The stored facts about a key.
#[derive(Clone, Debug)]
pub struct KeyFacts {
    /// The ordering key itself.
    pub name: String,
    /// Time at which the key got this head or was paused.
    pub since: Option<Timestamp>,
    /// The first held item, the claimable item, or the dead item that blocks.
    pub head: Option<Record>,
    /// The head is dead and blocks the key.
    pub is_blocked: bool,
    /// An operator has paused the key.
    pub is_paused: bool,
    /// Number of items behind the head.
    pub waiting: u64,
}

impl KeyFacts {
    /// Derives the record of the key at this moment.
    pub fn record(self, now: Timestamp) -> KeyRecord {
        let is_held = |head: &Record| head.state == State::Claimed;
        let state = match &self.head {
            _ if self.is_paused => KeyState::Paused,
            _ if self.is_blocked => KeyState::Blocked,
            None => KeyState::Idle,
            Some(head) if is_held(head) => KeyState::Held,
            Some(head) if head.available_at.is_some_and(|from| from > now) => KeyState::Delayed,
            Some(_) => KeyState::Due,
        };
        KeyRecord {
            name: self.name,
            state,
            since: self.since,
            head: self.head.filter(|head| {
                let is_blocking = self.is_blocked && head.state == State::Dead;
                !self.is_paused || is_held(head) || is_blocking
            }),
            waiting: self.waiting.min(KeyRecord::WAITING_MAX),
        }
    }
}

/// Selects the keys to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyFilter {
    /// All keys that have open items, are blocked or are paused.
    #[default]
    Open,
    /// Keys that are stuck: blocked; paused with waiting items; with a head that failed or lapsed,
    /// or that has been the head for longer than [`KeyFilter::LONG`] with items behind it.
    Stuck,
}

impl KeyFilter {
    /// A key with items behind its head counts as stuck if the head has not changed for this long.
    pub const LONG: Duration = Duration::from_mins(10);
}

/// A request to continue a key without its head.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Skip {
    /// The ordering key.
    pub key: String,
    /// The head that the operator has seen; another head is not skipped. `None` skips any head.
    pub only: Option<ItemId>,
    /// The operator's token, as for a bury.
    pub token: Token,
    /// The reason, for people.
    pub reason: String,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl Skip {
    /// Creates a request to skip the head of this key.
    pub fn new(key: impl Into<String>, token: Token, reason: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            only: None,
            token,
            reason: reason.into(),
            now: None,
        }
    }

    /// Skips only this head.
    #[must_use]
    pub fn only(mut self, head: ItemId) -> Self {
        self.only = Some(head);
        self
    }

    /// Returns whether the request applies to this head.
    pub fn is_meant(&self, head: ItemId) -> bool {
        self.only.is_none_or(|only| only == head)
    }

    /// Returns the note that precedes the last error of a skipped dead head: who skipped it, when
    /// and why. A dead head has no lease, so the journal cannot record this.
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

    /// Separator between the note and the previous error.
    pub const BEFORE: &'static str = "; last error before: ";

    /// Overrides the current time, for tests.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// The operations on the ordering keys of the outbox.
pub trait Keys: Send + Sync + fmt::Debug {
    /// Lists up to `limit` keys, ordered by the time at which they got their head or were paused,
    /// oldest first. With [`KeyFilter::Stuck`], all blocked keys come first.
    fn keys(&self, filter: KeyFilter, limit: u32) -> Answer<'_, Vec<KeyRecord>>;

    /// Lists up to `limit` keys that a dead head blocks, each with this head, in the store's own
    /// order of keys; `after` continues behind this key.
    fn blocked_keys<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> Answer<'a, Vec<(String, ItemId)>>;

    /// Returns one key; `None` if it is unknown.
    fn key<'a>(&'a self, key: &'a str) -> Answer<'a, Option<KeyRecord>>;

    /// Pauses or resumes a key, known or not. While it is paused, none of its items is claimed;
    /// held items continue.
    fn pause_key<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()>;

    /// Continues the key without its head. A dead head that blocks stays dead, with a note about
    /// the operator and the reason in its last error; any other head is buried. Returns the skipped
    /// item. Refused if the key has no head, or another head than the requested one.
    ///
    /// Rules: 5, 6, 7.
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
    fn a_pause_hides_neither_a_held_head_nor_a_dead_one_that_blocks() {
        for (state, is_blocked, is_shown) in [
            (State::Pending, false, false),
            (State::Claimed, false, true),
            (State::Dead, true, true),
            // The head was replayed between the reads of key and item: it waits like others.
            (State::Pending, true, false),
        ] {
            let facts = KeyFacts {
                name: "a".to_owned(),
                since: None,
                head: Some(head(state)),
                is_blocked,
                is_paused: true,
                waiting: 1,
            };
            let record = facts.record(Timestamp::from_micros(0));
            assert_eq!(record.state, KeyState::Paused);
            assert_eq!(record.head.is_some(), is_shown, "{state} {is_blocked}");
            assert_eq!(record.is_blocked(), state == State::Dead);
        }
    }
}
