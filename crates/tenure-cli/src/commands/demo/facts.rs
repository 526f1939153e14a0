//! Facts: what was seen, for people and for programs, and whether every promise held.

use std::collections::BTreeMap;
use std::time::Duration;

use comfy_table::{Cell, Color};
use serde::Serialize;
use tenure::{EndedHold, ItemId, State, Word};

use super::stage::Stage;
use crate::exit::Exit;
use crate::output::Output;
use crate::problem::Stop;
use crate::time::brief;

/// An event that went from one holder to the next.
#[derive(Debug, Serialize)]
pub(super) struct Takeover {
    pub(super) id: i64,
    pub(super) holder_old: String,
    pub(super) holder_new: String,
    pub(super) fence_old: i64,
    pub(super) fence_new: i64,
    /// From the mishap until it was seen.
    pub(super) after_ms: u64,
}

impl Takeover {
    pub(super) fn sentence(&self) -> String {
        format!(
            "after {} the lease on event {} lapsed (fence {}) and {} took it over (fence {})",
            self.after(),
            self.id,
            self.fence_old,
            self.holder_new,
            self.fence_new
        )
    }

    fn after(&self) -> String {
        let after = Duration::from_millis(self.after_ms);
        format!("{:.1} s", after.as_secs_f64())
    }

    fn is_sound(&self) -> bool {
        self.fence_new > self.fence_old && self.holder_new != self.holder_old
    }
}

/// The answer that came too late.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) taken: Takeover,
    pub(super) refusal: Option<&'static str>,
    pub(super) took_effect: bool,
}

/// Everything that was seen.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    seconds: f64,
    enqueued: usize,
    published: usize,
    dead: u64,
    /// How often a handler was run.
    received: usize,
    /// Of these, those of an event that was received before.
    duplicates: usize,
    /// Duplicates that are no consequence of a lapsed lease.
    unexplained: usize,
    /// Events that were written and not both received and published.
    lost: usize,
    taken_over: bool,
    killed: Takeover,
    paused: Takeover,
    /// How the paused worker noticed, in its own word.
    paused_noticed: String,
    late_answer: &'static str,
    /// Why it was refused.
    late_answer_reason: Option<&'static str>,
    late: Takeover,
    /// The promises that did not hold.
    broken: Vec<&'static str>,
    /// The folder that was left.
    pub(super) kept: Option<String>,
}

/// What the timelines say.
#[derive(Default)]
struct Tally {
    published: usize,
    lost: usize,
    twice: usize,
    unexplained: usize,
}

impl Facts {
    /// Reads the facts from the store and from what the handlers noted.
    pub(super) async fn gather(
        stage: &Stage,
        events: Vec<ItemId>,
        killed: Takeover,
        (paused, paused_noticed): (Takeover, String),
        late: Late,
    ) -> Result<Self, Stop> {
        let received = stage.received()?;
        let mut fences: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (id, fence) in &received {
            fences.entry(*id).or_default().push(*fence);
        }
        let mut tally = Tally::default();
        for id in &events {
            let record = stage.tenure().find(&[*id]).await?.pop();
            let is_done = record.is_some_and(|record| record.state == State::Done);
            let timeline = stage.tenure().timeline(*id).await?;
            let fences = fences.get(&id.number()).map_or(&[][..], Vec::as_slice);
            tally.add(is_done, &timeline, fences);
        }
        let mut facts = Self {
            seconds: stage.seconds(),
            enqueued: events.len(),
            published: tally.published,
            dead: stage.tenure().count().await?.dead,
            received: received.len(),
            duplicates: received.len() - fences.len(),
            unexplained: tally.unexplained,
            lost: tally.lost,
            taken_over: killed.is_sound() && paused.is_sound() && late.taken.is_sound(),
            killed,
            paused,
            paused_noticed,
            late_answer: match late.refusal {
                Some(_) => "refused",
                None => "kept",
            },
            late_answer_reason: late.refusal,
            late: late.taken,
            broken: Vec::new(),
            kept: None,
        };
        facts.broken = facts.judge(tally.twice, late.took_effect);
        Ok(facts)
    }

    fn judge(&self, twice: usize, took_effect: bool) -> Vec<&'static str> {
        let promises = [
            (self.lost == 0, "an event was lost"),
            (
                self.published == self.enqueued,
                "not every event was published",
            ),
            (twice == 0, "an event was settled as done twice"),
            (
                self.unexplained == 0,
                "an event was received twice although its lease had not lapsed",
            ),
            (
                self.taken_over,
                "work was not taken over under a higher fence",
            ),
            (
                self.late_answer == "refused" && !took_effect,
                "a late answer was not refused",
            ),
        ];
        let broken = promises.into_iter().filter(|(holds, _)| !holds);
        broken.map(|(_, what)| what).collect()
    }

    /// Prints them; the exit says whether every promise held.
    pub(super) fn print(&self, output: &Output) -> Result<Exit, Stop> {
        if output.is_json() {
            output.json(self)?;
        } else {
            output.line("")?;
            output.table(&["PROMISE", "SEEN"], self.rows())?;
            if let Some(folder) = &self.kept {
                output.line(format_args!("\nkept: {folder} (demo.db, received, *.log)"))?;
                output.hint(format_args!(
                    "tenure show {} --database sqlite://{folder}/demo.db",
                    self.killed.id
                ));
            }
        }
        if self.broken.is_empty() {
            return Ok(Exit::Done);
        }
        Ok(Exit::Failed)
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let mut rows = vec![
            row(
                "nothing is lost",
                format!(
                    "{} events written, {} published, {} dead, {} lost",
                    self.enqueued, self.published, self.dead, self.lost
                ),
            ),
            row("at least once", self.repeats()),
            row("a dead worker is replaced", of(&self.killed)),
            row("so is one that stands still", of(&self.paused)),
            row(
                "and it notices by itself",
                format!("{}: dropped, nothing settled", self.paused_noticed),
            ),
            row(
                "a late answer is refused",
                format!(
                    "{} ({}): fence {} was over, fence {} had been given",
                    self.late_answer,
                    self.late_answer_reason.unwrap_or("-"),
                    self.late.fence_old,
                    self.late.fence_new
                ),
            ),
        ];
        for what in &self.broken {
            rows.push(vec![
                Cell::new("BROKEN").fg(Color::Red),
                Cell::new(what).fg(Color::Red),
            ]);
        }
        if self.broken.is_empty() {
            let took = brief(Duration::from_secs_f64(self.seconds));
            rows.push(vec![
                Cell::new("every promise held").fg(Color::Green),
                Cell::new(format!("in {took}")),
            ]);
        }
        rows
    }

    fn repeats(&self) -> String {
        let why = match (self.duplicates, self.unexplained) {
            (0, _) => String::new(),
            (_, 0) => ": each because the lease before it had lapsed".to_owned(),
            (_, some) => format!(": {some} of them without a lapse"),
        };
        format!(
            "{} received, {} of them again{why}",
            self.received, self.duplicates
        )
    }
}

impl Tally {
    /// Counts an event: its ended holds, and the fences under which handlers received it.
    fn add(&mut self, is_done: bool, timeline: &[EndedHold], fences: &[i64]) {
        let with = |word: Word| timeline.iter().filter(move |hold| hold.word == word);
        self.published += usize::from(is_done);
        self.lost += usize::from(!is_done || fences.is_empty());
        self.twice += usize::from(with(Word::Done).count() > 1);
        let mut lapsed: Vec<_> = with(Word::Lapsed)
            .map(|hold| hold.fence.number())
            .filter(|fence| fences.contains(fence))
            .collect();
        lapsed.dedup();
        // One reception is the one that counts; every other one is owed to a lapse.
        self.unexplained += fences.len().saturating_sub(1).saturating_sub(lapsed.len());
    }
}

fn row(promise: &str, seen: String) -> Vec<Cell> {
    vec![Cell::new(promise), Cell::new(seen)]
}

fn of(taken: &Takeover) -> String {
    format!(
        "taken over after {}, by {} (fence {} after {})",
        taken.after(),
        taken.holder_new,
        taken.fence_new,
        taken.fence_old
    )
}

#[cfg(test)]
mod tests {
    use tenure::{Fence, Timestamp};

    use super::*;

    fn hold(fence: i64, word: Word) -> EndedHold {
        EndedHold {
            holder: "alpha-1".to_owned(),
            fence: Fence::new(fence),
            word,
            claimed_at: Timestamp::from_micros(0),
            settled_at: Timestamp::from_micros(1),
        }
    }

    fn tally(is_done: bool, timeline: &[EndedHold], fences: &[i64]) -> (usize, usize, usize) {
        let mut tally = Tally::default();
        tally.add(is_done, timeline, fences);
        (tally.lost, tally.twice, tally.unexplained)
    }

    #[test]
    fn a_repeat_is_explained_by_a_lapse_alone() {
        let done = hold(2, Word::Done);
        let lapsed = hold(1, Word::Lapsed);
        assert_eq!(tally(true, std::slice::from_ref(&done), &[2]), (0, 0, 0));
        assert_eq!(tally(true, &[lapsed, done.clone()], &[1, 2]), (0, 0, 0));
        let released = hold(1, Word::Release);
        assert_eq!(tally(true, std::slice::from_ref(&done), &[2, 2]), (0, 0, 1));
        assert_eq!(tally(true, &[released, done], &[1, 2]), (0, 0, 1));
    }

    #[test]
    fn what_was_not_received_or_not_published_is_lost() {
        assert_eq!(tally(false, &[], &[1]), (1, 0, 0));
        assert_eq!(tally(true, &[hold(1, Word::Done)], &[]), (1, 0, 0));
        let twice = [hold(1, Word::Done), hold(2, Word::Done)];
        assert_eq!(tally(true, &twice, &[2]), (0, 1, 0));
    }
}
