//! Rules on the beginning and the final state of work, and on its effects.

use std::collections::BTreeMap;

use tenure_core::{OutcomeKind, State, reason};

use super::{Broken, View};
use crate::history::{Effect, Judged, Work};

pub(super) fn lost(view: &View<'_>) -> Vec<Broken> {
    let works = view.history.works.iter();
    let stored: BTreeMap<_, _> = works.map(|work| (work.serial, work.id)).collect();
    let written = view.history.written.iter();
    let lost = written.filter(|(serial, id)| stored.get(serial) != Some(id));
    lost.map(|(serial, id)| (None, format!("serial {serial}, confirmed as {id}")))
        .collect()
}

pub(super) fn doubled(view: &View<'_>) -> Vec<Broken> {
    let mut stored = BTreeMap::new();
    let works = view.history.works.iter();
    let doubled = works.filter_map(|work| {
        let first = stored.insert(work.serial, work.id)?;
        Some((Some(work.id), format!("serial {} is {first}", work.serial)))
    });
    doubled.collect()
}

pub(super) fn ghosts(view: &View<'_>) -> Vec<Broken> {
    let history = view.history;
    let is_known = |work: &&Work| {
        history.written.contains_key(&work.serial) || history.unknown.contains(&work.serial)
    };
    let ghosts = history.works.iter().filter(|work| !is_known(work));
    ghosts
        .map(|work| (Some(work.id), format!("serial {}", work.serial)))
        .collect()
}

/// Effects that break a rule, each judged with its work.
fn effects(view: &View<'_>, is_broken: impl Fn(&Effect, Option<&Work>) -> bool) -> Vec<Broken> {
    let broken = |effect: &&Effect| is_broken(effect, view.works.get(&effect.id).copied());
    let broken = view.history.effects.iter().filter(broken);
    broken
        .map(|effect| (Some(effect.id), format!("{effect:?}")))
        .collect()
}

pub(super) fn ghost_effects(view: &View<'_>) -> Vec<Broken> {
    effects(view, |_, work| work.is_none())
}

fn has_hold(work: &Work, effect: &Effect) -> bool {
    work.holds.iter().any(|hold| hold.fence == effect.fence)
}

pub(super) fn no_such_hold(view: &View<'_>) -> Vec<Broken> {
    effects(view, |effect, work| {
        work.is_some_and(|work| !has_hold(work, effect))
    })
}

pub(super) fn twice_in_a_hold(view: &View<'_>) -> Vec<Broken> {
    let mut pairs = std::collections::BTreeSet::new();
    let effects = view.history.effects.iter();
    let again = effects.filter(|effect| !pairs.insert((effect.id, effect.fence)));
    again
        .map(|effect| (Some(effect.id), format!("{effect:?}")))
        .collect()
}

pub(super) fn other_event_id(view: &View<'_>) -> Vec<Broken> {
    effects(view, |effect, work| {
        work.is_some_and(|work| work.event_id != effect.event_id)
    })
}

pub(super) fn wrong_attempt(view: &View<'_>) -> Vec<Broken> {
    effects(view, |effect, work| {
        let (Some(work), Some(attempt)) = (work, effect.attempt) else {
            return false;
        };
        // A released lease may or may not count as an attempt.
        let earlier = || work.holds.iter().filter(|h| h.fence < effect.fence);
        let least = 1 + earlier()
            .filter(|h| h.outcome != OutcomeKind::Release)
            .count();
        has_hold(work, effect) && !(least..=1 + earlier().count()).contains(&attempt)
    })
}

pub(super) fn unsettled(_: &View<'_>, work: &Work) -> Option<String> {
    let is_open = match work.state {
        Some(State::Done | State::Dead) => false,
        Some(State::Pending | State::Claimed) => true,
        None => work.judged == Judged::Once,
    };
    is_open.then(|| format!("{:?}", work.state))
}

pub(super) fn died(view: &View<'_>, work: &Work) -> Option<String> {
    let budget = usize::try_from(view.history.bounds.lapse.max_crashes()).ok()?;
    let why = work.dead_reason.as_deref().unwrap_or_default();
    let is_crash_loop =
        why == reason::CRASH_LOOP && work.holds_with(OutcomeKind::Lapsed).count() > budget;
    let is_broken = work.state == Some(State::Dead) && !is_crash_loop;
    is_broken.then(|| why.to_owned())
}

pub(super) fn done_without_effect(view: &View<'_>, work: &Work) -> Option<String> {
    let mut done = work.holds_with(OutcomeKind::Done);
    let is_broken = work.state == Some(State::Done)
        && work.judged != Judged::Forced
        && !done.any(|hold| view.has_effect(work.id, hold.fence));
    is_broken.then(|| work.name.clone())
}

pub(super) fn too_soon(view: &View<'_>) -> Vec<Broken> {
    let too_soon = view.history.too_soon.iter();
    too_soon.map(|id| (Some(*id), String::new())).collect()
}

pub(super) fn not_done_once(_: &View<'_>, work: &Work) -> Option<String> {
    let done = work.holds_with(OutcomeKind::Done).count();
    let is_broken = work.state == Some(State::Done) && work.judged == Judged::Once && done != 1;
    is_broken.then(|| format!("done {done} times"))
}

pub(super) fn changed_ends(view: &View<'_>) -> Vec<Broken> {
    let mut ends = BTreeMap::new();
    let changes = view.history.ends.iter().filter_map(|(name, end)| {
        let before = ends.insert(name, end)?;
        Some((None, format!("{name}: {before:?}, then {end:?}")))
    });
    changes.collect()
}

pub(super) fn exits(view: &View<'_>) -> Vec<Broken> {
    let exits = view.history.exits.iter();
    exits.map(|name| (None, name.clone())).collect()
}
