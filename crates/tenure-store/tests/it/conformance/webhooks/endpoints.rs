//! Endpoints are added once, changed by version, and never deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::store::{ChangeEndpoint, QueueRules};
use tenure_core::webhook::{
    Disabled, EndpointHealth, EndpointId, EndpointState, NewEndpoint, OnGone, RateLimit, Schedule,
};
use tenure_core::{Guarded, NewEvent, QueueName, Refusal};

use super::{
    add, change, deliveries_of, delivery_states, disabled, due, event, hooks, id, outbox, publish,
    publish_one, removed, settings, try_add, turn, unchanged,
};
use crate::world::{T0, World, ask, at, fresh};

on_every_keeper_of_webhooks!(
    an_endpoint_comes_back_as_it_was_added,
    the_name_of_an_endpoint_is_used_only_once,
    unknown_endpoints_are_not_found,
    endpoints_are_listed_by_name_and_page_by_page,
    a_change_of_an_endpoint_based_on_an_outdated_version_is_refused,
    a_change_replaces_all_settings_of_one_endpoint,
    queues_and_endpoints_have_different_numbers,
    a_disabled_endpoint_has_the_reason_and_the_time,
    enabling_clears_the_health,
    a_removed_endpoint_stays_removed,
    health_is_stored_without_a_new_version,
    every_change_of_an_endpoint_raises_the_version_of_due,
);

async fn an_endpoint_comes_back_as_it_was_added(world: &dyn World) {
    let mut rules = settings(&["order.*", "mail.sent", "*"]);
    rules.url = "https://example.com/hooks?a='b'&c=\"d\"".into();
    rules.description = "for Jürgen's \"books\" \\ 本".into();
    rules.timeout = Duration::from_millis(2500);
    rules.concurrency = 3;
    rules.rate = Some(RateLimit {
        per_second: 5,
        burst: 9,
    });
    rules.schedule =
        Schedule::new(vec![Duration::from_secs(1), Duration::from_mins(3)]).expect("a schedule");
    rules.no_retry = vec![400, 404];
    rules.on_gone = OnGone::Keep;
    rules.metadata = BTreeMap::from([("team".into(), "d'accord".into())]);
    let new = NewEndpoint {
        id: id("billing"),
        settings: rules.clone(),
        sealed: "v1:{\"'\\}".into(),
    };
    let added = hooks(world).add_endpoint(&new, Some(at(7))).await;
    let added = added.expect("add endpoint").expect("the name is free");
    assert_eq!(added.id, id("billing"));
    assert_eq!(added.settings, rules);
    assert_eq!(added.sealed, new.sealed);
    assert_eq!(added.state, EndpointState::Enabled);
    assert_eq!(added.health, EndpointHealth::default());
    assert_eq!(added.created_at, at(7));
    assert_eq!(delivery_states(world, "billing").await, added);
    let all = hooks(world).endpoints(None, 10).await.expect("endpoints");
    assert_eq!(all, [added]);
}

async fn the_name_of_an_endpoint_is_used_only_once(world: &dyn World) {
    let first = add(world, "billing", &["order.*"]).await;
    assert_eq!(try_add(world, "billing", &["mail.*"]).await, None);
    assert_eq!(delivery_states(world, "billing").await, first);
    let gone = turn(world, "billing", removed(), at(1)).await;
    assert_eq!(try_add(world, "billing", &["mail.*"]).await, None);
    assert_eq!(delivery_states(world, "billing").await, gone);
}

async fn unknown_endpoints_are_not_found(world: &dyn World) {
    let known = add(world, "billing", &["*"]).await;
    let stranger = ChangeEndpoint {
        id: id("stranger"),
        ..unchanged(&known, at(1))
    };
    let answer = change(world, stranger).await;
    assert_eq!(answer, Guarded::Refused(Refusal::NotFound));
    let found = hooks(world).endpoint(&id("stranger")).await;
    assert_eq!(found.expect("endpoint"), None);
    keep_health(world, "stranger", &EndpointHealth::default()).await;
    let calls = hooks(world).calls(tenure_core::ItemId::new(1)).await;
    assert_eq!(calls.expect("calls"), []);
    assert_eq!(delivery_states(world, "billing").await, known);
}

/// The list is in byte order, independent of the database's collation of `-` and `_`.
async fn endpoints_are_listed_by_name_and_page_by_page(world: &dyn World) {
    for name in ["b", "a_1", "a1", "a", "0", "a-1"] {
        add(world, name, &["*"]).await;
    }
    turn(world, "a1", removed(), at(1)).await;
    let mut names = Vec::new();
    let mut after: Option<EndpointId> = None;
    loop {
        let page = hooks(world).endpoints(after.as_ref(), 4).await;
        let page = page.expect("endpoints");
        assert!(page.len() <= 4);
        let Some(last) = page.last() else {
            break;
        };
        after = Some(last.id.clone());
        names.extend(page.iter().map(|endpoint| endpoint.id.to_string()));
    }
    assert_eq!(names, ["0", "a", "a-1", "a1", "a_1", "b"]);
}

async fn a_change_of_an_endpoint_based_on_an_outdated_version_is_refused(world: &dyn World) {
    let first = add(world, "billing", &["order.*"]).await;
    let Guarded::Accepted(second) = change(world, unchanged(&first, at(1))).await else {
        panic!("the version was the right one");
    };
    assert!(second.version > first.version);
    let mut late = unchanged(&first, at(2));
    late.settings = settings(&["mail.*"]);
    late.state = removed();
    let answer = change(world, late).await;
    assert_eq!(answer, Guarded::Refused(Refusal::Changed));
    assert_eq!(delivery_states(world, "billing").await, second);
}

async fn a_change_replaces_all_settings_of_one_endpoint(world: &dyn World) {
    let first = add(world, "billing", &["order.*"]).await;
    let other = add(world, "audit", &["*"]).await;
    let mut asked = unchanged(&first, at(1));
    asked.settings = settings(&["mail.*"]);
    asked.settings.url = "https://example.org".into();
    asked.sealed = "another".into();
    let Guarded::Accepted(second) = change(world, asked.clone()).await else {
        panic!("the version was the right one");
    };
    assert_eq!(second.settings, asked.settings);
    assert_eq!(second.sealed, "another");
    assert_eq!((second.number, second.created_at), (first.number, T0));
    assert_eq!(delivery_states(world, "billing").await, second);
    assert_eq!(delivery_states(world, "audit").await, other, "unchanged");
    let paid = publish_one(world, "order.paid", at(2)).await;
    let sent = publish_one(world, "mail.sent", at(3)).await;
    let audited = [(paid, other.number), (sent, other.number)];
    let mut expected = vec![(sent, second.number)];
    expected.extend(audited);
    expected.sort();
    assert_eq!(deliveries_of(world).await, expected, "by the new rules");
}

async fn queues_and_endpoints_have_different_numbers(world: &dyn World) {
    let mut endpoints = vec![add(world, "one", &["order.*"]).await];
    let mut queues = vec![QueueName::default()];
    for name in ["mail", "slow"] {
        let queue = QueueName::new(name).expect("a queue's name");
        let added = outbox(world).add_queue(&queue, QueueRules::default()).await;
        added.expect("add queue");
        queues.push(queue);
        endpoints.push(add(world, name, &["order.*"]).await);
    }
    let numbers: BTreeSet<u32> = endpoints.iter().map(|endpoint| endpoint.number).collect();
    assert_eq!(numbers.len(), 3);
    let in_mail = NewEvent::from(event("mail.sent"))
        .queue("mail")
        .build()
        .expect("a queue");
    publish(world, &[event("order.paid"), in_mail], at(1)).await;
    let all = ask(&fresh("worker"), 100, at(2)).queues(queues);
    let held = world.try_claim(all).await.expect("the event in mail");
    assert_eq!(
        held.items.len(),
        1,
        "no queue has the number of an endpoint"
    );
    assert!(held.items[0].content.delivery().is_none());
    assert_eq!(due(world, at(2)).await.lanes.len(), 3);
}

async fn a_disabled_endpoint_has_the_reason_and_the_time(world: &dyn World) {
    add(world, "billing", &["*"]).await;
    let reasons = [
        Disabled::ByHand("it's \"being\" moved".into()),
        Disabled::Gone,
        Disabled::Requested,
        Disabled::Failing,
    ];
    for (nth, why) in (0..).zip(reasons) {
        let (off, edited, on) = (at(10 * nth + 1), at(10 * nth + 2), at(10 * nth + 3));
        let state = EndpointState::Disabled {
            why: why.clone(),
            since: T0,
        };
        let kept = turn(world, "billing", state, off).await;
        let expected = EndpointState::Disabled { why, since: off };
        assert_eq!(kept.state, expected, "the time is the store's");
        assert_eq!(delivery_states(world, "billing").await, kept);
        let kept = turn(world, "billing", expected.clone(), edited).await;
        assert_eq!(kept.state, expected, "it was disabled before");
        let kept = turn(world, "billing", EndpointState::Enabled, on).await;
        assert_eq!(kept.state, EndpointState::Enabled);
        assert_eq!(delivery_states(world, "billing").await, kept);
    }
    let long = EndpointState::Disabled {
        why: Disabled::ByHand(format!("a\0{}", "é".repeat(10_000))),
        since: T0,
    };
    let state = turn(world, "billing", long, at(60)).await.state;
    let EndpointState::Disabled { why, .. } = state else {
        panic!("{state:?}");
    };
    let Disabled::ByHand(words) = why else {
        panic!("{why:?}");
    };
    assert!(words.starts_with("a\u{fffd}é"), "{words}");
    assert!(words.len() < 10_000, "{}", words.len());
}

fn ill() -> EndpointHealth {
    EndpointHealth {
        failures: 12,
        failing_since: Some(at(3)),
        failed: Some(tenure_core::ItemId::FIRST_DELIVERY + 4),
        is_spread: true,
        trips: 2,
        paused_until: Some(at(90)),
        pause: Some("it's \"asked\"".into()),
        last_error: Some("it answered 500".into()),
        warnings: 1,
    }
}

async fn keep_health(world: &dyn World, name: &str, health: &EndpointHealth) {
    let told = hooks(world).keep_health(&id(name), health).await;
    told.expect("keep health");
}

async fn enabling_clears_the_health(world: &dyn World) {
    add(world, "billing", &["*"]).await;
    keep_health(world, "billing", &ill()).await;
    let edited = turn(world, "billing", EndpointState::Enabled, at(1)).await;
    assert_eq!(edited.health, ill(), "it was enabled before");
    let off = turn(world, "billing", disabled(), at(2)).await;
    assert_eq!(off.health, ill());
    let on = turn(world, "billing", EndpointState::Enabled, at(3)).await;
    assert_eq!(on.health, EndpointHealth::default());
    assert_eq!(delivery_states(world, "billing").await, on);
}

async fn a_removed_endpoint_stays_removed(world: &dyn World) {
    add(world, "billing", &["*"]).await;
    let gone = turn(world, "billing", removed(), at(1)).await;
    assert_eq!(gone.state, EndpointState::Removed { since: at(1) });
    for (nth, state) in (2..).zip([EndpointState::Enabled, disabled(), removed()]) {
        let before = delivery_states(world, "billing").await;
        let asked = ChangeEndpoint {
            state,
            ..unchanged(&before, at(nth))
        };
        // The store may refuse this change, or apply everything but the state.
        let _answer = change(world, asked).await;
        assert_eq!(delivery_states(world, "billing").await.state, gone.state);
    }
    publish_one(world, "order.paid", at(9)).await;
    assert_eq!(deliveries_of(world).await, []);
}

/// The version does not include the health: a change need not know the latest health.
async fn health_is_stored_without_a_new_version(world: &dyn World) {
    let endpoint = add(world, "billing", &["*"]).await;
    let other = add(world, "audit", &["*"]).await;
    keep_health(world, "billing", &ill()).await;
    let after = delivery_states(world, "billing").await;
    assert_eq!(after.health, ill());
    assert_eq!(after.version, endpoint.version);
    assert_eq!(delivery_states(world, "audit").await, other);
    assert!(
        change(world, unchanged(&endpoint, at(1)))
            .await
            .is_accepted()
    );
    keep_health(world, "billing", &EndpointHealth::default()).await;
    assert_eq!(
        delivery_states(world, "billing").await.health,
        EndpointHealth::default()
    );
}

async fn every_change_of_an_endpoint_raises_the_version_of_due(world: &dyn World) {
    let mut versions = vec![due(world, T0).await.version];
    add(world, "billing", &["*"]).await;
    versions.push(due(world, T0).await.version);
    turn(world, "billing", disabled(), at(1)).await;
    versions.push(due(world, T0).await.version);
    keep_health(world, "billing", &ill()).await;
    versions.push(due(world, T0).await.version);
    turn(world, "billing", removed(), at(2)).await;
    versions.push(due(world, T0).await.version);
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    assert_eq!(Some(&due(world, T0).await.version), versions.last());
}
