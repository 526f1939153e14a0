//! Crash tests: workers of the real program are killed with -9 and paused past the end of their
//! leases, on databases that are killed as well. The rules are those of `tenure-nemesis`.
//!
//! A run has 5 kills, a pause and, on PostgreSQL, a kill of the server. `TENURE_TEST_CRASH_KILLS`
//! sets the number of kills; `TENURE_TEST_CRASH_SEED` repeats the random choices of a run.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also where it is not in the test function itself"
)]

mod load;
mod poison;
mod raw_sql;
mod storm;
mod webhooks;
mod world;

use std::time::Duration;

/// The term of leases in a run; the reaper's interval follows from it.
const TERM: Duration = Duration::from_secs(2);
