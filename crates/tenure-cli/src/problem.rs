//! Problems: reports of a command that failed, with message, causes, hint and exit code.

use std::error::Error;
use std::fmt::Display;
use std::io;

use tenure::{Invalid, Problems, StoreError, StoreErrorKind};

use crate::exit::Exit;

/// The reason why a command stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The reader closed the output; not reported.
    Closed,
    Problem(Problem),
    Problems(Vec<Problem>),
}

#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) message: String,
    /// Underlying errors, outermost first.
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

    /// Adds an underlying error; the report prints it on one line.
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

impl From<Problems> for Stop {
    fn from(problems: Problems) -> Self {
        Problem::new(Exit::Usage, problems.to_string()).into()
    }
}

impl From<Invalid> for Stop {
    fn from(problem: Invalid) -> Self {
        Problem::new(Exit::Usage, problem.to_string()).into()
    }
}

impl From<io::Error> for Stop {
    /// For errors on the program's own output; its reader, such as `head`, may have closed it.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        let problem = Problem::new(Exit::Failed, "cannot write the output");
        problem.cause(error).into()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        // Future kinds are failures until they get a code of their own.
        let exit = if error.kind() == StoreErrorKind::Invalid {
            Exit::Usage
        } else {
            Exit::Failed
        };
        Self {
            message: error.summary(),
            causes: causes(&error),
            hint: error.hint().map(str::to_owned),
            exit,
        }
    }
}

/// The underlying errors without repetitions.
fn causes(error: &dyn Error) -> Vec<String> {
    let mut previous = error.to_string();
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !previous.contains(&text) && !text.ends_with(&previous) {
            causes.push(text.clone());
            previous = text;
        }
        next = cause.source();
    }
    causes
}
