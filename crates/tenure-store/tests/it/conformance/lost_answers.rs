//! Lost answers: each operation takes effect, but its first answer is dropped. The caller repeats
//! it or releases by its token, as the port documents, and the final state is correct.

use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::store::{
    Answer, Bury, Claim, LeaseStore, Operate, Reap, Reaped, Renew, Renewed, Replay, Rest, Settle,
    Settlement, StoreError, StoreErrorKind,
};
use tenure_core::{Guarded, Held, NewEvent, Outcome, Refusal, State, Term, Token};

use crate::world::{T0, World, ask, at, at_once, every_outcome, fresh, token};

on_every_store!(
    a_claim_whose_answer_is_lost_can_be_released,
    a_renew_whose_answer_is_lost_can_be_repeated,
    a_settle_whose_answer_is_lost_can_be_repeated,
    a_release_whose_answer_is_lost_can_be_repeated,
    a_settle_and_claim_whose_answer_is_lost_can_be_settled_and_released,
    a_reap_whose_answer_is_lost_can_be_repeated,
    a_replay_or_bury_whose_answer_is_lost_is_not_done_twice,
    an_enqueue_whose_answer_is_lost_can_be_repeated_with_a_dedupe_key,
);

/// A store that runs each operation and loses its first answer.
#[derive(Debug)]
struct Forgetful<'w> {
    store: &'w dyn LeaseStore,
    has_lost: AtomicBool,
}

impl<'w> Forgetful<'w> {
    fn new(store: &'w dyn LeaseStore) -> Self {
        Self {
            store,
            has_lost: AtomicBool::new(false),
        }
    }

    fn lose<'a, T: Send + 'a>(&'a self, answer: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            let answer = answer.await.expect("the operation succeeds");
            if self.has_lost.swap(true, Ordering::Relaxed) {
                return Ok(answer);
            }
            let away = StoreErrorKind::Unavailable;
            Err(StoreError::new("any", away, "the connection was cut"))
        })
    }
}

impl LeaseStore for Forgetful<'_> {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        self.lose(self.store.claim(claim))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        self.lose(self.store.renew(renew))
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        self.lose(self.store.settle(settle))
    }

    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        self.lose(self.store.settle_and_claim(settle, claim))
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        self.lose(self.store.reap(reap))
    }
}

/// Asserts the error of an unavailable database, which leaves the result unknown to the caller.
fn is_lost<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(answer.expect_err("the answer was lost").is_transient());
}

/// The holder does not know which items it holds, but it chose the token, so it can release them.
async fn a_claim_whose_answer_is_lost_can_be_released(world: &dyn World) {
    let ids = world.add(3).await;
    let store = Forgetful::new(world.lease());
    let lost = token("worker", 1);
    is_lost(store.claim(&ask(&lost, 10, T0)).await);
    assert!(
        world.drain("other", at(1)).await.is_empty(),
        "they are held"
    );
    // A repeat is a second claim with the same token, which fails or returns nothing.
    let held = store.claim(&ask(&lost, 10, at(1))).await.unwrap_or(None);
    assert_eq!(held, None);
    assert_eq!(world.release(&lost, at(2)).await, 3);
    assert_eq!(world.release(&lost, at(2)).await, 0, "it may be repeated");
    let held = world.claim(&token("worker", 2), 10, at(2)).await;
    assert_eq!(held.ids(), ids);
    for item in held.items {
        assert_eq!((item.counters.failures, item.counters.crashes), (0, 0));
    }
}

async fn a_renew_whose_answer_is_lost_can_be_repeated(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let store = Forgetful::new(world.lease());
    let renew = Renew::new(vec![token("holder", 1)], Term::STANDARD);
    is_lost(store.renew(&renew.clone().at(at(10))).await);
    let answers = store.renew(&renew.at(at(11))).await.expect("renew");
    let Guarded::Accepted(renewed) = &answers[0].1 else {
        panic!("a live lease was refused");
    };
    assert_eq!((renewed.until, &renewed.ids), (at(41), &vec![id]));
}

/// Proves: S4-054
async fn a_settle_whose_answer_is_lost_can_be_repeated(world: &dyn World) {
    for outcome in every_outcome() {
        let (holder, id) = world.item_in_fresh_lease().await;
        let store = Forgetful::new(world.lease());
        let settle = Settle::new(holder).item(id, outcome.clone()).at(at(1));
        is_lost(store.settle(&settle).await);
        let after_the_first = world.dump().await;
        let again = store.settle(&settle.at(at(2))).await.expect("settle");
        assert_eq!(again.items, [(id, Guarded::Accepted(()))], "{outcome:?}");
        assert_eq!(
            world.dump().await,
            after_the_first,
            "done once, answered twice"
        );
        world.tidy(at(500)).await;
    }
}

async fn a_release_whose_answer_is_lost_can_be_repeated(world: &dyn World) {
    let ids = world.add(2).await;
    let holder = token("worker", 1);
    world.claim(&holder, 2, T0).await;
    let store = Forgetful::new(world.lease());
    let release = Settle::new(holder).rest(Rest::Release);
    is_lost(store.settle(&release.clone().at(at(1))).await);
    let other = world.claim(&token("other", 1), 1, at(2)).await;
    // When the repeat comes, another worker already holds one of the items.
    let again = store.settle(&release.at(at(3))).await.expect("settle");
    assert_eq!(again.rest, 0);
    assert!(world.renew(&other.lease.token, at(4)).await.is_accepted());
    assert_eq!(world.state(ids[1]).await, State::Pending);
    assert_eq!(world.counters(ids[1]).await.attempts, 1, "released once");
}

async fn a_settle_and_claim_whose_answer_is_lost_can_be_settled_and_released(world: &dyn World) {
    let ids = world.add(4).await;
    let (first, second) = (token("worker", 1), token("worker", 2));
    world.claim(&first, 2, T0).await;
    let store = Forgetful::new(world.lease());
    let settle = Settle::new(first).done([ids[0], ids[1]]).at(at(1));
    is_lost(
        store
            .settle_and_claim(&settle, &ask(&second, 2, at(1)))
            .await,
    );
    let again = store.settle(&settle.at(at(2))).await.expect("settle");
    assert_eq!(again.refused().count(), 0);
    assert_eq!(world.release(&second, at(2)).await, 2);
    assert_eq!(world.drain("worker-3", at(3)).await, ids[2..]);
    for id in &ids[..2] {
        let record = world.record(*id).await;
        assert_eq!((record.state, record.done_at), (State::Done, Some(at(1))));
    }
}

async fn a_reap_whose_answer_is_lost_can_be_repeated(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let store = Forgetful::new(world.lease());
    let reap = Reap::new(10, at_once()).at(at(31));
    is_lost(store.reap(&reap).await);
    assert!(store.reap(&reap).await.expect("reap").is_empty());
    assert_eq!(world.counters(id).await.crashes, 1, "counted once");
    assert_eq!(world.drain("other", at(31)).await, [id]);
}

/// A repeated replay or bury is refused because of the state after the first one, and nothing
/// happens twice.
async fn a_replay_or_bury_whose_answer_is_lost_is_not_done_twice(world: &dyn World) {
    let done = world.item_in(State::Done).await;
    let operate: &dyn Operate = world.operate();
    let replay = Replay {
        ids: vec![done],
        now: Some(at(5)),
    };
    operate
        .replay(&replay)
        .await
        .expect("carried out, answer lost");
    let again = operate.replay(&replay).await.expect("replay");
    assert_eq!(again, [(done, Guarded::Refused(Refusal::NotSettled))]);
    assert_eq!(world.counters(done).await.generation, 1);
    let bury = Bury {
        id: done,
        token: token("operator", 1),
        reason: "gone".into(),
        now: Some(at(6)),
    };
    assert!(
        operate
            .bury(&bury)
            .await
            .expect("carried out, answer lost")
            .is_accepted()
    );
    let before = world.dump().await;
    let again = operate.bury(&bury).await.expect("bury");
    assert_eq!(again, Guarded::Refused(Refusal::AlreadySettled));
    assert_eq!(world.dump().await, before);
}

/// With a dedupe key the repeat finds the first event; without one it would create a second event.
/// In the row layout the owner of the table inserts, so there is nothing to test.
async fn an_enqueue_whose_answer_is_lost_can_be_repeated_with_a_dedupe_key(world: &dyn World) {
    let Some(outbox) = world.outbox() else {
        let id = world.item_in(State::Pending).await;
        assert_eq!(world.drain("worker", T0).await, [id]);
        return;
    };
    let event = NewEvent::from_json("order.paid", "1").dedupe("order-7");
    let events = [event.build().expect("the event is well formed")];
    outbox
        .enqueue(&events)
        .await
        .expect("carried out, answer lost");
    let again = outbox.enqueue(&events).await.expect("enqueue");
    assert!(!again[0].is_fresh());
    let holder = fresh("worker");
    assert_eq!(world.claim(&holder, 10, T0).await.ids(), [again[0].id()]);
    let done = world
        .settle_one(&holder, again[0].id(), Outcome::Done, at(1))
        .await;
    assert_eq!(done, Guarded::Accepted(()));
}
