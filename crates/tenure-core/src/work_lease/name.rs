//! The name of a domain.

use std::borrow::Borrow;
use std::sync::Arc;

use crate::event::name;
use crate::invalid::Invalid;

/// The name of a domain: 1 to 255 bytes, without control characters, like an event's key.
///
/// ```
/// use tenure_core::DomainName;
///
/// assert_eq!(DomainName::new("customer-7")?.as_str(), "customer-7");
/// let problem = DomainName::new("").unwrap_err();
/// assert_eq!(
///     problem.to_string(),
///     "domain is empty; expected 1 to 255 bytes, such as `customer-7`"
/// );
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(Arc<str>);
as_text!(DomainName);

impl DomainName {
    /// Creates the name.
    ///
    /// # Errors
    /// The name is empty, too long or has control characters.
    pub fn new(domain: &str) -> Result<Self, Invalid> {
        Ok(Self(name("domain", domain, "customer-7")?.into()))
    }
}

/// Allows lookups by `&str` in a map keyed by name. Equality and hash are those of the text.
impl Borrow<str> for DomainName {
    fn borrow(&self) -> &str {
        &self.0
    }
}
