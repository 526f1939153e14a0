//! Selection of lanes and limits for a claim, as a pure function.
//!
//! Endpoints with due deliveries take turns at being first. An endpoint gets at most its free
//! capacity and half of the worker's executors. All failing endpoints together leave a fifth of the
//! executors to the others, so that retries do not hold back first attempts.

use std::collections::BTreeMap;
use std::ops::Bound;

use tenure_core::store::{EndpointLane, Isolation};

use super::tracked_endpoint::{ClockPair, TrackedEndpoint};
use crate::chooser::Room;

/// Returns the lanes to claim from, in order, with the limit of each. `cursor` is the endpoint that
/// came first in the last selection.
pub(super) fn choose(
    tracked: &BTreeMap<u32, TrackedEndpoint>,
    due: &[EndpointLane],
    room: &Room,
    cursor: &mut u32,
    moment: ClockPair,
) -> Vec<(EndpointLane, u32)> {
    let mut by_endpoint: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for lane in due {
        let is_alone = lane.step == EndpointLane::ALONE;
        if is_alone == (room.isolation == Isolation::Isolated) {
            by_endpoint
                .entry(lane.endpoint)
                .or_default()
                .push(lane.step);
        }
    }
    let in_hand = |endpoint: u32| room.in_hand.get(&endpoint).copied().unwrap_or(0);
    let failing: u32 = tracked
        .values()
        .filter(|tracked| tracked.is_failing())
        .map(|tracked| in_hand(tracked.endpoint.number))
        .sum();
    let mut left_to_failing = (room.concurrency - room.concurrency / 5).saturating_sub(failing);
    let most = room.concurrency.div_ceil(2);
    let later = by_endpoint.range((Bound::Excluded(*cursor), Bound::Unbounded));
    let mut chosen = Vec::new();
    for (endpoint, steps) in later.chain(by_endpoint.range(..=*cursor)) {
        let Some(tracked) = tracked.get(endpoint) else {
            continue;
        };
        let held = in_hand(*endpoint);
        let mut free = tracked.room(held, moment).min(most.saturating_sub(held));
        if tracked.is_failing() {
            free = free.min(left_to_failing);
            left_to_failing -= free;
        }
        if free == 0 {
            continue;
        }
        if chosen.is_empty() {
            *cursor = *endpoint;
        }
        chosen.extend(share(*endpoint, steps, free));
    }
    chosen
}

/// Divides the capacity of an endpoint among its lanes: one for each lane, so that none starves,
/// and the rest for the most urgent lane.
fn share(
    endpoint: u32,
    steps: &[u8],
    free: u32,
) -> impl Iterator<Item = (EndpointLane, u32)> + use<> {
    let mut steps = steps.to_vec();
    steps.sort_unstable();
    steps.truncate(usize::try_from(free).unwrap_or(usize::MAX));
    let others = u32::try_from(steps.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let first = free.saturating_sub(others);
    steps.into_iter().enumerate().map(move |(nth, step)| {
        let lane = EndpointLane { endpoint, step };
        (lane, if nth == 0 { first } else { 1 })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::webhook::{Endpoint, EndpointState, RateLimit};
    use tenure_core::{Timestamp, testing};
    use tokio::time::Instant;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn endpoint(number: u32) -> Endpoint {
        testing::endpoint(&format!("e{number}"), number)
    }

    fn tracked(endpoints: impl IntoIterator<Item = Endpoint>) -> BTreeMap<u32, TrackedEndpoint> {
        let tracked = endpoints.into_iter();
        tracked
            .map(|endpoint| {
                (
                    endpoint.number,
                    TrackedEndpoint::new(endpoint, Instant::now()),
                )
            })
            .collect()
    }

    fn lane(endpoint: u32, step: u8) -> EndpointLane {
        EndpointLane { endpoint, step }
    }

    fn room(concurrency: u32, in_hand: &[(u32, u32)]) -> Room {
        Room {
            limit: 100,
            concurrency,
            isolation: Isolation::Shared,
            in_hand: in_hand.iter().copied().collect(),
        }
    }

    fn chosen(
        tracked: &BTreeMap<u32, TrackedEndpoint>,
        due: &[EndpointLane],
        room: &Room,
    ) -> Vec<(EndpointLane, u32)> {
        let moment = ClockPair {
            store: NOW,
            local: Instant::now(),
        };
        choose(tracked, due, room, &mut 0, moment)
    }

    #[tokio::test(start_paused = true)]
    async fn every_endpoint_has_its_turn_at_being_first() {
        let tracked = tracked([1, 2, 3].map(endpoint));
        let due = [lane(3, 0), lane(1, 0), lane(2, 0)];
        let mut cursor = 0;
        let moment = ClockPair {
            store: NOW,
            local: Instant::now(),
        };
        let mut firsts = Vec::new();
        for _ in 0..6 {
            let chosen = choose(&tracked, &due, &room(200, &[]), &mut cursor, moment);
            assert_eq!(chosen.len(), 3);
            firsts.push(chosen[0].0.endpoint);
        }
        assert_eq!(firsts, [1, 2, 3, 1, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_gets_its_free_capacity_and_at_most_half_of_the_executors() {
        let mut limited = endpoint(1);
        limited.settings.rate = Some(RateLimit {
            per_second: 1,
            burst: 4,
        });
        let mut wide = endpoint(2);
        wide.settings.concurrency = 1000;
        let tracked = tracked([limited, wide, endpoint(3)]);
        let due = [lane(1, 0), lane(2, 0), lane(3, 0)];
        let in_hand = [(1, 1), (3, 10)];
        let chosen = chosen(&tracked, &due, &room(20, &in_hand));
        // The unsent delivery of the first endpoint uses up one call of its burst.
        assert_eq!(chosen, [(lane(1, 0), 3), (lane(2, 0), 10)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_endpoint_is_not_claimed_from_and_one_on_trial_gets_one_call() {
        let [mut paused, mut trial, mut disabled, mut removed] = [1, 2, 3, 4].map(endpoint);
        paused.health.paused_until = Some(NOW.after(Duration::from_secs(1)));
        trial.health.trips = 1;
        trial.health.paused_until = Some(NOW);
        disabled.state = EndpointState::Disabled {
            why: tenure_core::webhook::Disabled::Failing,
            since: NOW,
        };
        removed.state = EndpointState::Removed { since: NOW };
        let tracked = tracked([paused, trial, disabled, removed]);
        let due: Vec<_> = (1..=4).map(|number| lane(number, 0)).collect();
        let free = room(20, &[]);
        let first = chosen(&tracked, &due, &free);
        assert_eq!(first, [(lane(2, 0), 1), (lane(4, 0), 10)]);
        let busy = chosen(&tracked, &due, &room(20, &[(2, 1)]));
        assert_eq!(busy, [(lane(4, 0), 10)], "the trial is under way");
    }

    #[tokio::test(start_paused = true)]
    async fn failing_endpoints_leave_a_fifth_of_the_executors_to_the_others() {
        let failing = |number| {
            let mut endpoint = endpoint(number);
            endpoint.health.failing_since = Some(NOW);
            endpoint
        };
        let tracked = tracked([failing(1), failing(2), failing(3), endpoint(4)]);
        let due: Vec<_> = (1..=4).map(|number| lane(number, 0)).collect();
        let first = chosen(&tracked, &due, &room(20, &[]));
        let limits: Vec<u32> = first.iter().map(|(_, most)| *most).collect();
        assert_eq!(
            limits,
            [10, 6, 10],
            "16 of 20 at most, and none for the third"
        );
        assert_eq!(first[2].0.endpoint, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn the_lanes_of_an_endpoint_share_its_capacity_and_isolated_ones_are_claimed_alone() {
        let tracked = tracked([endpoint(1)]);
        let due = [lane(1, 8), lane(1, 3), lane(1, 0)];
        let all = chosen(&tracked, &due, &room(40, &[]));
        assert_eq!(all, [(lane(1, 0), 9), (lane(1, 3), 1)]);
        let one = chosen(&tracked, &due, &room(40, &[(1, 9)]));
        assert_eq!(one, [(lane(1, 0), 1)], "the most urgent first");
        let alone = Room {
            isolation: Isolation::Isolated,
            ..room(40, &[])
        };
        let lanes = chosen(&tracked, &due, &alone);
        assert_eq!(
            lanes.iter().map(|(lane, _)| lane.step).collect::<Vec<_>>(),
            [8]
        );
    }
}
