//! Domains, as operators see them: bury, replay, pause, skip; counts, lists and records.

use std::time::Duration;

use tenure_core::store::{
    DomainFilter, DomainRecord, DomainState, Filter, Pause, Prune, Replay, Settle, Skip, Store,
};
use tenure_core::{Event, Guarded, ItemId, OnDead, Outcome, Refusal, State, Timestamp};

use crate::world::{T0, World, ask, at, dead, fresh, retry, token};

on_every_queue!(
    a_key_comes_back_as_it_was_given,
    the_next_has_its_turn_when_the_head_is_buried,
    the_next_has_its_turn_when_the_last_that_is_held_is_buried,
    the_rest_of_a_run_goes_on_without_what_was_buried,
    what_is_buried_behind_the_head_just_leaves,
    a_replay_goes_to_the_tail_of_its_domain,
    of_several_that_are_replayed_the_first_is_first,
    a_replay_is_the_head_of_an_idle_domain,
    the_one_that_blocks_is_the_head_again_when_it_is_replayed,
    a_paused_domain_is_not_claimed,
    what_is_held_of_a_paused_domain_goes_on,
    a_pause_is_kept_without_events,
    a_blocked_domain_can_be_paused,
    a_head_that_stays_through_a_pause_keeps_its_age,
    a_skip_goes_on_without_the_dead_head,
    a_skip_buries_a_head_that_is_not_dead,
    only_the_head_that_is_meant_is_skipped,
    there_is_nothing_to_skip_without_a_head,
    counts_tell_what_waits_behind,
    a_list_can_be_narrowed_to_a_key,
    a_record_tells_where_a_domain_stands,
    domains_are_listed_by_age_and_those_that_are_stuck,
    those_that_are_blocked_come_before_all_that_stand_still,
    a_head_of_long_standing_is_stuck_while_others_wait_behind_it,
    a_key_is_listed_before_any_claim,
    what_blocks_its_domain_is_not_pruned,
    an_idle_domain_is_as_if_it_had_never_been,
);

pub(super) fn outbox(world: &dyn World) -> &dyn Store {
    world
        .outbox()
        .expect("these checks run in the queue layout")
}

/// An event of this domain.
pub(super) fn keyed(key: &str) -> Event {
    let event = Event::from_json("order.paid", "1");
    let keyed = event.and_then(|event| event.key(key));
    keyed.expect("the event is well formed")
}

/// One that waits for this many seconds.
pub(super) fn ranked(key: &str, seconds: u64) -> Event {
    let delayed = keyed(key).delay(Duration::from_secs(seconds));
    delayed.expect("the delay is well formed")
}

pub(super) async fn enqueue(world: &dyn World, events: &[Event]) -> Vec<ItemId> {
    let answers = outbox(world).enqueue(events).await.expect("enqueue");
    let ids = answers.iter().map(|answer| answer.id()).collect();
    place(world).await;
    ids
}

/// An item per key, in this order.
pub(super) async fn add_keyed(world: &dyn World, keys: &[&str]) -> Vec<ItemId> {
    let events: Vec<Event> = keys.iter().map(|key| keyed(key)).collect();
    enqueue(world, &events).await
}

/// `n` items of the domain `a`.
pub(super) async fn add_run(world: &dyn World, n: u32) -> Vec<ItemId> {
    let n = usize::try_from(n).expect("a few");
    add_keyed(world, &vec!["a"; n]).await
}

/// A claim for which nothing is due yet: where producers do not decide who is head, claims do.
async fn place(world: &dyn World) {
    let claim = ask(&fresh("placer"), 1, Timestamp::from_micros(0));
    assert_eq!(world.try_claim(claim).await, None);
}

async fn claimed(world: &dyn World, now: Timestamp) -> Vec<ItemId> {
    let held = world.try_claim(ask(&fresh("worker"), 9, now)).await;
    held.map(|held| held.ids()).unwrap_or_default()
}

async fn pause(world: &dyn World, pause: Pause) {
    let answer = outbox(world).pause_domain("a", pause).await;
    answer.expect("pause");
}

async fn skip(world: &dyn World, key: &str, now: Timestamp) -> Guarded<ItemId> {
    let skip = Skip::new(key, fresh("operator"), "the customer is gone").at(now);
    outbox(world).skip(&skip).await.expect("skip")
}

/// What is known of the domain `a`; of an idle one nothing need be.
async fn domain(world: &dyn World) -> Option<DomainRecord> {
    let domain = outbox(world).domain("a").await.expect("domain");
    domain.filter(|domain| domain.state != DomainState::Idle)
}

async fn standing(world: &dyn World) -> (DomainState, Option<ItemId>, u64) {
    let domain = domain(world).await.expect("it is known");
    assert_eq!(domain.key, "a");
    assert!(domain.since.is_some());
    let head = domain.head.map(|head| head.id);
    (domain.state, head, domain.waiting)
}

/// Domain `a` with a dead head that blocks it, and two behind it.
async fn blocked(world: &dyn World) -> Vec<ItemId> {
    let ids = add_run(world, 3).await;
    let holder = fresh("worker");
    world.claim(&holder, 1, T0).await;
    let settle = Settle::new(holder).item(ids[0], dead()).at(T0);
    let answer = world.settle(settle.on_dead(OnDead::Block)).await;
    assert_eq!(answer.refused().count(), 0);
    ids
}

async fn a_key_comes_back_as_it_was_given(world: &dyn World) {
    let key = "ä'\"\\ ,[]customer 7";
    let ids = add_keyed(world, &[key, key]).await;
    let holder = token("worker", 1);
    let held = world.try_claim(ask(&holder, 2, T0).abreast(1)).await;
    let held = held.expect("a run");
    assert_eq!(held.ids(), ids);
    for item in &held.items {
        let event = item.content.event().expect("an event");
        assert_eq!(event.ordering_key(), Some(key));
    }
    let settle = Settle::new(holder).item(ids[0], retry(0)).at(T0);
    assert_eq!(world.settle(settle).await.refused().count(), 0);
    let domain = outbox(world).domain(key).await.expect("domain");
    let domain = domain.expect("it is known");
    assert_eq!((domain.key.as_str(), domain.waiting), (key, 1));
}

async fn the_next_has_its_turn_when_the_head_is_buried(world: &dyn World) {
    let ids = add_run(world, 3).await;
    assert_eq!(world.bury(ids[0], 1, T0).await, Guarded::Kept(()));
    assert_eq!(world.state(ids[0]).await, State::Dead);
    assert_eq!(claimed(world, at(1)).await, ids[1..2]);
}

async fn the_next_has_its_turn_when_the_last_that_is_held_is_buried(world: &dyn World) {
    let ids = add_run(world, 2).await;
    assert_eq!(claimed(world, T0).await, ids[..1]);
    assert_eq!(world.bury(ids[0], 1, T0).await, Guarded::Kept(()));
    assert_eq!(claimed(world, at(1)).await, ids[1..]);
}

async fn the_rest_of_a_run_goes_on_without_what_was_buried(world: &dyn World) {
    let ids = add_run(world, 4).await;
    let holder = token("worker", 1);
    world.try_claim(ask(&holder, 4, T0).abreast(1)).await;
    for (n, nth) in [(1, 1), (2, 0)] {
        assert_eq!(world.bury(ids[nth], n, T0).await, Guarded::Kept(()));
        assert_eq!(claimed(world, at(1)).await, []);
    }
    assert_eq!(standing(world).await, (DomainState::Held, Some(ids[2]), 0));
    let settle = Settle::new(holder).done([ids[2]]).item(ids[3], retry(0));
    let answer = world.settle(settle.at(at(2))).await;
    assert_eq!(answer.refused().count(), 0);
    assert_eq!(claimed(world, at(3)).await, ids[3..]);
}

async fn what_is_buried_behind_the_head_just_leaves(world: &dyn World) {
    let ids = add_run(world, 3).await;
    assert_eq!(world.bury(ids[1], 1, T0).await, Guarded::Kept(()));
    assert_eq!(world.state(ids[1]).await, State::Dead);
    assert_eq!(world.counters(ids[1]).await.attempts, 1);
    let holder = token("worker", 1);
    assert_eq!(world.claim(&holder, 9, T0).await.ids(), ids[..1]);
    let answer = world.settle_one(&holder, ids[0], Outcome::Done, T0).await;
    assert_eq!(answer, Guarded::Kept(()));
    assert_eq!(claimed(world, at(1)).await, ids[2..]);
}

/// The order in which the domain is worked from now on.
async fn order(world: &dyn World) -> Vec<ItemId> {
    let mut order = Vec::new();
    for now in (100..).map(at) {
        let holder = fresh("worker");
        let Some(held) = world.try_claim(ask(&holder, 9, now)).await else {
            return order;
        };
        assert_eq!(held.items.len(), 1, "one at a time");
        order.extend(held.ids());
        let settle = Settle::new(holder).done(held.ids()).at(now);
        assert_eq!(world.settle(settle).await.refused().count(), 0);
    }
    order
}

async fn a_replay_goes_to_the_tail_of_its_domain(world: &dyn World) {
    let done = add_run(world, 1).await[0];
    world.tidy(T0).await;
    let ids = add_run(world, 2).await;
    assert_eq!(world.replay(done, at(1)).await, Guarded::Kept(()));
    assert_eq!(world.state(done).await, State::Pending);
    assert_eq!(world.counters(done).await.generation, 1);
    let later = add_run(world, 1).await[0];
    assert_eq!(order(world).await, [ids[0], ids[1], done, later]);
}

async fn of_several_that_are_replayed_the_first_is_first(world: &dyn World) {
    let done = add_run(world, 3).await;
    world.tidy(T0).await;
    let ids = vec![done[2], done[0], done[1]];
    let replay = Replay {
        ids: ids.clone(),
        now: Some(at(1)),
    };
    let answers = world.operate().replay(&replay).await.expect("replay");
    assert!(answers.iter().all(|(_, answer)| answer.is_kept()));
    assert_eq!(order(world).await, ids);
}

async fn a_replay_is_the_head_of_an_idle_domain(world: &dyn World) {
    let done = add_run(world, 1).await;
    world.tidy(T0).await;
    assert_eq!(world.replay(done[0], at(1)).await, Guarded::Kept(()));
    place(world).await;
    assert_eq!(standing(world).await.1, Some(done[0]));
    assert_eq!(claimed(world, at(1)).await, done);
}

async fn the_one_that_blocks_is_the_head_again_when_it_is_replayed(world: &dyn World) {
    let ids = blocked(world).await;
    assert_eq!(world.replay(ids[0], at(1)).await, Guarded::Kept(()));
    let (_, head, waiting) = standing(world).await;
    assert_eq!((head, waiting), (Some(ids[0]), 2));
    assert_eq!(order(world).await, ids);
}

async fn a_paused_domain_is_not_claimed(world: &dyn World) {
    let ids = add_keyed(world, &["a", "a", "b"]).await;
    for _ in 0..2 {
        pause(world, Pause::Begin).await;
        assert_eq!(standing(world).await, (DomainState::Paused, None, 2));
    }
    let more = add_run(world, 1).await;
    assert_eq!(claimed(world, T0).await, ids[2..], "the others go on");
    for _ in 0..2 {
        pause(world, Pause::End).await;
        let (state, head, waiting) = standing(world).await;
        assert_ne!(state, DomainState::Paused);
        assert_eq!((head, waiting), (Some(ids[0]), 2));
    }
    assert_eq!(order(world).await, [ids[0], ids[1], more[0]]);
}

async fn what_is_held_of_a_paused_domain_goes_on(world: &dyn World) {
    let ids = add_run(world, 4).await;
    let holder = token("worker", 1);
    world.try_claim(ask(&holder, 2, T0).abreast(1)).await;
    pause(world, Pause::Begin).await;
    let held = (DomainState::Paused, Some(ids[0]), 2);
    assert_eq!(standing(world).await, held);
    let answer = world
        .settle_one(&holder, ids[0], Outcome::Done, at(1))
        .await;
    assert_eq!(answer, Guarded::Kept(()));
    // What is not done waits for the end of the pause, too.
    let answer = world.settle_one(&holder, ids[1], retry(0), at(1)).await;
    assert_eq!(answer, Guarded::Kept(()));
    assert_eq!(standing(world).await, (DomainState::Paused, None, 3));
    assert_eq!(claimed(world, at(2)).await, []);
    pause(world, Pause::End).await;
    assert_eq!(order(world).await, ids[1..]);
}

async fn a_pause_is_kept_without_events(world: &dyn World) {
    pause(world, Pause::End).await;
    assert_eq!(domain(world).await, None, "nothing was paused");
    pause(world, Pause::Begin).await;
    let ids = add_run(world, 2).await;
    assert_eq!(claimed(world, T0).await, []);
    assert_eq!(standing(world).await, (DomainState::Paused, None, 2));
    pause(world, Pause::End).await;
    assert_eq!(order(world).await, ids);
    pause(world, Pause::Begin).await;
    assert_eq!(standing(world).await, (DomainState::Paused, None, 0));
    pause(world, Pause::End).await;
    assert_eq!(domain(world).await, None);
}

async fn a_blocked_domain_can_be_paused(world: &dyn World) {
    let ids = blocked(world).await;
    pause(world, Pause::Begin).await;
    // Nor does the pause hide what will stand in the way after it.
    let both = (DomainState::Paused, Some(ids[0]), 2);
    assert_eq!(standing(world).await, both);
    assert!(domain(world).await.is_some_and(|of| of.is_blocked()));
    pause(world, Pause::End).await;
    assert_eq!(standing(world).await.0, DomainState::Blocked);
    pause(world, Pause::Begin).await;
    assert_eq!(world.replay(ids[0], at(1)).await, Guarded::Kept(()));
    assert_eq!(claimed(world, at(2)).await, []);
    pause(world, Pause::End).await;
    assert_eq!(order(world).await, ids);
}

async fn a_head_that_stays_through_a_pause_keeps_its_age(world: &dyn World) {
    blocked(world).await;
    pause(world, Pause::Begin).await;
    let paused = domain(world).await.map(|of| of.since);
    pause(world, Pause::End).await;
    assert_eq!(domain(world).await.map(|of| of.since), paused);
}

async fn a_skip_goes_on_without_the_dead_head(world: &dyn World) {
    let ids = blocked(world).await;
    assert_eq!(
        standing(world).await,
        (DomainState::Blocked, Some(ids[0]), 2)
    );
    assert_eq!(skip(world, "a", at(1)).await, Guarded::Kept(ids[0]));
    let left = world.record(ids[0]).await;
    assert_eq!(left.state, State::Dead, "it stays dead");
    // Who said so, when and why is told beside what it died of.
    let error = left.last_error.expect("an error");
    let why = format!(" at {}: the customer is gone; last error before: ", at(1));
    assert!(error.starts_with("skipped by operator-"), "{error}");
    assert!(error.contains(&why), "{error}");
    assert_eq!(left.dead_at, Some(T0), "it died when it died");
    assert_eq!(order(world).await, ids[1..]);
}

async fn a_skip_buries_a_head_that_is_not_dead(world: &dyn World) {
    let ids = add_run(world, 3).await;
    assert_eq!(skip(world, "a", T0).await, Guarded::Kept(ids[0]));
    assert_eq!(world.state(ids[0]).await, State::Dead);
    let holder = token("worker", 1);
    world.claim(&holder, 1, at(1)).await;
    assert_eq!(skip(world, "a", at(2)).await, Guarded::Kept(ids[1]));
    let answer = world
        .settle_one(&holder, ids[1], Outcome::Done, at(3))
        .await;
    assert_eq!(answer, Guarded::Refused(Refusal::AlreadySettled));
    assert_eq!(order(world).await, ids[2..]);
}

async fn only_the_head_that_is_meant_is_skipped(world: &dyn World) {
    let ids = add_run(world, 3).await;
    let skip = |head| Skip::new("a", fresh("operator"), "gone").only(head).at(T0);
    let skip_of = async |head| outbox(world).skip(&skip(head)).await.expect("skip");
    assert_eq!(skip_of(ids[1]).await, Guarded::Refused(Refusal::Lost));
    assert_eq!(skip_of(ids[0]).await, Guarded::Kept(ids[0]));
    assert_eq!(skip_of(ids[0]).await, Guarded::Refused(Refusal::Lost));
    assert_eq!(order(world).await, ids[1..]);
}

async fn there_is_nothing_to_skip_without_a_head(world: &dyn World) {
    let none = Guarded::Refused(Refusal::NotFound);
    assert_eq!(skip(world, "a", T0).await, none);
    pause(world, Pause::Begin).await;
    add_run(world, 1).await;
    assert_eq!(skip(world, "a", T0).await, none);
}

async fn counts_tell_what_waits_behind(world: &dyn World) {
    let outbox = outbox(world);
    let mail = tenure_core::QueueName::new("mail").expect("a queue's name");
    outbox.add_queue(&mail, None).await.expect("add a queue");
    let letter = keyed("a").queue("mail").expect("a queue's name");
    enqueue(world, &[keyed("a"), keyed("a"), letter, keyed("b")]).await;
    let counts = outbox.count(Some(T0)).await.expect("count");
    let of: Vec<_> = counts
        .queues
        .iter()
        .map(|(name, queue)| (name.as_str(), queue.due, queue.delayed, queue.behind))
        .collect();
    assert_eq!(of, [("default", 2, 0, 1), ("mail", 0, 0, 1)]);
    assert_eq!((counts.pending(), counts.done), (4, 0));
    world.tidy(T0).await;
    let counts = outbox.count(Some(T0)).await.expect("count");
    let held = ask(&fresh("worker"), 9, T0).queues(vec![mail]);
    assert_eq!((counts.pending(), counts.done), (1, 3));
    assert!(world.try_claim(held).await.is_some());
}

async fn a_list_can_be_narrowed_to_a_key(world: &dyn World) {
    let ids = add_keyed(world, &["a", "b", "a", "a", "b"]).await;
    world.add(2).await;
    let holder = token("worker", 1);
    world.claim(&holder, 1, T0).await;
    let answer = world.settle_one(&holder, ids[0], Outcome::Done, T0).await;
    assert_eq!(answer, Guarded::Kept(()));
    let mut expected = vec![(None, vec![ids[3], ids[2], ids[0]])];
    expected.push((Some(State::Pending), vec![ids[3], ids[2]]));
    expected.push((Some(State::Done), vec![ids[0]]));
    expected.push((Some(State::Dead), vec![]));
    expected.push((Some(State::Claimed), vec![]));
    for (state, ids) in expected {
        let filter = Filter {
            state,
            key: Some("a".into()),
            ..Filter::default()
        };
        let page = world.operate().list(&filter, 9).await.expect("list");
        let found: Vec<ItemId> = page.records.iter().map(|record| record.id).collect();
        assert_eq!(found, ids, "{state:?}");
        let page = world.operate().list(&filter, 2).await.expect("list");
        assert_eq!(page.next.is_some(), ids.len() > 2);
    }
}

async fn a_record_tells_where_a_domain_stands(world: &dyn World) {
    assert_eq!(domain(world).await, None);
    let ids = add_run(world, 3).await;
    assert_eq!(standing(world).await, (DomainState::Due, Some(ids[0]), 2));
    let holder = token("worker", 1);
    world.try_claim(ask(&holder, 2, T0).abreast(1)).await;
    assert_eq!(standing(world).await, (DomainState::Held, Some(ids[0]), 1));
    let answer = world
        .settle_one(&holder, ids[0], Outcome::Done, at(1))
        .await;
    assert_eq!(answer, Guarded::Kept(()));
    assert_eq!(standing(world).await, (DomainState::Held, Some(ids[1]), 1));
    let answer = world.settle_one(&holder, ids[1], retry(9), at(2)).await;
    assert_eq!(answer, Guarded::Kept(()));
    let delayed = (DomainState::Delayed, Some(ids[1]), 1);
    assert_eq!(standing(world).await, delayed);
    let behind = world.record(ids[2]).await;
    assert_eq!((behind.state, behind.hold), (State::Pending, None));
    assert_eq!(behind.available_at, Some(behind.created_at));
}

async fn domains_are_listed_by_age_and_those_that_are_stuck(world: &dyn World) {
    let mut ids = add_keyed(world, &["a", "b", "c"]).await;
    let mut all = keys(world, DomainFilter::Open, 9).await;
    all.sort();
    assert_eq!(all, ["a", "b", "c"]);
    assert_eq!(keys(world, DomainFilter::Stuck, 9).await, [""; 0]);
    let holder = token("worker", 1);
    world.claim(&holder, 9, T0).await;
    ids.extend(add_keyed(world, &["c", "a"]).await);
    // The next of the third has its turn much later than the others had theirs.
    let settle = Settle::new(holder).done([ids[2]]).item(ids[1], retry(0));
    assert_eq!(world.settle(settle.at(T0)).await.refused().count(), 0);
    let youngest = keys(world, DomainFilter::Open, 9).await;
    assert_eq!(youngest.last().map(String::as_str), Some("c"));
    assert_eq!(keys(world, DomainFilter::Open, 2).await.len(), 2);
    pause(world, Pause::Begin).await;
    let mut stuck = keys(world, DomainFilter::Stuck, 9).await;
    stuck.sort();
    assert_eq!(stuck, ["a", "b"]);
}

async fn keys(world: &dyn World, filter: DomainFilter, limit: u32) -> Vec<String> {
    let found = outbox(world).domains(filter, limit).await;
    let found = found.expect("domains").into_iter();
    found.map(|domain| domain.key).collect()
}

/// Goal: the few that need somebody are not lost among many that an operator holds back.
async fn those_that_are_blocked_come_before_all_that_stand_still(world: &dyn World) {
    // Of one age, they come by name.
    add_keyed(world, &["0", "0"]).await;
    for key in ["0", "00: nothing waits"] {
        let paused = outbox(world).pause_domain(key, Pause::Begin).await;
        paused.expect("pause");
    }
    blocked(world).await;
    assert_eq!(keys(world, DomainFilter::Stuck, 1).await, ["a"]);
    assert_eq!(keys(world, DomainFilter::Stuck, 9).await, ["a", "0"]);
    let open = keys(world, DomainFilter::Open, 9).await;
    assert_eq!(open.last().map(String::as_str), Some("a"));
    // Also while it is paused itself.
    pause(world, Pause::Begin).await;
    assert_eq!(keys(world, DomainFilter::Stuck, 1).await, ["a"]);
}

async fn a_head_of_long_standing_is_stuck_while_others_wait_behind_it(world: &dyn World) {
    let ids = add_run(world, 4).await;
    let long_ago = Timestamp::from_micros(1);
    for (nth, moment, stuck) in [
        (0, long_ago, &["a"][..]),
        (1, T0, &[]),
        // Nobody waits for it.
        (2, long_ago, &[]),
    ] {
        let holder = fresh("worker");
        world.claim(&holder, 1, T0).await;
        let settle = Settle::new(holder).done([ids[nth]]).at(moment);
        assert_eq!(world.settle(settle).await.refused().count(), 0);
        assert_eq!(standing(world).await.1, Some(ids[nth + 1]));
        assert_eq!(keys(world, DomainFilter::Stuck, 9).await, stuck);
    }
}

/// Where an enqueue takes no lock on its key, the next claim decides who is head.
async fn a_key_is_listed_before_any_claim(world: &dyn World) {
    let events = [keyed("a"), keyed("a"), keyed("b")];
    outbox(world).enqueue(&events).await.expect("enqueue");
    let listed = outbox(world).domains(DomainFilter::Open, 9).await;
    let mut listed: Vec<(String, u64)> = listed
        .expect("domains")
        .into_iter()
        .map(|of| (of.key, of.waiting + u64::from(of.head.is_some())))
        .collect();
    listed.sort();
    assert_eq!(listed, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    assert_eq!(keys(world, DomainFilter::Stuck, 9).await, [""; 0]);
    assert_eq!(keys(world, DomainFilter::Open, 1).await.len(), 1);
    // A bell that is rung for a key with a head, or a paused one, names nothing twice.
    place(world).await;
    pause(world, Pause::Begin).await;
    outbox(world).enqueue(&events).await.expect("enqueue");
    let mut all = keys(world, DomainFilter::Open, 9).await;
    all.sort();
    assert_eq!(all, ["a", "b"]);
}

async fn what_blocks_its_domain_is_not_pruned(world: &dyn World) {
    let ids = blocked(world).await;
    let mut prune = Prune::new(Duration::ZERO, Duration::ZERO);
    prune.now = Some(at(999));
    let pruned = outbox(world).prune(&prune).await.expect("prune");
    assert_eq!((pruned.done, pruned.dead, pruned.more), (0, 0, false));
    assert_eq!(
        standing(world).await,
        (DomainState::Blocked, Some(ids[0]), 2)
    );
    assert_eq!(skip(world, "a", at(999)).await, Guarded::Kept(ids[0]));
    let pruned = outbox(world).prune(&prune).await.expect("prune");
    assert_eq!(pruned.dead, 1);
    assert_eq!(order(world).await, ids[1..]);
}

async fn an_idle_domain_is_as_if_it_had_never_been(world: &dyn World) {
    add_run(world, 2).await;
    world.tidy(T0).await;
    assert_eq!(domain(world).await, None);
    let open = outbox(world).domains(DomainFilter::Open, 9).await;
    assert_eq!(open.expect("domains"), []);
    let mut prune = Prune::new(Duration::ZERO, Duration::ZERO);
    prune.now = Some(at(999));
    let pruned = outbox(world).prune(&prune).await.expect("prune");
    assert_eq!(pruned.done, 2);
    let ids = add_run(world, 2).await;
    assert_eq!(order(world).await, ids);
}
