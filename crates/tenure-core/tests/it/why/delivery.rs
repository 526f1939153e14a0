//! Explanations for deliveries: one sentence for each state of the endpoint.

use std::sync::Arc;

use tenure_core::webhook::{
    Delivery, Disabled, Endpoint, EndpointHealth, EndpointId, EndpointSettings, EndpointState,
    RateLimit,
};
use tenure_core::{Content, Event, Facts, ItemId, Record, State, TopicPattern, reason, why};

use super::{assert_why, due, here, now, seconds};

fn endpoint() -> Endpoint {
    Endpoint {
        id: EndpointId::new("billing").unwrap(),
        number: 4,
        settings: EndpointSettings::new("https://example.com", vec![TopicPattern::any()]),
        sealed: String::new(),
        state: EndpointState::Enabled,
        health: EndpointHealth::default(),
        version: 1,
        created_at: now(),
    }
}

fn delivery() -> Record {
    Record {
        id: ItemId::new(ItemId::FIRST_DELIVERY + 17),
        content: Content::Delivery(Delivery {
            endpoint: 4,
            source: ItemId::new(9),
            event: Arc::new(Event::new("order.paid", &7).unwrap()),
        }),
        ..due()
    }
}

fn facts(endpoint: Endpoint) -> Facts {
    Facts {
        endpoint: Some(endpoint),
        ..here()
    }
}

#[test]
fn an_unavailable_endpoint_is_the_reason() {
    let ago = now().before(seconds(120));
    for (state, code, sentence, hint) in [
        (
            EndpointState::Disabled {
                why: Disabled::ByHand("they migrate".to_owned()),
                since: ago,
            },
            "endpoint_disabled",
            "its endpoint billing has been disabled for 2m by an operator: they \
             migrate",
            "tenure endpoints enable billing",
        ),
        (
            EndpointState::Disabled {
                why: Disabled::Gone,
                since: ago,
            },
            "endpoint_disabled",
            "its endpoint billing has been disabled for 2m, because it answered 410 Gone",
            "tenure endpoints enable billing",
        ),
        (
            EndpointState::Removed { since: ago },
            "endpoint_removed",
            "its endpoint billing was removed 2m ago: a sender buries it soon",
            "",
        ),
    ] {
        let endpoint = Endpoint {
            state,
            ..endpoint()
        };
        let answer = why(&delivery(), &facts(endpoint), now());
        assert_why(&answer, code, sentence, hint);
    }
    let mut alone = endpoint();
    alone.health.paused_until = Some(now().after(seconds(60)));
    alone.health.pause = Some("ten calls in a row failed".to_owned());
    assert_why(
        &why(&delivery(), &facts(alone.clone()), now()),
        "endpoint_paused",
        "its endpoint billing is backing off for another 1m, because ten calls in a row failed",
        "tenure endpoints test billing",
    );
    alone.health.last_error = Some("it answered 500".to_owned());
    assert_why(
        &why(&delivery(), &facts(alone.clone()), now()),
        "endpoint_paused",
        "its endpoint billing is backing off for another 1m, because ten calls in a row failed; \
         its last call failed with \"it answered 500\"",
        "tenure endpoints enable billing",
    );
    alone.health.paused_until = Some(now());
    alone.health.trips = 1;
    let answer = why(&delivery(), &facts(alone), now());
    assert_eq!(answer.code, "endpoint_on_trial");
    assert!(answer.sentence.contains("it answered 500"), "{answer}");
}

#[test]
fn a_pending_delivery_names_its_next_attempt_or_the_limits_of_its_endpoint() {
    let mut later = delivery();
    later.available_at = Some(now().after(seconds(300)));
    later.counters.failures = 2;
    later.last_error = Some("it answered 500".to_owned());
    assert_why(
        &why(&later, &facts(endpoint()), now()),
        "backoff",
        "it failed 2 of 10 attempts, last with \"it answered 500\"; it is retried in 5m",
        "",
    );
    let mut limited = endpoint();
    limited.settings.rate = Some(RateLimit {
        per_second: 5,
        burst: 5,
    });
    let mut busy = facts(limited);
    busy.counts.due = 9;
    assert_why(
        &why(&delivery(), &busy, now()),
        "waiting",
        "it is one of 9 due deliveries for billing; a process makes at most 10 calls to it at once \
         and 5 per second",
        "",
    );
    busy.workers.clear();
    assert_eq!(why(&delivery(), &busy, now()).code, "no_worker");
}

#[test]
fn a_settled_delivery_names_its_outcome() {
    let mut done = delivery();
    done.state = State::Done;
    done.done_at = Some(now().before(seconds(60)));
    assert_why(
        &why(&done, &facts(endpoint()), now()),
        "delivered",
        "it was delivered to billing 1m ago",
        "tenure replay d17",
    );
    let mut dead = delivery();
    dead.state = State::Dead;
    dead.last_error = Some("told before".to_owned());
    for (reason, sentence, hint) in [
        (
            reason::GONE,
            "it died, because its endpoint billing answered that it is gone for good",
            "`tenure endpoints enable billing`, then `tenure replay d17`",
        ),
        (
            reason::REMOVED,
            "it died, because its endpoint billing was removed",
            "`tenure endpoints add URL` adds another one; `tenure replay 9`",
        ),
        (
            reason::ABORTED,
            "it died, because the receiver wants no further attempts: told before",
            "`tenure replay d17`",
        ),
    ] {
        dead.dead_reason = Some(reason.to_owned());
        let answer = why(&dead, &facts(endpoint()), now());
        assert_why(&answer, "dead", sentence, hint);
    }
}
