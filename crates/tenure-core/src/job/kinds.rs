//! How the jobs of a kind stand, for people who look after them.

use std::time::Duration;

use super::JobKind;

/// How the jobs of one kind stand that have not ended, and how many failed lately.
///
/// ```
/// use tenure_core::job::{JobKind, KindStanding};
///
/// let standing = KindStanding::none(JobKind::new("import.orders")?);
/// assert_eq!((standing.due, standing.oldest_due), (0, None));
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStanding {
    /// Which kind.
    pub kind: JobKind,
    /// How many may be claimed now; what has lapsed is not among them.
    pub due: u64,
    /// How long the first of these has waited.
    pub oldest_due: Option<Duration>,
    /// How many may not be claimed yet.
    pub delayed: u64,
    /// How many are in hand.
    pub running: u64,
    /// How many are past their term, and nobody has claimed them since.
    pub lapsed: u64,
    /// How long the first of these has been.
    pub longest_lapsed: Option<Duration>,
    /// The first of these by number.
    pub lapsed_job: Option<i64>,
    /// How many have lapsed twice or more.
    pub crashing: u64,
    /// The first of these by number.
    pub crashing_job: Option<i64>,
    /// How many failed lately; those that were cancelled are not among them.
    pub failed: u64,
    /// The last of these by number.
    pub failed_job: Option<i64>,
}

impl KindStanding {
    /// There are no jobs of this kind.
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
