//! Why a delivery is not being sent: one sentence for each standing of its endpoint.

use std::sync::Arc;

use tenure_core::webhook::{
    Delivery, Disabled, Endpoint, EndpointId, EndpointSettings, EndpointState, Health, Rate,
};
use tenure_core::{Content, Event, Facts, ItemId, Record, State, TopicPattern, reason, why};

use super::{due, here, now, says, seconds};

fn endpoint() -> Endpoint {
    Endpoint {
        id: EndpointId::new("billing").unwrap(),
        number: 4,
        settings: EndpointSettings::new("https://example.com", vec![TopicPattern::any()]),
        sealed: String::new(),
        state: EndpointState::Enabled,
        health: Health::default(),
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
fn an_endpoint_that_is_not_sent_to_is_why() {
    let ago = now().before(seconds(120));
    for (state, code, sentence, hint) in [
        (
            EndpointState::Disabled {
                why: Disabled::ByHand("they migrate".to_owned()),
                since: ago,
            },
            "endpoint_disabled",
            "its endpoint billing has been disabled for 2m, because an operator said so: they \
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
        says(&answer, code, sentence, hint);
    }
    let mut alone = endpoint();
    alone.health.paused_until = Some(now().after(seconds(60)));
    alone.health.pause = Some("ten calls in a row failed".to_owned());
    says(
        &why(&delivery(), &facts(alone.clone()), now()),
        "endpoint_paused",
        "its endpoint billing is left alone for another 1m, because ten calls in a row failed",
        "tenure endpoints test billing",
    );
    alone.health.last_error = Some("it answered 500".to_owned());
    says(
        &why(&delivery(), &facts(alone.clone()), now()),
        "endpoint_paused",
        "its endpoint billing is left alone for another 1m, because ten calls in a row failed; \
         the last call to it: \"it answered 500\"",
        "tenure endpoints enable billing",
    );
    alone.health.paused_until = Some(now());
    alone.health.trips = 1;
    let answer = why(&delivery(), &facts(alone), now());
    assert_eq!(answer.code, "endpoint_on_trial");
    assert!(answer.sentence.contains("it answered 500"), "{answer}");
}

#[test]
fn a_delivery_waits_for_its_next_attempt_or_for_room() {
    let mut later = delivery();
    later.available_at = Some(now().after(seconds(300)));
    later.counters.failures = 2;
    later.last_error = Some("it answered 500".to_owned());
    says(
        &why(&later, &facts(endpoint()), now()),
        "backoff",
        "it failed 2 of 10 attempts, last with \"it answered 500\"; it is tried again in 5m",
        "",
    );
    let mut limited = endpoint();
    limited.settings.rate = Some(Rate {
        per_second: 5,
        burst: 5,
    });
    let mut busy = facts(limited);
    busy.counts.due = 9;
    says(
        &why(&delivery(), &busy, now()),
        "waiting",
        "it is one of 9 that are due for billing; a process makes at most 10 calls to it at once \
         and 5 in a second",
        "",
    );
    busy.workers.clear();
    assert_eq!(why(&delivery(), &busy, now()).code, "no_worker");
}

#[test]
fn a_delivery_that_ended_says_how() {
    let mut done = delivery();
    done.state = State::Done;
    done.done_at = Some(now().before(seconds(60)));
    says(
        &why(&done, &facts(endpoint()), now()),
        "delivered",
        "it was delivered to billing 1m ago",
        "tenure replay d17",
    );
    let mut dead = delivery();
    dead.state = State::Dead;
    dead.last_error = Some("told before".to_owned());
    for (word, sentence, hint) in [
        (
            reason::GONE,
            "it died, because its endpoint billing said that it is gone for good",
            "`tenure endpoints enable billing`, then `tenure replay d17`",
        ),
        (
            reason::REMOVED,
            "it died, because its endpoint billing was removed",
            "`tenure endpoints add URL` adds another one; `tenure replay 9`",
        ),
        (
            reason::ABORTED,
            "it died, because the receiver wants it no more: told before",
            "`tenure replay d17`",
        ),
    ] {
        dead.dead_reason = Some(word.to_owned());
        let answer = why(&dead, &facts(endpoint()), now());
        says(&answer, "dead", sentence, hint);
    }
}
