//! Invalid: one part of the caller's input that cannot be accepted, with the expected form.

use std::fmt;

/// A problem with one field of the input: its name, its actual value and the expected form.
///
/// ```
/// let problem = tenure_core::Event::new("", &1).unwrap_err();
/// let text = problem.to_string();
/// assert_eq!(text, "topic is empty; expected 1 to 255 bytes, such as `order.paid`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}; expected {expected}")]
pub struct Invalid {
    field: &'static str,
    found: String,
    expected: String,
}

impl Invalid {
    /// Reports that `field` is `found`; `expected` describes a valid value.
    pub fn new(field: &'static str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            field,
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// Name of the field.
    pub fn field(&self) -> &'static str {
        self.field
    }
}

/// All problems of the caller's input; at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(Vec<Invalid>);

impl Problems {
    /// Fails if there are any problems.
    ///
    /// # Errors
    /// The list is not empty.
    pub fn check(problems: Vec<Invalid>) -> Result<(), Self> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(Self(problems))
    }

    /// The problems, in the order of the input.
    pub fn iter(&self) -> impl Iterator<Item = &Invalid> {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, problem) in self.0.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "; " };
            write!(f, "{comma}{problem}")?;
        }
        Ok(())
    }
}

impl From<Invalid> for Problems {
    fn from(problem: Invalid) -> Self {
        Self(vec![problem])
    }
}
