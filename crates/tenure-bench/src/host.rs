//! Interface between the commands of this crate and the program that runs them.

use std::fmt::{self, Display};
use std::io;

use comfy_table::Cell;
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::stop::Stop;

/// The output of the program: tables, or lines of JSON.
pub trait Console: Sync {
    /// Returns true if the command must print one JSON object and nothing else.
    fn is_json(&self) -> bool;

    /// Prints a line of text.
    fn line(&self, text: &dyn Display) -> io::Result<()>;

    /// Prints one object.
    fn json(&self, object: &RawValue) -> io::Result<()>;

    /// Prints a table.
    fn table(&self, heading: &[&str], rows: Vec<Vec<Cell>>) -> io::Result<()>;

    /// Prints a remark to standard error.
    fn note(&self, text: &dyn Display);

    /// Prints advice to standard error.
    fn hint(&self, text: &dyn Display);

    /// Creates a progress bar of this many steps; it is hidden if standard error is not a terminal.
    fn progress(&self, steps: u64) -> ProgressBar;
}

/// The program that runs a command of this crate.
pub struct Host<'a> {
    /// The program's output.
    pub console: &'a dyn Console,
    /// The full address of the database, including its password.
    pub database: &'a str,
    /// Renders the metrics of this process in Prometheus' text format.
    pub metrics: &'a (dyn Fn() -> String + Sync),
    /// Environment variables of the program's own configuration; child processes start without
    /// them.
    pub variables: &'a [String],
}

impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password.
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host<'_> {
    /// Prints an object as one line of JSON.
    pub(crate) fn json(&self, object: &impl Serialize) -> Result<(), Stop> {
        let object = to_raw_value(object).map_err(io::Error::other)?;
        Ok(self.console.json(&object)?)
    }

    /// Starts a progress bar of this many steps.
    pub(crate) fn steps(&self, count: u64) -> Steps {
        Steps(self.console.progress(count))
    }
}

/// The result of a completed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Completion {
    /// Success.
    Passed,
    /// A guarantee did not hold, or a figure is worse than before.
    Failed,
}

/// The steps of a long run, each named when it begins.
#[derive(Debug)]
pub(crate) struct Steps(ProgressBar);

impl Steps {
    pub(crate) fn step(&self, name: &'static str) {
        self.0.inc(1);
        self.0.set_message(name);
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
