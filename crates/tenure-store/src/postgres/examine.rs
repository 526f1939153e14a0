//! Examine: reads the server's settings and state on one of the store's connections, and judges
//! them. No finding contains an address or the text of a query.

use std::time::Duration;

use sqlx::postgres::PgRow;
use tenure_core::store::{Answer, Examine, Finding};
use tenure_core::{Clock, Timestamp, duration_text};

use super::budget::Budget;
use super::error::store_error;
use super::migrate;
use super::row::{get, get_timestamp, get_total};
use super::{PLANNER, PostgresStore};
use crate::cluster::unsigned;
use crate::memory::SystemClock;
use crate::open::SchemaVersion;

/// Oldest version that has `pg_current_xact_id`, which fan-out needs, as `server_version_num`.
const SERVER_VERSION_MIN: i32 = 130_000;
/// Maximum age of a transaction without a warning. An older one holds back the vacuum of busy
/// tables.
const TRANSACTION_AGE_MAX: Duration = Duration::from_mins(5);
/// Maximum clock difference without a warning. A larger one misleads readers, but affects no lease.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(1);

impl Examine for PostgresStore {
    fn examine(&self) -> Answer<'_, Vec<Finding>> {
        Box::pin(async move {
            let looked = async {
                let mut lent = self.pool.borrow().await?;
                let before = SystemClock.now();
                let query = self.statements().examine.query();
                let answer = self.pool.run(query, lent.connection()).await;
                let after = SystemClock.now();
                let statements = self.pool.finding(lent.connection());
                lent.give_back(&answer);
                let rows = answer?;
                let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
                Ok((ServerFacts::read(row, before, after)?, statements))
            };
            let looked = looked.await;
            let (server, statements) = looked.map_err(|error| store_error("examine", error))?;
            let mut findings = server.findings(self.connections);
            findings.extend(statements);
            Ok(findings)
        })
    }
}

/// Facts that one query reads from a server.
#[derive(Clone, Debug)]
struct ServerFacts {
    server_version: String,
    server_number: i32,
    schema: SchemaVersion,
    fsync: String,
    synchronous_commit: String,
    full_page_writes: String,
    planner: Vec<String>,
    connections: u64,
    in_use: u64,
    oldest: Option<Transaction>,
    sees_all: bool,
    autovacuum: String,
    track_counts: String,
    in_recovery: bool,
    read_only: String,
    clock: Timestamp,
    /// This machine's time before and after the query.
    asked: (Timestamp, Timestamp),
}

/// The oldest open transaction of any client.
#[derive(Clone, Debug)]
struct Transaction {
    pid: i32,
    state: String,
    age: Duration,
}

impl ServerFacts {
    fn read(row: &PgRow, before: Timestamp, after: Timestamp) -> Result<Self, sqlx::Error> {
        let oldest = match get::<Option<i32>>(row, 9)? {
            None => None,
            Some(pid) => Some(Transaction {
                pid,
                state: get::<Option<String>>(row, 10)?.unwrap_or_default(),
                age: Duration::from_secs(unsigned(get(row, 11)?)),
            }),
        };
        Ok(Self {
            server_version: get(row, 0)?,
            server_number: get(row, 1)?,
            schema: migrate::compared(get(row, 2)?, get(row, 18)?),
            fsync: get(row, 3)?,
            synchronous_commit: get(row, 4)?,
            full_page_writes: get(row, 5)?,
            planner: get(row, 6)?,
            connections: get_total(row, 7)?,
            in_use: get_total(row, 8)?,
            oldest,
            sees_all: get(row, 12)?,
            autovacuum: get(row, 13)?,
            track_counts: get(row, 14)?,
            in_recovery: get(row, 15)?,
            read_only: get(row, 16)?,
            clock: get_timestamp(row, 17)?,
            asked: (before, after),
        })
    }

    fn findings(&self, each: u32) -> Vec<Finding> {
        let budget = Budget {
            connections: self.connections,
            in_use: self.in_use,
            each,
        };
        vec![
            self.version(),
            self.schema.finding(),
            self.fsync(),
            self.synchronous_commit(),
            self.full_page_writes(),
            self.planner(),
            budget.finding(),
            self.old_snapshot(),
            self.autovacuum(),
            self.replica(),
            self.clock(),
        ]
    }

    fn version(&self) -> Finding {
        let found = format!("PostgreSQL {}", self.server_version);
        if self.server_number >= SERVER_VERSION_MIN {
            return Finding::good("version", found);
        }
        Finding::warning("version", found, "upgrade the server to 13 or later")
    }

    fn fsync(&self) -> Finding {
        if self.fsync == "on" {
            return Finding::good("fsync", "on");
        }
        let found = format!("{}: accepted writes can be lost or damaged", self.fsync);
        let hint = "set fsync = on, unless this server is for tests alone";
        Finding::bad("fsync", found, hint)
    }

    fn synchronous_commit(&self) -> Finding {
        let value = &self.synchronous_commit;
        if value != "off" {
            return Finding::good("synchronous_commit", value);
        }
        let found = "off: a crash of the server loses what was accepted last";
        let hint = "set it to on, or to local, for the role that Tenure connects as";
        Finding::warning("synchronous_commit", found, hint)
    }

    fn full_page_writes(&self) -> Finding {
        if self.full_page_writes == "on" {
            return Finding::good("full_page_writes", "on");
        }
        let found = "off: a power failure in the middle of a write can damage a page";
        let hint = "set it to on, unless the file system writes whole pages or none";
        Finding::warning("full_page_writes", found, hint)
    }

    fn planner(&self) -> Finding {
        let expected = PLANNER.iter().zip(&self.planner);
        let others: Vec<String> = expected
            .filter(|((_, wanted), found)| wanted != found)
            .map(|((name, wanted), found)| format!("{name} is {found}, not {wanted}"))
            .collect();
        if others.is_empty() {
            return Finding::good("planner", "plans once and by index");
        }
        let hint =
            "set them on the role that Tenure connects as: `tenure migrate --print` shows how";
        let found = format!("{}: correct, but slower", others.join(", "));
        Finding::warning("planner", found, hint)
    }

    fn old_snapshot(&self) -> Finding {
        let among = if self.sees_all {
            ""
        } else {
            ", of those that this role may see"
        };
        let Some(oldest) = &self.oldest else {
            return Finding::good("old snapshot", format!("no transaction is open{among}"));
        };
        let age = duration_text(oldest.age);
        if oldest.age <= TRANSACTION_AGE_MAX {
            return Finding::good("old snapshot", format!("the oldest is {age} old{among}"));
        }
        let Transaction { pid, state, .. } = oldest;
        let found = format!("process {pid} ({state}) has a transaction open for {age}{among}");
        let hint = format!(
            "vacuum cannot clean up behind it and claims get slower: end it, \
             if need be with pg_terminate_backend({pid})"
        );
        Finding::warning("old snapshot", found, hint)
    }

    fn autovacuum(&self) -> Finding {
        let (found, hint) = match (self.autovacuum.as_str(), self.track_counts.as_str()) {
            ("on", "on") => return Finding::good("autovacuum", "on"),
            ("on", _) => ("on, but track_counts is off", "set track_counts = on"),
            _ => ("off: claims get slower", "set autovacuum = on"),
        };
        Finding::warning("autovacuum", found, hint)
    }

    fn replica(&self) -> Finding {
        let hint = "connect to the primary server";
        if self.in_recovery {
            return Finding::bad("replica", "this is a replica: it takes no writes", hint);
        }
        if self.read_only == "on" {
            let found = "not a replica, but this role's transactions are read-only";
            let hint = "set default_transaction_read_only = off for this role and database";
            return Finding::bad("replica", found, hint);
        }
        Finding::good("replica", "no, the primary")
    }

    /// Compares clocks: the server's time lies between the two local times unless the clocks
    /// differ.
    fn clock(&self) -> Finding {
        let (before, after) = self.asked;
        let (difference, word) = if self.clock < before {
            (before.since(self.clock), "behind")
        } else {
            (self.clock.since(after), "ahead of")
        };
        let rounded = Duration::from_millis(unsigned(crate::cluster::millis(difference)));
        if rounded.is_zero() {
            return Finding::good("clock", "the database's agrees with this machine's");
        }
        let span = duration_text(rounded);
        let found = format!("the database's is {span} {word} this machine's");
        if difference <= CLOCK_DIFFERENCE_MAX {
            return Finding::good("clock", found);
        }
        let hint = "leases are judged by the database's alone; let both follow a time server";
        Finding::warning("clock", found, hint)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::store::Verdict::{self, Bad, Good, Warning};

    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(0).after(Duration::from_millis(millis))
    }

    /// Facts of a server without faults.
    fn sound() -> ServerFacts {
        let on = || "on".to_owned();
        ServerFacts {
            server_version: "16.4".into(),
            server_number: 160_004,
            schema: migrate::compared(1, 1),
            fsync: on(),
            synchronous_commit: on(),
            full_page_writes: on(),
            planner: PLANNER.map(|(_, value)| value.to_owned()).to_vec(),
            connections: 97,
            in_use: 12,
            oldest: None,
            sees_all: true,
            autovacuum: on(),
            track_counts: on(),
            in_recovery: false,
            read_only: "off".into(),
            clock: at(10_001),
            asked: (at(10_000), at(10_002)),
        }
    }

    /// The finding about a server that differs from a healthy one in one fact.
    fn finding(subject: &str, change: impl FnOnce(&mut ServerFacts)) -> (Verdict, String) {
        let mut server = sound();
        change(&mut server);
        let mut findings = server.findings(10);
        let others = findings.iter().filter(|other| other.subject != subject);
        assert!(others.clone().count() == findings.len() - 1, "{subject}");
        for other in others {
            assert_eq!(other.verdict, Good, "{other:?}");
        }
        findings.retain(|finding| finding.subject == subject);
        let finding = findings.remove(0);
        assert_eq!(finding.hint.is_some(), finding.verdict != Good);
        (finding.verdict, finding.text)
    }

    #[test]
    fn a_sound_server_has_no_fault() {
        let findings = sound().findings(10);
        assert_eq!(findings.len(), 11);
        for finding in findings {
            assert_eq!(finding.verdict, Good, "{finding:?}");
        }
    }

    #[test]
    fn each_fault_is_a_finding_of_its_own() {
        let off = || "off".to_owned();
        let verdict = |subject, change: fn(&mut ServerFacts)| finding(subject, change).0;
        assert_eq!(
            verdict("version", |server| server.server_number = 120_020),
            Warning
        );
        assert_eq!(
            verdict("version", |server| server.server_number = 130_000),
            Good
        );
        for (tables, readable_from, expected) in [(0, 0, Bad), (99, 1, Warning), (99, 2, Bad)] {
            let schema = migrate::compared(tables, readable_from);
            let (verdict, _) = finding("schema", |server| server.schema = schema);
            assert_eq!(verdict, expected);
        }
        assert_eq!(finding("fsync", |server| server.fsync = off()).0, Bad);
        let commit = |value: &str| {
            let value = value.to_owned();
            finding("synchronous_commit", |server| {
                server.synchronous_commit = value;
            })
            .0
        };
        assert_eq!(commit("off"), Warning);
        assert_eq!(commit("local"), Good);
        assert_eq!(commit("remote_apply"), Good);
        assert_eq!(
            finding("full_page_writes", |server| server.full_page_writes = off()).0,
            Warning
        );
        assert_eq!(verdict("connections", |server| server.in_use = 97), Warning);
        assert_eq!(
            finding("autovacuum", |server| server.autovacuum = off()).0,
            Warning
        );
        assert_eq!(
            finding("autovacuum", |server| server.track_counts = off()).0,
            Warning
        );
        assert_eq!(verdict("replica", |server| server.in_recovery = true), Bad);
        assert_eq!(
            verdict("replica", |server| server.read_only = "on".into()),
            Bad
        );
    }

    #[test]
    fn a_wrong_planner_setting_is_named() {
        let (verdict, text) = finding("planner", |server| {
            server.planner[1] = "on".into();
        });
        assert_eq!(verdict, Warning);
        assert_eq!(text, "enable_seqscan is on, not off: correct, but slower");
    }

    #[test]
    fn a_transaction_is_old_after_five_minutes() {
        let of_age = |seconds| {
            finding("old snapshot", |server| {
                server.oldest = Some(Transaction {
                    pid: 4711,
                    state: "idle in transaction".into(),
                    age: Duration::from_secs(seconds),
                });
            })
        };
        assert_eq!(of_age(300).0, Good);
        let (verdict, text) = of_age(301);
        assert_eq!(verdict, Warning);
        assert_eq!(
            text,
            "process 4711 (idle in transaction) has a transaction open for 5m 1s"
        );
        let (verdict, text) = finding("old snapshot", |server| server.sees_all = false);
        assert_eq!(verdict, Good);
        assert!(text.ends_with("of those that this role may see"), "{text}");
    }

    #[test]
    fn clocks_differ_if_the_round_trip_does_not_explain_the_difference() {
        let clock = |millis| finding("clock", |server| server.clock = at(millis));
        for (millis, verdict, text) in [
            (10_000, Good, "the database's agrees with this machine's"),
            (10_002, Good, "the database's agrees with this machine's"),
            (9_000, Good, "the database's is 1s behind this machine's"),
            (
                8_999,
                Warning,
                "the database's is 1s 1ms behind this machine's",
            ),
            (11_002, Good, "the database's is 1s ahead of this machine's"),
            (
                11_003,
                Warning,
                "the database's is 1s 1ms ahead of this machine's",
            ),
        ] {
            assert_eq!(clock(millis), (verdict, text.to_owned()), "at {millis}");
        }
    }
}
