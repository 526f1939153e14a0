//! Stores behind PgBouncer, the program of the distribution. In transaction mode the next statement
//! of a connection may run on another server connection, where other clients prepared theirs.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection as _, PgConnection, PgPool};
use tenure_core::store::{
    Claim, Examine as _, Intake as _, LeaseStore as _, Operate as _, Prune, Pruner as _,
    Queues as _, Settle, StoreErrorKind, Tables as _, Verdict, WhileHeld,
};
use tenure_core::{Event, Identifier, LeaseTable};
use tenure_store::config::{Statements, StoreConfig};
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database, PoolMode, Pooler};
use tokio::task::JoinSet;

use crate::world::fresh;

const LONG: Duration = Duration::from_hours(1);

/// Fewer server connections than clients, so that they are shared.
const SHARED: &str = "default_pool_size = 3";

async fn pooled(mode: PoolMode, settings: &str) -> (Database, Pooler, String) {
    let database = testing::migrated().await;
    let pooler = Pooler::start(&database.url, mode, settings).await;
    let url = pooler.url(&database.url);
    (database, pooler, url)
}

async fn open(url: &str, statements: Statements) -> PostgresStore {
    let config = StoreConfig {
        statements,
        connections: 4,
        ..StoreConfig::default()
    };
    PostgresStore::open(url, &config).await.unwrap()
}

/// Returns true if the store names its statements.
async fn names(store: &PostgresStore) -> bool {
    store.queues().await.unwrap();
    let conn = store.pool().acquire().await.unwrap();
    conn.cached_statements_size() > 0
}

async fn due(store: &PostgresStore) -> u64 {
    let counts = store.count(None).await.unwrap();
    counts.queues.iter().map(|(_, queue)| queue.due).sum()
}

/// Enqueues, claims and settles events, and reads much else in between.
async fn work(store: Arc<PostgresStore>, worker: u64) -> u64 {
    let mut done = 0;
    for round in 0..12 {
        let topic = format!("t.{worker}.{round}");
        let events = [
            Event::new(&topic, &round).unwrap(),
            Event::new(&topic, &0).unwrap(),
        ];
        assert_eq!(store.enqueue(&events).await.unwrap().len(), 2);
        assert_eq!(store.queues().await.unwrap().len(), 1);
        let token = fresh(&format!("w{worker}"));
        let held = store.claim(&Claim::new(token.clone(), 2)).await.unwrap();
        store.count(None).await.unwrap();
        if let Some(held) = held {
            let settle = Settle::new(token).done(held.ids());
            let settlement = store.settle(&settle).await.unwrap();
            assert_eq!(settlement.refused().count(), 0);
            done += u64::try_from(held.ids().len()).unwrap();
        }
        store.prune(&Prune::new(LONG, LONG)).await.unwrap();
    }
    done
}

/// Goal: no statement of another client is bound. Method: more clients than server connections run
/// different statements at once; every answer is checked, and nothing fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_share_server_connections_never_mix_their_statements() {
    // The second pooler does not even refuse the options that it drops.
    let ignoring = format!("{SHARED}\nignore_startup_parameters = options,extra_float_digits");
    for settings in [SHARED, &ignoring] {
        let (database, _pooler, url) = pooled(PoolMode::Transaction, settings).await;
        let mut workers = JoinSet::new();
        for worker in 0..6 {
            let store = Arc::new(open(&url, Statements::Auto).await);
            workers.spawn(work(store, worker));
        }
        let done: u64 = workers.join_all().await.into_iter().sum();
        let direct = open(&database.url, Statements::Auto).await;
        assert_eq!(done + due(&direct).await, 6 * 12 * 2);
    }
}

#[tokio::test]
async fn statements_have_names_where_names_are_safe() {
    let (database, pooler, url) = pooled(PoolMode::Transaction, SHARED).await;
    let keeps_names = pooler.keeps_names();
    for (url, statements, expected) in [
        (&database.url, Statements::Auto, true),
        (&database.url, Statements::Unnamed, false),
        (&url, Statements::Auto, keeps_names),
        (&url, Statements::Unnamed, false),
    ] {
        let store = open(url, statements).await;
        assert_eq!(names(&store).await, expected, "{statements:?}");
        assert_eq!(names(&store.companion(1)).await, expected, "{statements:?}");
        // The same on a pool of the application.
        let config = StoreConfig {
            statements,
            ..StoreConfig::default()
        };
        let options = sqlx::postgres::PgConnectOptions::extra_float_digits;
        let options = options(url.parse().unwrap(), None);
        let pool = PgPool::connect_with(options).await.unwrap();
        let store = PostgresStore::on_pool(pool, &config).await.unwrap();
        assert_eq!(names(&store).await, expected, "{statements:?}");
    }
}

#[tokio::test]
async fn names_that_were_asked_for_are_refused_unless_a_client_keeps_its_session() {
    let (database, pooler, url) = pooled(PoolMode::Transaction, SHARED).await;
    let config = StoreConfig {
        statements: Statements::Prepared,
        ..StoreConfig::default()
    };
    let opened = PostgresStore::open(&url, &config).await;
    if pooler.keeps_names() {
        assert!(names(&opened.unwrap()).await);
    } else {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Invalid);
        assert!(
            error.to_string().contains("max_prepared_statements"),
            "{error}"
        );
    }
    let pooler = Pooler::start(&database.url, PoolMode::Session, "").await;
    let store = PostgresStore::open(&pooler.url(&database.url), &config).await;
    assert!(names(&store.unwrap()).await);
}

#[tokio::test]
async fn a_pooler_that_forbids_transactions_is_refused() {
    let (_database, _pooler, url) = pooled(PoolMode::Transaction, "pool_mode = statement").await;
    let error = PostgresStore::open(&url, &StoreConfig::default()).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid, "{error}");
    assert!(
        error.to_string().contains("pool_mode = transaction"),
        "{error}"
    );
}

/// The settings belong to Tenure's transactions: other clients of the pooler must not get them.
#[tokio::test]
async fn behind_a_pooler_the_planner_settings_end_with_the_transaction() {
    let (_database, pooler, url) = pooled(PoolMode::Transaction, "default_pool_size = 1").await;
    let store = open(&url, Statements::Auto).await;
    let findings = store.examine().await.unwrap();
    let planner = findings.iter().find(|finding| finding.subject == "planner");
    assert_eq!(planner.unwrap().verdict, Verdict::Good, "{planner:?}");
    let statements = findings
        .iter()
        .find(|finding| finding.subject == "statements");
    let is_good = statements.unwrap().verdict == Verdict::Good;
    assert_eq!(is_good, pooler.keeps_names(), "{statements:?}");
    let options = sqlx::postgres::PgConnectOptions::extra_float_digits(url.parse().unwrap(), None);
    let mut stranger = sqlx::ConnectOptions::connect(&options).await.unwrap();
    let row = sqlx::raw_sql("select current_setting('enable_seqscan')");
    let row = row.fetch_one(&mut stranger).await.unwrap();
    assert_eq!(sqlx::Row::get::<String, _>(&row, 0), "on");
}

/// A producer's own connection has no names if it has not made any, in a transaction of the driver,
/// in one begun by hand, and in none.
#[tokio::test]
async fn a_producer_behind_a_pooler_enqueues_in_its_transaction() {
    let (database, _pooler, url) = pooled(PoolMode::Transaction, SHARED).await;
    let store = open(&database.url, Statements::Auto).await;
    let options = sqlx::postgres::PgConnectOptions::extra_float_digits(url.parse().unwrap(), None);
    let mut conn: PgConnection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    let event = [Event::new("a", &1).unwrap()];

    let mut tx = conn.begin().await.unwrap();
    store.enqueue_on(&mut tx, &event).await.unwrap();
    assert_eq!(store.written_on(&mut tx).await.unwrap().len(), 1);
    tx.rollback().await.unwrap();

    sqlx::raw_sql("begin").execute(&mut conn).await.unwrap();
    store.enqueue_on(&mut conn, &event).await.unwrap();
    sqlx::raw_sql("rollback").execute(&mut conn).await.unwrap();

    store.enqueue_on(&mut conn, &event).await.unwrap();
    assert_eq!(conn.cached_statements_size(), 0);
    assert_eq!(due(&store).await, 1);

    // On a connection of its own, they have names; another store has not met the pooler.
    let store = open(&database.url, Statements::Auto).await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    store.enqueue_on(&mut tx, &event).await.unwrap();
    assert!(tx.cached_statements_size() > 0);
    tx.rollback().await.unwrap();
    assert_eq!(due(&store).await, 1);
}

/// A process may be paused between the beginning of its transaction and its statement. The store's
/// clock at the statement decides, so that a lease never seems to begin before the last one ended.
#[tokio::test]
async fn the_time_of_a_claim_is_that_of_its_statement() {
    let (database, _pooler, url) = pooled(PoolMode::Transaction, SHARED).await;
    let store = open(&url, Statements::Unnamed).await;
    store
        .enqueue(&[Event::new("a", &1).unwrap()])
        .await
        .unwrap();
    // The claim has begun its transaction and waits for this lock, as if it were paused.
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    let lock = "lock table tenure_ready in access exclusive mode";
    sqlx::raw_sql(lock).execute(&mut *tx).await.unwrap();
    let claim = Claim::new(fresh("w"), 1);
    let waits = "select count(*) > 0 from pg_stat_activity
                 where wait_event_type = 'Lock' and datname = current_database()";
    let freed = async {
        while !sqlx::query_scalar::<_, bool>(waits)
            .fetch_one(&mut *tx)
            .await
            .unwrap()
        {}
        let now = "select clock_timestamp()::text";
        let now: String = sqlx::query_scalar(now).fetch_one(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        now
    };
    let (held, freed) = tokio::join!(store.claim(&claim), freed);
    assert_eq!(held.unwrap().unwrap().items.len(), 1);
    let later = "select claimed_at >= $1::timestamptz from tenure_leases";
    let query = sqlx::query_scalar::<_, bool>(later).bind(freed);
    assert!(query.fetch_one(&mut conn).await.unwrap());
}

/// Frozen workers must not keep the server connections of a pooler for themselves. Method: with one
/// server connection, a store stops in the middle of a transaction, as a frozen process does.
#[tokio::test]
async fn a_transaction_that_stands_still_gives_its_server_connection_back() {
    let (database, _pooler, url) = pooled(PoolMode::Transaction, "default_pool_size = 1").await;
    let frozen = open(&url, Statements::Unnamed).await;
    let other = open(&url, Statements::Unnamed).await;
    // One poll sends the beginning of the transaction; the future is kept and never polled again.
    let mut answer = Box::pin(frozen.queues());
    let waits = "select count(*) from pg_stat_activity where state = 'idle in transaction'
                 and datname = current_database()";
    let direct = PgPool::connect(&database.url).await.unwrap();
    loop {
        let polled = tokio::time::timeout(Duration::from_millis(1), &mut answer).await;
        if polled.is_ok() {
            answer = Box::pin(frozen.queues());
        }
        let open: i64 = sqlx::query_scalar(waits).fetch_one(&direct).await.unwrap();
        if open > 0 {
            break;
        }
    }
    let answered = tokio::time::timeout(Duration::from_secs(30), other.queues()).await;
    assert_eq!(
        answered
            .expect("the server ends the transaction")
            .unwrap()
            .len(),
        1
    );
    assert!(answer.await.is_err());
}

/// An adoption takes several transactions and an index that is built outside of any; its lock must
/// keep others away all the time, and be gone at the end.
#[tokio::test]
async fn a_table_is_adopted_and_reverted_through_a_pooler() {
    let (_database, _pooler, url) = pooled(PoolMode::Transaction, SHARED).await;
    let store = open(&url, Statements::Auto).await;
    let table = "create table orders (topic text not null, payload json not null)";
    sqlx::raw_sql(table).execute(store.pool()).await.unwrap();
    let mut described = LeaseTable::outbox();
    described.name = Identifier::new("orders").unwrap();
    for _ in 0..2 {
        let facts = store.inspect(&described).await.unwrap();
        let plan = described.plan(&facts, None).unwrap();
        store.adopt(&plan, &|_| {}).await.unwrap();
        let adopted = store.adopted().await.unwrap();
        store.undo(&adopted[0], WhileHeld::Refuse).await.unwrap();
    }
}
