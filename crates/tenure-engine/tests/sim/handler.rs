//! Handler of the simulation: works in logged steps. Depending on the seed it is slow, hangs,
//! fails, panics, releases, or kills its process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tenure_core::{Event, Failure, Item, Outcome};
use tenure_engine::{Context, Handler, Handling};
use tokio::time::sleep;

use crate::gate::{Gate, Mode};
use crate::log::{Answered, Cause, Fact, Log, Run, Sort};
use crate::plan::mix;

/// The handler of one process.
pub(crate) struct Steps {
    pub(crate) log: Arc<Log>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) worker: Arc<str>,
    pub(crate) seed: u64,
    pub(crate) term: Duration,
    /// Handlers may fail and be slow.
    pub(crate) is_flaky: bool,
    /// Most handlers are quick.
    pub(crate) is_quick: bool,
    pub(crate) is_calm: Arc<AtomicBool>,
    /// Planted: failures are reported as done.
    pub(crate) hides_failures: bool,
}

/// Logs that a handler was dropped without an answer, unless its process died.
struct Watch<'a> {
    steps: &'a Steps,
    run: Run,
    has_answered: bool,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.has_answered && self.steps.gate.mode() != Mode::Broken {
            self.steps.log.add(Fact::Dropped(self.run.clone()));
        }
    }
}

impl Watch<'_> {
    fn answer(&mut self, answered: Answered) {
        self.has_answered = true;
        let fact = Fact::Answered(self.run.clone(), answered);
        self.steps.log.add(fact);
    }
}

impl Steps {
    fn is_flaky(&self) -> bool {
        self.is_flaky && !self.is_calm.load(Ordering::Relaxed)
    }

    /// Number of steps (`None`: endless) and the length of each.
    fn length(&self, rng: &mut StdRng) -> (Option<u32>, Duration) {
        let chance = if self.is_flaky() {
            rng.random_range(0..100)
        } else {
            0
        };
        let (whole, steps) = match chance {
            0..95 if self.is_quick => (self.term / 100, 1),
            0..60 => (self.term / 20, rng.random_range(1..=3)),
            60..85 => (self.term, rng.random_range(1..=8)),
            85..95 => (self.term * 5 / 2, rng.random_range(2..=8)),
            _ => return (None, self.term / 3),
        };
        let whole = whole.mul_f64(rng.random());
        (Some(steps), whole / steps)
    }

    async fn work(&self, item: Item, cx: Context) -> Result<Outcome, Failure> {
        let run = Run {
            worker: Arc::clone(&self.worker),
            id: item.id,
            fence: cx.fence(),
        };
        let numbers = [
            self.seed,
            number(item.id.number()),
            number(cx.fence().number()),
        ];
        let mut rng = StdRng::seed_from_u64(mix(&numbers));
        let sort = Sort::of(item.content.event().map_or("", Event::topic));
        if self.gate.mode() == Mode::Broken {
            // An executor of a killed process would run to the end of its poll; a real process
            // would not.
            std::future::pending::<()>().await;
        }
        let fact = Fact::Started(run.clone(), item.counters.crashes);
        self.log.add(fact);
        let mut watch = Watch {
            steps: self,
            run: run.clone(),
            has_answered: false,
        };
        let (steps, each) = self.length(&mut rng);
        let mut done = 0;
        while steps.is_none_or(|steps| done < steps) {
            sleep(each).await;
            self.log.add(Fact::Stepped(run.clone()));
            done += 1;
        }
        if sort == Sort::Poison && self.gate.kill() {
            let fact = Fact::Crashed(Arc::clone(&self.worker), Cause::Poison);
            self.log.add(fact);
            std::future::pending::<()>().await;
        }
        let answer = self.answer(sort, &mut rng);
        watch.answer(answer);
        match answer {
            Answered::Done => Ok(Outcome::Done),
            Answered::Failed if self.hides_failures => Ok(Outcome::Done),
            Answered::Failed => Err(Failure::new("planted failure")),
            // Panics without output.
            Answered::Panicked => std::panic::resume_unwind(Box::new("planted panic")),
            Answered::Rejected => Err(Failure::new("planted rejection").never()),
            Answered::Released => Ok(Outcome::snooze(self.term.mul_f64(rng.random()))),
        }
    }

    fn answer(&self, sort: Sort, rng: &mut StdRng) -> Answered {
        let chance = rng.random_range(0..100);
        match (sort, chance) {
            (Sort::Hopeless, 0..70) => Answered::Failed,
            (Sort::Hopeless, _) => Answered::Panicked,
            (Sort::Bad, _) => Answered::Rejected,
            (_, 0..10) if self.is_flaky() => Answered::Failed,
            (_, 10..15) if self.is_flaky() => Answered::Panicked,
            (_, 15..17) if self.is_flaky() => Answered::Rejected,
            (_, 17..22) if self.is_flaky() => Answered::Released,
            _ => Answered::Done,
        }
    }
}

impl Handler for Steps {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        Box::pin(self.work(item, cx))
    }
}

fn number(signed: i64) -> u64 {
    u64::try_from(signed).expect("ids and fences count up from one")
}
