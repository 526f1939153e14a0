//! The model: the work lease in process and a store run the same random script side by side. After
//! each step every answer, error and reservation and the whole contents must be the same, and the
//! invariants must hold. Tokens are compared by the number of their grant.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tenure_core::store::{Contract, DomainAsk};
use tenure_core::testing::{Extent, ManualClock, token};
use tenure_core::{
    AcquireResult, Clock as _, DomainName, Reservation, SpaceName, Timestamp, Token,
};
use tenure_store::memory::WorkLease;

use super::contents::{Contents, Place};
use super::script::{DOMAINS, Script, Step, Verb, script};
use crate::world::T0;

/// A token that no other grant of this process has.
fn fresh() -> Token {
    static GRANTS: AtomicU64 = AtomicU64::new(1);
    token("model", GRANTS.fetch_add(1, Ordering::Relaxed))
}

/// The tokens that one side issued, in order.
#[derive(Default)]
struct Grants(Vec<Token>);

impl Grants {
    /// The number of the grant of this token; a new token gets the next number.
    fn number(&mut self, token: &Token) -> usize {
        let known = self.0.iter().position(|known| known == token);
        known.unwrap_or_else(|| {
            self.0.push(token.clone());
            self.0.len() - 1
        })
    }

    /// The token issued this many grants ago; an unknown token if there were fewer grants.
    fn ago(&self, grants: usize) -> Token {
        let number = self.0.len().checked_sub(grants + 1);
        number.map_or_else(|| token("stranger", 1), |number| self.0[number].clone())
    }

    fn told(&mut self, answer: Contract<AcquireResult>) -> String {
        match answer {
            Ok(AcquireResult::Acquired(token)) => {
                let known = self.0.len();
                let number = self.number(&token);
                assert_eq!(number, known, "a token is given out once");
                format!("acquired #{number}")
            }
            Ok(AcquireResult::AlreadyAcquired(token)) => {
                format!("already acquired #{}", self.number(&token))
            }
            answer => format!("{answer:?}"),
        }
    }

    fn told_reservation(&mut self, held: Option<Reservation>) -> String {
        let Some(held) = held else {
            return "idle".to_owned();
        };
        let number = self.number(&held.token);
        format!(
            "{} #{number} since {:?}, {} retries, until {:?}",
            held.offset, held.acquired_at, held.retry_count, held.until
        )
    }
}

struct Model {
    lease: WorkLease,
    clock: Arc<ManualClock>,
    forgiven: i64,
    grants: Grants,
}

impl Model {
    fn new(script: &Script) -> Self {
        let clock = Arc::new(ManualClock::new(T0));
        Self {
            lease: WorkLease::new(script.rules)
                .clock(Arc::<ManualClock>::clone(&clock))
                .mint(fresh),
            clock,
            forgiven: i64::MIN,
            grants: Grants::default(),
        }
    }

    fn run(&mut self, step: &Step) -> String {
        self.clock.advance(step.wait);
        let (lease, domain) = (&self.lease, DOMAINS[step.domain]);
        let held = || lease.reservation(domain).map(|held| held.token);
        let held = || held().unwrap_or_else(|| token("stranger", 1));
        match step.verb {
            Verb::TryAcquire(offset) => self.grants.told(lease.try_acquire(domain, offset)),
            Verb::Submit(offset) => self.grants.told(lease.submit(domain, offset)),
            Verb::Follow => match self.head(domain) {
                Some(head) => self.grants.told(lease.try_acquire(domain, head)),
                None => String::new(),
            },
            Verb::Succeed => format!("{:?}", lease.succeed(domain, &held())),
            Verb::Fail => format!("{:?}", lease.fail(domain, &held())),
            Verb::Renew => format!("{:?}", lease.renew(domain, &held())),
            Verb::SucceedWith(ago) => {
                format!("{:?}", lease.succeed(domain, &self.grants.ago(ago)))
            }
            Verb::FailWith(ago) => format!("{:?}", lease.fail(domain, &self.grants.ago(ago))),
            Verb::RenewWith(ago) => format!("{:?}", lease.renew(domain, &self.grants.ago(ago))),
            Verb::Replay(offset) => format!("{:?}", lease.replay(domain, offset)),
            Verb::Advance(offset) => {
                lease.advance_watermark(offset);
                lease.watermark().to_string()
            }
            Verb::Forget(offset) => {
                lease.forget_failed_below(offset);
                self.forgiven = self.forgiven.max(offset);
                String::new()
            }
        }
    }

    fn head(&self, domain: &str) -> Option<i64> {
        self.lease.domain(domain)?.backlog().head()
    }

    fn model_state(&self, domain: &str) -> Contents {
        let kept = self.lease.domain(domain);
        kept.map_or_else(Contents::default, |domain| Contents::of(&domain))
    }

    /// The whole visible state.
    fn picture(&mut self) -> String {
        let mut lines = vec![self.lease.watermark().to_string()];
        for domain in DOMAINS {
            let held = self.lease.reservation(domain);
            lines.push(self.grants.told_reservation(held));
            lines.push(format!("{:?}", self.model_state(domain)));
        }
        lines.push(listed(self.lease.idle_with_backlog()));
        lines.push(listed(self.lease.lapsed()));
        lines.join("\n")
    }
}

/// Sorts the list, because the work lease in process has no order.
fn listed(found: Vec<(DomainName, i64)>) -> String {
    let found: BTreeMap<DomainName, i64> = found.into_iter().collect();
    format!("{found:?}")
}

/// A store, in its own space.
struct ModelState<'a> {
    place: &'a Place,
    space: SpaceName,
    script: &'a Script,
    grants: Grants,
}

impl ModelState<'_> {
    fn ask(&self, domain: &str, now: Timestamp) -> DomainAsk {
        DomainAsk::new(self.space.clone(), DomainName::new(domain).unwrap())
            .rules(self.script.rules)
            .at(now)
    }

    async fn held(&self, ask: &DomainAsk) -> Token {
        let leases = self.place.store().work_leases();
        let held = leases.reservation(ask).await.unwrap();
        held.map_or_else(|| token("stranger", 1), |held| held.token)
    }

    async fn run(&mut self, step: &Step, head: Option<i64>, now: Timestamp) -> String {
        let leases = self.place.store().work_leases();
        let ask = self.ask(DOMAINS[step.domain], now);
        match step.verb {
            Verb::TryAcquire(offset) => {
                let answer = leases.try_acquire(&ask, offset, &fresh()).await.unwrap();
                self.grants.told(answer)
            }
            Verb::Submit(offset) => {
                let answer = leases.submit(&ask, offset, &fresh()).await.unwrap();
                self.grants.told(answer)
            }
            Verb::Follow => match head {
                Some(head) => {
                    let answer = leases.try_acquire(&ask, head, &fresh()).await.unwrap();
                    self.grants.told(answer)
                }
                None => String::new(),
            },
            Verb::Succeed | Verb::SucceedWith(_) => {
                let token = self.named(&step.verb, &ask).await;
                format!("{:?}", leases.succeed(&ask, &token).await.unwrap())
            }
            Verb::Fail | Verb::FailWith(_) => {
                let token = self.named(&step.verb, &ask).await;
                format!("{:?}", leases.fail(&ask, &token).await.unwrap())
            }
            Verb::Renew | Verb::RenewWith(_) => {
                let token = self.named(&step.verb, &ask).await;
                format!("{:?}", leases.renew(&ask, &token).await.unwrap())
            }
            Verb::Replay(offset) => {
                format!("{:?}", leases.replay(&ask, offset).await.unwrap())
            }
            Verb::Advance(offset) => {
                let watermark = leases.advance_watermark(&self.space, offset).await;
                watermark.unwrap().to_string()
            }
            Verb::Forget(offset) => {
                let done = leases.forget_failed_below(&self.space, offset).await;
                done.unwrap();
                String::new()
            }
        }
    }

    /// The token that an operation uses.
    async fn named(&self, verb: &Verb, ask: &DomainAsk) -> Token {
        if let Verb::SucceedWith(ago) | Verb::FailWith(ago) | Verb::RenewWith(ago) = verb {
            return self.grants.ago(*ago);
        }
        self.held(ask).await
    }

    /// The whole visible state, with the violated invariants.
    async fn picture(&mut self, forgiven: i64, now: Timestamp) -> (String, Vec<String>) {
        let leases = self.place.store().work_leases();
        let watermark = leases.watermark(&self.space).await.unwrap();
        let contents = self.place.contents(&self.space).await;
        let mut lines = vec![watermark.to_string()];
        for domain in DOMAINS {
            let held = leases.reservation(&self.ask(domain, now)).await.unwrap();
            lines.push(self.grants.told_reservation(held));
            let kept = contents.get(domain).cloned().unwrap_or_default();
            lines.push(format!("{:?}", kept.above(watermark, forgiven)));
        }
        let idle = leases.idle_with_backlog(&self.space, 100).await;
        lines.push(listed(idle.unwrap()));
        let lapsed = leases.lapsed(&self.space, 100, Some(now)).await;
        lines.push(listed(lapsed.unwrap()));
        let faults = contents.values().flat_map(Contents::faults).collect();
        (lines.join("\n"), faults)
    }
}

/// Runs one script in a new space of a store.
async fn compare(place: &Place, script: &Script) -> Result<(), TestCaseError> {
    static SPACES: AtomicU64 = AtomicU64::new(1);
    let space = format!("script-{}", SPACES.fetch_add(1, Ordering::Relaxed));
    let mut model = Model::new(script);
    let mut kept = ModelState {
        place,
        space: SpaceName::new(&space).unwrap(),
        script,
        grants: Grants::default(),
    };
    for (nth, step) in script.steps.iter().enumerate() {
        let head = model.head(DOMAINS[step.domain]);
        let expected = model.run(step);
        let now = model.clock.now();
        let answer = kept.run(step, head, now).await;
        let differ = |what: &str, one: &str, other: &str| {
            let message = format!("step {nth}, {step:?}, {what}:\n{one}\nbut\n{other}");
            Err(TestCaseError::fail(message))
        };
        if answer != expected {
            return differ("its answer", &expected, &answer);
        }
        let expected = model.picture();
        let (picture, faults) = kept.picture(model.forgiven, now).await;
        if picture != expected {
            return differ("the contents", &expected, &picture);
        }
        if !faults.is_empty() {
            return differ("the invariants", "none broken", &faults.join("\n"));
        }
    }
    Ok(())
}

/// Runs `cases` scripts; the first that differs is shrunk and printed with its seed.
fn check(place: impl Future<Output = Place>, cases: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let place = runtime.block_on(place);
    let config = Config {
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::with_cases(cases)
    };
    let run = |script: Script| runtime.block_on(compare(&place, &script));
    if let Err(error) = TestRunner::new(config).run(&script(), run) {
        panic!("the store differs from the model: {error}");
    }
}

/// Proves: S3-001, S3-007, S3-008, S3-009, S3-010, S3-025, S3-026, S3-027, S3-028, S3-029
#[test]
fn memory_follows_the_model() {
    check(async { Place::memory() }, Extent::chosen().size(60, 300));
}

/// Proves: S3-021, S3-022, S3-023, S3-024, S3-025, S3-026, S3-027, S3-028, S3-029, S3-030, S3-031
#[test]
fn sqlite_follows_the_model() {
    check(Place::sqlite(), Extent::chosen().size(15, 60));
}

/// Proves: S3-021, S3-022, S3-023, S3-024, S3-025, S3-026, S3-027, S3-028, S3-029, S3-030, S3-031
#[test]
fn postgres_follows_the_model() {
    check(Place::postgres(), Extent::chosen().size(8, 32));
}
