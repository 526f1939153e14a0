//! Claim: which items it takes, in which order, how many, for which holder and until when.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::store::{Isolation, Settle, StoreErrorKind};
use tenure_core::{Content, Counters, Guarded, ItemId, State, Term};

use crate::world::{T0, TERM, TICK, World, ask, at, at_once, dead, fresh, retry, token};

on_every_store!(
    a_claim_writes_a_lease_that_ends,
    a_claim_takes_the_oldest_first,
    items_of_one_age_come_in_the_order_they_were_added,
    a_claim_never_takes_more_than_its_limit,
    a_claim_that_finds_nothing_changes_nothing,
    an_item_is_not_claimed_before_it_is_available,
    only_pending_items_are_claimed,
    a_claim_returns_the_whole_item,
    a_claimed_item_has_its_counters,
    concurrent_claims_get_different_items,
    each_claim_has_its_own_term,
    a_token_that_has_a_lease_cannot_claim_again,
    a_claim_that_finds_nothing_takes_the_items_it_reaped,
    a_claim_leaves_reaped_items_that_are_not_due_yet,
    a_short_claim_reaps_but_does_not_take_the_reaped_items,
    lapsed_rows_are_claimed_in_their_order,
    a_claim_without_recovery_leaves_lapsed_leases,
    an_ordinary_item_is_not_claimed_alone,
);

/// Proves: S1-001, S1-002, S1-013, S1-044, S1-056, S4-004, S4-012, S4-013, S4-014, S4-035
async fn a_claim_writes_a_lease_that_ends(world: &dyn World) {
    let ids = world.add(3).await;
    let holder = token("holder", 1);
    let held = world.claim(&holder, 2, T0).await;
    assert_eq!(held.ids(), ids[..2]);
    assert_eq!(held.lease.token, holder);
    assert_eq!(held.lease.claimed_at, T0);
    assert_eq!(held.lease.until, T0.after(TERM));
    for id in &ids[..2] {
        let record = world.record(*id).await;
        assert_eq!(record.state, State::Claimed);
        let hold = record.hold.expect("a claimed item shows its hold");
        assert_eq!(hold.holder, holder.holder());
        assert_eq!(hold.claimed_at, T0);
        assert_eq!(hold.until, T0.after(TERM));
        assert_eq!(hold.fence, held.lease.fence);
    }
    let left = world.record(ids[2]).await;
    assert_eq!((left.state, left.hold), (State::Pending, None));
}

/// Proves: S1-004, S4-011
async fn a_claim_takes_the_oldest_first(world: &dyn World) {
    let ids = world.add_ranked(&[30, 10, 40, 20]).await;
    let first = world.claim(&token("holder", 1), 3, T0).await;
    assert_eq!(first.ids(), [ids[1], ids[3], ids[0]]);
    let second = world.claim(&token("holder", 2), 3, T0).await;
    assert_eq!(second.ids(), [ids[2]]);
}

/// Proves: S1-004
async fn items_of_one_age_come_in_the_order_they_were_added(world: &dyn World) {
    let ids = world.add_ranked(&[7, 7, 7, 7]).await;
    assert_eq!(world.claim(&token("holder", 1), 9, T0).await.ids(), ids);
}

/// Proves: S1-005
async fn a_claim_never_takes_more_than_its_limit(world: &dyn World) {
    let ids = world.add(12).await;
    assert!(
        world
            .try_claim(ask(&token("holder", 1), 0, T0))
            .await
            .is_none()
    );
    let mut given = Vec::new();
    for (n, limit) in [(2, 1), (3, 2), (4, 5)] {
        let held = world.claim(&token("holder", n), limit, T0).await;
        assert_eq!(held.items.len(), usize::try_from(limit).unwrap());
        given.extend(held.ids());
    }
    let rest = world.claim(&token("holder", 5), 100, T0).await;
    given.extend(rest.ids());
    assert_eq!(given, ids, "each item once, in order");
}

/// Proves: S4-050
async fn a_claim_that_finds_nothing_changes_nothing(world: &dyn World) {
    let nothing = world.dump().await;
    let claim = ask(&token("holder", 1), 10, T0);
    assert!(world.try_claim(claim.clone()).await.is_none());
    assert_eq!(world.dump().await, nothing);
    // The empty claim created no lease, so its token can be used again.
    let ids = world.add(1).await;
    assert_eq!(world.try_claim(claim).await.expect("an item").ids(), ids);
}

/// Proves: S4-015, S4-023
async fn an_item_is_not_claimed_before_it_is_available(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let answer = world
        .settle_one(&token("holder", 1), id, retry(60), at(1))
        .await;
    assert_eq!(answer, Guarded::Accepted(()));
    let due = at(61);
    for early in [at(1), due.before(TICK)] {
        let claim = ask(&token("holder", 2), 1, early);
        assert!(world.try_claim(claim).await.is_none(), "claimed at {early}");
    }
    let held = world.claim(&token("holder", 3), 1, due).await;
    assert_eq!(held.ids(), [id]);
    assert_eq!(held.items[0].available_at, due);
}

/// Proves: S1-003, S4-036
async fn only_pending_items_are_claimed(world: &dyn World) {
    let ids = world.add(4).await;
    let holder = token("holder", 1);
    world.claim(&holder, 3, T0).await;
    let settle = Settle::new(holder).item(ids[0], tenure_core::Outcome::Done);
    let settlement = world.settle(settle.item(ids[1], dead()).at(at(1))).await;
    assert_eq!(settlement.refused().count(), 0);
    // Of the four items, one is done, one dead, one claimed and one pending.
    assert_eq!(world.drain("other", at(2)).await, [ids[3]]);
}

/// Proves: S1-007
async fn a_claim_returns_the_whole_item(world: &dyn World) {
    world.add_ranked(&[3, 4]).await;
    let held = world.claim(&token("holder", 1), 2, T0).await;
    for (item, rank) in held.items.iter().zip(["3", "4"]) {
        let payload = match &item.content {
            Content::Event(event) => {
                assert_eq!(event.topic(), "order.paid");
                assert!(event.event_id().is_some(), "an event has an event id");
                event.payload().to_owned()
            }
            Content::Delivery(_) => panic!("there are no deliveries"),
            Content::Row(row) => {
                let row: serde_json::Value = serde_json::from_str(row).expect("a row is JSON");
                assert_eq!(row["topic"], "order.paid");
                assert_eq!(row["id"], item.id.number());
                // SQLite stores the payload as text, PostgreSQL as JSON.
                let payload = &row["payload"];
                payload.as_str().map_or(payload.to_string(), str::to_owned)
            }
        };
        assert_eq!(payload, format!("{{\"rank\":{rank}}}"));
    }
}

async fn a_claimed_item_has_its_counters(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    assert_eq!(world.counters(id).await, Counters::default());
    let kept = world
        .settle_one(&token("holder", 1), id, retry(1), at(1))
        .await;
    assert_eq!(kept, Guarded::Accepted(()));
    world.claim(&token("holder", 2), 1, at(2)).await;
    assert_eq!(world.reap_at(at(40)).await.len(), 1);
    let held = world.claim(&token("holder", 3), 1, at(41)).await;
    let expected = Counters {
        attempts: 2,
        failures: 1,
        crashes: 1,
        generation: 0,
    };
    assert_eq!(held.items[0].counters, expected);
}

/// Proves: S1-006, S1-047, S4-037, S4-047, S4-052
async fn concurrent_claims_get_different_items(world: &dyn World) {
    let ids = world.add(20).await;
    let tokens: Vec<_> = (1..=4).map(|n| token(&format!("worker-{n}"), n)).collect();
    let (a, b, c, d) = tokio::join!(
        world.try_claim(ask(&tokens[0], 6, T0)),
        world.try_claim(ask(&tokens[1], 6, T0)),
        world.try_claim(ask(&tokens[2], 6, T0)),
        world.try_claim(ask(&tokens[3], 6, T0)),
    );
    let mut given: Vec<ItemId> = [a, b, c, d]
        .into_iter()
        .flatten()
        .flat_map(|held| held.ids())
        .collect();
    given.extend(world.drain("late", T0).await);
    let distinct: BTreeSet<ItemId> = given.iter().copied().collect();
    assert_eq!(distinct, ids.into_iter().collect(), "nothing is left over");
    assert_eq!(given.len(), 20, "nothing is given out twice");
}

/// Proves: S1-009, S1-010, S1-011, S1-012
async fn each_claim_has_its_own_term(world: &dyn World) {
    world.add(4).await;
    let odd = Term::new(Duration::from_millis(1)).unwrap();
    for (n, term) in [Term::STANDARD, Term::HEAVY, Term::EXTERNAL, odd]
        .into_iter()
        .enumerate()
    {
        let holder = token("holder", u64::try_from(n).unwrap());
        let held = world.try_claim(ask(&holder, 1, T0).term(term)).await;
        let held = held.expect("there are items to claim");
        assert_eq!(held.lease.until, T0.after(term.length()));
        let hold = world.record(held.ids()[0]).await.hold.expect("it is held");
        assert_eq!(hold.until, T0.after(term.length()));
    }
}

/// A claim whose answer was lost must not be repeated, because one token would cover two claims.
///
/// Proves: S1-013
async fn a_token_that_has_a_lease_cannot_claim_again(world: &dyn World) {
    let ids = world.add(2).await;
    let holder = token("holder", 1);
    world.claim(&holder, 1, T0).await;
    let before = world.dump().await;
    let again = world.lease().claim(&ask(&holder, 1, at(1))).await;
    let error = again.expect_err("the token was used before");
    assert_eq!(error.kind(), StoreErrorKind::Conflict, "{error}");
    assert!(error.hint().is_some(), "it says what to do");
    assert_eq!(world.dump().await, before);
    assert_eq!(world.release(&holder, at(2)).await, 1);
    assert_eq!(world.drain("holder-2", at(2)).await.len(), ids.len());
}

/// Exactly at the end of its term a lease is no longer live, and a claim may take the item. The
/// claim reaps the lease first: the item is pending in between, and its counters change.
///
/// Proves: S4-026, S4-038, S4-053
async fn a_claim_that_finds_nothing_takes_the_items_it_reaped(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let other = token("other", 1);
    let inline = |now| ask(&other, 10, now).recovery(Some(at_once()));
    let live = world.try_claim(inline(T0.after(TERM).before(TICK))).await;
    assert!(live.is_none(), "a live lease was ended");
    let held = world.try_claim(inline(T0.after(TERM))).await;
    let held = held.expect("the lapsed item");
    assert_eq!(held.ids(), [id]);
    assert_eq!(held.items[0].counters.crashes, 1);
    assert_eq!(held.items[0].counters.attempts, 1);
    let hold = world.record(id).await.hold.expect("it is held");
    assert_eq!(hold.holder, other.holder());
}

async fn a_claim_leaves_reaped_items_that_are_not_due_yet(world: &dyn World) {
    if world.recovers_first() {
        return;
    }
    let id = world.item_in(State::Claimed).await;
    let recovery = Some(tenure_core::LapsePolicy::default());
    let claim = ask(&token("other", 1), 10, at(30)).recovery(recovery);
    assert!(world.try_claim(claim).await.is_none());
    let record = world.record(id).await;
    assert_eq!(record.state, State::Pending);
    assert_eq!(
        record.available_at,
        Some(at(30).after(tenure_core::DELAY_MIN))
    );
}

/// A claim that reaps first takes lapsed rows at once and in their order, without a delay, until
/// the policy makes them dead.
///
/// Proves: S5-021, S5-022, S5-046
async fn lapsed_rows_are_claimed_in_their_order(world: &dyn World) {
    if !world.recovers_first() {
        return;
    }
    let recovery = Some(tenure_core::LapsePolicy::default());
    let old = world.item_in(State::Claimed).await;
    let new = world.add(1).await[0];
    let both = ask(&fresh("other"), 10, at(30)).recovery(recovery.clone());
    let held = world.try_claim(both).await.expect("both are free");
    assert_eq!(held.ids(), [old, new]);
    for lapses in 2..=5 {
        let first = ask(&fresh("other"), 1, at(30 * lapses)).recovery(recovery.clone());
        let held = world.try_claim(first).await.expect("both are free");
        assert_eq!(held.ids(), [old], "after {lapses} lapses");
        assert_eq!(u64::from(held.items[0].counters.crashes), lapses);
    }
    // The next lapse is one more than the policy allows.
    let last = ask(&fresh("other"), 1, at(180)).recovery(recovery);
    let held = world.try_claim(last).await.expect("the other is free");
    assert_eq!(held.ids(), [new]);
    assert_eq!(world.state(old).await, State::Dead);
}

async fn a_short_claim_reaps_but_does_not_take_the_reaped_items(world: &dyn World) {
    if world.recovers_first() {
        return;
    }
    let lapsed = world.item_in(State::Claimed).await;
    let ids = world.add(1).await;
    let claim = ask(&token("other", 1), 10, at(30)).recovery(Some(at_once()));
    let held = world.try_claim(claim).await.expect("there is an item");
    assert_eq!(held.ids(), ids, "a reaped item was added to the lease");
    assert_eq!(world.state(lapsed).await, State::Pending);
    // A full claim reaps nothing.
    world.claim(&token("other", 2), 1, at(31)).await;
    let ids = world.add(1).await;
    let claim = ask(&token("other", 3), 1, at(99)).recovery(Some(at_once()));
    assert_eq!(world.try_claim(claim).await.expect("an item").ids(), ids);
    assert_eq!(world.state(lapsed).await, State::Claimed);
}

async fn a_claim_without_recovery_leaves_lapsed_leases(world: &dyn World) {
    world.item_in(State::Claimed).await;
    let before = world.dump().await;
    assert!(
        world
            .try_claim(ask(&token("other", 1), 10, at(99)))
            .await
            .is_none()
    );
    assert_eq!(world.dump().await, before);
}

async fn an_ordinary_item_is_not_claimed_alone(world: &dyn World) {
    world.add(2).await;
    let mut claim = ask(&token("other", 1), 10, T0);
    claim.isolation = Isolation::Isolated;
    assert!(world.try_claim(claim).await.is_none());
}
