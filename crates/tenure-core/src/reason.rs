//! Reasons why an item is dead, as stable words. A holder may report others.

/// The holder reported more failures than the retry policy allows.
pub const FAILED: &str = "failed";
/// The holder reported that a retry cannot help.
pub const REJECTED: &str = "rejected";
/// The leases on the item lapsed too often.
pub const CRASH_LOOP: &str = "crash_loop";
/// An operator buried the item.
pub const BURIED: &str = "buried";
/// The endpoint answered that it is gone for good.
pub const GONE: &str = "gone";
/// The endpoint was removed.
pub const REMOVED: &str = "removed";
/// The receiver requested that the event never be sent again.
pub const ABORTED: &str = "aborted_by_receiver";
