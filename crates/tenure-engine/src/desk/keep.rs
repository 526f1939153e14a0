//! What the keeper does with what is in hand: renew it in time, and take it away from whoever works
//! on it before the store can give it to another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::store::Renewed;
use tenure_core::{Fence, ItemId, OnDead, Rhythm, Term, Token, Word};
use tokio::time::Instant;

use super::{AtWork, Desk, State};
use crate::beside::{Beside, Ending};
use crate::hold::{LeaseNo, Loss, Stage};

/// One renewal: all leases of one term.
#[derive(Debug)]
pub(crate) struct Beat {
    pub(crate) term: Term,
    /// The shortest interval among them: how long the renewal may take.
    pub(crate) interval: Duration,
    pub(crate) leases: Vec<(LeaseNo, Token)>,
}

/// A hold that was taken away.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) fence: Fence,
    pub(crate) loss: Loss,
    /// The items that were being worked on.
    pub(crate) running: Vec<ItemId>,
    /// The events of those that are deliveries.
    pub(crate) events: Vec<ItemId>,
    /// All items that had not been settled.
    pub(crate) items: usize,
}

/// An item that was worked on for too long.
#[derive(Debug)]
pub(crate) struct Overdue {
    pub(crate) id: ItemId,
    /// What was answered of those before it in its run and was not on its way yet.
    pub(crate) ending: Ending,
    /// Those behind it in its run.
    pub(crate) behind: Vec<ItemId>,
    /// Its call, if one was made for it.
    pub(crate) call: Beside,
    pub(crate) max_hold: Duration,
    pub(crate) term: Term,
    /// How often it had failed before.
    pub(crate) failures: u32,
    /// The endpoint of a delivery.
    pub(crate) endpoint: Option<u32>,
}

impl Desk {
    /// How often leases and deadlines are looked at: four times in the shortest interval of what is
    /// in hand or may be claimed. What was claimed before a change of the settings keeps its own.
    pub(crate) fn tick(&self) -> Duration {
        let state = self.state();
        let held = state.leases.values().map(|lease| lease.rhythm.heartbeat);
        held.chain([state.live.heartbeat()])
            .min()
            .unwrap_or_default()
            / 4
    }

    /// What is to be renewed by `until`. When one lease of a term is due, all of that term are
    /// renewed: one statement.
    pub(crate) fn beats(&self, until: Instant) -> Vec<Beat> {
        let state = self.state();
        let mut beats: BTreeMap<Term, Beat> = BTreeMap::new();
        for (no, lease) in &state.leases {
            let Rhythm {
                term, heartbeat, ..
            } = lease.rhythm;
            let beat = beats.entry(term).or_insert(Beat {
                term,
                interval: heartbeat,
                leases: Vec::new(),
            });
            beat.interval = beat.interval.min(heartbeat);
            beat.leases.push((*no, lease.token.clone()));
        }
        beats.retain(|term, _| {
            state
                .leases
                .values()
                .any(|lease| lease.rhythm.term == *term && lease.beat_at <= until)
        });
        beats.into_values().collect()
    }

    /// A renewal that was sent at `sent_at` was granted, as we learn `now`. Items that the store no
    /// longer holds for us were buried: their work is cancelled. A deadline that has come stays:
    /// what was passed over because of it would never be started.
    pub(crate) fn renewed(
        &self,
        no: LeaseNo,
        (sent_at, now): (Instant, Instant),
        renewed: &Renewed,
    ) -> Option<Lost> {
        let mut state = self.state();
        let lease = state.leases.get_mut(&no)?;
        if lease.is_over || now >= lease.deadline {
            return state.lose(no, Loss::Late, now);
        }
        lease.renewed(sent_at);
        let gone: Vec<ItemId> = lease
            .items
            .iter()
            .filter(|(id, stage)| {
                !matches!(stage, Stage::Settling) && renewed.ids.binary_search(id).is_err()
            })
            .map(|(id, _)| *id)
            .collect();
        if gone.is_empty() {
            return None;
        }
        let fence = lease.fence;
        let mut running = Vec::new();
        let mut orphans = Vec::new();
        for id in &gone {
            match lease.items.remove(id) {
                Some(stage @ Stage::Running(_)) => {
                    stage.cancel();
                    running.push(*id);
                }
                Some(Stage::Answered(answered)) => {
                    lease.took(1);
                    orphans.push((*id, answered.beside));
                }
                _ => {}
            }
            lease.runs.forget(*id);
        }
        let is_empty = lease.items.is_empty();
        for (id, beside) in orphans {
            state.orphan(id, beside, now);
        }
        let events = state.forget(no, &running);
        if is_empty {
            state.leases.remove(&no);
        }
        Some(Lost {
            fence,
            loss: Loss::Buried,
            running,
            events,
            items: gone.len(),
        })
    }

    /// A hold is over: whatever runs under it is cancelled, and nothing of it will be settled.
    /// `None` when it had ended by itself in the meantime, or is just being settled.
    pub(crate) fn lose(&self, no: LeaseNo, loss: Loss, now: Instant) -> Option<Lost> {
        let mut state = self.state();
        let lease = state.leases.get_mut(&no)?;
        if matches!(loss, Loss::Refused(_)) && lease.is_finalizing() {
            lease.is_refused = true;
            return None;
        }
        state.lose(no, loss, now)
    }

    /// The leases whose deadline has come.
    pub(crate) fn late(&self, now: Instant) -> Vec<LeaseNo> {
        let state = self.state();
        let late = state.leases.iter();
        let late = late.filter(|(_, lease)| now >= lease.deadline && !lease.is_ending());
        late.map(|(no, _)| *no).collect()
    }

    /// Takes the items that were worked on for too long away from their handlers, and with each the
    /// rest of its run. The caller settles them.
    pub(crate) fn take_overdue(&self, now: Instant) -> Vec<Overdue> {
        let mut state = self.state();
        let on_dead = state.live.settings.on_dead;
        let due: Vec<_> = state
            .running
            .iter()
            .filter(|(_, at_work)| now >= at_work.overdue_at())
            .map(|(key, at_work)| (*key, at_work.clone()))
            .collect();
        let mut overdue = Vec::new();
        for ((no, id), at_work) in due {
            state.running.remove(&(no, id));
            let Some(lease) = state.leases.get_mut(&no) else {
                continue;
            };
            if let Some(stage @ Stage::Running(_)) = lease.items.get_mut(&id) {
                stage.cancel();
                *stage = Stage::Settling;
                let mut ending = lease.take_before(no, id, now);
                // The next one was begun on it.
                let mut before = ending.settle.items.iter();
                let is_skipped = before.any(|(_, outcome)| outcome.word() == Word::Dead);
                ending.settle.on_dead = if is_skipped { OnDead::Skip } else { on_dead };
                overdue.push(Overdue {
                    id,
                    ending,
                    behind: lease.take_behind(id),
                    call: at_work.call.take(),
                    max_hold: at_work.max_hold,
                    term: lease.rhythm.term,
                    failures: at_work.failures,
                    endpoint: at_work.delivery.map(|(endpoint, _)| endpoint),
                });
            }
        }
        overdue
    }

    /// Whether all that stands before this item in its run is settled, or is to be settled with it.
    pub(crate) fn is_its_turn(&self, id: ItemId, ending: &Ending) -> bool {
        let state = self.state();
        let Some(lease) = state.leases.get(&ending.no) else {
            return true;
        };
        let ours = &ending.settle.items;
        let is_ours = |id: &ItemId| ours.iter().any(|(our, _)| our == id);
        let mut before = lease.runs.before(id).iter();
        before.all(|id| !lease.items.contains_key(id) || is_ours(id))
    }

    /// Gives back what was not started within two terms of its claim, and answers how much: the
    /// work before it goes slower than it did, and others may have free places for it. Nothing more
    /// is claimed ahead until the work is seen to go faster.
    pub(crate) fn give_back_stale(&self, now: Instant) -> usize {
        let mut state = self.state();
        let (mut count, mut longest) = (0, None);
        let mut stale = BTreeSet::new();
        for (no, lease) in &mut state.leases {
            let waited = now.saturating_duration_since(lease.claimed_at);
            if waited >= lease.rhythm.term.length() * 2 {
                let (in_line, behind) = lease.give_back_unstarted(now);
                count += in_line + behind;
                // What waited for its turn says nothing about the places.
                longest = longest.max((in_line > 0).then_some(waited));
                stale.insert(*no);
            }
        }
        state.waiting.retain(|(no, _)| !stale.contains(no));
        if let Some(longest) = longest {
            state.speed.took(longest);
        }
        count
    }

    /// The next moment at which a deadline comes or an item is overdue.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        let state = self.state();
        let leases = state.leases.values().filter(|lease| !lease.is_ending());
        let deadlines = leases.map(|lease| lease.deadline);
        let overdue = state.running.values().map(AtWork::overdue_at);
        deadlines.chain(overdue).min()
    }

    /// How many items still run.
    pub(crate) fn running(&self) -> u32 {
        self.state().occupied
    }

    /// Whether nothing is in hand any more.
    pub(crate) fn is_clear(&self) -> bool {
        let state = self.state();
        let is_silent = state.claims == 0 && state.returning == 0;
        let is_idle = state.occupied == 0 && state.orphans.is_empty();
        state.leases.is_empty() && is_idle && is_silent
    }
}

impl State {
    fn lose(&mut self, no: LeaseNo, loss: Loss, now: Instant) -> Option<Lost> {
        let lease = self.leases.remove(&no)?;
        lease.cancel();
        let items = lease.items.len();
        let running: Vec<ItemId> = lease
            .items
            .iter()
            .filter(|(_, stage)| matches!(stage, Stage::Running(_)))
            .map(|(id, _)| *id)
            .collect();
        let events = self.forget(no, &running);
        for (id, stage) in lease.items {
            if let Stage::Answered(answered) = stage {
                self.orphan(id, answered.beside, now);
            }
        }
        Some(Lost {
            fence: lease.fence,
            loss,
            running,
            events,
            items,
        })
    }

    /// These run under no hold any more; answers the events of those that are deliveries.
    fn forget(&mut self, no: LeaseNo, running: &[ItemId]) -> Vec<ItemId> {
        let ended = running
            .iter()
            .filter_map(|id| self.running.remove(&(no, *id)));
        let events = ended.filter_map(|at_work| at_work.delivery);
        events.map(|(_, event)| event).collect()
    }
}
