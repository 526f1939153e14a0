//! Workers of the real program on one database.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tenure::ItemId;
use tenure_nemesis::{About, Crew, Loss, Servers};
use tenure_store::testing::{Cluster, PoolMode, Pooler, Server};

use crate::program::{self, Place};

/// The configuration of every worker. Two files receive the events: the publisher `file` writes
/// one, and the commands write the other. For odd ids the slow command writes before it sleeps, for
/// even ids afterwards, when its worker may have been killed.
const CONFIG: &str = r#"
[lease]
term = "TERM"

[retry]
max_crashes = CRASHES

[worker]
concurrency = 8
batch = 16

[log]
format = "json"
level = "trace"

[publishers.file]
kind = "lines"
path = "lines.jsonl"

[publishers.command]
kind = "exec"
command = '''
RECEIVE
[ $((TENURE_ID % 2)) = 0 ] || receive
sleep 0.$(((TENURE_ID * 37 + TENURE_FENCE * 11) % 60 + 30))
[ $((TENURE_ID % 2)) = 1 ] || receive
'''

[publishers.brisk]
kind = "exec"
command = '''
RECEIVE
receive
sleep 0.02
'''

[[routes]]
topics = ["quick", "plain", "keyed"]
publisher = "file"

[[routes]]
topics = ["slow"]
publisher = "command"

[[routes]]
topics = ["brisk"]
publisher = "brisk"
"#;

/// The shell function with which a command records a received event.
const RECEIVE: &str = r#"receive() {
    printf '{"id":%s,"event_id":"%s","fence":%s,"attempt":%s}\n' \
        "$TENURE_ID" "$TENURE_EVENT_ID" "$TENURE_FENCE" "$TENURE_ATTEMPT" >> exec.jsonl
}"#;

/// A database and the workers on it.
pub(super) struct World {
    pub(super) place: Place,
    pub(super) crew: Crew,
    _pooler: Option<Pooler>,
}

impl World {
    /// Creates a world on an SQLite file.
    pub(super) fn sqlite() -> Self {
        let place = program::sqlite();
        let file = place.file();
        let mut world = Self::new(place);
        world.crew = world.crew.blocked(move || is_blocked(&file));
        world
    }

    /// Creates a world on a separate PostgreSQL server with durable commits.
    pub(super) async fn postgres() -> Self {
        let server = Server::start().await;
        let mut world = Self::new(program::on(server.database().await));
        world.crew = world.crew.servers(Servers::One(server));
        world
    }

    /// Creates a world on a Patroni cluster, whose leader is killed.
    pub(super) async fn cluster() -> Self {
        let cluster = Cluster::start().await;
        let mut world = Self::new(program::on(cluster.database().await));
        world.crew = world.crew.servers(Servers::Cluster(cluster));
        world
    }

    /// Creates a world like [`World::postgres`] behind a pooler with fewer server connections than
    /// the workers have.
    pub(super) async fn pooled() -> Self {
        let server = Server::start().await;
        let mut place = program::on(server.database().await);
        // The pooler tries again soon after the server is back.
        let settings = "default_pool_size = 6\nserver_login_retry = 1";
        let pooler = Pooler::start(&place.url, PoolMode::Transaction, settings).await;
        place.url = pooler.url(&place.url);
        let world = Self::new(place);
        Self {
            place: world.place,
            crew: world.crew.servers(Servers::One(server)),
            _pooler: Some(pooler),
        }
    }

    /// Creates a world on the PostgreSQL server that all tests share and that is never killed.
    pub(super) async fn shared_postgres() -> Self {
        Self::new(program::postgres().await)
    }

    fn new(place: Place) -> Self {
        place.run(&["migrate"]).succeeded();
        let (url, folder) = (place.url.clone(), place.path(""));
        let start = move |number: u32, args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
            command
                .env_clear()
                // The shell of the commands finds its programs in these folders.
                .env("PATH", "/usr/bin:/bin")
                .env("TENURE_DATABASE", &url)
                .current_dir(&folder)
                .args(args)
                .args(["--name", &format!("w{number}")]);
            command
        };
        Self {
            crew: Crew::new(place.path(""), start, ready),
            place,
            _pooler: None,
        }
    }

    /// Writes the configuration of the workers.
    pub(super) fn configure(&self, term: Duration, max_crashes: u32, more: &str) {
        let text = CONFIG
            .replace("RECEIVE", RECEIVE)
            .replace("TERM", &tenure::settings::duration_text(term))
            .replace("CRASHES", &max_crashes.to_string());
        self.place.write("tenure.toml", &format!("{text}{more}"));
    }

    /// Returns all losses that workers have reported. Fails the test if a log contains an internal
    /// error of Tenure.
    pub(super) fn losses(&self) -> Vec<Loss> {
        let logs = self.crew.logs();
        for text in &logs {
            assert!(!text.contains("panicked"), "a worker panicked: {text}");
            assert!(!text.contains("a fault of Tenure"), "{text}");
        }
        logs.iter()
            .flat_map(|text| text.lines())
            .filter_map(loss)
            .collect()
    }
}

/// Returns true if a paused worker blocks all other writers. This happens if it was paused in the
/// middle of a transaction, because SQLite has one writer.
fn is_blocked(file: &PathBuf) -> bool {
    let conn = rusqlite::Connection::open(file).unwrap();
    // The timeout is longer than any transaction of a running worker.
    conn.busy_timeout(Duration::from_secs(1)).unwrap();
    conn.execute_batch("begin immediate; rollback").is_err()
}

/// Returns the process name of a worker, once its log shows that it is ready.
fn ready(log: &str) -> Option<String> {
    let lines = log.split_inclusive('\n');
    let mut lines = lines.filter(|line| line.ends_with('\n') && line.contains("\"opened\""));
    let line: serde_json::Value = serde_json::from_str(lines.next()?).unwrap();
    Some(process_of(line["worker"].as_str()?))
}

/// The process name in the name of a worker. A process has two workers, a relay and a sender.
pub(super) fn process_of(worker: &str) -> String {
    worker.split('-').next().unwrap_or_default().to_owned()
}

/// The loss that a log line reports.
fn loss(line: &str) -> Option<Loss> {
    let reports = [
        "lost a lease",
        "a settle was refused",
        "gave up a settle",
        "released a claim",
    ];
    let nth = reports.iter().position(|report| line.contains(report))?;
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields")?;
    let message = fields.get("message")?.as_str()?;
    if !message.starts_with(reports[nth]) {
        return None;
    }
    let about = match nth {
        0 => About::Lease(fields.get("fence")?.as_i64()?),
        1 => {
            let item: ItemId = fields.get("item")?.as_str()?.parse().ok()?;
            About::Work(item.number())
        }
        2 => About::Settle,
        _ => About::Claim,
    };
    Some(Loss {
        holder: process_of(line.get("worker")?.as_str()?),
        about,
    })
}
