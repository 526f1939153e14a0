//! The work lease as every store keeps it: the whole contract, and what is added to it.

pub(super) mod added;
pub(super) mod bounds;
pub(super) mod contract;
pub(super) mod watermark;
