//! Work leases: the inputs of a decision, for all stores; and a domain as loaded from a database.

pub(crate) mod inputs;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod loaded;
