//! The name of a space.

use std::sync::Arc;

use crate::event::name;
use crate::invalid::Invalid;

/// The name of a space: the domains of one work lease under one watermark, such as those of one
/// partition of a log. 1 to 255 bytes, without control characters.
///
/// ```
/// use tenure_core::SpaceName;
///
/// assert_eq!(SpaceName::new("payments-3")?.as_str(), "payments-3");
/// assert!(SpaceName::new("").is_err());
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceName(Arc<str>);
as_text!(SpaceName);

impl SpaceName {
    /// Creates the name.
    ///
    /// # Errors
    /// The name is empty, too long or has control characters.
    pub fn new(space: &str) -> Result<Self, Invalid> {
        Ok(Self(name("space", space, "payments-3")?.into()))
    }
}
