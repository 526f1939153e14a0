//! The guards: a caller without the current token changes nothing and gets the reason.
//!
//! Each check brings an item into a state in which a token has no right to it, and then tries every
//! operation with that token.

use tenure_core::store::{Reap, Rest, Settle};
use tenure_core::{Guarded, ItemId, Outcome, Refusal, State, Timestamp, Token};

use crate::world::{T0, World, at, at_once, every_outcome, token};

on_every_store!(
    the_dump_shows_every_change,
    another_workers_token_is_refused,
    an_earlier_token_of_the_same_worker_is_refused,
    a_made_up_token_is_refused,
    an_unused_token_is_refused_on_a_pending_item,
    a_token_after_done_or_dead_is_refused,
    a_token_after_a_replay_is_refused,
    a_token_after_a_reap_is_refused,
    a_token_after_a_bury_is_refused,
    neither_a_reap_nor_a_claim_ends_a_live_lease,
    a_settle_changes_only_items_of_its_own_lease,
);

/// The other checks rely on this: every change of the stored data changes the dump.
async fn the_dump_shows_every_change(world: &dyn World) {
    let mut dumps = vec![world.dump().await];
    let id = world.add(1).await[0];
    dumps.push(world.dump().await);
    let (first, second) = (token("holder", 1), token("holder", 2));
    world.claim(&first, 1, T0).await;
    dumps.push(world.dump().await);
    assert!(world.renew(&first, at(1)).await.is_accepted());
    dumps.push(world.dump().await);
    assert_eq!(world.release(&first, at(2)).await, 1);
    dumps.push(world.dump().await);
    world.claim(&second, 1, T0).await;
    dumps.push(world.dump().await);
    assert_eq!(world.reap_at(at(60)).await.len(), 1);
    dumps.push(world.dump().await);
    assert!(world.bury(id, 1, at(61)).await.is_accepted());
    dumps.push(world.dump().await);
    assert!(world.replay(id, at(62)).await.is_accepted());
    dumps.push(world.dump().await);
    let distinct: std::collections::BTreeSet<&String> = dumps.iter().collect();
    assert_eq!(distinct.len(), dumps.len());
    assert_eq!(world.dump().await, dumps[8], "a dump changes nothing");
}

/// Tries every operation with a token that has no right to `id` and no lease of its own. `said` is
/// the outcome that this token settled the item with before, if any: a repeat of that settle is
/// accepted, but changes nothing.
async fn refuse_all(
    world: &dyn World,
    stale: &Token,
    id: ItemId,
    (why, said): (Refusal, Option<&Outcome>),
    now: Timestamp,
) {
    let before = world.dump().await;
    for outcome in every_outcome() {
        for strict in [false, true] {
            let mut settle = Settle::new(stale.clone()).item(id, outcome.clone()).at(now);
            if strict {
                settle = settle.strict();
            }
            let settlement = world.settle(settle).await;
            let is_repeat = said.is_some_and(|said| said.kind() == outcome.kind());
            if !is_repeat {
                assert_eq!(
                    settlement.items,
                    [(id, Guarded::Refused(why))],
                    "{outcome:?}"
                );
            }
            assert_eq!((settlement.rest, settlement.late), (0, false));
        }
    }
    // A release or done of all items of the token finds no held item.
    for rest in [Rest::Release, Rest::Done] {
        let settlement = world
            .settle(Settle::new(stale.clone()).rest(rest).at(now))
            .await;
        assert_eq!(settlement, tenure_core::store::Settlement::default());
    }
    assert_eq!(
        world.renew(stale, now).await,
        Guarded::Refused(Refusal::Lost)
    );
    assert_eq!(world.dump().await, before, "something changed");
}

/// Proves: S1-014, S1-015, S4-049, S4-050, S4-055
async fn another_workers_token_is_refused(world: &dyn World) {
    let ids = world.add(2).await;
    let (mine, yours) = (token("mine", 1), token("yours", 1));
    world.claim(&mine, 1, T0).await;
    world.claim(&yours, 1, T0).await;
    // The other worker has a lease on another item.
    let before = world.dump().await;
    for outcome in every_outcome() {
        let answer = world.settle_one(&yours, ids[0], outcome, at(1)).await;
        assert_eq!(answer, Guarded::Refused(Refusal::Lost));
    }
    assert_eq!(world.dump().await, before);
    let hold = world.record(ids[0]).await.hold.expect("it is held");
    assert!(world.renew(&yours, at(2)).await.is_accepted());
    assert_eq!(
        world.record(ids[0]).await.hold,
        Some(hold),
        "another lease was renewed"
    );
    // A worker that has released its lease has no right to the item either.
    assert_eq!(world.release(&yours, at(3)).await, 1);
    refuse_all(world, &yours, ids[0], (Refusal::Lost, None), at(4)).await;
    let answer = world.settle_one(&mine, ids[0], Outcome::Done, at(5)).await;
    assert_eq!(answer, Guarded::Accepted(()));
}

/// The name of the worker alone would not be enough: a worker stalls, is reaped and claims the item
/// again, and the token of its first claim must not be valid for the second.
///
/// Proves: S1-014, S1-015, S1-062, S4-049
async fn an_earlier_token_of_the_same_worker_is_refused(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let (first, second) = (token("holder", 1), token("holder", 2));
    assert_eq!(world.release(&first, at(1)).await, 1);
    world.claim(&second, 1, at(2)).await;
    let said = Some(&Outcome::RELEASE);
    refuse_all(world, &first, id, (Refusal::Lost, said), at(3)).await;
    assert!(world.renew(&second, at(4)).await.is_accepted());
    let answer = world.settle_one(&second, id, Outcome::Done, at(5)).await;
    assert_eq!(answer, Guarded::Accepted(()));
}

/// Proves: S1-014, S1-015
async fn a_made_up_token_is_refused(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    for made_up in [token("nobody", 1), token("holder", 2), token("holder", 0)] {
        refuse_all(world, &made_up, id, (Refusal::Lost, None), at(1)).await;
    }
    // The token is refused even after the term, because the lease exists until it is reaped.
    refuse_all(
        world,
        &token("nobody", 1),
        id,
        (Refusal::Lost, None),
        at(99),
    )
    .await;
}

/// No token can settle an item without a holder.
///
/// Proves: S1-015, S4-012
async fn an_unused_token_is_refused_on_a_pending_item(world: &dyn World) {
    let id = world.item_in(State::Pending).await;
    refuse_all(
        world,
        &token("nobody", 1),
        id,
        (Refusal::NotClaimed, None),
        at(1),
    )
    .await;
}

/// Proves: S1-014, S1-015, S4-045
async fn a_token_after_done_or_dead_is_refused(world: &dyn World) {
    for outcome in [Outcome::Done, crate::world::dead()] {
        let (holder, id) = world.item_in_fresh_lease().await;
        let kept = world.settle_one(&holder, id, outcome.clone(), at(1)).await;
        assert_eq!(kept, Guarded::Accepted(()));
        let why = Refusal::AlreadySettled;
        refuse_all(world, &holder, id, (why, Some(&outcome)), at(2)).await;
        refuse_all(world, &token("nobody", 1), id, (why, None), at(2)).await;
    }
}

/// Proves: S1-014, S1-015, S4-046
async fn a_token_after_a_replay_is_refused(world: &dyn World) {
    let id = world.item_in(State::Done).await;
    let old = token("holder", 1);
    assert_eq!(world.replay(id, at(2)).await, Guarded::Accepted(()));
    let said = Some(&Outcome::Done);
    refuse_all(world, &old, id, (Refusal::NotClaimed, said), at(3)).await;
    let new = token("holder", 2);
    world.claim(&new, 1, at(4)).await;
    refuse_all(world, &old, id, (Refusal::Lost, said), at(5)).await;
    let answer = world.settle_one(&new, id, Outcome::Done, at(6)).await;
    assert_eq!(answer, Guarded::Accepted(()));
}

/// Proves: S1-014, S1-015, S1-022
async fn a_token_after_a_reap_is_refused(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let old = token("holder", 1);
    assert_eq!(world.reap_at(at(31)).await.len(), 1);
    refuse_all(world, &old, id, (Refusal::NotClaimed, None), at(32)).await;
    let new = token("holder", 2);
    world.claim(&new, 1, at(33)).await;
    refuse_all(world, &old, id, (Refusal::Lost, None), at(34)).await;
    assert!(world.renew(&new, at(35)).await.is_accepted());
}

/// Proves: S1-015
async fn a_token_after_a_bury_is_refused(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    assert_eq!(world.bury(id, 1, at(1)).await, Guarded::Accepted(()));
    for stale in [token("holder", 1), token("operator", 1)] {
        refuse_all(world, &stale, id, (Refusal::AlreadySettled, None), at(2)).await;
    }
}

/// Proves: S1-028
async fn neither_a_reap_nor_a_claim_ends_a_live_lease(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let before = world.dump().await;
    for now in [T0, at(1), at(29)] {
        let reap = Reap::new(1000, at_once()).at(now);
        assert!(world.reap(reap.clone()).await.is_empty());
        assert!(world.reap(reap.inline()).await.is_empty());
        let claim = crate::world::ask(&token("other", 1), 10, now).recovery(Some(at_once()));
        assert!(world.try_claim(claim).await.is_none());
    }
    assert_eq!(world.dump().await, before);
    let settle = Settle::new(token("holder", 1))
        .done([id])
        .strict()
        .at(at(29));
    assert_eq!(world.settle(settle).await.refused().count(), 0);
}

/// A token that is valid for one item is not valid for its neighbours.
///
/// Proves: S1-015
async fn a_settle_changes_only_items_of_its_own_lease(world: &dyn World) {
    let ids = world.add(3).await;
    let (mine, yours) = (token("mine", 1), token("yours", 1));
    world.claim(&mine, 1, T0).await;
    world.claim(&yours, 1, T0).await;
    let yours_before = world.record(ids[1]).await;
    let settle = Settle::new(mine)
        .done(ids.clone())
        .rest(Rest::Done)
        .at(at(1));
    let settlement = world.settle(settle).await;
    let expected = [
        (ids[0], Guarded::Accepted(())),
        (ids[1], Guarded::Refused(Refusal::Lost)),
        (ids[2], Guarded::Refused(Refusal::NotClaimed)),
    ];
    assert_eq!(settlement.items, expected);
    assert_eq!(world.record(ids[1]).await, yours_before);
    assert_eq!(world.state(ids[2]).await, State::Pending);
    assert!(world.renew(&yours, at(2)).await.is_accepted());
}
