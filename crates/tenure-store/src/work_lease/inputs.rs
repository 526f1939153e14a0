//! Inputs of a work-lease decision, and the core's decisions on them, shared by every store.

use tenure_core::work_lease::{self, Decided, DomainView, OffsetView};
use tenure_core::{
    AcquireResult, DomainRules, FailResult, ReplayResult, SucceedResult, Timestamp, Token,
};

/// All inputs of a decision.
pub(crate) struct DecisionInputs<'a> {
    pub(crate) view: DomainView<'a>,
    pub(crate) at: OffsetView,
    pub(crate) rules: &'a DomainRules,
    pub(crate) now: Timestamp,
}

impl DecisionInputs<'_> {
    pub(crate) fn try_acquire(&self, fresh: &Token) -> Decided<AcquireResult> {
        let fresh = || fresh.clone();
        work_lease::try_acquire(&self.view, self.at, self.rules, self.now, &fresh)
    }

    pub(crate) fn submit(&self, fresh: &Token) -> Decided<AcquireResult> {
        let fresh = || fresh.clone();
        work_lease::submit(&self.view, self.at, self.rules, self.now, &fresh)
    }

    pub(crate) fn succeed(&self, token: &Token) -> Decided<SucceedResult> {
        work_lease::succeed(&self.view, token)
    }

    pub(crate) fn fail(&self, token: &Token) -> Decided<FailResult> {
        work_lease::fail(&self.view, token, self.rules, self.now)
    }

    pub(crate) fn renew(&self, token: &Token) -> Decided<Option<Timestamp>> {
        work_lease::renew(&self.view, token, self.rules, self.now)
    }
}

/// Decides a replay, which needs no argument besides the inputs.
pub(crate) fn replay(inputs: &DecisionInputs<'_>) -> Decided<ReplayResult> {
    work_lease::replay(&inputs.view, inputs.at, inputs.rules)
}
