//! Complaint: one thing that is wrong with the configuration, and where it was said.

use std::fmt;

use crate::database::hide_addresses;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

/// Where something was said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In the defaults of the program.
    Default,
    /// In a file, in this line.
    File { path: String, line: usize },
    /// In this environment variable.
    Variable(String),
    /// With this flag.
    Flag(&'static str),
}

impl Place {
    /// The layer, as one word.
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

/// One thing that is wrong with the configuration.
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
    /// A value is shown as it was given; it may be an address in the wrong place.
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
