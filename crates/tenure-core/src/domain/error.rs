//! What a caller of a work lease did wrong. An error changes nothing.

use crate::domain::DomainName;
use crate::invalid::Invalid;

/// A caller's mistake, as the contract of the work lease names it. No token is ever printed.
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
        /// The offset that was to be acquired.
        got: i64,
    },
    /// The token is not that of the domain's reservation.
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
        "No lease: nothing of the domain {domain:?} is in flight; an offset is ended once, by \
         whoever acquired it",
        domain = domain.as_str()
    )]
    LeaseNotFound {
        /// The domain.
        domain: DomainName,
    },
    /// The backlog is at its limit.
    #[error(
        "the backlog of the domain {domain:?} is full: {limit} wait already, so offset {got} was \
         not queued; try it again when the domain has moved on",
        domain = domain.as_str()
    )]
    BacklogFull {
        /// The domain.
        domain: DomainName,
        /// How many may wait.
        limit: u64,
        /// The offset that was to be queued.
        got: i64,
    },
    /// The name of the domain cannot be one.
    #[error(transparent)]
    InvalidDomain(#[from] Invalid),
}

impl WorkLeaseError {
    /// Whether a holder ended what is not in its hand: no lease, or not its token.
    pub const fn is_illegal_state(&self) -> bool {
        match self {
            Self::TokenMismatch { .. } | Self::LeaseNotFound { .. } => true,
            Self::BacklogOrdering { .. } | Self::BacklogFull { .. } | Self::InvalidDomain(_) => {
                false
            }
        }
    }

    /// The mistake as one word, for JSON and metrics.
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
