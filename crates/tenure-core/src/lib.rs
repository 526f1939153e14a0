//! Core of Tenure: items, leases and tokens; the transitions between states; the guards on claimed
//! items; the retry policies; and the ports to a store.
//!
//! The rules do no I/O: this crate reads no clock, draws no random numbers, spawns nothing and
//! knows no database. Time and random numbers are arguments.
//!
//! | operation | does |
//! |---|---|
//! | [`claim`](store::LeaseStore::claim) | takes one lease on claimable items |
//! | [`renew`](store::LeaseStore::renew) | moves `until` forward for a live lease |
//! | [`settle`](store::LeaseStore::settle) | ends the lease on an item with an [`Outcome`] |
//! | [`reap`](store::LeaseStore::reap) | ends lapsed leases |
//!
//! The work lease, which keeps the order of a domain's offsets, is in [`work_lease`].
//!
//! The rules of the lease are listed at [`store::LeaseStore`]. *Refused* is an answer, not an
//! error: see [`Guarded`].

// First, because macros are visible only below their definition.
#[macro_use]
mod words;

mod escapes;
mod event;
mod guard;
mod invalid;
mod item;
pub mod job;
mod lease;
mod new_event;
mod outcome;
mod publisher;
mod queue;
pub mod reason;
mod retry;
mod settings;
mod state;
pub mod store;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod time;
mod token;
mod topic;
mod trace;
mod turn;
pub mod webhook;
mod why;
pub mod work_lease;

pub use event::{
    DELAY_MAX, Encoding, Event, HEADERS_BYTES_MAX, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX,
    PAYLOAD_DEPTH_MAX, PayloadError, StoredEvent,
};
pub use guard::{
    Boundary, Guarded, Lateness, Refusal, may_reap, may_renew, may_settle, refusal_of,
};
pub use invalid::{Invalid, Problems};
pub use item::{Content, Counters, Held, Hold, Item, ItemId, PastHold, Record};
pub use lease::{Lease, Term, WorkerId};
pub use new_event::NewEvent;
pub use outcome::{IntoOutcome, Outcome, OutcomeKind};
pub use publisher::{Publication, PublishError, PublishErrorKind, Publisher, Publishing};
pub use queue::{Priority, QueueName};
pub use retry::{Again, DELAY_MIN, Failure, LapsePolicy, RetryPolicy, RetryRules};
pub use settings::{LeaseTiming, Setting, Settings};
pub use state::{Cause, State, TRANSITIONS};
pub use table::{
    Addition, Adds, AdoptedTable, ColumnFacts, Columns, Condition, Direction, Holds, Identifier,
    IndexFacts, Indexes, LeaseTable, MapFault, Obstacle, Plan, PlannedIndex, Stage, States,
    StatusColumn, StatusWord, StatusWords, SyncState, TableFacts, TableKind, TableLocation,
    TableMap,
};
pub use time::{Clock, Timestamp, brief_duration, duration_text, parse_duration};
pub use token::{Fence, Token, Tokens};
pub use topic::{TopicPattern, TopicSet};
pub use trace::{HandleSpan, Sampling, TRACEPARENT, TRACESTATE, TraceParent, Tracer};
pub use turn::{Fate, KeyStatus, OnDead, RUN_MAX, lapse_run, run_length, settle_run};
pub use why::{Facts, JobFacts, Why, why, why_job};
pub use work_lease::{
    AcquireResult, DomainName, DomainRules, FailResult, ReplayResult, Reservation, SpaceName,
    SucceedResult, WorkLeaseError,
};
