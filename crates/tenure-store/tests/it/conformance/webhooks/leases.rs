//! Leases of deliveries: effects and limits of a sender's heartbeat.

use std::time::Duration;

use tenure_core::store::{Renew, Settle};
use tenure_core::{Guarded, Outcome, Refusal, State, Term};

use super::{add, due, event, held_delivery, lane, publish, publish_one, saved_calls, take};
use crate::world::{T0, TERM, TICK, World, ask, at, at_once, dead, fresh, retry, token};

on_every_keeper_of_webhooks!(
    a_heartbeat_moves_the_end_of_a_lease_and_nothing_else,
    a_heartbeat_never_shortens_a_lease,
    only_the_holder_can_renew_a_delivery,
    a_settled_delivery_cannot_be_renewed,
    a_refused_renewal_does_not_affect_other_deliveries,
    a_delivery_can_be_claimed_again_after_its_heartbeat_stops,
    a_claim_reaps_and_takes_a_lapsed_delivery,
    only_the_holder_can_settle_a_delivery,
);

/// Proves: S2-012, S2-043
async fn a_heartbeat_moves_the_end_of_a_lease_and_nothing_else(world: &dyn World) {
    let endpoint = add(world, "billing", &["*"]).await;
    publish_one(world, "order.paid", T0).await;
    let first = take(world, &endpoint, T0).await;
    let id = first.ids()[0];
    // This settle gives the counters values other than zero.
    let settle = Settle::new(first.lease.token.clone()).item(id, retry(0));
    saved_calls(world, settle.at(T0)).await;
    let held = take(world, &endpoint, T0).await;
    let mut expected = world.record(id).await;
    assert_eq!(
        (expected.counters.attempts, expected.counters.failures),
        (1, 1)
    );
    let counts = outbox_counts(world).await;
    for beat in [10, 20, 30, 40] {
        let Guarded::Accepted(renewed) = world.renew(&held.lease.token, at(beat)).await else {
            panic!("a live lease was refused");
        };
        assert_eq!(renewed.until, at(beat).after(TERM));
        assert_eq!((renewed.fence, &renewed.ids), (held.lease.fence, &vec![id]));
        expected.hold.as_mut().expect("it is held").until = renewed.until;
        assert_eq!(world.record(id).await, expected);
        assert_eq!(outbox_counts(world).await, counts);
        let calls = super::hooks(world).calls(id).await.expect("calls");
        assert_eq!(calls, []);
    }
}

async fn outbox_counts(world: &dyn World) -> tenure_core::store::Counts {
    let counts = world.operate().count(Some(T0)).await;
    counts.expect("count")
}

/// Proves: S2-012
async fn a_heartbeat_never_shortens_a_lease(world: &dyn World) {
    let (_, held) = held_delivery(world, T0).await;
    let short = Term::new(Duration::from_secs(5)).expect("a term");
    let renew = Renew::new(vec![held.lease.token.clone()], short).at(at(1));
    let answers = world.lease().renew(&renew).await.expect("renew");
    assert!(answers[0].1.is_accepted());
    let hold = world.record(held.ids()[0]).await.hold;
    assert_eq!(hold.expect("it is held").until, T0.after(TERM));
}

/// Proves: S2-020, S2-021, S2-022
async fn only_the_holder_can_renew_a_delivery(world: &dyn World) {
    let (endpoint, first) = held_delivery(world, T0).await;
    let before = world.dump().await;
    let answer = world.renew(&token("stranger", 1), at(1)).await;
    assert_eq!(answer, Guarded::Refused(Refusal::Lost));
    assert_eq!(world.dump().await, before);
    assert_eq!(world.reap_at(at(31)).await.len(), 1);
    let second = take(world, &endpoint, at(31)).await;
    let before = world.dump().await;
    let answer = world.renew(&first.lease.token, at(32)).await;
    assert_eq!(
        answer,
        Guarded::Refused(Refusal::Lost),
        "another sender holds it"
    );
    assert_eq!(world.dump().await, before, "its lease is unchanged");
    assert!(world.renew(&second.lease.token, at(33)).await.is_accepted());
}

/// Proves: S2-020, S2-021
async fn a_settled_delivery_cannot_be_renewed(world: &dyn World) {
    let endpoint = add(world, "billing", &["*"]).await;
    for outcome in [Outcome::Done, retry(60), dead(), Outcome::RELEASE] {
        publish_one(world, "order.paid", T0).await;
        let held = take(world, &endpoint, T0).await;
        let settle = Settle::new(held.lease.token.clone());
        let settle = settle.item(held.ids()[0], outcome.clone());
        saved_calls(world, settle.at(at(1))).await;
        let before = world.dump().await;
        let answer = world.renew(&held.lease.token, at(2)).await;
        assert_eq!(answer, Guarded::Refused(Refusal::Lost), "{outcome:?}");
        assert_eq!(world.dump().await, before);
    }
}

/// Proves: S2-022
async fn a_refused_renewal_does_not_affect_other_deliveries(world: &dyn World) {
    let endpoint = add(world, "billing", &["*"]).await;
    publish(world, &vec![event("order.paid"); 3], T0).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let one = super::try_take(world, (&endpoint, 1), &fresh("sender"), T0).await;
        held.push(one.expect("a delivery"));
    }
    let buried = held[1].ids()[0];
    assert_eq!(world.bury(buried, 1, at(1)).await, Guarded::Accepted(()));
    let tokens = held.iter().map(|held| held.lease.token.clone());
    let renew = Renew::new(tokens.collect(), Term::STANDARD).at(at(5));
    let answers = world.lease().renew(&renew).await.expect("renew");
    assert!(answers[0].1.is_accepted() && answers[2].1.is_accepted());
    assert_eq!(answers[1].1, Guarded::Refused(Refusal::Lost));
    assert_eq!(world.state(buried).await, State::Dead);
    let other = world.record(held[2].ids()[0]).await;
    assert_eq!(other.hold.expect("it is held").until, at(5).after(TERM));
}

/// Proves: S2-040, S2-041
async fn a_delivery_can_be_claimed_again_after_its_heartbeat_stops(world: &dyn World) {
    let (endpoint, held) = held_delivery(world, T0).await;
    assert!(world.renew(&held.lease.token, at(20)).await.is_accepted());
    let end = at(20).after(TERM);
    assert!(world.reap_at(end).await.is_empty(), "its term is not past");
    let answer = world.renew(&held.lease.token, end).await;
    assert_eq!(answer, Guarded::Refused(Refusal::Lapsed));
    let reaped = world.reap_at(end.after(TICK)).await;
    assert_eq!(reaped.len(), 1);
    assert_eq!(
        (reaped[0].id, reaped[0].state),
        (held.ids()[0], State::Pending)
    );
    assert_eq!(
        due(world, end.after(TICK)).await.lanes,
        [lane(&endpoint, 7)]
    );
    let second = take(world, &endpoint, end.after(TICK)).await;
    assert_eq!(second.ids(), held.ids());
    assert_eq!(second.items[0].counters.crashes, 1);
    assert_eq!(
        second.items[0].counters.failures, 0,
        "a lapse is not a failure"
    );
}

/// Proves: S2-040, S2-042
async fn a_claim_reaps_and_takes_a_lapsed_delivery(world: &dyn World) {
    let (endpoint, held) = held_delivery(world, T0).await;
    let lanes = vec![(lane(&endpoint, 7), 5)];
    let claim = |now| {
        let claim = ask(&fresh("sender"), 5, now).lanes(lanes.clone());
        claim.recovery(Some(at_once()))
    };
    let end = T0.after(TERM);
    assert_eq!(world.try_claim(claim(end.before(TICK))).await, None);
    let second = world.try_claim(claim(end)).await.expect("it has lapsed");
    assert_eq!(second.ids(), held.ids());
    let stale = Settle::new(held.lease.token.clone()).done(held.ids());
    let answer = world.settle(stale.at(end)).await;
    assert_eq!(answer.refused().count(), 1, "the first is late");
}

/// Proves: S2-023
async fn only_the_holder_can_settle_a_delivery(world: &dyn World) {
    let (endpoint, first) = held_delivery(world, T0).await;
    let id = first.ids()[0];
    assert_eq!(world.reap_at(at(31)).await.len(), 1);
    let second = take(world, &endpoint, at(31)).await;
    let before = world.dump().await;
    for outcome in [Outcome::Done, retry(60), dead(), Outcome::RELEASE] {
        for stale in [&first.lease.token, &token("stranger", 1)] {
            let answer = world.settle_one(stale, id, outcome.clone(), at(32)).await;
            assert_eq!(answer, Guarded::Refused(Refusal::Lost), "{outcome:?}");
        }
    }
    assert_eq!(world.dump().await, before);
    let settle = Settle::new(second.lease.token.clone()).done([id]);
    saved_calls(world, settle.at(at(33))).await;
    assert_eq!(world.state(id).await, State::Done);
}
