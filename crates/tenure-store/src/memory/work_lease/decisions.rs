//! The decisions of the work lease, each a function: those of the core, unless a test planted a
//! wrong one to see whether the suite notices.

use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::domain::{
    Decided, Domain, DomainView, OffsetView, fail, renew, replay, submit, succeed, try_acquire,
};
use tenure_core::{
    AcquireResult, DomainRules, FailResult, ReplayResult, SucceedResult, Timestamp, Token,
};

/// A question for an offset.
pub(super) type Ask = fn(
    &DomainView<'_>,
    OffsetView,
    &DomainRules,
    Timestamp,
    &dyn Fn() -> Token,
) -> Decided<AcquireResult>;

/// Whether a domain may be evicted. Asked under the lock under which domains are found and made.
/// What can be forgotten of it is, before.
pub(super) type MayEvict = fn(&mut Arc<Mutex<Domain>>, &dyn Fn(&mut Domain)) -> bool;

/// What a work lease asks before it changes anything.
pub(super) struct Decisions {
    pub(super) try_acquire: Ask,
    pub(super) submit: Ask,
    pub(super) succeed: fn(&DomainView<'_>, &Token) -> Decided<SucceedResult>,
    pub(super) fail: fn(&DomainView<'_>, &Token, &DomainRules, Timestamp) -> Decided<FailResult>,
    pub(super) renew:
        fn(&DomainView<'_>, &Token, &DomainRules, Timestamp) -> Decided<Option<Timestamp>>,
    pub(super) replay: fn(&DomainView<'_>, OffsetView, &DomainRules) -> Decided<ReplayResult>,
    pub(super) may_evict: MayEvict,
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

/// Only what is blank and referenced by nobody else. Whoever has found the record but not yet
/// locked it would go on with one that nobody finds any more, beside a new one.
fn may_evict(record: &mut Arc<Mutex<Domain>>, prune: &dyn Fn(&mut Domain)) -> bool {
    let Some(alone) = Arc::get_mut(record) else {
        return false;
    };
    let kept = alone.get_mut().unwrap_or_else(PoisonError::into_inner);
    prune(kept);
    kept.is_blank()
}
