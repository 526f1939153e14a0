//! Manual claims: fresh tokens, poison items, and releases.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use tenure::lease::{Claim, LapsePolicy, Reap};
use tenure::store::{Clock, SystemClock, Timestamp};
use tenure::{Event, Tenure, Term};

/// A store with one due poison item.
async fn store_with_a_loner() -> Tenure {
    let tenure = Tenure::open("memory:").await.unwrap();
    let event = Event::new("poison", &1).unwrap();
    tenure.enqueue_now(event).await.unwrap();
    let mut now = SystemClock.now();
    for _ in 0..2 {
        now = lapse(&tenure, now).await;
    }
    // The item is due in a few milliseconds.
    while tenure.count().await.unwrap().queues[0].1.due == 0 {
        tokio::task::yield_now().await;
    }
    tenure
}

/// Claims at `now` and lets the lease lapse; returns the time at which the item is due again.
async fn lapse(tenure: &Tenure, now: Timestamp) -> Timestamp {
    let tick = Duration::from_millis(1);
    let ask = Claim::new(tenure.token(), 1).term(Term::new(tick).unwrap());
    let ask = ask.recovery(None).at(now);
    assert!(tenure.claim_with(&ask).await.unwrap().is_some());
    let later = now.after(2 * tick);
    let policy = LapsePolicy::new(5, vec![Duration::ZERO]).unwrap();
    let reaped = tenure.reap(&Reap::new(10, policy).at(later)).await.unwrap();
    assert_eq!(reaped.len(), 1);
    later
}

async fn enqueue(tenure: &Tenure, number: usize) {
    let events: Vec<_> = (0..number)
        .map(|n| Event::new("ordinary", &n).unwrap())
        .collect();
    tenure.enqueue_now(&events).await.unwrap();
}

fn topic(held: &tenure::lease::Held) -> &str {
    held.items[0].content.event().unwrap().topic()
}

#[tokio::test]
async fn every_token_is_new() {
    let tenure = Tenure::open("memory:").await.unwrap();
    let other = Tenure::open("memory:").await.unwrap();
    let tokens: BTreeSet<_> = (0..100)
        .flat_map(|_| [tenure.token(), tenure.clone().token(), other.token()])
        .collect();
    assert_eq!(tokens.len(), 300);
    assert_ne!(tenure.worker_id(), other.worker_id());
}

#[tokio::test]
async fn a_claim_that_finds_nothing_else_takes_a_poison_item() {
    let tenure = store_with_a_loner().await;
    let held = tenure.claim(10).await.unwrap().unwrap();
    assert_eq!(topic(&held), "poison");
    assert_eq!(held.items.len(), 1);
}

#[tokio::test]
async fn a_busy_queue_does_not_starve_a_poison_item() {
    let tenure = store_with_a_loner().await;
    enqueue(&tenure, 20).await;
    let mut turns = Vec::new();
    for _ in 0..8 {
        let held = tenure.claim(1).await.unwrap().unwrap();
        turns.push(topic(&held).to_owned());
    }
    assert_eq!(turns.pop().as_deref(), Some("poison"));
    assert!(turns.iter().all(|topic| topic == "ordinary"), "{turns:?}");
}

#[tokio::test]
async fn a_claim_with_a_limit_of_zero_takes_nothing() {
    let tenure = Tenure::open("memory:").await.unwrap();
    enqueue(&tenure, 1).await;
    assert!(tenure.claim(0).await.unwrap().is_none());
    assert_eq!(tenure.count().await.unwrap().pending(), 1);
}

#[tokio::test]
async fn a_release_ends_all_holds_of_a_token() {
    let tenure = Tenure::open("memory:").await.unwrap();
    enqueue(&tenure, 3).await;
    let held = tenure.claim(2).await.unwrap().unwrap();
    assert_eq!(tenure.release(&held.lease.token).await.unwrap(), 2);
    assert_eq!(tenure.release(&held.lease.token).await.unwrap(), 0);
    assert_eq!(tenure.count().await.unwrap().pending(), 3);
}

#[tokio::test]
async fn debug_shows_the_worker_but_not_the_url() {
    let tenure = Tenure::open("memory:").await.unwrap();
    let text = format!("{tenure:?}");
    assert!(text.contains(tenure.worker_id().as_str()), "{text}");
    assert!(!text.contains("memory:"), "{text}");
}
