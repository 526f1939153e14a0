//! What workers note while they work, and what must be true of it.
//!
//! A line is a word, a thing, who, and when. A thing is `row-7`, which is done once; `part-7`, a
//! row that may be done again until it has ended; or `chunk-m1.a`, a part of a row. A worker notes
//! that it begins a thing after it has claimed it, and that it ends it before it says so to the
//! database: the time between lies within its lease.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use super::super::now;

/// Who noted it: `hand-` or `ours-` and a number, for ours also the row: `ours-17/4`.
pub(super) fn note(log: &Path, word: &str, thing: &str, who: &str) {
    let line = format!("{word} {thing} {who} {}\n", now().as_micros());
    let file = OpenOptions::new().append(true).create(true).open(log);
    file.unwrap().write_all(line.as_bytes()).unwrap();
}

/// The things that a process has begun and not ended.
pub(super) fn open(log: &Path, process: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let history = History::read(&text);
    let of = |(thing, spans): (String, Vec<Span>)| {
        let mine = move |span: &Span| span.to.is_none() && is_of(&span.who, process);
        let open = spans.into_iter().filter(mine);
        open.map(move |span| (thing.clone(), span.who))
            .collect::<Vec<_>>()
    };
    history.spans.into_iter().flat_map(of).collect()
}

fn is_of(who: &str, process: &str) -> bool {
    who.strip_prefix(process)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Somebody at a thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    from: i64,
    /// Not known where its worker was killed.
    to: Option<i64>,
    who: String,
    /// It came to its end.
    is_done: bool,
}

/// All that was noted.
#[derive(Default)]
pub(super) struct History {
    spans: BTreeMap<String, Vec<Span>>,
    /// Processes that were killed, and those at a row whose lease somebody ended by hand.
    stopped: Vec<(String, i64)>,
    kills: Vec<String>,
    /// What a worker was at when it was killed, who, and when.
    broken: Vec<(String, String, i64)>,
    /// From when on nobody may begin a thing any more.
    ends: BTreeMap<String, i64>,
    /// What somebody was refused, and who.
    pub(super) refused: Vec<(String, String)>,
}

impl History {
    pub(super) fn read(text: &str) -> Self {
        let mut history = Self::default();
        // The last line may be half written.
        let lines = text.split_inclusive('\n');
        for line in lines.filter(|line| line.ends_with('\n')) {
            let parts: Vec<&str> = line.split_whitespace().collect();
            let [word, thing, who, at] = parts[..] else {
                panic!("{line:?}");
            };
            history.add(word, thing, who, at.parse().unwrap());
        }
        history
    }

    fn add(&mut self, word: &str, thing: &str, who: &str, at: i64) {
        match word {
            "begin" => {
                let spans = self.spans.entry(thing.to_owned()).or_default();
                spans.push(Span {
                    from: at,
                    to: None,
                    who: who.to_owned(),
                    is_done: false,
                });
            }
            "end" | "left" => {
                // What was cut off has no other end.
                if let Some(open) = self.open(thing, who) {
                    (open.to, open.is_done) = (Some(at), word == "end");
                }
            }
            "cut" => {
                if let Some(open) = self.open(thing, who) {
                    open.to = Some(at);
                }
                self.stopped.push((who.to_owned(), at));
            }
            "killed" => {
                self.stopped.push((who.to_owned(), at));
                self.kills.push(who.to_owned());
            }
            // From the beginning: it may have been at any time.
            "paused" => self.stopped.push((who.to_owned(), i64::MIN)),
            "broken" => self.broken.push((thing.to_owned(), who.to_owned(), at)),
            "final" => {
                self.ends.entry(thing.to_owned()).or_insert(at);
            }
            "refused" => self.refused.push((thing.to_owned(), who.to_owned())),
            other => panic!("{other:?}"),
        }
    }

    /// What somebody has begun and not ended.
    fn open(&mut self, thing: &str, who: &str) -> Option<&mut Span> {
        let spans = self.spans.get_mut(thing)?;
        let is_open = |span: &&mut Span| span.to.is_none() && span.who == who;
        spans.iter_mut().rfind(is_open)
    }

    /// When its worker was stopped for good after it began.
    fn stop_of(&self, span: &Span) -> Option<i64> {
        let of = |(who, at): &(String, i64)| (is_of(&span.who, who)).then_some(*at);
        let after = self.stopped.iter().filter_map(of);
        after.map(|at| at.max(span.from)).min()
    }

    /// What is wrong with it, given what the table said of what has ended.
    pub(super) fn judge(&self, ends: &Ends) -> (Vec<Violation>, Summary) {
        let mut violations = ends.changed.clone();
        for (thing, spans) in &self.spans {
            let mut spans = spans.clone();
            spans.sort();
            violations.extend(self.judge_spans(thing, &spans));
        }
        for (thing, end) in &ends.seen {
            let is_done = |spans: &Vec<Span>| spans.iter().any(|span| span.is_done);
            if !self.spans.get(thing).is_some_and(is_done) && !self.ends.contains_key(thing) {
                violations.push(Violation::Undone(thing.clone(), end.clone()));
            }
        }
        (violations, self.summary(ends))
    }

    fn judge_spans(&self, thing: &str, spans: &[Span]) -> Vec<Violation> {
        let mut violations = Vec::new();
        let shown = || format!("{thing}: {spans:?}");
        let mut free = i64::MIN;
        for span in spans {
            if span.from < free {
                violations.push(Violation::Twice(shown()));
            }
            let to = span.to.or_else(|| self.stop_of(span));
            if to.is_none() {
                violations.push(Violation::Open(shown()));
            }
            free = free.max(to.unwrap_or(span.from));
            let end = self.ends.get(thing);
            if end.is_some_and(|end| span.from > *end) {
                violations.push(Violation::AfterEnd(shown()));
            }
        }
        for pair in spans.windows(2) {
            let is_over = pair[0].is_done && thing.starts_with("row-");
            let stop = self.stop_of(&pair[0]);
            if is_over && stop.is_none_or(|stop| stop > pair[1].from) {
                violations.push(Violation::Again(shown()));
            }
        }
        violations
    }

    fn summary(&self, ends: &Ends) -> Summary {
        let rows = || self.spans.iter().filter(|(thing, _)| is_row(thing));
        let by = |kind: &str| {
            let is_by = |span: &Span| span.is_done && span.who.starts_with(kind);
            let done = rows().filter(|(_, spans)| spans.iter().any(is_by));
            done.count()
        };
        let hit = |who: &&String| self.broken.iter().any(|(_, of, _)| is_of(of, who));
        let broken = || self.broken.iter().filter(|(thing, ..)| is_row(thing));
        let is_again = |(thing, who, at): &&(String, String, i64)| {
            let later = |span: &Span| span.from > *at && span.who != *who;
            self.spans[thing].iter().any(later)
        };
        Summary {
            rows: ends.seen.keys().filter(|thing| is_row(thing)).count(),
            by_hand: by("hand-"),
            by_us: by("ours-"),
            kills: self.kills.len(),
            bites: self.kills.iter().filter(hit).count(),
            broken: broken().count(),
            again: broken().filter(is_again).count(),
        }
    }
}

fn is_row(thing: &str) -> bool {
    thing.starts_with("row-") || thing.starts_with("part-")
}

/// What a table said of the rows that have ended, from the first time that it did.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) seen: BTreeMap<String, String>,
    changed: Vec<Violation>,
}

impl Ends {
    /// Takes in what the table says now: a line per row, the thing and all that is final of it.
    pub(super) fn look(&mut self, lines: &[String]) {
        let mut there = BTreeSet::new();
        for line in lines {
            let (thing, end) = line.split_once(' ').unwrap();
            there.insert(thing);
            let was = self.seen.entry(thing.to_owned());
            let was = was.or_insert_with(|| end.to_owned());
            if was != end {
                let change = (was.clone(), end.to_owned());
                self.changed
                    .push(Violation::Changed(thing.to_owned(), change.0, change.1));
                end.clone_into(was);
            }
        }
        let gone = self.seen.keys().filter(|thing| !there.contains(&***thing));
        let gone: Vec<String> = gone.cloned().collect();
        for thing in gone {
            self.seen.remove(&thing);
            self.changed.push(Violation::Gone(thing));
        }
    }
}

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// Two were at it at once.
    Twice(String),
    /// Somebody gave it up and nobody had killed him.
    Open(String),
    /// It was begun again though it was done by one whom nobody had killed.
    Again(String),
    /// It was begun though it had ended for good.
    AfterEnd(String),
    /// The table says that it has ended, and nobody has done it.
    Undone(String, String),
    /// It had ended, and then otherwise.
    Changed(String, String, String),
    /// It had ended, and then it had not, or was no longer there.
    Gone(String),
}

impl Violation {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Twice(_) => "Twice",
            Self::Open(_) => "Open",
            Self::Again(_) => "Again",
            Self::AfterEnd(_) => "AfterEnd",
            Self::Undone(..) => "Undone",
            Self::Changed(..) => "Changed",
            Self::Gone(_) => "Gone",
        }
    }
}

/// The figures of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) rows: usize,
    /// Rows that a worker of theirs has done, and of ours; the broken off may have been at both.
    pub(super) by_hand: usize,
    pub(super) by_us: usize,
    pub(super) kills: usize,
    /// Kills in the middle of a row.
    pub(super) bites: usize,
    /// Rows that a kill broke off.
    pub(super) broken: usize,
    /// Those of them that somebody took up.
    pub(super) again: usize,
}

/// Four rows: one done at once, one broken off by a kill and done by another, one ended by hand
/// under a worker, and a chunk that is done twice and then for good.
const SOUND: &str = "begin row-1 hand-1 10\nend row-1 hand-1 20\n\
    begin row-2 ours-2/2 10\nkilled - ours-2 15\nbroken row-2 ours-2/2 15\nend row-2 ours-2/2 30\n\
    begin row-2 hand-1 40\nend row-2 hand-1 50\n\
    begin row-3 ours-3/3 10\ncut row-3 ours-3/3 15\nfinal row-3 - 15\nend row-3 ours-3/3 20\n\
    begin chunk-a hand-1 10\nend chunk-a hand-1 20\n\
    begin chunk-a ours-3/3 20\nend chunk-a ours-3/3 30\nfinal chunk-a ours-3/3 40\n";

fn judged(more: &str, looks: &[&[&str]]) -> Vec<Violation> {
    let mut ends = Ends::default();
    let lines = |lines: &[&str]| -> Vec<String> { lines.iter().map(|&l| l.into()).collect() };
    ends.look(&lines(&ENDED));
    for look in looks {
        ends.look(&lines(look));
    }
    History::read(&format!("{SOUND}{more}")).judge(&ends).0
}

const ENDED: [&str; 4] = [
    "row-1 completed 21",
    "row-2 completed 51",
    "row-3 failed 15 by hand",
    "chunk-a completed 40",
];

#[test]
fn a_sound_history_is_passed_and_its_kills_are_counted() {
    assert_eq!(judged("", &[&ENDED]), []);
    let mut ends = Ends::default();
    ends.look(&ENDED.map(str::to_owned));
    let summary = Summary {
        rows: 3,
        by_hand: 2,
        by_us: 1,
        kills: 1,
        bites: 1,
        broken: 1,
        again: 1,
    };
    assert_eq!(History::read(SOUND).judge(&ends).1, summary);
}

/// What is noted besides, what the table says then, and what is wrong with it.
type Case = (&'static str, Looks, &'static [&'static str]);
type Looks = &'static [&'static [&'static str]];

/// Each planted fault is told by its name.
#[test]
fn the_judge_sees_what_must_not_be() {
    let cases: [Case; 9] = [
        // At two at once: a row, a row behind the one before, and a chunk.
        (
            "begin row-1 ours-9/1 15\nleft row-1 ours-9/1 16\n",
            &[],
            &["Twice", "Again"],
        ),
        (
            "begin row-2 ours-9/2 20\nleft row-2 ours-9/2 22\n",
            &[],
            &["Twice"],
        ),
        (
            "begin chunk-a ours-9/1 15\nend chunk-a ours-9/1 17\n",
            &[],
            &["Twice"],
        ),
        ("begin row-9 ours-9/9 60\n", &[], &["Open"]),
        (
            "begin row-1 ours-9/1 60\nend row-1 ours-9/1 70\n",
            &[],
            &["Again"],
        ),
        (
            "begin row-3 hand-1 60\nleft row-3 hand-1 61\n",
            &[],
            &["AfterEnd"],
        ),
        (
            "begin chunk-a hand-1 60\nend chunk-a hand-1 61\n",
            &[],
            &["AfterEnd"],
        ),
        // A row that nobody has done, one that ends twice, one that comes back.
        (
            "",
            &[&[ENDED[0], ENDED[1], ENDED[2], ENDED[3], "row-4 completed 1"]],
            &["Undone"],
        ),
        (
            "",
            &[&[ENDED[0], "row-2 completed 52", ENDED[3]]],
            &["Changed", "Gone"],
        ),
    ];
    for (more, looks, expected) in cases {
        let names: Vec<&str> = judged(more, looks).iter().map(Violation::name).collect();
        assert_eq!(names, expected, "{more:?} {looks:?}");
    }
}
