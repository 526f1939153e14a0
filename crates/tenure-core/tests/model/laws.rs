//! The rules of `LeaseStore` (law 1 to law 9), checked by an observer. It sees the store before and
//! after a step and the cause of the step ([`Mover`]), but not the decision.

use stateright::Property;
use tenure_core::{Cause, State, TRANSITIONS};

use crate::moment::{Db, ITEMS, LeaseRow, Moment, Term};
use crate::world::{Rules, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Breach {
    /// Law 1: an item is held under two leases.
    HeldTwice,
    /// Law 2: a token was issued twice.
    TokenTwice,
    /// Law 2: a fence did not rise.
    FenceFell,
    /// Law 3: a write with another token than the current one changed something.
    StaleWrite,
    /// Law 3: a lapsed lease was renewed.
    Revived,
    /// Law 4: an item left done or dead without a replay.
    Reopened,
    /// Law 5: a live lease was ended, but not by its holder.
    EndedLive,
    /// Law 6: a transition is not in the table.
    Transition,
    /// Law 9: a repeat got a different answer.
    OtherAnswer,
    /// A claimed item has no lease, or an item that is not claimed has one.
    Place,
    /// A claim took more than its limit.
    Limit,
}

/// Cause of a step: a worker, the reaper, an operator or the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mover {
    Claim {
        grant: usize,
        limit: usize,
    },
    /// The holder of `grant` renews this lease.
    Renew {
        grant: usize,
        lease: usize,
    },
    Settle(usize),
    Reap,
    Replay,
    Bury(usize),
    Clock,
}

impl Mover {
    /// Causes of transitions that this mover may have.
    fn causes(self) -> &'static [Cause] {
        match self {
            Self::Claim { .. } => &[Cause::Claim],
            Self::Settle(_) => &[Cause::Done, Cause::Back, Cause::Dead],
            Self::Reap => &[Cause::Back, Cause::Dead],
            Self::Replay => &[Cause::Replay],
            Self::Bury(_) => &[Cause::Dead],
            Self::Renew { .. } | Self::Clock => &[],
        }
    }
}

/// Returns the first rule that a step of the store broke.
pub(crate) fn breach_of_move(before: &Db, after: &Db, mover: Mover) -> Option<Breach> {
    let mut leases = after.leases();
    breach_of_renewal(mover)
        .or_else(|| (0..ITEMS).find_map(|id| breach_of_item(before, after, id, mover)))
        .or_else(|| leases.find_map(|new| breach_of_lease(before, new, mover)))
        .or_else(|| breach_of_claim(before, after, mover))
        .or_else(|| (0..ITEMS).find_map(|id| breach_of_place(after, id)))
}

fn breach_of_item(before: &Db, after: &Db, id: usize, mover: Mover) -> Option<Breach> {
    let (from, to) = (before.rows[id], after.rows[id]);
    let (old, new) = (before.lease_on(id), after.lease_on(id));
    let holder = old.map(|lease| lease.grant);
    let is_same_hold = holder == new.map(|lease| lease.grant);
    if from == to && is_same_hold {
        return None;
    }
    if let Mover::Settle(grant) = mover
        && holder != Some(grant)
    {
        return Some(Breach::StaleWrite);
    }
    if from.state.is_terminal() && !matches!(mover, Mover::Replay) {
        return Some(Breach::Reopened);
    }
    let is_live = old.is_some_and(|lease| lease.term == Term::Ahead);
    let may_end_live = match mover {
        Mover::Settle(grant) => holder == Some(grant),
        Mover::Bury(buried) => buried == id,
        Mover::Claim { .. } | Mover::Renew { .. } | Mover::Reap | Mover::Replay | Mover::Clock => {
            false
        }
    };
    if is_live && !is_same_hold && !may_end_live {
        return Some(Breach::EndedLive);
    }
    let is_allowed = TRANSITIONS.iter().any(|(source, cause, target)| {
        (*source, *target) == (from.state, to.state) && mover.causes().contains(cause)
    });
    (!is_allowed).then_some(Breach::Transition)
}

fn breach_of_lease(before: &Db, new: &LeaseRow, mover: Mover) -> Option<Breach> {
    let old = before.leases[new.grant]?;
    if old.fence != new.fence {
        return Some(Breach::FenceFell);
    }
    if old.term == new.term || matches!(mover, Mover::Clock) {
        return None;
    }
    let is_renewal = matches!(mover, Mover::Renew { .. });
    Some(if is_renewal {
        Breach::Revived
    } else {
        Breach::StaleWrite
    })
}

/// Checks the mover itself: the renewal of another holder's live lease does not change the store of
/// this world.
fn breach_of_renewal(mover: Mover) -> Option<Breach> {
    let Mover::Renew { grant, lease } = mover else {
        return None;
    };
    (grant != lease).then_some(Breach::StaleWrite)
}

fn breach_of_claim(before: &Db, after: &Db, mover: Mover) -> Option<Breach> {
    let Mover::Claim { grant, limit } = mover else {
        return None;
    };
    let lease = after.leases[grant]?;
    if lease.fence <= before.fence_max {
        return Some(Breach::FenceFell);
    }
    (lease.ids.iter().count() > limit).then_some(Breach::Limit)
}

/// Claimed items are held under one lease, all others under none.
fn breach_of_place(db: &Db, id: usize) -> Option<Breach> {
    let leases = db.leases().filter(|lease| lease.ids.has(id));
    match (db.rows[id].state, leases.count()) {
        (State::Claimed, 1) | (State::Pending | State::Done | State::Dead, 0) => None,
        (_, 0 | 1) => Some(Breach::Place),
        _ => Some(Breach::HeldTwice),
    }
}

/// Properties that must always hold, and situations that must occur at some point: a world without
/// these situations would prove nothing.
pub(crate) fn properties<R: Rules>(failover: bool) -> Vec<Property<World<R>>> {
    let mut properties = vec![
        Property::always(name(Breach::HeldTwice), |_, m: &Moment| {
            m.breach != Some(Breach::HeldTwice)
        }),
        Property::always(name(Breach::TokenTwice), |_, m: &Moment| {
            m.breach != Some(Breach::TokenTwice)
        }),
        Property::always(name(Breach::FenceFell), |_, m: &Moment| {
            m.breach != Some(Breach::FenceFell)
        }),
        Property::always(name(Breach::StaleWrite), |_, m: &Moment| {
            m.breach != Some(Breach::StaleWrite)
        }),
        Property::always(name(Breach::Revived), |_, m: &Moment| {
            m.breach != Some(Breach::Revived)
        }),
        Property::always(name(Breach::Reopened), |_, m: &Moment| {
            m.breach != Some(Breach::Reopened)
        }),
        Property::always(name(Breach::EndedLive), |_, m: &Moment| {
            m.breach != Some(Breach::EndedLive)
        }),
        Property::always(name(Breach::Transition), |_, m: &Moment| {
            m.breach != Some(Breach::Transition)
        }),
        Property::always(name(Breach::OtherAnswer), |_, m: &Moment| {
            m.breach != Some(Breach::OtherAnswer)
        }),
        Property::always(name(Breach::Place), |_, m: &Moment| {
            m.breach != Some(Breach::Place)
        }),
        Property::always(name(Breach::Limit), |_, m: &Moment| {
            m.breach != Some(Breach::Limit)
        }),
        Property::sometimes("all items are done", |_, m: &Moment| {
            m.db.rows.iter().all(|row| row.state == State::Done)
        }),
        Property::sometimes("a replayed item is done again", |_, m: &Moment| {
            let mut rows = m.db.rows.iter();
            rows.any(|row| row.generation > 0 && row.state == State::Done)
        }),
        Property::sometimes("an item is dead", |_, m: &Moment| {
            m.db.rows.iter().any(|row| row.state == State::Dead)
        }),
        Property::sometimes("two leases exist at once", |_, m: &Moment| {
            m.db.leases().count() == 2
        }),
        Property::sometimes("one lease holds two items", |_, m: &Moment| {
            m.db.leases().any(|lease| lease.ids.count() == 2)
        }),
        Property::sometimes(
            "an item has a later holder than its first",
            |_, m: &Moment| (0..ITEMS).any(|id| m.is_held_anew(id)),
        ),
    ];
    if failover {
        properties.push(Property::sometimes(
            "a fence is drawn twice",
            |_, m: &Moment| m.has_equal_fences(),
        ));
    }
    properties
}

pub(crate) fn name(breach: Breach) -> &'static str {
    match breach {
        Breach::HeldTwice => "law 1: an item has at most one lease",
        Breach::TokenTwice => "law 2: a token is never issued twice",
        Breach::FenceFell => "law 2: on one timeline, a fence only rises",
        Breach::StaleWrite => "law 3: only the current token writes",
        Breach::Revived => "law 3: a lapsed lease is not renewed",
        Breach::Reopened => "law 4: only a replay leaves done and dead",
        Breach::EndedLive => "law 5: only its holder or a bury ends a live lease",
        Breach::Transition => "law 6: only the six transitions exist",
        Breach::OtherAnswer => "law 9: a repeated settle gives the same answer",
        Breach::Place => "exactly the claimed items have a lease",
        Breach::Limit => "a claim never takes more than its limit",
    }
}
