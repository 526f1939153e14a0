//! How far long work has come: a bar on a terminal, nothing elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Output;

/// How often a spinner turns.
const TURN: Duration = Duration::from_millis(100);

/// The end of work that nobody has said yet: far away, so that a bar stays empty. One that ends at
/// what is done, or at nothing, would be full from the start.
pub(crate) const UNSAID: u64 = u64::MAX;

/// What the end of the work is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// This many events.
    Events(u64),
    /// This many steps.
    Steps(u64),
    /// Chunks of a job; how many there are is said as the job goes on.
    Chunks,
    /// This many bytes of input.
    Bytes(u64),
    /// Nobody knows.
    Unknown,
}

/// A bar on the error stream. It is hidden when that is no terminal, and from programs.
pub(crate) fn begin(output: &Output, whole: Whole, word: &'static str) -> ProgressBar {
    if output.is_json() {
        return ProgressBar::hidden();
    }
    let (progress, template) = match whole {
        Whole::Events(number) => (
            ProgressBar::new(number),
            "{msg} [{bar:30}] {pos}/{len} {per_sec} {eta}",
        ),
        Whole::Steps(number) => (ProgressBar::new(number), "[{bar:30}] {pos}/{len} {msg}"),
        Whole::Chunks => (ProgressBar::new(UNSAID), "[{bar:30}] {msg}"),
        Whole::Bytes(number) => (
            ProgressBar::new(number),
            "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        ),
        Whole::Unknown => (ProgressBar::new_spinner(), "{spinner} {msg} {pos}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        progress.set_style(style.progress_chars("=> "));
    }
    progress.set_message(word);
    // `ProgressBar` is hidden by itself where the error stream is no terminal.
    if whole == Whole::Unknown && !progress.is_hidden() {
        progress.enable_steady_tick(TURN);
    }
    progress
}

/// The steps of a long run, each named when it begins.
#[derive(Debug)]
pub(crate) struct Steps(ProgressBar);

impl Steps {
    pub(crate) fn begin(output: &Output, count: u64) -> Self {
        Self(begin(output, Whole::Steps(count), ""))
    }

    /// The next step begins.
    pub(crate) fn step(&self, name: &'static str) {
        self.0.inc(1);
        self.0.set_message(name);
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
