//! Findings of `examine` on a real PostgreSQL, in an SQLite file and in memory.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection as File;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tenure_core::store::Verdict::{Bad, Good, Warning};
use tenure_core::store::{Examine, Finding, Verdict};
use tenure_store::config::{Planner, StoreConfig, Synchronous};
use tenure_store::memory::{MemoryStore, SystemClock};
use tenure_store::postgres::PostgresStore;
use tenure_store::sqlite::SqliteStore;
use tenure_store::testing::{self, Database, Server};

const POSTGRES: [&str; 11] = [
    "version",
    "schema",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "planner",
    "connections",
    "old snapshot",
    "autovacuum",
    "replica",
    "clock",
];

const SQLITE: [&str; 7] = [
    "version",
    "schema",
    "journal",
    "file",
    "integrity",
    "synchronous",
    "writable",
];

/// Returns the findings in order; asserts that each finding that is not good has a hint.
async fn examine(store: &dyn Examine) -> Vec<Finding> {
    let findings = store.examine().await.unwrap();
    for finding in &findings {
        let has_hint = finding.hint.is_some();
        assert_eq!(has_hint, finding.verdict != Good, "{finding:?}");
    }
    findings
}

fn subjects(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.subject).collect()
}

fn of<'a>(findings: &'a [Finding], subject: &str) -> &'a Finding {
    let mut found = findings.iter().filter(|finding| finding.subject == subject);
    let first = found.next().unwrap();
    assert!(found.next().is_none());
    first
}

fn verdict(findings: &[Finding], subject: &str) -> Verdict {
    of(findings, subject).verdict
}

/// Subjects with a finding that is not good.
fn faults(findings: &[Finding]) -> Vec<(&str, Verdict)> {
    let bad = findings.iter().filter(|finding| finding.verdict != Good);
    bad.map(|finding| (finding.subject, finding.verdict))
        .collect()
}

async fn open(url: &str, config: &StoreConfig) -> PostgresStore {
    PostgresStore::open(url, config).await.unwrap()
}

async fn migrated() -> (Database, PgConnection) {
    let database = testing::migrated().await;
    let admin = PgConnection::connect(&database.url).await.unwrap();
    (database, admin)
}

async fn run(admin: &mut PgConnection, text: &str) {
    let script = sqlx::raw_sql(AssertSqlSafe(text));
    script.execute(admin).await.unwrap();
}

/// The test starts separate servers, because their options differ.
#[tokio::test]
async fn a_server_without_fsync_is_bad_and_one_with_it_is_good() {
    let config = StoreConfig::default();
    for (server, expected) in [
        (
            Server::start_fast().await,
            vec![("fsync", Bad), ("full_page_writes", Warning)],
        ),
        (Server::start().await, vec![]),
    ] {
        let database = server.database().await;
        PostgresStore::migrate(&database.url, &config)
            .await
            .unwrap();
        let store = open(&database.url, &config).await;
        let findings = examine(&store).await;
        assert_eq!(subjects(&findings), POSTGRES);
        assert_eq!(faults(&findings), expected, "{findings:#?}");
        // The server allows 200 connections, of which 3 are reserved for the superuser; each
        // process uses ten by default.
        let connections = &of(&findings, "connections").text;
        assert!(
            connections.starts_with("197 connections, "),
            "{connections}"
        );
        assert!(connections.contains("processes of 10"), "{connections}");
        connections_are_counted(&database).await;
    }
}

/// No other test uses this server.
async fn connections_are_counted(database: &Database) {
    let config = StoreConfig {
        connections: 40,
        ..StoreConfig::default()
    };
    let store = open(&database.url, &config).await;
    let mut others = Vec::new();
    for _ in 0..60 {
        others.push(PgConnection::connect(&database.url).await.unwrap());
    }
    let findings = examine(&store).await;
    let found = &of(&findings, "connections").text;
    // Besides those 60 the two stores have a few connections, so 3 times 40 of 197 are free.
    let end = "in use: room for 3 more processes of 40";
    assert!(found.ends_with(end), "{found}");
}

#[tokio::test]
async fn settings_of_the_role_and_the_database_are_examined() {
    let (database, mut admin) = migrated().await;
    let by_role = StoreConfig {
        planner: Planner::Role,
        ..StoreConfig::default()
    };
    let findings = examine(&open(&database.url, &by_role).await).await;
    let planner = of(&findings, "planner");
    assert_eq!(planner.verdict, Warning);
    assert!(
        planner.text.contains("plan_cache_mode is auto"),
        "{planner:?}"
    );
    run(
        &mut admin,
        "do $$ begin
             execute format('alter database %I set synchronous_commit = off', current_database());
             execute format('alter database %I set plan_cache_mode = force_generic_plan',
                            current_database());
             execute format('alter database %I set enable_seqscan = off', current_database());
             execute format('alter database %I set enable_bitmapscan = off', current_database());
             execute format('alter database %I set jit = off', current_database());
             execute format('alter database %I set default_transaction_read_only = on',
                            current_database());
         end $$",
    )
    .await;
    let findings = examine(&open(&database.url, &by_role).await).await;
    assert_eq!(verdict(&findings, "planner"), Good);
    assert_eq!(verdict(&findings, "synchronous_commit"), Warning);
    assert_eq!(verdict(&findings, "replica"), Bad);
}

#[tokio::test]
async fn a_schema_that_changed_after_the_open_is_bad() {
    let (database, mut admin) = migrated().await;
    let store = open(&database.url, &StoreConfig::default()).await;
    assert_eq!(verdict(&examine(&store).await, "schema"), Good);
    run(
        &mut admin,
        "insert into tenure_migrations (version, readable_from) values (99, 2)",
    )
    .await;
    assert_eq!(verdict(&examine(&store).await, "schema"), Bad);
}

/// The output must contain neither the statements of other clients nor the address of the database.
#[tokio::test]
async fn an_open_transaction_is_reported_without_its_statements() {
    let (database, mut admin) = migrated().await;
    let store = open(&database.url, &StoreConfig::default()).await;
    let secret = "insert into tenure_settings (name, value) values ('x', 'hunter2')";
    run(&mut admin, &format!("begin; {secret}")).await;
    let findings = examine(&store).await;
    let old = of(&findings, "old snapshot");
    assert_eq!(old.verdict, Good);
    assert!(old.text.starts_with("the oldest is "), "{old:?}");
    let said = format!("{findings:?}");
    let (address, _) = database.url.split_once('?').unwrap();
    let name = address.rsplit('/').next().unwrap();
    for hidden in ["hunter2", "insert into", "127.0.0.1", "postgres://", name] {
        assert!(!said.contains(hidden), "{hidden} is in {said}");
    }
}

/// Uses a role that may use the tables but cannot see other connections, as recommended for Tenure.
/// (Every server has this role, so the test creates none.)
#[tokio::test]
async fn a_role_with_few_rights_can_examine_and_learns_what_it_cannot_see() {
    let (database, mut admin) = migrated().await;
    let rights = "grant select on all tables in schema public to pg_signal_backend";
    run(&mut admin, rights).await;
    let separator = if database.url.contains('?') { '&' } else { '?' };
    let url = format!(
        "{}{separator}options=-c%20role%3Dpg_signal_backend",
        database.url
    );
    let store = open(&url, &StoreConfig::default()).await;
    run(&mut admin, "begin; select txid_current()").await;
    let findings = examine(&store).await;
    assert_eq!(subjects(&findings), POSTGRES);
    let old = of(&findings, "old snapshot");
    assert!(old.text.contains("that this role may see"), "{old:?}");
    let connections = &of(&findings, "connections").text;
    assert!(!connections.contains(", 0 in use"), "{connections}");
}

async fn file(path: &Path, config: &StoreConfig) -> SqliteStore {
    SqliteStore::open(path, config).await.unwrap()
}

#[tokio::test]
async fn a_fresh_file_is_good_and_its_faults_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    let quick = StoreConfig {
        busy_timeout: Duration::from_millis(50),
        synchronous: Synchronous::Normal,
        ..StoreConfig::default()
    };
    let findings = examine(&file(&path, &StoreConfig::default()).await).await;
    assert_eq!(subjects(&findings), SQLITE);
    assert_eq!(faults(&findings), [], "{findings:#?}");
    let store = file(&path, &quick).await;
    let findings = examine(&store).await;
    assert_eq!(faults(&findings), [("synchronous", Warning)]);
    let stranger = File::open(&path).unwrap();
    stranger
        .execute_batch(
            "insert into tenure_migrations values (99, 2, 0);
             begin immediate;",
        )
        .unwrap();
    let findings = examine(&store).await;
    assert_eq!(
        faults(&findings),
        [("schema", Bad), ("writable", Warning)],
        "{findings:#?}"
    );
    stranger.execute_batch("rollback").unwrap();
    assert_eq!(verdict(&examine(&store).await, "writable"), Good);
    let said = format!("{findings:?}");
    assert!(!said.contains(path.to_str().unwrap()), "{said}");
}

/// Overwrites the first page of the table `tenure_dead`.
fn damage(path: &Path) {
    let stranger = File::open(path).unwrap();
    let log_into_file = "pragma wal_checkpoint(truncate)";
    let is_busy: bool = stranger
        .query_row(log_into_file, [], |row| row.get(0))
        .unwrap();
    assert!(!is_busy);
    let place = "select (rootpage - 1) * page_size from sqlite_schema, pragma_page_size
                 where name = 'tenure_dead'";
    let place: u32 = stranger.query_row(place, [], |row| row.get(0)).unwrap();
    drop(stranger);
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(place.into())).unwrap();
    file.write_all(&[0xff; 64]).unwrap();
}

#[tokio::test]
async fn a_damaged_page_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    drop(file(&path, &StoreConfig::default()).await);
    damage(&path);
    let findings = examine(&file(&path, &StoreConfig::default()).await).await;
    assert_eq!(subjects(&findings), SQLITE);
    assert_eq!(faults(&findings), [("integrity", Bad)], "{findings:#?}");
}

#[tokio::test]
async fn the_memory_store_reports_that_it_ends_with_the_process() {
    let findings = examine(&MemoryStore::new(Arc::new(SystemClock))).await;
    assert_eq!(findings.len(), 1);
    assert!(findings[0].text.contains("ends with the process"));
}
