//! Webhooks: endpoints, their deliveries, and the meaning of a reply. Pure: requests go out through
//! the port [`Caller`].
//!
//! | word | is |
//! |---|---|
//! | [`Endpoint`] | an address that receives webhooks, with its settings and its health |
//! | [`Delivery`] | one event for one endpoint; an item like any other |
//! | [`Call`] | one HTTP request and its reply, recorded with the settle of its delivery |
//! | [`Attempt`] | a lease on a delivery that may have led to a call, for display |

mod attempt;
mod caller;
mod delivery;
mod endpoint;
mod health;
mod judge;
mod schedule;
mod stored;

pub use attempt::{Attempt, AttemptOutcome, Call, CallDetail, CallRecord, attempts};
pub use caller::{CallError, CallErrorKind, Caller, Calling, Directive, Reply, Request, Timings};
pub use delivery::Delivery;
pub use endpoint::{
    Disabled, Endpoint, EndpointId, EndpointSettings, EndpointState, NewEndpoint, OnGone, RateLimit,
};
pub use health::{EndpointHealth, RecentCalls, Warning};
pub use judge::{CallVerdict, judge};
pub use schedule::Schedule;
