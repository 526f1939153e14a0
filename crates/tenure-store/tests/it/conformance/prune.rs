//! Prune: the items, journal rows and workers that it deletes or keeps.

use std::time::Duration;

use tenure_core::store::{Enqueued, Prune, Pruned, Settle, Store, WorkerReport};
use tenure_core::{
    Event, Guarded, ItemId, NewEvent, Outcome, OutcomeKind, Refusal, State, Timestamp, WorkerId,
};

use crate::world::{T0, TICK, World, at, dead, fresh, retry, token};

on_every_queue!(
    an_item_is_pruned_after_the_end_of_its_retention_but_not_at_it,
    done_and_dead_items_have_separate_retentions,
    an_open_item_is_never_pruned,
    a_replayed_item_is_not_pruned,
    the_retention_of_a_replayed_item_starts_at_its_last_settle,
    a_pruned_item_is_not_found,
    a_dedupe_key_is_free_again_after_a_prune,
    counts_are_correct_after_a_prune,
    a_prune_respects_its_limit_and_reports_whether_more_is_left,
    a_journal_row_stays_while_one_of_its_items_is_kept,
    the_journal_is_kept_for_the_longer_retention,
    a_repeated_settle_is_answered_within_the_retention,
    an_endless_retention_keeps_everything,
    a_worker_without_a_report_for_more_than_a_day_is_pruned,
);

const HOUR: Duration = Duration::from_hours(1);

fn outbox(world: &dyn World) -> &dyn Store {
    world.outbox().expect("the queue layout")
}

async fn prune(world: &dyn World, prune: Prune) -> Pruned {
    outbox(world).prune(&prune).await.expect("prune")
}

/// Prunes with a retention of an hour for both states; returns the numbers of done and dead items.
async fn prune_at(world: &dyn World, now: Timestamp) -> (u64, u64) {
    let pruned = prune(world, Prune::new(HOUR, HOUR).at(now)).await;
    assert!(!pruned.more);
    (pruned.done, pruned.dead)
}

async fn exists(world: &dyn World, id: ItemId) -> bool {
    !world.operate().find(&[id]).await.expect("find").is_empty()
}

async fn a_worker_without_a_report_for_more_than_a_day_is_pruned(world: &dyn World) {
    let day = Duration::from_hours(24);
    for (name, seen_at) in [("gone", T0), ("here", T0.after(TICK))] {
        let report = report(name);
        let said = outbox(world).report(&report, Some(seen_at)).await;
        said.expect("report");
    }
    prune_at(world, T0.after(day)).await;
    assert_eq!(names(world).await.len(), 2, "it stays for exactly a day");
    prune_at(world, T0.after(day).after(TICK)).await;
    assert_eq!(names(world).await, ["here-0000000000000001"]);
}

fn report(name: &str) -> WorkerReport {
    WorkerReport {
        worker: WorkerId::new(name, 1).expect("a name"),
        host: "host".to_owned(),
        pid: 7,
        version: "0".to_owned(),
        queues: "*".to_owned(),
        topics: tenure_core::TopicSet::any(),
        concurrency: 1,
        running: 0,
        held: 0,
        settings_version: 0,
        next_within: TICK,
    }
}

async fn names(world: &dyn World) -> Vec<String> {
    let (_, workers) = outbox(world).workers(10).await.expect("workers");
    let ids = workers
        .iter()
        .map(|record| record.report.worker.to_string());
    ids.collect()
}

/// Claims all due items and settles each with this outcome.
async fn settle_all(world: &dyn World, outcome: &Outcome, now: Timestamp) -> Vec<ItemId> {
    let holder = fresh("settler");
    let ids = world.claim(&holder, 1000, now).await.ids();
    let mut settle = Settle::new(holder).at(now);
    for id in &ids {
        settle = settle.item(*id, outcome.clone());
    }
    assert_eq!(world.settle(settle).await.refused().count(), 0);
    ids
}

async fn words(world: &dyn World, id: ItemId) -> Vec<OutcomeKind> {
    let timeline = world.operate().timeline(id).await.expect("timeline");
    timeline.into_iter().map(|line| line.outcome).collect()
}

async fn an_item_is_pruned_after_the_end_of_its_retention_but_not_at_it(world: &dyn World) {
    let done = world.item_by(&fresh("holder"), State::Done).await;
    let dead = world.item_by(&fresh("holder"), State::Dead).await;
    let end = at(1).after(HOUR);
    let before = world.dump().await;
    assert_eq!(prune_at(world, end).await, (0, 0));
    assert_eq!(world.dump().await, before);
    assert_eq!(prune_at(world, end.after(TICK)).await, (1, 1));
    assert!(!exists(world, done).await && !exists(world, dead).await);
    assert_eq!(prune_at(world, end.after(TICK)).await, (0, 0));
}

async fn done_and_dead_items_have_separate_retentions(world: &dyn World) {
    for state in [State::Done, State::Dead] {
        let id = world.item_by(&fresh("holder"), state).await;
        let (own, other) = (Duration::from_secs(10), HOUR * 24);
        let (long, short) = if state == State::Done {
            (Prune::new(other, own), Prune::new(own, other))
        } else {
            (Prune::new(own, other), Prune::new(other, own))
        };
        let nothing = prune(world, long.at(at(100))).await;
        assert_eq!((nothing.done, nothing.dead), (0, 0), "{state}");
        let pruned = prune(world, short.at(at(100))).await;
        assert_eq!(pruned.done + pruned.dead, 1, "{state}");
        assert!(!exists(world, id).await);
    }
}

async fn an_open_item_is_never_pruned(world: &dyn World) {
    let ids = world.add(4).await;
    let (first, second) = (fresh("holder"), fresh("holder"));
    // One item waits after a failure, one was never claimed, one is held, and one has lapsed.
    assert_eq!(world.claim(&first, 2, T0).await.ids(), ids[..2]);
    let back = world.settle_one(&first, ids[0], retry(5), at(1)).await;
    assert_eq!(back, Guarded::Accepted(()));
    assert_eq!(world.claim(&second, 1, T0).await.ids(), [ids[2]]);
    let long_after = at(1).after(HOUR * 24 * 365);
    assert_eq!(prune_at(world, long_after).await, (0, 0));
    for (id, state) in ids.iter().zip([
        State::Pending,
        State::Claimed,
        State::Claimed,
        State::Pending,
    ]) {
        assert_eq!(world.state(*id).await, state);
    }
    assert_eq!(world.reap_at(long_after).await.len(), 2);
    let mut all = settle_all(world, &Outcome::Done, long_after).await;
    all.sort();
    assert_eq!(all, ids, "each can still be claimed and settled");
}

async fn a_replayed_item_is_not_pruned(world: &dyn World) {
    for state in [State::Done, State::Dead] {
        let id = world.item_by(&fresh("holder"), state).await;
        assert_eq!(world.replay(id, at(2)).await, Guarded::Accepted(()));
        let long_after = at(2).after(HOUR * 2);
        assert_eq!(prune_at(world, long_after).await, (0, 0));
        assert_eq!(world.state(id).await, State::Pending, "after {state}");
        let holder = fresh("holder");
        assert_eq!(world.claim(&holder, 1, long_after).await.ids(), [id]);
        assert_eq!(prune_at(world, long_after).await, (0, 0));
        assert_eq!(world.state(id).await, State::Claimed, "after {state}");
        let settled = world.settle_one(&holder, id, dead(), long_after).await;
        assert_eq!(settled, Guarded::Accepted(()));
        assert_eq!(prune_at(world, long_after.after(HOUR)).await, (0, 0));
        assert_eq!(world.state(id).await, State::Dead, "after {state}");
        let past = long_after.after(HOUR + TICK);
        assert_eq!(prune_at(world, past).await, (0, 1));
        assert!(!exists(world, id).await);
    }
}

/// The settle may have the same time as the replay.
async fn the_retention_of_a_replayed_item_starts_at_its_last_settle(world: &dyn World) {
    let ids = world.add(2).await;
    assert_eq!(settle_all(world, &Outcome::Done, at(1)).await, ids);
    let again = at(1800);
    assert_eq!(world.replay(ids[0], again).await, Guarded::Accepted(()));
    assert_eq!(
        settle_all(world, &Outcome::Done, again).await,
        [ids[0]],
        "done again"
    );
    assert_eq!(prune_at(world, again.after(HOUR)).await, (1, 0));
    assert!(!exists(world, ids[1]).await, "its neighbour in the journal");
    assert_eq!(world.state(ids[0]).await, State::Done);
    assert_eq!(world.record(ids[0]).await.done_at, Some(again));
    assert_eq!(prune_at(world, again.after(HOUR + TICK)).await, (1, 0));
    assert!(!exists(world, ids[0]).await);
}

async fn a_pruned_item_is_not_found(world: &dyn World) {
    let holder = fresh("holder");
    let id = world.item_by(&holder, State::Dead).await;
    // The journal row is kept for longer than the item.
    let ask = Prune::new(HOUR * 9, HOUR).at(at(2).after(HOUR));
    assert_eq!(prune(world, ask).await.dead, 1);
    let now = at(3).after(HOUR);
    let not_found = Guarded::Refused(Refusal::NotFound);
    assert_eq!(world.replay(id, now).await, not_found);
    assert_eq!(world.bury(id, 1, now).await, not_found);
    for outcome in [dead(), Outcome::Done, retry(1)] {
        let answer = world.settle_one(&holder, id, outcome, now).await;
        assert_eq!(answer, not_found);
    }
    assert!(!exists(world, id).await);
    let next = world.add(1).await[0];
    assert_ne!(next, id, "an id is never used twice");
    assert_eq!(world.drain("worker", now).await, [next]);
}

async fn a_dedupe_key_is_free_again_after_a_prune(world: &dyn World) {
    let event = || Event::from_json("t", "1").expect("an event");
    let keyed = [NewEvent::from(event())
        .dedupe("order-7")
        .build()
        .expect("a key")];
    let store = outbox(world);
    let first = store.enqueue(&keyed).await.expect("enqueue")[0].id();
    settle_all(world, &Outcome::Done, at(1)).await;
    let still = store.enqueue(&keyed).await.expect("enqueue")[0];
    assert!(matches!(still, Enqueued::Existed { id } if id == first));
    assert_eq!(prune_at(world, at(2).after(HOUR)).await, (1, 0));
    let second = store.enqueue(&keyed).await.expect("enqueue")[0];
    assert!(second.is_fresh());
    assert_ne!(second.id(), first);
}

async fn counts_are_correct_after_a_prune(world: &dyn World) {
    let ids = world.add(10).await;
    let holder = token("holder", 1);
    world.claim(&holder, 8, T0).await;
    let settle = Settle::new(holder.clone())
        .done([ids[0], ids[1], ids[2]])
        .item(ids[3], dead())
        .item(ids[4], dead());
    assert_eq!(world.settle(settle.at(at(1))).await.refused().count(), 0);
    let late = at(1).after(HOUR);
    let later = Settle::new(holder).done([ids[5]]).at(late);
    assert_eq!(world.settle(later).await.refused().count(), 0);
    assert_eq!(prune_at(world, late.after(TICK)).await, (3, 2));
    let counts = world.operate().count(Some(late)).await.expect("count");
    let places = (counts.pending(), counts.claimed, counts.done, counts.dead);
    assert_eq!(places, (2, 2, 1, 0));
    // The item with the last id is pruned, too; later items must still get new ids.
    world.reap_at(late).await;
    settle_all(world, &Outcome::Done, late).await;
    let far = late.after(HOUR * 2);
    assert_eq!(prune_at(world, far).await, (5, 0));
    let counts = world.operate().count(Some(far)).await.expect("count");
    assert_eq!((counts.pending(), counts.done, counts.dead), (0, 0, 0));
    world.add(3).await;
    settle_all(world, &Outcome::Done, far).await;
    let counts = world.operate().count(Some(far)).await.expect("count");
    assert_eq!((counts.pending(), counts.done, counts.dead), (0, 3, 0));
}

async fn a_prune_respects_its_limit_and_reports_whether_more_is_left(world: &dyn World) {
    for state in [State::Done, State::Dead] {
        for _ in 0..5 {
            world.item_by(&fresh("holder"), state).await;
        }
    }
    let mut ask = Prune::new(HOUR, HOUR).at(at(2).after(HOUR));
    ask.limit = 0;
    assert_eq!(prune(world, ask.clone()).await, Pruned::default());
    ask.limit = 2;
    let mut rounds = Vec::new();
    loop {
        let pruned = prune(world, ask.clone()).await;
        rounds.push((pruned.done, pruned.dead));
        if !pruned.more {
            break;
        }
    }
    while rounds.last() == Some(&(0, 0)) {
        rounds.pop();
    }
    assert_eq!(rounds, [(2, 2), (2, 2), (1, 1)]);
    let counts = world.operate().count(None).await.expect("count");
    assert_eq!((counts.done, counts.dead), (0, 0));
}

/// All items were settled at once, so one journal row names them; then each of them is kept or
/// pruned on its own.
async fn a_journal_row_stays_while_one_of_its_items_is_kept(world: &dyn World) {
    let ids = world.add(4).await;
    assert_eq!(settle_all(world, &Outcome::Done, at(1)).await, ids);
    for id in &ids[1..3] {
        assert_eq!(world.replay(*id, at(2)).await, Guarded::Accepted(()));
    }
    let ask = |dead| Prune::new(HOUR, dead).at(at(2).after(HOUR));
    let pruned = prune(world, ask(HOUR * 24)).await;
    assert_eq!((pruned.done, pruned.more), (2, false));
    for (id, is_there) in ids.iter().zip([false, true, true, false]) {
        assert_eq!(exists(world, *id).await, is_there);
    }
    assert_eq!(words(world, ids[1]).await, [OutcomeKind::Done]);
    let now = at(3).after(HOUR);
    settle_all(world, &Outcome::Done, now).await;
    assert_eq!(
        words(world, ids[1]).await,
        [OutcomeKind::Done, OutcomeKind::Done]
    );
    assert_eq!(world.record(ids[2]).await.done_at, Some(now));
    let pruned = prune(
        world,
        Prune::new(HOUR, HOUR * 24).at(now.after(HOUR + TICK)),
    )
    .await;
    assert_eq!((pruned.done, pruned.more), (2, false));
    assert!(world.operate().find(&ids).await.expect("find").is_empty());
}

async fn the_journal_is_kept_for_the_longer_retention(world: &dyn World) {
    let id = world.add(1).await[0];
    for (second, outcome) in [(1, retry(0)), (2, Outcome::RELEASE), (3, retry(0))] {
        settle_all(world, &outcome, at(second)).await;
    }
    let all = [OutcomeKind::Retry, OutcomeKind::Release, OutcomeKind::Retry];
    for (short, long) in [(HOUR, HOUR * 2), (HOUR * 2, HOUR)] {
        let ask = Prune::new(short, long).at(at(1).after(HOUR * 2));
        prune(world, ask).await;
        assert_eq!(words(world, id).await, all);
    }
    prune_at(world, at(2).after(HOUR + TICK)).await;
    assert_eq!(words(world, id).await, all[2..]);
    prune_at(world, at(4).after(HOUR)).await;
    assert!(words(world, id).await.is_empty());
    assert_eq!(world.counters(id).await.attempts, 3, "the counters stay");
    assert_eq!(settle_all(world, &Outcome::Done, at(4)).await, [id]);
}

async fn a_repeated_settle_is_answered_within_the_retention(world: &dyn World) {
    let ids = world.add(2).await;
    let holder = fresh("holder");
    world.claim(&holder, 2, T0).await;
    let settle = Settle::new(holder)
        .item(ids[0], Outcome::Done)
        .item(ids[1], retry(0));
    let first = world.settle(settle.clone().at(at(1))).await;
    assert_eq!(first.refused().count(), 0);
    let end = at(1).after(HOUR);
    prune_at(world, end).await;
    let again = world.settle(settle.clone().at(end)).await;
    assert_eq!(again.items, first.items);
    prune_at(world, end.after(TICK)).await;
    let late = world.settle(settle.at(end.after(TICK))).await;
    let expected = [
        (ids[0], Guarded::Refused(Refusal::NotFound)),
        (ids[1], Guarded::Refused(Refusal::NotClaimed)),
    ];
    assert_eq!(late.items, expected);
}

async fn an_endless_retention_keeps_everything(world: &dyn World) {
    world.item_by(&fresh("holder"), State::Done).await;
    world.item_by(&fresh("holder"), State::Dead).await;
    let before = world.dump().await;
    let ask = Prune::new(Duration::MAX, Duration::MAX).at(at(1).after(HOUR));
    assert_eq!(prune(world, ask).await, Pruned::default());
    assert_eq!(world.dump().await, before);
}
