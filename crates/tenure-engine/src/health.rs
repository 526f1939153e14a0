//! Health: what an engine says of itself, for readiness and for people.

use std::time::Duration;

use tenure_core::WorkerId;

/// Where an engine stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Who.
    pub worker: WorkerId,
    /// What is looked at; each by itself.
    pub checks: Vec<Check>,
    /// How many items are being worked on.
    pub running: u32,
    /// How many are held, worked on or not.
    pub held: u32,
}

impl Health {
    /// Whether it does its work: every check holds.
    pub fn is_ready(&self) -> bool {
        self.checks.iter().all(|check| check.problem.is_none())
    }
}

/// One thing that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What: `reaper`, `heartbeat`, `claims`, `settings`.
    pub name: &'static str,
    /// How long ago it was last seen to work, if ever.
    pub last: Option<Duration>,
    /// What is wrong; `None`: nothing.
    pub problem: Option<String>,
}
