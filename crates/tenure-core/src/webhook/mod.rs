//! Webhooks: endpoints, what is owed to them, what an answer means. Pure: what is sent is sent
//! through the port [`Caller`].
//!
//! | word | is |
//! |---|---|
//! | [`Endpoint`] | an address that receives webhooks, with its rules and its health |
//! | [`Delivery`] | one event owed to one endpoint; an item like any other |
//! | [`Call`] | what is known of one call: opened by the claim, closed by the settle |
//! | [`Attempt`] | a hold on a delivery as people see it, with or without a call |

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
    Disabled, Endpoint, EndpointId, EndpointSettings, EndpointState, NewEndpoint, OnGone, Rate,
};
pub use health::{Breaking, Health, Warning};
pub use judge::{Verdict, judge};
pub use schedule::Schedule;
