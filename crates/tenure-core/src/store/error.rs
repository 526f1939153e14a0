//! `StoreError`: what went wrong, sorted by what can be done about it.

use std::error::Error;
use std::fmt;

use crate::invalid::Invalid;
use crate::item::ItemId;

/// What can be done about a failure of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Try again later: the database is away, busy, full or read-only. Whether the verb took
    /// effect may be unknown.
    Unavailable,
    /// Someone else did it at the same time: look again.
    Conflict,
    /// Fix the input or the setup.
    Invalid,
    /// Call a human: what is stored contradicts itself.
    Corrupt,
}

/// A verb of a store that could not be carried out.
///
/// ```
/// use tenure_core::store::{StoreError, StoreErrorKind};
///
/// let error = StoreError::new("claim", StoreErrorKind::Unavailable, "the database is away")
///     .hint("is it running?");
/// assert!(error.is_transient());
/// assert_eq!(error.to_string(), "claim: the database is away");
/// ```
#[derive(Debug)]
pub struct StoreError {
    verb: &'static str,
    kind: StoreErrorKind,
    message: String,
    item: Option<ItemId>,
    hint: Option<String>,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// `verb` failed; `message` says how, in one phrase without secrets.
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

    /// `verb` was given something that cannot be accepted.
    pub fn invalid(verb: &'static str, problem: &Invalid) -> Self {
        Self::new(verb, StoreErrorKind::Invalid, problem.to_string())
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the item that was concerned.
    #[must_use]
    pub fn item(mut self, item: ItemId) -> Self {
        self.item = Some(item);
        self
    }

    /// Keeps the error underneath.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// What can be done about it.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether trying again can help.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Unavailable | StoreErrorKind::Conflict
        )
    }

    /// The item that was concerned, if it is known.
    pub fn concerned_item(&self) -> Option<ItemId> {
        self.item
    }

    /// What the user can do, if we know it.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.item {
            Some(item) => write!(f, "{} of item {item}: {}", self.verb, self.message),
            None => write!(f, "{}: {}", self.verb, self.message),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause
            .as_ref()
            .map(|cause| -> &(dyn Error + 'static) { cause.as_ref() })
    }
}
