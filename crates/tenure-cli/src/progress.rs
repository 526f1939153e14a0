//! Progress of long work: a bar on a terminal, nothing elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Output;

const SPINNER_INTERVAL: Duration = Duration::from_millis(100);

/// The length of a bar whose total is not known yet: so large that the bar stays empty. With a
/// total of zero, or of the work done so far, the bar would be full.
pub(crate) const UNKNOWN_TOTAL: u64 = u64::MAX;

/// The total of the work and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Total {
    Events(u64),
    Steps(u64),
    /// Chunks of a job; the job reports their number as it goes.
    Chunks,
    Bytes(u64),
    Unknown,
}

/// A bar on standard error, hidden when that is not a terminal and with `--json`.
pub(crate) fn begin(output: &Output, total: Total, message: &'static str) -> ProgressBar {
    if output.is_json() {
        return ProgressBar::hidden();
    }
    let (progress, template) = match total {
        Total::Events(number) => (
            ProgressBar::new(number),
            "{msg} [{bar:30}] {pos}/{len} {per_sec} {eta}",
        ),
        Total::Steps(number) => (ProgressBar::new(number), "[{bar:30}] {pos}/{len} {msg}"),
        Total::Chunks => (ProgressBar::new(UNKNOWN_TOTAL), "[{bar:30}] {msg}"),
        Total::Bytes(number) => (
            ProgressBar::new(number),
            "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        ),
        Total::Unknown => (ProgressBar::new_spinner(), "{spinner} {msg} {pos}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        progress.set_style(style.progress_chars("=> "));
    }
    progress.set_message(message);
    // `ProgressBar` hides itself where standard error is not a terminal.
    if total == Total::Unknown && !progress.is_hidden() {
        progress.enable_steady_tick(SPINNER_INTERVAL);
    }
    progress
}
