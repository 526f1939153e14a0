//! A file in which workers record their steps, and the history derived from it.
//!
//! A line consists of a step, a thing, a worker and a time in microseconds. A thing named like
//! `row-7` is done once; a thing with another name, such as `part-7` or `chunk-m1.a`, may be done
//! again until it is final. A worker writes `begin` after its claim and `end` before it settles, so
//! the time between lies within its lease.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use tenure_core::{OutcomeKind, State, Timestamp};

use crate::history::{About, Bounds, Effect, Fault, FaultKind, History, Hold, Judged, Loss, Work};
use crate::wait::now;

/// Maximum time until another worker takes over a thing that a kill interrupted.
const RECOVERY: std::time::Duration = std::time::Duration::from_mins(1);

/// Appends a line. A worker is a process, or a process and the row it works on: `ours-17/4`.
///
/// Steps: `begin`, `end`, `left` (the worker noticed that it no longer holds the thing); `robbed`
/// (a statement from outside took the thing), `final` (the thing is done for good), `refused`; and,
/// for processes, `killed` and `stalled` (the process reported losses of its own).
pub fn note(log: &Path, verb: &str, thing: &str, who: &str) {
    note_at(log, verb, thing, who, now());
}

/// Appends a line with a time in the past.
pub fn note_at(log: &Path, verb: &str, thing: &str, who: &str, at: Timestamp) {
    let line = format!("{verb} {thing} {who} {}\n", at.as_micros());
    let file = OpenOptions::new().append(true).create(true).open(log);
    file.unwrap().write_all(line.as_bytes()).unwrap();
}

/// The time from `begin` to `end` of one worker at one thing.
#[derive(Clone, Debug)]
struct Span {
    from: Timestamp,
    to: Option<Timestamp>,
    who: String,
    is_done: bool,
    is_robbed: bool,
}

/// The parsed notes.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    spans: BTreeMap<String, Vec<Span>>,
    /// Processes that were killed.
    pub kills: Vec<(String, Timestamp)>,
    stalled: Vec<String>,
    finals: BTreeMap<String, Timestamp>,
    /// Refused things, each with the worker whose write was refused.
    pub refused: Vec<(String, String)>,
}

impl Notes {
    /// Reads a file, which may not exist yet.
    pub fn read(log: &Path) -> Self {
        Self::parse(&fs::read_to_string(log).unwrap_or_default())
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut notes = Self::default();
        // The last line may be incomplete.
        let lines = text.split_inclusive('\n');
        for line in lines.filter(|line| line.ends_with('\n')) {
            let parts: Vec<&str> = line.split_whitespace().collect();
            let [verb, thing, who, at] = parts[..] else {
                panic!("{line:?}");
            };
            let at = Timestamp::from_micros(at.parse().unwrap());
            notes.add(verb, thing.to_owned(), who.to_owned(), at);
        }
        notes
    }

    fn add(&mut self, verb: &str, thing: String, who: String, at: Timestamp) {
        match verb {
            "begin" => self.spans.entry(thing).or_default().push(Span {
                from: at,
                to: None,
                who,
                is_done: false,
                is_robbed: false,
            }),
            "end" | "left" | "robbed" => {
                let mut spans = self.spans.get_mut(&thing).into_iter().flatten();
                // An interrupted span has no such line and stays open.
                if let Some(open) = spans.rfind(|span| span.to.is_none() && span.who == who) {
                    open.to = Some(at);
                    (open.is_done, open.is_robbed) = (verb == "end", verb == "robbed");
                }
            }
            "killed" => self.kills.push((who, at)),
            "stalled" => self.stalled.push(who),
            "final" => {
                self.finals.entry(thing).or_insert(at);
            }
            "refused" => self.refused.push((thing, who)),
            other => panic!("{other:?}"),
        }
    }

    /// Things that a process has begun and not ended, each with the worker.
    pub fn open(&self, process: &str) -> Vec<(String, String)> {
        let spans = self.spans.iter();
        let spans = spans.flat_map(|(thing, spans)| spans.iter().map(move |span| (thing, span)));
        let open = spans.filter(|(_, span)| span.to.is_none() && is_of(&span.who, process));
        open.map(|(thing, span)| (thing.clone(), span.who.clone()))
            .collect()
    }

    /// The time at which the worker of a span was killed. The worker's command may survive that and
    /// begin a thing afterwards.
    fn kill_of(&self, span: &Span) -> Option<Timestamp> {
        let mut kills = self.kills.iter();
        let kill = kills.find(|(process, _)| is_of(&span.who, process));
        kill.map(|(_, at)| *at)
    }

    /// The time at which the thing of a span was taken from its worker. A worker that loses its row
    /// also leaves the chunks of that row, without a note.
    fn robbery_of(&self, span: &Span) -> Option<Timestamp> {
        if span.to.is_some() {
            return span.to.filter(|_| span.is_robbed);
        }
        let mut spans = self.spans.values().flatten();
        let robbed = spans.find(|other| other.is_robbed && other.who == span.who);
        robbed.and_then(|robbed| robbed.to)
    }

    fn is_stalled(&self, span: &Span) -> bool {
        self.stalled.iter().any(|who| is_of(&span.who, who))
    }

    /// The history, given each final state that the database showed, in order of time.
    pub fn history(&self, ends: Vec<(String, Option<String>)>) -> History {
        let mut history = History {
            // The notes do not show terms, only that another worker takes over.
            bounds: Bounds {
                reaper: RECOVERY,
                ..Bounds::default()
            },
            ends,
            ..History::default()
        };
        let ended = history.ends.iter().map(|(name, _)| name);
        let names: std::collections::BTreeSet<_> = self.spans.keys().chain(ended).collect();
        for (id, name) in (1..).zip(names.into_iter().cloned().collect::<Vec<_>>()) {
            let work = self.work(id, &name, &mut history);
            history.written.insert(work.serial, id);
            history.works.push(work);
        }
        history
    }

    fn work(&self, id: i64, name: &str, history: &mut History) -> Work {
        let mut spans = self.spans.get(name).cloned().unwrap_or_default();
        spans.sort_by_key(|span| (span.from, span.to));
        let mut holds = Vec::new();
        for (nth, span) in spans.iter().enumerate() {
            let fence = i64::try_from(nth).unwrap() + 1;
            let next = spans.get(nth + 1).map(|next| next.from);
            let again = next.filter(|_| is_row(name));
            let mut hold = self.hold(id, (fence, span), again, history);
            // A worker that reports losses had lost its lease when the next span began.
            if self.is_stalled(span) {
                hold.to = hold.to.min(next.unwrap_or(hold.to));
            }
            holds.push(hold);
        }
        let has_ended = history.ends.iter().any(|(of, _)| of == name);
        let final_at = self.finals.get(name).copied();
        let is_done = holds.iter().any(|hold| hold.outcome == OutcomeKind::Done);
        Work {
            id,
            serial: id.unsigned_abs(),
            name: name.to_owned(),
            state: has_ended.then_some(State::Done),
            judged: match final_at {
                Some(_) if !is_done => Judged::Forced,
                _ if is_row(name) => Judged::Once,
                _ => Judged::Repeated,
            },
            holds,
            final_at,
            ..Work::default()
        }
    }

    /// Converts a span to a lease, with its effect and the fault that ended it. `again` is the
    /// start of the next span of a row: a row is done once, so this span did not count.
    fn hold(
        &self,
        id: i64,
        (fence, span): (i64, &Span),
        again: Option<Timestamp>,
        history: &mut History,
    ) -> Hold {
        let kill = self.kill_of(span);
        let is_stalled = self.is_stalled(span);
        let robbed = self.robbery_of(span);
        let to = span.to.or(kill).or(robbed).unwrap_or(span.from);
        let mut to = to.max(span.from);
        let is_killed = kill.is_some_and(|kill| kill <= again.unwrap_or(to).max(to));
        if let Some(kill) = kill.filter(|_| is_killed) {
            to = to.max(kill);
        }
        let is_lost = is_killed || robbed.is_some() || is_stalled && again.is_some();
        let word = match (span.is_done, span.to) {
            (true, _) if !is_lost => OutcomeKind::Done,
            (false, Some(_)) if !is_lost => OutcomeKind::Release,
            _ => OutcomeKind::Lapsed,
        };
        let holder = span.who.clone();
        let effect = span.is_done.then_some(Effect {
            id,
            event_id: None,
            fence,
            attempt: None,
        });
        history.effects.extend(effect);
        if is_stalled || word == OutcomeKind::Release {
            history.losses.push(Loss {
                holder: holder.clone(),
                about: About::Settle,
            });
        }
        let kill = kill.map(|at| (FaultKind::Killed(holder.clone()), at));
        let robbery = robbed.map(|_| (FaultKind::Robbed(holder.clone()), to));
        let faults = kill.into_iter().chain(robbery);
        history.faults.extend(faults.map(|(kind, at)| Fault {
            kind,
            from: at,
            to: at,
        }));
        Hold {
            holder,
            fence,
            outcome: word,
            from: span.from,
            to,
        }
    }
}

fn is_row(name: &str) -> bool {
    name.starts_with("row-")
}

fn is_of(who: &str, process: &str) -> bool {
    who.strip_prefix(process)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Final states that a database shows, polled repeatedly.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// The latest poll: each final thing with its values.
    pub current: BTreeMap<String, String>,
    /// Each final state in order of time; `None` if it disappeared again.
    pub log: Vec<(String, Option<String>)>,
}

impl Ends {
    /// Records a poll: one line for each final thing, with its name and its values.
    pub fn look(&mut self, lines: &[String]) {
        let lines = lines.iter().map(|line| line.split_once(' ').unwrap());
        let current: BTreeMap<_, _> = lines
            .map(|(name, end)| (name.to_owned(), end.to_owned()))
            .collect();
        let gone = self
            .current
            .keys()
            .filter(|name| !current.contains_key(*name));
        self.log.extend(gone.map(|name| (name.clone(), None)));
        let new = current
            .iter()
            .filter(|(name, end)| self.current.get(*name) != Some(*end));
        self.log
            .extend(new.map(|(name, end)| (name.clone(), Some(end.clone()))));
        self.current = current;
    }
}
