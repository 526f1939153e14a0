//! The decisions of the memory store as functions. They are those of the core, unless a test plants
//! a wrong one to check that the suite detects it.

use tenure_core::store::{Claim, Rest};
use tenure_core::webhook::{AttemptOutcome, Delivery, EndpointId};
use tenure_core::{
    Boundary, Counters, Fate, Guarded, ItemId, KeyStatus, LapsePolicy, Lateness, Lease, OnDead,
    OutcomeKind, State, Timestamp, Token, lapse_run, may_reap, may_renew, may_settle, settle_run,
};

use super::turns::Backlog;

/// A terminal state and its time; `None` if not settled.
pub(super) type Settled = Option<(State, Timestamp)>;

/// The fates of a run, and the resulting status of its key.
pub type Fates = (Vec<Fate>, KeyStatus);

/// The facts that decide whether an endpoint gets a delivery of an event.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Owing {
    /// This settle has settled the event as done.
    pub is_done_now: bool,
    /// The endpoint is enabled and subscribed to the event's topic.
    pub is_wanted: bool,
    /// The delivery exists already.
    pub is_owed: bool,
}

/// The functions that the store calls before it changes anything.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Rules {
    pub may_renew: fn(Option<&Lease>, &Token, Timestamp) -> Guarded,
    pub may_settle: fn(Option<&Lease>, &Token, Lateness, Timestamp) -> Guarded,
    pub may_reap: fn(Timestamp, Boundary, Timestamp) -> bool,
    pub may_replay: fn(State) -> bool,
    pub may_bury: fn(State) -> bool,
    /// Returns whether a claim may use a token, given the lease that exists under it.
    pub is_fresh: fn(Option<&Lease>) -> bool,
    /// Returns whether an item available from the first moment may be claimed at the second.
    pub is_due: fn(Timestamp, Timestamp) -> bool,
    /// Returns whether an item with this many lapses is claimed alone.
    pub is_lonely: fn(u32) -> bool,
    /// Maximum number of items of a claim.
    pub most: fn(&Claim) -> u32,
    /// Returns the new end of a lease, from its current end and the requested one.
    pub prolong: fn(Timestamp, Timestamp) -> Timestamp,
    /// Returns the counters after a lease ended with this outcome.
    pub count: fn(Counters, OutcomeKind) -> Counters,
    /// Returns whether a journal line (token and outcome) matches a repeated settle.
    pub is_repeat: fn((&Token, OutcomeKind), (&Token, OutcomeKind)) -> bool,
    pub rest: fn(Rest) -> Rest,
    /// Returns the state and time for retention, from the current ones and the first time the item
    /// was done.
    pub settled: fn(Settled, Option<Timestamp>) -> Settled,
    /// Returns whether an item settled at the first moment is past the retention limit, the second.
    pub is_past: fn(Timestamp, Timestamp) -> bool,
    pub next_fence: fn(i64) -> i64,
    pub settle_run: fn(&[Option<OutcomeKind>], OnDead) -> Fates,
    pub lapse_run: fn(usize, bool, OnDead) -> Fates,
    /// Returns the outcome that counts for the n-th item of a run whose lease lapsed.
    pub lapse_counts: fn(usize) -> OutcomeKind,
    /// Maximum number of items of one key in a claim.
    pub run_length: fn(&Claim) -> u32,
    /// Returns whether a head with these counters is claimed together with items behind it.
    pub may_lead: fn(Counters) -> bool,
    /// Selects the items claimed with a head from those behind it; the flag is true if an item may
    /// follow.
    pub run: fn(&[(ItemId, bool)]) -> Vec<ItemId>,
    /// Returns whether a new item becomes the head of its key. The argument is the pause flag of
    /// the key if the key is known.
    pub is_idle: fn(Option<bool>) -> bool,
    /// Returns whether a key with this pause flag is held back.
    pub is_held_back: fn(bool) -> bool,
    /// Returns the next item of a backlog.
    pub next: fn(&Backlog) -> Option<(i64, ItemId)>,
    /// Maximum number of items from a lane for which the claim named this limit.
    pub lane_most: fn(u32) -> u32,
    /// Returns whether to write a delivery.
    pub owes: fn(Owing) -> bool,
    /// Returns the ordering key of a delivery, from its endpoint and the event's key.
    pub delivery_key: fn(&EndpointId, &str) -> String,
    /// Returns the recorded outcome of a call, from the reported one and whether its delivery was
    /// refused.
    pub call_outcome: fn(AttemptOutcome, bool) -> AttemptOutcome,
    /// Returns whether a settled item may be pruned, given whether it has deliveries.
    pub may_go: fn(bool) -> bool,
    /// Returns the turn of a replayed item, from the last allocated number.
    pub replay_turn: fn(i64) -> i64,
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
            settled: |now, _| now,
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
            is_idle: |is_paused| is_paused.is_none(),
            is_held_back: |is_paused| is_paused,
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

/// Each counter has one meaning; see [`Counters`].
fn count(mut counters: Counters, word: OutcomeKind) -> Counters {
    match word {
        OutcomeKind::Done => {}
        OutcomeKind::Release | OutcomeKind::Buried => counters.attempts += 1,
        OutcomeKind::Retry | OutcomeKind::Dead => {
            counters.attempts += 1;
            counters.failures += 1;
        }
        OutcomeKind::Lapsed => {
            counters.attempts += 1;
            counters.crashes += 1;
        }
    }
    counters
}

/// Only the first item of a run was being worked on.
const fn lapse_counts(nth: usize) -> OutcomeKind {
    if nth == 0 {
        OutcomeKind::Lapsed
    } else {
        OutcomeKind::Release
    }
}
