//! Invalid: one thing in the caller's input that cannot be accepted, and what would be.

use std::fmt;

/// What was wrong with an input: the field, what it was, what was expected.
///
/// ```
/// let problem = tenure_core::Event::new("", &1).unwrap_err();
/// let text = problem.to_string();
/// assert_eq!(text, "topic is empty; expected 1 to 255 bytes, such as `order.paid`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    field: &'static str,
    found: String,
    expected: String,
}

impl Invalid {
    /// `field` is `found`; `expected` would be right.
    pub fn new(field: &'static str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            field,
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// Which part of the input.
    pub fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is {}; expected {}",
            self.field, self.found, self.expected
        )
    }
}
