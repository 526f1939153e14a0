//! Many concurrent callers on several connections: one succeeds, and the others get an answer that
//! says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_core::store::{DomainAsk, Store};
use tenure_core::testing::token;
use tenure_core::{AcquireResult, DomainName, SpaceName, SucceedResult, Token};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::sqlite::SqliteStore;
use tenure_store::testing;
use tokio::task::JoinSet;

use super::tables::faults;

/// Number of concurrent callers.
const CALLERS: u64 = 8;

/// Stores on one database, like several processes.
type Shared = Vec<Arc<dyn Store>>;

/// Two stores with eight connections in all.
async fn two_on_postgres(url: &str) -> (Shared, Arc<PostgresStore>) {
    let config = StoreConfig {
        connections: 4,
        ..StoreConfig::default()
    };
    PostgresStore::migrate(url, &config).await.unwrap();
    let one = Arc::new(PostgresStore::open(url, &config).await.unwrap());
    let two = PostgresStore::open(url, &config).await.unwrap();
    let stores: Shared = vec![Arc::<PostgresStore>::clone(&one), Arc::new(two)];
    (stores, one)
}

/// Opens two stores on one file, like two processes.
async fn two_on_sqlite(folder: &tempfile::TempDir) -> Shared {
    let path = folder.path().join("tenure.db");
    let mut stores: Shared = Vec::new();
    for _ in 0..2 {
        let store = SqliteStore::open(&path, &StoreConfig::default()).await;
        stores.push(Arc::new(store.unwrap()));
    }
    stores
}

fn ask(domain: &str) -> DomainAsk {
    let space = SpaceName::new("races").unwrap();
    DomainAsk::new(space, DomainName::new(domain).unwrap())
}

/// A token that no other grant of this process has.
fn fresh() -> Token {
    use std::sync::atomic::{AtomicU64, Ordering};
    static GRANTS: AtomicU64 = AtomicU64::new(1);
    token("racer", GRANTS.fetch_add(1, Ordering::Relaxed))
}

/// Makes concurrent calls on the stores in turn; returns all answers.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    stores: &Shared,
    call: impl Fn(Arc<dyn Store>, u64) -> F,
) -> Vec<T> {
    let mut calls = JoinSet::new();
    for (caller, store) in (0..CALLERS).zip(stores.iter().cycle()) {
        calls.spawn(call(Arc::clone(store), caller));
    }
    calls.join_all().await
}

async fn one_of_many_acquires(stores: &Shared, rounds: u64) {
    for round in 0..rounds {
        let answers = at_once(stores, move |store, _| async move {
            let (ask, fresh) = (ask(&round.to_string()), fresh());
            let answer = store.work_leases().try_acquire(&ask, 1, &fresh).await;
            answer.unwrap().unwrap()
        });
        let answers = answers.await;
        let is_first = |answer: &&AcquireResult| matches!(answer, AcquireResult::Acquired(_));
        assert_eq!(answers.iter().filter(is_first).count(), 1, "{answers:?}");
        let tokens: BTreeSet<&Token> = answers.iter().filter_map(AcquireResult::token).collect();
        assert_eq!(tokens.len(), 1, "all get the same token");
    }
}

/// An offset is finished, the watermark passes it and its domain is evicted, while other callers
/// try to acquire the offset. It is worked once.
async fn an_evicted_offset_is_not_acquired_again(stores: &Shared, rounds: i64) {
    for round in 0..rounds {
        let answers = at_once(stores, move |store, _| async move {
            let (leases, ask) = (store.work_leases(), ask("here and gone"));
            let answer = leases.try_acquire(&ask, round, &fresh()).await.unwrap();
            let AcquireResult::Acquired(token) = answer.unwrap() else {
                return 0;
            };
            let ended = leases.succeed(&ask, &token).await.unwrap();
            assert_eq!(ended, Ok(SucceedResult::NoBacklog));
            let moved = leases.advance_watermark(&ask.space, round + 1).await;
            assert_eq!(moved.unwrap(), round + 1);
            1
        });
        let acquired: u64 = answers.await.into_iter().sum();
        assert_eq!(acquired, 1, "offset {round}");
    }
}

/// All callers submit to one domain and work on its offsets. Each offset is worked exactly once.
async fn all_get_on_with_one_hot_domain(stores: &Shared, each: i64) {
    let worked = at_once(stores, move |store, caller| async move {
        let (leases, ask) = (store.work_leases(), ask("hot"));
        let mut worked = Vec::new();
        for n in 0..each {
            let offset = i64::try_from(caller + 1).unwrap() * 1000 + n;
            let mut next = Some(offset);
            let mut answer = leases.submit(&ask, offset, &fresh()).await.unwrap();
            // The caller works until another caller acquires the next offset.
            while let (Some(offset), Ok(AcquireResult::Acquired(token))) = (next, &answer) {
                worked.push(offset);
                next = leases.succeed(&ask, token).await.unwrap().unwrap().hint();
                if let Some(hint) = next {
                    answer = leases.try_acquire(&ask, hint, &fresh()).await.unwrap();
                }
            }
        }
        worked
    });
    let mut worked: Vec<i64> = worked.await.into_iter().flatten().collect();
    // This search finds offsets that were submitted between a hint and the next read.
    let leases = stores[0].work_leases();
    let ask = ask("hot");
    while let [(_, head)] = leases.idle_with_backlog(&ask.space, 1).await.unwrap()[..] {
        let answer = leases.try_acquire(&ask, head, &fresh()).await.unwrap();
        let Ok(AcquireResult::Acquired(token)) = answer else {
            panic!("no other caller works: {answer:?}");
        };
        worked.push(head);
        assert!(leases.succeed(&ask, &token).await.unwrap().is_ok());
    }
    let mut per_caller: BTreeMap<i64, u64> = BTreeMap::new();
    for offset in &worked {
        *per_caller.entry(offset / 1000).or_default() += 1;
    }
    let all: BTreeSet<i64> = worked.iter().copied().collect();
    assert_eq!(all.len(), worked.len(), "each once");
    let callers = i64::try_from(CALLERS).unwrap();
    assert_eq!(i64::try_from(all.len()).unwrap(), callers * each);
    assert_eq!(per_caller.len(), usize::try_from(CALLERS).unwrap());
}

/// Proves: S3-001, S3-007, S3-025, S3-033, S3-071
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_one_of_many_callers_acquires_an_offset() {
    let database = testing::migrated().await;
    let (stores, store) = two_on_postgres(&database.url).await;
    one_of_many_acquires(&stores, 40).await;
    an_evicted_offset_is_not_acquired_again(&stores, 60).await;
    all_get_on_with_one_hot_domain(&stores, 15).await;
    assert_eq!(faults(store.pool()).await, Vec::<String>::new());
}

/// Proves: S3-001, S3-007, S3-025, S3-033, S3-071
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_one_of_many_callers_acquires_an_offset() {
    let folder = tempfile::tempdir().unwrap();
    let stores = two_on_sqlite(&folder).await;
    one_of_many_acquires(&stores, 20).await;
    an_evicted_offset_is_not_acquired_again(&stores, 20).await;
    all_get_on_with_one_hot_domain(&stores, 10).await;
}
