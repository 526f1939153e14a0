//! The checker: a table of rules over a history. Each rule has planted histories that break it.

mod holds;
mod intake;
mod keys;
mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::history::{History, Id, Work};

pub use summary::Summary;

/// A rule that every history must pass.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub name: &'static str,
    /// Requirements and laws that the rule checks.
    pub promise: &'static str,
    check: RuleCheck,
}

#[derive(Clone, Copy, Debug)]
enum RuleCheck {
    /// Checks one work at a time.
    Work(fn(&View<'_>, &Work) -> Option<String>),
    /// Checks the whole history.
    Whole(fn(&View<'_>) -> Vec<Broken>),
}

/// The work, if the violation concerns one, and the details.
type Broken = (Option<Id>, String);

macro_rules! rules {
    ($($name:literal, $promise:literal, $kind:ident $check:path;)*) => {
        /// All rules.
        pub const RULES: &[Rule] = &[$(Rule {
            name: $name,
            promise: $promise,
            check: RuleCheck::$kind($check),
        }),*];
    };
}

rules! {
    "a confirmed write is stored", "law 8, S4-058: no event is lost", Whole intake::lost;
    "a write is stored once", "S4-057: at least once, by one event", Whole intake::doubled;
    "only written work is stored", "S2-041: a killed producer leaves nothing", Whole intake::ghosts;
    "an effect has its work", "S4-035: claimed before processed", Whole intake::ghost_effects;
    "an effect has its hold", "S4-035: claimed before processed", Whole intake::no_such_hold;
    "a hold has one effect", "S2-061: no duplicate of one holder", Whole intake::twice_in_a_hold;
    "repeats have one id", "S4-057: receivers can drop repeats", Whole intake::other_event_id;
    "attempts are counted", "S2-043: counters keep their meaning", Whole intake::wrong_attempt;
    "all work ends", "S2-041, S5-001: nothing is stuck", Work intake::unsettled;
    "work dies only by the crash limit", "S4-041, S4-043: the crash limit", Work intake::died;
    "done work has its effect", "S4-054, S4-057: at least once", Work intake::done_without_effect;
    "the effect comes before done", "S4-054: published, then settled", Whole intake::too_soon;
    "work is done once", "law 4, S4-045, S5-008: the end is final", Work intake::not_done_once;
    "nothing begins after its end", "S3-009, S5-008: no second time", Work holds::after_end;
    "a final state never changes", "S5-008: final states are permanent", Whole intake::changed_ends;
    "fences rise", "law 2: a fence only rises", Work holds::fences;
    "one holder at a time", "law 1, S3-007: one lease at a time", Work holds::overlap;
    "no lease is cut short", "law 5, S1-028: a reaper waits for the end", Work holds::cut_short;
    "a stale settle is refused", "law 3, S2-023: the guard", Work holds::stale_settle;
    "a lost hold is explained", "S2-024: no worker harms another", Work holds::unexplained;
    "a resumed worker notices", "S1-021, S2-052: the loss is reported", Work holds::unnoticed;
    "recovery is in time", "S1-025, S2-040, S5-007: term and reaper", Work holds::slow_recovery;
    "work goes on after an outage", "S5-007: recovery by themselves", Whole holds::not_resumed;
    "workers stay up", "S4-050: a conflict is not a crash", Whole intake::exits;
    "a key has one lease", "S3-001, S3-007: exclusive by key", Whole keys::held_twice;
    "a key is done in order", "law 7, S3-001, S4-051: in order", Whole keys::done_out_of_order;
    "a fenced receiver is in order", "S3-001: fences keep it", Whole keys::taken_out_of_order;
    "only repeats come late", "S4-051: in order by key", Whole keys::came_out_of_order;
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub rule: &'static str,
    /// The work that broke the rule, if the violation concerns one.
    pub work: Option<Id>,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken: {}: {}", self.rule, self.what)
    }
}

/// A history with indexes shared by several rules.
struct View<'a> {
    history: &'a History,
    /// Fences under which each work had an effect.
    fences: BTreeMap<Id, BTreeSet<i64>>,
    works: BTreeMap<Id, &'a Work>,
    /// Works of one key in the order of their writes.
    keys: BTreeMap<&'a str, Vec<&'a Work>>,
}

impl<'a> View<'a> {
    fn new(history: &'a History) -> Self {
        let mut view = Self {
            history,
            fences: BTreeMap::new(),
            works: history.works.iter().map(|work| (work.id, work)).collect(),
            keys: BTreeMap::new(),
        };
        for effect in &history.effects {
            let fences = view.fences.entry(effect.id).or_default();
            fences.insert(effect.fence);
        }
        for work in &history.works {
            if let Some(key) = &work.key {
                view.keys.entry(key).or_default().push(work);
            }
        }
        for works in view.keys.values_mut() {
            works.sort_by_key(|work| work.serial);
        }
        view
    }

    fn has_effect(&self, id: Id, fence: i64) -> bool {
        self.fences
            .get(&id)
            .is_some_and(|fences| fences.contains(&fence))
    }
}

/// Applies all rules to a history and counts its figures.
pub fn check(history: &History) -> (Vec<Violation>, Summary) {
    let view = View::new(history);
    let mut violations = BTreeSet::new();
    for rule in RULES {
        let broken: Vec<Broken> = match rule.check {
            RuleCheck::Whole(check) => check(&view),
            RuleCheck::Work(check) => {
                let works = history.works.iter();
                let broken = |work: &Work| Some((Some(work.id), check(&view, work)?));
                works.filter_map(broken).collect()
            }
        };
        let violation = |(work, what)| Violation {
            rule: rule.name,
            work,
            what,
        };
        violations.extend(broken.into_iter().map(violation));
    }
    (violations.into_iter().collect(), Summary::new(&view))
}

/// Formats the violations, each with its work, and all faults.
pub fn report(violations: &[Violation], history: &History) -> String {
    let works = violations.iter().map(|violation| {
        let mut works = history.works.iter();
        let work = works.find(|work| Some(work.id) == violation.work);
        format!("{violation}: {work:?}\n")
    });
    let faults = history.faults.iter().map(|fault| format!("{fault:?}\n"));
    works.chain(faults).collect()
}
