//! Delays: items that wait for another attempt, and the order that makes them due.

use std::time::Duration;

use tenure_core::store::{
    Claim, DelayedIn, ListDelayed, Pause, QueueRules, RetryAnswer, RetryNow, Settle, Store,
};
use tenure_core::{Event, ItemId, NewEvent, Outcome, OutcomeKind, QueueName};

use super::keys::{add_run, outbox};
use crate::world::{T0, World, ask, at, dead, fresh, retry};

on_every_queue!(
    a_retry_makes_a_waiting_item_due_and_keeps_its_counters,
    a_retry_answers_for_each_item_why_it_was_not_changed,
    a_retry_is_in_the_timeline,
    a_retry_of_a_head_leaves_the_items_behind_it,
    a_retry_of_an_event_that_was_enqueued_with_a_delay_makes_it_due,
    delayed_items_are_listed_by_topic_and_queue,
    delayed_items_are_listed_in_steps,
);

async fn retry_now(world: &dyn World, ids: &[ItemId], seconds: u64) -> Vec<RetryAnswer> {
    let retry = RetryNow::new(ids.to_vec(), fresh("operator")).at(at(seconds));
    let answers = outbox(world).retry_now(&retry).await.expect("retry now");
    let asked: Vec<ItemId> = answers.iter().map(|(id, _)| *id).collect();
    assert_eq!(asked, ids, "an answer for each, in order");
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Claims everything and lets it fail: it waits for a minute.
async fn fail(world: &dyn World, number: usize) -> Vec<ItemId> {
    let holder = fresh("worker");
    let held = world.claim(&holder, 2000, T0).await;
    assert_eq!(held.items.len(), number);
    let mut settle = Settle::new(holder).at(T0);
    for id in held.ids() {
        settle = settle.item(id, retry(60));
    }
    assert_eq!(world.settle(settle).await.refused().count(), 0);
    held.ids()
}

async fn claimed(world: &dyn World, seconds: u64) -> Vec<ItemId> {
    let claim = ask(&fresh("worker"), 9, at(seconds));
    let held = world.try_claim(claim).await;
    held.map(|held| held.ids()).unwrap_or_default()
}

async fn listed(store: &dyn Store, list: &mut ListDelayed) -> Vec<ItemId> {
    let page = store.delayed(list).await.expect("delayed");
    list.after = page.next;
    page.ids
}

fn list(of: DelayedIn) -> ListDelayed {
    let mut list = ListDelayed::new(of);
    list.now = Some(at(1));
    list
}

async fn a_retry_makes_a_waiting_item_due_and_keeps_its_counters(world: &dyn World) {
    let ids = world.add(2).await;
    fail(world, 2).await;
    let before = world.record(ids[0]).await;
    assert_eq!(claimed(world, 1).await, []);
    assert_eq!(retry_now(world, &ids[..1], 1).await, [RetryAnswer::DueNow]);
    let after = world.record(ids[0]).await;
    assert_eq!(after.available_at, Some(at(1)));
    assert_eq!(after.counters, before.counters);
    assert_eq!(after.last_error, before.last_error);
    assert_eq!(claimed(world, 1).await, ids[..1]);
}

async fn a_retry_answers_for_each_item_why_it_was_not_changed(world: &dyn World) {
    let ids = world.add(5).await;
    let holder = fresh("worker");
    world.claim(&holder, 4, T0).await;
    let settle = Settle::new(holder.clone()).at(T0);
    let settle = settle
        .item(ids[0], Outcome::Done)
        .item(ids[1], dead())
        .item(ids[2], retry(60));
    assert_eq!(world.settle(settle).await.refused().count(), 0);
    let unknown = ItemId::new(999_999);
    let asked = [ids[0], ids[1], ids[2], ids[3], ids[4], unknown];
    let expected = [
        RetryAnswer::Done,
        RetryAnswer::Dead,
        RetryAnswer::DueNow,
        RetryAnswer::Held,
        RetryAnswer::AlreadyDue,
        RetryAnswer::NotFound,
    ];
    assert_eq!(retry_now(world, &asked, 1).await, expected);
    let before = world.dump().await;
    let left = [ids[0], ids[1], ids[3], ids[4], unknown];
    retry_now(world, &left, 2).await;
    assert_eq!(
        world.dump().await,
        before,
        "a refused retry changes nothing"
    );
}

async fn a_retry_is_in_the_timeline(world: &dyn World) {
    let ids = world.add(1).await;
    fail(world, 1).await;
    retry_now(world, &ids, 1).await;
    let timeline = outbox(world).timeline(ids[0]).await.expect("timeline");
    assert_eq!(timeline.len(), 2);
    let order = &timeline[1];
    assert!(order.holder.starts_with("operator"), "{}", order.holder);
    assert_eq!(order.outcome, OutcomeKind::Release);
    assert_eq!((order.claimed_at, order.settled_at), (at(1), at(1)));
    assert!(order.fence > timeline[0].fence);
}

async fn a_retry_of_a_head_leaves_the_items_behind_it(world: &dyn World) {
    let ids = add_run(world, 3).await;
    let holder = fresh("worker");
    world.claim(&holder, 1, T0).await;
    let answer = world.settle_one(&holder, ids[0], retry(60), T0).await;
    assert!(answer.is_accepted());
    let expected = [
        RetryAnswer::DueNow,
        RetryAnswer::Behind,
        RetryAnswer::Behind,
    ];
    assert_eq!(retry_now(world, &ids, 1).await, expected);
    assert_eq!(claimed(world, 1).await, ids[..1]);
    outbox(world)
        .pause_key("a", Pause::Begin)
        .await
        .expect("pause");
    assert_eq!(
        retry_now(world, &ids, 1).await,
        [RetryAnswer::Held, RetryAnswer::Behind, RetryAnswer::Behind]
    );
}

async fn a_retry_of_an_event_that_was_enqueued_with_a_delay_makes_it_due(world: &dyn World) {
    let later = NewEvent::from_json("order.paid", "1").delay(Duration::from_hours(1));
    let event = later.build().expect("well formed");
    let written = outbox(world).enqueue(&[event]).await.expect("enqueue");
    let id = written[0].id();
    // A list has only items that were tried before.
    assert_eq!(
        listed(outbox(world), &mut ListDelayed::new(DelayedIn::Queues)).await,
        []
    );
    let retry = RetryNow::new(vec![id, id], fresh("operator"));
    let answers = outbox(world).retry_now(&retry).await.expect("retry now");
    assert_eq!(
        answers,
        [(id, RetryAnswer::DueNow), (id, RetryAnswer::DueNow)]
    );
    let held = world.try_claim(Claim::new(fresh("worker"), 1)).await;
    assert_eq!(held.expect("it is due by the store's clock").ids(), [id]);
}

async fn delayed_items_are_listed_by_topic_and_queue(world: &dyn World) {
    let store = outbox(world);
    let mail = QueueName::new("mail").expect("a name");
    store
        .add_queue(&mail, QueueRules::default())
        .await
        .expect("add queue");
    let event = |topic: &str, queue: &QueueName| -> Event {
        let event = NewEvent::from_json(topic, "1").queue(queue.as_str());
        event.build().expect("well formed")
    };
    let events = [
        event("order.paid", &QueueName::default()),
        event("order.sent", &QueueName::default()),
        event("order.paid", &mail),
    ];
    let written = store.enqueue(&events).await.expect("enqueue");
    let ids: Vec<ItemId> = written.iter().map(|answer| answer.id()).collect();
    for queue in [QueueName::default(), mail.clone()] {
        let holder = fresh("worker");
        let claim = ask(&holder, 9, T0).queues(vec![queue]);
        let held = world.try_claim(claim).await.expect("some");
        let mut settle = Settle::new(holder).at(T0);
        for id in held.ids() {
            settle = settle.item(id, retry(60));
        }
        assert_eq!(world.settle(settle).await.refused().count(), 0);
    }
    assert_eq!(listed(store, &mut list(DelayedIn::Queues)).await, ids);
    assert_eq!(
        listed(store, &mut list(DelayedIn::Queue(mail))).await,
        ids[2..]
    );
    let mut paid = list(DelayedIn::Queues);
    paid.topic = Some("order.paid".to_owned());
    assert_eq!(listed(store, &mut paid).await, [ids[0], ids[2]]);
    let mut later = list(DelayedIn::Queues);
    later.now = Some(at(61));
    assert_eq!(listed(store, &mut later).await, [], "they are due");
    let unknown = DelayedIn::Queue(QueueName::new("nosuch").expect("a name"));
    store
        .delayed(&list(unknown))
        .await
        .expect_err("no such queue");
}

async fn delayed_items_are_listed_in_steps(world: &dyn World) {
    let ids = world.add(1001).await;
    let mut waiting = fail(world, 1001).await;
    waiting.sort_unstable();
    assert_eq!(waiting, ids);
    let store = outbox(world);
    let mut list = list(DelayedIn::Queues);
    assert_eq!(listed(store, &mut list).await, ids[..1000]);
    assert!(list.after.is_some());
    // Items that are due meanwhile do not move the position.
    retry_now(world, &ids[..1000], 1).await;
    assert_eq!(listed(store, &mut list).await, ids[1000..]);
    assert_eq!(list.after, None);
}
