//! What Tenure asks of a store, grouped by who asks. A store is used as a trait object; its
//! verbs answer with boxed futures.
//!
//! Every verb takes an optional `now`: `None` is the store's own clock, the only judge of a lease;
//! tests give it to move time.

mod cluster;
mod domains;
mod error;
mod examine;
mod intake;
mod jobs;
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

pub use cluster::{ChangeSettings, Cluster, ClusterSettings, Presence, WorkerRecord, WorkerReport};
pub use domains::{DomainFacts, DomainFilter, DomainRecord, DomainState, Domains, Skip};
pub use error::{StoreError, StoreErrorKind};
pub use examine::{Examine, Finding, Verdict};
pub use intake::{Enqueued, Intake};
pub use jobs::{
    CheckpointError, ChunkEnd, ChunkHold, ClaimChunk, EndChunk, HeldChunks, JobFilter, JobHold,
    Jobs, KeepsJobs, RenewChunks,
};
pub use lease::{
    Claim, Company, LeaseStore, Reap, Reaped, Renew, Renewed, Rest, Settle, Settlement,
};
pub use operate::{
    Bury, Counts, DeliveryCounts, Filter, Kind, Operate, Page, Pause, Queue, QueueCounts, Queues,
    Replay, Replayed,
};
pub use prune::{Prune, Pruned, Pruner};
pub use recovered::Recovered;
pub use replays::{
    KeepsReplays, NewReplay, Rate, ReplayOperation, ReplayState, Replays, StepReplay, Stepped,
};
pub use tables::{Rows, Tables, Tell, WhileHeld};
pub use webhooks::{ChangeEndpoint, Due, EndpointLane, KeepsWebhooks, Webhooks};
pub use work_lease::{Contract, DomainAsk, KeepsWorkLeases, WorkLeases};

/// The answer of a store, on its way.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store of the built-in outbox: everything that is asked of one.
pub trait Store:
    LeaseStore
    + Intake
    + Operate
    + Queues
    + Cluster
    + Domains
    + Pruner
    + Examine
    + KeepsWorkLeases
    + KeepsWebhooks
    + KeepsReplays
    + KeepsJobs
{
}

impl<T> Store for T where
    T: LeaseStore
        + Intake
        + Operate
        + Queues
        + Cluster
        + Domains
        + Pruner
        + Examine
        + KeepsWorkLeases
        + KeepsWebhooks
        + KeepsReplays
        + KeepsJobs
{
}
