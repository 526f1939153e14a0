//! `SystemClock`: the machine's own time. The one place of this crate that reads it.

use std::time::{SystemTime, UNIX_EPOCH};

use tenure_core::{Clock, Timestamp};

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the Clock that everyone else is told to use"
    )]
    fn now(&self) -> Timestamp {
        let start = Timestamp::from_micros(0);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => start.after(since),
            // A machine whose clock stands before 1970.
            Err(early) => start.before(early.duration()),
        }
    }
}
