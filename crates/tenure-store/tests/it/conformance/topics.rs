//! Topics: a claim takes only those that it names, and leaves the other events as they were.

use tenure_core::store::{Filter, Pause};
use tenure_core::{Guarded, ItemId, NewEvent, Outcome, QueueName, Token, TopicPattern, TopicSet};

use super::keys::enqueue;
use crate::world::{T0, World, ask, at, fresh, retry};

on_every_queue!(
    a_claim_takes_only_its_topics,
    an_event_of_another_topic_stays_as_it_was,
    a_new_event_of_a_separate_topic_is_claimed,
    a_claim_of_no_topic_takes_nothing,
    a_head_of_another_topic_holds_back_its_key,
    a_run_stops_before_an_item_of_another_topic,
    a_separate_topic_keeps_its_priorities,
    a_paused_queue_pauses_its_separate_topics,
    a_queue_has_the_events_of_its_separate_topics,
    a_poison_event_of_another_topic_is_set_aside,
    many_events_of_another_topic_hide_none,
    events_beyond_the_limit_of_a_claim_are_set_aside_as_they_were,
    due_topics_are_those_of_due_events,
    topics_beyond_the_maximum_are_delayed,
);

fn topics(patterns: &[&str]) -> TopicSet {
    let patterns = patterns.iter();
    patterns
        .map(|text| TopicPattern::new(text).expect("a pattern"))
        .collect()
}

async fn put(world: &dyn World, events: impl IntoIterator<Item = NewEvent>) -> Vec<ItemId> {
    let events = events
        .into_iter()
        .map(|event| event.build().expect("an event"));
    enqueue(world, &events.collect::<Vec<_>>()).await
}

async fn add(world: &dyn World, topics: &[&str]) -> Vec<ItemId> {
    let events = topics.iter().map(|topic| NewEvent::new(topic, &7));
    put(world, events).await
}

/// Claims up to nine items of these topics, in the order of their ids.
async fn claim(world: &dyn World, patterns: &[&str], now: u64) -> Vec<ItemId> {
    let claim = ask(&fresh("worker"), 9, at(now)).topics(topics(patterns));
    let held = world.try_claim(claim).await;
    let mut ids = held.map(|held| held.ids()).unwrap_or_default();
    ids.sort_unstable();
    ids
}

/// Claims these items, which must be those that are due of these topics.
async fn claim_by(world: &dyn World, patterns: &[&str], ids: &[ItemId]) -> Token {
    let holder = fresh("worker");
    let claim = ask(&holder, 9, T0).topics(topics(patterns));
    let held = world.try_claim(claim).await.expect("some are due");
    assert_eq!(held.ids(), ids);
    holder
}

async fn a_claim_takes_only_its_topics(world: &dyn World) {
    let ids = add(
        world,
        &["mail.send", "order.paid", "mail.sent", "order.sent"],
    )
    .await;
    assert_eq!(claim(world, &["order.*"], 0).await, [ids[1], ids[3]]);
    assert_eq!(claim(world, &["order.*"], 0).await, []);
    assert_eq!(claim(world, &["mail.sent", "x"], 0).await, [ids[2]]);
    assert_eq!(claim(world, &["*"], 0).await, [ids[0]]);
}

/// It costs the event neither an attempt nor a place in its timeline.
async fn an_event_of_another_topic_stays_as_it_was(world: &dyn World) {
    let ids = add(world, &["mail.send", "order.paid"]).await;
    let before = world.record(ids[0]).await;
    assert_eq!(claim(world, &["order.*"], 1).await, [ids[1]]);
    assert_eq!(claim(world, &["order.*"], 2).await, []);
    assert_eq!(world.record(ids[0]).await, before);
    let holds = world.operate().timeline(ids[0]).await.unwrap();
    assert_eq!(holds, []);
    assert_eq!(claim(world, &["mail.*"], 3).await, [ids[0]]);
}

async fn a_new_event_of_a_separate_topic_is_claimed(world: &dyn World) {
    let first = add(world, &["mail.send"]).await;
    assert_eq!(claim(world, &["order.*"], 0).await, []);
    let second = add(world, &["mail.send", "order.paid"]).await;
    assert_eq!(claim(world, &["order.*"], 0).await, [second[1]]);
    assert_eq!(claim(world, &["mail.*"], 0).await, [first[0], second[0]]);
}

async fn a_claim_of_no_topic_takes_nothing(world: &dyn World) {
    let ids = add(world, &["mail.send"]).await;
    assert_eq!(claim(world, &[], 0).await, []);
    assert_eq!(claim(world, &["*"], 0).await, ids);
}

/// Order within a key comes first: an item waits for the head, whoever takes that.
async fn a_head_of_another_topic_holds_back_its_key(world: &dyn World) {
    let events = ["mail.send", "order.paid"].map(|topic| NewEvent::new(topic, &7).key("ann"));
    let ids = put(world, events).await;
    assert_eq!(claim(world, &["order.*"], 0).await, []);
    let holder = fresh("mailer");
    let claim_mail = ask(&holder, 9, T0).topics(topics(&["mail.*"]));
    let held = world.try_claim(claim_mail).await.expect("it is the head");
    assert_eq!(held.ids(), [ids[0]]);
    let answer = world.settle_one(&holder, ids[0], Outcome::Done, T0).await;
    assert_eq!(answer, Guarded::Accepted(()));
    assert_eq!(claim(world, &["order.*"], 0).await, [ids[1]]);
}

async fn a_run_stops_before_an_item_of_another_topic(world: &dyn World) {
    let events = ["a", "a", "b", "a"].map(|topic| NewEvent::new(topic, &7).key("ann"));
    let ids = put(world, events).await;
    let holder = fresh("worker");
    let runs = ask(&holder, 4, T0).min_parallel(1).topics(topics(&["a"]));
    let held = world.try_claim(runs).await.expect("it is the head");
    assert_eq!(held.ids(), ids[..2]);
    for id in &ids[..2] {
        let answer = world.settle_one(&holder, *id, Outcome::Done, T0).await;
        assert_eq!(answer, Guarded::Accepted(()));
    }
    assert_eq!(claim(world, &["a"], 0).await, []);
    assert_eq!(claim(world, &["b"], 0).await, [ids[2]]);
}

async fn a_separate_topic_keeps_its_priorities(world: &dyn World) {
    let events = [1, 7, 4].map(|n| NewEvent::new("mail.send", &n).priority(n));
    let ids = put(world, events).await;
    assert_eq!(claim(world, &["order.*"], 0).await, []);
    for id in [ids[1], ids[2], ids[0]] {
        let claim = ask(&fresh("worker"), 1, T0).topics(topics(&["mail.*"]));
        assert_eq!(
            world.try_claim(claim).await.expect("one is due").ids(),
            [id]
        );
    }
}

async fn a_paused_queue_pauses_its_separate_topics(world: &dyn World) {
    let store = world.outbox().expect("it is an outbox");
    let ids = add(world, &["mail.send"]).await;
    assert_eq!(claim(world, &["order.*"], 0).await, []);
    let queue = QueueName::default();
    let paused = store.pause_queue(&queue, Pause::Begin).await.unwrap();
    assert!(paused.is_accepted());
    assert_eq!(claim(world, &["mail.*"], 0).await, []);
    let resumed = store.pause_queue(&queue, Pause::End).await.unwrap();
    assert!(resumed.is_accepted());
    assert_eq!(claim(world, &["mail.*"], 0).await, ids);
}

async fn a_queue_has_the_events_of_its_separate_topics(world: &dyn World) {
    let store = world.outbox().expect("it is an outbox");
    let old = add(world, &["mail.send", "order.paid"]).await;
    assert_eq!(claim(world, &["order.*"], 0).await, [old[1]]);
    let new = add(world, &["mail.send"]).await;
    let separate = store.separate_topics(Some(at(5))).await.unwrap();
    let [topic] = &separate[..] else {
        panic!("{separate:?}");
    };
    assert_eq!(
        (topic.queue.as_str(), &*topic.topic),
        ("default", "mail.send")
    );
    assert_eq!((topic.due, topic.delayed), (2, 0));
    assert!(topic.oldest_due.is_some());
    let counts = store.count(Some(at(5))).await.unwrap();
    let waiting: Vec<_> = counts
        .queues
        .iter()
        .map(|(name, of)| (name.as_str(), of.due))
        .collect();
    assert_eq!(waiting, [("default", 2)]);
    let queues = store.queues().await.unwrap();
    assert_eq!(queues.len(), 1);
    let filter = Filter {
        queue: Some(QueueName::default()),
        ..Filter::default()
    };
    let listed = store.list(&filter, 9).await.unwrap().records;
    let listed: Vec<ItemId> = listed.iter().map(|record| record.id).collect();
    assert_eq!(listed, [new[0], old[1], old[0]]);
}

/// An event that must be claimed alone is set aside like any other.
async fn a_poison_event_of_another_topic_is_set_aside(world: &dyn World) {
    let ids = add(world, &["mail.send"]).await;
    for n in 0..2 {
        assert_eq!(claim(world, &["mail.*"], 100 * n).await, ids);
        assert_eq!(world.reap_at(at(100 * n + 60)).await.len(), 1);
    }
    let alone = |patterns: &[&str]| {
        ask(&fresh("worker"), 1, at(300))
            .alone()
            .topics(topics(patterns))
    };
    assert_eq!(world.try_claim(alone(&["order.*"])).await, None);
    let held = world
        .try_claim(alone(&["mail.*"]))
        .await
        .expect("it must be alone");
    assert_eq!(held.ids(), ids);
    assert_eq!(world.counters(ids[0]).await.crashes, 2);
}

/// More than one claim sets aside; none of them keeps an item that it does not return.
async fn many_events_of_another_topic_hide_none(world: &dyn World) {
    let mut all = vec!["mail.send"; 20_000];
    all.extend(["order.paid"; 3]);
    all.extend(["mail.send"; 20]);
    let ids = add(world, &all).await;
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.extend(claim(world, &["order.*"], 0).await);
    }
    assert_eq!(taken, ids[20_000..20_003]);
    let store = world.outbox().expect("it is an outbox");
    assert_eq!(store.count(Some(at(0))).await.unwrap().claimed, 3);
    assert_eq!(claim(world, &["mail.*"], 0).await.len(), 9);
}

/// A claim of one event sets aside many: it reads the first, whose topic becomes separate, and
/// moves the others of that topic, of every priority. Heads of keys stay heads.
async fn events_beyond_the_limit_of_a_claim_are_set_aside_as_they_were(world: &dyn World) {
    let mail = |n: u8| NewEvent::new("mail.send", &n).priority(n);
    let tried = put(world, [mail(5), mail(5)]).await;
    let holder = claim_by(world, &["mail.*"], &tried).await;
    for (id, outcome) in tried.iter().zip([retry(0), retry(60)]) {
        let answer = world.settle_one(&holder, *id, outcome, T0).await;
        assert_eq!(answer, Guarded::Accepted(()));
    }
    let new = [
        mail(1),
        NewEvent::new("tax.due", &7).priority(5),
        mail(1).key("ann"),
        mail(1).key("ann"),
        mail(7),
        NewEvent::new("tax.due", &7).priority(2),
        mail(1),
        mail(4),
        NewEvent::new("order.paid", &7),
    ];
    let ids = [tried, put(world, new).await].concat();
    let (last, others) = ids.split_last().expect("there are eleven");
    let mut before = Vec::new();
    for id in others {
        before.push(world.record(*id).await);
    }
    let one = |patterns: &[&str]| ask(&fresh("worker"), 1, T0).topics(topics(patterns));
    // A claim that ends with events of other topics goes on at the next one.
    let mut held = None;
    for _ in 0..3 {
        if held.is_none() {
            held = world.try_claim(one(&["order.*"])).await;
        }
    }
    assert_eq!(held.expect("one is due").ids(), [*last]);
    for (id, before) in others.iter().zip(before) {
        assert_eq!(world.record(*id).await, before);
    }
    assert_eq!(claim(world, &["tax.*"], 0).await, [ids[3], ids[7]]);
    let mut taken = Vec::new();
    for _ in 0..7 {
        let claim = one(&["mail.*"]);
        let holder = claim.token.clone();
        let held = world.try_claim(claim).await.expect("one is due").ids();
        assert_eq!(world.try_claim(one(&["order.*"])).await, None);
        let answer = world.settle_one(&holder, held[0], Outcome::Done, T0).await;
        assert_eq!(answer, Guarded::Accepted(()));
        taken.extend(held);
    }
    assert_eq!(taken[..3], [ids[6], ids[0], ids[9]], "by priority");
    let place = |id: ItemId| taken.iter().position(|taken| *taken == id);
    assert!(place(ids[4]) < place(ids[5]), "the key is in order");
    taken.sort_unstable();
    assert_eq!(taken, [0, 2, 4, 5, 6, 8, 9].map(|n| ids[n]));
    assert_eq!(claim(world, &["*"], 59).await, []);
    assert_eq!(claim(world, &["*"], 60).await, [ids[1]]);
}

async fn due_topics_are_those_of_due_events(world: &dyn World) {
    let store = world.outbox().expect("it is an outbox");
    let (queue, separate) = (QueueName::default(), Some("mail.send".to_owned()));
    let due = async |now| store.due_topics(Some(at(now))).await.unwrap();
    assert_eq!(due(0).await, []);
    let first = add(world, &["mail.send", "order.paid"]).await;
    let events = ["order.paid", "mail.send"].map(|topic| NewEvent::new(topic, &7).key("ann"));
    let heads = put(world, events).await;
    let holder = claim_by(world, &["order.*"], &[first[1], heads[0]]).await;
    // What is held, or waits behind a head, is not due.
    assert_eq!(due(0).await, [(queue.clone(), separate.clone())]);
    assert_eq!(claim(world, &["mail.*"], 0).await.len(), 1);
    assert_eq!(due(0).await, []);
    let answer = world.settle_one(&holder, heads[0], Outcome::Done, T0).await;
    assert_eq!(answer, Guarded::Accepted(()));
    assert_eq!(claim(world, &["order.*"], 0).await, []);
    assert_eq!(due(0).await, [(queue.clone(), separate.clone())]);
    let tax = add(world, &["tax.due"]).await;
    let holder = claim_by(world, &["tax.*"], &tax).await;
    let answer = world.settle_one(&holder, tax[0], retry(600), T0).await;
    assert_eq!(answer, Guarded::Accepted(()));
    assert_eq!(due(599).await, [(queue.clone(), separate.clone())]);
    let all = [(queue.clone(), None), (queue.clone(), separate)];
    assert_eq!(due(600).await, all);
    let paused = store.pause_queue(&queue, Pause::Begin).await.unwrap();
    assert!(paused.is_accepted());
    assert_eq!(due(600).await, []);
    let resumed = store.pause_queue(&queue, Pause::End).await.unwrap();
    assert!(resumed.is_accepted());
    assert_eq!(due(600).await, all);
}

/// A queue has at most a thousand separate topics; events of others wait a minute at a time.
async fn topics_beyond_the_maximum_are_delayed(world: &dyn World) {
    let names: Vec<String> = (0..1_010).map(|n| format!("mail.{n}")).collect();
    let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
    all.push("order.paid");
    let ids = add(world, &all).await;
    assert_eq!(claim(world, &["order.*"], 0).await, ids[1_010..]);
    assert_eq!(claim(world, &["order.*"], 0).await, []);
    let mut taken = Vec::new();
    for now in [100, 200, 300] {
        let claim = ask(&fresh("worker"), 2_000, at(now)).topics(topics(&["mail.*"]));
        taken.extend(
            world
                .try_claim(claim)
                .await
                .map(|held| held.ids())
                .unwrap_or_default(),
        );
    }
    taken.sort_unstable();
    assert_eq!(taken, ids[..1_010]);
}
