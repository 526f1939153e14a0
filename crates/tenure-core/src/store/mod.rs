//! Store ports, one trait for each kind of caller. Stores are used as trait objects, so their
//! methods return boxed futures.
//!
//! Most operations take an optional `now`. `None` means the store's own clock, which alone decides
//! whether a lease is live; tests pass a value to control the time.

mod claim;
mod cluster;
mod delays;
mod error;
mod examine;
mod intake;
mod jobs;
mod keys;
mod lease;
mod operate;
mod prune;
mod recovered;
mod replays;
mod tables;
mod webhooks;
mod work_lease;

use std::future::Future;
use std::pin::Pin;

pub use claim::{Claim, Isolation};
pub use cluster::{ChangeSettings, Cluster, ClusterSettings, Presence, WorkerRecord, WorkerReport};
pub use delays::{
    DelayPosition, DelayedIn, DelayedPage, Delays, ListDelayed, RetryAnswer, RetryNow,
};
pub use error::{StoreError, StoreErrorKind};
pub use examine::{Examine, Finding, Verdict};
pub use intake::{Enqueued, Intake};
pub use jobs::{
    ChunkEnd, ChunkHold, ClaimChunk, EndChunk, HeldChunks, HoldError, JobFilter, JobHold, Jobs,
    ProvidesJobs, RenewChunks, accepted, only_job,
};
pub use keys::{KeyFacts, KeyFilter, KeyRecord, KeyState, Keys, Skip};
pub use lease::{LeaseStore, Reap, Reaped, Renew, Renewed, Rest, Settle, Settlement};
pub use operate::{
    Bury, Counts, DeliveryCounts, Filter, Kind, Operate, Page, Pause, Queue, QueueCounts,
    QueueRules, Queues, Replay, Replayed, SeparateTopic,
};
pub use prune::{Prune, Pruned, Pruner};
pub use recovered::Recovered;
pub use replays::{
    NewReplay, ProvidesReplays, ReplayOperation, ReplayRate, ReplayState, Replays, StepReplay,
    Stepped,
};
pub use tables::{OnStep, Rows, Tables, WhileHeld};
pub use webhooks::{ChangeEndpoint, Due, EndpointLane, ProvidesWebhooks, Webhooks};
pub use work_lease::{Contract, DomainAsk, ProvidesWorkLeases, WorkLeases};

/// Future of a store operation.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// All ports of a store of the built-in outbox.
pub trait Store:
    LeaseStore
    + Intake
    + Operate
    + Queues
    + Delays
    + Cluster
    + Keys
    + Pruner
    + Examine
    + ProvidesWorkLeases
    + ProvidesWebhooks
    + ProvidesReplays
    + ProvidesJobs
{
}

impl<T> Store for T where
    T: LeaseStore
        + Intake
        + Operate
        + Queues
        + Delays
        + Cluster
        + Keys
        + Pruner
        + Examine
        + ProvidesWorkLeases
        + ProvidesWebhooks
        + ProvidesReplays
        + ProvidesJobs
{
}
