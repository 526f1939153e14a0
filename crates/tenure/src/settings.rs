//! Settings of workers, for one process or for the cluster, and the format of durations.

pub use tenure_core::store::{ChangeSettings, ClusterSettings};
pub use tenure_core::{Setting, Settings, brief_duration, duration_text, parse_duration};
