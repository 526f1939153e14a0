//! Status of the jobs of a kind, for operators.

use std::time::Duration;

use super::{JobId, JobKind};

/// Status of the open jobs of one kind, and its recent failures.
///
/// ```
/// use tenure_core::job::{JobKind, KindStatus};
///
/// let status = KindStatus::none(JobKind::new("import.orders")?);
/// assert_eq!((status.due, status.oldest_due), (0, None));
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStatus {
    /// Kind of the jobs.
    pub kind: JobKind,
    /// Claimable jobs, without lapsed ones.
    pub due: u64,
    /// Waiting time of the oldest claimable job.
    pub oldest_due: Option<Duration>,
    /// Jobs that are not claimable yet.
    pub delayed: u64,
    /// Jobs under a live lease.
    pub running: u64,
    /// Jobs whose lease has lapsed and that were not claimed again.
    pub lapsed: u64,
    /// Longest time since the end of the lease, among the lapsed jobs.
    pub longest_lapsed: Option<Duration>,
    /// Lowest id of the lapsed jobs.
    pub lapsed_job: Option<JobId>,
    /// Jobs whose leases have lapsed twice or more.
    pub crashing: u64,
    /// Lowest id of the jobs whose leases have lapsed twice or more.
    pub crashing_job: Option<JobId>,
    /// Recently failed jobs, without cancelled ones.
    pub failed: u64,
    /// Highest id of the recently failed jobs.
    pub failed_job: Option<JobId>,
}

impl KindStatus {
    /// Status of a kind without jobs.
    pub fn none(kind: JobKind) -> Self {
        Self {
            kind,
            due: 0,
            oldest_due: None,
            delayed: 0,
            running: 0,
            lapsed: 0,
            longest_lapsed: None,
            lapsed_job: None,
            crashing: 0,
            crashing_job: None,
            failed: 0,
            failed_job: None,
        }
    }
}
