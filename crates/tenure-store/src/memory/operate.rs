//! Find, list, count, replay, bury; and the queues.

use tenure_core::store::{
    Answer, Bury, Counts, Filter, Operate, Page, Pause, Queue, QueueCounts, Queues, Replay,
    Replayed,
};
use tenure_core::{
    Content, Counters, EndedHold, Guarded, Hold, ItemId, Lease, QueueName, Record, Refusal, State,
    Term, Timestamp, Word, reason,
};

use super::rules::Rules;
use super::{End, Kept, Leased, Line, MemoryStore, Place, Shelf, To};
use crate::complaint::unknown_queue;
use crate::page::{cut, page_limit};

impl Operate for MemoryStore {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        Box::pin(async move {
            let shelf = self.shelf();
            Ok(ids.iter().filter_map(|id| shelf.record(*id)).collect())
        })
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<EndedHold>> {
        Box::pin(async move { Ok(self.shelf().timeline(id)) })
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        Box::pin(async move {
            let shelf = self.shelf();
            match &filter.queue {
                Some(queue) if !shelf.queues.contains_key(queue) => {
                    Err(unknown_queue("list", queue))
                }
                _ => Ok(shelf.page(filter, limit)),
            }
        })
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        Box::pin(async move {
            let now = self.moment(now);
            Ok(self.shelf().counts(now))
        })
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        Box::pin(async move {
            let now = self.moment(replay.now);
            let mut shelf = self.shelf();
            Ok(replay
                .ids
                .iter()
                .map(|id| (*id, shelf.replay(*id, &self.rules, now)))
                .collect())
        })
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        Box::pin(async move {
            let now = self.moment(bury.now);
            Ok(self.shelf().bury(bury, &self.rules, now))
        })
    }
}

impl Queues for MemoryStore {
    fn queues(&self) -> Answer<'_, Vec<Queue>> {
        Box::pin(async move {
            let shelf = self.shelf();
            Ok(shelf
                .queues
                .iter()
                .map(|(name, line)| Queue {
                    name: name.clone(),
                    term: line.term,
                    paused: line.paused,
                })
                .collect())
        })
    }

    fn add_queue<'a>(&'a self, name: &'a QueueName, term: Option<Term>) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut shelf = self.shelf();
            let next = shelf.queues.values().map(|line| line.number).max();
            let line = shelf
                .queues
                .entry(name.clone())
                .or_insert_with(|| Line::numbered(next.map_or(0, |number| number + 1)));
            line.term = term;
            Ok(())
        })
    }

    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded> {
        Box::pin(async move {
            Ok(match self.shelf().queues.get_mut(name) {
                None => Guarded::Refused(Refusal::NotFound),
                Some(line) => {
                    line.paused = pause == Pause::Begin;
                    Guarded::Kept(())
                }
            })
        })
    }
}

impl Shelf {
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
            content: Content::Event(kept.event.clone()),
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

    fn timeline(&self, id: ItemId) -> Vec<EndedHold> {
        let journal = self.items.get(&id).map(|kept| kept.journal.as_slice());
        journal
            .unwrap_or_default()
            .iter()
            .map(|line| EndedHold {
                holder: line.token.holder().to_owned(),
                fence: line.fence,
                word: line.word,
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
            let mut of_queue = QueueCounts::default();
            for kept in self.items.values() {
                if kept.queue != line.number || kept.state() != State::Pending {
                    continue;
                }
                if matches!(kept.place, Place::Backlog) {
                    of_queue.behind += 1;
                    continue;
                }
                if kept.available_at > now {
                    of_queue.delayed += 1;
                    continue;
                }
                let waited = now.since(kept.available_at);
                of_queue.due += 1;
                of_queue.oldest_due = of_queue.oldest_due.max(Some(waited));
            }
            counts.queues.push((name.clone(), of_queue));
        }
        for leased in self.leases.values() {
            let ids = u64::try_from(leased.ids.len()).unwrap_or(u64::MAX);
            counts.claimed += ids;
            if !leased.lease.is_live(now) {
                counts.lapsed += ids;
            }
        }
        for kept in self.items.values() {
            match kept.place {
                Place::Ready(_) | Place::Backlog | Place::Leased(_) => {}
                Place::Done { .. } => counts.done += 1,
                Place::Dead { .. } => counts.dead += 1,
            }
        }
        counts
    }

    fn replay(&mut self, id: ItemId, rules: &Rules, now: Timestamp) -> Guarded {
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
            return Guarded::Kept(());
        };
        if self.unblock(&key, id) {
            self.put_behind(id);
            self.promote(&key, rules, now);
        } else {
            self.last_id += 1;
            if let Some(kept) = self.items.get_mut(&id) {
                kept.turn = Some((rules.replay_turn)(self.last_id - 1));
            }
            self.place(id, rules, now);
        }
        Guarded::Kept(())
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
            word: Word::Buried,
            counted: Word::Buried,
            error: Some(&bury.reason),
            to: To::Dead(reason::BURIED),
        };
        self.end_hold(bury.id, &end, rules, now);
        if let Some(key) = self.key_of(bury.id) {
            self.close_ranks((&key, bury.id), rest, rules, now);
        }
        Guarded::Kept(())
    }

    /// Gives an item to the operator: there is no way from pending to dead but through claimed.
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

/// A lease as others see it.
fn hold_of(lease: &Lease) -> Hold {
    Hold {
        holder: lease.token.holder().to_owned(),
        fence: lease.fence,
        claimed_at: lease.claimed_at,
        until: lease.until,
    }
}

fn is_asked_for(filter: &Filter, id: ItemId, kept: &Kept) -> bool {
    filter.before.is_none_or(|before| id < before)
        && filter.state.is_none_or(|state| kept.state() == state)
        && filter.since.is_none_or(|since| kept.created_at >= since)
        && filter
            .topic
            .as_ref()
            .is_none_or(|topic| kept.event.topic() == topic)
        && filter
            .queue
            .as_ref()
            .is_none_or(|queue| kept.event.queue_name() == queue)
        && filter
            .key
            .as_ref()
            .is_none_or(|key| kept.key() == Some(key))
}
