//! The rules of webhooks: when to try again, what an answer means, when an endpoint is left alone.

mod attempt;
mod health;
mod judge;
mod names;
mod schedule;
mod settings;
