//! `SystemClock`: the machine's time. No other place in this crate reads it.

use std::time::{SystemTime, UNIX_EPOCH};

use tenure_core::{Clock, Timestamp};

/// The system clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the `Clock` that all other code uses"
    )]
    fn now(&self) -> Timestamp {
        let start = Timestamp::from_micros(0);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => start.after(since),
            // The machine's clock is set before 1970.
            Err(early) => start.before(early.duration()),
        }
    }
}
