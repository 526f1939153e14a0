//! The tests of the stores. `conformance` says what every store promises and runs on all of them;
//! `planted` proves that it would notice a broken one; `twins`, `stress`, `races`, `keyed` and
//! `odd` try what nobody thought of. `work_lease` is the contract of the work lease in process,
//! `durable` holds the stores to it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "the lints spare test functions, but not what these call"
)]

mod adopt;
mod arena;
mod cluster;
mod companion;
mod conformance;
mod durable;
mod examine;
mod jobs;
mod keyed;
mod keys;
mod odd;
mod owed;
mod place;
mod plans;
mod planted;
mod producer;
mod pruners;
mod races;
mod replays;
mod rows_sql;
mod stress;
mod twins;
mod work_lease;
mod world;
