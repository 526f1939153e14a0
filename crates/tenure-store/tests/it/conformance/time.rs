//! Time: the store uses its own clock unless a time is given; times are exact to the microsecond.

use std::time::Duration;

use tenure_core::store::{Claim, Reap, Renew, Settle};
use tenure_core::{Guarded, LapsePolicy, State, Term, Timestamp};

use crate::world::{T0, TERM, TICK, World, ask, at, at_once, fresh, token};

on_every_store!(
    without_a_given_time_the_clock_of_the_store_decides,
    times_are_exact_to_the_microsecond,
    a_clock_that_steps_back_does_not_shorten_a_lease,
    the_longest_and_the_shortest_term_are_kept,
);

/// Proves: S1-002, S4-013
async fn without_a_given_time_the_clock_of_the_store_decides(world: &dyn World) {
    let written_at = world
        .record(world.add_ranked(&[0]).await[0])
        .await
        .created_at;
    let holder = token("holder", 1);
    let claim = Claim::new(holder.clone(), 1);
    let held = world.try_claim(claim).await.expect("an item that is due");
    let lease = held.lease;
    assert!(lease.claimed_at >= written_at && lease.claimed_at < T0);
    assert_eq!(lease.until, lease.claimed_at.after(TERM));
    let id = held.items[0].id;
    // Less than half a minute has passed, so all of these operations find a live lease.
    let policy = LapsePolicy::default();
    assert!(world.reap(Reap::new(9, policy)).await.is_empty());
    let renew = Renew::new(vec![holder.clone()], Term::HEAVY);
    let answers = world.lease().renew(&renew).await.expect("renew");
    let Guarded::Accepted(renewed) = &answers[0].1 else {
        panic!("a live lease was refused");
    };
    assert!(renewed.until >= lease.claimed_at.after(Duration::from_mins(1)));
    assert!(renewed.until < T0);
    let settlement = world.settle(Settle::new(holder).done([id]).strict()).await;
    assert_eq!(settlement.items, [(id, Guarded::Accepted(()))]);
    let done_at = world.record(id).await.done_at.expect("it is done");
    assert!(done_at >= lease.claimed_at && done_at < T0);
}

async fn times_are_exact_to_the_microsecond(world: &dyn World) {
    let id = world.add(1).await[0];
    let odd = Timestamp::from_micros(T0.as_micros() + 123_456_789);
    let term = Term::new(Duration::from_millis(1_001)).unwrap();
    let first = fresh("holder");
    let held = world.try_claim(ask(&first, 1, odd).term(term)).await;
    let lease = held.expect("an item").lease;
    assert_eq!(
        (lease.claimed_at, lease.until),
        (odd, odd.after(term.length()))
    );
    let hold = world.record(id).await.hold.expect("it is held");
    assert_eq!(
        (hold.claimed_at, hold.until),
        (lease.claimed_at, lease.until)
    );
    let retry = tenure_core::Outcome::Retry {
        after: Duration::from_micros(100_001),
        error: "503".into(),
    };
    assert_eq!(
        world.settle_one(&first, id, retry, odd).await,
        Guarded::Accepted(())
    );
    let due = odd.after(Duration::from_micros(100_001));
    assert_eq!(world.record(id).await.available_at, Some(due));
    let second = fresh("holder");
    world.claim(&second, 1, due).await;
    let done = world
        .settle_one(&second, id, tenure_core::Outcome::Done, due.after(TICK))
        .await;
    assert_eq!(done, Guarded::Accepted(()));
    assert_eq!(world.record(id).await.done_at, Some(due.after(TICK)));
}

/// Proves: S1-057
async fn a_clock_that_steps_back_does_not_shorten_a_lease(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let holder = token("holder", 1);
    assert!(world.renew(&holder, at(10)).await.is_accepted());
    let Guarded::Accepted(renewed) = world.renew(&holder, at(3)).await else {
        panic!("a live lease was refused");
    };
    assert_eq!(renewed.until, at(40));
    assert!(world.reap_at(at(2)).await.is_empty());
    // The lease still ends, so no item is held forever.
    assert_eq!(world.reap_at(at(41)).await.len(), 1);
    assert_eq!(world.state(id).await, State::Pending);
}

async fn the_longest_and_the_shortest_term_are_kept(world: &dyn World) {
    for length in [Duration::from_millis(1), Duration::from_hours(24)] {
        world.add(1).await;
        let holder = fresh("holder");
        let claim = ask(&holder, 1, T0).term(Term::new(length).unwrap());
        let held = world.try_claim(claim).await.expect("an item");
        let end = T0.after(length);
        assert_eq!(held.lease.until, end);
        let reap = Reap::new(9, at_once());
        assert!(world.reap(reap.clone().at(end)).await.is_empty());
        assert_eq!(world.reap(reap.at(end.after(TICK))).await.len(), 1);
        world.tidy(end.after(Duration::from_secs(1))).await;
    }
}
