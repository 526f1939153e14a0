//! What a domain's decisions go by.

use crate::invalid::Invalid;
use crate::lease::Term;

/// The rules of a work lease. They hold for all of its domains.
///
/// ```
/// use tenure_core::DomainRules;
///
/// let rules = DomainRules::max_attempts(3)?;
/// assert_eq!(rules.max_retries, 2);
/// assert!(DomainRules::max_attempts(0).is_err());
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainRules {
    /// Calls of `fail` that are followed by another try; the next one gives up. Default 10.
    pub max_retries: u32,
    /// How long a reservation stands before another caller may take its offset over. Default
    /// none: it stands until it is ended, or until the end that callers with a term have given it.
    /// With a term, choose one longer than the longest delay between two tries, or renew while
    /// waiting.
    pub term: Option<Term>,
    /// How many offsets may wait behind the current one of a domain. Default none: no limit.
    pub backlog_limit: Option<u64>,
}

impl DomainRules {
    /// The rules that allow `attempts` tries of an offset in all: `max_retries + 1`.
    ///
    /// # Errors
    /// There is at least one attempt.
    pub fn max_attempts(attempts: u32) -> Result<Self, Invalid> {
        let max_retries = attempts
            .checked_sub(1)
            .ok_or_else(|| Invalid::new("max_attempts", "0", "1 or more"))?;
        Ok(Self {
            max_retries,
            ..Self::default()
        })
    }
}

impl Default for DomainRules {
    fn default() -> Self {
        Self {
            max_retries: 10,
            term: None,
            backlog_limit: None,
        }
    }
}
