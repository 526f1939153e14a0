//! Work leases: the inputs of a decision, for all stores; a domain as loaded from a database; and
//! the handle of the caller.

pub(crate) mod inputs;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod loaded;
pub(crate) mod stored;
