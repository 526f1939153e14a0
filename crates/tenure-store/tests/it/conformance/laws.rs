//! One test for each law of `LeaseStore`, named after it; `turns` tests law 7, and law 1 for keys.

use std::collections::BTreeSet;

use tenure_core::store::{Reap, Rest, Settle, StoreErrorKind};
use tenure_core::{Cause, Guarded, ItemId, Outcome, Refusal, State, TRANSITIONS};

use crate::world::{T0, World, ask, at, at_once, dead, every_outcome, fresh, retry, token};

on_every_store!(
    law_1_an_item_has_at_most_one_live_lease,
    law_2_a_token_is_never_issued_twice_and_a_fence_only_rises,
    law_3_any_token_but_the_current_one_is_refused,
    law_4_done_and_dead_are_final_but_for_a_replay,
    law_5_only_its_holder_or_a_bury_ends_a_live_lease,
    law_6_only_the_six_transitions_exist,
    law_8_an_added_item_is_never_lost,
    law_9_a_repeated_settle_gives_the_same_answer,
);

/// While the leases are live, any number of claims returns each item once.
///
/// Proves: S1-006, S4-036, S4-039, S4-052
async fn law_1_an_item_has_at_most_one_live_lease(world: &dyn World) {
    let ids = world.add(6).await;
    let mut given = Vec::new();
    for now in (0..30).step_by(5) {
        world.reap_at(at(now)).await;
        let claim = ask(&fresh("worker"), 2, at(now)).recovery(Some(at_once()));
        let claim = claim.term(tenure_core::Term::HEAVY);
        if let Some(held) = world.try_claim(claim).await {
            given.extend(held.ids());
        }
    }
    assert_eq!(given, ids);
}

/// Proves: S1-013, S1-062
async fn law_2_a_token_is_never_issued_twice_and_a_fence_only_rises(world: &dyn World) {
    world.add(3).await;
    let first = world.claim(&token("a", 1), 1, at(9)).await.lease;
    let error = world.lease().claim(&ask(&token("a", 1), 1, at(9))).await;
    let error = error.expect_err("the token has a lease");
    assert_eq!(error.kind(), StoreErrorKind::Conflict);
    // A clock that steps back does not lower the fence.
    let second = world.claim(&token("b", 1), 1, at(5)).await.lease;
    assert!(second.fence > first.fence);
    assert_eq!(world.release(&first.token, at(6)).await, 1);
    let third = world.claim(&token("a", 2), 1, at(7)).await.lease;
    assert!(third.fence > second.fence, "nor does a release");
}

/// Proves: S1-014, S1-015
async fn law_3_any_token_but_the_current_one_is_refused(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    assert_eq!(world.reap_at(at(31)).await.len(), 1);
    world.claim(&token("holder", 2), 1, at(32)).await;
    let before = world.dump().await;
    for stale in [token("holder", 1), token("stranger", 1)] {
        assert_eq!(
            world.renew(&stale, at(33)).await,
            Guarded::Refused(Refusal::Lost)
        );
        for outcome in every_outcome() {
            let answer = world.settle_one(&stale, id, outcome, at(33)).await;
            assert_eq!(answer, Guarded::Refused(Refusal::Lost));
        }
    }
    assert_eq!(world.dump().await, before, "not a byte was changed");
}

/// Proves: S4-029, S4-045, S4-046
async fn law_4_done_and_dead_are_final_but_for_a_replay(world: &dyn World) {
    for state in [State::Done, State::Dead] {
        let holder = fresh("holder");
        let id = world.item_by(&holder, state).await;
        let before = world.dump().await;
        assert!(world.drain("worker", at(9999)).await.is_empty());
        assert!(world.reap_at(at(9999)).await.is_empty());
        assert!(!world.bury(id, 1, at(9999)).await.is_accepted());
        let turned = if state == State::Done {
            dead()
        } else {
            Outcome::Done
        };
        assert!(
            !world
                .settle_one(&holder, id, turned.clone(), at(2))
                .await
                .is_accepted()
        );
        assert_eq!(world.dump().await, before);
        assert_eq!(world.replay(id, at(3)).await, Guarded::Accepted(()));
        assert_eq!(world.counters(id).await.generation, 1);
        // The old token is still invalid.
        let answer = world.settle_one(&holder, id, turned, at(4)).await;
        assert_eq!(answer, Guarded::Refused(Refusal::NotClaimed));
        let new = fresh("holder");
        assert_eq!(world.claim(&new, 1, at(5)).await.ids(), [id]);
        let answer = world.settle_one(&new, id, Outcome::Done, at(6)).await;
        assert_eq!(answer, Guarded::Accepted(()));
    }
}

/// Proves: S1-028
async fn law_5_only_its_holder_or_a_bury_ends_a_live_lease(world: &dyn World) {
    let ids = world.add(2).await;
    let holder = token("holder", 1);
    world.claim(&holder, 2, T0).await;
    let before = world.dump().await;
    assert!(
        world
            .reap(Reap::new(9, at_once()).inline().at(at(29)))
            .await
            .is_empty()
    );
    let claim = ask(&token("other", 1), 9, at(29)).recovery(Some(at_once()));
    assert!(world.try_claim(claim).await.is_none());
    assert!(!world.replay(ids[0], at(29)).await.is_accepted());
    let by_another = Settle::new(token("other", 1)).rest(Rest::Release);
    assert_eq!(world.settle(by_another.at(at(29))).await.rest, 0);
    assert_eq!(world.dump().await, before);
    assert_eq!(world.bury(ids[0], 1, at(29)).await, Guarded::Accepted(()));
    let Guarded::Accepted(renewed) = world.renew(&holder, at(29)).await else {
        panic!("the bury of one item ended the lease of the other");
    };
    assert_eq!(renewed.ids, [ids[1]]);
}

/// Every operation is tried on an item in every state: it causes one of the six transitions, or
/// changes nothing.
///
/// Proves: S4-003, S4-010
async fn law_6_only_the_six_transitions_exist(world: &dyn World) {
    let verbs = [
        (Cause::Claim, None),
        (Cause::Replay, None),
        (Cause::Done, Some(Outcome::Done)),
        (Cause::Back, Some(retry(0))),
        (Cause::Back, Some(Outcome::RELEASE)),
        (Cause::Dead, Some(dead())),
    ];
    for from in State::ALL {
        for (cause, outcome) in &verbs {
            let holder = fresh("holder");
            let id = world.item_by(&holder, from).await;
            let before = world.dump().await;
            let is_claim = *cause == Cause::Claim;
            let is_done = match outcome {
                Some(outcome) => world.settle_one(&holder, id, outcome.clone(), at(2)).await,
                None if is_claim => match world.try_claim(ask(&fresh("worker"), 1, at(2))).await {
                    Some(_) => Guarded::Accepted(()),
                    None => Guarded::Refused(Refusal::Lost),
                },
                None => world.replay(id, at(2)).await,
            };
            let to = world.state(id).await;
            let exists = TRANSITIONS.contains(&(from, *cause, to));
            assert!(exists || to == from, "{cause:?} led from {from} to {to}");
            if !exists {
                assert_eq!(
                    world.dump().await,
                    before,
                    "{cause:?} on {from}: {is_done:?}"
                );
            }
            // Ends the leases of held items before the next round.
            world.reap_at(at(99)).await;
            world.tidy(at(99)).await;
        }
    }
}

/// Items are settled with every outcome, lapse or wait; each is done, dead or can be claimed again.
///
/// Proves: S4-057, S4-058
async fn law_8_an_added_item_is_never_lost(world: &dyn World) {
    let ids = world.add(12).await;
    let holder = token("worker", 1);
    world.claim(&holder, 8, T0).await;
    let mut settle = Settle::new(holder).at(at(1));
    for (id, outcome) in ids.iter().zip(every_outcome()) {
        settle = settle.item(*id, outcome);
    }
    // Four items are settled, four have lapsed, and four are not yet claimed.
    assert_eq!(world.settle(settle).await.refused().count(), 0);
    assert_eq!(world.reap_at(at(60)).await.len(), 4);
    let counts = world.operate().count(Some(at(99))).await.expect("count");
    let all = counts.pending() + counts.claimed + counts.done + counts.dead;
    assert_eq!((all, counts.done, counts.dead), (12, 1, 1));
    let mut left: BTreeSet<ItemId> = ids.iter().copied().collect();
    left.remove(&ids[0]);
    left.remove(&ids[2]);
    let given: BTreeSet<ItemId> = world.drain("worker", at(99)).await.into_iter().collect();
    assert_eq!(given, left);
}

/// Proves: S4-054, S4-056
async fn law_9_a_repeated_settle_gives_the_same_answer(world: &dyn World) {
    let ids = world.add(4).await;
    let holder = token("worker", 1);
    world.claim(&holder, 4, T0).await;
    let mut settle = Settle::new(holder).at(at(1));
    for (id, outcome) in ids.iter().zip(every_outcome()) {
        settle = settle.item(*id, outcome);
    }
    let first = world.settle(settle.clone()).await;
    assert_eq!(first.refused().count(), 0);
    let before = world.dump().await;
    for now in [at(1), at(2), at(999)] {
        assert_eq!(world.settle(settle.clone().at(now)).await, first);
    }
    assert_eq!(world.dump().await, before, "nothing was done twice");
}
