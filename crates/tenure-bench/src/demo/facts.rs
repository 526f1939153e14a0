//! Facts that the demo reads from the store, and the guarantees that they prove.

use std::collections::BTreeMap;
use std::time::Duration;

use comfy_table::{Cell, Color};
use serde::Serialize;
use tenure::lease::{OutcomeKind, PastHold};
use tenure::settings::brief_duration;
use tenure::{ItemId, State};

use super::stage::Stage;
use crate::host::{Completion, Host};
use crate::stop::Stop;

/// An event that went from one holder to the next.
#[derive(Debug, Serialize)]
pub(super) struct Takeover {
    pub(super) id: i64,
    pub(super) holder_old: String,
    pub(super) holder_new: String,
    pub(super) fence_old: i64,
    pub(super) fence_new: i64,
    /// Milliseconds from the kill or pause until the takeover was seen.
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

/// The settle that came too late.
#[derive(Debug)]
pub(super) struct LateAnswer {
    pub(super) taken: Takeover,
    pub(super) refusal: Option<&'static str>,
    pub(super) took_effect: bool,
}

/// All facts of a run.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    seconds: f64,
    enqueued: usize,
    published: usize,
    dead: u64,
    /// Number of handler runs.
    received: usize,
    /// Handler runs of an event received before.
    duplicates: usize,
    /// Duplicates that a lapsed lease does not explain.
    unexplained: usize,
    /// Events that were enqueued but not both received and published.
    lost: usize,
    taken_over: bool,
    killed: Takeover,
    paused: Takeover,
    /// The reason that the paused worker logged.
    paused_noticed: String,
    late_answer: &'static str,
    /// The reason why the late settle was refused.
    late_answer_reason: Option<&'static str>,
    late: Takeover,
    /// Guarantees that did not hold.
    broken: Vec<&'static str>,
    /// The folder, if it was kept.
    pub(super) kept: Option<String>,
}

/// Totals of all timelines.
#[derive(Default)]
struct Totals {
    published: usize,
    lost: usize,
    twice: usize,
    unexplained: usize,
}

impl Facts {
    /// Reads the facts from the store and from the handlers' notes.
    pub(super) async fn gather(
        stage: &Stage<'_>,
        events: Vec<ItemId>,
        killed: Takeover,
        (paused, paused_noticed): (Takeover, String),
        late: LateAnswer,
    ) -> Result<Self, Stop> {
        let received = stage.received()?;
        let mut fences: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (id, fence) in &received {
            fences.entry(*id).or_default().push(*fence);
        }
        let mut totals = Totals::default();
        for id in &events {
            let record = stage.tenure().find(&[*id]).await?.pop();
            let is_done = record.is_some_and(|record| record.state == State::Done);
            let timeline = stage.tenure().timeline(*id).await?;
            let fences = fences.get(&id.number()).map_or(&[][..], Vec::as_slice);
            totals.add(is_done, &timeline, fences);
        }
        let mut facts = Self {
            seconds: stage.seconds(),
            enqueued: events.len(),
            published: totals.published,
            dead: stage.tenure().count().await?.dead,
            received: received.len(),
            duplicates: received.len() - fences.len(),
            unexplained: totals.unexplained,
            lost: totals.lost,
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
        facts.broken = facts.judge(totals.twice, late.took_effect);
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

    /// Prints the facts; passes if every guarantee held.
    pub(super) fn print(&self, host: &Host<'_>) -> Result<Completion, Stop> {
        let console = host.console;
        if console.is_json() {
            host.json(self)?;
        } else {
            console.line(&"")?;
            console.table(&["PROMISE", "SEEN"], self.rows())?;
            if let Some(folder) = &self.kept {
                console.line(&format_args!("\nkept: {folder} (demo.db, received, *.log)"))?;
                console.hint(&format_args!(
                    "tenure show {} --database sqlite://{folder}/demo.db",
                    self.killed.id
                ));
            }
        }
        if self.broken.is_empty() {
            return Ok(Completion::Passed);
        }
        Ok(Completion::Failed)
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
            row("so is a paused one", of(&self.paused)),
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
            let took = brief_duration(Duration::from_secs_f64(self.seconds));
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

impl Totals {
    /// Counts an event: its ended leases, and the fences under which handlers received it.
    fn add(&mut self, is_done: bool, timeline: &[PastHold], fences: &[i64]) {
        let with = |word: OutcomeKind| timeline.iter().filter(move |hold| hold.outcome == word);
        self.published += usize::from(is_done);
        self.lost += usize::from(!is_done || fences.is_empty());
        self.twice += usize::from(with(OutcomeKind::Done).count() > 1);
        let mut lapsed: Vec<_> = with(OutcomeKind::Lapsed)
            .map(|hold| hold.fence.number())
            .filter(|fence| fences.contains(fence))
            .collect();
        lapsed.dedup();
        // Each reception after the first needs a lapse that explains it.
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
    use tenure::Fence;
    use tenure::store::Timestamp;

    use super::*;

    fn hold(fence: i64, word: OutcomeKind) -> PastHold {
        PastHold {
            holder: "alpha-1".to_owned(),
            fence: Fence::new(fence),
            outcome: word,
            claimed_at: Timestamp::from_micros(0),
            settled_at: Timestamp::from_micros(1),
        }
    }

    fn totals(is_done: bool, timeline: &[PastHold], fences: &[i64]) -> (usize, usize, usize) {
        let mut totals = Totals::default();
        totals.add(is_done, timeline, fences);
        (totals.lost, totals.twice, totals.unexplained)
    }

    #[test]
    fn only_a_lapse_explains_a_repeat() {
        let done = hold(2, OutcomeKind::Done);
        let lapsed = hold(1, OutcomeKind::Lapsed);
        assert_eq!(totals(true, std::slice::from_ref(&done), &[2]), (0, 0, 0));
        assert_eq!(totals(true, &[lapsed, done.clone()], &[1, 2]), (0, 0, 0));
        let released = hold(1, OutcomeKind::Release);
        assert_eq!(
            totals(true, std::slice::from_ref(&done), &[2, 2]),
            (0, 0, 1)
        );
        assert_eq!(totals(true, &[released, done], &[1, 2]), (0, 0, 1));
    }

    #[test]
    fn an_event_that_was_not_received_or_not_published_is_lost() {
        assert_eq!(totals(false, &[], &[1]), (1, 0, 0));
        assert_eq!(totals(true, &[hold(1, OutcomeKind::Done)], &[]), (1, 0, 0));
        let twice = [hold(1, OutcomeKind::Done), hold(2, OutcomeKind::Done)];
        assert_eq!(totals(true, &twice, &[2]), (0, 1, 0));
    }
}
