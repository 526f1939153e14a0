//! Queue of an event, and its priority within the queue.

use std::sync::Arc;

use crate::event::name;
use crate::invalid::Invalid;

/// Name of a queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(Arc<str>);
as_text!(QueueName);

impl QueueName {
    /// The queue that always exists.
    pub const DEFAULT: &'static str = "default";

    /// A queue of this name.
    ///
    /// # Errors
    /// The name is empty, too long or contains control characters.
    pub fn new(queue: &str) -> Result<Self, Invalid> {
        Ok(Self(name("queue", queue, "mail")?.into()))
    }
}

impl Default for QueueName {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

/// Priority of an event within its queue: 0 (the default) to 7, highest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// Highest priority.
    pub const MAX: Self = Self(7);

    /// Accepts a level from 0 to 7.
    ///
    /// # Errors
    /// The level is above 7.
    pub fn new(level: u8) -> Result<Self, Invalid> {
        if level <= Self::MAX.0 {
            return Ok(Self(level));
        }
        Err(Invalid::new(
            "priority",
            level.to_string(),
            "0 to 7, highest first",
        ))
    }

    /// Level, 0 to 7.
    pub const fn level(self) -> u8 {
        self.0
    }
}
