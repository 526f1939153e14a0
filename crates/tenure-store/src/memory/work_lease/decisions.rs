//! The decisions of the work lease as functions. They are those of the core, unless a test plants a
//! wrong one to check that the suite detects it.

use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::work_lease::{
    Decided, Domain, DomainView, OffsetView, fail, renew, replay, submit, succeed, try_acquire,
};
use tenure_core::{
    AcquireResult, DomainRules, FailResult, ReplayResult, SucceedResult, Timestamp, Token,
};

/// The signature of `try_acquire` and `submit`.
pub(super) type AcquireRule = fn(
    &DomainView<'_>,
    OffsetView,
    &DomainRules,
    Timestamp,
    &dyn Fn() -> Token,
) -> Decided<AcquireResult>;

/// Prunes a domain and returns whether it may be evicted. Called under the shard lock,
/// under which domains are also found and created.
pub(super) type MayEvict = fn(&mut Arc<Mutex<Domain>>, &dyn Fn(&mut Domain)) -> bool;

/// The functions that a work lease calls before it changes anything.
#[doc(hidden)]
#[derive(Debug)]
pub struct Decisions {
    pub try_acquire: AcquireRule,
    pub submit: AcquireRule,
    pub succeed: fn(&DomainView<'_>, &Token) -> Decided<SucceedResult>,
    pub fail: fn(&DomainView<'_>, &Token, &DomainRules, Timestamp) -> Decided<FailResult>,
    pub renew: fn(&DomainView<'_>, &Token, &DomainRules, Timestamp) -> Decided<Option<Timestamp>>,
    pub replay: fn(&DomainView<'_>, OffsetView, &DomainRules) -> Decided<ReplayResult>,
    pub may_evict: MayEvict,
}

impl Default for Decisions {
    fn default() -> Self {
        Self {
            try_acquire,
            submit,
            succeed,
            fail,
            renew,
            replay,
            may_evict,
        }
    }
}

/// Evicts only a blank record without other references. A caller that has found the record but not
/// yet locked it would otherwise continue on an unreachable record, beside a new one.
fn may_evict(record: &mut Arc<Mutex<Domain>>, prune: &dyn Fn(&mut Domain)) -> bool {
    let Some(alone) = Arc::get_mut(record) else {
        return false;
    };
    let kept = alone.get_mut().unwrap_or_else(PoisonError::into_inner);
    prune(kept);
    kept.is_blank()
}
