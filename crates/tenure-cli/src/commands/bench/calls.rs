//! How often an engine calls its store, read from its own metrics.

use metrics_exporter_prometheus::PrometheusHandle;
use tenure::engine_metrics::STORE_CALLS;

use crate::assemble;
use crate::problem::Problem;

/// The metrics of this process.
pub(super) struct Calls(PrometheusHandle);

impl Calls {
    /// Metrics are on from here: they are part of what is measured.
    pub(super) fn begin() -> Result<Self, Problem> {
        assemble::figures().map(Self)
    }

    /// Calls so far of the verbs that are wanted.
    pub(super) fn of(&self, is_wanted: impl Fn(&str) -> bool) -> u64 {
        let text = self.0.render();
        let calls = text.lines().filter(|line| line.starts_with(STORE_CALLS));
        calls.filter_map(|line| counted(line, &is_wanted)).sum()
    }
}

fn counted(line: &str, is_wanted: &impl Fn(&str) -> bool) -> Option<u64> {
    let (_, rest) = line.split_once("verb=\"")?;
    let (verb, _) = rest.split_once('"')?;
    let (_, number) = line.rsplit_once(' ')?;
    is_wanted(verb).then(|| number.parse().ok())?
}
