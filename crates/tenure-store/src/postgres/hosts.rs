//! The servers in an address: how to connect, and to which of them.
//!
//! An address may list several hosts, as in libpq; sqlx knows only one. They are tried in turn
//! until one answers and accepts writes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection};
use tenure_core::store::{StoreError, StoreErrorKind};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::error::{refuses_options, store_error};
use super::session::{Access, Sessions};
use crate::config::{Planner, Statements, StoreConfig};

/// Timeout for one host of several.
const HOST_TIMEOUT: Duration = Duration::from_secs(3);

/// Shortest interval between two searches for a usable host.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The servers of a store, and how to connect to them. `Debug` hides the passwords.
pub(crate) struct Hosts {
    /// Options as in the address; never empty.
    servers: Vec<PgConnectOptions>,
    access: Access,
    pub(crate) sessions: Arc<Sessions>,
    /// Set when a pooler has refused the start-up options.
    is_plain: AtomicBool,
    /// The host that was found last.
    current: AtomicUsize,
    /// End of the last search for a host. The lock is held during a search, so that there is one at
    /// a time.
    looked_at: Mutex<Option<Instant>>,
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts")
            .field("access", &self.access)
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}

impl Hosts {
    /// Reads the hosts from an address.
    pub(crate) fn parse(url: &str, config: &StoreConfig) -> Result<Self, StoreError> {
        let list = HostList::parse(url)?;
        let hosts = list.urls.iter().map(|url| {
            let options = PgConnectOptions::from_str(url);
            let options = options.map_err(|error| store_error("open", error))?;
            Ok(options.application_name("tenure"))
        });
        let hosts = hosts.collect::<Result<_, _>>()?;
        let sessions = Sessions::marked(config.planner, config.statements);
        Ok(Self::new(hosts, list.access, sessions))
    }

    /// The server of an application's pool; its options stay as they are.
    pub(crate) fn of_application(options: PgConnectOptions, statements: Statements) -> Self {
        let sessions = Sessions::marked(Planner::Role, statements);
        Self::new(vec![options], Access::Any, sessions)
    }

    fn new(servers: Vec<PgConnectOptions>, access: Access, sessions: Sessions) -> Self {
        Self {
            servers,
            access,
            sessions: Arc::new(sessions),
            is_plain: AtomicBool::new(false),
            current: AtomicUsize::new(0),
            looked_at: Mutex::new(None),
        }
    }

    pub(crate) fn are_several(&self) -> bool {
        self.servers.len() > 1
    }

    /// Options for a connection to the current host.
    pub(crate) fn options(&self) -> PgConnectOptions {
        let current = self.current.load(Ordering::Acquire);
        let host = self.servers.get(current).or_else(|| self.servers.first());
        self.options_of(host.expect("an address has at least one host"))
    }

    fn options_of(&self, host: &PgConnectOptions) -> PgConnectOptions {
        // PgBouncer refuses this parameter, and binary values do not depend on it.
        let options = host.clone().extra_float_digits(None);
        if self.is_plain.load(Ordering::Acquire) {
            return options;
        }
        options.options(self.sessions.options())
    }

    /// True if the error shows that a pooler refuses start-up options: then connect again, without.
    pub(crate) fn learn(&self, error: &sqlx::Error) -> bool {
        refuses_options(error) && !self.is_plain.swap(true, Ordering::AcqRel)
    }

    /// Examines a new connection.
    pub(crate) async fn examine(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        self.sessions.examine(conn, self.access).await
    }

    /// Searches for a usable host (one that gives the required access), unless a search has just
    /// ended. Returns the number of the current host.
    pub(crate) async fn find(&self) -> usize {
        let mut looked_at = self.looked_at.lock().await;
        if looked_at.is_none_or(|at| at.elapsed() > LOOK_INTERVAL) {
            drop(self.connect("open").await);
            *looked_at = Some(Instant::now());
        }
        self.current.load(Ordering::Acquire)
    }

    /// Connects to the first usable host, beginning with the current one, and makes it the current
    /// one.
    pub(crate) async fn connect(&self, verb: &'static str) -> Result<PgConnection, StoreError> {
        let current = self.current.load(Ordering::Acquire);
        let mut failures = Vec::new();
        let all = self.servers.iter().enumerate().cycle().skip(current);
        for (nth, host) in all.take(self.servers.len()) {
            match self.connect_to(host).await {
                Ok(conn) => {
                    self.current.store(nth, Ordering::Release);
                    return Ok(conn);
                }
                Err(error) => failures.push((host, store_error(verb, error))),
            }
        }
        Err(summary(verb, failures))
    }

    async fn connect_to(&self, host: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
        let patience = if self.are_several() {
            HOST_TIMEOUT
        } else {
            super::CONNECTION_TIMEOUT
        };
        let connecting = async {
            let mut conn = match self.options_of(host).connect().await {
                Err(error) if self.learn(&error) => self.options_of(host).connect().await?,
                connected => connected?,
            };
            self.examine(&mut conn).await?;
            Ok(conn)
        };
        let connected = timeout(patience, connecting).await;
        connected.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }
}

/// One error for all hosts; of a single host its own.
fn summary(verb: &'static str, mut failures: Vec<(&PgConnectOptions, StoreError)>) -> StoreError {
    if failures.len() == 1
        && let Some((_, only)) = failures.pop()
    {
        return only;
    }
    let is_transient = failures.iter().any(|(_, error)| error.is_transient());
    let kind = if is_transient {
        StoreErrorKind::Unavailable
    } else {
        StoreErrorKind::Invalid
    };
    let each = failures.iter().map(|(host, error)| {
        let (name, port) = (host.get_host(), host.get_port());
        let problem = error.summary();
        let problem = problem.split_once(": ").map_or("", |(_, problem)| problem);
        format!("{name}:{port}: {problem}")
    });
    let each: Vec<String> = each.collect();
    let message = format!("no host accepts writes: {}", each.join("; "));
    StoreError::new(verb, kind, message)
        .with_hint("is a failover going on, and does the address name every server?")
}

/// The hosts of an address, each as an address of its own.
struct HostList {
    urls: Vec<String>,
    access: Access,
}

impl HostList {
    /// Splits `a:1,b:2` before the path, and `host=a,b` and `port=1,2` after the question mark.
    fn parse(url: &str) -> Result<Self, StoreError> {
        let (front, query) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, rest) = front.split_once("://").unwrap_or(("postgres", front));
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (user, named) = match authority.rsplit_once('@') {
            Some((user, named)) => (format!("{user}@"), named),
            None => (String::new(), authority),
        };
        let (mut hosts, mut ports, mut attributes) = (Vec::new(), Vec::new(), "any");
        let mut kept = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("host", value)) => hosts = listed(value),
                Some(("port", value)) => ports = listed(value),
                Some(("target_session_attrs", value)) => attributes = value,
                _ => kept.push(pair.to_owned()),
            }
        }
        let count = match hosts.len() {
            0 => named.split(',').count(),
            count => count,
        };
        let is_one = count == 1;
        let access = match attributes {
            "any" if is_one => Access::Any,
            // A store on a read-only server would be useless.
            "any" | "read-write" | "primary" => Access::Writes,
            _ => return Err(bad_attributes()),
        };
        if !matches!(ports.len(), 0 | 1) && ports.len() != count {
            return Err(bad_list());
        }
        let urls = (0..count).map(|nth| {
            let mut query = kept.clone();
            let host = hosts.get(nth).map(|host| format!("host={host}"));
            let port = ports.get(nth).or_else(|| ports.first());
            query.extend(host);
            query.extend(port.map(|port| format!("port={port}")));
            // A host after the question mark overrides the one before, but not its port.
            let named = named
                .split(',')
                .nth(nth)
                .or_else(|| named.split(',').next());
            let named = named.unwrap_or_default();
            let mark = if query.is_empty() { "" } else { "?" };
            let query = query.join("&");
            format!("{scheme}://{user}{named}{path}{mark}{query}")
        });
        Ok(Self {
            urls: urls.collect(),
            access,
        })
    }
}

/// The parts of a list, whose commas may be escaped.
fn listed(value: &str) -> Vec<String> {
    let value = value.replace("%2C", ",").replace("%2c", ",");
    value.split(',').map(str::to_owned).collect()
}

fn bad_attributes() -> StoreError {
    let message = "target_session_attrs of the address asks for a server that does not write";
    StoreError::new("open", StoreErrorKind::Invalid, message)
        .with_hint("expected target_session_attrs=read-write, or none")
}

fn bad_list() -> StoreError {
    let message = "the address has another number of hosts than of ports";
    StoreError::new("open", StoreErrorKind::Invalid, message)
        .with_hint("expected postgres://user:password@a:5432,b:5432/database")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(url: &str) -> (Vec<String>, Access) {
        let list = HostList::parse(url).ok().unwrap();
        (list.urls, list.access)
    }

    #[test]
    fn an_address_lists_hosts_as_libpq_has_it() {
        for (url, urls, access) in [
            (
                "postgres://u:p,w@a:1,[::1]:2/db?target_session_attrs=read-write&sslmode=require",
                vec![
                    "postgres://u:p,w@a:1/db?sslmode=require",
                    "postgres://u:p,w@[::1]:2/db?sslmode=require",
                ],
                Access::Writes,
            ),
            (
                "postgres://a,b/db",
                vec!["postgres://a/db", "postgres://b/db"],
                Access::Writes,
            ),
            (
                "postgres:///db?host=a,b%2C/run&port=1,2,3",
                vec![
                    "postgres:///db?host=a&port=1",
                    "postgres:///db?host=b&port=2",
                    "postgres:///db?host=/run&port=3",
                ],
                Access::Writes,
            ),
            (
                "postgres://h:1/db?host=a,b",
                vec!["postgres://h:1/db?host=a", "postgres://h:1/db?host=b"],
                Access::Writes,
            ),
            (
                "postgresql://u@a:1/db?target_session_attrs=primary",
                vec!["postgresql://u@a:1/db"],
                Access::Writes,
            ),
            (
                "postgres://u@h/db?x=1",
                vec!["postgres://u@h/db?x=1"],
                Access::Any,
            ),
        ] {
            let urls: Vec<String> = urls.into_iter().map(str::to_owned).collect();
            assert_eq!(list(url), (urls, access), "{url}");
        }
    }

    #[test]
    fn an_address_that_asks_for_a_replica_is_refused() {
        for url in [
            "postgres://u:canary@a/db?target_session_attrs=standby",
            "postgres://u:canary@a,b/db?port=1,2,3",
        ] {
            let error = HostList::parse(url).err().unwrap();
            assert_eq!(error.kind(), StoreErrorKind::Invalid);
            assert!(!error.to_string().contains("canary"));
        }
    }
}
