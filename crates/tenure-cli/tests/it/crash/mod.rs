//! Crash tests: they kill workers of the real program with SIGKILL, pause them past the end of
//! their leases, and kill the PostgreSQL server. `tenure-nemesis` checks the history of a run.
//!
//! A storm has 5 kills, a pause and, on PostgreSQL, a kill of the server. `TENURE_TEST_CRASH_KILLS`
//! sets the number of kills; `TENURE_TEST_CRASH_SEED` repeats the random choices of a storm.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

mod load;
mod poison;
mod raw_sql;
mod storm;
mod webhooks;
mod world;

use std::time::Duration;

/// Term of leases; the reaper's interval is a third of it.
const TERM: Duration = Duration::from_secs(2);
