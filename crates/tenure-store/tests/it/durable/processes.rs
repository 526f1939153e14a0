//! Many processes on one PostgreSQL, some of them killed in the middle of their work: every offset
//! is worked in the order in which it was submitted, none after it was processed, and whatever dies
//! leaves no domain behind that stands still.
//!
//! The work of an offset is a line in the table `worked`, written only while its token stands: the
//! receiver refuses a stale holder.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
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
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing;
use tokio::task::JoinSet;

use super::tables::faults;

const DOMAINS: usize = 1000;
/// Offsets that are submitted to each domain.
const EACH: usize = 3;
/// So long does a dead holder block its domain.
const TERM: Duration = Duration::from_secs(2);
/// A run that takes longer stands still.
const DEADLINE: Duration = Duration::from_mins(5);

const WORKED: &str = "create table worked (
    line bigint generated always as identity, domain text, log_offset bigint, token text);
    create table run_over (is_over bool)";

/// A worker of this process: a store, tokens, and its own luck.
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

    /// Works a domain from an offset on, hint after hint, until someone else has it or this worker
    /// forgets a hint.
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
                // Another one has taken it up and is through with it.
                Err(WorkLeaseError::BacklogOrdering { .. }) => return,
                Err(error) => panic!("{error}"),
            };
        }
    }

    /// Works one offset, with some failures; the hint.
    async fn work_one(&mut self, ask: &DomainAsk, offset: i64, token: &Token) -> Option<i64> {
        let leases = self.leases();
        while self.luck.random_bool(0.2) {
            match leases.fail(ask, token).await.unwrap() {
                Ok(FailResult::RetryScheduled(_)) => {}
                // This worker was slower than its term.
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

    /// Kicks what stands idle and takes over what has lapsed, until the run is over.
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

    /// Submits to these domains, each in an order of its own, and works what it gets at once.
    /// Between times it asks what must have no effect.
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
                // Whatever it is, it is nothing new: none but an acquired one changes anything.
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

/// A process that is killed when it is dropped.
struct Process(Child);

impl Process {
    /// This test program again, to run one half of a test.
    fn start(half: &str, url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = format!("durable::processes::{half}");
        command
            .args(["--exact", &name, "--nocapture", &format!("argument={url}")])
            .stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// As `kill -9` does.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What this process was given, if it is the other half of a test; the test runner takes it for
/// one more filter.
fn argument() -> Option<String> {
    std::env::args().find_map(|word| Some(word.strip_prefix("argument=")?.to_owned()))
}

/// The other half: a process that works until the run is over, or until it is killed.
#[tokio::test]
async fn a_process_that_kicks() {
    let Some(url) = argument() else { return };
    let store = open(&url, 2).await;
    let seed = rand::random();
    Worker::new(store, "child", seed).kick_until_over().await;
}

/// The other half: a process that acquires ten domains, says so and then does nothing.
#[tokio::test]
async fn a_process_that_holds() {
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

/// The tokens that a holding process says.
fn tokens(process: &mut Process) -> Vec<Token> {
    let said = process.0.stdout.take().unwrap();
    let lines = BufReader::new(said).lines().map(Result::unwrap);
    let tokens = lines.filter_map(|line| Token::parse(line.strip_prefix("held ")?));
    tokens.take(10).collect()
}

/// Waits for a fact, until the deadline.
async fn until<F: Future<Output = bool>>(what: &str, mut fact: impl FnMut() -> F) {
    let wait = async {
        while !fact().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, wait).await;
    waited.unwrap_or_else(|_| panic!("it never came to this: {what}"));
}

async fn started() -> (testing::Database, Arc<PostgresStore>) {
    let database = testing::postgres().await;
    PostgresStore::migrate(&database.url, &StoreConfig::default())
        .await
        .unwrap();
    let store = open(&database.url, 8).await;
    sqlx::raw_sql(WORKED).execute(store.pool()).await.unwrap();
    (database, store)
}

/// Proves: S3-010, S3-031
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_domains_of_a_killed_holder_go_on_and_its_late_answer_is_refused() {
    let (database, store) = started().await;
    let mut holder = Process::start("a_process_that_holds", &database.url);
    let tokens = tokens(&mut holder);
    assert_eq!(tokens.len(), 10);
    holder.kill();
    let mut worker = Worker::new(Arc::clone(&store), "heir", 1);
    until("all have lapsed", || async {
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

/// The order in which a domain's offsets were worked; each as often as it was begun.
async fn order_of_work(store: &PostgresStore, domain: &DomainName) -> Vec<i64> {
    let lines = "select log_offset from worked where domain = $1 order by line";
    let mut lines: Vec<i64> = sqlx::query_scalar(lines)
        .bind(domain.as_str())
        .fetch_all(store.pool())
        .await
        .unwrap();
    // A holder that dies leaves its offset to another one, which begins it again.
    lines.dedup();
    lines
}

/// Proves: S3-001, S3-007, S3-008, S3-009, S3-012, S3-013, S3-025, S3-029, S3-030, S3-033, S3-071
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_domains_keep_their_order_while_processes_are_killed() {
    let (database, store) = started().await;
    let seed: u64 = rand::random();
    let mut luck = StdRng::seed_from_u64(seed);
    let mut domains = Vec::new();
    for n in 0..DOMAINS {
        let mut offsets: Vec<i64> = (0..i64::try_from(EACH).unwrap())
            .map(|n| n * 7 - 5)
            .collect();
        offsets.shuffle(&mut luck);
        domains.push((named(&format!("domain-{n}")), offsets));
    }
    let mut processes: Vec<Process> = (0..4)
        .map(|_| Process::start("a_process_that_kicks", &database.url))
        .collect();
    let mut tasks = JoinSet::new();
    for (n, part) in domains.chunks(DOMAINS / 4).enumerate() {
        let seed = luck.random();
        let producer = Worker::new(Arc::clone(&store), &format!("producer-{n}"), seed);
        tasks.spawn(producer.produce(part.to_vec()));
        let worker = Worker::new(Arc::clone(&store), &format!("worker-{n}"), luck.random());
        tasks.spawn(worker.kick_until_over());
    }
    let total = i64::try_from(DOMAINS * EACH).unwrap();
    for (at, victim) in [(total / 6, 0), (total / 3, 1), (total / 2, 2)] {
        until("enough is worked for the next kill", || async {
            number(&store, "select count(*) from worked").await >= at
        })
        .await;
        processes[victim].kill();
        assert_eq!(
            faults(store.pool()).await,
            Vec::<String>::new(),
            "seed {seed}"
        );
        processes.push(Process::start("a_process_that_kicks", &database.url));
    }
    until("all is processed", || async {
        let processed = "select coalesce(sum(hi - lo + 1), 0)::bigint from tenure_offsets";
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
                where current_offset is not null or queued > 0";
    assert_eq!(number(&store, left).await, 0, "seed {seed}");
}
