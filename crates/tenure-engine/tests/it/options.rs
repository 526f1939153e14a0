//! Options of one handler: its retries, its timeout, its concurrency.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_core::store::{Counts, QueueRules, Queues as _};
use tenure_core::{Event, Failure, NewEvent, Outcome, QueueName, State, TopicPattern};
use tenure_engine::{Context, EventFn, Handler, HandlerOptions, Topics, WithOptions};
use tokio::time::sleep;

use crate::world::World;

fn topics(routes: [(&str, Arc<dyn Handler>, HandlerOptions); 2]) -> Topics {
    let mut topics = Topics::new();
    for (pattern, handler, options) in routes {
        let pattern = TopicPattern::new(pattern).unwrap();
        topics.add(pattern, Arc::new(WithOptions::new(handler, options)));
    }
    topics
}

fn failing() -> Arc<dyn Handler> {
    Arc::new(EventFn::new(|_: Event, _: Context| async {
        Err::<Outcome, _>(Failure::new("503").after(Duration::from_secs(1)))
    }))
}

fn events(topic: &str, count: u32) -> Vec<Event> {
    let event = |n: u32| Event::new(topic, &n).unwrap();
    (0..count).map(event).collect()
}

#[tokio::test(start_paused = true)]
async fn each_handler_has_its_own_retries() {
    let world = World::new();
    let few = world.enqueue_all(&events("few", 1)).await[0];
    let many = world.enqueue_all(&events("many", 1)).await[0];
    let routes = [
        ("few", failing(), HandlerOptions::new().retries(0)),
        ("many", failing(), HandlerOptions::new().retries(3)),
    ];
    let engine = world.start(topics(routes), World::config());
    world.until(|counts| counts.dead == 2).await;
    assert_eq!(world.find(few).await.counters.failures, 1);
    assert_eq!(world.find(many).await.counters.failures, 4);
    engine.stop().await;
}

/// The handler's own retries come first, then those of its queue, then the settings.
#[tokio::test(start_paused = true)]
async fn a_queue_has_its_own_retries_and_a_handler_overrides_them() {
    let world = World::new();
    let mail = QueueName::new("mail").unwrap();
    let mut rules = QueueRules::default();
    rules.retry.max_retries = Some(2);
    rules.retry.base = Some(Duration::from_millis(1));
    rules.retry.cap = Some(Duration::from_millis(1));
    world.store.add_queue(&mail, rules).await.unwrap();
    let at_once =
        || EventFn::new(|_: Event, _: Context| async { Err::<Outcome, _>(Failure::new("503")) });
    let event = |topic| NewEvent::new(topic, &1).queue("mail").build().unwrap();
    let ids = world.enqueue_all(&[event("own"), event("of.queue")]).await;
    let routes: [(&str, Arc<dyn Handler>, _); 2] = [
        ("own", Arc::new(at_once()), HandlerOptions::new().retries(1)),
        ("of.queue", Arc::new(at_once()), HandlerOptions::new()),
    ];
    let engine = world.start(topics(routes), World::config());
    world.until(|counts| counts.dead == 2).await;
    let failures =
        [world.find(ids[0]).await, world.find(ids[1]).await].map(|of| of.counters.failures);
    assert_eq!(failures, [2, 3]);
    engine.stop().await;
}

/// A base of 30 days: the delay is below an hour once in 720 runs, so ten events are looked at.
#[tokio::test(start_paused = true)]
async fn each_handler_has_its_own_backoff() {
    let world = World::new();
    let most = Duration::from_hours(24 * 30);
    let fail =
        || EventFn::new(|_: Event, _: Context| async { Err::<Outcome, _>(Failure::new("503")) });
    let options = HandlerOptions::new().backoff(most, most);
    let engine = world.start(WithOptions::new(Arc::new(fail()), options), World::config());
    let ids = world.enqueue_all(&events("slow", 10)).await;
    let waits = |counts: &Counts| counts.queues.iter().map(|(_, of)| of.delayed).sum::<u64>() == 10;
    world.until(waits).await;
    let mut longest = Duration::ZERO;
    for id in ids {
        let record = world.find(id).await;
        longest = longest.max(record.available_at.unwrap().since(record.created_at));
    }
    assert!(longest > Duration::from_hours(1), "{longest:?}");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_longer_than_its_timeout_fails_and_is_stopped() {
    let world = World::new();
    let id = world.enqueue_all(&events("slow", 1)).await[0];
    let finished = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&finished);
    let slow = EventFn::new(move |_: Event, cx: Context| {
        let counter = Arc::clone(&counter);
        async move {
            assert!(cx.time_left() <= Duration::from_secs(5));
            sleep(Duration::from_secs(6)).await;
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    });
    let options = HandlerOptions::new()
        .timeout(Duration::from_secs(5))
        .retries(1);
    let handler = WithOptions::new(Arc::new(slow), options);
    let engine = world.start(handler, World::config());
    world.until(|counts| counts.dead == 1).await;
    let record = world.find(id).await;
    assert_eq!(record.counters.failures, 2);
    let error = record.last_error.unwrap();
    assert!(error.ends_with("the handler timed out after 5s"), "{error}");
    assert_eq!(finished.load(Ordering::Relaxed), 0, "it was dropped");
    engine.stop().await;
}

/// The engine also honours a timeout above the maximum hold of the settings (90 s).
#[tokio::test(start_paused = true)]
async fn a_timeout_may_be_longer_than_the_maximum_hold() {
    let world = World::new();
    let id = world.enqueue_all(&events("long", 1)).await[0];
    let long = EventFn::new(|_: Event, _: Context| async {
        sleep(Duration::from_secs(250)).await;
        Ok(())
    });
    let options = HandlerOptions::new().timeout(Duration::from_mins(5));
    let engine = world.start(WithOptions::new(Arc::new(long), options), World::config());
    world.until(|counts| counts.done == 1).await;
    let record = world.find(id).await;
    assert_eq!((record.state, record.counters.failures), (State::Done, 0));
    engine.stop().await;
}

/// Many slow events of a handler that is limited to two at once precede fast events of another
/// handler. The slow handler never runs more than two, and the fast events do not wait for it.
#[tokio::test(start_paused = true)]
async fn a_limited_handler_keeps_its_limit_and_leaves_the_other_executors_free() {
    let world = World::new();
    world.enqueue_all(&events("slow", 40)).await;
    world.enqueue_all(&events("fast", 100)).await;
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (gauge, peak) = (Arc::clone(&running), Arc::clone(&most));
    let slow = EventFn::new(move |_: Event, _: Context| {
        let (gauge, peak) = (Arc::clone(&gauge), Arc::clone(&peak));
        async move {
            let now = gauge.fetch_add(1, Ordering::Relaxed) + 1;
            peak.fetch_max(now, Ordering::Relaxed);
            sleep(Duration::from_secs(20)).await;
            gauge.fetch_sub(1, Ordering::Relaxed);
            Ok(())
        }
    });
    let fast = EventFn::new(|_: Event, _: Context| async {
        sleep(Duration::from_millis(100)).await;
        Ok(())
    });
    let routes: [(&str, Arc<dyn Handler>, HandlerOptions); 2] = [
        ("slow", Arc::new(slow), HandlerOptions::new().concurrency(2)),
        ("fast", Arc::new(fast), HandlerOptions::new()),
    ];
    let began = tokio::time::Instant::now();
    let engine = world.start(topics(routes), World::config());
    world.until(|counts| counts.done >= 100).await;
    // At most six slow events are done in a minute, so nearly all of the hundred are fast ones.
    let took = began.elapsed();
    assert!(took < Duration::from_mins(1), "the fast ones took {took:?}");
    world.until(|counts| counts.done == 140).await;
    assert_eq!(most.load(Ordering::Relaxed), 2);
    let took = began.elapsed();
    // Forty slow events, two at once for 20 s each, take 400 s: the limit is nearly always used.
    assert!(took < Duration::from_mins(8), "the slow ones took {took:?}");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_item_released_because_of_a_limit_loses_no_retry() {
    let world = World::new();
    let ids = world.enqueue_all(&events("slow", 30)).await;
    let slow = EventFn::new(|_: Event, _: Context| async {
        sleep(Duration::from_secs(5)).await;
        Ok(())
    });
    let options = HandlerOptions::new().concurrency(1);
    let handler = WithOptions::new(Arc::new(slow), options);
    let engine = world.start(handler, World::config());
    world.until(|counts| counts.done == 30).await;
    for id in ids {
        let counters = world.find(id).await.counters;
        assert_eq!((counters.failures, counters.crashes), (0, 0), "{id}");
    }
    engine.stop().await;
}
