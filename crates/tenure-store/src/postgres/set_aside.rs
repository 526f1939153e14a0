//! Setting aside: a claim that comes across events of topics that it does not take gives these
//! topics lanes of their own and returns the events, as if it had not taken them.

use std::collections::{BTreeSet, HashMap};

use tenure_core::store::{Claim, Isolation, StoreError};
use tenure_core::{Event, Held, ItemId};

use super::PostgresStore;
use super::row::moment;
use crate::lane::{Lane, alone_lane, lane};
use crate::limits::{SEPARATE_TOPICS_MAX, STRAY_DELAY, micros};

/// Times that one claim continues after it has set all its items aside: about a second's work, so
/// that the answer comes long before the lease would end. The next claim goes on.
const ATTEMPTS_MAX: u32 = 10;
/// Least limit of such a claim: most of its items are of other topics, too.
const LIMIT_MIN: u32 = 500;
/// Rows of ready that a sweep reads.
const SWEEP_ROWS: i64 = 10_000;

/// An item to return.
struct Returned {
    id: ItemId,
    /// Queue and topic of an event that the claim does not take; `None`: its lane stays.
    stray: Option<Event>,
    /// The item follows another one of its key.
    is_behind: bool,
}

impl PostgresStore {
    /// Returns what the claim takes of these items, and sets aside the others. If nothing remains,
    /// it claims again.
    pub(crate) async fn only_taken(
        &self,
        claim: &Claim,
        mut held: Option<Held>,
    ) -> Result<Option<Held>, StoreError> {
        if claim.topics.is_any() || !claim.lanes.is_empty() {
            return Ok(held);
        }
        for left in (0..ATTEMPTS_MAX).rev() {
            let Some(mut some) = held else {
                break;
            };
            let returned = split(claim, &mut some);
            if returned.is_empty() {
                return Ok(Some(some));
            }
            let mut strays = returned.iter().filter_map(|item| item.stray.as_ref());
            // More of them wait if the claim reached its limit.
            let has_more = some.is_full && strays.any(|event| event.key().is_none());
            self.set_aside(claim, returned).await?;
            if !some.items.is_empty() {
                return Ok(Some(some));
            }
            if left == 0 {
                // Claim no more: nothing would set aside those items.
                break;
            }
            if has_more {
                self.sweep(claim).await?;
            }
            // The lease has ended without a trace, so its token is unused.
            let mut again = claim.clone();
            if again.isolation == Isolation::Shared {
                again.limit = again.limit.max(LIMIT_MIN);
            }
            let start = self.start(&again).await?;
            held = self.claim_from(&again, &start).await?;
        }
        Ok(None)
    }

    /// Sets aside the events of separate topics among those that the next claim would read, without
    /// their payloads. It leaves those with a key: a head moves only with the lock of its key.
    async fn sweep(&self, claim: &Claim) -> Result<(), StoreError> {
        let directory = self.directory();
        let queues = claim.queues.iter();
        let numbers: Vec<i32> = queues.filter_map(|queue| directory.number(queue)).collect();
        let query = self.statements().sweep.query().bind(moment(claim.now));
        self.fetch("claim", query.bind(numbers).bind(SWEEP_ROWS))
            .await?;
        self.cursors().drop_all();
        Ok(())
    }

    async fn set_aside(&self, claim: &Claim, returned: Vec<Returned>) -> Result<(), StoreError> {
        let strays = returned.iter().filter_map(|item| item.stray.as_ref());
        let topics: BTreeSet<_> = strays.map(|event| (event.queue(), event.topic())).collect();
        let mut directory = self.directory();
        if topics
            .iter()
            .any(|(queue, topic)| directory.separate(queue, topic).is_none())
        {
            let numbered = topics
                .into_iter()
                .filter_map(|(queue, topic)| Some((directory.number(queue)?, topic.to_owned())));
            let (numbers, topics): (Vec<i32>, Vec<String>) = numbered.unzip();
            let query = self.statements().separate.query();
            let query = query.bind(numbers).bind(topics).bind(SEPARATE_TOPICS_MAX);
            self.fetch("claim", query).await?;
            directory = self.reload_directory("claim").await?;
        }
        let (mut ids, mut lanes, mut delays, mut behind) = (vec![], vec![], vec![], vec![]);
        for item in returned {
            let own_lane = item.stray.as_ref().map(|event| {
                let number = directory.separate(event.queue(), event.topic())?;
                Some(match claim.isolation {
                    Isolation::Shared => lane(number, event.priority()),
                    Isolation::Isolated => alone_lane(number),
                })
            });
            ids.push(item.id.number());
            // With too many separate topics, the event waits in the lane of its queue.
            delays.push(if own_lane == Some(None) {
                micros(STRAY_DELAY)
            } else {
                0
            });
            lanes.push(own_lane.flatten());
            behind.push(item.is_behind);
        }
        let query = self.statements().set_aside.query();
        let query = query.bind(claim.token.expose()).bind(ids);
        let query = query
            .bind::<Vec<Option<Lane>>>(lanes)
            .bind(delays)
            .bind(behind);
        self.fetch("claim", query).await?;
        self.cursors().drop_all();
        Ok(())
    }
}

/// Removes the items that the claim returns: those of other topics, and those beyond its limit. The
/// items of a key stay in order: behind a returned item, all are returned.
fn split(claim: &Claim, held: &mut Held) -> Vec<Returned> {
    let limit = usize::try_from(claim.most()).unwrap_or(usize::MAX);
    // Keys met so far; true once an item of the key is returned, and with it all later ones.
    let mut keys: HashMap<String, bool> = HashMap::new();
    let mut returned = Vec::new();
    let mut kept = Vec::with_capacity(held.items.len());
    for item in std::mem::take(&mut held.items) {
        let event = item.content.event();
        let key = event.and_then(Event::key).map(str::to_owned);
        let is_stray = event.is_some_and(|event| !claim.topics.takes(event.topic()));
        let before = key.as_ref().and_then(|key| keys.get(key).copied());
        let is_returned = is_stray || before == Some(true) || kept.len() >= limit;
        if let Some(key) = key {
            keys.insert(key, is_returned);
        }
        if is_returned {
            returned.push(Returned {
                id: item.id,
                stray: event.filter(|_| is_stray).cloned(),
                is_behind: before.is_some(),
            });
        } else {
            kept.push(item);
        }
    }
    held.items = kept;
    returned
}
