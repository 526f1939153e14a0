//! The tests of the stores. `conformance` is the contract of every store and runs on all of them;
//! `planted` proves that the suite detects a broken store; `twins`, `stress`, `races`, `keyed` and
//! `odd` search for unexpected behaviour. `work_lease` is the contract of the in-process
//! work lease; `durable` checks the stores against it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "the lints allow this in test functions, but not in functions that they call"
)]

mod adopt;
mod arena;
mod cluster;
mod conformance;
mod connections;
mod durable;
mod examine;
mod faults;
mod fences;
mod jobs;
mod keyed;
mod keys;
mod odd;
mod pending_deliveries;
mod place;
mod plans;
mod planted;
mod poolers;
mod producer;
mod pruners;
mod races;
mod replays;
mod rows_sql;
mod stress;
mod twins;
mod work_lease;
mod world;
