//! The comparison of two builds: a table, or one JSON object.

use std::path::Path;

use comfy_table::{Cell, Color};
use serde::Serialize;

use super::figures::{ComparedRounds, FigureKind};
use super::statistics::{median, median_interval};
use crate::host::{Completion, Host};
use crate::stop::Stop;

/// A figure is worse if, with a confidence of 95 %, its ratio to the old one is below this.
const WORSE_BELOW: f64 = 0.97;

/// The judgement on one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Judgement {
    Ok,
    /// The whole interval is below the limit.
    Worse,
    /// A figure of the machine; builds are not judged by it.
    Reference,
    /// There are not enough rounds for an interval.
    TooFewRounds,
}

/// One figure of both builds. A ratio below 1 is worse, also for figures where lower is better.
#[derive(Debug, Serialize)]
struct ComparedRow {
    name: String,
    old: f64,
    new: f64,
    ratio: f64,
    low: Option<f64>,
    high: Option<f64>,
    verdict: Judgement,
}

/// A figure that only one build has.
#[derive(Debug, Serialize)]
struct Unmatched {
    name: String,
    only: &'static str,
}

/// All figures of both builds.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    against: String,
    rounds: u32,
    worse_below: f64,
    figures: Vec<ComparedRow>,
    not_compared: Vec<Unmatched>,
    worse: Vec<String>,
}

impl Comparison {
    pub(super) fn new(old: &Path, turns: u32, rounds: &ComparedRounds) -> Self {
        let (mut figures, mut not_compared) = (Vec::new(), Vec::new());
        for name in rounds.names() {
            match row(name, &rounds.pairs(name)) {
                Some(row) => figures.push(row),
                None => not_compared.push(Unmatched {
                    name: name.to_owned(),
                    only: if rounds.is_of_old(name) { "old" } else { "new" },
                }),
            }
        }
        let worse = figures.iter().filter(|row| row.verdict == Judgement::Worse);
        Self {
            against: old.display().to_string(),
            rounds: turns,
            worse_below: WORSE_BELOW,
            worse: worse.map(|row| row.name.clone()).collect(),
            figures,
            not_compared,
        }
    }

    /// Passes if no figure is worse.
    pub(super) fn verdict(&self) -> Completion {
        if self.worse.is_empty() {
            Completion::Passed
        } else {
            Completion::Failed
        }
    }

    pub(super) fn print(&self, host: &Host<'_>) -> Result<(), Stop> {
        if host.console.is_json() {
            return host.json(self);
        }
        let rows = self.figures.iter().map(ComparedRow::cells).collect();
        let heading = [
            "FIGURE",
            " OLD",
            " NEW",
            " NEW OF OLD",
            "95 % INTERVAL",
            "VERDICT",
        ];
        host.console.table(&heading, rows)?;
        for figure in &self.not_compared {
            let Unmatched { name, only } = figure;
            host.console.note(&format_args!(
                "not compared: {name}, which only the {only} build has"
            ));
        }
        host.console.note(&format_args!(
            "medians of {} rounds against {}; worse: the whole interval is below {:.0} %",
            self.rounds,
            self.against,
            WORSE_BELOW * 100.0
        ));
        Ok(())
    }
}

fn row(name: &str, pairs: &[(f64, f64)]) -> Option<ComparedRow> {
    let kind = FigureKind::of(name)?;
    let (old, new): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let ratios: Vec<f64> = pairs.iter().map(|pair| ratio(kind, *pair)).collect();
    let interval = median_interval(&ratios);
    Some(ComparedRow {
        name: name.to_owned(),
        old: median(&old)?,
        new: median(&new)?,
        ratio: median(&ratios)?,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        verdict: match (kind, interval) {
            (FigureKind::Reference, _) => Judgement::Reference,
            (_, None) => Judgement::TooFewRounds,
            (_, Some(interval)) if interval.high < WORSE_BELOW => Judgement::Worse,
            (_, Some(_)) => Judgement::Ok,
        },
    })
}

/// The new figure divided by the old one; inverted where lower is better.
fn ratio(kind: FigureKind, (old, new): (f64, f64)) -> f64 {
    let (part, whole) = match kind {
        FigureKind::Speed | FigureKind::Reference => (new, old),
        FigureKind::Cost => (old, new),
    };
    // Two zeros are equal.
    if part.total_cmp(&whole).is_eq() {
        return 1.0;
    }
    part / whole
}

impl ComparedRow {
    fn cells(&self) -> Vec<Cell> {
        let interval = match (self.low, self.high) {
            (Some(low), Some(high)) => format!("{} … {}", percent(low), percent(high)),
            _ => String::new(),
        };
        let verdict = match self.verdict {
            Judgement::Ok => Cell::new("ok").fg(Color::Green),
            Judgement::Worse => Cell::new("worse").fg(Color::Red),
            Judgement::Reference => Cell::new("reference"),
            Judgement::TooFewRounds => Cell::new("too few rounds").fg(Color::Yellow),
        };
        vec![
            Cell::new(&self.name),
            Cell::new(short(self.old)),
            Cell::new(short(self.new)),
            Cell::new(percent(self.ratio)),
            Cell::new(interval),
            verdict,
        ]
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// Formats a number with at least three digits.
fn short(number: f64) -> String {
    if number.abs() < 100.0 {
        return format!("{number:.2}");
    }
    format!("{number:.0}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::figures::ComparedFigures;
    use super::*;

    /// Rounds in which the rates of the new build are those of the old one times `speed`, and its
    /// times are divided by `speed`, both with a little noise.
    fn compared(speed: f64, rounds: u32) -> Comparison {
        let mut all = ComparedRounds::default();
        for round in 0..rounds {
            let noise = 1.0 + f64::from(round % 5) * 0.002 - 0.004;
            let old = json!({"drain_per_s": 1000.0, "pickup_p50_ms": 3.0, "row_per_s": 900.0,
                "gone_per_s": 1.0});
            let new = json!({"drain_per_s": 1000.0 * speed * noise,
                "pickup_p50_ms": 3.0 / (speed * noise), "row_per_s": 900.0 * speed,
                "added_ms": 1.0});
            all.add(ComparedFigures::read(&old), ComparedFigures::read(&new));
        }
        Comparison::new(Path::new("old"), rounds, &all)
    }

    fn judgements(comparison: &Comparison) -> Vec<(&str, Judgement)> {
        let rows = comparison.figures.iter();
        rows.map(|row| (row.name.as_str(), row.verdict)).collect()
    }

    #[test]
    fn a_figure_is_worse_when_its_whole_interval_is_below_the_limit() {
        let slower = compared(0.95, 21);
        assert_eq!(slower.worse, ["drain_per_s", "pickup_p50_ms"]);
        assert_eq!(slower.verdict(), Completion::Failed);
        for (speed, rounds) in [(0.98, 21), (1.0, 21), (1.1, 21), (0.5, 5)] {
            let comparison = compared(speed, rounds);
            assert_eq!(comparison.verdict(), Completion::Passed, "{speed}");
        }
        let row = &slower.figures[0];
        assert!((row.ratio - 0.95).abs() < 1e-9, "{row:?}");
        assert!(
            row.low < row.high && row.high < Some(WORSE_BELOW),
            "{row:?}"
        );
    }

    #[test]
    fn an_interval_that_reaches_the_limit_is_not_worse() {
        let mut all = ComparedRounds::default();
        for round in 0..21 {
            // The sixth from above, the upper end of the interval, is at the limit.
            let new = if round < 6 { 97.0 } else { 90.0 };
            let [old, new] =
                [100.0, new].map(|rate| ComparedFigures::read(&json!({"drain_per_s": rate})));
            all.add(old, new);
        }
        let comparison = Comparison::new(Path::new("old"), 21, &all);
        assert_eq!(comparison.verdict(), Completion::Passed, "{comparison:?}");
        assert_eq!(comparison.figures[0].low, Some(0.9));
    }

    #[test]
    fn figures_of_the_machine_and_of_one_build_alone_are_not_judged() {
        let comparison = compared(0.5, 6);
        let expected = [
            ("drain_per_s", Judgement::Worse),
            ("pickup_p50_ms", Judgement::Worse),
            ("row_per_s", Judgement::Reference),
        ];
        assert_eq!(judgements(&comparison), expected);
        let unmatched: Vec<_> = comparison
            .not_compared
            .iter()
            .map(|figure| (figure.name.as_str(), figure.only))
            .collect();
        assert_eq!(unmatched, [("added_ms", "new"), ("gone_per_s", "old")]);
        let few = compared(0.5, 5);
        assert_eq!(judgements(&few)[0].1, Judgement::TooFewRounds);
        assert_eq!(few.verdict(), Completion::Passed);
    }

    #[test]
    fn two_zeros_are_equal() {
        assert!((ratio(FigureKind::Cost, (0.0, 0.0)) - 1.0).abs() < 1e-9);
        assert!(ratio(FigureKind::Cost, (2.0, 4.0)) < 1.0);
        assert!(ratio(FigureKind::Speed, (2.0, 4.0)) > 1.0);
    }
}
