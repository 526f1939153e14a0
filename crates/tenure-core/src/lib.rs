//! The words and the rules of Tenure: what an item, a lease and a token are, which transitions
//! exist, who may change a claimed item, what follows a failure; and the ports through which the
//! rest of Tenure asks a store.
//!
//! This crate exists so that the compiler proves the rules do no I/O: it reads no clock, draws no
//! random number, spawns nothing and knows no database. Time and chance come in as arguments.
//!
//! | verb | does |
//! |---|---|
//! | [`claim`](store::LeaseStore::claim) | gives claimable items a lease: holder, token, fence, until |
//! | [`renew`](store::LeaseStore::renew) | moves `until` forward for a lease that still stands |
//! | [`settle`](store::LeaseStore::settle) | ends the hold on an item with an [`Outcome`] |
//! | [`reap`](store::LeaseStore::reap) | ends lapsed leases |
//!
//! The work lease, which keeps the order of a domain's offsets, is in [`domain`].
//!
//! The laws are listed at [`store::LeaseStore`]. *Refused* is an answer, not an error: see
//! [`Guarded`].

pub mod domain;
mod event;
mod guard;
mod invalid;
mod item;
pub mod job;
mod lease;
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
mod turn;
pub mod webhook;
mod why;

pub use domain::{
    AcquireResult, DomainName, DomainRules, FailResult, ReplayResult, Reservation, SpaceName,
    SucceedResult, WorkLeaseError,
};
pub use event::{
    DELAY_MAX, Encoding, Event, HEADERS_BYTES_MAX, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX,
    PAYLOAD_DEPTH_MAX, StoredEvent,
};
pub use guard::{
    Boundary, Guarded, Lateness, Refusal, may_reap, may_renew, may_settle, refusal_of,
};
pub use invalid::Invalid;
pub use item::{Content, Counters, EndedHold, Held, Hold, Item, ItemId, Record};
pub use lease::{Lease, Term, WorkerId};
pub use outcome::{Outcome, Word};
pub use publisher::{Publication, PublishError, PublishErrorKind, Publisher, Publishing};
pub use queue::{Priority, QueueName};
pub use retry::{Again, DELAY_MIN, Failure, LapsePolicy, RetryPolicy};
pub use settings::{Rhythm, Setting, Settings};
pub use state::{Cause, State, TRANSITIONS};
pub use table::{
    Addition, Adds, AdoptedTable, Columns, Condition, Direction, FoundColumn, FoundIndex,
    FoundKind, FoundTable, Holds, Identifier, Indexes, LeaseTable, MapFault, Obstacle, Plan,
    PlannedIndex, Said, Stage, States, StatusColumn, StatusWord, SyncState, Whereabouts, Words,
};
pub use time::{Clock, Timestamp, brief_duration, duration_text, parse_duration};
pub use token::{Fence, Token};
pub use topic::TopicPattern;
pub use turn::{Fate, OnDead, RUN_MAX, Standing, lapse_run, run_length, settle_run};
pub use why::{Facts, JobFacts, Why, why, why_job};
