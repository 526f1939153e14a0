//! Errors that end a command early.

use std::fmt::Display;
use std::io;

use tenure::{Invalid, StoreError};

/// The error that ended a command of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stop {
    /// The output could not be written, or the system failed.
    Io(io::Error),
    /// The database failed.
    Store(StoreError),
    /// An argument is not valid.
    Invalid(Invalid),
    /// Something else failed.
    Failed(Failure),
}

/// A failure in the form in which it is printed.
#[derive(Debug)]
pub struct Failure {
    /// The failure itself.
    pub message: String,
    /// Underlying errors, outermost first.
    pub causes: Vec<String>,
    /// Advice for the user.
    pub hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            causes: Vec::new(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds an underlying error.
    pub(crate) fn cause(mut self, cause: impl Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Invalid> for Stop {
    fn from(problem: Invalid) -> Self {
        Self::Invalid(problem)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
