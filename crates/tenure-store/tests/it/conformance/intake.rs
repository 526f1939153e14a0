//! Enqueue and queues: accepted and refused events, and the order of claims. These checks run on
//! the built-in outbox; the rows of a lease table come from its owner.

use std::time::Duration;

use tenure_core::store::{Enqueued, Filter, Pause, QueueRules, Store, StoreError, StoreErrorKind};
use tenure_core::{
    Encoding, Event, Guarded, ItemId, NewEvent, Priority, QueueName, Refusal, RetryRules, State,
    Term,
};
use uuid::Uuid;

use crate::world::{T0, TICK, World, ask, fresh};

on_every_queue!(
    a_new_event_is_pending,
    an_event_comes_back_as_it_was_given,
    bytes_come_back_as_bytes,
    the_event_id_can_be_chosen,
    a_large_payload_comes_back_whole,
    many_events_are_written_in_one_call,
    enqueueing_nothing_writes_nothing,
    a_delay_is_kept_to_the_microsecond,
    events_of_a_higher_priority_come_first,
    a_dedupe_key_is_taken_once,
    of_events_with_one_dedupe_key_in_a_call_the_first_is_written,
    a_dedupe_key_stays_taken_when_its_event_is_done,
    an_unknown_queue_is_refused_with_a_hint,
    an_invalid_event_makes_the_whole_call_fail,
    the_first_queue_is_served_first,
    a_claim_takes_nothing_from_queues_that_it_does_not_name,
    a_paused_queue_is_not_claimed,
    a_queue_that_is_added_again_gets_other_rules,
    a_poison_item_is_claimed_only_from_its_queue,
);

fn event(topic: &str) -> Event {
    Event::from_json(topic, "1").expect("the event is well formed")
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a queue's name")
}

fn outbox(world: &dyn World) -> &dyn Store {
    world
        .outbox()
        .expect("these checks run in the queue layout")
}

async fn enqueue(world: &dyn World, events: &[Event]) -> Vec<Enqueued> {
    outbox(world).enqueue(events).await.expect("enqueue")
}

async fn enqueue_one(world: &dyn World, event: Event) -> ItemId {
    enqueue(world, &[event]).await[0].id()
}

async fn add_queue(world: &dyn World, name: &str) {
    outbox(world)
        .add_queue(&queue(name), QueueRules::default())
        .await
        .expect("add a queue");
}

async fn claim_from(world: &dyn World, queues: &[&str], limit: u32) -> Vec<ItemId> {
    let queues = queues.iter().map(|name| queue(name)).collect();
    let claim = ask(&fresh("worker"), limit, T0).queues(queues);
    let held = world.try_claim(claim).await;
    held.map(|held| held.ids()).unwrap_or_default()
}

/// Proves: S4-002, S4-003
async fn a_new_event_is_pending(world: &dyn World) {
    let answers = enqueue(world, &[event("order.paid")]).await;
    assert!(answers[0].is_fresh());
    let record = world.record(answers[0].id()).await;
    assert_eq!(record.state, State::Pending);
    assert_eq!((record.hold, record.last_error), (None, None));
    assert_eq!((record.done_at, record.dead_at), (None, None));
    assert_eq!(record.counters, tenure_core::Counters::default());
    assert_eq!(record.available_at, Some(record.created_at));
}

/// Proves: S1-007
async fn an_event_comes_back_as_it_was_given(world: &dyn World) {
    add_queue(world, "mail").await;
    let payload = "{ \"b\":1,\"a\" : 1.0, \"b\": 2, \"z\":\"\\u0001]ß😀\" }";
    let given = NewEvent::from_json("order.paid", payload)
        .queue("mail")
        .header("Trace", "ä'\"\\ b")
        .header("x-empty", "")
        .priority(Priority::MAX.level())
        .build()
        .expect("the event is well formed");
    let answers = enqueue(world, std::slice::from_ref(&given)).await;
    let Enqueued::Fresh { id, event_id } = answers[0] else {
        panic!("it was not there before");
    };
    let claim = ask(&fresh("worker"), 1, T0).queues(vec![queue("mail")]);
    let held = world.try_claim(claim).await.expect("there is an event");
    let record = world.record(id).await;
    for content in [&held.items[0].content, &record.content] {
        let event = content.event().expect("the outbox holds events");
        assert_eq!(event.topic(), given.topic());
        assert_eq!(event.payload(), payload, "byte for byte");
        assert_eq!(event.encoding(), None);
        assert_eq!(event.headers(), given.headers());
        assert_eq!(event.queue(), given.queue());
        assert_eq!(event.priority(), Priority::MAX);
        assert_eq!(event.event_id(), Some(event_id));
    }
}

async fn bytes_come_back_as_bytes(world: &dyn World) {
    let bytes = [0_u8, 255, 10, 13, 0];
    enqueue(world, &[Event::from_bytes("file.stored", &bytes).unwrap()]).await;
    let held = world.claim(&fresh("worker"), 1, T0).await;
    let event = held.items[0].content.event().expect("an event");
    assert_eq!(event.encoding(), Some(Encoding::Base64));
    assert_eq!(event.payload_bytes().unwrap(), bytes);
}

async fn the_event_id_can_be_chosen(world: &dyn World) {
    let chosen = Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001);
    let answers = enqueue(
        world,
        &[
            NewEvent::from(event("a")).event_id(chosen).build().unwrap(),
            event("b"),
            event("c"),
        ],
    )
    .await;
    let keys: Vec<Uuid> = answers
        .iter()
        .map(|answer| match answer {
            Enqueued::Fresh { event_id, .. } => *event_id,
            Enqueued::Existed { .. } => panic!("nothing was there before"),
        })
        .collect();
    assert_eq!(keys[0], chosen);
    assert_ne!(keys[1], keys[2], "generated ids differ");
    let record = world.record(answers[0].id()).await;
    assert_eq!(record.content.event().unwrap().event_id(), Some(chosen));
}

async fn a_large_payload_comes_back_whole(world: &dyn World) {
    let text = "x".repeat(tenure_core::PAYLOAD_BYTES_MAX - 2);
    let payload = format!("\"{text}\"");
    enqueue(world, &[Event::from_json("big", payload.clone()).unwrap()]).await;
    let held = world.claim(&fresh("worker"), 1, T0).await;
    let event = held.items[0].content.event().expect("an event");
    assert!(event.payload() == payload, "1 MiB came back different");
}

/// Proves: S4-058
async fn many_events_are_written_in_one_call(world: &dyn World) {
    let events: Vec<Event> = (0..250).map(|n| event(&format!("topic-{n}"))).collect();
    let answers = enqueue(world, &events).await;
    let ids: Vec<ItemId> = answers.iter().map(|answer| answer.id()).collect();
    assert!(ids.is_sorted() && ids.len() == 250, "answered in order");
    let records = world.operate().find(&ids).await.expect("find");
    for (id, event) in ids.iter().zip(&events) {
        let record = records.iter().find(|record| record.id == *id);
        let content = &record.expect("it was written").content;
        assert_eq!(content.event().unwrap().topic(), event.topic());
    }
    assert_eq!(world.drain("worker", T0).await, ids, "and claimed in order");
}

async fn enqueueing_nothing_writes_nothing(world: &dyn World) {
    let before = world.dump().await;
    assert!(enqueue(world, &[]).await.is_empty());
    assert_eq!(world.dump().await, before);
}

/// Proves: S4-015
async fn a_delay_is_kept_to_the_microsecond(world: &dyn World) {
    let delay = Duration::from_micros(3_600_000_001);
    let id = enqueue_one(
        world,
        NewEvent::from(event("later")).delay(delay).build().unwrap(),
    )
    .await;
    let record = world.record(id).await;
    let due = record.available_at.expect("it has a time");
    assert_eq!(due, record.created_at.after(delay));
    let early = ask(&fresh("worker"), 1, due.before(TICK));
    assert!(world.try_claim(early).await.is_none());
    assert_eq!(world.claim(&fresh("worker"), 1, due).await.ids(), [id]);
}

async fn events_of_a_higher_priority_come_first(world: &dyn World) {
    let levels = [0, 7, 3, 7, 0, 5];
    let events: Vec<Event> = levels
        .iter()
        .map(|level| {
            NewEvent::from(event("t"))
                .priority(Priority::new(*level).unwrap().level())
                .build()
                .unwrap()
        })
        .collect();
    let answers = enqueue(world, &events).await;
    let ids: Vec<ItemId> = answers.iter().map(|answer| answer.id()).collect();
    let expected = [1, 3, 5, 2, 0, 4].map(|nth: usize| ids[nth]);
    assert_eq!(
        world.claim(&fresh("worker"), 4, T0).await.ids(),
        expected[..4]
    );
    assert_eq!(
        world.claim(&fresh("worker"), 9, T0).await.ids(),
        expected[4..]
    );
}

async fn a_dedupe_key_is_taken_once(world: &dyn World) {
    let first = enqueue(
        world,
        &[NewEvent::from(event("a"))
            .dedupe("order-7")
            .build()
            .unwrap()],
    )
    .await;
    assert!(first[0].is_fresh());
    let again = enqueue(
        world,
        &[
            NewEvent::from(event("b"))
                .dedupe("order-7")
                .build()
                .unwrap(),
            NewEvent::from(event("c"))
                .dedupe("order-8")
                .build()
                .unwrap(),
        ],
    )
    .await;
    assert_eq!(again[0], Enqueued::Existed { id: first[0].id() });
    assert!(again[1].is_fresh());
    let topics = topics(world).await;
    assert_eq!(topics, ["c", "a"], "the second one was not written");
}

async fn of_events_with_one_dedupe_key_in_a_call_the_first_is_written(world: &dyn World) {
    let events = ["a", "b", "c"].map(|topic| {
        NewEvent::from(event(topic))
            .dedupe("order-7")
            .build()
            .unwrap()
    });
    let answers = enqueue(world, &events).await;
    assert!(answers[0].is_fresh());
    for answer in &answers[1..] {
        assert_eq!(
            *answer,
            Enqueued::Existed {
                id: answers[0].id()
            }
        );
    }
    assert_eq!(topics(world).await, ["a"]);
}

async fn a_dedupe_key_stays_taken_when_its_event_is_done(world: &dyn World) {
    let unique = NewEvent::from(event("a"))
        .dedupe("order-7")
        .build()
        .unwrap();
    let id = enqueue_one(world, unique.clone()).await;
    let holder = fresh("worker");
    world.claim(&holder, 1, T0).await;
    let kept = world
        .settle_one(&holder, id, tenure_core::Outcome::Done, T0)
        .await;
    assert_eq!(kept, Guarded::Accepted(()));
    assert_eq!(enqueue(world, &[unique]).await, [Enqueued::Existed { id }]);
}

/// The topics of all events, newest first.
async fn topics(world: &dyn World) -> Vec<String> {
    let page = world
        .operate()
        .list(&Filter::default(), 100)
        .await
        .expect("list");
    let topic = |record: &tenure_core::Record| record.content.event().unwrap().topic().to_owned();
    page.records.iter().map(topic).collect()
}

fn is_refused_with_hint<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let error = answer.expect_err("an unknown queue is refused");
    assert_eq!(error.kind(), StoreErrorKind::Invalid, "{error}");
    assert!(
        error.to_string().contains("letters"),
        "{error} names the queue"
    );
    assert!(error.hint().is_some(), "{error} says what to do");
}

async fn an_unknown_queue_is_refused_with_a_hint(world: &dyn World) {
    let before = world.dump().await;
    let stray = NewEvent::from(event("a")).queue("letters").build().unwrap();
    is_refused_with_hint(outbox(world).enqueue(&[stray]).await);
    let claim = ask(&fresh("worker"), 1, T0).queues(vec![queue("letters")]);
    is_refused_with_hint(outbox(world).claim(&claim).await);
    let filter = Filter {
        queue: Some(queue("letters")),
        ..Filter::default()
    };
    is_refused_with_hint(outbox(world).list(&filter, 1).await);
    let answer = outbox(world)
        .pause_queue(&queue("letters"), Pause::Begin)
        .await;
    assert_eq!(answer.expect("pause"), Guarded::Refused(Refusal::NotFound));
    assert_eq!(world.dump().await, before);
}

async fn an_invalid_event_makes_the_whole_call_fail(world: &dyn World) {
    let before = world.dump().await;
    let events = [
        NewEvent::from(event("good"))
            .dedupe("order-7")
            .build()
            .unwrap(),
        NewEvent::from(event("bad"))
            .queue("letters")
            .build()
            .unwrap(),
        event("good"),
    ];
    is_refused_with_hint(outbox(world).enqueue(&events).await);
    assert_eq!(world.dump().await, before, "all of them or none");
    assert!(
        enqueue(world, &events[..1]).await[0].is_fresh(),
        "the key is free"
    );
}

async fn the_first_queue_is_served_first(world: &dyn World) {
    add_queue(world, "mail").await;
    add_queue(world, "audit").await;
    let events = ["default", "mail", "audit", "mail"]
        .map(|name| NewEvent::from(event("t")).queue(name).build().unwrap());
    let answers = enqueue(world, &events).await;
    let ids: Vec<ItemId> = answers.iter().map(|answer| answer.id()).collect();
    let order = ["audit", "mail", "default"];
    assert_eq!(claim_from(world, &order, 2).await, [ids[2], ids[1]]);
    assert_eq!(claim_from(world, &order, 9).await, [ids[3], ids[0]]);
}

async fn a_claim_takes_nothing_from_queues_that_it_does_not_name(world: &dyn World) {
    add_queue(world, "mail").await;
    let mail = enqueue_one(
        world,
        NewEvent::from(event("t")).queue("mail").build().unwrap(),
    )
    .await;
    let other = enqueue_one(world, event("t")).await;
    assert_eq!(claim_from(world, &["default"], 9).await, [other]);
    assert!(claim_from(world, &[], 9).await.is_empty());
    assert_eq!(claim_from(world, &["mail"], 9).await, [mail]);
}

async fn a_paused_queue_is_not_claimed(world: &dyn World) {
    add_queue(world, "mail").await;
    let mail = enqueue_one(
        world,
        NewEvent::from(event("t")).queue("mail").build().unwrap(),
    )
    .await;
    let other = enqueue_one(world, event("t")).await;
    let set = |pause| async move {
        let answer = outbox(world).pause_queue(&queue("mail"), pause).await;
        assert_eq!(answer.expect("pause"), Guarded::Accepted(()));
    };
    set(Pause::Begin).await;
    assert_eq!(claim_from(world, &["mail", "default"], 9).await, [other]);
    assert!(claim_from(world, &["mail"], 9).await.is_empty());
    set(Pause::End).await;
    assert_eq!(claim_from(world, &["mail", "default"], 9).await, [mail]);
}

async fn a_queue_that_is_added_again_gets_other_rules(world: &dyn World) {
    let mail = queue("mail");
    let retry = RetryRules {
        max_retries: Some(u32::MAX),
        base: Some(Duration::from_millis(1)),
        cap: Some(Duration::from_hours(720)),
    };
    let few = RetryRules {
        max_retries: Some(0),
        ..RetryRules::default()
    };
    for (term, retry) in [
        (None, RetryRules::default()),
        (Some(Term::HEAVY), retry),
        (Some(Term::EXTERNAL), few),
    ] {
        let rules = QueueRules { term, retry };
        let added = outbox(world).add_queue(&mail, rules).await;
        added.expect("add a queue");
        let queues = outbox(world).queues().await.expect("queues");
        let names: Vec<&str> = queues.iter().map(|queue| queue.name.as_str()).collect();
        assert_eq!(names, ["default", "mail"], "by name, each once");
        assert_eq!((queues[1].rules, queues[1].paused), (rules, false));
        assert_eq!(queues[0].rules, QueueRules::default());
    }
    let mut wrong = QueueRules::default();
    wrong.retry.cap = Some(Duration::from_hours(721));
    let refused = outbox(world).add_queue(&mail, wrong).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Invalid, "{refused}");
    // New rules do not end the pause.
    let answer = outbox(world).pause_queue(&mail, Pause::Begin).await;
    assert_eq!(answer.expect("pause"), Guarded::Accepted(()));
    outbox(world)
        .add_queue(&mail, QueueRules::default())
        .await
        .expect("add a queue");
    assert!(outbox(world).queues().await.expect("queues")[1].paused);
}

/// A worker must not get poison items of queues that it does not serve.
async fn a_poison_item_is_claimed_only_from_its_queue(world: &dyn World) {
    add_queue(world, "mail").await;
    let id = enqueue_one(
        world,
        NewEvent::from(event("t")).queue("mail").build().unwrap(),
    )
    .await;
    for n in 1..=2 {
        let now = crate::world::at(100 * n);
        let claim = ask(&fresh("victim"), 1, now).queues(vec![queue("mail")]);
        assert!(world.try_claim(claim).await.is_some());
        assert_eq!(world.reap_at(crate::world::at(100 * n + 50)).await.len(), 1);
    }
    let later = crate::world::at(300);
    let alone = |name| {
        ask(&fresh("worker"), 1, later)
            .queues(vec![queue(name)])
            .alone()
    };
    assert!(world.try_claim(alone("default")).await.is_none());
    let held = world.try_claim(alone("mail")).await.expect("it is there");
    assert_eq!(held.ids(), [id]);
}
