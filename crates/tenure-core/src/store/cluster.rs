//! Cluster: what the processes of one database tell each other through it.

use std::fmt;
use std::time::Duration;

use super::Answer;
use crate::job::JobKind;
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
    /// A worker on rows serves none, and says what [`WorkerReport::on_rows`] makes of them.
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
    /// What a worker on the rows of this table says in place of queues: the table, and the kinds
    /// that it takes; without kinds it takes every one.
    ///
    /// ```
    /// use tenure_core::store::WorkerReport;
    ///
    /// let kinds = ["import".to_owned(), "a, b".to_owned()];
    /// assert_eq!(WorkerReport::on_rows("jobs", &kinds), "table jobs, kind import, kind a%2C b");
    /// ```
    pub fn on_rows(table: &str, kinds: &[String]) -> String {
        let kinds = kinds.iter().map(|kind| kind_part(kind));
        let parts: Vec<String> = [table_part(table)].into_iter().chain(kinds).collect();
        parts.join(", ")
    }

    /// Whether it works on rows of this table, by what it says.
    pub fn works_on(&self, table: &str) -> bool {
        self.parts().next() == Some(table_part(table).trim())
    }

    /// Whether it takes jobs of this kind, by what it says. One that works on jobs and names no
    /// kinds is older than that: it may.
    pub fn takes(&self, kind: &JobKind) -> bool {
        let kinds = || self.parts().skip(1);
        let wanted = kind_part(kind.as_str());
        let is_named = kinds().any(|part| part == wanted.trim());
        self.works_on_jobs() && (is_named || kinds().next().is_none())
    }

    /// Whether it works on jobs, by what it says.
    pub fn works_on_jobs(&self) -> bool {
        self.works_on("tenure_jobs")
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.queues.split(',').map(str::trim)
    }

    /// Whether it serves this queue, by what it says.
    pub fn serves(&self, queue: &QueueName) -> bool {
        self.queues.trim().is_empty() || self.parts().any(|name| name == queue.as_str())
    }
}

fn table_part(table: &str) -> String {
    format!("table {}", table.replace(',', " "))
}

/// A kind may have commas in its name, and they stand between the parts.
fn kind_part(kind: &str) -> String {
    format!("kind {}", kind.replace('%', "%25").replace(',', "%2C"))
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
