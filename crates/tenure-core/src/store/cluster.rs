//! Cluster: what the processes of one database tell each other through it.

use std::fmt;
use std::time::Duration;

use super::Answer;
use crate::lease::WorkerId;
use crate::queue::QueueName;
use crate::time::Timestamp;

/// What is set for all processes, by name; it stands over each one's own configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Rises with each change; 0: nothing was ever set.
    pub version: u64,
    /// The values, by name in ascending order.
    pub values: Vec<(String, String)>,
}

/// Asks to change what is set for all processes, in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeSettings {
    /// The version that the caller has seen and checked its change against.
    pub version: u64,
    /// Each name with its new value; `None` takes it out.
    pub values: Vec<(String, Option<String>)>,
}

/// What a worker says of itself at each heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// Who.
    pub worker: WorkerId,
    /// On which machine, for people.
    pub host: String,
    /// As which process, for people.
    pub pid: u32,
    /// Of which version.
    pub version: String,
    /// The queues that it serves, for people: their names, with commas between them; empty: all.
    /// A worker on rows serves none, and says `table` and its name.
    pub queues: String,
    /// How many items it may work on at once.
    pub concurrency: u32,
    /// How many it is working on.
    pub running: u32,
    /// How many it holds, worked on or not.
    pub held: u32,
    /// The version of the cluster's settings that it runs by.
    pub settings_version: u64,
    /// How long after this one the next report is due.
    pub next_within: Duration,
}

impl WorkerReport {
    /// Whether it serves this queue, by what it says.
    pub fn serves(&self, queue: &QueueName) -> bool {
        let mut names = self.queues.split(',').map(str::trim);
        self.queues.trim().is_empty() || names.any(|name| name == queue.as_str())
    }
}

/// A worker as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRecord {
    /// What it said last.
    pub report: WorkerReport,
    /// When it said something for the first time.
    pub started_at: Timestamp,
    /// When it said something last.
    pub seen_at: Timestamp,
    /// When it took its leave; `None`: it has not.
    pub left_at: Option<Timestamp>,
}

impl WorkerRecord {
    /// Where it stands: a worker that missed three reports in a row is taken for dead.
    pub fn presence(&self, now: Timestamp) -> Presence {
        let silence = now.since(self.seen_at);
        match self.left_at {
            Some(_) => Presence::Left,
            None if silence > self.report.next_within.saturating_mul(3) => Presence::Silent,
            None => Presence::Here,
        }
    }
}

/// Where a worker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It reports.
    Here,
    /// It missed its reports: it hangs, was killed, or cannot reach the database.
    Silent,
    /// It took its leave.
    Left,
}

impl Presence {
    /// The word for people and programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Silent => "silent",
            Self::Left => "left",
        }
    }
}

/// Settings and workers of a cluster.
pub trait Cluster: Send + Sync + fmt::Debug {
    /// What is set for all processes.
    fn settings(&self) -> Answer<'_, ClusterSettings>;

    /// Changes all of the named values or none; answers the new version, or `None` when someone
    /// else changed something since the version that the caller has seen.
    ///
    /// The store does not judge the values; the caller has.
    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>>;

    /// Writes down what a worker says of itself, and when.
    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()>;

    /// Writes down that a worker took its leave. One that is not there is no error.
    fn leave<'a>(&'a self, worker: &'a WorkerId, now: Option<Timestamp>) -> Answer<'a, ()>;

    /// Up to `limit` workers, those seen last first; beside them the present moment of the store,
    /// by which their silence is judged.
    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)>;
}
