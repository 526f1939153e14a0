//! Cluster: the shared settings and the registered workers of one database.

use std::fmt;
use std::time::Duration;

use super::Answer;
use crate::job::JobKind;
use crate::lease::WorkerId;
use crate::queue::QueueName;
use crate::time::Timestamp;
use crate::topic::TopicSet;

/// Settings of all processes, by name; they override each process's own configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Rises with each change; 0 if nothing was ever set.
    pub version: u64,
    /// Values, sorted by name.
    pub values: Vec<(String, String)>,
}

/// A change of the shared settings, applied as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeSettings {
    /// Version that the caller has read and checked its change against.
    pub version: u64,
    /// New value by name; `None` removes it.
    pub values: Vec<(String, Option<String>)>,
}

/// Report of a worker at each heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// Id of the worker.
    pub worker: WorkerId,
    /// Machine, for people.
    pub host: String,
    /// Process id, for people.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// Queues that it serves: names separated by commas; empty for all. A worker on rows serves no
    /// queue and reports [`WorkerReport::on_rows`] instead.
    pub queues: String,
    /// Topics that it takes; none for a worker on deliveries or rows.
    pub topics: TopicSet,
    /// Maximum items at once.
    pub concurrency: u32,
    /// Items being worked on.
    pub running: u32,
    /// Items held, worked on or not.
    pub held: u32,
    /// Version of the shared settings in use.
    pub settings_version: u64,
    /// Time until the next report is due.
    pub next_within: Duration,
}

impl WorkerReport {
    /// Text that a worker on the rows of this table reports in place of queues: the table, and the
    /// kinds that it takes; without kinds it takes all.
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

    /// Returns true if the worker reports that it works on rows of this table.
    pub fn works_on(&self, table: &str) -> bool {
        self.parts().next() == Some(table_part(table).trim())
    }

    /// Returns true if the worker reports that it takes jobs of this kind. A worker on jobs that
    /// reports no kinds has an older version and may take any kind.
    pub fn takes(&self, kind: &JobKind) -> bool {
        let kinds = || self.parts().skip(1);
        let wanted = kind_part(kind.as_str());
        let is_named = kinds().any(|part| part == wanted.trim());
        self.works_on_jobs() && (is_named || kinds().next().is_none())
    }

    /// Returns true if the worker reports that it works on jobs.
    pub fn works_on_jobs(&self) -> bool {
        self.works_on("tenure_jobs")
    }

    /// Returns true if the worker reports that it takes events of this topic of this queue.
    pub fn takes_event(&self, queue: &QueueName, topic: &str) -> bool {
        self.serves(queue) && self.topics.takes(topic)
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.queues.split(',').map(str::trim)
    }

    /// Returns true if the worker reports that it serves this queue.
    pub fn serves(&self, queue: &QueueName) -> bool {
        self.queues.trim().is_empty() || self.parts().any(|name| name == queue.as_str())
    }
}

fn table_part(table: &str) -> String {
    format!("table {}", table.replace(',', " "))
}

/// Escapes commas, which separate the parts.
fn kind_part(kind: &str) -> String {
    format!("kind {}", kind.replace('%', "%25").replace(',', "%2C"))
}

/// Record of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRecord {
    /// Last report of the worker.
    pub report: WorkerReport,
    /// Time of the first report.
    pub started_at: Timestamp,
    /// Time of the last report.
    pub reported_at: Timestamp,
    /// Time at which the worker stopped; `None` if it has not.
    pub left_at: Option<Timestamp>,
}

impl WorkerRecord {
    /// Presence at `now`: a worker that missed three reports in a row counts as silent.
    pub fn presence(&self, now: Timestamp) -> Presence {
        let silence = now.since(self.reported_at);
        match self.left_at {
            Some(_) => Presence::Left,
            None if silence > self.report.next_within.saturating_mul(3) => Presence::Silent,
            None => Presence::Active,
        }
    }
}

words! {
    /// Presence of a worker.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Presence: as_str {
        /// The worker reports in time.
        Active = "active",
        /// The worker missed its reports: it hangs, was killed, or cannot reach the database.
        Silent = "missing",
        /// The worker has stopped and deregistered.
        Left = "stopped",
    }
}

/// Store operations for the settings and workers of a cluster.
pub trait Cluster: Send + Sync + fmt::Debug {
    /// Reads the shared settings.
    fn settings(&self) -> Answer<'_, ClusterSettings>;

    /// Changes all of the named values or none. Returns the new version, or `None` if another
    /// change was made after the version that the caller read.
    ///
    /// The caller checks the values; the store does not.
    fn change_settings<'a>(&'a self, change: &'a ChangeSettings) -> Answer<'a, Option<u64>>;

    /// Records a worker's report and its time.
    fn report<'a>(&'a self, report: &'a WorkerReport, now: Option<Timestamp>) -> Answer<'a, ()>;

    /// Records that a worker has stopped. An unknown worker is not an error.
    fn leave<'a>(&'a self, worker: &'a WorkerId, now: Option<Timestamp>) -> Answer<'a, ()>;

    /// Returns up to `limit` workers, latest report first, with the store's current time.
    /// [`WorkerRecord::presence`] needs that time.
    fn workers(&self, limit: u32) -> Answer<'_, (Timestamp, Vec<WorkerRecord>)>;
}
