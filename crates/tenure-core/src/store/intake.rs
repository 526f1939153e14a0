//! Intake: what producers ask of a store.

use std::fmt;

use uuid::Uuid;

use super::Answer;
use crate::event::Event;
use crate::item::ItemId;

/// What an enqueue did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// The event was written.
    Fresh {
        /// Its handle.
        id: ItemId,
        /// The receiver's key to drop repeats.
        event_id: Uuid,
    },
    /// An event with the same dedupe key was there; nothing was written.
    Existed {
        /// The handle of the one that was there.
        id: ItemId,
    },
}

impl Enqueued {
    /// The handle of the event that counts: the one that won.
    pub const fn id(self) -> ItemId {
        match self {
            Self::Fresh { id, .. } | Self::Existed { id } => id,
        }
    }

    /// Whether the event was written by this call.
    pub const fn is_fresh(self) -> bool {
        matches!(self, Self::Fresh { .. })
    }
}

/// Writes events. In a transaction of its own; each store also has a way to do it in the caller's.
pub trait Intake: Send + Sync + fmt::Debug {
    /// Writes all of the events or none, and answers for each in order.
    ///
    /// Of two events with one dedupe key in the same call the first counts.
    ///
    /// Laws: 8 (what was committed is never lost, what was rolled back is never seen).
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>>;
}
