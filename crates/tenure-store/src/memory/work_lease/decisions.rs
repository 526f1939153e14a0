//! The decisions of the work lease, each a function: those of the core, unless a test planted a
//! wrong one to see whether the suite notices.

use std::sync::{Arc, Mutex};

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
pub(super) type MayEvict = fn(&mut Arc<Mutex<Domain>>) -> bool;

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
fn may_evict(record: &mut Arc<Mutex<Domain>>) -> bool {
    let alone = Arc::get_mut(record).map(|record| match record.get_mut() {
        Ok(kept) => kept.is_blank(),
        Err(poisoned) => poisoned.into_inner().is_blank(),
    });
    alone.unwrap_or(false)
}
