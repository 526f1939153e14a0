//! The bare loops on SQLite, and ours.
