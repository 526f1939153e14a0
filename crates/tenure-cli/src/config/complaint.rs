//! Complaints: single faults of the configuration, each with its place.

use std::fmt;

use crate::database::hide_addresses;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

/// The place where a value was set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The program's defaults.
    Default,
    File {
        path: String,
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    Flag(&'static str),
}

impl Place {
    /// The name of the layer.
    pub(crate) const fn layer(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File { .. } => "file",
            Self::Variable(_) => "environment",
            Self::Flag(_) => "flag",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One fault of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Complaint {
    place: Place,
    text: String,
    hint: Option<String>,
}

impl Complaint {
    pub(crate) fn new(place: Place, text: impl fmt::Display) -> Self {
        Self {
            place,
            text: text.to_string(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

impl From<Complaint> for Problem {
    /// Hides passwords, because the quoted value may be an address in the wrong place.
    fn from(complaint: Complaint) -> Self {
        let text = format!("{}: {}", complaint.place, complaint.text);
        let mut problem = Self::new(Exit::Usage, hide_addresses(&text));
        problem.hint = complaint.hint;
        problem
    }
}

impl From<Vec<Complaint>> for Stop {
    fn from(complaints: Vec<Complaint>) -> Self {
        Self::Problems(complaints.into_iter().map(Into::into).collect())
    }
}
