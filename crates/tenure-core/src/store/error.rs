//! `StoreError`: failures of a store; the kind tells the caller how to react.

use std::error::Error;
use std::fmt;

use crate::item::ItemId;

/// Kind of a store's failure: it tells the caller how to react.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Retry later: the database is down, busy, full or read-only. The operation may or may not
    /// have taken effect.
    Unavailable,
    /// Another program changed the same data: read it again.
    Conflict,
    /// Fix the input or the setup.
    Invalid,
    /// Call a human: the stored data is inconsistent.
    Corrupt,
}

/// A failed operation of a store.
///
/// ```
/// use tenure_core::store::{StoreError, StoreErrorKind};
///
/// let error = StoreError::new("claim", StoreErrorKind::Unavailable, "the database is down")
///     .with_hint("is it running?");
/// assert!(error.is_transient());
/// assert_eq!(error.to_string(), "claim: the database is down (is it running?)");
/// assert_eq!(error.hint(), Some("is it running?"));
/// ```
#[derive(Debug, thiserror::Error)]
pub struct StoreError {
    verb: &'static str,
    kind: StoreErrorKind,
    message: String,
    item: Option<ItemId>,
    hint: Option<String>,
    #[source]
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// Creates an error of the operation `verb`; `message` is one phrase without secrets.
    pub fn new(verb: &'static str, kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self {
            verb,
            kind,
            message: message.into(),
            item: None,
            hint: None,
            cause: None,
        }
    }

    /// Creates an error for invalid input of the operation `verb`.
    pub fn invalid(verb: &'static str, problem: &impl fmt::Display) -> Self {
        Self::new(verb, StoreErrorKind::Invalid, problem.to_string())
    }

    /// Adds advice for the user.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the affected item.
    #[must_use]
    pub fn with_item(mut self, item: ItemId) -> Self {
        self.item = Some(item);
        self
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Kind, which tells the caller how to react.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns true if a retry can help.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Unavailable | StoreErrorKind::Conflict
        )
    }

    /// The affected item, if known.
    pub fn item(&self) -> Option<ItemId> {
        self.item
    }

    /// The operation and the message without the hint, for programs that show the hint elsewhere.
    pub fn summary(&self) -> String {
        match self.item {
            Some(item) => format!("{} of item {item}: {}", self.verb, self.message),
            None => format!("{}: {}", self.verb, self.message),
        }
    }

    /// Advice for the user, if there is any. `Display` includes it, too.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for StoreError {
    /// The summary and the hint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}
