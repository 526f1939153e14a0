//! Publishers and handlers: the traits for your own, and those that Tenure provides.

pub use tenure_core::{
    Publication, PublishError, PublishErrorKind, Publisher, Publishing, TopicPattern,
};
pub use tenure_engine::{EventFn, Handler, Handling, JsonFn, Readiness, Relay, Topics};
#[cfg(feature = "lines")]
pub use tenure_publish::Lines;
#[cfg(feature = "exec")]
pub use tenure_publish::{Exec, ExecCall, ExecLines};
