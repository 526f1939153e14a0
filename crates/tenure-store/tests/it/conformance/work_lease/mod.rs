//! The work lease in every store: its whole contract, and the additions.

pub(super) mod added;
pub(super) mod bounds;
pub(super) mod contract;
pub(super) mod watermark;
