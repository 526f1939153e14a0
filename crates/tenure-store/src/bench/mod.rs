//! Speed, measured as a ratio to bare SQL in the same run: the loops that a careful engineer writes
//! by hand stand here beside ours, on the same database, in turns.

mod postgres;
mod sqlite;

use std::fmt;
use std::time::{Duration, Instant};

use tenure_core::{Event, Token, WorkerId};

pub use postgres::postgres;
pub use sqlite::sqlite;

/// A payload of about 500 bytes, as every figure assumes.
pub(crate) fn payload() -> String {
    format!(
        r#"{{"order":4711,"customer":"c-1234567","note":"{}"}}"#,
        "x".repeat(440)
    )
}

/// An event with that payload.
pub(crate) fn event() -> Event {
    Event::from_json("bench.event", payload()).expect("the payload is JSON")
}

/// The token of a bench's `claim`-th claim.
pub(crate) fn token(claim: u64) -> Token {
    let worker = WorkerId::new("bench", 0).expect("`bench` is a worker's name");
    Token::new(&worker, claim, 0)
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Events per run.
    pub events: u32,
    /// How often each pair is run; the median of the ratios counts.
    pub rounds: u32,
    /// How many pending or published events stand by in the runs on full tables.
    pub standing: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            events: 100_000,
            rounds: 5,
            standing: 1_000_000,
        }
    }
}

/// One comparison: ours against theirs, round by round.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What was compared with what.
    pub name: String,
    /// The ratio that is promised.
    pub promise: f64,
    /// Per second, theirs and ours, in each round.
    pub rounds: Vec<(f64, f64)>,
}

impl Figure {
    /// The median of the rounds' ratios.
    pub fn ratio(&self) -> f64 {
        let mut ratios: Vec<f64> = self
            .rounds
            .iter()
            .map(|(theirs, ours)| ours / theirs)
            .collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(0.0)
    }

    /// Whether the promise is kept.
    pub fn holds(&self) -> bool {
        self.ratio() >= self.promise
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds() { "ok  " } else { "MISS" };
        let (ratio, promise) = (self.ratio() * 100.0, self.promise * 100.0);
        write!(
            f,
            "{verdict} {:<58} {ratio:>5.0} % (promised {promise:.0} %)  per second:",
            self.name
        )?;
        self.rounds
            .iter()
            .try_for_each(|(theirs, ours)| write!(f, "  {theirs:.0} → {ours:.0}"))
    }
}

/// Measures how long something took.
#[derive(Debug)]
pub(crate) struct Watch(Instant);

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// How many per second, if `count` were done since the start.
    pub(crate) fn rate(&self, count: u32) -> f64 {
        f64::from(count) / self.elapsed().as_secs_f64()
    }
}
