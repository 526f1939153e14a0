//! Renew: it extends a live lease, but not a lapsed one, and changes nothing else.

use std::time::Duration;

use tenure_core::store::{Renew, Settle};
use tenure_core::{Guarded, Refusal, State, Term};

use crate::world::{T0, TERM, TICK, World, at, token};

on_every_store!(
    a_renewal_moves_the_end_and_nothing_else,
    a_renewal_never_shortens_a_lease,
    a_lease_can_be_renewed_before_its_end_but_not_at_it,
    a_renewed_lease_outlives_its_first_term,
    one_call_renews_many_leases,
    a_renewal_returns_the_items_that_are_still_held,
    a_renewal_omits_buried_items,
    a_renewal_may_be_repeated,
    a_lease_without_items_is_not_renewed,
    a_renewal_of_no_leases_returns_nothing,
);

/// Proves: S1-017
async fn a_renewal_moves_the_end_and_nothing_else(world: &dyn World) {
    let ids = world.add(3).await;
    let holder = token("holder", 1);
    let held = world.claim(&holder, 3, T0).await;
    let mut expected = Vec::new();
    for id in &ids {
        expected.push(world.record(*id).await);
    }
    let Guarded::Accepted(renewed) = world.renew(&holder, at(10)).await else {
        panic!("a live lease was refused");
    };
    assert_eq!(renewed.until, at(10).after(TERM));
    assert_eq!(renewed.fence, held.lease.fence);
    assert_eq!(renewed.ids, ids);
    for mut record in expected {
        let hold = record.hold.as_mut().expect("it was held");
        hold.until = renewed.until;
        let renewed = world.record(record.id).await;
        // In the row layout the content is the whole row, including the end of the lease.
        record.content = renewed.content.clone();
        assert_eq!(renewed, record);
    }
}

async fn a_renewal_never_shortens_a_lease(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let short = Term::new(Duration::from_secs(5)).unwrap();
    let renew = Renew::new(vec![token("holder", 1)], short).at(at(1));
    let answers = world.lease().renew(&renew).await.expect("renew");
    let Guarded::Accepted(renewed) = &answers[0].1 else {
        panic!("a live lease was refused");
    };
    assert_eq!(renewed.until, T0.after(TERM));
    let hold = world.record(id).await.hold.expect("it is held");
    assert_eq!(hold.until, T0.after(TERM));
}

/// A lease is live while `now < until`; when both are equal, it has lapsed.
async fn a_lease_can_be_renewed_before_its_end_but_not_at_it(world: &dyn World) {
    world.item_in(State::Claimed).await;
    let holder = token("holder", 1);
    let end = T0.after(TERM);
    let before = world.dump().await;
    for late in [end, end.after(TICK), at(1000)] {
        assert_eq!(
            world.renew(&holder, late).await,
            Guarded::Refused(Refusal::Lapsed),
            "at {late}"
        );
    }
    assert_eq!(world.dump().await, before);
    assert!(world.renew(&holder, end.before(TICK)).await.is_accepted());
}

/// Proves: S1-017
async fn a_renewed_lease_outlives_its_first_term(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let holder = token("holder", 1);
    for now in [20, 40, 60] {
        assert!(world.renew(&holder, at(now)).await.is_accepted());
    }
    assert!(world.reap_at(at(89)).await.is_empty(), "it was live");
    let settled = world
        .settle(Settle::new(holder).done([id]).strict().at(at(89)))
        .await;
    assert_eq!(settled.items, [(id, Guarded::Accepted(()))]);
    assert!(!settled.late);
}

async fn one_call_renews_many_leases(world: &dyn World) {
    let ids = world.add(3).await;
    let (first, second, third) = (token("a", 1), token("b", 1), token("c", 1));
    world.claim(&first, 1, T0).await;
    world.claim(&second, 1, at(5)).await;
    world.claim(&third, 1, at(20)).await;
    let made_up = token("nobody", 1);
    let asked = vec![
        third.clone(),
        made_up.clone(),
        first.clone(),
        second.clone(),
    ];
    let renew = Renew::new(asked.clone(), Term::HEAVY).at(at(32));
    let answers = world.lease().renew(&renew).await.expect("renew");
    let tokens: Vec<_> = answers.iter().map(|(of, _)| of.clone()).collect();
    assert_eq!(tokens, asked, "the answers come in the order asked");
    let Guarded::Accepted(renewed) = &answers[0].1 else {
        panic!("a live lease was refused");
    };
    assert_eq!((renewed.until, &renewed.ids), (at(92), &vec![ids[2]]));
    assert_eq!(answers[1].1, Guarded::Refused(Refusal::Lost));
    assert_eq!(answers[2].1, Guarded::Refused(Refusal::Lapsed));
    assert!(answers[3].1.is_accepted());
}

async fn a_renewal_returns_the_items_that_are_still_held(world: &dyn World) {
    let ids = world.add(3).await;
    let holder = token("holder", 1);
    world.claim(&holder, 3, T0).await;
    let kept = world
        .settle_one(&holder, ids[1], tenure_core::Outcome::Done, at(1))
        .await;
    assert_eq!(kept, Guarded::Accepted(()));
    let Guarded::Accepted(renewed) = world.renew(&holder, at(2)).await else {
        panic!("a live lease was refused");
    };
    assert_eq!(renewed.ids, [ids[0], ids[2]]);
}

async fn a_renewal_omits_buried_items(world: &dyn World) {
    let ids = world.add(2).await;
    let holder = token("holder", 1);
    world.claim(&holder, 2, T0).await;
    assert_eq!(world.bury(ids[0], 1, at(1)).await, Guarded::Accepted(()));
    let Guarded::Accepted(renewed) = world.renew(&holder, at(2)).await else {
        panic!("a live lease was refused");
    };
    assert_eq!(renewed.ids, [ids[1]]);
    assert_eq!(world.bury(ids[1], 2, at(3)).await, Guarded::Accepted(()));
    let answer = world.renew(&holder, at(4)).await;
    assert_eq!(
        answer,
        Guarded::Refused(Refusal::Lost),
        "nothing is left of it"
    );
}

async fn a_renewal_may_be_repeated(world: &dyn World) {
    world.item_in(State::Claimed).await;
    let holder = token("holder", 1);
    let first = world.renew(&holder, at(10)).await;
    let before = world.dump().await;
    assert_eq!(world.renew(&holder, at(10)).await, first);
    assert_eq!(world.dump().await, before);
}

async fn a_lease_without_items_is_not_renewed(world: &dyn World) {
    for state in [State::Done, State::Dead] {
        let id = world.item_in(state).await;
        let before = world.dump().await;
        let answer = world.renew(&token("holder", 1), at(2)).await;
        assert_eq!(answer, Guarded::Refused(Refusal::Lost));
        assert_eq!(world.dump().await, before, "item {id}");
    }
}

async fn a_renewal_of_no_leases_returns_nothing(world: &dyn World) {
    world.item_in(State::Claimed).await;
    let before = world.dump().await;
    let renew = Renew::new(Vec::new(), Term::STANDARD).at(at(1));
    assert!(world.lease().renew(&renew).await.expect("renew").is_empty());
    assert_eq!(world.dump().await, before);
}
