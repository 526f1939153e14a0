//! Work leases in the databases: a domain as it was loaded, and the inputs of a decision about it.

pub(crate) mod inputs;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod loaded;
