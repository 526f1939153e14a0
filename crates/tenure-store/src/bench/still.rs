//! Keys that stand still, with many events behind them: what a drain of others is measured beside.

use std::time::Duration;

use tenure_core::store::{Claim, Pause, Settle, Store, StoreError, StoreErrorKind};
use tenure_core::{Event, Invalid, OnDead, Outcome};

use super::{BULK, Yardstick, cycle, event, fill, token};

/// As many keys share what waits behind them.
const KEYS: u32 = 1_000;
/// Longer than any run takes.
const DELAY: Duration = Duration::from_hours(24);
/// A claim that finds nothing this often will find nothing.
const TRIES: u32 = 100;

/// Why a key stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Its head is not due.
    Delay,
    /// An operator paused it.
    Pause,
    /// Its head is dead and blocks it.
    Death,
}

impl Cause {
    /// They take turns.
    fn of(nth: u32) -> Self {
        match nth % 3 {
            0 => Self::Delay,
            1 => Self::Pause,
            _ => Self::Death,
        }
    }
}

impl Yardstick {
    /// Puts this many events behind the heads of 1,000 keys that stand still: a third of the heads
    /// is delayed, a third of the keys paused, a third of the heads dead and blocking.
    ///
    /// # Errors
    /// The database failed, or they do not stand as they should.
    pub async fn block(&self, events: u32) -> Result<(), StoreError> {
        let store = self.store();
        let keys = KEYS.min(events.max(1));
        let mut heads = Vec::new();
        let mut deaths = 0;
        for nth in 0..keys {
            let head = keyed(&key(nth))?;
            match Cause::of(nth) {
                Cause::Delay => heads.push(head.delay(DELAY).map_err(|problem| invalid(&problem))?),
                Cause::Pause => store.pause_domain(&key(nth), Pause::Begin).await?,
                Cause::Death => {
                    heads.push(head);
                    deaths += 1;
                }
            }
        }
        store.enqueue(&heads).await?;
        self.place().await?;
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
    ///
    /// # Errors
    /// The database failed, or they do not stand as they should.
    pub async fn heat(&self, events: u32) -> Result<(), StoreError> {
        let store = self.store();
        let follower = keyed("hot")?;
        let head = follower
            .clone()
            .delay(DELAY)
            .map_err(|problem| invalid(&problem))?;
        store.enqueue(&[head]).await?;
        fill(store, &cycle(&[follower]), events).await?;
        self.stand_still(events).await
    }

    /// Answers for it that so many events wait and none of them can be claimed: a drain beside
    /// events that are drained with it would measure nothing.
    async fn stand_still(&self, events: u32) -> Result<(), StoreError> {
        self.place().await?;
        let counts = self.store().count(None).await?;
        let due: u64 = counts.queues.iter().map(|(_, queue)| queue.due).sum();
        let behind: u64 = counts.queues.iter().map(|(_, queue)| queue.behind).sum();
        if (due, behind) == (0, u64::from(events)) {
            return Ok(());
        }
        Err(odd(format!(
            "{events} events should stand still, but {behind} do and {due} are due"
        )))
    }
}

/// Settles so many heads dead, which blocks their keys.
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
    event().key(key).map_err(|problem| invalid(&problem))
}

fn invalid(problem: &Invalid) -> StoreError {
    StoreError::invalid("bench", problem)
}

fn odd(what: String) -> StoreError {
    StoreError::new("bench", StoreErrorKind::Corrupt, what)
}
