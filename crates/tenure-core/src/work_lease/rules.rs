//! The settings of the work lease decisions.

use crate::invalid::Invalid;
use crate::lease::Term;

/// The rules of a work lease. They apply to all of its domains.
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
    /// Maximum number of retries; the next `fail` gives up. Default 10.
    pub max_retries: u32,
    /// Time after which another caller may take over an offset in flight. Default `None`: these
    /// callers set no end, but respect an end that a caller with a term has set.
    /// Choose a term longer than the longest delay between two attempts, or renew while waiting.
    pub term: Option<Term>,
    /// Maximum number of offsets in the backlog of a domain. Default `None`: no limit.
    pub backlog_limit: Option<u64>,
}

impl DomainRules {
    /// Creates the rules that allow `attempts` attempts per offset in total: `max_retries + 1`.
    ///
    /// # Errors
    /// `attempts` is 0.
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
