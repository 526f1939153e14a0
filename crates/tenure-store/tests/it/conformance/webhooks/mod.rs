//! Webhooks: endpoints, what is owed to them, and what is known of the calls.

mod calls;
mod endpoints;
mod fan_out;
mod keys;
mod lanes;
mod leases;
mod lists;
mod prune;
mod replays;

use std::time::Duration;

use tenure_core::store::{
    ChangeEndpoint, Due, EndpointLane, Filter, Kind, Settle, Store, Webhooks,
};
use tenure_core::webhook::{
    AttemptOutcome, Call, Disabled, Endpoint, EndpointId, EndpointSettings, EndpointState,
    NewEndpoint, Reply,
};
use tenure_core::{Event, Guarded, Held, ItemId, Outcome, Record, Timestamp, Token, TopicPattern};

use super::Check;
use crate::world::{T0, World, ask, fresh};

/// All checks of webhooks.
pub(crate) const CHECKS: [&[Check]; 9] = [
    endpoints::CHECKS,
    fan_out::CHECKS,
    keys::CHECKS,
    lanes::CHECKS,
    calls::CHECKS,
    leases::CHECKS,
    lists::CHECKS,
    prune::CHECKS,
    replays::CHECKS,
];

/// The lane of deliveries of ordinary urgency.
const USUAL: u8 = 7;

fn outbox(world: &dyn World) -> &dyn Store {
    world
        .outbox()
        .expect("these checks run in the queue layout")
}

fn hooks(world: &dyn World) -> &dyn Webhooks {
    outbox(world).webhooks()
}

fn id(name: &str) -> EndpointId {
    EndpointId::new(name).expect("an endpoint's name")
}

fn settings(topics: &[&str]) -> EndpointSettings {
    let patterns = topics.iter().map(|topic| TopicPattern::new(topic));
    let patterns = patterns.collect::<Result<_, _>>().expect("patterns");
    EndpointSettings::new("https://example.com/hooks", patterns)
}

/// Asks for an endpoint for these topics at [`T0`].
async fn try_add(world: &dyn World, name: &str, topics: &[&str]) -> Option<Endpoint> {
    let endpoint = NewEndpoint {
        id: id(name),
        settings: settings(topics),
        sealed: format!("sealed for {name}"),
    };
    let added = hooks(world).add_endpoint(&endpoint, Some(T0)).await;
    added.expect("add endpoint")
}

/// Adds an endpoint for these topics.
async fn add(world: &dyn World, name: &str, topics: &[&str]) -> Endpoint {
    let added = try_add(world, name, topics).await;
    added.expect("the name is free")
}

/// An endpoint as it is kept.
async fn seen(world: &dyn World, name: &str) -> Endpoint {
    let found = hooks(world).endpoint(&id(name)).await.expect("endpoint");
    found.expect("it is known")
}

/// What leaves an endpoint as it is.
fn unchanged(seen: &Endpoint, now: Timestamp) -> ChangeEndpoint {
    ChangeEndpoint {
        id: seen.id.clone(),
        version: seen.version,
        settings: seen.settings.clone(),
        sealed: seen.sealed.clone(),
        state: seen.state.clone(),
        now: Some(now),
    }
}

async fn change(world: &dyn World, change: ChangeEndpoint) -> Guarded<Endpoint> {
    let answer = hooks(world).change_endpoint(&change).await;
    answer.expect("change endpoint")
}

/// Brings an endpoint into this state.
async fn turn(world: &dyn World, name: &str, state: EndpointState, now: Timestamp) -> Endpoint {
    let before = seen(world, name).await;
    let asked = ChangeEndpoint {
        state,
        ..unchanged(&before, now)
    };
    match change(world, asked).await {
        Guarded::Kept(endpoint) => endpoint,
        Guarded::Refused(why) => panic!("the change of {name} was refused: {why:?}"),
    }
}

/// Disabled by a person; the moment is one that no store may keep.
fn disabled() -> EndpointState {
    EndpointState::Disabled {
        why: Disabled::ByHand("it's being moved".into()),
        since: Timestamp::from_micros(0),
    }
}

const fn removed() -> EndpointState {
    EndpointState::Removed {
        since: Timestamp::from_micros(0),
    }
}

/// An event of this topic.
fn event(topic: &str) -> Event {
    Event::from_json(topic, "{\"n\":1}").expect("the event is well formed")
}

/// One that keeps its order with others of this key.
fn keyed(topic: &str, key: &str) -> Event {
    event(topic).key(key).expect("the key is well formed")
}

async fn enqueue(world: &dyn World, events: &[Event]) -> Vec<ItemId> {
    let answers = outbox(world).enqueue(events).await.expect("enqueue");
    answers.iter().map(|answer| answer.id()).collect()
}

/// What settles all of a lease on events done, and owes them to whoever wants them.
fn done(held: &Held, now: Timestamp) -> Settle {
    let mut settle = Settle::new(held.lease.token.clone())
        .done(held.ids())
        .at(now);
    settle.fan_out = held
        .items
        .iter()
        .map(|item| (item.id, topic_of(item)))
        .collect();
    settle
}

fn topic_of(item: &tenure_core::Item) -> String {
    let event = item.content.event().expect("an event");
    event.topic().to_owned()
}

/// Enqueues events and gets them done, so that they are owed.
async fn publish(world: &dyn World, events: &[Event], now: Timestamp) -> Vec<ItemId> {
    let ids = enqueue(world, events).await;
    while let Some(held) = world.try_claim(ask(&fresh("relay"), 100, now)).await {
        let answer = world.settle(done(&held, now)).await;
        assert_eq!(answer.refused().count(), 0);
    }
    place(world).await;
    ids
}

/// Publishes one event.
async fn publish_one(world: &dyn World, topic: &str, now: Timestamp) -> ItemId {
    publish(world, &[event(topic)], now).await[0]
}

/// A claim for which nothing is due yet: where a fan-out does not decide who is head, claims do.
async fn place(world: &dyn World) {
    let claim = ask(&fresh("placer"), 1, Timestamp::from_micros(0));
    assert_eq!(world.try_claim(claim).await, None);
}

/// What there is to send.
async fn due(world: &dyn World, now: Timestamp) -> Due {
    let mut due = hooks(world)
        .due_deliveries(Some(now))
        .await
        .expect("due deliveries");
    due.lanes.sort();
    due
}

const fn lane(endpoint: &Endpoint, step: u8) -> EndpointLane {
    EndpointLane {
        endpoint: endpoint.number,
        step,
    }
}

/// Claims up to `limit` deliveries of ordinary urgency that are owed to an endpoint.
async fn try_take(
    world: &dyn World,
    (endpoint, limit): (&Endpoint, u32),
    holder: &Token,
    now: Timestamp,
) -> Option<Held> {
    let lanes = vec![(lane(endpoint, USUAL), limit)];
    world.try_claim(ask(holder, limit, now).lanes(lanes)).await
}

/// Claims all deliveries of an endpoint; there must be some.
async fn take(world: &dyn World, endpoint: &Endpoint, now: Timestamp) -> Held {
    let held = try_take(world, (endpoint, 100), &fresh("sender"), now).await;
    held.expect("there are deliveries to claim")
}

/// What is claimed of an endpoint, as the events that are owed.
async fn sources(world: &dyn World, endpoint: &Endpoint, now: Timestamp) -> Vec<ItemId> {
    let held = try_take(world, (endpoint, 100), &fresh("sender"), now).await;
    held.map(|held| sources_of(&held)).unwrap_or_default()
}

fn sources_of(held: &Held) -> Vec<ItemId> {
    let sources = held.items.iter().map(|item| source_of(&item.content));
    sources.collect()
}

fn source_of(content: &tenure_core::Content) -> ItemId {
    content.delivery().expect("a delivery").source
}

/// A page of deliveries, oldest first.
async fn deliveries(world: &dyn World) -> Vec<Record> {
    list(world, Filter::default()).await
}

/// The deliveries that a filter lets through, oldest first.
async fn list(world: &dyn World, filter: Filter) -> Vec<Record> {
    let filter = Filter {
        kind: Kind::Deliveries,
        ..filter
    };
    let page = world.operate().list(&filter, 100).await.expect("list");
    assert_eq!(page.next, None);
    page.records.into_iter().rev().collect()
}

/// What is owed: events and the numbers of endpoints, sorted.
async fn owed(world: &dyn World) -> Vec<(ItemId, u32)> {
    let all = deliveries(world).await;
    let mut owed: Vec<(ItemId, u32)> = all
        .iter()
        .filter_map(|record| record.content.delivery())
        .map(|delivery| (delivery.source, delivery.endpoint))
        .collect();
    owed.sort();
    owed
}

/// The one delivery of a world with one endpoint, held since `now`.
async fn held_delivery(world: &dyn World, now: Timestamp) -> (Endpoint, Held) {
    let endpoint = add(world, "billing", &["*"]).await;
    publish_one(world, "order.paid", now).await;
    let held = take(world, &endpoint, now).await;
    assert_eq!(held.items.len(), 1);
    (endpoint, held)
}

/// A call for the first item of a lease, as told two seconds after it began.
fn call(held: &Held, outcome: AttemptOutcome, status: u16) -> Call {
    Call {
        delivery: held.items[0].id,
        fence: held.lease.fence,
        attempt: held.items[0].counters.attempts + 1,
        ago: Duration::from_secs(2),
        outcome,
        reply: Some(Reply::status(status)),
    }
}

/// Settles the first item of a lease with a call.
fn told(held: &Held, outcome: Outcome, call: Call, now: Timestamp) -> Settle {
    let settle = Settle::new(held.lease.token.clone());
    let mut settle = settle.item(held.items[0].id, outcome).at(now);
    settle.calls = vec![call];
    settle
}

async fn kept(world: &dyn World, settle: Settle) {
    let answer = world.settle(settle).await;
    assert_eq!(answer.refused().count(), 0, "{:?}", answer.items);
}
