//! Ordering keys on PostgreSQL under load: two concurrent operations on one key, producers that
//! commit late, and claims that die. The invariants are read from the tables ([`faults`]).

mod faults;
mod late;
mod planted;
mod races;
mod scene;

pub(crate) use faults::FAULTS;
