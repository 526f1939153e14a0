//! Publisher: hands an event to the outside. The port between the relay and what sends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::event::Event;
use crate::item::ItemId;
use crate::token::Fence;

/// An event on its way out, with what the receiver needs to drop repeats and what is older.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// The event's handle.
    pub id: ItemId,
    /// The event; its `event_id` is the receiver's key to drop repeats.
    pub event: &'a Event,
    /// The number of the claim: a receiver refuses what is older than what it has seen.
    pub fence: Fence,
    /// How often it was held before, and once more: 1 at the first try.
    pub attempt: u32,
    /// How long the publisher has; it is stopped then.
    pub time_left: Duration,
}

/// The answer of a publisher, on its way.
pub type Publishing<'a> = Pin<Box<dyn Future<Output = Result<(), PublishError>> + Send + 'a>>;

/// Why an event was not taken, by what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct PublishError {
    /// What can be done.
    pub kind: PublishErrorKind,
    /// What went wrong, for people. It holds no payload and no secret.
    pub reason: String,
}

/// What can be done about an event that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// Try this event again: a failure of its own.
    Retry {
        /// After this long, if the receiver said so.
        after: Option<Duration>,
    },
    /// Trying this event again cannot help.
    Reject,
    /// The receiver takes nothing at present, whatever the event: down, full or over its limit. No
    /// failure is counted.
    Away {
        /// It asked for this long, if it did.
        after: Option<Duration>,
    },
}

impl PublishError {
    /// A failure of this event; the policy chooses the delay.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::new(PublishErrorKind::Retry { after: None }, reason)
    }

    /// This event will never be taken.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::new(PublishErrorKind::Reject, reason)
    }

    /// The receiver takes nothing at present.
    pub fn away(reason: impl Into<String>) -> Self {
        Self::new(PublishErrorKind::Away { after: None }, reason)
    }

    /// The same, but the receiver asked for this long. A rejection stays one.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        match &mut self.kind {
            PublishErrorKind::Retry { after } | PublishErrorKind::Away { after } => {
                *after = Some(delay);
            }
            PublishErrorKind::Reject => {}
        }
        self
    }

    /// An error of this kind.
    pub fn new(kind: PublishErrorKind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
        }
    }
}

/// Sends events to one place.
///
/// An implementer answers `Ok` only when the receiver has taken the event for good: what is
/// answered so is never sent again. It may be dropped at any await; what it has started then ends
/// by itself. The same event may come again, with the same `event_id` and a higher fence.
///
/// ```
/// use std::sync::Mutex;
/// use tenure_core::{Publication, PublishError, Publisher, Publishing};
///
/// /// Keeps the events of one topic in memory, for a test.
/// #[derive(Debug, Default)]
/// struct Kept(Mutex<Vec<String>>);
///
/// impl Publisher for Kept {
///     fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a> {
///         Box::pin(async move {
///             let event = publication.event;
///             if event.topic() != "order.paid" {
///                 return Err(PublishError::reject("only orders that are paid"));
///             }
///             let Ok(mut kept) = self.0.lock() else {
///                 return Err(PublishError::away("the list cannot be reached"));
///             };
///             kept.push(event.payload().to_owned());
///             Ok(())
///         })
///     }
/// }
/// ```
pub trait Publisher: Send + Sync + fmt::Debug {
    /// Hands over one event.
    fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a>;

    /// Asks whether the receiver would take an event, without sending one. It is asked while the
    /// publisher is held to be away; the default lets the next event be the probe.
    fn probe(&self) -> Publishing<'_> {
        Box::pin(async { Ok(()) })
    }
}
