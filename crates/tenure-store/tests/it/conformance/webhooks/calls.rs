//! Calls are recorded in the settle of their delivery and change the record of its attempts.

use std::time::Duration;

use tenure_core::store::Settle;
use tenure_core::webhook::{
    Attempt, AttemptOutcome, Call, CallDetail, CallErrorKind, CallRecord, Reply, Timings, attempts,
};
use tenure_core::{Guarded, Held, ItemId, Outcome, Refusal, State, Timestamp};

use super::{
    add, call, event, held_delivery, hooks, publish, publish_one, saved_calls, take, told,
};
use crate::world::{T0, World, at, dead, fresh, retry};

on_every_keeper_of_webhooks!(
    a_settle_records_its_call,
    a_call_without_a_reply_is_recorded,
    a_reply_may_contain_any_bytes,
    the_call_of_a_refused_delivery_is_superseded,
    each_delivery_of_a_lease_is_judged_by_itself,
    a_repeated_settle_does_not_change_its_call,
    a_call_without_a_settle_is_recorded_once,
    a_claim_opens_an_attempt,
    an_attempt_has_the_outcome_of_its_call,
    a_lapse_leaves_an_attempt_with_an_unknown_outcome,
    a_lease_that_ends_without_a_call_is_not_an_attempt,
    a_delivery_that_is_buried_while_held_may_have_been_sent,
    attempts_outlive_a_replay,
);

use AttemptOutcome::{Aborted, Delivered, Failed, Open, Superseded, Unknown};

async fn calls(world: &dyn World, delivery: ItemId) -> Vec<CallRecord> {
    hooks(world).calls(delivery).await.expect("calls")
}

async fn record(world: &dyn World, calls: &[Call], now: Timestamp) {
    let told = hooks(world).record_calls(calls, Some(now)).await;
    told.expect("record calls");
}

/// The attempts of a delivery in the operators' view.
async fn tries(world: &dyn World, delivery: ItemId) -> Vec<Attempt> {
    let timeline = world.operate().timeline(delivery).await;
    let hold = world.record(delivery).await.hold;
    let calls = calls(world, delivery).await;
    attempts(&timeline.expect("timeline"), hold.as_ref(), &calls)
}

async fn outcomes(world: &dyn World, delivery: ItemId) -> Vec<AttemptOutcome> {
    let tries = tries(world, delivery).await;
    tries.iter().map(|attempt| attempt.outcome).collect()
}

async fn a_settle_records_its_call(world: &dyn World) {
    let (_, held) = held_delivery(world, T0).await;
    let id = held.ids()[0];
    let mut reply = Reply::status(503);
    reply.retry_after = Some(Duration::from_secs(9));
    reply.headers = vec![
        ("server".into(), "it's \"7\"".into()),
        ("a".into(), String::new()),
    ];
    reply.body = b"{\"later\": true}".to_vec();
    reply.is_cut = true;
    reply.peer = Some("2001:db8::7".parse().expect("an address"));
    reply.timings = Timings {
        dns: Some(Duration::from_micros(1)),
        connect: None,
        tls: Some(Duration::from_millis(3)),
        first_byte: Some(Duration::from_secs(1)),
        total: Duration::from_secs(2),
    };
    let made = Call {
        ago: Duration::from_micros(2_000_001),
        reply: Some(reply.clone()),
        ..call(&held, Failed, 503)
    };
    assert_eq!(calls(world, id).await, []);
    saved_calls(world, told(&held, retry(60), made, at(5))).await;
    let expected = CallRecord {
        delivery: id,
        fence: held.lease.fence,
        attempt: 1,
        began_at: at(5).before(Duration::from_micros(2_000_001)),
        outcome: Failed,
        status: Some(503),
        error: None,
        detail: CallDetail::of(&reply),
    };
    assert_eq!(calls(world, id).await, std::slice::from_ref(&expected));
    assert_eq!(world.record(id).await.last_error.as_deref(), Some("503"));
    let second = {
        let lanes = vec![(
            super::lane(&super::delivery_states(world, "billing").await, 7),
            1,
        )];
        let claim = crate::world::ask(&fresh("sender"), 1, at(65)).lanes(lanes);
        world.try_claim(claim).await.expect("it is due")
    };
    let made = call(&second, Delivered, 204);
    assert_eq!(made.attempt, 2);
    saved_calls(world, told(&second, Outcome::Done, made, at(66))).await;
    let all = calls(world, id).await;
    assert_eq!(all[0], expected, "in the order of the claims");
    assert_eq!((all[1].outcome, all[1].status), (Delivered, Some(204)));
    assert_eq!((all[1].attempt, all[1].began_at), (2, at(64)));
    assert_eq!(all.len(), 2);
}

async fn a_call_without_a_reply_is_recorded(world: &dyn World) {
    let (endpoint, held) = held_delivery(world, T0).await;
    let id = held.ids()[0];
    let refused = Reply::error(CallErrorKind::Connect, "nobody took the connection");
    let made = Call {
        reply: Some(refused),
        ..call(&held, Failed, 0)
    };
    saved_calls(world, told(&held, retry(0), made, at(5))).await;
    let held = take(world, &endpoint, at(6)).await;
    let stopped = Call {
        reply: None,
        ..call(&held, Aborted, 0)
    };
    saved_calls(world, told(&held, Outcome::RELEASE, stopped, at(7))).await;
    let all = calls(world, id).await;
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].outcome, all[0].status), (Failed, None));
    assert_eq!(all[0].error.as_deref(), Some("nobody took the connection"));
    assert_eq!(all[0].detail.trouble.as_deref(), Some("connect"));
    assert_eq!((all[1].outcome, all[1].status), (Aborted, None));
    assert_eq!(
        (&all[1].error, &all[1].detail),
        (&None, &CallDetail::default())
    );
    assert_eq!(
        world.counters(id).await.failures,
        1,
        "an abort is not a failure"
    );
}

async fn a_reply_may_contain_any_bytes(world: &dyn World) {
    let (_, held) = held_delivery(world, T0).await;
    let mut reply = Reply::status(599);
    reply.body = vec![0, 255, b'\'', b'"', b'\\', 0xc3];
    reply.body.resize(Reply::BODY_BYTES_MAX, 0);
    reply.headers = vec![("x".into(), "\u{7}ä\u{fffd}".into())];
    let made = Call {
        reply: Some(reply.clone()),
        ..call(&held, Failed, 599)
    };
    saved_calls(world, told(&held, dead(), made, at(5))).await;
    let all = calls(world, held.ids()[0]).await;
    assert_eq!(all[0].detail, CallDetail::of(&reply));
}

/// Two senders called the endpoint. The sender that lost the lease is refused, but its call is
/// recorded.
///
/// Proves: S2-023
async fn the_call_of_a_refused_delivery_is_superseded(world: &dyn World) {
    let (endpoint, first) = held_delivery(world, T0).await;
    let id = first.ids()[0];
    assert_eq!(world.reap_at(at(31)).await.len(), 1);
    let second = take(world, &endpoint, at(31)).await;
    let stale = told(&first, Outcome::Done, call(&first, Delivered, 200), at(32));
    let answer = world.settle(stale).await;
    assert_eq!(answer.items, [(id, Guarded::Refused(Refusal::Lost))]);
    assert_eq!(world.state(id).await, State::Claimed, "the other holds it");
    let failed = told(&second, retry(0), call(&second, Failed, 500), at(33));
    saved_calls(world, failed).await;
    // No sender holds the delivery now, but the refused call still counts as superseded.
    let third = take(world, &endpoint, at(34)).await;
    let done = told(&third, Outcome::Done, call(&third, Delivered, 200), at(35));
    saved_calls(world, done).await;
    let all = calls(world, id).await;
    let told: Vec<_> = all.iter().map(|call| (call.outcome, call.status)).collect();
    let expected = [
        (Superseded, Some(200)),
        (Failed, Some(500)),
        (Delivered, Some(200)),
    ];
    assert_eq!(told, expected);
    assert_eq!(outcomes(world, id).await, [Superseded, Failed, Delivered]);
}

async fn each_delivery_of_a_lease_is_judged_by_itself(world: &dyn World) {
    let endpoint = add(world, "billing", &["*"]).await;
    publish(world, &[event("order.paid"), event("order.paid")], T0).await;
    let held = take(world, &endpoint, T0).await;
    let ids = held.ids();
    assert_eq!(world.bury(ids[0], 1, at(1)).await, Guarded::Accepted(()));
    let mut settle = Settle::new(held.lease.token.clone()).done(ids.clone());
    settle.calls = ids
        .iter()
        .map(|id| Call {
            delivery: *id,
            ..call(&held, Delivered, 200)
        })
        .collect();
    let answer = world.settle(settle.at(at(2))).await;
    assert_eq!(answer.refused().count(), 1);
    assert_eq!(calls(world, ids[0]).await[0].outcome, Superseded);
    assert_eq!(calls(world, ids[1]).await[0].outcome, Delivered);
    assert_eq!(world.state(ids[0]).await, State::Dead);
}

async fn a_repeated_settle_does_not_change_its_call(world: &dyn World) {
    let (_, held) = held_delivery(world, T0).await;
    let id = held.ids()[0];
    let settle = told(&held, Outcome::Done, call(&held, Delivered, 200), at(5));
    saved_calls(world, settle.clone()).await;
    let before = world.dump().await;
    saved_calls(world, settle.clone().at(at(6))).await;
    let mut other = settle.at(at(7));
    other.calls[0].outcome = Failed;
    saved_calls(world, other.clone()).await;
    other.items = vec![(id, dead())];
    assert_eq!(world.settle(other).await.refused().count(), 1);
    assert_eq!(world.dump().await, before);
    assert_eq!(calls(world, id).await[0].began_at, at(3));
}

async fn a_call_without_a_settle_is_recorded_once(world: &dyn World) {
    let (endpoint, first) = held_delivery(world, T0).await;
    let id = first.ids()[0];
    assert_eq!(world.reap_at(at(31)).await.len(), 1);
    let late = call(&first, Superseded, 200);
    record(world, std::slice::from_ref(&late), at(40)).await;
    let all = calls(world, id).await;
    assert_eq!((all[0].outcome, all[0].began_at), (Superseded, at(38)));
    let second = take(world, &endpoint, at(41)).await;
    let done = told(
        &second,
        Outcome::Done,
        call(&second, Delivered, 200),
        at(42),
    );
    saved_calls(world, done).await;
    let before = world.dump().await;
    let again = [late, call(&second, Failed, 500)];
    record(world, &again, at(50)).await;
    record(world, &[], at(50)).await;
    assert_eq!(world.dump().await, before);
    assert_eq!(outcomes(world, id).await, [Superseded, Delivered]);
}

/// The claim records the attempt before the call starts.
async fn a_claim_opens_an_attempt(world: &dyn World) {
    let endpoint = add(world, "billing", &["*"]).await;
    publish_one(world, "order.paid", T0).await;
    let id = super::deliveries(world).await[0].id;
    assert_eq!(tries(world, id).await, []);
    let held = take(world, &endpoint, at(1)).await;
    let expected = Attempt {
        fence: held.lease.fence,
        holder: held.lease.token.holder().to_owned(),
        claimed_at: at(1),
        ended_at: None,
        outcome: Open,
        call: None,
    };
    assert_eq!(tries(world, id).await, [expected]);
}

async fn an_attempt_has_the_outcome_of_its_call(world: &dyn World) {
    let (endpoint, mut held) = held_delivery(world, T0).await;
    let id = held.ids()[0];
    let ends = [
        (Failed, retry(0)),
        (Aborted, Outcome::RELEASE),
        (Delivered, Outcome::Done),
    ];
    let mut expected = Vec::new();
    for (nth, (outcome, said)) in (1..).zip(ends) {
        let made = call(&held, outcome, 200);
        saved_calls(world, told(&held, said, made, at(10 * nth))).await;
        expected.push(outcome);
        assert_eq!(outcomes(world, id).await, expected);
        let last = tries(world, id).await.pop().expect("an attempt");
        assert_eq!(last.ended_at, Some(at(10 * nth)));
        assert_eq!(last.call.expect("a call").fence, held.lease.fence);
        if outcome != Delivered {
            held = take(world, &endpoint, at(10 * nth + 1)).await;
            assert_eq!(outcomes(world, id).await.last(), Some(&Open));
        }
    }
}

async fn a_lapse_leaves_an_attempt_with_an_unknown_outcome(world: &dyn World) {
    let (endpoint, first) = held_delivery(world, T0).await;
    let id = first.ids()[0];
    assert_eq!(outcomes(world, id).await, [Open]);
    assert_eq!(world.reap_at(at(31)).await.len(), 1);
    let [lapsed] = tries(world, id).await.try_into().expect("one attempt");
    assert_eq!((lapsed.outcome, lapsed.fence), (Unknown, first.lease.fence));
    assert_eq!((lapsed.claimed_at, lapsed.ended_at), (T0, Some(at(31))));
    let second = take(world, &endpoint, at(31)).await;
    assert_eq!(outcomes(world, id).await, [Unknown, Open]);
    assert!(second.lease.fence > first.lease.fence);
    assert_eq!(second.items[0].counters.crashes, 1);
    // The first sender was only slow; its late call fills in the unknown outcome.
    record(world, &[call(&first, Superseded, 200)], at(40)).await;
    assert_eq!(outcomes(world, id).await, [Superseded, Open]);
}

async fn a_lease_that_ends_without_a_call_is_not_an_attempt(world: &dyn World) {
    let (endpoint, held) = held_delivery(world, T0).await;
    let id = held.ids()[0];
    assert_eq!(world.release(&held.lease.token, at(1)).await, 1);
    assert_eq!(tries(world, id).await, []);
    assert_eq!(world.bury(id, 1, at(2)).await, Guarded::Accepted(()));
    assert_eq!(tries(world, id).await, [], "no sender could have sent it");
    assert_eq!(world.replay(id, at(3)).await, Guarded::Accepted(()));
    let held = take(world, &endpoint, at(4)).await;
    let settle = Settle::new(held.lease.token.clone()).item(id, dead());
    saved_calls(world, settle.at(at(4))).await;
    assert_eq!(tries(world, id).await, [], "settled without a call");
}

async fn a_delivery_that_is_buried_while_held_may_have_been_sent(world: &dyn World) {
    let (_, held) = held_delivery(world, T0).await;
    let id = held.ids()[0];
    assert_eq!(world.bury(id, 1, at(1)).await, Guarded::Accepted(()));
    assert_eq!(outcomes(world, id).await, [Unknown]);
    let stale = told(&held, Outcome::Done, call(&held, Delivered, 200), at(2));
    assert_eq!(world.settle(stale).await.refused().count(), 1);
    assert_eq!(outcomes(world, id).await, [Superseded]);
}

async fn attempts_outlive_a_replay(world: &dyn World) {
    let (endpoint, held) = held_delivery(world, T0).await;
    let id = held.ids()[0];
    saved_calls(world, told(&held, dead(), call(&held, Failed, 400), at(1))).await;
    assert_eq!(world.replay(id, at(2)).await, Guarded::Accepted(()));
    let held: Held = take(world, &endpoint, at(3)).await;
    assert_eq!(held.items[0].counters.generation, 1);
    let done = told(&held, Outcome::Done, call(&held, Delivered, 200), at(4));
    saved_calls(world, done).await;
    assert_eq!(outcomes(world, id).await, [Failed, Delivered]);
}
