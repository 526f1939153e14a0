//! Planted faults: stores and statements that break one rule each, to prove that the suite notices.

mod memory;
mod statement;

pub(crate) use self::memory::{Fault, TurnFault, WebhookFault};
pub(crate) use self::statement::{Plant, Planted, plant};
