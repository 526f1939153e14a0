//! Figures of two builds, round by round, matched by their names.

use std::collections::BTreeMap;

use serde_json::Value;

/// Loops without an engine. Their figures describe the machine, because both builds run the same
/// code; only `bare_per_s` also depends on the store of the build.
const REFERENCES: [&str; 5] = [
    "bare_chunks_per_s",
    "bare_per_s",
    "http_per_s",
    "recorded_per_s",
    "row_per_s",
];

/// Meaning of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FigureKind {
    /// Higher is better: a rate, or a ratio to something else.
    Speed,
    /// Lower is better: a time, memory, a number of statements or connections.
    Cost,
    /// A figure of the machine, not of the build; higher is better.
    Reference,
}

impl FigureKind {
    /// The kind of the figure of this name; `None` if the number is a setting of the run.
    pub(super) fn of(name: &str) -> Option<Self> {
        let leaf = name.rsplit('.').next().unwrap_or(name);
        let is_cost = ["_ms", "_mb"].iter().any(|unit| leaf.ends_with(unit))
            || leaf.contains("statements")
            || leaf == "connections";
        if REFERENCES.contains(&name) {
            Some(Self::Reference)
        } else if is_cost {
            Some(Self::Cost)
        } else if leaf.ends_with("_per_s") || leaf.contains("vs_") {
            Some(Self::Speed)
        } else {
            None
        }
    }
}

/// The figures that one run printed. A nested figure is named `outer.inner`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ComparedFigures(BTreeMap<String, f64>);

impl ComparedFigures {
    /// Reads the numbers that are figures and ignores everything else.
    pub(super) fn read(object: &Value) -> Self {
        let mut figures = Self::default();
        figures.collect("", object);
        figures
    }

    fn collect(&mut self, name: &str, value: &Value) {
        if let Some(fields) = value.as_object() {
            for (field, value) in fields {
                let inner = match name {
                    "" => field.clone(),
                    outer => format!("{outer}.{field}"),
                };
                self.collect(&inner, value);
            }
        } else if let Some(number) = value.as_f64()
            && FigureKind::of(name).is_some()
        {
            self.0.insert(name.to_owned(), number);
        }
    }
}

/// The figures of all rounds, old and new.
#[derive(Debug, Default)]
pub(super) struct ComparedRounds(Vec<[ComparedFigures; 2]>);

impl ComparedRounds {
    pub(super) fn add(&mut self, old: ComparedFigures, new: ComparedFigures) {
        self.0.push([old, new]);
    }

    /// The names of all figures, sorted.
    pub(super) fn names(&self) -> Vec<&str> {
        let all = self.0.iter().flatten().flat_map(|figures| figures.0.keys());
        let mut names: Vec<&str> = all.map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The values of a figure in the rounds in which both builds have it, as (old, new).
    pub(super) fn pairs(&self, name: &str) -> Vec<(f64, f64)> {
        let pairs = self.0.iter().filter_map(|[old, new]| {
            let value = |figures: &ComparedFigures| figures.0.get(name).copied();
            Some((value(old)?, value(new)?))
        });
        pairs.collect()
    }

    /// Returns true if the old build has the figure in some round.
    pub(super) fn is_of_old(&self, name: &str) -> bool {
        self.0.iter().any(|[old, _]| old.0.contains_key(name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_read_by_name_and_anything_else_is_ignored() {
        let object = json!({
            "database": "sqlite", "events": 2000, "rounds": 1, "cores": 2,
            "drain_per_s": 1500.5, "pickup_p50_ms": 3, "keyed_per_s": null,
            "held": {"items": 10, "vs_none": 0.99, "statements_per_tick": 1.0},
            "later": ["of another kind"],
        });
        let names = [
            "drain_per_s",
            "held.statements_per_tick",
            "held.vs_none",
            "pickup_p50_ms",
        ];
        let values = [1500.5, 1.0, 0.99, 3.0];
        let expected = names.map(str::to_owned).into_iter().zip(values).collect();
        assert_eq!(ComparedFigures::read(&object), ComparedFigures(expected));
    }

    #[test]
    fn the_kind_of_a_figure_follows_from_its_name() {
        for (name, kind) in [
            ("drain_per_s", Some(FigureKind::Speed)),
            ("keyed_vs_unkeyed", Some(FigureKind::Speed)),
            ("held.vs_none", Some(FigureKind::Speed)),
            ("idle_statements_per_s", Some(FigureKind::Cost)),
            ("pickup_p99_ms", Some(FigureKind::Cost)),
            ("held_calls.rss_open_mb", Some(FigureKind::Cost)),
            ("held_calls.connections", Some(FigureKind::Cost)),
            ("row_per_s", Some(FigureKind::Reference)),
            ("events", None),
            ("dead_endpoint_waiting", None),
            ("held_calls.repeated", None),
        ] {
            assert_eq!(FigureKind::of(name), kind, "{name}");
        }
    }
}
