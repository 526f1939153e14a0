//! Publisher: the port through which the relay sends events.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::event::Event;
use crate::item::ItemId;
use crate::token::Fence;

/// An event to publish, with the facts by which a receiver drops duplicates and late events.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// Id of the event.
    pub id: ItemId,
    /// The event; a receiver drops duplicates by its `event_id`.
    pub event: &'a Event,
    /// Number of the claim. A receiver should refuse a lower number than it has accepted for the
    /// same event.
    pub fence: Fence,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// Time left for this call; after it, the engine drops the future of the call.
    pub time_left: Duration,
}

/// Future of [`Publisher::publish`].
pub type Publishing<'a> = Pin<Box<dyn Future<Output = Result<(), PublishError>> + Send + 'a>>;

/// Error of a publisher; its kind tells the engine how to react.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
#[non_exhaustive]
pub struct PublishError {
    /// Kind of the error.
    pub kind: PublishErrorKind,
    /// Error text for people. It contains no payload and no secret.
    pub reason: String,
}

/// Kind of a publisher's error: it tells the engine how to react.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// Retry this event: the failure concerns it alone.
    Retry {
        /// Delay that the receiver requested, if any.
        after: Option<Duration>,
    },
    /// A retry of this event cannot help.
    Reject,
    /// The receiver gives this event back and would accept others. The engine counts no failure.
    Release {
        /// Delay before the next attempt, if any.
        after: Option<Duration>,
    },
    /// The receiver accepts no events at present: it is down, full or over its limit. The engine
    /// counts no failure.
    Away {
        /// Delay that the receiver requested, if any.
        after: Option<Duration>,
    },
}

impl PublishError {
    /// A failure of this event; the policy chooses the delay.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::new(PublishErrorKind::Retry { after: None }, reason)
    }

    /// A failure that no retry of this event can fix.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::new(PublishErrorKind::Reject, reason)
    }

    /// This event comes back later; no failure is counted.
    pub fn release(reason: impl Into<String>) -> Self {
        Self::new(PublishErrorKind::Release { after: None }, reason)
    }

    /// The receiver accepts no events at present.
    pub fn away(reason: impl Into<String>) -> Self {
        Self::new(PublishErrorKind::Away { after: None }, reason)
    }

    /// Sets the delay that the receiver requested. Has no effect on a rejection.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        match &mut self.kind {
            PublishErrorKind::Retry { after }
            | PublishErrorKind::Release { after }
            | PublishErrorKind::Away { after } => *after = Some(delay),
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

/// Sends events to one receiver.
///
/// Return `Ok` only if the receiver has accepted the event for good: the engine then settles it as
/// done. The future may be dropped at any await; work that it has started must end by itself. The
/// same event may come more than once, with the same `event_id` and a higher fence.
///
/// ```
/// use std::sync::Mutex;
/// use tenure_core::{Publication, PublishError, Publisher, Publishing};
///
/// /// Collects the events of one topic in memory, for a test.
/// #[derive(Debug, Default)]
/// struct Collector(Mutex<Vec<String>>);
///
/// impl Publisher for Collector {
///     fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a> {
///         Box::pin(async move {
///             let event = publication.event;
///             if event.topic() != "order.paid" {
///                 return Err(PublishError::reject("only orders that are paid"));
///             }
///             let Ok(mut events) = self.0.lock() else {
///                 return Err(PublishError::away("the list is not available"));
///             };
///             events.push(event.payload().to_owned());
///             Ok(())
///         })
///     }
/// }
/// ```
pub trait Publisher: Send + Sync + fmt::Debug {
    /// Publishes one event.
    fn publish<'a>(&'a self, publication: &'a Publication<'a>) -> Publishing<'a>;

    /// Checks that the receiver would accept an event, without sending one. The engine calls it
    /// while the publisher counts as unavailable. Without an implementation, the next event serves
    /// as the probe.
    fn probe(&self) -> Publishing<'_> {
        Box::pin(async { Ok(()) })
    }
}
