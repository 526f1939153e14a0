//! Two sides that take turns, so that growing tables and a noisy machine do not distort the ratio.

use super::drain::Drained;
use super::report::{Median, Ratio};
use crate::stop::Stop;

/// One of two sides: with the condition under test, or without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    With,
    Without,
}

/// The side with the condition, as ratios to the side without; the median of the rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    pub(super) enqueue: Ratio,
    pub(super) drain: Ratio,
    /// Drained per second on the side with the condition.
    pub(super) with_per_s: f64,
}

/// Runs the drains of this many rounds.
pub(super) async fn compare(
    rounds: u32,
    mut drain: impl AsyncFnMut(Side) -> Result<Drained, Stop>,
) -> Result<Compared, Stop> {
    let (mut enqueues, mut drains) = (Median::default(), Median::default());
    let mut rates = Median::default();
    for round in 0..rounds {
        let (mut with, mut without) = (Times::default(), Times::default());
        for side in sides(round) {
            let drained = drain(side).await?;
            match side {
                Side::With => {
                    with.add(drained);
                    rates.push(drained.drain_per_s);
                }
                Side::Without => without.add(drained),
            }
        }
        enqueues.push(without.enqueue / with.enqueue);
        drains.push(without.drain / with.drain);
    }
    Ok(Compared {
        enqueue: enqueues.median(),
        drain: drains.median(),
        with_per_s: rates.median(),
    })
}

/// The order of the turns in a round. Growth of the tables from drain to drain affects both sides
/// of a round alike. Periodic work, such as PostgreSQL's autovacuum once a minute, affects one side
/// in one round and the other side in the next.
pub(super) fn sides(round: u32) -> [Side; 4] {
    use Side::{With, Without};
    if round.is_multiple_of(2) {
        [Without, With, With, Without]
    } else {
        [With, Without, Without, With]
    }
}

/// Sum of seconds per event. It uses times instead of rates, so that a slow drain counts by its
/// length.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    enqueue: f64,
    drain: f64,
}

impl Times {
    fn add(&mut self, drained: Drained) {
        self.enqueue += drained.enqueue_per_s.recip();
        self.drain += drained.drain_per_s.recip();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_sides_are_compared_by_their_times_and_run_in_both_orders() {
        let mut order = String::new();
        let compared = compare(2, async |side| {
            let (letter, enqueue_per_s, drain_per_s) = match side {
                Side::With => ('w', 100.0, 500.0),
                Side::Without => ('o', 50.0, 1000.0),
            };
            order.push(letter);
            Ok(Drained {
                enqueue_per_s,
                drain_per_s,
            })
        })
        .await;
        let Ok(compared) = compared else {
            panic!("no drain failed");
        };
        assert_eq!(order, "owwowoow");
        let figures = [compared.enqueue, compared.drain, compared.with_per_s];
        for (found, expected) in figures.into_iter().zip([2.0, 0.5, 500.0]) {
            assert!((found - expected).abs() < 1e-9, "{compared:?}");
        }
    }
}
