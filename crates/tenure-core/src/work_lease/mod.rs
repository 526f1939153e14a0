//! The work lease: the offsets of one domain are worked strictly in the order of their arrival, one
//! at a time, and none twice.
//!
//! Everything here is pure. A decision ([`try_acquire`], [`succeed`], [`fail`], [`submit`],
//! [`replay`], [`renew`]) takes a [`DomainView`] of one domain and returns an answer with a
//! [`Change`]; the store of the domain, in process or in a database, provides the view and applies
//! the change under the domain's own lock. So all implementations keep the same contract.
//!
//! | operation | answers | |
//! |---|---|---|
//! | [`try_acquire`] | [`AcquireResult`] | acquires or queues; an error if out of order |
//! | [`succeed`] | [`SucceedResult`] | the offset is processed; names the next head |
//! | [`fail`] | [`FailResult`] | a retry under the same token, or given up |
//! | [`submit`] | [`AcquireResult`] | extension: queues an offset where `try_acquire` fails |
//! | [`replay`] | [`ReplayResult`] | extension: an operator puts a terminal offset at the tail |
//! | [`renew`] | the new end | extension, only with a term: extends it |
//!
//! Nothing here acquires the next offset, waits or measures a delay: the caller computes the time
//! of a retry from `acquired_at` and `retry_count` of the reservation. The order is that of
//! arrival, not of numbers: an idle domain without a backlog accepts any offset that is not
//! terminal, even a smaller one. `AlreadyAcquired` returns the live token to every caller; two
//! callers that request one offset must agree between themselves which of them works it.

mod answer;
mod backlog;
mod decide;
mod error;
mod name;
mod offsets;
mod ranges;
mod record;
mod rules;
mod space;
mod view;

pub use answer::{AcquireResult, FailResult, ReplayResult, SucceedResult};
pub use backlog::Backlog;
pub use decide::{Decided, fail, renew, replay, submit, succeed, try_acquire};
pub use error::{StoredWorkLeaseError, WorkLeaseError};
pub use name::DomainName;
pub use offsets::Offsets;
pub use ranges::{NearRanges, RangesChange, TerminalRange};
pub use record::Domain;
pub use rules::DomainRules;
pub use space::SpaceName;
pub use view::{
    BacklogChange, Change, DomainView, OffsetView, Reservation, ReservationChange, Terminal,
    TerminalChange,
};
