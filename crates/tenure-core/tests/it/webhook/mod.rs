//! Rules of webhooks: retries, meaning of a reply, pauses of an endpoint.

mod attempt;
mod health;
mod judge;
mod names;
mod schedule;
mod settings;
