//! Polls for facts that another process brings about without a notification.

use std::time::Duration;

use tenure_core::{Clock as _, Timestamp};
use tenure_store::memory::SystemClock;
use tokio::time::{Instant, sleep};

/// Interval between two polls.
pub const POLL: Duration = Duration::from_millis(20);
/// Timeout of [`until`].
const UNTIL_MAX: Duration = Duration::from_mins(2);

/// The current time by the machine's clock, which the databases use, too.
pub fn now() -> Timestamp {
    SystemClock.now()
}

/// Polls until the closure returns a value. Panics after `longest`.
#[track_caller]
pub fn within<T>(
    longest: Duration,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        let start = Instant::now();
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            let waited = start.elapsed();
            assert!(waited < longest, "{caller}: not within {longest:?}");
            sleep(POLL).await;
        }
    }
}

/// Waits until a fact holds. Panics after two minutes.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(
            start.elapsed() < UNTIL_MAX,
            "not within {UNTIL_MAX:?}: {what}"
        );
        sleep(POLL).await;
    }
}
