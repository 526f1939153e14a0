//! What a decision of the work lease sees, and the core's decisions on it: as every store runs
//! them.

use tenure_core::domain::{self, Decided, DomainView, OffsetView};
use tenure_core::{
    AcquireResult, DomainRules, FailResult, ReplayResult, SucceedResult, Timestamp, Token,
};

/// Everything that a decision is made from.
pub(crate) struct Sight<'a> {
    pub(crate) view: DomainView<'a>,
    pub(crate) at: OffsetView,
    pub(crate) rules: &'a DomainRules,
    pub(crate) now: Timestamp,
}

impl Sight<'_> {
    pub(crate) fn try_acquire(&self, fresh: &Token) -> Decided<AcquireResult> {
        let fresh = || fresh.clone();
        domain::try_acquire(&self.view, self.at, self.rules, self.now, &fresh)
    }

    pub(crate) fn submit(&self, fresh: &Token) -> Decided<AcquireResult> {
        let fresh = || fresh.clone();
        domain::submit(&self.view, self.at, self.rules, self.now, &fresh)
    }

    pub(crate) fn succeed(&self, token: &Token) -> Decided<SucceedResult> {
        domain::succeed(&self.view, token)
    }

    pub(crate) fn fail(&self, token: &Token) -> Decided<FailResult> {
        domain::fail(&self.view, token, self.rules, self.now)
    }

    pub(crate) fn renew(&self, token: &Token) -> Decided<Option<Timestamp>> {
        domain::renew(&self.view, token, self.rules, self.now)
    }
}

/// The decision that needs nothing but what is seen; so it is handed on as it is.
pub(crate) fn replay(sight: &Sight<'_>) -> Decided<ReplayResult> {
    domain::replay(&sight.view, sight.at, sight.rules)
}
