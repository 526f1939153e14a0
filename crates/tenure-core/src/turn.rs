//! Turns: the order of the items of one key when a claim takes several of them under one lease.
//!
//! The head of a key is its first open item, or a dead item that blocks the key. A claim takes the
//! head, alone or with a run of the items behind it. The worker works the run one item after the
//! other and settles the items in order. The first item that is retried or released becomes the
//! head again, and the rest of the run goes back behind it. So all held items of a key are under
//! one lease.
//!
//! These are pure functions. The memory and SQLite stores call them; the PostgreSQL statements
//! implement the same rules.

use crate::invalid::Invalid;
use crate::outcome::OutcomeKind;

/// Maximum number of items of one key claimed under one lease.
pub const RUN_MAX: u32 = 16;

words! {
    /// The effect of a dead head on the rest of its key.
    ///
    /// ```
    /// use tenure_core::OnDead;
    ///
    /// assert_eq!(OnDead::default(), OnDead::Skip);
    /// assert_eq!(OnDead::parse("block"), Ok(OnDead::Block));
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum OnDead: as_str, Display {
        /// The next item becomes the head.
        #[default]
        Skip = "skip",
        /// The key stops until an operator skips or replays the dead item.
        Block = "block",
    }
}

impl OnDead {
    /// Parses the word.
    ///
    /// # Errors
    /// The word is neither `skip` nor `block`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        [Self::Skip, Self::Block]
            .into_iter()
            .find(|known| known.as_str() == text)
            .ok_or_else(|| Invalid::new("on_dead", format!("{text:?}"), "skip or block"))
    }
}

/// The fate of one item of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The item stays held.
    Held,
    /// The item is done or dead, and the next item follows.
    Ended,
    /// The item is dead and blocks its key.
    Blocking,
    /// The item becomes the head of its key and can be claimed when it is due.
    Head,
    /// The item is released into the backlog, behind the head.
    Behind,
    /// The outcome is refused, because an earlier item is not settled. The item stays held.
    OutOfTurn,
    /// The outcome is refused, and the item is released into the backlog.
    OutOfTurnBehind,
}

impl Fate {
    /// Returns whether the outcome reported for the item is refused.
    pub const fn is_refused(self) -> bool {
        matches!(self, Self::OutOfTurn | Self::OutOfTurnBehind)
    }
}

/// The status of a key after a settle or a reap of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// The key has a head, held or claimable.
    Headed,
    /// The head is dead and blocks the key.
    Blocked,
    /// The key has no head: the first item of its backlog, if any, becomes the head.
    Open,
}

/// Decides the fates of the items of one key under one lease, in order, from the outcomes that a
/// settle reports; `None` for an item that the settle does not name.
///
/// ```
/// use tenure_core::{Fate, OnDead, KeyStatus, OutcomeKind, settle_run};
///
/// // The first item is done, the second is retried: the third goes back behind it.
/// let outcomes = [Some(OutcomeKind::Done), Some(OutcomeKind::Retry), None];
/// let (fates, status) = settle_run(&outcomes, OnDead::Skip);
/// assert_eq!(fates, [Fate::Ended, Fate::Head, Fate::Behind]);
/// assert_eq!(status, KeyStatus::Headed);
/// ```
pub fn settle_run(outcomes: &[Option<OutcomeKind>], on_dead: OnDead) -> (Vec<Fate>, KeyStatus) {
    let mut fates = Vec::with_capacity(outcomes.len());
    // The first fate other than `Ended`. If that item stays held and a later one goes back,
    // everything after the later one goes back too; otherwise it would overtake.
    let mut stop: Option<Fate> = None;
    for outcome in outcomes {
        let fate = match (stop, outcome) {
            (None | Some(Fate::Held), None) => Fate::Held,
            (None, Some(OutcomeKind::Dead)) if on_dead == OnDead::Block => Fate::Blocking,
            (None, Some(OutcomeKind::Done | OutcomeKind::Dead)) => Fate::Ended,
            (None, Some(_)) => Fate::Head,
            (Some(_), None | Some(OutcomeKind::Release)) => Fate::Behind,
            (Some(Fate::Held), Some(_)) => Fate::OutOfTurn,
            (Some(_), Some(_)) => Fate::OutOfTurnBehind,
        };
        let is_stop = stop.is_none() && fate != Fate::Ended;
        let is_cut = stop == Some(Fate::Held) && fate == Fate::Behind;
        if is_stop || is_cut {
            stop = Some(fate);
        }
        fates.push(fate);
    }
    let status = match stop {
        None => KeyStatus::Open,
        Some(Fate::Blocking) => KeyStatus::Blocked,
        Some(_) => KeyStatus::Headed,
    };
    (fates, status)
}

/// Decides the fates of a run of `length` items whose lease lapsed. Only the first was being worked
/// on, so only it has crashed; `is_dead` is true if this lapse exceeded its crash budget. The
/// others are released.
///
/// ```
/// use tenure_core::{Fate, OnDead, KeyStatus, lapse_run};
///
/// let (fates, _) = lapse_run(3, true, OnDead::Skip);
/// assert_eq!(fates, [Fate::Ended, Fate::Head, Fate::Behind]);
/// ```
pub fn lapse_run(length: usize, is_dead: bool, on_dead: OnDead) -> (Vec<Fate>, KeyStatus) {
    let first = match (is_dead, on_dead) {
        (false, _) => Fate::Head,
        (true, OnDead::Skip) => Fate::Ended,
        (true, OnDead::Block) => Fate::Blocking,
    };
    let fates: Vec<Fate> = (0..length)
        .map(|nth| match nth {
            0 => first,
            1 if first == Fate::Ended => Fate::Head,
            _ => Fate::Behind,
        })
        .collect();
    let status = match (is_dead, on_dead) {
        (true, OnDead::Block) => KeyStatus::Blocked,
        (true, OnDead::Skip) if length < 2 => KeyStatus::Open,
        (true | false, _) => KeyStatus::Headed,
    };
    (fates, status)
}

/// Returns the maximum number of items of one key in a claim of up to `limit` items of which at
/// least `min_parallel` should be workable in parallel.
///
/// ```
/// assert_eq!(tenure_core::run_length(10, 10), 1);
/// assert_eq!(tenure_core::run_length(100, 10), 10);
/// assert_eq!(tenure_core::run_length(1000, 10), tenure_core::RUN_MAX);
/// ```
pub const fn run_length(limit: u32, min_parallel: u32) -> u32 {
    let min_parallel = if min_parallel == 0 { 1 } else { min_parallel };
    let length = limit / min_parallel;
    if length < 1 {
        1
    } else if length > RUN_MAX {
        RUN_MAX
    } else {
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [Option<OutcomeKind>; 5] = [
        None,
        Some(OutcomeKind::Done),
        Some(OutcomeKind::Retry),
        Some(OutcomeKind::Dead),
        Some(OutcomeKind::Release),
    ];

    /// Every combination of outcomes for four items, with both settings.
    fn all() -> impl Iterator<Item = (Vec<Option<OutcomeKind>>, OnDead)> {
        (0..5_usize.pow(4)).flat_map(|number| {
            let outcomes: Vec<_> = (0..4)
                .map(|digit| WORDS[number / 5_usize.pow(digit) % 5])
                .collect();
            [(outcomes.clone(), OnDead::Skip), (outcomes, OnDead::Block)]
        })
    }

    #[test]
    fn a_run_is_settled_in_order_and_never_split() {
        for (outcomes, on_dead) in all() {
            let (fates, status) = settle_run(&outcomes, on_dead);
            assert_eq!(fates.len(), outcomes.len());
            let ended = fates
                .iter()
                .take_while(|fate| **fate == Fate::Ended)
                .count();
            for (nth, fate) in fates.iter().enumerate() {
                assert!(
                    (*fate == Fate::Ended) == (nth < ended),
                    "{outcomes:?}: only the front of the run may end: {fates:?}"
                );
                assert!(
                    nth <= ended || !matches!(fate, Fate::Head | Fate::Blocking),
                    "{outcomes:?}: only the first item that did not end may be the head: {fates:?}"
                );
            }
            let is_held = |fate: &Fate| matches!(fate, Fate::Held | Fate::OutOfTurn);
            let headed = fates
                .iter()
                .any(|fate| matches!(fate, Fate::Head | Fate::Blocking));
            assert!(
                !(headed && fates.iter().any(is_held)),
                "{outcomes:?}: no item stays held if the head went back: {fates:?}"
            );
            let back = fates.iter().skip_while(|fate| **fate != Fate::Behind);
            assert!(
                !back.clone().any(is_held),
                "{outcomes:?}: no held item follows an item that went back: {fates:?}"
            );
            let expected = match fates.get(ended) {
                None => KeyStatus::Open,
                Some(Fate::Blocking) => KeyStatus::Blocked,
                Some(_) => KeyStatus::Headed,
            };
            assert_eq!(status, expected);
            for (outcome, fate) in outcomes.iter().zip(&fates) {
                assert!(
                    !fate.is_refused() || !matches!(outcome, None | Some(OutcomeKind::Release)),
                    "{outcomes:?}: a release is never refused"
                );
            }
        }
    }

    #[test]
    fn a_lapse_crashes_the_first_item_of_a_run_and_releases_the_rest() {
        assert_eq!(
            lapse_run(3, false, OnDead::Skip),
            (
                vec![Fate::Head, Fate::Behind, Fate::Behind],
                KeyStatus::Headed
            )
        );
        assert_eq!(
            lapse_run(1, true, OnDead::Skip),
            (vec![Fate::Ended], KeyStatus::Open)
        );
        assert_eq!(
            lapse_run(2, true, OnDead::Block),
            (vec![Fate::Blocking, Fate::Behind], KeyStatus::Blocked)
        );
    }
}
