//! The engine over the memory store, with paused time: each part works, and a fault of one part
//! affects no other.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "the lints allow this in test functions, but not in functions that they call"
)]

mod basics;
mod bounds;
mod chunks;
mod faulty_store;
mod identity;
mod job_store;
mod lease_loss;
mod log;
mod lost_answers;
mod meter;
mod options;
mod order;
mod probe;
mod queues;
mod reaping;
mod receiver;
mod replaying;
mod rows;
mod runs;
mod sender_health;
mod sender_lease;
mod sender_pace;
mod sender_storm;
mod settings;
mod spans;
mod stopping;
mod termination;
mod warm_engine;
mod world;
