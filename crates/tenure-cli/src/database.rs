//! The database of a command: its address, printed without its password, and opening it.

use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use tenure::{StoreConfig, StoreError, Tenure};

use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::time::brief;

/// The placeholder for a password.
const HIDDEN: &str = "…";

/// The worker name of a command, recorded as the holder of items that it buries.
const WORKER: &str = "operator";

/// Timeout for a database that accepts the connection and then does not answer.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Handling of a database that does not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Make,
    /// Report it: there is nothing to read.
    Report,
}

/// The address of a database. `Debug` and `Display` hide its password.
#[derive(Clone)]
pub(crate) struct Database {
    url: String,
    store: StoreConfig,
}

impl Default for Database {
    fn default() -> Self {
        Self::new("sqlite://tenure.db")
    }
}

impl Database {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            store: StoreConfig::default(),
        }
    }

    /// The address with its password, for the store only.
    pub(crate) fn expose(&self) -> &str {
        &self.url
    }

    /// This database with other options for opening it.
    pub(crate) fn opened_with(self, store: StoreConfig) -> Self {
        Self { store, ..self }
    }

    pub(crate) async fn open(&self, absent: IfMissing) -> Result<Tenure, Stop> {
        self.check_lasting()?;
        if absent == IfMissing::Report {
            self.check_present()?;
        }
        let open = Tenure::open_with(&self.url, &self.store, WORKER);
        within(OPEN_TIMEOUT, open).await
    }

    /// Refuses an address of another form than the store's; returns the problem, without the
    /// password, and a hint.
    pub(crate) fn check_address(&self) -> Result<(), (String, Option<String>)> {
        const KNOWN: [&str; 4] = ["postgres://", "postgresql://", "sqlite:", "memory:"];
        let is_known = KNOWN.iter().any(|scheme| self.url.starts_with(scheme));
        let has_path = self.sqlite_path().is_none_or(|path| !path.is_empty());
        if is_known && has_path {
            return Ok(());
        }
        let expected = "expected sqlite://FILE or postgres://USER@HOST/NAME";
        if self.url.is_empty() {
            return Err((format!("the database address is empty; {expected}"), None));
        }
        let text = format!("the database address is \"{self}\"; {expected}");
        let is_file = has_path && !self.url.contains("://");
        let hint = is_file.then(|| format!("did you mean sqlite://{}?", self.url));
        Err((text, hint))
    }

    /// Refuses an in-memory database: it would end with the command.
    pub(crate) fn check_lasting(&self) -> Result<(), Problem> {
        if !self.url.starts_with("memory:") {
            return Ok(());
        }
        let message = "the database is memory: it would end with this command";
        Err(Problem::new(Exit::Usage, message)
            .hint("give --database sqlite://PATH or postgres://USER@HOST/NAME"))
    }

    /// Reports a missing SQLite file, so that a command that reads does not create it.
    pub(crate) fn check_present(&self) -> Result<(), Problem> {
        match self.sqlite_path() {
            // The store refuses an address without a path.
            Some(path) if !path.is_empty() && !Path::new(path).exists() => {
                let message = format!("there is no database at {path} yet");
                Err(Problem::new(Exit::Nothing, message).hint(
                    "`tenure enqueue TOPIC JSON` or `tenure migrate` creates it; \
                     --database or TENURE_DATABASE names another one",
                ))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }

    /// The hosts and ports of the PostgreSQL servers, without Unix sockets. Parameters after the
    /// question mark override the authority.
    pub(crate) fn hosts_and_ports(&self) -> Vec<(String, u16)> {
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return Vec::new();
        };
        if !scheme.starts_with("postgres") {
            return Vec::new();
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let (_, named) = authority.rsplit_once('@').unwrap_or(("", authority));
        let parameter = |names: &[&str]| {
            let all = self.query().filter(|(name, _)| names.contains(name));
            all.last().map(|(_, value)| decoded(value))
        };
        let hosts = parameter(&["host", "hostaddr"]);
        let ports = parameter(&["port"]);
        let ports: Vec<&str> = ports.iter().flat_map(|list| list.split(',')).collect();
        let hosts: Option<Vec<&str>> = hosts.as_deref().map(|list| list.split(',').collect());
        let named: Vec<&str> = named.split(',').collect();
        let count = hosts.as_ref().map_or(named.len(), Vec::len);
        let each = (0..count).filter_map(|nth| {
            let named = named.get(nth).or_else(|| named.first())?;
            let (host, port) = match named.rsplit_once(':') {
                Some((host, port)) if !port.contains(']') => (host, Some(port)),
                _ => (*named, None),
            };
            let host = match &hosts {
                Some(hosts) => (*hosts.get(nth)?).to_owned(),
                None => decoded(host),
            };
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let port = ports.get(nth).or_else(|| ports.first()).copied().or(port);
            let port = port.map_or(Some(5432), |port| port.parse().ok())?;
            let is_file = host.starts_with('/');
            // Without a host, the server is on this machine.
            let host = if host.is_empty() { "localhost" } else { host };
            (!is_file).then(|| (host.to_owned(), port))
        });
        each.collect()
    }

    /// True for an SQLite file.
    pub(crate) fn is_file(&self) -> bool {
        self.sqlite_path().is_some()
    }

    fn sqlite_path(&self) -> Option<&str> {
        self.url
            .strip_prefix("sqlite://")
            .or_else(|| self.url.strip_prefix("sqlite:"))
    }

    /// The text with every occurrence of this address or its password hidden.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut hidden = text.replace(&self.url, &self.to_string());
        for secret in self.secrets() {
            // A password that is also a public word, such as the user's name, stays: hiding it
            // would garble other text.
            if !self.is_public(&secret) {
                hidden = hidden.replace(&secret, HIDDEN);
            }
        }
        hidden
    }

    fn is_public(&self, secret: &str) -> bool {
        let printed = self.to_string();
        printed
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| word == secret)
    }

    /// The passwords in the address, encoded and decoded.
    fn secrets(&self) -> Vec<String> {
        let password = self.password().map(str::to_owned);
        let named = self
            .query()
            .filter(|(name, _)| name.ends_with("password"))
            .map(|(_, value)| value.to_owned());
        let written: Vec<String> = password.into_iter().chain(named).collect();
        let plain = written.iter().map(|secret| decoded(secret));
        let mut secrets: Vec<String> = written.iter().cloned().chain(plain).collect();
        secrets.retain(|secret| !secret.is_empty());
        // Longest first, so that no part of one remains.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        secrets
    }

    /// The text between the user's name and the `@`.
    fn password(&self) -> Option<&str> {
        let (_, rest) = self.url.split_once("://")?;
        let front = rest.split('?').next().unwrap_or(rest);
        let (user, _) = front.rsplit_once('@')?;
        user.split_once(':').map(|(_, password)| password)
    }

    fn query(&self) -> impl Iterator<Item = (&str, &str)> {
        let (_, query) = self.url.split_once('?').unwrap_or(("", ""));
        query.split('&').filter_map(|pair| pair.split_once('='))
    }
}

impl FromStr for Database {
    type Err = Infallible;

    /// Accepts any text: an error of clap would print the value, including the password. The store
    /// refuses an address that it cannot open.
    fn from_str(url: &str) -> Result<Self, Infallible> {
        Ok(Self::new(url))
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.url.clone();
        if let Some(password) = self.password() {
            text = text.replacen(&format!(":{password}@"), &format!(":{HIDDEN}@"), 1);
        }
        for (name, value) in self.query() {
            if name.ends_with("password") {
                text = text.replace(&format!("{name}={value}"), &format!("{name}={HIDDEN}"));
            }
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({self})")
    }
}

/// The result of `open`, or a report that it timed out.
async fn within<T>(
    wait: Duration,
    open: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, Stop> {
    match tokio::time::timeout(wait, open).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(silent(wait).into()),
    }
}

/// The report of a database that accepts the connection and then does not answer.
pub(crate) fn silent(wait: Duration) -> Problem {
    let message = format!("the database does not answer within {}", brief(wait));
    Problem::new(Exit::Failed, message).hint(
        "is it overloaded, is its server away behind a pooler, has a transaction locked Tenure's \
         tables, or does another program listen on this host and port?",
    )
}

/// Hides the password of any address in arbitrary text, such as a mistyped argument.
pub(crate) fn hide_addresses(text: &str) -> String {
    text.split_inclusive(|c: char| c.is_whitespace() || c == '\'')
        .map(|word| Database::new(word).to_string())
        .collect()
}

/// The text with its percent escapes decoded.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let escape = part
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let Some(byte) = escape {
            bytes.push(byte);
            bytes.extend(part.bytes().skip(2));
        } else {
            bytes.push(b'%');
            bytes.extend(part.bytes());
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database(url: &str) -> Database {
        url.parse().unwrap()
    }

    #[test]
    fn an_address_is_printed_without_its_password() {
        for (url, printed) in [
            ("postgres://u:canary@h/db", "postgres://u:…@h/db"),
            ("postgres://u:can/ary@x@h/db", "postgres://u:…@h/db"),
            (
                "postgres://u@h/db?password=canary&x=1",
                "postgres://u@h/db?password=…&x=1",
            ),
            ("postgres://u@h:5432/db", "postgres://u@h:5432/db"),
            (
                "postgres://u:canary@a:1,b:2/db",
                "postgres://u:…@a:1,b:2/db",
            ),
            ("sqlite://tenure.db", "sqlite://tenure.db"),
        ] {
            assert_eq!(database(url).to_string(), printed);
            assert!(!format!("{:?}", database(url)).contains("canary"));
        }
    }

    #[test]
    fn host_and_port_are_those_of_the_connection() {
        for (url, host, port) in [
            ("postgres://u:p@h/db", "h", 5432),
            ("postgresql://h:5433", "h", 5433),
            ("postgres://u@[fd00::1]:5433/db", "fd00::1", 5433),
            ("postgres://u@[fd00::1]/db", "fd00::1", 5432),
            ("postgres:///db?host=10.0.0.5&port=5433", "10.0.0.5", 5433),
            ("postgres://h:1/db?hostaddr=10.0.0.5", "10.0.0.5", 1),
            ("postgres://%6c%6fcalhost/db", "localhost", 5432),
            ("postgres:///db", "localhost", 5432),
        ] {
            assert_eq!(
                database(url).hosts_and_ports(),
                [(host.to_owned(), port)],
                "{url}"
            );
        }
        for several in [
            "postgres://u:p@a:1,b:2/db?target_session_attrs=read-write",
            "postgres:///db?host=a,b&port=1,2",
        ] {
            let both = [("a".to_owned(), 1), ("b".to_owned(), 2)];
            assert_eq!(database(several).hosts_and_ports(), both, "{several}");
        }
        for none in [
            "sqlite://tenure.db",
            "postgres:///db?host=/run/postgresql",
            "postgres://%2Frun%2Fpostgresql/db",
        ] {
            assert_eq!(database(none).hosts_and_ports(), [], "{none}");
        }
    }

    #[test]
    fn a_password_is_hidden_in_any_text() {
        let database = database("postgres://u:can%40ary@h/db");
        assert_eq!(database.hide("no can%40ary, no can@ary"), "no …, no …");
        assert_eq!(
            database.hide("cannot open postgres://u:can%40ary@h/db"),
            "cannot open postgres://u:…@h/db"
        );
    }

    #[test]
    fn a_password_that_is_a_public_name_garbles_no_text() {
        let database = database("postgres://tenure:tenure@h/db");
        assert_eq!(
            database.hide("run `tenure migrate`"),
            "run `tenure migrate`"
        );
        assert_eq!(
            database.hide("at postgres://tenure:tenure@h/db"),
            "at postgres://tenure:…@h/db"
        );
    }

    #[tokio::test]
    async fn a_database_that_does_not_answer_is_reported() {
        let silence = std::future::pending::<Result<(), StoreError>>();
        let stop = within(Duration::from_millis(1), silence).await.unwrap_err();
        let Stop::Problem(problem) = stop else {
            panic!("not a problem: {stop:?}");
        };
        assert_eq!(problem.exit, Exit::Failed);
        assert_eq!(problem.message, "the database does not answer within 1ms");
    }

    #[test]
    fn a_mistyped_argument_shows_no_password() {
        assert_eq!(
            hide_addresses("unexpected argument 'postgres://u:canary@h/db' found"),
            "unexpected argument 'postgres://u:…@h/db' found"
        );
    }
}
