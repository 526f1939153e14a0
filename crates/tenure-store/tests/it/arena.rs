//! An arena: two stores on one PostgreSQL. The first store stops at the end of each transaction
//! until the test lets it commit, so that two operations always meet at the worst moment.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::faults::{Plant as _, Planted};

/// While the test holds the advisory lock, a connection with `tenure.held` stops at the end of its
/// transaction: its changes are made and its row locks are held, but it has not committed.
const HOLD: &str = "
create function hold() returns trigger language plpgsql as $$ begin
    if current_setting('tenure.held', true) = 'on' then
        perform pg_advisory_xact_lock_shared(42);
    end if;
    return null;
end $$;
do $$ declare name text; begin
    foreach name in array
        array['leases', 'ready', 'setbacks', 'backlog', 'keys', 'arrivals']
    loop
        execute format(
            'create constraint trigger hold after insert or update or delete on tenure_%s
             deferrable initially deferred for each row execute function hold()', name);
    end loop;
end $$;
create constraint trigger hold after delete on tenure_events
deferrable initially deferred for each row execute function hold();";

/// Counts the statements that wait for a lock.
const WAITING: &str = "select count(*) from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'";

/// Timeout of a race.
const LONGEST: Duration = Duration::from_mins(2);
/// Time in which an operation that polls should meet the first one; no lock shows that it has.
const ASKING: Duration = Duration::from_millis(150);
/// Interval between two polls.
const POLL: Duration = Duration::from_millis(2);

/// The way in which the second operation of a race waits for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The second operation waits at a lock, or not at all.
    AtLocks,
    /// The second operation polls, without a lock.
    Asking,
}

/// The end of the first operation's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Commits,
    IsCancelled,
    /// The server terminates its connection.
    Dies,
}

pub(crate) struct Arena {
    /// The store that stops at the end of its transactions.
    pub(crate) held: Arc<PostgresStore>,
    pub(crate) free: Arc<PostgresStore>,
    pub(crate) conn: PgConnection,
    _database: Database,
}

impl Arena {
    pub(crate) async fn new() -> Self {
        Self::planted(&[]).await
    }

    /// An arena with faults in the statements of both stores.
    pub(crate) async fn planted(faults: &[Planted]) -> Self {
        let database = testing::migrated().await;
        let config = StoreConfig {
            connections: 2,
            ..StoreConfig::default()
        };
        let sign = if database.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{sign}options[tenure.held]=on", database.url);
        let mut conn = PgConnection::connect(&database.url).await.unwrap();
        sqlx::raw_sql(HOLD).execute(&mut conn).await.unwrap();
        let mut stores = Vec::new();
        for url in [&url, &database.url] {
            let store = PostgresStore::open(url, &config).await.unwrap();
            stores.push(Arc::new(store.planted(faults)));
        }
        Self {
            free: stores.pop().unwrap(),
            held: stores.pop().unwrap(),
            conn,
            _database: database,
        }
    }

    /// The number that a statement returns.
    pub(crate) async fn ask(&mut self, text: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(text.to_owned()))
            .fetch_one(&mut self.conn)
            .await
            .unwrap()
    }

    /// Waits until the task is done, this many statements wait for a lock, or the time is over.
    async fn until_waiting<T>(&mut self, task: &JoinHandle<T>, waiting: i64, longest: Duration) {
        let start = Instant::now();
        while start.elapsed() < longest {
            if self.ask(WAITING).await >= waiting || task.is_finished() {
                return;
            }
            sleep(POLL).await;
        }
    }

    /// Runs `second` while the transaction of `first` is held open, then ends that transaction.
    pub(crate) async fn race<T: Send + 'static>(
        &mut self,
        first: impl Future<Output = T> + Send + 'static,
        second: impl Future<Output = T> + Send + 'static,
        waits: Waits,
        end: First,
    ) -> (T, T) {
        let meeting = async {
            self.ask("select 1::bigint from (select pg_advisory_lock(42)) l")
                .await;
            let one = tokio::spawn(first);
            self.until_waiting(&one, 1, LONGEST).await;
            let two = tokio::spawn(second);
            let longest = match waits {
                Waits::Asking => ASKING,
                Waits::AtLocks => LONGEST,
            };
            self.until_waiting(&two, 2, longest).await;
            let stop = match end {
                First::Commits => None,
                First::IsCancelled => Some("pg_cancel_backend"),
                First::Dies => Some("pg_terminate_backend"),
            };
            if let Some(stop) = stop {
                self.ask(&format!(
                    "select count({stop}(pid)) from pg_stat_activity
                     where datname = current_database() and wait_event = 'advisory'"
                ))
                .await;
            }
            self.ask("select 1::bigint from (select pg_advisory_unlock(42)) l")
                .await;
            (one.await.unwrap(), two.await.unwrap())
        };
        let met = tokio::time::timeout(LONGEST, meeting).await;
        met.expect("both operations end within the timeout")
    }
}
