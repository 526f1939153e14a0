//! Calls on the work leases of a store, with a default space, rules and time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::store::{Contract, DomainAsk, Store, WorkLeases};
use tenure_core::{
    AcquireResult, DomainName, DomainRules, FailResult, ReplayResult, Reservation, SpaceName,
    SucceedResult, Term, Timestamp, Token, WorkLeaseError,
};

use super::{T0, World, token};

/// Calls on the work leases of a store.
#[derive(Clone)]
pub(crate) struct Operator<'a> {
    leases: &'a dyn WorkLeases,
    space: SpaceName,
    rules: DomainRules,
    now: Timestamp,
}

/// The calls on a world in the queue layout: the space `payments-3`, at [`T0`].
pub(crate) fn operator(world: &dyn World) -> Operator<'_> {
    Operator::new(world.outbox().expect("a store in the queue layout"))
}

fn name(domain: &str) -> DomainName {
    DomainName::new(domain).expect("a domain's name")
}

impl<'a> Operator<'a> {
    pub(crate) fn new(store: &'a dyn Store) -> Self {
        Self {
            leases: store.work_leases(),
            space: SpaceName::new("payments-3").expect("a space's name"),
            rules: DomainRules::default(),
            now: T0,
        }
    }

    pub(crate) fn space(mut self, space: &str) -> Self {
        self.space = SpaceName::new(space).expect("a space's name");
        self
    }

    /// Returns these calls with changed rules.
    pub(crate) fn rules(mut self, change: impl FnOnce(&mut DomainRules)) -> Self {
        change(&mut self.rules);
        self
    }

    /// Returns these calls with a term of this many seconds.
    pub(crate) fn term(self, seconds: u64) -> Self {
        let term = Term::new(Duration::from_secs(seconds)).expect("a term");
        self.rules(|rules| rules.term = Some(term))
    }

    /// Returns these calls at another time.
    pub(crate) fn at(&self, now: Timestamp) -> Self {
        Self {
            now,
            ..self.clone()
        }
    }

    pub(crate) fn ask(&self, domain: &str) -> DomainAsk {
        DomainAsk::new(self.space.clone(), name(domain))
            .rules(self.rules)
            .at(self.now)
    }

    pub(crate) async fn try_acquire(&self, domain: &str, offset: i64) -> Contract<AcquireResult> {
        let (ask, fresh) = (self.ask(domain), fresh());
        let answer = self.leases.try_acquire(&ask, offset, &fresh).await;
        answer.expect("try_acquire")
    }

    /// Acquires an offset, which must succeed; returns its token.
    pub(crate) async fn acquire(&self, domain: &str, offset: i64) -> Token {
        match self.try_acquire(domain, offset).await {
            Ok(AcquireResult::Acquired(token)) => token,
            other => panic!("{offset} of {domain} was not acquired but {other:?}"),
        }
    }

    pub(crate) async fn submit(&self, domain: &str, offset: i64) -> Contract<AcquireResult> {
        let (ask, fresh) = (self.ask(domain), fresh());
        let answer = self.leases.submit(&ask, offset, &fresh).await;
        answer.expect("submit")
    }

    pub(crate) async fn succeed(&self, domain: &str, token: &Token) -> Contract<SucceedResult> {
        let answer = self.leases.succeed(&self.ask(domain), token).await;
        answer.expect("succeed")
    }

    pub(crate) async fn fail(&self, domain: &str, token: &Token) -> Contract<FailResult> {
        let answer = self.leases.fail(&self.ask(domain), token).await;
        answer.expect("fail")
    }

    pub(crate) async fn renew(&self, domain: &str, token: &Token) -> Contract<Option<Timestamp>> {
        let answer = self.leases.renew(&self.ask(domain), token).await;
        answer.expect("renew")
    }

    pub(crate) async fn replay(&self, domain: &str, offset: i64) -> Contract<ReplayResult> {
        let answer = self.leases.replay(&self.ask(domain), offset).await;
        answer.expect("replay")
    }

    pub(crate) async fn reservation(&self, domain: &str) -> Option<Reservation> {
        let answer = self.leases.reservation(&self.ask(domain)).await;
        answer.expect("reservation")
    }

    pub(crate) async fn idle_with_backlog(&self, limit: u32) -> Vec<(String, i64)> {
        let answer = self.leases.idle_with_backlog(&self.space, limit).await;
        named(answer.expect("idle_with_backlog"))
    }

    pub(crate) async fn lapsed(&self, limit: u32) -> Vec<(String, i64)> {
        let answer = self.leases.lapsed(&self.space, limit, Some(self.now)).await;
        named(answer.expect("lapsed"))
    }

    pub(crate) async fn watermark(&self) -> i64 {
        let answer = self.leases.watermark(&self.space).await;
        answer.expect("watermark")
    }

    pub(crate) async fn advance_watermark(&self, offset: i64) -> i64 {
        let answer = self.leases.advance_watermark(&self.space, offset).await;
        answer.expect("advance_watermark")
    }

    pub(crate) async fn forget_failed_below(&self, offset: i64) {
        let answer = self.leases.forget_failed_below(&self.space, offset).await;
        answer.expect("forget_failed_below");
    }

    /// Acquires and processes an offset; returns the hint.
    pub(crate) async fn process(&self, domain: &str, offset: i64) -> Option<i64> {
        let token = self.acquire(domain, offset).await;
        self.end(domain, &token).await
    }

    /// Marks the offset of this token as processed; returns the hint.
    pub(crate) async fn end(&self, domain: &str, token: &Token) -> Option<i64> {
        let answer = self.succeed(domain, token).await;
        answer.expect("it is held").hint()
    }

    /// Acquires an offset and gives it up at once, which the rules must allow; returns the hint.
    pub(crate) async fn give_up(&self, domain: &str, offset: i64) -> Option<i64> {
        let token = self.acquire(domain, offset).await;
        let answer = self.fail(domain, &token).await.expect("it is held");
        assert!(!matches!(answer, FailResult::RetryScheduled(_)));
        answer.hint()
    }
}

/// The error of an offset that is not the head.
pub(crate) fn out_of_order(domain: &str, expected: i64, got: i64) -> WorkLeaseError {
    WorkLeaseError::BacklogOrdering {
        domain: name(domain),
        expected,
        got,
    }
}

pub(crate) fn mismatch(domain: &str) -> WorkLeaseError {
    WorkLeaseError::TokenMismatch {
        domain: name(domain),
    }
}

pub(crate) fn no_lease(domain: &str) -> WorkLeaseError {
    WorkLeaseError::LeaseNotFound {
        domain: name(domain),
    }
}

/// A token that no other grant of this process has.
fn fresh() -> Token {
    static GRANTS: AtomicU64 = AtomicU64::new(1);
    token("orchestrator", GRANTS.fetch_add(1, Ordering::Relaxed))
}

fn named(found: Vec<(DomainName, i64)>) -> Vec<(String, i64)> {
    let found = found.into_iter();
    let found = found.map(|(domain, offset)| (domain.as_str().to_owned(), offset));
    found.collect()
}
