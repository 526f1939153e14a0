//! The kill harness of the tests: it starts processes, kills and pauses them, kills their database
//! server by a seeded schedule, and checks the recorded history.
//!
//! A scenario starts a [`Crew`], runs a [`Schedule`] on it, fills a [`History`] and calls
//! [`check`], which applies all rules. Workers without a journal in a store record their steps with
//! [`notes`].

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test fails by a panic"
)]

mod crew;
#[expect(
    missing_docs,
    reason = "plain records: the names of most fields tell enough"
)]
mod history;
pub mod notes;
#[cfg(test)]
mod planted;
mod process;
#[expect(
    missing_docs,
    reason = "plain records: the names of most fields tell enough"
)]
mod rules;
mod schedule;
mod wait;

pub use crew::{Crew, Servers};
pub use history::{
    About, Bounds, Effect, Fault, FaultKind, History, Hold, Id, Judged, Loss, Serial, Work,
};
pub use process::{Process, argument};
pub use rules::{RULES, Rule, Summary, Violation, check, report};
pub use schedule::{Rng, Schedule};
pub use wait::{POLL, now, until, within};

/// Prints a line, visible with `--nocapture` or after a failure.
pub fn say(text: &str) {
    #[expect(clippy::print_stderr, reason = "the seed and the figures of a run")]
    {
        eprintln!("{text}");
    }
}
