//! The decisions of the memory store, each a function: those of the core, unless a test planted a
//! wrong one to see whether the suite notices.

use tenure_core::store::{Claim, Rest};
use tenure_core::webhook::{AttemptOutcome, Delivery, EndpointId};
use tenure_core::{
    Boundary, Counters, Fate, Guarded, ItemId, LapsePolicy, Lateness, Lease, OnDead, Standing,
    State, Timestamp, Token, Word, lapse_run, may_reap, may_renew, may_settle, settle_run,
};

use super::turns::{Backlog, Domain};
use super::{Kept, Place};

/// What becomes of a run, and of its domain.
pub(super) type Fates = (Vec<Fate>, Standing);

/// What decides whether an event is owed to an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owing {
    /// The settle that names the event has settled it done.
    pub(super) is_done_now: bool,
    /// The endpoint is enabled and subscribed to it.
    pub(super) is_wanted: bool,
    /// There is a delivery.
    pub(super) is_owed: bool,
}

/// What the store asks before it changes anything.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) may_renew: fn(Option<&Lease>, &Token, Timestamp) -> Guarded,
    pub(super) may_settle: fn(Option<&Lease>, &Token, Lateness, Timestamp) -> Guarded,
    pub(super) may_reap: fn(Timestamp, Boundary, Timestamp) -> bool,
    pub(super) may_replay: fn(State) -> bool,
    pub(super) may_bury: fn(State) -> bool,
    /// Whether a claim may use a token under which this lease stands.
    pub(super) is_fresh: fn(Option<&Lease>) -> bool,
    /// Whether an item that is available from the first moment may be claimed at the second.
    pub(super) is_due: fn(Timestamp, Timestamp) -> bool,
    /// Whether an item that lapsed this often is claimed alone.
    pub(super) is_lonely: fn(u32) -> bool,
    /// How many items a claim may take.
    pub(super) most: fn(&Claim) -> u32,
    /// The end of a lease that ran until the first moment and was renewed until the second.
    pub(super) prolong: fn(Timestamp, Timestamp) -> Timestamp,
    /// The counters after a hold ended with this word.
    pub(super) count: fn(Counters, Word) -> Counters,
    /// Whether a journal line (its token, its word) is what a settle says again.
    pub(super) is_repeat: fn((&Token, Word), (&Token, Word)) -> bool,
    pub(super) rest: fn(Rest) -> Rest,
    /// How an item is settled and since when; `None`: it is not.
    pub(super) settled: fn(&Kept) -> Option<(State, Timestamp)>,
    /// Whether what was settled at the first moment is past a retention that goes back to the
    /// second.
    pub(super) is_past: fn(Timestamp, Timestamp) -> bool,
    pub(super) next_fence: fn(i64) -> i64,
    pub(super) settle_run: fn(&[Option<Word>], OnDead) -> Fates,
    pub(super) lapse_run: fn(usize, bool, OnDead) -> Fates,
    /// The word by which the counters of the n-th of a run move when its lease lapses.
    pub(super) lapse_counts: fn(usize) -> Word,
    /// How many items of one domain a claim may take.
    pub(super) run_length: fn(&Claim) -> u32,
    /// Whether a head with these counters is claimed with others behind it.
    pub(super) may_lead: fn(Counters) -> bool,
    /// Of those that wait behind a head, each with whether it could be claimed with it, those that
    /// are.
    pub(super) run: fn(&[(ItemId, bool)]) -> Vec<ItemId>,
    /// Whether an item that comes is the head of what is known of its domain.
    pub(super) is_idle: fn(Option<&Domain>) -> bool,
    pub(super) is_held_back: fn(&Domain) -> bool,
    /// Whose turn is next, of a backlog.
    pub(super) next: fn(&Backlog) -> Option<(i64, ItemId)>,
    /// How many items a claim may take of a lane for which it named this limit.
    pub(super) lane_most: fn(u32) -> u32,
    /// Whether a delivery is written.
    pub(super) owes: fn(Owing) -> bool,
    /// The domain of a delivery, from its endpoint and the event's key.
    pub(super) delivery_key: fn(&EndpointId, &str) -> String,
    /// How a call ended that was said to have ended so, and whether its delivery was refused.
    pub(super) call_outcome: fn(AttemptOutcome, bool) -> AttemptOutcome,
    /// Whether a settled item may be pruned of which there are deliveries or not.
    pub(super) may_go: fn(bool) -> bool,
    /// The turn of what is replayed when this was the last number drawn.
    pub(super) replay_turn: fn(i64) -> i64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            may_renew,
            may_settle,
            may_reap,
            may_replay: State::is_terminal,
            may_bury: |state| !state.is_terminal(),
            is_fresh: |lease| lease.is_none(),
            is_due: |available_at, now| available_at <= now,
            is_lonely: |crashes| crashes >= LapsePolicy::ALONE_AFTER,
            most: Claim::most,
            prolong: Timestamp::max,
            count,
            is_repeat: |line, settle| line == settle,
            rest: |rest| rest,
            settled,
            is_past: |settled_at, before| settled_at < before,
            next_fence: |last| last + 1,
            settle_run,
            lapse_run,
            lapse_counts,
            run_length: Claim::run_length,
            may_lead: |counters| counters.attempts == 0 && counters.generation == 0,
            run: |behind| {
                let run = behind.iter().take_while(|(_, may_follow)| *may_follow);
                run.map(|(id, _)| *id).collect()
            },
            is_idle: |domain| domain.is_none(),
            is_held_back: |domain| domain.is_paused,
            next: |backlog| backlog.first().copied(),
            lane_most: |most| most,
            owes: |owing| owing.is_done_now && owing.is_wanted && !owing.is_owed,
            delivery_key: Delivery::key,
            call_outcome: |said, is_refused| {
                if is_refused {
                    AttemptOutcome::Superseded
                } else {
                    said
                }
            },
            may_go: |is_owed| !is_owed,
            replay_turn: |last| last + 1,
        }
    }
}

fn settled(kept: &Kept) -> Option<(State, Timestamp)> {
    match kept.place {
        Place::Ready(_) | Place::Backlog | Place::Leased(_) => None,
        Place::Done { at } => Some((State::Done, at)),
        Place::Dead { at, .. } => Some((State::Dead, at)),
    }
}

/// Each counter has one meaning: see [`Counters`].
fn count(mut counters: Counters, word: Word) -> Counters {
    match word {
        Word::Done => {}
        Word::Release | Word::Buried => counters.attempts += 1,
        Word::Retry | Word::Dead => {
            counters.attempts += 1;
            counters.failures += 1;
        }
        Word::Lapsed => {
            counters.attempts += 1;
            counters.crashes += 1;
        }
    }
    counters
}

/// Only the first of a run was being worked on.
const fn lapse_counts(nth: usize) -> Word {
    if nth == 0 {
        Word::Lapsed
    } else {
        Word::Release
    }
}
