//! Random calls are compared with an independent model of the contract, and the six invariants are
//! checked after every step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use tenure_core::work_lease::Domain;
use tenure_core::{
    AcquireResult, DomainRules, FailResult, ReplayResult, SucceedResult, Term, Token,
    WorkLeaseError, testing,
};
use tenure_store::memory::WorkLease;

use super::World;

const DOMAINS: [&str; 2] = ["A", "B"];
const TERM: Duration = Duration::from_secs(30);

/// A call on a domain.
#[derive(Clone, Copy, Debug)]
enum Call {
    TryAcquire(i64),
    Submit(i64),
    Succeed(Observed),
    Fail(Observed),
    Renew(Observed),
    Replay(i64),
    Watermark(i64),
    Forget(i64),
    Evict,
    Pass(u64),
}

/// The token that a call uses.
#[derive(Clone, Copy, Debug)]
enum Observed {
    Current,
    Earlier,
    Stranger,
}

fn any_offset() -> impl Strategy<Value = i64> {
    prop_oneof![
        12 => -2_i64..6,
        1 => Just(i64::MIN),
        1 => Just(i64::MIN + 1),
        1 => Just(i64::MAX - 1),
        1 => Just(i64::MAX),
    ]
}

fn any_token() -> impl Strategy<Value = Observed> {
    prop_oneof![
        8 => Just(Observed::Current),
        1 => Just(Observed::Earlier),
        1 => Just(Observed::Stranger),
    ]
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        8 => any_offset().prop_map(Call::TryAcquire),
        4 => any_offset().prop_map(Call::Submit),
        5 => any_token().prop_map(Call::Succeed),
        4 => any_token().prop_map(Call::Fail),
        1 => any_token().prop_map(Call::Renew),
        2 => any_offset().prop_map(Call::Replay),
        1 => (-2_i64..6).prop_map(Call::Watermark),
        1 => any_offset().prop_map(Call::Forget),
        2 => Just(Call::Evict),
        1 => (1_u64..40).prop_map(Call::Pass),
    ]
}

fn any_rules() -> impl Strategy<Value = DomainRules> {
    let term = Term::new(TERM).unwrap();
    (
        0_u32..3,
        any::<bool>(),
        prop_oneof![3 => Just(None), 1 => (0_u64..3).prop_map(Some)],
    )
        .prop_map(move |(max_retries, is_strict, backlog_limit)| DomainRules {
            max_retries,
            term: (!is_strict).then_some(term),
            backlog_limit,
        })
}

/// An independent model of the contract, with plain sets instead of ranges, which never forgets
/// anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    current: Option<Current>,
    processed: BTreeSet<i64>,
    failed: BTreeSet<i64>,
    backlog: VecDeque<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Current {
    offset: i64,
    acquired_at: u64,
    retry_count: u32,
    until: Option<u64>,
}

/// An answer without its token.
type Answers = Result<String, &'static str>;

impl Told {
    fn add_to_backlog(&mut self, offset: i64, rules: &DomainRules) -> Answers {
        if !self.backlog.contains(&offset) {
            let waiting = u64::try_from(self.backlog.len()).unwrap();
            if rules.backlog_limit.is_some_and(|limit| waiting >= limit) {
                return Err("backlog_full");
            }
            self.backlog.push_back(offset);
        }
        Ok("Enqueued".into())
    }

    fn is_terminal(&self, offset: i64, watermark: i64) -> Option<&'static str> {
        let is_open = self.backlog.contains(&offset)
            || self.current.is_some_and(|current| current.offset == offset);
        if self.failed.contains(&offset) {
            Some("AlreadyFailed")
        } else if self.processed.contains(&offset) || offset < watermark && !is_open {
            Some("AlreadyProcessed")
        } else {
            None
        }
    }

    fn acquire(
        &mut self,
        ask: (i64, bool),
        rules: &DomainRules,
        now: u64,
        watermark: i64,
    ) -> Answers {
        let (offset, is_submit) = ask;
        let until = rules.term.map(|_| now + TERM.as_secs());
        if let Some(terminal) = self.is_terminal(offset, watermark) {
            return Ok(terminal.into());
        }
        if let Some(current) = &mut self.current {
            if current.offset != offset {
                return self.add_to_backlog(offset, rules);
            }
            if current.until.is_some_and(|until| until <= now) {
                current.until = until;
                return Ok("Acquired".into());
            }
            return Ok("AlreadyAcquired".into());
        }
        match self.backlog.front() {
            Some(head) if *head != offset && is_submit => {
                return self.add_to_backlog(offset, rules);
            }
            Some(head) if *head != offset => return Err("backlog_ordering"),
            _ => self.backlog.pop_front(),
        };
        self.current = Some(Current {
            offset,
            acquired_at: now,
            retry_count: 0,
            until,
        });
        Ok("Acquired".into())
    }

    /// The offset in flight, if the token is current.
    fn held(&self, shown: Observed) -> Result<Current, &'static str> {
        match (self.current, shown) {
            (None, _) => Err("lease_not_found"),
            (Some(_), Observed::Earlier | Observed::Stranger) => Err("token_mismatch"),
            (Some(current), Observed::Current) => Ok(current),
        }
    }

    fn succeed(&mut self, shown: Observed) -> Answers {
        let current = self.held(shown)?;
        self.processed.insert(current.offset);
        self.current = None;
        Ok(match self.backlog.front() {
            None => "NoBacklog".into(),
            Some(head) => format!("NextHint({head})"),
        })
    }

    fn fail(&mut self, shown: Observed, rules: &DomainRules, now: u64) -> Answers {
        let mut current = self.held(shown)?;
        if current.retry_count >= rules.max_retries {
            self.failed.insert(current.offset);
            self.current = None;
            return Ok(match self.backlog.front() {
                None => "GiveUpNoBacklog".into(),
                Some(head) => format!("GiveUpNextHint({head})"),
            });
        }
        current.retry_count += 1;
        current.until = current.until.map(|_| now + TERM.as_secs());
        self.current = Some(current);
        Ok(format!("RetryScheduled({})", current.retry_count))
    }

    fn renew(&mut self, shown: Observed, now: u64) -> Answers {
        let mut current = self.held(shown)?;
        current.until = current.until.map(|_| now + TERM.as_secs());
        self.current = Some(current);
        Ok("renewed".into())
    }

    fn replay(&mut self, offset: i64, rules: &DomainRules, watermark: i64) -> Answers {
        if self.is_terminal(offset, watermark).is_none() {
            return Ok("NotTerminal".into());
        }
        self.add_to_backlog(offset, rules)?;
        self.processed.remove(&offset);
        self.failed.remove(&offset);
        Ok("Enqueued".into())
    }
}

/// The work lease, its model, and the issued tokens.
struct Pair {
    world: World,
    rules: DomainRules,
    lease: WorkLease,
    told: BTreeMap<&'static str, Told>,
    tokens: BTreeMap<&'static str, Vec<Token>>,
    now: u64,
    watermark: i64,
    forgiven: i64,
}

impl Pair {
    fn new(rules: DomainRules) -> Self {
        let world = World::new(None);
        Self {
            lease: world.lease(rules),
            world,
            rules,
            told: DOMAINS.map(|name| (name, Told::default())).into(),
            tokens: DOMAINS.map(|name| (name, Vec::new())).into(),
            now: 0,
            watermark: i64::MIN,
            forgiven: i64::MIN,
        }
    }

    /// Makes a call on both and compares their answers and contents.
    fn step(&mut self, domain: &'static str, call: Call) {
        let before = self.lease.domain(domain);
        let (said, told) = (self.really(domain, call), self.told(domain, call));
        assert_eq!(said, told, "{call:?} on {domain}");
        for name in DOMAINS {
            self.compare(name);
        }
        let after = self.lease.domain(domain);
        if said.is_err() {
            let before = before.filter(|kept| !kept.is_blank());
            let after = after.filter(|kept| !kept.is_blank());
            assert_eq!(after, before, "an error changed something");
        } else if let (Some(before), Some(after)) = (before, after) {
            drained_from_the_head(&before, &after, call);
        }
    }

    fn observed(&self, domain: &str, shown: Observed) -> Token {
        let tokens = &self.tokens[domain];
        let token = match shown {
            Observed::Current => tokens.last(),
            Observed::Earlier => tokens.iter().rev().nth(1),
            Observed::Stranger => None,
        };
        token
            .cloned()
            .unwrap_or_else(|| testing::token("stranger", 1))
    }

    fn really(&mut self, domain: &'static str, call: Call) -> Answers {
        let code = |error: WorkLeaseError| error.code();
        match call {
            Call::TryAcquire(offset) => {
                let answer = self.lease.try_acquire(domain, offset).map_err(code)?;
                Ok(self.note(domain, &answer))
            }
            Call::Submit(offset) => {
                let answer = self.lease.submit(domain, offset).map_err(code)?;
                Ok(self.note(domain, &answer))
            }
            Call::Succeed(shown) => {
                let token = self.observed(domain, shown);
                let answer: SucceedResult = self.lease.succeed(domain, &token).map_err(code)?;
                Ok(format!("{answer:?}"))
            }
            Call::Fail(shown) => {
                let token = self.observed(domain, shown);
                let answer: FailResult = self.lease.fail(domain, &token).map_err(code)?;
                Ok(format!("{answer:?}"))
            }
            Call::Renew(shown) => {
                let token = self.observed(domain, shown);
                self.lease.renew(domain, &token).map_err(code)?;
                Ok("renewed".into())
            }
            Call::Replay(offset) => {
                let answer: ReplayResult = self.lease.replay(domain, offset).map_err(code)?;
                Ok(format!("{answer:?}"))
            }
            Call::Watermark(offset) => {
                self.lease.advance_watermark(offset);
                Ok(String::new())
            }
            Call::Forget(offset) => {
                self.lease.forget_failed_below(offset);
                Ok(String::new())
            }
            Call::Evict => {
                self.lease.evict();
                Ok(String::new())
            }
            Call::Pass(seconds) => {
                self.world.pass(Duration::from_secs(seconds));
                Ok(String::new())
            }
        }
    }

    /// Records an issued token; asserts that no two grants have equal tokens, and that a repeated
    /// answer has the current token.
    fn note(&mut self, domain: &'static str, answer: &AcquireResult) -> String {
        let given = self.tokens.values().flatten();
        match answer {
            AcquireResult::Acquired(token) => {
                assert!(!given.clone().any(|earlier| earlier == token));
                self.tokens.entry(domain).or_default().push(token.clone());
                "Acquired".into()
            }
            AcquireResult::AlreadyAcquired(token) => {
                assert_eq!(self.tokens[domain].last(), Some(token));
                "AlreadyAcquired".into()
            }
            AcquireResult::Enqueued
            | AcquireResult::AlreadyProcessed
            | AcquireResult::AlreadyFailed => format!("{answer:?}"),
        }
    }

    fn told(&mut self, domain: &'static str, call: Call) -> Answers {
        let (now, watermark, rules) = (self.now, self.watermark, self.rules);
        let told = self.told.entry(domain).or_default();
        match call {
            Call::TryAcquire(offset) => told.acquire((offset, false), &rules, now, watermark),
            Call::Submit(offset) => told.acquire((offset, true), &rules, now, watermark),
            Call::Succeed(shown) => told.succeed(shown),
            Call::Fail(shown) => told.fail(shown, &rules, now),
            Call::Renew(shown) => told.renew(shown, now),
            Call::Replay(offset) => told.replay(offset, &rules, watermark),
            Call::Watermark(offset) => {
                self.watermark = watermark.max(offset);
                Ok(String::new())
            }
            Call::Forget(offset) => {
                self.forgiven = self.forgiven.max(offset);
                Ok(String::new())
            }
            Call::Evict => Ok(String::new()),
            Call::Pass(seconds) => {
                self.now += seconds;
                Ok(String::new())
            }
        }
        .inspect(|_| self.forgive())
    }

    fn forgive(&mut self) {
        let below = self.forgiven.min(self.watermark);
        for told in self.told.values_mut() {
            told.failed.retain(|offset| *offset >= below);
        }
    }

    /// Asserts that both contents agree and the invariants hold.
    fn compare(&self, name: &'static str) {
        let told = &self.told[name];
        let kept = self.lease.domain(name);
        let Some(kept) = kept else {
            assert!(told.current.is_none() && told.backlog.is_empty() && told.failed.is_empty());
            let first = told.processed.range(self.watermark..).next();
            assert_eq!(first, None, "{name} was evicted with a processed offset");
            return;
        };
        assert_eq!(kept.backlog().iter().collect::<VecDeque<_>>(), told.backlog);
        let current = kept.reservation().map(|current| Current {
            offset: current.offset,
            acquired_at: current.acquired_at.since(super::T0).as_secs(),
            retry_count: current.retry_count,
            until: current.until.map(|until| until.since(super::T0).as_secs()),
        });
        assert_eq!(current, told.current);
        for offset in told.processed.range(self.watermark..) {
            assert!(kept.processed().contains(*offset));
        }
        let remembered = told.processed.range(self.watermark..).count();
        assert_eq!(
            kept.processed().count(),
            u128::try_from(remembered).unwrap()
        );
        let failed = u128::try_from(told.failed.len()).unwrap();
        assert_eq!(kept.failed().count(), failed);
        let violations = violations(&kept);
        assert!(violations.is_empty(), "{name}: {violations:?}");
    }
}

/// Asserts that the backlog lost only its head, and only to the reservation.
fn drained_from_the_head(before: &Domain, after: &Domain, call: Call) {
    let (old, new) = (before.backlog(), after.backlog());
    let old: Vec<i64> = old.iter().collect();
    let new: Vec<i64> = new.iter().collect();
    if new.starts_with(&old) {
        assert!(new.len() <= old.len() + 1, "{call:?}");
        return;
    }
    assert!(
        matches!(call, Call::TryAcquire(_) | Call::Submit(_)),
        "{call:?}"
    );
    assert_eq!(old[1..], new, "{call:?}");
    assert_eq!(
        after.reservation().map(|current| current.offset),
        Some(old[0])
    );
}

/// Violations of the invariants in a domain. The type of a domain allows at most one reservation.
pub(super) fn violations(kept: &Domain) -> Vec<String> {
    let mut found = Vec::new();
    let backlog: Vec<i64> = kept.backlog().iter().collect();
    let (processed, failed) = (kept.processed(), kept.failed());
    if let Some(current) = kept.reservation() {
        let offset = current.offset;
        for (is_in, what) in [
            (processed.contains(offset), "processed"),
            (failed.contains(offset), "failed"),
            (backlog.contains(&offset), "the backlog"),
        ] {
            if is_in {
                found.push(format!("{offset} is in flight and in {what}"));
            }
        }
    }
    for offset in &backlog {
        if processed.contains(*offset) || failed.contains(*offset) {
            found.push(format!("{offset} waits and is terminal"));
        }
    }
    if backlog.iter().collect::<BTreeSet<_>>().len() != backlog.len() {
        found.push(format!("the backlog has duplicates: {backlog:?}"));
    }
    if failed
        .ranges()
        .any(|(first, last)| processed.contains(first) || processed.contains(last))
    {
        found.push("something is processed and failed".to_owned());
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Proves: S3-001, S3-007, S3-008, S3-009, S3-010, S3-021, S3-022, S3-025, S3-026, S3-027
    /// Proves: S3-028, S3-029, S3-030, S3-031, S3-045, S3-053
    #[test]
    fn random_calls_keep_the_contract(
        rules in any_rules(),
        calls in prop::collection::vec((0..DOMAINS.len(), any_call()), 1..150),
    ) {
        let mut pair = Pair::new(rules);
        for (domain, call) in calls {
            pair.step(DOMAINS[domain], call);
        }
    }
}
