//! Lanes: a queue and a priority as one number, the leading column of `tenure_ready`.
//!
//! Each queue has sixteen numbers: eight for its priorities, the most urgent first, and one for
//! items that must be claimed alone; the rest are unused.

use tenure_core::Priority;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tenure_core::Token;
use tenure_core::store::EndpointLane;

/// A queue and a priority as one number; lower numbers are claimed first.
pub(crate) type Lane = i32;

const LANES_PER_QUEUE: i32 = 16;
/// Offset, within a queue, of the lane of items that must be claimed alone.
const ALONE: i32 = 8;

/// The lane of a priority in the queue with this number.
pub(crate) fn lane(queue: i32, priority: Priority) -> Lane {
    queue * LANES_PER_QUEUE + i32::from(Priority::MAX.level() - priority.level())
}

/// The lane of the items of a queue that must be claimed alone.
pub(crate) fn alone_lane(queue: i32) -> Lane {
    queue * LANES_PER_QUEUE + ALONE
}

/// Number of the queue or endpoint that a lane belongs to.
pub(crate) fn queue_of(lane: Lane) -> i32 {
    lane.div_euclid(LANES_PER_QUEUE)
}

/// The priority of an event that was enqueued into this lane.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn priority(lane: Lane) -> Priority {
    Priority::new(Priority::MAX.level().saturating_sub(step_of(lane))).unwrap_or_default()
}

/// The lane of an endpoint. An invalid one maps to an unused lane, which is always empty.
pub(crate) fn lane_of(lane: EndpointLane) -> Lane {
    let endpoint = i32::try_from(lane.endpoint).unwrap_or(i32::MAX);
    let step = i32::from(lane.step).min(LANES_PER_QUEUE - 1);
    endpoint
        .saturating_mul(LANES_PER_QUEUE)
        .saturating_add(step)
}

/// These numbers of a queue and of its separate topics, in an order that changes with each claim,
/// so that none starves the others.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn in_turn(mut numbers: Vec<i32>, token: &Token) -> Vec<i32> {
    let turn: usize = token.expose().bytes().map(usize::from).sum();
    let count = numbers.len().max(1);
    numbers.rotate_left(turn % count);
    numbers
}

/// Position of a lane within its queue or endpoint.
pub(crate) fn step_of(lane: Lane) -> u8 {
    u8::try_from(lane.rem_euclid(LANES_PER_QUEUE)).unwrap_or(0)
}

/// The lane at the same position within another queue, or one of its separate topics.
#[cfg(feature = "sqlite")]
pub(crate) fn same_step(lane: Lane, number: i32) -> Lane {
    number * LANES_PER_QUEUE + i32::from(step_of(lane))
}

/// Lanes of a queue and of its separate topics that are claimed together, the most urgent first.
pub(crate) fn lanes(numbers: &[i32]) -> impl Iterator<Item = Lane> {
    let steps = 0..=i32::from(Priority::MAX.level());
    steps.flat_map(move |step| {
        let lanes = numbers.iter();
        lanes.map(move |number| number * LANES_PER_QUEUE + step)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_lane_comes_first_and_queues_do_not_touch() {
        let all: Vec<Lane> = lanes(&[2]).collect();
        assert_eq!(all.first(), Some(&lane(2, Priority::MAX)));
        assert_eq!(all.last(), Some(&lane(2, Priority::default())));
        assert!(all.iter().all(|lane| *lane < alone_lane(2)));
        assert!(alone_lane(2) < lane(3, Priority::MAX));
    }

    #[test]
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn a_lane_tells_its_queue_and_priority() {
        for (step, lane) in lanes(&[2]).enumerate() {
            assert_eq!(queue_of(lane), 2);
            assert_eq!(usize::from(priority(lane).level()), 7 - step);
        }
    }
}
