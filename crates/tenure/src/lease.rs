//! Leases: the types of claim, renew, settle and reap.

pub use tenure_core::store::{
    Claim, Isolation, LeaseStore, Reap, Reaped, Recovered, Renew, Renewed, Rest, Settle,
    Settlement, WhileHeld,
};
pub use tenure_core::{
    Again, Boundary, Content, Counters, Fence, Guarded, Held, Hold, Item, ItemId, LapsePolicy,
    Lateness, Lease, OutcomeKind, PastHold, Record, Refusal, RetryPolicy, RetryRules, State, Term,
    Token, WorkerId,
};

pub use crate::tenure::new_worker_id;
