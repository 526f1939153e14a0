//! Turns: the order of the items of one domain, when a claim takes several of them under one lease.
//!
//! A domain is an ordering key. Its first item that is neither done nor dead is its head; only the
//! head may be claimed, and with it, under the same lease, a run of those that follow. They are
//! worked one after the other, and settled in order. As soon as one of them does not end (it is to
//! be tried again, or is given back), it is the head, and what is left of the run goes back behind
//! it: whatever is held of a domain is held by one lease.
//!
//! Pure functions; the stores that keep items in maps or read them one by one call them, and the
//! statements of PostgreSQL say the same.

use std::fmt;

use crate::invalid::Invalid;
use crate::outcome::Word;

/// At most this many items of one domain are claimed under one lease.
pub const RUN_MAX: u32 = 16;

/// What a dead head does to the rest of its domain.
///
/// ```
/// use tenure_core::OnDead;
///
/// assert_eq!(OnDead::default(), OnDead::Skip);
/// assert_eq!(OnDead::parse("block"), Ok(OnDead::Block));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDead {
    /// The next one has its turn.
    #[default]
    Skip,
    /// The domain stands still until an operator skips or replays the dead one.
    Block,
}

impl OnDead {
    /// The word for it, as it is set.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Block => "block",
        }
    }

    /// Reads the word.
    ///
    /// # Errors
    /// It is neither `skip` nor `block`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        [Self::Skip, Self::Block]
            .into_iter()
            .find(|known| known.as_str() == text)
            .ok_or_else(|| Invalid::new("on_dead", format!("{text:?}"), "skip or block"))
    }
}

impl fmt::Display for OnDead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What becomes of one item of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays held.
    Held,
    /// It is done or dead, as was said, and makes way for the next.
    Ended,
    /// It is dead and blocks its domain.
    Blocking,
    /// It is claimable again when its time has come: the head of its domain.
    Head,
    /// It goes back into the backlog, behind the head: released.
    Behind,
    /// What was said of it is refused: an item before it is not settled. It stays held.
    OutOfTurn,
    /// What was said of it is refused, and it goes back into the backlog: released.
    OutOfTurnBehind,
}

impl Fate {
    /// Whether what was said of the item is refused.
    pub const fn is_refused(self) -> bool {
        matches!(self, Self::OutOfTurn | Self::OutOfTurnBehind)
    }
}

/// What becomes of a domain when a settle or a reap has dealt with its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has a head, held or claimable.
    Headed,
    /// Its head is dead and blocks it.
    Blocked,
    /// It has no head: the first of its backlog is the next one, if there is any.
    Open,
}

/// What becomes of the items of one domain under one lease, in their order, when a settle says
/// these words of them; `None`: it does not name the item.
///
/// ```
/// use tenure_core::{Fate, OnDead, Standing, Word, settle_run};
///
/// // The first is done, the second is to be tried again: the third goes back behind it.
/// let said = [Some(Word::Done), Some(Word::Retry), None];
/// let (fates, standing) = settle_run(&said, OnDead::Skip);
/// assert_eq!(fates, [Fate::Ended, Fate::Head, Fate::Behind]);
/// assert_eq!(standing, Standing::Headed);
/// ```
pub fn settle_run(said: &[Option<Word>], on_dead: OnDead) -> (Vec<Fate>, Standing) {
    let mut fates = Vec::with_capacity(said.len());
    // The first that did not end, once it is found. When that is held and something after it goes
    // back, so does all that follows: else it would come before that.
    let mut stop: Option<Fate> = None;
    for word in said {
        let fate = match (stop, word) {
            (None | Some(Fate::Held), None) => Fate::Held,
            (None, Some(Word::Dead)) if on_dead == OnDead::Block => Fate::Blocking,
            (None, Some(Word::Done | Word::Dead)) => Fate::Ended,
            (None, Some(_)) => Fate::Head,
            (Some(_), None | Some(Word::Release)) => Fate::Behind,
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
    let standing = match stop {
        None => Standing::Open,
        Some(Fate::Blocking) => Standing::Blocked,
        Some(_) => Standing::Headed,
    };
    (fates, standing)
}

/// What becomes of a run of `length` items whose lease lapsed. Only the first was being worked on,
/// so only it has crashed; `is_dead` says that this was its last lapse. The others are released.
///
/// ```
/// use tenure_core::{Fate, OnDead, Standing, lapse_run};
///
/// let (fates, _) = lapse_run(3, true, OnDead::Skip);
/// assert_eq!(fates, [Fate::Ended, Fate::Head, Fate::Behind]);
/// ```
pub fn lapse_run(length: usize, is_dead: bool, on_dead: OnDead) -> (Vec<Fate>, Standing) {
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
    let standing = match (is_dead, on_dead) {
        (true, OnDead::Block) => Standing::Blocked,
        (true, OnDead::Skip) if length < 2 => Standing::Open,
        (true | false, _) => Standing::Headed,
    };
    (fates, standing)
}

/// How many items of one domain a claim of up to `limit` takes, when at least `abreast` of all its
/// items should be such that can be worked at the same time.
///
/// ```
/// assert_eq!(tenure_core::run_length(10, 10), 1);
/// assert_eq!(tenure_core::run_length(100, 10), 10);
/// assert_eq!(tenure_core::run_length(1000, 10), tenure_core::RUN_MAX);
/// ```
pub const fn run_length(limit: u32, abreast: u32) -> u32 {
    let abreast = if abreast == 0 { 1 } else { abreast };
    let length = limit / abreast;
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

    const WORDS: [Option<Word>; 5] = [
        None,
        Some(Word::Done),
        Some(Word::Retry),
        Some(Word::Dead),
        Some(Word::Release),
    ];

    /// Every way to speak of four items, with both settings.
    fn all() -> impl Iterator<Item = (Vec<Option<Word>>, OnDead)> {
        (0..5_usize.pow(4)).flat_map(|number| {
            let said: Vec<_> = (0..4)
                .map(|digit| WORDS[number / 5_usize.pow(digit) % 5])
                .collect();
            [(said.clone(), OnDead::Skip), (said, OnDead::Block)]
        })
    }

    #[test]
    fn a_run_is_settled_in_order_and_never_torn_apart() {
        for (said, on_dead) in all() {
            let (fates, standing) = settle_run(&said, on_dead);
            assert_eq!(fates.len(), said.len());
            let ended = fates
                .iter()
                .take_while(|fate| **fate == Fate::Ended)
                .count();
            for (nth, fate) in fates.iter().enumerate() {
                assert!(
                    (*fate == Fate::Ended) == (nth < ended),
                    "{said:?}: what ends is the front of the run, not {fates:?}"
                );
                assert!(
                    nth <= ended || !matches!(fate, Fate::Head | Fate::Blocking),
                    "{said:?}: there is one head, the first that did not end, not {fates:?}"
                );
            }
            let is_held = |fate: &Fate| matches!(fate, Fate::Held | Fate::OutOfTurn);
            let headed = fates
                .iter()
                .any(|fate| matches!(fate, Fate::Head | Fate::Blocking));
            assert!(
                !(headed && fates.iter().any(is_held)),
                "{said:?}: beside a head that went back nothing stays held: {fates:?}"
            );
            let back = fates.iter().skip_while(|fate| **fate != Fate::Behind);
            assert!(
                !back.clone().any(is_held),
                "{said:?}: nothing that stays held comes after what went back: {fates:?}"
            );
            let expected = match fates.get(ended) {
                None => Standing::Open,
                Some(Fate::Blocking) => Standing::Blocked,
                Some(_) => Standing::Headed,
            };
            assert_eq!(standing, expected);
            for (word, fate) in said.iter().zip(&fates) {
                assert!(
                    !fate.is_refused() || !matches!(word, None | Some(Word::Release)),
                    "{said:?}: to give back is never refused"
                );
            }
        }
    }

    #[test]
    fn a_lapse_is_the_first_ones_crash() {
        assert_eq!(
            lapse_run(3, false, OnDead::Skip),
            (
                vec![Fate::Head, Fate::Behind, Fate::Behind],
                Standing::Headed
            )
        );
        assert_eq!(
            lapse_run(1, true, OnDead::Skip),
            (vec![Fate::Ended], Standing::Open)
        );
        assert_eq!(
            lapse_run(2, true, OnDead::Block),
            (vec![Fate::Blocking, Fate::Behind], Standing::Blocked)
        );
    }
}
