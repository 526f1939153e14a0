//! A PostgreSQL server to throw away, run by `supervise.sh`, and fresh databases on it.
//!
//! A test process starts one server at its first need and shares it; the server ends with the
//! process, even when that is killed. `TENURE_TEST_POSTGRES` names a server to use instead.

use std::{
    fmt,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, postgres::PgConnectOptions};
use tokio::{sync::OnceCell, task};
use uuid::Uuid;

const SUPERVISE: &str = include_str!("supervise.sh");

/// A fresh, empty database on the server that this process's tests share, or on the one in
/// `TENURE_TEST_POSTGRES`.
///
/// # Panics
///
/// When there is no server and none can be started: a test is never skipped in silence.
pub async fn postgres() -> Database {
    static SHARED: OnceCell<Server> = OnceCell::const_new();

    #[expect(
        clippy::disallowed_methods,
        reason = "a test's choice of server is no configuration of the program"
    )]
    let given = std::env::var("TENURE_TEST_POSTGRES").ok();
    let (server, lifetime) = match given {
        Some(url) => (url, Lifetime::Lasting),
        None => (
            SHARED
                .get_or_init(Server::start_fast)
                .await
                .url()
                .to_owned(),
            Lifetime::WithProcess,
        ),
    };
    Database::create(&server, lifetime).await
}

/// Whether a server outlives this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    WithProcess,
    Lasting,
}

/// A database of a test's own; removed with the value, connections to it are ended.
#[derive(Debug)]
pub struct Database {
    /// Its address, for `PostgresStore::open`.
    pub url: String,
    name: String,
    server: PgConnectOptions,
    lifetime: Lifetime,
}

impl Database {
    async fn create(server: &str, lifetime: Lifetime) -> Self {
        let server: PgConnectOptions = server
            .parse()
            .expect("the server's address is a postgres:// URL");
        let name = format!("tenure_test_{}", Uuid::now_v7().simple());
        order(&server, format!("create database {name}"))
            .await
            .expect("the test server takes connections and makes databases");
        Self {
            url: server.clone().database(&name).to_url_lossy().into(),
            name,
            server,
            lifetime,
        }
    }
}

impl Drop for Database {
    /// Removes it on a thread of its own, since a drop cannot wait for a future. Only a lasting
    /// server is waited for: from one that ends with this process nothing remains anyway.
    fn drop(&mut self) {
        let server = self.server.clone();
        let text = format!("drop database if exists {} with (force)", self.name);
        let removal = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            // A server that is gone has no database to remove.
            runtime.is_ok_and(|runtime| runtime.block_on(order(&server, text)).is_ok())
        });
        if self.lifetime == Lifetime::Lasting {
            drop(removal.join());
        }
    }
}

/// One statement on a connection of its own. `create database` takes no parameters, so the text is
/// put together here, from a name that is made here, too.
async fn order(server: &PgConnectOptions, text: String) -> Result<(), sqlx::Error> {
    let mut connection = server.connect().await?;
    connection.execute(AssertSqlSafe(text)).await?;
    connection.close().await
}

/// A PostgreSQL server of a test's own, on a free port of the loopback address.
///
/// It ends with the value, or with the process, whichever is first.
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
    /// When PostgreSQL is not installed or does not start; the message says what to do.
    pub async fn start() -> Self {
        Self::start_with("on").await
    }

    /// Starts a server that does not wait for the disk, for tests that leave it alone.
    ///
    /// # Panics
    ///
    /// When PostgreSQL is not installed or does not start; the message says what to do.
    pub async fn start_fast() -> Self {
        Self::start_with("off").await
    }

    /// The address of its database `postgres`, where the caller is superuser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A fresh database on this server.
    ///
    /// # Panics
    ///
    /// When the server is down.
    pub async fn database(&self) -> Database {
        Database::create(&self.url, Lifetime::WithProcess).await
    }

    /// Kills the server as a crash would (SIGKILL to the postmaster); back when it is gone. Its
    /// other processes notice by themselves: for a moment they may still answer a connection that
    /// was open, even commit, so a test that needs silence waits for that connection's error.
    ///
    /// # Panics
    ///
    /// When the server is not running.
    pub async fn kill(&self) {
        self.ask("kill".to_owned()).await;
    }

    /// Starts a killed server again, on the same port; back when it takes connections.
    ///
    /// # Panics
    ///
    /// When it does not come up within some ten seconds.
    pub async fn restart(&self) {
        self.ask(format!("start {}", self.port)).await;
    }

    async fn start_with(fsync: &'static str) -> Self {
        let started = task::spawn_blocking(move || {
            let mut supervisor = Supervisor::spawn(fsync)?;
            // A second port, should somebody else have taken the first in the meantime.
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
fn refuse(why: &str) -> ! {
    panic!("the throw-away PostgreSQL server {why}")
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .expect("the loopback address has a free port")
        .port()
}

/// The shell that runs `supervise.sh`; when `commands` closes, it stops the server and ends.
struct Supervisor {
    shell: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Supervisor {
    fn spawn(fsync: &str) -> Result<Self, String> {
        let mut shell = Command::new("sh")
            .args(["-c", SUPERVISE, "tenure-postgres", SUPERVISE, fsync])
            // A Ctrl-C at the terminal must reach the test alone, or nobody is left to clean up.
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

    fn ask(&mut self, command: &str) -> Result<String, String> {
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

    /// Runs itself a second time as the process that starts the server and is killed.
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

        // Ends only when the server does.
        while connection.execute("select pg_sleep(0.01)").await.is_ok() {}
        while PgConnection::connect(&url).await.is_ok() {}
    }
}
