//! Publishers and handlers: the traits for your own, and those that Tenure provides.

pub use tenure_core::{
    Publication, PublishError, PublishErrorKind, Publisher, Publishing, TopicPattern, TopicSet,
};
pub use tenure_engine::{
    EventFn, Handler, Handling, JsonFn, Readiness, Relay, Topics, TopicsAnswer,
};
#[cfg(feature = "lines")]
pub use tenure_publish::Lines;
#[cfg(feature = "exec")]
pub use tenure_publish::{Exec, ExecCall, ExecLines};
