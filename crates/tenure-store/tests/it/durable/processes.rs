//! Many processes on one PostgreSQL, some of them killed in the middle of their work. Every offset
//! is worked in the order of submission, none is worked after it was processed, and a dead process
//! leaves no domain stuck.
//!
//! To work on an offset, a process writes a row into the table `worked`, only while its token is
//! current. So this receiver refuses a holder that was replaced.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use tenure_core::store::{Contract, DomainAsk, WorkLeases};
use tenure_core::{
    AcquireResult, DomainName, DomainRules, FailResult, SpaceName, SucceedResult, Term, Token,
    WorkLeaseError, WorkerId,
};
use tenure_nemesis::{Process, Schedule, argument, say, until};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing;
use tokio::task::JoinSet;

use super::tables::faults;

/// Number of domains for each kill; many kills make over a thousand domains.
const DOMAINS_PER_KILL: usize = 40;
/// Number of offsets submitted to each domain.
const EACH: usize = 3;
/// The term of a reservation, for which a dead holder blocks its domain.
const TERM: Duration = Duration::from_secs(2);

const WORKED: &str = "create table worked (
    line bigint generated always as identity, domain text, log_offset bigint, token text);
    create table run_over (is_over bool)";

/// A worker of this process: a store, tokens, and random numbers.
struct Worker {
    store: Arc<PostgresStore>,
    id: WorkerId,
    tokens: u64,
    luck: StdRng,
}

impl Worker {
    fn new(store: Arc<PostgresStore>, name: &str, seed: u64) -> Self {
        Self {
            store,
            id: WorkerId::new(name, seed).unwrap(),
            tokens: 0,
            luck: StdRng::seed_from_u64(seed),
        }
    }

    fn fresh(&mut self) -> Token {
        self.tokens += 1;
        Token::new(&self.id, self.tokens, self.luck.random())
    }

    fn leases(&self) -> Arc<PostgresStore> {
        Arc::clone(&self.store)
    }

    async fn try_acquire(&mut self, ask: &DomainAsk, offset: i64) -> Contract<AcquireResult> {
        let fresh = self.fresh();
        let leases = self.leases();
        leases.try_acquire(ask, offset, &fresh).await.unwrap()
    }

    /// Works on a domain from this offset on, following each hint to the next offset, until another
    /// worker has the domain or this worker drops a hint.
    async fn work(&mut self, ask: &DomainAsk, mut offset: i64, mut answer: AcquireResult) {
        loop {
            let AcquireResult::Acquired(token) = answer else {
                return;
            };
            let Some(hint) = self.work_one(ask, offset, &token).await else {
                return;
            };
            if self.luck.random_bool(0.2) {
                return;
            }
            offset = hint;
            answer = match self.try_acquire(ask, hint).await {
                Ok(answer) => answer,
                // Another worker has taken over the offset and finished it.
                Err(WorkLeaseError::BacklogOrdering { .. }) => return,
                Err(error) => panic!("{error}"),
            };
        }
    }

    /// Works on one offset, with some failures; returns the hint to the next one.
    async fn work_one(&mut self, ask: &DomainAsk, offset: i64, token: &Token) -> Option<i64> {
        let leases = self.leases();
        while self.luck.random_bool(0.2) {
            match leases.fail(ask, token).await.unwrap() {
                Ok(FailResult::RetryScheduled(_)) => {}
                // This worker took longer than its term.
                Err(
                    WorkLeaseError::TokenMismatch { .. } | WorkLeaseError::LeaseNotFound { .. },
                ) => {
                    return None;
                }
                other => panic!("{other:?}"),
            }
        }
        self.write_line(ask, offset, token).await;
        match leases.succeed(ask, token).await.unwrap() {
            Ok(SucceedResult::NextHint(hint)) => Some(hint),
            Ok(SucceedResult::NoBacklog) => None,
            Err(error) => {
                assert!(error.is_illegal_state(), "{error}");
                None
            }
        }
    }

    async fn write_line(&self, ask: &DomainAsk, offset: i64, token: &Token) {
        let line = "insert into worked (domain, log_offset, token)
                    select domain, $2, token from tenure_reservations
                    where token = $1 and domain = $3 and current_offset = $2 for share";
        sqlx::query(line)
            .bind(token.expose())
            .bind(offset)
            .bind(ask.domain.as_str())
            .execute(self.store.pool())
            .await
            .unwrap();
    }

    /// Works on idle domains and takes over lapsed ones, until the run is over.
    async fn kick_until_over(mut self) {
        while !is_over(&self.store).await {
            let leases = self.leases();
            let mut found = leases.idle_with_backlog(&space(), 100).await.unwrap();
            found.extend(leases.lapsed(&space(), 100, None).await.unwrap());
            found.shuffle(&mut self.luck);
            if found.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            for (domain, offset) in found.into_iter().take(10) {
                let ask = ask(domain);
                match self.try_acquire(&ask, offset).await {
                    Ok(answer) => self.work(&ask, offset, answer).await,
                    Err(WorkLeaseError::BacklogOrdering { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Submits offsets to these domains, in each domain's own order, and works on acquired offsets
    /// at once. In between, makes calls that must have no effect.
    async fn produce(mut self, domains: Vec<(DomainName, Vec<i64>)>) {
        for nth in 0..EACH {
            for (domain, offsets) in &domains {
                let (ask, fresh) = (ask(domain.clone()), self.fresh());
                let leases = self.leases();
                let answer = leases.submit(&ask, offsets[nth], &fresh).await.unwrap();
                self.work(&ask, offsets[nth], answer.unwrap()).await;
                let stranger = self.fresh();
                let refused = leases.succeed(&ask, &stranger).await.unwrap();
                assert!(refused.unwrap_err().is_illegal_state());
                let before = offsets[self.luck.random_range(0..=nth)];
                // Every answer except an acquired offset changes nothing.
                if let Ok(answer) = self.try_acquire(&ask, before).await {
                    self.work(&ask, before, answer).await;
                }
            }
        }
    }
}

fn space() -> SpaceName {
    SpaceName::new("partition-0").unwrap()
}

fn ask(domain: DomainName) -> DomainAsk {
    DomainAsk::new(space(), domain).rules(DomainRules {
        max_retries: u32::MAX,
        term: Some(Term::new(TERM).unwrap()),
        backlog_limit: None,
    })
}

fn named(domain: &str) -> DomainName {
    DomainName::new(domain).unwrap()
}

async fn open(url: &str, connections: u32) -> Arc<PostgresStore> {
    let config = StoreConfig {
        connections,
        ..StoreConfig::default()
    };
    Arc::new(PostgresStore::open(url, &config).await.unwrap())
}

async fn number(store: &PostgresStore, query: &'static str) -> i64 {
    sqlx::query_scalar(query)
        .fetch_one(store.pool())
        .await
        .unwrap()
}

async fn is_over(store: &PostgresStore) -> bool {
    number(store, "select count(*) from run_over").await > 0
}

/// Starts this test program again as a child process that runs one test.
fn start(half: &str, url: &str) -> Process {
    let name = format!("durable::processes::{half}");
    Process::piped(&mut Process::test(&name, url))
}

/// A child process that works until the run is over or it is killed.
#[tokio::test]
async fn a_child_process_that_works() {
    let Some(url) = argument() else { return };
    let store = open(&url, 2).await;
    let seed = rand::random();
    Worker::new(store, "child", seed).kick_until_over().await;
}

/// A child process that acquires ten domains, prints their tokens and then does nothing.
#[tokio::test]
async fn a_child_process_that_holds_domains() {
    let Some(url) = argument() else { return };
    let store = open(&url, 1).await;
    let mut worker = Worker::new(store, "holder", rand::random());
    for n in 0..10 {
        let domain = format!("held-{n}");
        let answer = worker.try_acquire(&ask(named(&domain)), n).await;
        let Ok(AcquireResult::Acquired(token)) = answer else {
            panic!("{answer:?}");
        };
        let mut out = std::io::stdout();
        writeln!(out, "\nheld {}", token.expose()).unwrap();
    }
    std::future::pending::<()>().await;
}

/// Reads the tokens that the child process prints.
fn tokens(process: &mut Process) -> Vec<Token> {
    let lines = std::iter::from_fn(|| process.line());
    let tokens = lines.filter_map(|line| Token::parse(line.strip_prefix("held ")?));
    tokens.take(10).collect()
}

async fn started() -> (testing::Database, Arc<PostgresStore>) {
    let database = testing::migrated().await;
    let store = open(&database.url, 8).await;
    sqlx::raw_sql(WORKED).execute(store.pool()).await.unwrap();
    (database, store)
}

/// Proves: S3-010, S3-031
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_domains_of_a_killed_holder_are_taken_over_and_its_late_answer_refused() {
    let (database, store) = started().await;
    let mut holder = start("a_child_process_that_holds_domains", &database.url);
    let tokens = tokens(&mut holder);
    assert_eq!(tokens.len(), 10);
    holder.kill();
    let mut worker = Worker::new(Arc::clone(&store), "heir", 1);
    until("all have lapsed", async || {
        store.lapsed(&space(), 100, None).await.unwrap().len() == 10
    })
    .await;
    let lapsed = store.lapsed(&space(), 100, None).await.unwrap();
    for (domain, offset) in lapsed {
        let ask = ask(domain);
        let answer = worker.try_acquire(&ask, offset).await;
        let Ok(AcquireResult::Acquired(new)) = answer else {
            panic!("{answer:?}");
        };
        let late = &tokens[usize::try_from(offset).unwrap()];
        let refused = store.succeed(&ask, late).await.unwrap().unwrap_err();
        assert!(matches!(refused, WorkLeaseError::TokenMismatch { .. }));
        let ended = store.succeed(&ask, &new).await.unwrap();
        assert_eq!(ended, Ok(SucceedResult::NoBacklog));
    }
}

/// The order in which a domain's offsets were worked, without immediate repeats.
async fn order_of_work(store: &PostgresStore, domain: &DomainName) -> Vec<i64> {
    let lines = "select log_offset from worked where domain = $1 order by line";
    let mut lines: Vec<i64> = sqlx::query_scalar(lines)
        .bind(domain.as_str())
        .fetch_all(store.pool())
        .await
        .unwrap();
    // After the death of a holder, another worker repeats its offset.
    lines.dedup();
    lines
}

/// Proves: S3-001, S3-007, S3-008, S3-009, S3-012, S3-013, S3-025, S3-029, S3-030, S3-033, S3-071
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_domains_keep_their_order_while_processes_are_killed() {
    let (database, store) = started().await;
    let Schedule { seed, kills, .. } = Schedule::from_environment();
    say(&format!("work leases: {kills} kills, seed {seed}"));
    let mut luck = StdRng::seed_from_u64(seed);
    let mut domains = Vec::new();
    let number_of_domains = DOMAINS_PER_KILL * kills;
    for n in 0..number_of_domains {
        let mut offsets: Vec<i64> = (0..i64::try_from(EACH).unwrap())
            .map(|n| n * 7 - 5)
            .collect();
        offsets.shuffle(&mut luck);
        domains.push((named(&format!("domain-{n}")), offsets));
    }
    let mut processes: Vec<Process> = (0..4)
        .map(|_| start("a_child_process_that_works", &database.url))
        .collect();
    let mut tasks = JoinSet::new();
    for (n, part) in domains.chunks(number_of_domains / 4).enumerate() {
        let seed = luck.random();
        let producer = Worker::new(Arc::clone(&store), &format!("producer-{n}"), seed);
        tasks.spawn(producer.produce(part.to_vec()));
        let worker = Worker::new(Arc::clone(&store), &format!("worker-{n}"), luck.random());
        tasks.spawn(worker.kick_until_over());
    }
    let total = i64::try_from(number_of_domains * EACH).unwrap();
    for victim in 0..kills {
        let at = total * i64::try_from(victim + 1).unwrap() / i64::try_from(kills + 2).unwrap();
        until("enough is worked for the next kill", async || {
            number(&store, "select count(*) from worked").await >= at
        })
        .await;
        processes[victim].kill();
        assert_eq!(
            faults(store.pool()).await,
            Vec::<String>::new(),
            "seed {seed}"
        );
        processes.push(start("a_child_process_that_works", &database.url));
    }
    until("all is processed", async || {
        let processed = "select coalesce(sum(last_offset - first_offset + 1), 0)::bigint \
                         from tenure_offsets";
        number(&store, processed).await == total
    })
    .await;
    sqlx::raw_sql("insert into run_over values (true)")
        .execute(store.pool())
        .await
        .unwrap();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert_eq!(
        faults(store.pool()).await,
        Vec::<String>::new(),
        "seed {seed}"
    );
    for (domain, offsets) in &domains {
        let worked = order_of_work(&store, domain).await;
        assert_eq!(worked, *offsets, "seed {seed}: {domain}");
    }
    let left = "select count(*) from tenure_reservations
                where current_offset is not null or backlog_length > 0";
    assert_eq!(number(&store, left).await, 0, "seed {seed}");
}
