//! Intake: the store operations for producers.

use std::fmt;

use uuid::Uuid;

use super::Answer;
use crate::event::Event;
use crate::item::ItemId;

/// The result of an enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// The store wrote the event.
    Fresh {
        /// The id of the event.
        id: ItemId,
        /// The id by which receivers drop duplicates.
        event_id: Uuid,
    },
    /// An event with the same dedupe key existed; the store wrote nothing.
    Existed {
        /// The id of the existing event.
        id: ItemId,
    },
}

impl Enqueued {
    /// Returns the id of the new or existing event.
    pub const fn id(self) -> ItemId {
        match self {
            Self::Fresh { id, .. } | Self::Existed { id } => id,
        }
    }

    /// Returns whether this call wrote the event.
    pub const fn is_fresh(self) -> bool {
        matches!(self, Self::Fresh { .. })
    }
}

/// Writes events in a transaction of its own. The database stores can also write in the caller's
/// transaction.
pub trait Intake: Send + Sync + fmt::Debug {
    /// Writes all of the events or none, and returns a result for each, in order.
    ///
    /// If two events of one call have the same dedupe key, the store writes only the first.
    ///
    /// Law 8: a committed event is never lost. A rolled-back event never becomes visible.
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>>;
}
