//! The number of store calls of this process's engines, read from their metrics.

use tenure::operate::metrics::STORE_CALLS;

/// The metrics of this process. They are enabled, so every figure includes their cost.
#[derive(Clone, Copy)]
pub(super) struct Calls<'a>(&'a (dyn Fn() -> String + Sync));

impl<'a> Calls<'a> {
    pub(super) fn new(render: &'a (dyn Fn() -> String + Sync)) -> Self {
        Self(render)
    }

    /// Calls so far to the wanted operations.
    pub(super) fn of(&self, is_wanted: impl Fn(&str) -> bool) -> u64 {
        let text = (self.0)();
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
