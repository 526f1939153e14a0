//! The six transitions happen; the other ten are tried with every verb that could cause them, and
//! are refused without a byte changed.

use tenure_core::store::Settle;
use tenure_core::{Cause, Guarded, ItemId, Outcome, Refusal, State, TRANSITIONS, Word};

use crate::world::{World, ask, at, at_once, dead, every_outcome, fresh, retry, token};

on_every_store!(
    the_six_transitions_happen,
    nothing_leads_from_pending_but_a_claim,
    nothing_leads_from_claimed_to_claimed,
    nothing_leads_from_done_but_a_replay,
    nothing_leads_from_dead_but_a_replay,
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
                Guarded::Kept(())
            }
        };
        assert_eq!(answer, Guarded::Kept(()), "{from} to {to}");
        assert_eq!(world.state(id).await, to, "{from} to {to}");
        // Out of the way of the next one.
        world.tidy(at(1000)).await;
    }
}

/// Tries to settle `id` with every word, as its last holder, as its worker's next claim, and as a
/// stranger. Whoever repeats what he said before may be told so again.
async fn settle_in_vain(world: &dyn World, id: ItemId, why: Refusal, said: Option<Word>) {
    for stale in [token("holder", 1), token("holder", 2), token("stranger", 1)] {
        for outcome in every_outcome() {
            if stale == token("holder", 1) && said == Some(outcome.word()) {
                continue;
            }
            let answer = world.settle_one(&stale, id, outcome.clone(), at(2)).await;
            assert_eq!(answer, Guarded::Refused(why), "{outcome:?} by {stale}");
        }
    }
}

/// Pending to pending, to done, to dead.
///
/// Proves: S4-010
async fn nothing_leads_from_pending_but_a_claim(world: &dyn World) {
    let id = world.item_in(State::Pending).await;
    let before = world.dump().await;
    settle_in_vain(world, id, Refusal::NotClaimed, None).await;
    assert_eq!(
        world.replay(id, at(2)).await,
        Guarded::Refused(Refusal::NotSettled)
    );
    assert!(world.reap_at(at(9999)).await.is_empty());
    assert!(!world.renew(&token("holder", 1), at(2)).await.is_kept());
    assert_eq!(world.dump().await, before);
    // To dead there is no way at all but through a claim: see the bury below.
}

/// Claimed to claimed: by a second claim, with the same token, a new one, or one that reaps; by a
/// replay.
///
/// Proves: S4-010, S4-036
async fn nothing_leads_from_claimed_to_claimed(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let before = world.dump().await;
    for claim in [
        ask(&fresh("other"), 10, at(1)),
        ask(&fresh("other"), 10, at(1)).alone(),
        ask(&fresh("other"), 10, at(1)).recovery(Some(at_once())),
        ask(&fresh("other"), 10, at(9999)),
        ask(&token("holder", 1), 10, at(1)),
    ] {
        // Its own token again: a conflict, or nothing to claim.
        if let Ok(held) = world.lease().claim(&claim).await {
            assert!(held.is_none(), "claimed twice by {claim:?}");
        }
    }
    assert_eq!(
        world.replay(id, at(2)).await,
        Guarded::Refused(Refusal::NotSettled)
    );
    assert_eq!(world.dump().await, before);
    assert!(world.renew(&token("holder", 1), at(3)).await.is_kept());
}

/// Done to claimed, to done, to dead.
///
/// Proves: S4-010, S4-044, S4-045
async fn nothing_leads_from_done_but_a_replay(world: &dyn World) {
    let id = world.item_in(State::Done).await;
    let before = world.dump().await;
    nothing_moves(world, id, Word::Done).await;
    // To say it again is answered as before, and is not done a second time.
    let settle = Settle::new(token("holder", 1)).done([id]).at(at(5));
    assert_eq!(world.settle(settle).await.refused().count(), 0);
    assert_eq!(world.dump().await, before);
}

/// Dead to claimed, to done, to dead.
///
/// Proves: S4-010, S4-029, S4-044, S4-045
async fn nothing_leads_from_dead_but_a_replay(world: &dyn World) {
    let id = world.item_in(State::Dead).await;
    let before = world.dump().await;
    nothing_moves(world, id, Word::Dead).await;
    let answer = world
        .settle_one(&token("holder", 1), id, dead(), at(5))
        .await;
    assert_eq!(answer, Guarded::Kept(()), "a repeat");
    assert_eq!(world.dump().await, before);
}

/// Tries everything but a replay on a settled item.
async fn nothing_moves(world: &dyn World, id: ItemId, said: Word) {
    settle_in_vain(world, id, Refusal::AlreadySettled, Some(said)).await;
    for now in [at(2), at(99_999)] {
        assert!(world.drain("other", now).await.is_empty());
        let claim = ask(&fresh("other"), 10, now).recovery(Some(at_once()));
        assert!(world.try_claim(claim).await.is_none());
        assert!(world.reap_at(now).await.is_empty());
        assert!(!world.renew(&token("holder", 1), now).await.is_kept());
    }
    let answer = world.bury(id, 1, at(3)).await;
    assert_eq!(answer, Guarded::Refused(Refusal::AlreadySettled));
}

/// There is no way from pending to dead: the operator claims it and settles it dead in one step,
/// and the item shows it.
///
/// Proves: S4-010, S4-042
async fn a_pending_item_is_buried_through_a_claim(world: &dyn World) {
    let earlier = world.item_in(State::Done).await;
    let id = world.add(1).await[0];
    assert_eq!(world.bury(id, 1, at(2)).await, Guarded::Kept(()));
    let record = world.record(id).await;
    assert_eq!((record.state, record.dead_at), (State::Dead, Some(at(2))));
    assert_eq!(record.counters.attempts, 1, "it was with a holder");
    if world.outbox().is_some() {
        let timeline = world.operate().timeline(id).await.expect("timeline");
        assert_eq!(timeline.len(), 1);
        assert_eq!(timeline[0].word, Word::Buried);
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
        let words: Vec<Word> = timeline.iter().map(|line| line.word).collect();
        assert_eq!(words, [Word::Lapsed]);
    }
}
