//! Stuck keys with many events behind their heads, as ballast for a drain of other events.

use std::time::Duration;

use tenure::lease::{Claim, Settle};
use tenure::operate::{OnDead, Pause};
use tenure::store::{Clock as _, Store, SystemClock};
use tenure::{Event, NewEvent, Outcome, StoreError, StoreErrorKind};

use super::{BULK, Yardstick, cycle, event, fill, token};

/// Number of stuck keys; the events are spread evenly over them.
const KEYS: u32 = 1_000;
/// Delay of a head, longer than any run.
const DELAY: Duration = Duration::from_hours(24);
/// Maximum number of claims, including empty ones, for settling the heads as dead.
const TRIES: u32 = 100;

/// The reason why a key is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The head is not due.
    Delay,
    /// An operator paused the key.
    Pause,
    /// The head is dead and blocks the key.
    Death,
}

impl Cause {
    /// Returns the cause for the nth key; the causes take turns.
    fn of(nth: u32) -> Self {
        match nth % 3 {
            0 => Self::Delay,
            1 => Self::Pause,
            _ => Self::Death,
        }
    }
}

impl Yardstick {
    /// Puts this many events behind 1,000 stuck keys: a third has a delayed head, a third is
    /// paused, and a third is blocked by a dead head.
    pub(crate) async fn block(&self, events: u32) -> Result<(), StoreError> {
        let store = self.store();
        let keys = KEYS.min(events.max(1));
        let mut heads = Vec::new();
        let mut deaths = 0;
        for nth in 0..keys {
            let head = keyed(&key(nth))?;
            match Cause::of(nth) {
                Cause::Delay => heads.push(delayed(head)?),
                Cause::Pause => store.pause_key(&key(nth), Pause::Begin).await?,
                Cause::Death => {
                    heads.push(head);
                    deaths += 1;
                }
            }
        }
        store.enqueue(&heads).await?;
        kill(store, deaths).await?;
        let mut batch = Vec::with_capacity(BULK);
        for nth in 0..keys {
            let share = events / keys + u32::from(nth < events % keys);
            for _ in 0..share {
                batch.push(keyed(&key(nth))?);
                if batch.len() == BULK {
                    store.enqueue(&batch).await?;
                    batch.clear();
                }
            }
        }
        store.enqueue(&batch).await?;
        self.stand_still(events).await
    }

    /// Puts this many events behind the head of one key, which is not due.
    pub(crate) async fn heat(&self, events: u32) -> Result<(), StoreError> {
        let store = self.store();
        let follower = keyed("hot")?;
        let head = delayed(follower.clone())?;
        store.enqueue(&[head]).await?;
        fill(store, &cycle(&[follower]), events).await?;
        self.stand_still(events).await
    }

    /// Checks that this many events are pending and cannot be claimed: a drain that also took them
    /// would measure nothing.
    async fn stand_still(&self, events: u32) -> Result<(), StoreError> {
        // A claim with a given time first gives every key its head.
        let any = Claim::new(token(), 1).at(SystemClock.now());
        if self.store().claim(&any).await?.is_some() {
            return Err(odd("an event of a stuck key was claimed".to_owned()));
        }
        let counts = self.store().count(None).await?;
        let due: u64 = counts.queues.iter().map(|(_, queue)| queue.due).sum();
        let behind: u64 = counts.queues.iter().map(|(_, queue)| queue.behind).sum();
        if (due, behind) == (0, u64::from(events)) {
            return Ok(());
        }
        Err(odd(format!(
            "{events} events should wait behind stuck keys; {behind} do, and {due} are due"
        )))
    }
}

/// Settles this many heads as dead, which blocks their keys.
async fn kill(store: &dyn Store, heads: usize) -> Result<(), StoreError> {
    let mut left = heads;
    for _ in 0..TRIES {
        if left == 0 {
            return Ok(());
        }
        let Some(held) = store.claim(&Claim::new(token(), 1000)).await? else {
            continue;
        };
        left = left.saturating_sub(held.items.len());
        let mut settle = Settle::new(held.lease.token.clone()).on_dead(OnDead::Block);
        for id in held.ids() {
            settle = settle.item(id, Outcome::dead("to block its key"));
        }
        let settlement = store.settle(&settle).await?;
        if let Some((id, why)) = settlement.refused().next() {
            return Err(odd(format!("the head {id} could not be settled: {why}")));
        }
    }
    Err(odd(format!("{left} heads could not be claimed")))
}

fn key(nth: u32) -> String {
    format!("still-{nth}")
}

fn keyed(key: &str) -> Result<Event, StoreError> {
    built(NewEvent::from(event()).key(key))
}

fn delayed(event: Event) -> Result<Event, StoreError> {
    built(NewEvent::from(event).delay(DELAY))
}

fn built(event: NewEvent) -> Result<Event, StoreError> {
    let event = event.build();
    event.map_err(|problems| StoreError::invalid("bench", &problems))
}

fn odd(what: String) -> StoreError {
    StoreError::new("bench", StoreErrorKind::Corrupt, what)
}
