//! The work lease: the offsets of one domain are worked strictly in the order of their arrival,
//! one at a time, and none twice.
//!
//! Everything here is pure. A decision ([`try_acquire`], [`succeed`], [`fail`], [`submit`],
//! [`replay`], [`renew`]) takes a [`DomainView`] of one domain and answers together with a
//! [`Change`]; whoever keeps the domain, in process or in a database, shows the view and applies
//! the change under the domain's own lock. So both forms keep one contract.
//!
//! | verb | answers | |
//! |---|---|---|
//! | [`try_acquire`] | [`AcquireResult`] | the contract: a non-head of an idle domain is an error |
//! | [`succeed`] | [`SucceedResult`] | the offset is processed; the next head is a hint |
//! | [`fail`] | [`FailResult`] | a retry under the same token, or given up |
//! | [`submit`] | [`AcquireResult`] | extension: queues a newcomer where `try_acquire` is an error |
//! | [`replay`] | [`ReplayResult`] | extension: an operator puts a terminal offset at the tail |
//! | [`renew`] | until when | extension, with a term only: the holder is still there |
//!
//! Nothing here hands off, waits or measures a delay: when to try again is computed outside, from
//! a reservation's `acquired_at` and `retry_count`. The order is that of arrival, not of numbers:
//! an idle domain without a backlog accepts any offset that is not terminal, a smaller one too.
//! `AlreadyAcquired` gives the live token to whoever asks; two callers that ask for one offset
//! agree between themselves who works it.

mod answer;
mod backlog;
mod decide;
mod error;
mod kept;
mod name;
mod offsets;
mod rules;
mod view;

pub use answer::{AcquireResult, FailResult, ReplayResult, SucceedResult};
pub use backlog::Backlog;
pub use decide::{Decided, fail, renew, replay, submit, succeed, try_acquire};
pub use error::WorkLeaseError;
pub use kept::Domain;
pub use name::DomainName;
pub use offsets::Offsets;
pub use rules::DomainRules;
pub use view::{
    BacklogChange, Change, DomainView, OffsetView, Reservation, ReservationChange, Terminal,
    TerminalChange,
};
