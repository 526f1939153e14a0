//! What a hand does next: settle what is answered, claim what there is room for, or wait.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::store::{Company, EndpointLane, Settlement};
use tenure_core::{Held, ItemId, Refusal, Token};
use tokio::time::Instant;

use super::{Desk, State};
use crate::beside::{Ending, Orphan};
use crate::hold::{LeaseNo, Stage};
use crate::round::{Look, Wish};

/// Answers of a lease of which some items are still at work are settled after this long, so that
/// those which come close together share a statement.
const LINGER: Duration = Duration::from_millis(10);

/// Claims under way at once, while there is more than one claim's worth of work.
const CLAIMS: u32 = 2;

/// What a hand does next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Talk to the store.
    Go(Box<Work>),
    /// Nothing until then, unless something changes.
    Wait(Instant),
    /// Nothing is in hand and nothing will be: the worker has stopped.
    Over,
}

/// What to say to the store.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) settle: Option<Ending>,
    pub(crate) claim: Option<Asked>,
    /// Calls to be written down by themselves.
    pub(crate) orphans: Vec<Orphan>,
}

/// A claim that is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) look: Look,
    pub(crate) limit: u32,
    /// How many of them should be such that can be worked at the same time.
    pub(crate) abreast: u32,
    /// How much is in hand for which endpoint.
    pub(crate) in_hand: BTreeMap<u32, u32>,
    /// The lanes of endpoints to take from, once they are chosen.
    pub(crate) lanes: Vec<(EndpointLane, u32)>,
    pub(crate) token: Token,
    /// Read before it is sent.
    pub(crate) sent_at: Instant,
}

impl Desk {
    /// Decides. `is_ready` says whether what items are handed to takes any; `mint` makes a token.
    pub(crate) fn step(&self, now: Instant, is_ready: bool, mint: impl FnOnce() -> Token) -> Step {
        let mut state = self.state();
        let orphans = state.take_orphans();
        let settle = state.take_settle(now);
        // A claim that has to be chosen first is no part of a settle; the other hand sends it.
        let is_apart = settle.is_some() && state.live.is_choosing;
        let claim = if is_apart {
            None
        } else {
            state.take_claim(now, is_ready, mint)
        };
        if settle.is_some() || claim.is_some() || !orphans.is_empty() {
            return Step::Go(Box::new(Work {
                settle,
                claim,
                orphans,
            }));
        }
        let is_idle = state.occupied == 0 && state.leases.is_empty();
        if state.is_stopping && is_idle && state.claims == 0 {
            return Step::Over;
        }
        Step::Wait(state.next_at(now))
    }

    /// A claim was answered: its items stand in line now. `Err`: it came too late or nobody wants
    /// it; it counts as being given back, by its token, until [`Desk::returned`] says that it was.
    pub(crate) fn claimed(
        &self,
        asked: &Asked,
        held: Option<Held>,
        now: Instant,
        chance: f64,
    ) -> Result<u32, ()> {
        let mut state = self.state();
        state.asked_for(asked);
        let Some(held) = held else {
            state.is_flush = false;
            if state.round.is_fruitless() {
                state.pace.found_nothing(now, chance);
            }
            return Ok(0);
        };
        // What was asked of lanes may be little: then what ends close together shares a look.
        let half = usize::try_from(asked.limit.div_ceil(2)).unwrap_or(usize::MAX);
        let is_much = asked.lanes.is_empty() || held.items.len() >= half;
        let is_full = held.is_full && is_much;
        if asked.look.company == Company::Together {
            state.is_flush = is_full;
        }
        state.round.found();
        state.pace.found(now, is_full);
        let seated = state.seat(held, asked, now);
        if seated.is_err() {
            // Under the same lock: at no moment is the desk clear, or the worker would be gone
            // before it has given back what nobody works on.
            state.returning += 1;
        }
        seated
    }

    /// A claim was not answered: whatever it took counts as being given back, until
    /// [`Desk::returned`] says that it was.
    pub(crate) fn claim_failed(&self, asked: &Asked, now: Instant, chance: f64) {
        let mut state = self.state();
        state.asked_for(asked);
        state.returning += 1;
        state.is_flush = false;
        state.pace.failed(now, chance);
    }

    /// It could not be said what to claim; nothing was.
    pub(crate) fn choice_failed(&self, asked: &Asked, now: Instant, chance: f64) {
        let mut state = self.state();
        state.asked_for(asked);
        state.pace.failed(now, chance);
    }

    /// A settle was answered: these items are no longer in hand, whatever the answer was.
    pub(crate) fn settled(&self, no: LeaseNo, settlement: &Settlement, now: Instant) {
        let mut state = self.state();
        for (id, why) in settlement.refused() {
            if why == Refusal::OutOfTurn {
                // The store still holds it, before all that follows.
                state.drop_behind(no, id, now);
            }
        }
        let ids = settlement.items.iter().map(|(id, _)| *id);
        state.put_down(no, ids);
    }

    /// Whether this lease may still be spoken for.
    pub(crate) fn is_live(&self, no: LeaseNo, now: Instant) -> bool {
        self.state()
            .leases
            .get(&no)
            .is_some_and(|lease| now < lease.deadline)
    }

    /// The settle of these items was given up: their lease lapses. What follows one of them in its
    /// run is dropped with it, for the store would not take it before.
    pub(crate) fn abandon(&self, ending: Ending, now: Instant) {
        let mut state = self.state();
        let (no, ids) = (ending.no, ending.ids());
        for id in &ids {
            state.drop_behind(no, *id, now);
        }
        state.put_down(no, ids);
        state.orphans.extend(ending.into_orphans());
    }
}

impl State {
    fn take_settle(&mut self, now: Instant) -> Option<Ending> {
        let linger = if self.is_stopping {
            Duration::ZERO
        } else {
            LINGER
        };
        let (no, lease) = self.leases.iter_mut().find(|(_, lease)| {
            let is_old = lease
                .answered_since
                .is_some_and(|since| now >= since + linger);
            now < lease.deadline && (lease.is_answered() || is_old && lease.can_settle())
        })?;
        lease.take_settle(*no, now)
    }

    fn take_claim(
        &mut self,
        now: Instant,
        is_ready: bool,
        mint: impl FnOnce() -> Token,
    ) -> Option<Asked> {
        // Two claims that are chosen at once would fill the same room twice.
        let is_choosing = self.live.is_choosing;
        let most = if self.is_flush && !is_choosing {
            CLAIMS
        } else {
            1
        };
        let is_due = self.live.is_followed && now >= self.pace.next_at();
        if self.is_stopping || !is_due || self.claims >= most {
            return None;
        }
        let room = self.room()?;
        if !is_ready {
            self.pace.hold_back(now);
            return None;
        }
        let wish = Wish {
            is_free_for_alone: !self.live.is_one_by_one && !self.has_alone(),
            is_idle: self.pace.is_idle(),
        };
        let groups = std::sync::Arc::clone(&self.live.groups);
        let Some(look) = self.round.next(&groups, wish) else {
            self.pace.found_nothing(now, 0.5);
            return None;
        };
        let limit = match look.company {
            Company::Together => room,
            Company::Alone => 1,
        };
        // The room of an endpoint is not for what waits for its turn.
        let abreast = if is_choosing {
            limit
        } else {
            self.abreast(limit)
        };
        let in_hand = self.in_hand();
        self.claims += 1;
        self.asked += limit;
        self.is_alone_asked |= look.company == Company::Alone;
        Some(Asked {
            look,
            limit,
            abreast,
            in_hand,
            lanes: Vec::new(),
            token: mint(),
            sent_at: now,
        })
    }

    /// How much is in hand for which endpoint and not answered yet: what is only to be settled
    /// keeps no endpoint busy.
    fn in_hand(&self) -> BTreeMap<u32, u32> {
        let mut in_hand = BTreeMap::new();
        for lease in self.leases.values() {
            for (id, endpoint) in &lease.endpoints {
                let stage = lease.items.get(id);
                if matches!(stage, Some(Stage::Waiting | Stage::Running(_))) {
                    *in_hand.entry(*endpoint).or_default() += 1;
                }
            }
        }
        in_hand
    }

    /// How many items the next claim may take; `None`: there is enough in line.
    ///
    /// At least as many as there are free places; more only as far as they will be started within a
    /// tenth of the term, and never more than a batch at once or two in line. What waits for its
    /// turn takes its time, too, but fills no place that is free now.
    fn room(&self) -> Option<u32> {
        let settings = &self.live.settings;
        let free = settings.concurrency.saturating_sub(self.occupied);
        let ahead = if self.live.is_one_by_one {
            // Long work that waits here could be begun elsewhere.
            0
        } else {
            let soon = self.speed.within(self.soon(), settings.concurrency);
            soon.min(settings.batch.saturating_mul(CLAIMS))
        };
        let target = free.max(ahead);
        let in_line = self.in_line().saturating_add(self.asked);
        let behind: usize = self.leases.values().map(|lease| lease.runs.behind()).sum();
        let behind = u32::try_from(behind).unwrap_or(u32::MAX);
        let all = in_line.saturating_add(behind);
        if in_line >= free && all > target / 2 {
            return None;
        }
        let room = target.saturating_sub(all).max(free.saturating_sub(in_line));
        let room = room.min(settings.batch);
        (room > 0).then_some(room)
    }

    /// How many items of a claim should be such that can be worked at the same time: enough for the
    /// free places, and so many that the runs of the others are started within a tenth of the term.
    fn abreast(&self, limit: u32) -> u32 {
        let free = self.live.settings.concurrency.saturating_sub(self.occupied);
        let each = self.speed.within(self.soon(), 1).max(1);
        let least = free.saturating_sub(self.in_line()).max(1);
        least.max(limit.div_ceil(each))
    }

    /// What is claimed ahead is to be started within this time.
    fn soon(&self) -> Duration {
        self.live.settings.term.length() / 10
    }

    fn in_line(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// A claim is no longer under way.
    fn asked_for(&mut self, asked: &Asked) {
        self.claims = self.claims.saturating_sub(1);
        self.asked = self.asked.saturating_sub(asked.limit);
        if asked.look.company == Company::Alone {
            self.is_alone_asked = false;
        }
    }

    fn put_down(&mut self, no: LeaseNo, ids: impl IntoIterator<Item = ItemId>) {
        let Some(lease) = self.leases.get_mut(&no) else {
            return;
        };
        for id in ids {
            if matches!(lease.items.get(&id), Some(Stage::Settling)) {
                lease.items.remove(&id);
            }
        }
        if lease.items.is_empty() {
            self.leases.remove(&no);
        }
    }

    /// Drops whatever follows an item in its run: it is neither started nor settled, and what runs
    /// of it is cancelled.
    fn drop_behind(&mut self, no: LeaseNo, id: ItemId, now: Instant) {
        let Some(lease) = self.leases.get_mut(&no) else {
            return;
        };
        lease.runs.stop(id);
        let mut orphans = Vec::new();
        for later in lease.runs.after(id).to_vec() {
            match lease.items.get(&later) {
                // Whoever settles it puts it down.
                None | Some(Stage::Settling) => continue,
                Some(stage @ Stage::Running(_)) => {
                    stage.cancel();
                    self.running.remove(&(no, later));
                }
                Some(Stage::Answered(..)) => lease.took(1),
                Some(Stage::Waiting) => {}
            }
            if let Some(Stage::Answered(answered)) = lease.items.remove(&later) {
                orphans.push((later, answered.beside));
            }
        }
        for (id, beside) in orphans {
            self.orphan(id, beside, now);
        }
    }

    /// When a hand should look again by itself.
    fn next_at(&self, now: Instant) -> Instant {
        let lingering = self
            .leases
            .values()
            // What has come to its deadline is not settled any more, so it is not waited for; nor
            // is what waits for the answer to another settle.
            .filter(|lease| now < lease.deadline && lease.can_settle())
            .filter_map(|lease| lease.answered_since)
            .min()
            .map(|since| since + LINGER);
        // What a claim waits for beside its time is told by a notice.
        let is_claimable = !self.is_stopping
            && self.live.is_followed
            && self.claims == 0
            && self.pace.next_at() > now;
        let look = is_claimable.then(|| self.pace.next_at());
        let far = now + Duration::from_secs(1);
        lingering
            .into_iter()
            .chain(look)
            .min()
            .unwrap_or(far)
            .min(far)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenure_core::{QueueName, Settings, WorkerId};

    use super::*;
    use crate::live::Live;
    use crate::round::Group;

    /// A desk that has just sent a claim, and that claim.
    fn asking(now: Instant) -> (Desk, Asked) {
        let settings = Settings::default();
        let group = Group {
            rhythm: settings.rhythm(),
            queues: vec![QueueName::default()],
        };
        let live = Live {
            groups: Arc::new([group]),
            is_followed: true,
            ..Live::new(settings)
        };
        let desk = Desk::new(Arc::new(live), now);
        let worker = WorkerId::new("w", 1).unwrap();
        let Step::Go(work) = desk.step(now, true, || Token::new(&worker, 1, 1)) else {
            panic!("there is room, so it claims");
        };
        (desk, work.claim.unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn at_no_moment_is_the_desk_clear_before_a_claim_is_given_back() {
        let now = Instant::now();
        let (desk, asked) = asking(now);
        desk.stop(now);
        assert!(!desk.is_clear(), "the claim is under way");
        desk.claim_failed(&asked, now, 0.5);
        assert!(!desk.is_clear(), "it may have taken something");
        desk.returned();
        assert!(desk.is_clear());

        let (desk, asked) = asking(now);
        desk.stop(now);
        let held = Held {
            lease: tenure_core::Lease {
                token: asked.token.clone(),
                fence: tenure_core::Fence::new(1),
                claimed_at: tenure_core::Timestamp::from_micros(0),
                until: tenure_core::Timestamp::from_micros(1),
            },
            items: Vec::new(),
            is_full: false,
        };
        assert_eq!(desk.claimed(&asked, Some(held), now, 0.5), Err(()));
        assert!(!desk.is_clear(), "nobody works on what it took");
        desk.returned();
        assert!(desk.is_clear());
    }
}
