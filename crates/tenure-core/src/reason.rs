//! Why an item is dead, as one word: those that Tenure itself says. A holder may say another.

/// Its holder failed once more than the retry policy allows.
pub const FAILED: &str = "failed";
/// Its holder said that trying again cannot help.
pub const REJECTED: &str = "rejected";
/// Its leases lapsed too often.
pub const CRASH_LOOP: &str = "crash_loop";
/// An operator settled it dead.
pub const BURIED: &str = "buried";
