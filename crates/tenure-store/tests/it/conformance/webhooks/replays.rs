//! Bulk replays of events and deliveries: the items of each step, and the end of a replay.

use std::time::Duration;

use tenure_core::store::{
    Filter, Kind, NewReplay, QueueRules, ReplayOperation, ReplayRate, ReplayState, Replays,
    StepReplay, Stepped,
};
use tenure_core::{
    Event, Guarded, ItemId, NewEvent, Outcome, QueueName, Refusal, State, Timestamp,
};

use super::{add, deliveries, enqueue, event, keyed, outbox, place, publish, take};
use crate::world::{T0, World, ask, at, dead, fresh};

on_every_keeper_of_webhooks!(
    a_replay_makes_only_matching_items_pending_step_by_step,
    a_replay_skips_items_that_die_after_its_start,
    a_bulk_replay_keeps_the_order_of_a_key,
    deliveries_are_replayed_by_endpoint_or_by_event,
    every_field_of_the_filter_is_applied,
    the_rate_of_a_replay_holds_across_processes,
    operations_take_turns,
    a_cancelled_replay_stops,
    a_replay_is_stored_as_requested,
    concurrent_steps_replay_each_item_once,
    the_start_of_a_replay_deletes_those_that_ended_long_ago,
    a_replay_of_an_unknown_queue_is_an_error,
);

fn replays(world: &dyn World) -> &dyn Replays {
    outbox(world).replay_operations()
}

fn filter(state: State) -> Filter {
    Filter {
        state: Some(state),
        ..Filter::default()
    }
}

async fn start(world: &dyn World, filter: Filter, now: Timestamp) -> ReplayOperation {
    let new = NewReplay::new(filter).expect("it can be replayed").at(now);
    let started = replays(world).start_replay(&new).await;
    started.expect("start replay")
}

async fn step(world: &dyn World, limit: u32, now: Timestamp) -> Stepped {
    let ask = StepReplay::new(limit).at(now);
    replays(world).step_replay(&ask).await.expect("step replay")
}

/// Runs all steps of the replay.
async fn finish(world: &dyn World, now: Timestamp) {
    while step(world, 100, now).await.operation.is_some() {}
}

async fn delivery_states(world: &dyn World, id: u64) -> ReplayOperation {
    let found = replays(world).replay_operation(id).await;
    found.expect("replay operation").expect("it is on record")
}

/// Enqueues these events and settles them as dead.
async fn killed(world: &dyn World, events: &[Event], now: Timestamp) -> Vec<ItemId> {
    let ids = enqueue(world, events).await;
    settle_all(world, &dead(), now).await;
    ids
}

/// Settles all due events of all queues.
async fn settle_all(world: &dyn World, outcome: &Outcome, now: Timestamp) {
    let known = outbox(world).queues().await.expect("queues");
    let queues: Vec<QueueName> = known.into_iter().map(|queue| queue.name).collect();
    let token = fresh("worker");
    loop {
        let claim = ask(&token, 100, now).queues(queues.clone());
        let Some(held) = world.try_claim(claim).await else {
            return;
        };
        for id in held.ids() {
            let answer = world.settle_one(&token, id, outcome.clone(), now).await;
            assert_eq!(answer, Guarded::Accepted(()));
        }
    }
}

async fn states(world: &dyn World, ids: &[ItemId]) -> Vec<State> {
    let found = world.operate().find(ids).await.expect("find");
    found.iter().map(|record| record.state).collect()
}

/// Proves: S4-032
async fn a_replay_makes_only_matching_items_pending_step_by_step(world: &dyn World) {
    let ids = killed(world, &vec![event("order.paid"); 5], T0).await;
    let others = killed(world, &[event("order.lost")], T0).await;
    let done = publish(world, &[event("order.paid")], T0).await;
    let wanted = Filter {
        topic: Some("order.paid".to_owned()),
        ..filter(State::Dead)
    };
    let started = start(world, wanted, at(1)).await;
    assert_eq!((started.replayed, started.state), (0, ReplayState::Running));
    assert_eq!(states(world, &ids).await, [State::Dead; 5]);
    let mut waiting = Vec::new();
    for (replayed, state) in [
        (2, ReplayState::Running),
        (4, ReplayState::Running),
        (5, ReplayState::Done),
    ] {
        let after = step(world, 2, at(2)).await.operation.expect("it is due");
        assert_eq!((after.id, after.replayed), (started.id, replayed));
        assert_eq!((after.state, after.refused), (state, 0));
        let number = usize::try_from(replayed).expect("a small number");
        waiting = states(world, &ids).await;
        assert_eq!(waiting[..number], vec![State::Pending; number]);
        assert_eq!(waiting[number..], vec![State::Dead; 5 - number]);
    }
    assert_eq!(waiting, [State::Pending; 5]);
    assert_eq!(states(world, &others).await, [State::Dead]);
    assert_eq!(states(world, &done).await, [State::Done]);
    let ended = delivery_states(world, started.id).await;
    assert_eq!((ended.reached, ended.ended_at), (ended.last, Some(at(2))));
    assert_eq!(step(world, 2, at(3)).await, Stepped::default());
}

async fn a_replay_skips_items_that_die_after_its_start(world: &dyn World) {
    let ids = killed(world, &vec![event("order.paid"); 3], T0).await;
    start(world, filter(State::Dead), at(1)).await;
    step(world, 2, at(1)).await;
    // The two replayed events die again, and a new one dies with them.
    let later = killed(world, &[event("order.paid")], at(2)).await;
    finish(world, at(3)).await;
    assert_eq!(
        states(world, &ids).await,
        [State::Dead, State::Dead, State::Pending]
    );
    assert_eq!(states(world, &later).await, [State::Dead]);
}

async fn a_bulk_replay_keeps_the_order_of_a_key(world: &dyn World) {
    let ids = publish(world, &vec![keyed("order.paid", "customer-7"); 3], T0).await;
    start(world, filter(State::Done), at(1)).await;
    // Each step replays one item; items of later steps come later in the key.
    while step(world, 1, at(1)).await.operation.is_some() {}
    let mut worked = Vec::new();
    place(world).await;
    let token = fresh("worker");
    while let Some(held) = world.try_claim(ask(&token, 1, at(2))).await {
        worked.extend(held.ids());
        let id = held.ids()[0];
        let answer = world.settle_one(&token, id, Outcome::Done, at(2)).await;
        assert_eq!(answer, Guarded::Accepted(()));
        place(world).await;
    }
    assert_eq!(worked, ids);
}

async fn deliveries_are_replayed_by_endpoint_or_by_event(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let audit = add(world, "audit", &["*"]).await;
    let sources = publish(world, &vec![event("order.paid"); 3], T0).await;
    for endpoint in [&billing, &audit] {
        let held = take(world, endpoint, T0).await;
        for id in held.ids() {
            let answer = world.settle_one(&held.lease.token, id, dead(), T0).await;
            assert_eq!(answer, Guarded::Accepted(()));
        }
    }
    let wanted = Filter {
        kind: Kind::Deliveries,
        endpoint: Some(billing.number),
        ..filter(State::Dead)
    };
    start(world, wanted, at(1)).await;
    finish(world, at(1)).await;
    for record in deliveries(world).await {
        let endpoint = record.content.delivery().expect("a delivery").endpoint;
        let expected = if endpoint == billing.number {
            State::Pending
        } else {
            State::Dead
        };
        assert_eq!(record.state, expected, "{}", record.id);
    }
    let of_event = Filter {
        kind: Kind::Deliveries,
        source: Some(sources[1]),
        ..filter(State::Dead)
    };
    let started = start(world, of_event, at(2)).await;
    finish(world, at(2)).await;
    assert_eq!(delivery_states(world, started.id).await.replayed, 1);
}

async fn every_field_of_the_filter_is_applied(world: &dyn World) {
    let mail = QueueName::new("mail").expect("a name");
    let added = outbox(world).add_queue(&mail, QueueRules::default()).await;
    added.expect("add queue");
    for (state, now) in [(State::Done, T0), (State::Dead, at(10))] {
        let [paid, lost] = ["paid", "lost"].map(|word| format!("{state}.{word}"));
        let events = [
            event(&paid),
            NewEvent::from(event(&paid))
                .queue("mail")
                .build()
                .expect("a name"),
            keyed(&paid, "customer-7"),
            event(&lost),
        ];
        let ids = enqueue(world, &events).await;
        let outcome = match state {
            State::Dead => dead(),
            State::Pending | State::Claimed | State::Done => Outcome::Done,
        };
        settle_all(world, &outcome, now).await;
        let created = world.record(ids[0]).await.created_at;
        let paid = || Filter {
            topic: Some(paid.clone()),
            ..filter(state)
        };
        let mut by = vec![paid(); 6];
        by[0].queue = Some(mail.clone());
        by[1].key = Some("customer-7".to_owned());
        by[2].topic = Some(lost);
        by[3].since = Some(created.after(Duration::from_hours(1)));
        by[4].until = Some(created);
        by[5].kind = Kind::Deliveries;
        by.push(Filter {
            before: Some(ids[1]),
            since: Some(created),
            until: Some(created.after(Duration::from_hours(1))),
            ..paid()
        });
        let expected = [Some(1), Some(2), Some(3), None, None, None, Some(0)];
        for (wanted, expected) in by.into_iter().zip(expected) {
            let before = states(world, &ids).await;
            start(world, wanted.clone(), now).await;
            finish(world, now).await;
            let after = states(world, &ids).await;
            let changed: Vec<usize> = (0..4).filter(|n| before[*n] != after[*n]).collect();
            assert_eq!(changed, Vec::from_iter(expected), "{wanted:?}");
        }
    }
}

async fn the_rate_of_a_replay_holds_across_processes(world: &dyn World) {
    let ids = killed(world, &vec![event("order.paid"); 3], T0).await;
    let mut new = NewReplay::new(filter(State::Dead)).expect("it can be replayed");
    new.rate = ReplayRate::per_minute(60);
    let started = replays(world).start_replay(&new.at(at(1))).await;
    started.expect("start replay");
    let second = Duration::from_secs(1);
    let first = step(world, 100, at(1)).await;
    assert_eq!(first.operation.expect("it is due").replayed, 1);
    assert_eq!(first.next_in, Some(second));
    // Another process runs a step too early.
    let early = step(world, 100, at(1).after(second / 4)).await;
    assert_eq!(early.operation, None);
    assert_eq!(early.next_in, Some(second / 4 * 3));
    // A late step does not replay more items than usual.
    let late = step(world, 100, at(10)).await;
    assert_eq!(late.operation.expect("it is due").replayed, 2);
    assert_eq!(step(world, 100, at(10)).await.operation, None);
    let last = step(world, 100, at(11)).await.operation;
    assert_eq!(last.expect("it is due").replayed, 3);
    assert_eq!(states(world, &ids).await, [State::Pending; 3]);
}

async fn operations_take_turns(world: &dyn World) {
    killed(world, &vec![event("order.paid"); 2], T0).await;
    publish(world, &vec![event("order.paid"); 2], T0).await;
    let first = start(world, filter(State::Dead), at(1)).await;
    let second = start(world, filter(State::Done), at(2)).await;
    let mut steps = Vec::new();
    for seconds in 3..7 {
        let answer = step(world, 1, at(seconds)).await;
        assert_eq!(answer.next_in, Some(Duration::ZERO));
        steps.push(answer.operation.expect("one is due").id);
    }
    assert_eq!(steps, [first.id, second.id, first.id, second.id]);
    let only = StepReplay::new(1).only(second.id).at(at(8));
    let answer = replays(world)
        .step_replay(&only)
        .await
        .expect("step replay");
    let operation = answer.operation.expect("it is due");
    assert_eq!(
        (operation.id, operation.state),
        (second.id, ReplayState::Done)
    );
    assert_eq!(answer.next_in, None, "the other one was not asked about");
    let all = replays(world).replays(10).await.expect("replays");
    let all: Vec<u64> = all.iter().map(|operation| operation.id).collect();
    assert_eq!(all, [second.id, first.id]);
}

async fn a_cancelled_replay_stops(world: &dyn World) {
    let ids = killed(world, &vec![event("order.paid"); 2], T0).await;
    let started = start(world, filter(State::Dead), at(1)).await;
    step(world, 1, at(1)).await;
    let cancel = async |id, now| {
        let answer = replays(world).cancel_replay(id, Some(now)).await;
        answer.expect("cancel replay")
    };
    let Guarded::Accepted(cancelled) = cancel(started.id, at(2)).await else {
        panic!("it was running");
    };
    assert_eq!(cancelled.state, ReplayState::Cancelled);
    assert_eq!((cancelled.replayed, cancelled.ended_at), (1, Some(at(2))));
    assert_eq!(step(world, 1, at(3)).await, Stepped::default());
    assert_eq!(states(world, &ids).await, [State::Pending, State::Dead]);
    let refused = cancel(started.id, at(4)).await;
    assert_eq!(refused, Guarded::Refused(Refusal::AlreadySettled));
    assert_eq!(delivery_states(world, started.id).await, cancelled);
    let refused = cancel(started.id + 1, at(4)).await;
    assert_eq!(refused, Guarded::Refused(Refusal::NotFound));
}

async fn a_replay_is_stored_as_requested(world: &dyn World) {
    let wanted = Filter {
        state: Some(State::Dead),
        topic: Some("it's \"odd\"".to_owned()),
        queue: Some(QueueName::default()),
        key: Some("customer-7".to_owned()),
        since: Some(T0),
        until: Some(at(9)),
        kind: Kind::Deliveries,
        endpoint: Some(7),
        source: Some(ItemId::new(3)),
        before: None,
    };
    let mut new = NewReplay::new(wanted.clone()).expect("it can be replayed");
    new.rate = ReplayRate::per_minute(90);
    new.expected = Some(12);
    let started = replays(world).start_replay(&new.at(at(1))).await;
    let started = started.expect("start replay");
    assert_eq!(delivery_states(world, started.id).await, started);
    assert_eq!(started.filter, wanted);
    assert_eq!(
        (started.rate, started.expected),
        (ReplayRate::per_minute(90), Some(12))
    );
    assert_eq!((started.created_at, started.next_at), (at(1), at(1)));
    let unknown = replays(world).replay_operation(started.id + 1).await;
    assert_eq!(unknown.expect("replay operation"), None);
}

async fn concurrent_steps_replay_each_item_once(world: &dyn World) {
    let ids = killed(world, &vec![event("order.paid"); 60], T0).await;
    let started = start(world, filter(State::Dead), at(1)).await;
    let stepper = async || {
        // A step that finds another step in progress is repeated.
        while delivery_states(world, started.id).await.is_running() {
            step(world, 3, at(2)).await;
        }
    };
    tokio::join!(stepper(), stepper(), stepper(), stepper());
    let ended = delivery_states(world, started.id).await;
    assert_eq!((ended.replayed, ended.refused), (60, 0));
    for id in ids {
        let record = world.record(id).await;
        assert_eq!(record.state, State::Pending);
        assert_eq!(record.counters.generation, 1, "{id} was put back once");
    }
}

async fn the_start_of_a_replay_deletes_those_that_ended_long_ago(world: &dyn World) {
    let first = start(world, filter(State::Dead), T0).await;
    finish(world, T0).await;
    let running = start(world, filter(State::Dead), T0).await;
    let later = T0.after(ReplayOperation::RETENTION_MIN);
    let second = start(world, filter(State::Dead), later).await;
    let past = later.after(Duration::from_secs(1));
    let third = start(world, filter(State::Dead), past).await;
    let all = replays(world).replays(10).await.expect("replays");
    let all: Vec<u64> = all.iter().map(|operation| operation.id).collect();
    assert_eq!(all, [third.id, second.id, running.id]);
    assert!(first.id < running.id, "an id is not used again");
}

async fn a_replay_of_an_unknown_queue_is_an_error(world: &dyn World) {
    let wanted = Filter {
        queue: Some(QueueName::new("nowhere").expect("a name")),
        ..filter(State::Dead)
    };
    let new = NewReplay::new(wanted).expect("it can be replayed");
    let error = replays(world).start_replay(&new).await;
    let error = error.expect_err("there is no such queue").to_string();
    assert!(error.contains("nowhere"), "{error}");
}
