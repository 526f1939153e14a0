//! Problem: what is reported when a command cannot do its work: message, causes, hint, exit code.

use std::error::Error;
use std::fmt::Display;
use std::io;

use tenure::{Invalid, StoreError, StoreErrorKind};

use crate::exit::Exit;

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Nobody reads our output any more; not worth a word.
    Closed,
    /// To be reported.
    Problem(Problem),
    /// To be reported, all of them.
    Problems(Vec<Problem>),
}

/// What is reported.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) message: String,
    /// The errors underneath, outermost first.
    pub(crate) causes: Vec<String>,
    pub(crate) hint: Option<String>,
    pub(crate) exit: Exit,
}

impl Problem {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            causes: Vec::new(),
            hint: None,
            exit,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The error underneath, in one line.
    pub(crate) fn cause(mut self, cause: impl Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Problem::from(error).into()
    }
}

impl From<Invalid> for Stop {
    fn from(problem: Invalid) -> Self {
        Problem::new(Exit::Usage, problem.to_string()).into()
    }
}

impl From<io::Error> for Stop {
    /// Of our own output: whoever read it may have gone, as `head` does.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        let problem = Problem::new(Exit::Failed, "the output cannot be written");
        problem.cause(error).into()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        // Kinds that come later are failures until they get a code of their own.
        let exit = if error.kind() == StoreErrorKind::Invalid {
            Exit::Usage
        } else {
            Exit::Failed
        };
        Self {
            message: error.to_string(),
            causes: causes(&error),
            hint: error.advice().map(str::to_owned),
            exit,
        }
    }
}

/// The errors underneath, without those that say what was said already.
fn causes(error: &dyn Error) -> Vec<String> {
    let mut said = error.to_string();
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !said.contains(&text) && !text.ends_with(&said) {
            causes.push(text.clone());
            said = text;
        }
        next = cause.source();
    }
    causes
}
