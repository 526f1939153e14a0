//! Temporary PostgreSQL servers, run by `supervise.sh`, and new databases on them.
//!
//! A test process starts one server on first use and shares it among its tests. The server ends
//! with the process, even if that is killed. `TENURE_TEST_POSTGRES` names a server to use instead.

use std::{
    fmt,
    io::{BufRead, BufReader, Write},
    mem,
    net::TcpListener,
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, postgres::PgConnectOptions};
use tokio::{sync::OnceCell, task};
use uuid::Uuid;

use super::postgres_pool as pool;
use crate::config::StoreConfig;
use crate::postgres::PostgresStore;

const SUPERVISE: &str = include_str!("supervise.sh");

/// Creates an empty database on the shared server of this process, or on the one in
/// `TENURE_TEST_POSTGRES`.
///
/// # Panics
///
/// There is no server and none can be started: tests are never skipped silently.
pub async fn postgres() -> Database {
    match given() {
        Some(url) => Database::create(&url, Lifetime::Lasting).await,
        None => Database::on_server(shared().await.url()).await,
    }
}

/// Returns an empty database with the tables of the newest version, on the server of [`postgres`].
/// On the shared server it comes from a pool, which takes about 10 ms; on the one in
/// `TENURE_TEST_POSTGRES` it is created and migrated.
///
/// # Panics
///
/// See [`postgres`].
pub async fn migrated() -> Database {
    if let Some(url) = given() {
        let database = Database::create(&url, Lifetime::Lasting).await;
        PostgresStore::migrate(&database.url, &StoreConfig::default())
            .await
            .expect("the test server takes the migrations");
        return database;
    }
    let server = address(shared().await.url());
    let name = pool::take(&server)
        .await
        .expect("the shared server makes and empties databases");
    Database::named(server, name, Lifetime::Pooled)
}

/// The server to use instead of a temporary one.
#[expect(
    clippy::disallowed_methods,
    reason = "the server of a test is not a configuration of the program"
)]
fn given() -> Option<String> {
    std::env::var("TENURE_TEST_POSTGRES").ok()
}

/// The shared server of this process.
async fn shared() -> &'static Server {
    static SHARED: OnceCell<Server> = OnceCell::const_new();
    SHARED.get_or_init(Server::start_fast).await
}

/// Lifetime of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    /// Until its value is dropped, or until the server ends with the process.
    WithProcess,
    /// Until its value is dropped; the server continues.
    Lasting,
    /// Until the server ends; when its value is dropped, the pool gives the database to another
    /// test.
    Pooled,
}

/// A database for one test. Dropping the value removes it and ends its connections, or returns it
/// to the pool, which ends them before the next use.
#[derive(Debug)]
pub struct Database {
    /// URL for `PostgresStore::open`.
    pub url: String,
    name: String,
    server: PgConnectOptions,
    lifetime: Lifetime,
}

impl Database {
    /// Creates a database on a server that ends with this process.
    pub(super) async fn on_server(url: &str) -> Self {
        Self::create(url, Lifetime::WithProcess).await
    }

    async fn create(server: &str, lifetime: Lifetime) -> Self {
        let server = address(server);
        let name = fresh_name();
        order(&server, format!("create database {name}"))
            .await
            .expect("the test server takes connections and makes databases");
        Self::named(server, name, lifetime)
    }

    fn named(server: PgConnectOptions, name: String, lifetime: Lifetime) -> Self {
        Self {
            url: server.clone().database(&name).to_url_lossy().into(),
            name,
            server,
            lifetime,
        }
    }
}

impl Drop for Database {
    /// Removes the database on a separate thread, since a drop cannot await. Waits only for a
    /// lasting server: one that ends with this process leaves nothing behind.
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Pooled {
            return pool::give_back(mem::take(&mut self.name));
        }
        let server = self.server.clone();
        let text = format!("drop database if exists {} with (force)", self.name);
        let removal = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            // If the server is gone, so is the database.
            runtime.is_ok_and(|runtime| runtime.block_on(order(&server, text)).is_ok())
        });
        if self.lifetime == Lifetime::Lasting {
            drop(removal.join());
        }
    }
}

fn address(server: &str) -> PgConnectOptions {
    server
        .parse()
        .expect("the server's address is a postgres:// URL")
}

/// Unique name of a database.
pub(super) fn fresh_name() -> String {
    format!("tenure_test_{}", Uuid::now_v7().simple())
}

/// Runs one statement on a new connection. `create database` takes no parameters, so the caller
/// puts a generated name into the text.
pub(super) async fn order(server: &PgConnectOptions, text: String) -> Result<(), sqlx::Error> {
    let mut connection = server.connect().await?;
    connection.execute(AssertSqlSafe(text)).await?;
    connection.close().await
}

/// A PostgreSQL server for one test, on a free port of the loopback address.
///
/// It ends with the value or with the process, whichever comes first.
pub struct Server {
    url: String,
    port: u16,
    supervisor: Arc<Mutex<Supervisor>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Starts a durable server (`fsync` on), for tests that kill it.
    ///
    /// # Panics
    ///
    /// PostgreSQL is not installed or does not start; the message explains the remedy.
    pub async fn start() -> Self {
        Self::start_with("on").await
    }

    /// Starts a server without `fsync`, for tests that do not kill it.
    ///
    /// # Panics
    ///
    /// PostgreSQL is not installed or does not start; the message explains the remedy.
    pub async fn start_fast() -> Self {
        Self::start_with("off").await
    }

    /// Starts a replica of this server, which follows it.
    ///
    /// # Panics
    ///
    /// The server is down, or the replica does not start.
    pub async fn replica(&self) -> Self {
        Self::start_from("off", Some((self.port, "-R"))).await
    }

    /// Starts a copy of this server's files: another primary with the same history up to now.
    ///
    /// # Panics
    ///
    /// The server is down, or the copy does not start.
    pub async fn copy(&self) -> Self {
        Self::start_from("off", Some((self.port, ""))).await
    }

    /// Makes this replica a primary; returns when it accepts writes.
    ///
    /// # Panics
    ///
    /// It is not a replica.
    pub async fn promote(&self) {
        self.ask("promote".to_owned()).await;
    }

    /// The port of this server on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// URL of its database `postgres`, as superuser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Creates a database on this server.
    ///
    /// # Panics
    ///
    /// The server is down.
    pub async fn database(&self) -> Database {
        Database::on_server(&self.url).await
    }

    /// Kills the server like a crash (SIGKILL to the postmaster); returns when the postmaster is
    /// gone. Its other processes end on their own: for a moment they may still answer an open
    /// connection, even commit, so a test that needs silence must wait for that connection's error.
    ///
    /// # Panics
    ///
    /// The server is not running.
    pub async fn kill(&self) {
        self.ask("kill".to_owned()).await;
    }

    /// Shuts the server down immediately, without waiting for its clients; returns when it is gone.
    ///
    /// # Panics
    ///
    /// The server is not running.
    pub async fn stop(&self) {
        self.ask("stop".to_owned()).await;
    }

    /// Starts a killed or stopped server again on the same port; returns when it accepts
    /// connections.
    ///
    /// # Panics
    ///
    /// It does not start within about ten seconds.
    pub async fn restart(&self) {
        self.ask(format!("start {}", self.port)).await;
    }

    async fn start_with(fsync: &'static str) -> Self {
        Self::start_from(fsync, None).await
    }

    /// Starts a new server, or one from the files of another, with an option of `pg_basebackup`.
    async fn start_from(fsync: &'static str, other: Option<(u16, &'static str)>) -> Self {
        let (port, option) = other.map_or_else(Default::default, |(port, option)| {
            (port.to_string(), option)
        });
        let started = task::spawn_blocking(move || {
            let mut supervisor = Supervisor::spawn(SUPERVISE, &[fsync, &port, option])?;
            // Try a second port if another process has taken the first one meanwhile.
            let mut start = || {
                let port = free_port();
                supervisor.ask(&format!("start {port}")).map(|_| port)
            };
            let port = start().or_else(|_| start())?;
            Ok((supervisor, port))
        });
        let (supervisor, port) = started
            .await
            .expect("starting a server does not panic")
            .unwrap_or_else(|why: String| refuse(&why));
        Self {
            url: format!("postgres://postgres@127.0.0.1:{port}/postgres"),
            port,
            supervisor: Arc::new(Mutex::new(supervisor)),
        }
    }

    async fn ask(&self, command: String) -> String {
        let supervisor = Arc::clone(&self.supervisor);
        let answer = task::spawn_blocking(move || {
            supervisor
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .ask(&command)
        });
        answer
            .await
            .expect("asking the supervisor does not panic")
            .unwrap_or_else(|why| refuse(&why))
    }
}

#[expect(
    clippy::panic,
    reason = "a test that has no server must fail, and say why"
)]
pub(super) fn refuse(why: &str) -> ! {
    panic!("the throw-away PostgreSQL server, cluster or pooler {why}")
}

/// Returns a port that was free a moment ago.
pub(super) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .expect("the loopback address has a free port")
        .port()
}

/// The shell that runs `supervise.sh`, `cluster.sh` or `pool.sh`; when `commands` closes, it stops
/// the servers and exits.
pub(super) struct Supervisor {
    shell: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Supervisor {
    /// Runs a script, which gets its own text and `arguments`, until its first answer.
    pub(super) fn spawn(script: &str, arguments: &[&str]) -> Result<Self, String> {
        let mut shell = Command::new("sh")
            .args(["-c", script, "tenure-postgres", script])
            .args(arguments)
            // Ctrl-C at the terminal must reach only the test; otherwise the supervisor could not
            // clean up.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|cause| format!("failed: no shell: {cause}"))?;
        let commands = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().expect("stdout is piped"));
        let mut supervisor = Self {
            shell,
            commands,
            answers,
        };
        supervisor.answer().map(|_| supervisor)
    }

    pub(super) fn ask(&mut self, command: &str) -> Result<String, String> {
        let commands = self
            .commands
            .as_mut()
            .expect("commands close with the value");
        writeln!(commands, "{command}").map_err(|cause| format!("took no command: {cause}"))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .map_err(|cause| format!("gave no answer: {cause}"))?;
        let line = line.trim_end();
        if line.is_empty() {
            Err("gave no answer".to_owned())
        } else if line.starts_with("failed") {
            Err(line.to_owned())
        } else {
            Ok(line.to_owned())
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.commands = None;
        drop(self.shell.wait());
    }
}

#[cfg(test)]
mod tests {
    use sqlx::PgConnection;

    use super::*;

    async fn connect(url: &str) -> PgConnection {
        PgConnection::connect(url)
            .await
            .expect("the server takes connections")
    }

    #[tokio::test]
    async fn two_databases_are_separate() {
        let (one, other) = (postgres().await, postgres().await);
        connect(&one.url)
            .await
            .execute("create table planted (id int)")
            .await
            .unwrap();
        let seen: bool = sqlx::query_scalar("select to_regclass('planted') is not null")
            .fetch_one(&mut connect(&other.url).await)
            .await
            .unwrap();
        assert!(!seen);
    }

    /// Goal: a test sees nothing of the previous test. Method: leave behind everything that a test
    /// could, then take the same database again, if possible; its name must differ in any case.
    #[tokio::test]
    async fn a_database_from_the_pool_is_as_after_its_migration() {
        const LEFT: &str = "insert into tenure_outbox (topic, payload)
                select 'a', '{}' from generate_series(1, 1000);
            update tenure_queues set is_paused = true;
            insert into tenure_queues (name) values ('mine');
            create table mine (id int primary key);
            create schema other;
            create view other.mine as select * from mine;
            create function mine() returns int language sql as 'select 1';
            analyze";
        const STATE: &str = "select schema_to_xml('public', true, false, '')::text
                || (select string_agg(format('%s %s', sequencename, last_value), ' '
                        order by sequencename)
                    from pg_sequences)
                || (select count(*) from pg_class where relkind <> 't')
                || (select count(*) from pg_proc)
                || (select count(*) from pg_stats where schemaname = 'public')";
        const STRANGE: &str = "alter table tenure_events add column mine int";

        let first = migrated().await;
        let mut connection = connect(&first.url).await;
        let state: String = sqlx::query_scalar(STATE)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        connection.execute(sqlx::raw_sql(LEFT)).await.unwrap();
        let mut earlier = vec![first.name.clone()];
        drop(first);

        for _ in 0..4 {
            let next = migrated().await;
            assert!(!earlier.contains(&next.name));
            let mut connection = connect(&next.url).await;
            let again: String = sqlx::query_scalar(STATE)
                .fetch_one(&mut connection)
                .await
                .unwrap();
            assert_eq!(again, state);
            connection.execute(STRANGE).await.unwrap();
            earlier.push(next.name.clone());
        }
        // The reuse of the database ended its connection.
        assert!(connection.execute("select 1").await.is_err());
    }

    #[tokio::test]
    async fn a_dropped_database_is_removed() {
        let server = Server::start_fast().await;
        let database = Database::create(server.url(), Lifetime::Lasting).await;
        let name = database.name.clone();
        drop(database);
        let left: i64 = sqlx::query_scalar("select count(*) from pg_database where datname = $1")
            .bind(name)
            .fetch_one(&mut connect(server.url()).await)
            .await
            .unwrap();
        assert_eq!(left, 0);
    }

    #[tokio::test]
    async fn a_killed_server_comes_back_with_what_was_committed() {
        let server = Server::start().await;
        let mut connection = connect(server.url()).await;
        connection
            .execute("create table kept (id int)")
            .await
            .unwrap();
        connection
            .execute("insert into kept values (1)")
            .await
            .unwrap();
        connection
            .execute("begin; insert into kept values (2)")
            .await
            .unwrap();

        server.kill().await;
        assert!(PgConnection::connect(server.url()).await.is_err());

        server.restart().await;
        let kept: Vec<i32> = sqlx::query_scalar("select id from kept")
            .fetch_all(&mut connect(server.url()).await)
            .await
            .unwrap();
        assert_eq!(kept, [1]);
    }

    /// The test runs itself again as the process that starts the server and is killed.
    #[tokio::test]
    async fn a_server_does_not_outlive_a_killed_process() {
        const ROLE: &str = "TENURE_TEST_ROLE";
        #[expect(clippy::disallowed_methods, reason = "tells the two processes apart")]
        let started_by_itself = std::env::var_os(ROLE).is_some();
        if started_by_itself {
            let server = Server::start_fast().await;
            #[expect(clippy::print_stdout, reason = "the other process reads it here")]
            {
                println!("\nserver at {}", server.url());
            }
            std::future::pending::<()>().await;
        }

        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("testing::postgres::tests::a_server_does_not_outlive_a_killed_process")
            .env(ROLE, "server")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("server at ").map(str::to_owned))
            .expect("the process says where its server is");
        let mut connection = connect(&url).await;
        process.kill().unwrap();
        process.wait().unwrap();

        // The connection ends only with the server.
        while connection.execute("select pg_sleep(0.01)").await.is_ok() {}
        while PgConnection::connect(&url).await.is_ok() {}
    }
}
