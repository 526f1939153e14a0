//! The delays of pending items.

use tenure_core::store::{
    Answer, DelayPosition, DelayedIn, DelayedPage, Delays, ListDelayed, RetryAnswer, RetryNow,
};
use tenure_core::{ItemId, OutcomeKind, Timestamp, Token};

use super::rules::Rules;
use super::{EndedLease, MemoryState, MemoryStore, Place};
use crate::delay_answers::delayed_page;
use crate::lane::queue_of;
use crate::messages::unknown_queue;

impl Delays for MemoryStore {
    fn delayed<'a>(&'a self, list: &'a ListDelayed) -> Answer<'a, DelayedPage> {
        Box::pin(async move {
            let now = self.moment(list.now);
            let state = self.state();
            if let DelayedIn::Queue(name) = &list.of
                && !state.queues.contains_key(name)
            {
                return Err(unknown_queue("delayed", name));
            }
            Ok(state.delayed(list, now))
        })
    }

    fn retry_now<'a>(&'a self, retry: &'a RetryNow) -> Answer<'a, Vec<(ItemId, RetryAnswer)>> {
        Box::pin(async move {
            let now = self.moment(retry.now);
            let mut state = self.state();
            // Answers come first: an id that is named twice gets the same answer twice.
            let answer = |id: &ItemId| (*id, state.retry_answer(*id, now));
            let answers: Vec<_> = retry.ids.iter().map(answer).collect();
            for (id, answer) in &answers {
                if *answer == RetryAnswer::DueNow {
                    state.make_due(*id, &retry.token, &self.rules, now);
                }
            }
            Ok(answers)
        })
    }
}

impl MemoryState {
    fn delayed(&self, list: &ListDelayed, now: Timestamp) -> DelayedPage {
        let is_of = |lane: i32| match &list.of {
            DelayedIn::Queues => self.queues.values().any(|of| of.number == queue_of(lane)),
            DelayedIn::Queue(name) => {
                let number = self.queues.get(name).map(|of| of.number);
                number == Some(queue_of(lane))
            }
            DelayedIn::Endpoint(number) => i32::try_from(*number) == Ok(queue_of(lane)),
        };
        let is_wanted = |id: ItemId| {
            self.items.get(&id).is_some_and(|kept| {
                let topic = list.topic.as_deref();
                kept.counters.attempts > 0 && topic.is_none_or(|of| kept.event.topic() == of)
            })
        };
        let waiting = self.ready.iter().copied();
        let examined = waiting
            .map(|(lane, at, id)| DelayPosition { lane, at, id })
            .filter(|at| at.at > now && is_of(at.lane) && list.after < Some(*at))
            .take(usize::try_from(ListDelayed::STEP).unwrap_or(usize::MAX))
            .map(|at| (at, is_wanted(at.id)));
        delayed_page(examined.collect())
    }

    fn retry_answer(&self, id: ItemId, now: Timestamp) -> RetryAnswer {
        let Some(kept) = self.items.get(&id) else {
            return RetryAnswer::NotFound;
        };
        match kept.place {
            Place::Ready(_) if kept.available_at > now => RetryAnswer::DueNow,
            Place::Ready(_) => RetryAnswer::AlreadyDue,
            Place::Backlog => RetryAnswer::Behind,
            Place::Leased(_) => RetryAnswer::Held,
            Place::Done { .. } => RetryAnswer::Done,
            Place::Dead { .. } => RetryAnswer::Dead,
        }
    }

    fn make_due(&mut self, id: ItemId, token: &Token, rules: &Rules, now: Timestamp) {
        let fence = self.draw_fence(rules);
        self.take_out(id);
        if let Some(kept) = self.items.get_mut(&id) {
            kept.available_at = now;
            kept.journal.push(EndedLease {
                token: token.clone(),
                word: OutcomeKind::Release,
                fence,
                claimed_at: now,
                settled_at: now,
            });
        }
        self.make_ready(id, rules);
    }
}
