//! Waiting for what an engine or a database is to do, but not for ever.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::exit::Exit;
use crate::problem::{Problem, Stop};

/// What makes no headway for this long has failed.
const STUCK: Duration = Duration::from_mins(1);

/// How far something has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headway {
    /// All the way.
    There,
    /// This much is still missing.
    Missing(u64),
}

impl Headway {
    /// Something that is there or not, with no way in between.
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

/// Looks every so often until it is there; gives up when nothing has changed for a minute. How long
/// it takes in all is nobody's business: a drain of ten million events may take its time.
///
/// It looks instead of being told: what an engine has done, like what a database has, is measured
/// from outside, and a notice from inside would be measured with it.
pub(super) async fn until(
    what: &str,
    every: Duration,
    mut look: impl AsyncFnMut() -> Result<Headway, Stop>,
) -> Result<(), Stop> {
    let (mut seen, mut end) = (None, Instant::now() + STUCK);
    loop {
        // A database that does not answer is no headway, either.
        let Ok(found) = timeout_at(end, look()).await else {
            return Err(in_vain(what, seen));
        };
        match found? {
            Headway::There => return Ok(()),
            Headway::Missing(missing) if seen != Some(missing) => {
                (seen, end) = (Some(missing), Instant::now() + STUCK);
            }
            Headway::Missing(_) if Instant::now() >= end => return Err(in_vain(what, seen)),
            Headway::Missing(_) => {}
        }
        sleep(every).await;
    }
}

fn in_vain(what: &str, missing: Option<u64>) -> Stop {
    let seconds = STUCK.as_secs();
    let missing = match missing {
        // Of something that is there or not, nobody asks how much.
        None | Some(1) => String::new(),
        Some(missing) => format!(" (still missing: {missing})"),
    };
    let message = format!("waited {seconds} s without headway until {what}{missing}");
    Problem::new(Exit::Failed, message)
        .hint("see whether the database answers (`tenure doctor`) and what else runs on it")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(10);

    fn message(stop: Stop) -> String {
        match stop {
            Stop::Problem(problem) => problem.message,
            Stop::Closed | Stop::Problems(_) => panic!("one problem is told"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_comes_about_is_named_after_a_minute() {
        let from = Instant::now();
        let never = until("the worker is ready", LOOK, async || {
            Ok(Headway::whether(false))
        });
        assert_eq!(
            message(never.await.unwrap_err()),
            "waited 60 s without headway until the worker is ready"
        );
        assert!(from.elapsed() < STUCK + 2 * LOOK, "{:?}", from.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_is_never_answered_is_not_waited_for() {
        let from = Instant::now();
        let silent = until("all is drained", LOOK, async || {
            std::future::pending().await
        });
        assert_eq!(
            message(silent.await.unwrap_err()),
            "waited 60 s without headway until all is drained"
        );
        assert!(from.elapsed() < STUCK + 2 * LOOK, "{:?}", from.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_headway_is_waited_for_and_its_end_is_told() {
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
