//! A temporary Patroni cluster of three PostgreSQL servers, run by `cluster.sh`.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tokio::task;
use tokio::time::{Instant, sleep};

use super::postgres::{Database, Supervisor, refuse};

const CLUSTER: &str = include_str!("cluster.sh");

/// Number of servers.
const SERVERS: usize = 3;
/// Interval between two polls for a state of the cluster.
const POLL: Duration = Duration::from_millis(20);
/// Timeout for each state of the cluster.
const LONGEST: Duration = Duration::from_mins(2);

/// True for the leader, once it accepts writes.
const IS_LEADER: &str = "select not pg_is_in_recovery()";
/// True on the leader of a cluster that can lose its leader.
const IS_COMPLETE: &str = "select count(*) = 2 and count(*) filter (where sync_state = 'sync') = 1
    from pg_stat_replication where state = 'streaming'";

/// Three PostgreSQL servers with synchronous replication under Patroni, and one etcd, on free ports
/// of the loopback address. They end with the value or with the process, whichever comes first.
pub struct Cluster {
    ports: Vec<u16>,
    supervisor: Arc<Mutex<Supervisor>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Starts a cluster; returns when it can lose its leader.
    ///
    /// # Panics
    ///
    /// Patroni, etcd or PostgreSQL is not installed or does not start; the message explains the
    /// remedy.
    pub async fn start() -> Self {
        let started = task::spawn_blocking(move || {
            let ports = free_ports(2 + 2 * SERVERS);
            let arguments: Vec<String> = ports.iter().map(u16::to_string).collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let supervisor = Supervisor::spawn(CLUSTER, &arguments)?;
            Ok((supervisor, ports))
        });
        let (supervisor, ports) = started
            .await
            .expect("starting a cluster does not panic")
            .unwrap_or_else(|why: String| refuse(&why));
        let cluster = Self {
            ports: ports.into_iter().skip(2).step_by(2).collect(),
            supervisor: Arc::new(Mutex::new(supervisor)),
        };
        cluster.completed().await;
        cluster
    }

    /// Creates a database, whose URL lists all servers.
    ///
    /// # Panics
    ///
    /// The cluster has no leader.
    pub async fn database(&self) -> Database {
        let leader = self.led(None).await;
        let port = self.port(leader);
        let server = url(port);
        let mut database = Database::on_server(&server).await;
        let hosts = self.ports.iter().map(|port| format!("127.0.0.1:{port}"));
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let one = format!("127.0.0.1:{port}/");
        database.url = database.url.replacen(&one, &format!("{hosts}/"), 1);
        let mark = if database.url.contains('?') { '&' } else { '?' };
        database.url = format!("{}{mark}target_session_attrs=read-write", database.url);
        database
    }

    /// Kills Patroni and the postmaster of the leader with SIGKILL. Returns the number of the
    /// killed server as soon as another one accepts writes.
    ///
    /// # Panics
    ///
    /// No other server becomes the leader.
    pub async fn kill_leader(&self) -> usize {
        let leader = self.led(None).await;
        self.ask(format!("kill {}", leader + 1)).await;
        self.led(Some(leader)).await;
        leader
    }

    /// Starts a killed server again; returns when it is a replica and the cluster can lose its
    /// leader.
    ///
    /// # Panics
    ///
    /// It does not become a replica.
    pub async fn restart(&self, server: usize) {
        self.ask(format!("start {}", server + 1)).await;
        self.completed().await;
    }

    /// Waits until a server other than `except` is the leader; returns its number.
    async fn led(&self, except: Option<usize>) -> usize {
        let others = (0..self.ports.len()).filter(|server| Some(*server) != except);
        let others: Vec<usize> = others.collect();
        let what = "no server becomes the leader";
        within(what, async || {
            for server in &others {
                if is_true(self.port(*server), IS_LEADER).await {
                    return Some(*server);
                }
            }
            None
        })
        .await
    }

    async fn completed(&self) {
        let what = "not every server follows the leader";
        within(what, async || {
            let leader = self.led(None).await;
            let is_complete = is_true(self.port(leader), IS_COMPLETE).await;
            is_complete.then_some(())
        })
        .await;
    }

    fn port(&self, server: usize) -> u16 {
        let port = self.ports.get(server);
        *port.expect("the server is one of the cluster")
    }

    async fn ask(&self, command: String) {
        let supervisor = Arc::clone(&self.supervisor);
        let answer = task::spawn_blocking(move || {
            let mut supervisor = supervisor.lock().unwrap_or_else(PoisonError::into_inner);
            supervisor.ask(&command)
        });
        let answer = answer.await.expect("asking the supervisor does not panic");
        answer.unwrap_or_else(|why: String| refuse(&why));
    }
}

/// URL of the database `postgres` of a server, as superuser.
fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

/// The answer of a server to a question; false if it does not answer.
async fn is_true(port: u16, question: &'static str) -> bool {
    let Ok(mut conn) = PgConnection::connect(&url(port)).await else {
        return false;
    };
    let answer = sqlx::query_scalar(question).fetch_one(&mut conn).await;
    answer.unwrap_or(false)
}

/// Polls until there is an answer.
async fn within<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        if start.elapsed() > LONGEST {
            refuse(&format!("failed: {what} within {LONGEST:?}"));
        }
        sleep(POLL).await;
    }
}

/// Returns different ports that were free a moment ago.
fn free_ports(number: usize) -> Vec<u16> {
    let listeners = (0..number).map(|_| TcpListener::bind(("127.0.0.1", 0)));
    // All listeners are open at once, so that no port comes twice.
    let listeners: Vec<TcpListener> = listeners.map_while(Result::ok).collect();
    let ports = listeners.iter().map(TcpListener::local_addr);
    ports.map_while(Result::ok).map(|it| it.port()).collect()
}
