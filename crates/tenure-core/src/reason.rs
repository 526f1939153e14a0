//! Why an item is dead, as one word: those that Tenure itself says. A holder may say another.

/// Its holder failed once more than the retry policy allows.
pub const FAILED: &str = "failed";
/// Its holder said that trying again cannot help.
pub const REJECTED: &str = "rejected";
/// Its leases lapsed too often.
pub const CRASH_LOOP: &str = "crash_loop";
/// An operator settled it dead.
pub const BURIED: &str = "buried";
/// The endpoint that it is owed to said that it is gone for good.
pub const GONE: &str = "gone";
/// The endpoint that it is owed to was removed.
pub const REMOVED: &str = "removed";
/// The receiver asked never to be sent it again.
pub const ABORTED: &str = "aborted_by_receiver";
