//! The six transitions happen. The other ten are tried with every operation that could cause them,
//! and are refused without changing a byte.

use tenure_core::store::Settle;
use tenure_core::{Cause, Guarded, ItemId, Outcome, OutcomeKind, Refusal, State, TRANSITIONS};

use crate::world::{World, ask, at, at_once, dead, every_outcome, fresh, retry, token};

on_every_store!(
    the_six_transitions_happen,
    only_a_claim_leads_from_pending,
    no_operation_leads_from_claimed_to_claimed,
    only_a_replay_leads_from_done,
    only_a_replay_leads_from_dead,
    a_pending_item_is_buried_through_a_claim,
    a_lapsed_item_is_pending_before_it_is_claimed_again,
);

/// Proves: S4-002, S4-003, S4-004, S4-005, S4-006, S4-007, S4-008, S4-009
async fn the_six_transitions_happen(world: &dyn World) {
    for (from, cause, to) in TRANSITIONS {
        let holder = fresh("holder");
        let id = world.item_by(&holder, from).await;
        let outcome = match cause {
            Cause::Claim | Cause::Replay => None,
            Cause::Done => Some(Outcome::Done),
            Cause::Back => Some(retry(1)),
            Cause::Dead => Some(dead()),
        };
        let answer = match outcome {
            Some(outcome) => world.settle_one(&holder, id, outcome, at(2)).await,
            None if cause == Cause::Replay => world.replay(id, at(2)).await,
            None => {
                assert_eq!(world.claim(&holder, 1, at(2)).await.ids(), [id]);
                Guarded::Accepted(())
            }
        };
        assert_eq!(answer, Guarded::Accepted(()), "{from} to {to}");
        assert_eq!(world.state(id).await, to, "{from} to {to}");
        // Settles the item before the next one is added.
        world.tidy(at(1000)).await;
    }
}

/// Tries to settle `id` with every outcome, by three tokens: that of its last holder, that of the
/// same worker's next claim, and an unknown one. A repeat of the holder's own outcome may be
/// accepted.
async fn settle_in_vain(world: &dyn World, id: ItemId, why: Refusal, said: Option<OutcomeKind>) {
    for stale in [token("holder", 1), token("holder", 2), token("stranger", 1)] {
        for outcome in every_outcome() {
            if stale == token("holder", 1) && said == Some(outcome.kind()) {
                continue;
            }
            let answer = world.settle_one(&stale, id, outcome.clone(), at(2)).await;
            assert_eq!(answer, Guarded::Refused(why), "{outcome:?} by {stale}");
        }
    }
}

/// Three forbidden transitions: from pending to pending, to done and to dead.
///
/// Proves: S4-010
async fn only_a_claim_leads_from_pending(world: &dyn World) {
    let id = world.item_in(State::Pending).await;
    let before = world.dump().await;
    settle_in_vain(world, id, Refusal::NotClaimed, None).await;
    assert_eq!(
        world.replay(id, at(2)).await,
        Guarded::Refused(Refusal::NotSettled)
    );
    assert!(world.reap_at(at(9999)).await.is_empty());
    assert!(!world.renew(&token("holder", 1), at(2)).await.is_accepted());
    assert_eq!(world.dump().await, before);
    // A pending item can become dead only through a claim; see the bury below.
}

/// The forbidden transition from claimed to claimed: by a second claim with the same token, with a
/// new token, or with a reap; and by a replay.
///
/// Proves: S4-010, S4-036
async fn no_operation_leads_from_claimed_to_claimed(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let before = world.dump().await;
    for claim in [
        ask(&fresh("other"), 10, at(1)),
        ask(&fresh("other"), 10, at(1)).alone(),
        ask(&fresh("other"), 10, at(1)).recovery(Some(at_once())),
        ask(&fresh("other"), 10, at(9999)),
        ask(&token("holder", 1), 10, at(1)),
    ] {
        // A claim with the token of the lease gets a conflict, or is empty.
        if let Ok(held) = world.lease().claim(&claim).await {
            assert!(held.is_none(), "claimed twice by {claim:?}");
        }
    }
    assert_eq!(
        world.replay(id, at(2)).await,
        Guarded::Refused(Refusal::NotSettled)
    );
    assert_eq!(world.dump().await, before);
    assert!(world.renew(&token("holder", 1), at(3)).await.is_accepted());
}

/// Three forbidden transitions: from done to claimed, to done and to dead.
///
/// Proves: S4-010, S4-044, S4-045
async fn only_a_replay_leads_from_done(world: &dyn World) {
    let id = world.item_in(State::Done).await;
    let before = world.dump().await;
    nothing_moves(world, id, OutcomeKind::Done).await;
    // A repeat gets the same answer and has no second effect.
    let settle = Settle::new(token("holder", 1)).done([id]).at(at(5));
    assert_eq!(world.settle(settle).await.refused().count(), 0);
    assert_eq!(world.dump().await, before);
}

/// Three forbidden transitions: from dead to claimed, to done and to dead.
///
/// Proves: S4-010, S4-029, S4-044, S4-045
async fn only_a_replay_leads_from_dead(world: &dyn World) {
    let id = world.item_in(State::Dead).await;
    let before = world.dump().await;
    nothing_moves(world, id, OutcomeKind::Dead).await;
    let answer = world
        .settle_one(&token("holder", 1), id, dead(), at(5))
        .await;
    assert_eq!(answer, Guarded::Accepted(()), "a repeat");
    assert_eq!(world.dump().await, before);
}

/// Tries every operation except a replay on a settled item.
async fn nothing_moves(world: &dyn World, id: ItemId, said: OutcomeKind) {
    settle_in_vain(world, id, Refusal::AlreadySettled, Some(said)).await;
    for now in [at(2), at(99_999)] {
        assert!(world.drain("other", now).await.is_empty());
        let claim = ask(&fresh("other"), 10, now).recovery(Some(at_once()));
        assert!(world.try_claim(claim).await.is_none());
        assert!(world.reap_at(now).await.is_empty());
        assert!(!world.renew(&token("holder", 1), now).await.is_accepted());
    }
    let answer = world.bury(id, 1, at(3)).await;
    assert_eq!(answer, Guarded::Refused(Refusal::AlreadySettled));
}

/// There is no transition from pending to dead: a bury claims the item for the operator and settles
/// it as dead in one step, and the item shows the claim.
///
/// Proves: S4-010, S4-042
async fn a_pending_item_is_buried_through_a_claim(world: &dyn World) {
    let earlier = world.item_in(State::Done).await;
    let id = world.add(1).await[0];
    assert_eq!(world.bury(id, 1, at(2)).await, Guarded::Accepted(()));
    let record = world.record(id).await;
    assert_eq!((record.state, record.dead_at), (State::Dead, Some(at(2))));
    assert_eq!(record.counters.attempts, 1, "the bury is an attempt");
    if world.outbox().is_some() {
        let timeline = world.operate().timeline(id).await.expect("timeline");
        assert_eq!(timeline.len(), 1);
        assert_eq!(timeline[0].outcome, OutcomeKind::Buried);
        assert_eq!(timeline[0].holder, token("operator", 1).holder());
        assert_eq!(
            (timeline[0].claimed_at, timeline[0].settled_at),
            (at(2), at(2))
        );
        let earlier = world.operate().timeline(earlier).await.expect("timeline");
        assert!(
            timeline[0].fence > earlier[0].fence,
            "a fence was drawn for it"
        );
    }
}

/// Proves: S4-006, S4-036, S4-038
async fn a_lapsed_item_is_pending_before_it_is_claimed_again(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let claim = ask(&token("other", 1), 1, at(30)).recovery(Some(at_once()));
    let held = world.try_claim(claim).await.expect("the lapsed item");
    assert_eq!(held.ids(), [id]);
    assert_eq!(held.items[0].counters.crashes, 1, "it went through pending");
    assert_eq!(
        held.items[0].available_at,
        at(30),
        "it was put back just now"
    );
    if world.outbox().is_some() {
        let timeline = world.operate().timeline(id).await.expect("timeline");
        let words: Vec<OutcomeKind> = timeline.iter().map(|line| line.outcome).collect();
        assert_eq!(words, [OutcomeKind::Lapsed]);
    }
}
