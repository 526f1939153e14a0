//! Find, list, count, replay, bury; and the queues.

use std::collections::BTreeSet;

use tenure_core::store::{
    Answer, Bury, Counts, Filter, KeyRecord, Kind, Operate, Page, Pause, Queue, QueueCounts,
    QueueRules, Queues, Replay, Replayed, SeparateTopic,
};
use tenure_core::{
    Content, Counters, Guarded, Hold, ItemId, Lease, OutcomeKind, PastHold, QueueName, Record,
    Refusal, State, Timestamp, reason,
};

use super::rules::Rules;
use super::turns::KeyOrder;
use super::{Destination, End, Leased, MemoryState, MemoryStore, Place, QueueState, StoredItem};
use crate::messages::unknown_queue;
use crate::page::{cut, page_limit};
use crate::queue_rules::StoredRules;

impl Operate for MemoryStore {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        Box::pin(async move {
            let state = self.state();
            Ok(ids.iter().filter_map(|id| state.record(*id)).collect())
        })
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<PastHold>> {
        Box::pin(async move { Ok(self.state().timeline(id)) })
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        Box::pin(async move {
            let state = self.state();
            match &filter.queue {
                Some(queue) if !state.queues.contains_key(queue) => {
                    Err(unknown_queue("list", queue))
                }
                _ => Ok(state.page(filter, limit)),
            }
        })
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        Box::pin(async move {
            let now = self.moment(now);
            Ok(self.state().counts(now))
        })
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        Box::pin(async move {
            let now = self.moment(replay.now);
            let mut state = self.state();
            Ok(replay
                .ids
                .iter()
                .map(|id| (*id, state.replay(*id, &self.rules, now)))
                .collect())
        })
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        Box::pin(async move {
            let now = self.moment(bury.now);
            Ok(self.state().bury(bury, &self.rules, now))
        })
    }
}

impl Queues for MemoryStore {
    fn queues(&self) -> Answer<'_, Vec<Queue>> {
        Box::pin(async move {
            let state = self.state();
            Ok(state
                .queues
                .iter()
                .map(|(name, line)| Queue {
                    name: name.clone(),
                    rules: line.rules,
                    paused: line.paused,
                })
                .collect())
        })
    }

    fn separate_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<SeparateTopic>> {
        Box::pin(async move {
            let now = self.moment(now);
            let state = self.state();
            let topics = state.separate.iter();
            Ok(topics
                .map(|(queue, topic)| state.separate_topic(queue, topic, now))
                .collect())
        })
    }

    fn due_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<(QueueName, Option<String>)>> {
        Box::pin(async move {
            let now = self.moment(now);
            let state = self.state();
            let due = state.ready.iter().filter(|(_, at, _)| *at <= now);
            let found: BTreeSet<_> = due.filter_map(|(_, _, id)| state.due_topic(*id)).collect();
            Ok(found.into_iter().collect())
        })
    }

    fn add_queue<'a>(&'a self, name: &'a QueueName, rules: QueueRules) -> Answer<'a, ()> {
        Box::pin(async move {
            let rules = StoredRules::new(rules)?.rules();
            let mut state = self.state();
            if !state.queues.contains_key(name) {
                let number = state.draw_number();
                state
                    .queues
                    .insert(name.clone(), QueueState::numbered(number));
            }
            if let Some(line) = state.queues.get_mut(name) {
                line.rules = rules;
            }
            Ok(())
        })
    }

    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded> {
        Box::pin(async move {
            Ok(match self.state().queues.get_mut(name) {
                None => Guarded::Refused(Refusal::NotFound),
                Some(line) => {
                    line.paused = pause == Pause::Begin;
                    Guarded::Accepted(())
                }
            })
        })
    }
}

impl MemoryState {
    pub(super) fn record(&self, id: ItemId) -> Option<Record> {
        let kept = self.items.get(&id)?;
        let (mut done_at, mut dead_at, mut dead_reason) = (None, None, None);
        match &kept.place {
            Place::Ready(_) | Place::Backlog | Place::Leased(_) => {}
            Place::Done { at } => done_at = Some(*at),
            Place::Dead { at, reason } => {
                dead_at = Some(*at);
                dead_reason = Some(reason.clone());
            }
        }
        Some(Record {
            id,
            state: kept.state(),
            content: kept.content(),
            counters: kept.counters,
            created_at: kept.created_at,
            available_at: Some(kept.available_at),
            hold: self.lease_on(id).map(hold_of),
            last_error: kept.last_error.clone(),
            done_at,
            dead_at,
            dead_reason,
        })
    }

    fn timeline(&self, id: ItemId) -> Vec<PastHold> {
        let journal = self.items.get(&id).map(|kept| kept.journal.as_slice());
        journal
            .unwrap_or_default()
            .iter()
            .map(|line| PastHold {
                holder: line.token.holder().to_owned(),
                fence: line.fence,
                outcome: line.word,
                claimed_at: line.claimed_at,
                settled_at: line.settled_at,
            })
            .collect()
    }

    fn page(&self, filter: &Filter, limit: u32) -> Page {
        let limit = page_limit(limit);
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let matching = self
            .items
            .iter()
            .rev()
            .filter(|(id, kept)| is_asked_for(filter, **id, kept))
            .map(|(id, _)| *id);
        let (ids, next) = cut(matching.take(most.saturating_add(1)).collect(), limit);
        Page {
            records: ids.iter().filter_map(|id| self.record(*id)).collect(),
            next,
        }
    }

    fn counts(&self, now: Timestamp) -> Counts {
        let mut counts = Counts::default();
        for (name, line) in &self.queues {
            let waiting = self.waiting(line.number, now);
            counts.queues.push((name.clone(), waiting));
        }
        for (number, waiting) in self.endpoints.numbers().map(|n| (n, self.waiting(n, now))) {
            if waiting != QueueCounts::default() {
                let waiting = (number.unsigned_abs(), waiting);
                counts.deliveries.endpoints.push(waiting);
            }
        }
        let is_retried = |key: &&KeyOrder| self.is_retried_long(key, now);
        let retried = self.keys.values().filter(is_retried).count();
        counts.retried_keys = u64::try_from(retried).unwrap_or(u64::MAX);
        let of_deliveries = &mut counts.deliveries;
        for (id, kept) in &self.items {
            let (claimed, lapsed, done, dead) = if id.is_delivery() {
                (
                    &mut of_deliveries.claimed,
                    &mut of_deliveries.lapsed,
                    &mut of_deliveries.delivered,
                    &mut of_deliveries.dead,
                )
            } else {
                (
                    &mut counts.claimed,
                    &mut counts.lapsed,
                    &mut counts.done,
                    &mut counts.dead,
                )
            };
            match kept.place {
                Place::Ready(_) | Place::Backlog => {}
                Place::Leased(_) => {
                    let is_live = self.lease_on(*id).is_some_and(|lease| lease.is_live(now));
                    *claimed += 1;
                    *lapsed += u64::from(!is_live);
                }
                Place::Done { .. } => *done += 1,
                Place::Dead { .. } => *dead += 1,
            }
        }
        counts
    }

    /// Returns true if the head of a key of events has been retried for long, with items behind it.
    fn is_retried_long(&self, key: &KeyOrder, now: Timestamp) -> bool {
        let head = key.head.filter(|head| !head.is_delivery());
        let head = head.and_then(|head| self.items.get(&head));
        !key.is_blocked
            && !key.is_paused
            && !key.backlog.is_empty()
            && now.since(key.since) > KeyRecord::RETRIED_LONG
            && head.is_some_and(|head| head.counters.failures > 1)
    }

    fn due_topic(&self, id: ItemId) -> Option<(QueueName, Option<String>)> {
        let content = self.items.get(&id)?.content();
        let event = content.event().filter(|_| !id.is_delivery())?;
        if self.queues.get(event.queue())?.paused {
            return None;
        }
        let name = (event.queue().clone(), event.topic().to_owned());
        let is_separate = self.separate.contains(&name);
        let (queue, topic) = name;
        Some((queue, Some(topic).filter(|_| is_separate)))
    }

    fn separate_topic(&self, queue: &QueueName, topic: &str, now: Timestamp) -> SeparateTopic {
        let waiting = self.ready.iter().filter(|(_, _, id)| {
            let content = self.items.get(id).map(StoredItem::content);
            let event = content.as_ref().and_then(Content::event);
            !id.is_delivery()
                && event.is_some_and(|event| event.queue() == queue && event.topic() == topic)
        });
        let (due, delayed): (Vec<Timestamp>, Vec<Timestamp>) =
            waiting.map(|(_, at, _)| *at).partition(|at| *at <= now);
        SeparateTopic {
            queue: queue.clone(),
            topic: topic.to_owned(),
            due: u64::try_from(due.len()).unwrap_or(u64::MAX),
            delayed: u64::try_from(delayed.len()).unwrap_or(u64::MAX),
            oldest_due: due.iter().min().map(|at| now.since(*at)),
        }
    }

    /// Counts the waiting items of the queue or endpoint with this number.
    fn waiting(&self, number: i32, now: Timestamp) -> QueueCounts {
        let mut counts = QueueCounts::default();
        for kept in self.items.values().filter(|kept| kept.queue == number) {
            match kept.place {
                Place::Backlog => counts.behind += 1,
                Place::Ready(_) if kept.available_at > now => counts.delayed += 1,
                Place::Ready(_) => {
                    let waited = now.since(kept.available_at);
                    counts.due += 1;
                    counts.oldest_due = counts.oldest_due.max(Some(waited));
                }
                Place::Leased(_) | Place::Done { .. } | Place::Dead { .. } => {}
            }
        }
        counts
    }

    pub(super) fn replay(&mut self, id: ItemId, rules: &Rules, now: Timestamp) -> Guarded {
        let Some(kept) = self.items.get_mut(&id) else {
            return Guarded::Refused(Refusal::NotFound);
        };
        if !(rules.may_replay)(kept.state()) {
            return Guarded::Refused(Refusal::NotSettled);
        }
        kept.counters = Counters {
            generation: kept.counters.generation + 1,
            ..Counters::default()
        };
        kept.last_error = None;
        kept.available_at = now;
        let Some(key) = kept.key().map(str::to_owned) else {
            self.make_ready(id, rules);
            return Guarded::Accepted(());
        };
        if self.unblock(&key, id) {
            self.put_behind(id);
            self.promote(&key, rules, now);
        } else {
            let last = if id.is_delivery() {
                &mut self.last_delivery
            } else {
                &mut self.last_id
            };
            let turn = (rules.replay_turn)(*last);
            *last += 1;
            if let Some(kept) = self.items.get_mut(&id) {
                kept.turn = Some(turn);
            }
            self.place(id, rules, now);
        }
        Guarded::Accepted(())
    }

    pub(super) fn bury(&mut self, bury: &Bury, rules: &Rules, now: Timestamp) -> Guarded {
        let Some(kept) = self.items.get(&bury.id) else {
            return Guarded::Refused(Refusal::NotFound);
        };
        if !(rules.may_bury)(kept.state()) {
            return Guarded::Refused(Refusal::AlreadySettled);
        }
        if kept.state() != State::Claimed {
            self.claim_to_bury(bury, rules, now);
        }
        let rest = self.held_with(bury.id);
        let end = End {
            word: OutcomeKind::Buried,
            counted: OutcomeKind::Buried,
            error: Some(&bury.reason),
            to: Destination::Dead(reason::BURIED),
        };
        self.end_hold(bury.id, &end, rules, now);
        if let Some(key) = self.key_of(bury.id) {
            self.close_ranks((&key, bury.id), rest, rules, now);
        }
        Guarded::Accepted(())
    }

    /// Claims an item for the operator: the only way from pending to dead is through claimed.
    fn claim_to_bury(&mut self, bury: &Bury, rules: &Rules, now: Timestamp) {
        let lease = Lease {
            token: bury.token.clone(),
            fence: self.draw_fence(rules),
            claimed_at: now,
            until: now,
        };
        self.take_out(bury.id);
        if let Some(kept) = self.items.get_mut(&bury.id) {
            kept.place = Place::Leased(bury.token.clone());
        }
        let ids = [bury.id].into();
        self.leases
            .insert(bury.token.clone(), Leased { lease, ids });
    }
}

/// Returns the public view of a lease.
fn hold_of(lease: &Lease) -> Hold {
    Hold {
        holder: lease.token.holder().to_owned(),
        fence: lease.fence,
        claimed_at: lease.claimed_at,
        until: lease.until,
    }
}

pub(super) fn is_asked_for(filter: &Filter, id: ItemId, kept: &StoredItem) -> bool {
    let is_kind = match filter.kind {
        Kind::Events => !id.is_delivery(),
        Kind::Deliveries => {
            let endpoint = kept.queue.unsigned_abs();
            id.is_delivery()
                && filter.endpoint.is_none_or(|number| endpoint == number)
                && filter.source.is_none_or(|of| kept.source == Some(of))
        }
    };
    let is_topic = |topic: &String| kept.event.topic() == topic;
    let is_queue = |queue: &QueueName| kept.event.queue() == queue;
    let is_key = |key: &String| kept.key() == Some(key);
    is_kind
        && filter.before.is_none_or(|before| id < before)
        && filter.state.is_none_or(|state| kept.state() == state)
        && filter.since.is_none_or(|since| kept.created_at >= since)
        && filter.until.is_none_or(|until| kept.created_at < until)
        && filter.topic.as_ref().is_none_or(is_topic)
        && filter.queue.as_ref().is_none_or(is_queue)
        && filter.key.as_ref().is_none_or(is_key)
}
