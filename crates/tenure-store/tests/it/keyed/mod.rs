//! Ordering keys on PostgreSQL under fire: two verbs of one key at once, producers that commit
//! late, claims that die. What must hold at any moment is read from the tables ([`faults`]).

mod faults;
mod late;
mod planted;
mod races;
mod scene;

pub(crate) use faults::FAULTS;
