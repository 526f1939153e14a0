//! A temporary PgBouncer in front of a server, run by `pool.sh`.

use std::process::Command;

use tokio::task;

use super::postgres::{Supervisor, free_port, refuse};

const POOL: &str = include_str!("pool.sh");

/// Pool mode of a [`Pooler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// A client keeps its server connection.
    Session,
    /// A client has a server connection for each transaction only.
    Transaction,
}

/// The PgBouncer of the system, on a free port of the loopback address. It ends with the value or
/// with the process, whichever comes first.
pub struct Pooler {
    port: u16,
    _supervisor: Supervisor,
}

impl std::fmt::Debug for Pooler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pooler")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Pooler {
    /// Starts PgBouncer in front of the server of `url`, with its own defaults besides `settings`.
    ///
    /// # Panics
    ///
    /// PgBouncer is not installed or does not start; the message explains the remedy.
    pub async fn start(url: &str, mode: PoolMode, settings: &str) -> Self {
        let server = port_of(url);
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
        };
        let settings = format!("pool_mode = {mode}\n{settings}");
        let started = task::spawn_blocking(move || {
            let port = free_port();
            let (own, server) = (port.to_string(), server.to_string());
            let supervisor = Supervisor::spawn(POOL, &[&own, &server, &settings])?;
            Ok((supervisor, port))
        });
        let (supervisor, port) = started
            .await
            .expect("starting a pooler does not panic")
            .unwrap_or_else(|why: String| refuse(&why));
        Self {
            port,
            _supervisor: supervisor,
        }
    }

    /// True if it keeps the prepared statements of its clients apart without being told.
    ///
    /// # Panics
    ///
    /// PgBouncer does not tell its version.
    #[must_use]
    pub fn keeps_names(&self) -> bool {
        let version = Command::new("sh")
            .args(["-c", "PATH=$PATH:/usr/sbin; pgbouncer --version"])
            .output()
            .expect("a shell starts");
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let mut numbers = version.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.find_map(|text| text.parse::<u32>().ok());
        number().zip(number()).expect("PgBouncer has a version") >= (1, 24)
    }

    /// The URL of the same database through this pooler.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let (from, to) = (port_of(url), self.port);
        url.replacen(&format!(":{from}/"), &format!(":{to}/"), 1)
    }
}

/// The port in a URL of this module.
fn port_of(url: &str) -> u16 {
    let front = url.rsplit_once('/').map(|(front, _)| front);
    let port = front.and_then(|front| front.rsplit_once(':'));
    let port = port.and_then(|(_, port)| port.parse().ok());
    port.expect("the URL of a test server has a port")
}
