//! Waits for an engine or a database, with a timeout.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::stop::{Failure, Stop};

/// Timeout without progress.
const STUCK: Duration = Duration::from_mins(1);

/// Progress of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headway {
    /// Complete.
    There,
    /// This much is missing.
    Missing(u64),
}

impl Headway {
    /// Progress of a condition that is true or false, without steps.
    pub(super) fn whether(is_there: bool) -> Self {
        Self::missing(u64::from(!is_there))
    }

    pub(super) fn missing(count: u64) -> Self {
        match count {
            0 => Self::There,
            count => Self::Missing(count),
        }
    }
}

/// Polls until the state is `There`; gives up when it has not changed for a minute. The whole wait
/// has no limit: a drain of ten million events may take long.
///
/// It polls because a notification from inside the engine would be part of the measurement.
pub(super) async fn until(
    what: &str,
    every: Duration,
    mut look: impl AsyncFnMut() -> Result<Headway, Stop>,
) -> Result<(), Stop> {
    let (mut before, mut end) = (None, Instant::now() + STUCK);
    loop {
        // A database that does not answer makes no progress.
        let Ok(state) = timeout_at(end, look()).await else {
            return Err(in_vain(what, before));
        };
        match state? {
            Headway::There => return Ok(()),
            Headway::Missing(missing) if before != Some(missing) => {
                (before, end) = (Some(missing), Instant::now() + STUCK);
            }
            Headway::Missing(_) if Instant::now() >= end => return Err(in_vain(what, before)),
            Headway::Missing(_) => {}
        }
        sleep(every).await;
    }
}

fn in_vain(what: &str, missing: Option<u64>) -> Stop {
    let seconds = STUCK.as_secs();
    let missing = match missing {
        // A condition that is true or false has no amount.
        None | Some(1) => String::new(),
        Some(missing) => format!(" (still missing: {missing})"),
    };
    let message = format!("waited {seconds} s without headway until {what}{missing}");
    Failure::new(message)
        .hint("see whether the database answers (`tenure doctor`) and what else runs on it")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_millis(10);

    fn message(stop: Stop) -> String {
        let Stop::Failed(failure) = stop else {
            panic!("expected a failure: {stop:?}");
        };
        failure.message
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_never_holds_is_named_after_a_minute() {
        let from = Instant::now();
        let never = until("the worker is ready", POLL, async || {
            Ok(Headway::whether(false))
        });
        assert_eq!(
            message(never.await.unwrap_err()),
            "waited 60 s without headway until the worker is ready"
        );
        assert!(from.elapsed() < STUCK + 2 * POLL, "{:?}", from.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_without_an_answer_times_out_after_a_minute() {
        let from = Instant::now();
        let silent = until("all is drained", POLL, async || {
            std::future::pending().await
        });
        assert_eq!(
            message(silent.await.unwrap_err()),
            "waited 60 s without headway until all is drained"
        );
        assert!(from.elapsed() < STUCK + 2 * POLL, "{:?}", from.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_headway_is_waited_for_and_its_end_is_reported() {
        let mut missing = 10;
        let slow = until("all are handled", STUCK / 2, async || {
            missing -= 1;
            Ok(Headway::missing(missing))
        });
        slow.await.unwrap();
        assert_eq!(missing, 0);

        let mut missing = 10;
        let stuck = until("all are handled", STUCK / 2, async || {
            missing = (missing - 1).max(7);
            Ok(Headway::missing(missing))
        });
        assert_eq!(
            message(stuck.await.unwrap_err()),
            "waited 60 s without headway until all are handled (still missing: 7)"
        );
    }
}
