//! Errors of a work lease: mistakes of the caller, which change nothing; and failures of a store.

use crate::invalid::Invalid;
use crate::store::StoreError;
use crate::work_lease::DomainName;

/// A caller's mistake, as the contract of the work lease names it. Messages never contain tokens.
///
/// ```
/// use tenure_core::{DomainName, WorkLeaseError};
///
/// let error = WorkLeaseError::LeaseNotFound { domain: DomainName::new("A")? };
/// assert!(error.is_illegal_state());
/// assert!(error.to_string().starts_with("No lease"));
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkLeaseError {
    /// `try_acquire` of an offset that is not the head of an idle domain's backlog.
    #[error(
        "offset {got} of the domain {domain:?} is out of order; expected {expected}, the head of \
         its backlog: acquire that one first, or submit {got}, which queues it",
        domain = domain.as_str()
    )]
    BacklogOrdering {
        /// The domain.
        domain: DomainName,
        /// The head of its backlog.
        expected: i64,
        /// The requested offset.
        got: i64,
    },
    /// The token does not match that of the domain's reservation.
    #[error(
        "Token mismatch: the offset in flight of the domain {domain:?} is held under another \
         token; drop the work, it is no longer yours",
        domain = domain.as_str()
    )]
    TokenMismatch {
        /// The domain.
        domain: DomainName,
    },
    /// The domain has no reservation.
    #[error(
        "No lease: nothing of the domain {domain:?} is in flight; an offset can be ended only \
         once, by the caller that acquired it",
        domain = domain.as_str()
    )]
    LeaseNotFound {
        /// The domain.
        domain: DomainName,
    },
    /// The backlog is at its limit.
    #[error(
        "the backlog of the domain {domain:?} is full: {limit} {waiting}, so offset {got} was not \
         queued; retry when the backlog is shorter",
        domain = domain.as_str(),
        waiting = if *limit == 1 { "offset already waits" } else { "offsets already wait" }
    )]
    BacklogFull {
        /// The domain.
        domain: DomainName,
        /// Maximum number of waiting offsets.
        limit: u64,
        /// The offset that could not be queued.
        got: i64,
    },
    /// The domain name is invalid.
    #[error(transparent)]
    InvalidDomain(#[from] Invalid),
}

impl WorkLeaseError {
    /// Returns whether the caller holds no offset of the domain: nothing is in flight, or the
    /// offset in flight has another token.
    pub const fn is_illegal_state(&self) -> bool {
        match self {
            Self::TokenMismatch { .. } | Self::LeaseNotFound { .. } => true,
            Self::BacklogOrdering { .. } | Self::BacklogFull { .. } | Self::InvalidDomain(_) => {
                false
            }
        }
    }

    /// Returns the error as one word, for JSON and metrics.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BacklogOrdering { .. } => "backlog_ordering",
            Self::TokenMismatch { .. } => "token_mismatch",
            Self::LeaseNotFound { .. } => "lease_not_found",
            Self::BacklogFull { .. } => "backlog_full",
            Self::InvalidDomain(_) => "invalid_domain",
        }
    }
}

/// Error of a call on a stored work lease: a mistake of the caller, which changed nothing, or a
/// failure of the store.
///
/// After a failure of the store the call may still have taken effect: call `try_acquire` for the
/// same offset again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredWorkLeaseError {
    /// The contract of the work lease forbids the call.
    #[error(transparent)]
    Contract(#[from] WorkLeaseError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StoredWorkLeaseError {
    /// Returns the caller's mistake, if it is one.
    pub fn contract(&self) -> Option<&WorkLeaseError> {
        match self {
            Self::Contract(mistake) => Some(mistake),
            Self::Store(_) => None,
        }
    }

    /// Returns true if the caller holds no offset of the domain: nothing is in flight, or the
    /// offset in flight has another token.
    pub fn is_illegal_state(&self) -> bool {
        self.contract()
            .is_some_and(WorkLeaseError::is_illegal_state)
    }
}
