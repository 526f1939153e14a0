//! Webhooks: endpoints, their deliveries, and the records of calls.

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
use tenure_core::{
    Event, Guarded, Held, ItemId, NewEvent, Outcome, Record, Timestamp, Token, TopicPattern,
};

use super::Check;
use crate::world::{T0, World, ask, fresh};

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

/// The lane of deliveries with the default priority.
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

/// Tries to add an endpoint for these topics at [`T0`].
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

/// A stored endpoint.
async fn delivery_states(world: &dyn World, name: &str) -> Endpoint {
    let found = hooks(world).endpoint(&id(name)).await.expect("endpoint");
    found.expect("it is known")
}

/// A change without effect.
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
    let before = delivery_states(world, name).await;
    let asked = ChangeEndpoint {
        state,
        ..unchanged(&before, now)
    };
    match change(world, asked).await {
        Guarded::Accepted(endpoint) => endpoint,
        Guarded::Refused(why) => panic!("the change of {name} was refused: {why:?}"),
    }
}

/// Returns the state of an endpoint that a person disabled. The store must replace the time in it
/// by its own.
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

/// An event of this key.
fn keyed(topic: &str, key: &str) -> Event {
    NewEvent::from(event(topic))
        .key(key)
        .build()
        .expect("the key is well formed")
}

async fn enqueue(world: &dyn World, events: &[Event]) -> Vec<ItemId> {
    let answers = outbox(world).enqueue(events).await.expect("enqueue");
    answers.iter().map(|answer| answer.id()).collect()
}

/// A settle of all events of a lease as done, with deliveries.
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

/// Enqueues events and settles them as done, so that they get deliveries.
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

/// Runs a claim at a time when no item is due: on PostgreSQL, a claim chooses the heads of keys.
async fn place(world: &dyn World) {
    let claim = ask(&fresh("placer"), 1, Timestamp::from_micros(0));
    assert_eq!(world.try_claim(claim).await, None);
}

/// Lanes with due deliveries.
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

/// Claims up to `limit` deliveries of default priority of an endpoint.
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

/// Claims the deliveries of an endpoint; returns their events.
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

/// The deliveries of a filter, oldest first.
async fn list(world: &dyn World, filter: Filter) -> Vec<Record> {
    let filter = Filter {
        kind: Kind::Deliveries,
        ..filter
    };
    let page = world.operate().list(&filter, 100).await.expect("list");
    assert_eq!(page.next, None);
    page.records.into_iter().rev().collect()
}

/// Events and endpoint numbers of all deliveries, sorted.
async fn deliveries_of(world: &dyn World) -> Vec<(ItemId, u32)> {
    let all = deliveries(world).await;
    let mut owed: Vec<(ItemId, u32)> = all
        .iter()
        .filter_map(|record| record.content.delivery())
        .map(|delivery| (delivery.source, delivery.endpoint))
        .collect();
    owed.sort();
    owed
}

/// Creates one endpoint and one delivery, held since `now`.
async fn held_delivery(world: &dyn World, now: Timestamp) -> (Endpoint, Held) {
    let endpoint = add(world, "billing", &["*"]).await;
    publish_one(world, "order.paid", now).await;
    let held = take(world, &endpoint, now).await;
    assert_eq!(held.items.len(), 1);
    (endpoint, held)
}

/// Returns a call for the first item of a lease, recorded two seconds after its start.
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

/// Returns a settle of the first item of a lease, with this call.
fn told(held: &Held, outcome: Outcome, call: Call, now: Timestamp) -> Settle {
    let settle = Settle::new(held.lease.token.clone());
    let mut settle = settle.item(held.items[0].id, outcome).at(now);
    settle.calls = vec![call];
    settle
}

async fn saved_calls(world: &dyn World, settle: Settle) {
    let answer = world.settle(settle).await;
    assert_eq!(answer.refused().count(), 0, "{:?}", answer.items);
}
