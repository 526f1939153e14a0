//! The engine over the memory store, with time paused: each part does its one thing, and what goes
//! wrong with one thing touches no other.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "the lints spare test functions, but not what these call"
)]

mod answers;
mod basics;
mod book;
mod bounds;
mod chunks;
mod defence;
mod faulty;
mod identity;
mod lines;
mod log;
mod meter;
mod order;
mod probe;
mod reaping;
mod receiver;
mod replaying;
mod rows;
mod runs;
mod sender_health;
mod sender_lease;
mod sender_pace;
mod sender_storm;
mod shop;
mod stopping;
mod termination;
mod tuning;
mod world;
