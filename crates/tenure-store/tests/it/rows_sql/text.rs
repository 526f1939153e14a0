//! The text of the statements: rendered for each preset, prepared, and checked for locks.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use tenure_store::postgres::PostgresRows;
use tenure_store::sqlite::SqliteRows;

use super::{Bench, Checks, presets};

/// Compares the rendered SQL of each preset with the checked-in text. The conformance suite runs
/// only two of the five presets, so no statement of the others may be missing here.
#[test]
fn the_statements_of_each_preset_read_as_printed() {
    for (preset, table) in presets() {
        let mut postgres = String::new();
        let mut names = BTreeSet::new();
        for (name, text) in PostgresRows::statements(&table).unwrap() {
            names.insert(format!("{name}.sql"));
            write!(postgres, "-- {name}\n{text}\n").unwrap();
        }
        assert_eq!(names, row_files("postgres"), "{preset}");
        insta::assert_snapshot!(format!("postgres_{preset}"), postgres);
        let mut sqlite = String::new();
        let mut names = BTreeSet::new();
        for (file, name, text) in SqliteRows::statements(&table).unwrap() {
            names.insert(format!("{file}.sql"));
            write!(sqlite, "-- {file}: {name}\n{text}\n").unwrap();
        }
        assert_eq!(names, row_files("sqlite"), "{preset}");
        insta::assert_snapshot!(format!("sqlite_{preset}"), sqlite);
    }
}

#[tokio::test]
async fn every_statement_can_be_prepared_on_both_databases() {
    for (_, table) in presets() {
        let bench = Bench::postgres(&table, Checks::Kept).await;
        for (name, text) in PostgresRows::statements(&table).unwrap() {
            if name != "create" {
                bench
                    .execute(&format!("prepare {name} as {text}; deallocate {name}"))
                    .await;
            }
        }
        let Bench::Sqlite { path, .. } = &Bench::sqlite(&table, Checks::Kept).await else {
            panic!("the bench is SQLite's");
        };
        let conn = rusqlite::Connection::open(path).unwrap();
        for (file, name, text) in SqliteRows::statements(&table).unwrap() {
            if file != "create" {
                let prepared = conn.prepare(&text);
                assert!(prepared.is_ok(), "{file}: {name}: {:?}", prepared.err());
            }
        }
    }
}

/// A statement that chooses work skips locked rows. Only a statement with its own token may wait,
/// and only for the rows of its lease or of its keys.
///
/// Proves: S1-006, S1-008, S1-047, S1-048
#[test]
fn only_a_statement_with_a_token_may_wait_for_a_lock() {
    let mut locks = 0;
    for path in statement_files() {
        let text = without_comments(&fs::read_to_string(&path).unwrap());
        for (at, _) in text.match_indices("for update") {
            locks += 1;
            let (before, after) = text.split_at(at);
            let lock: Vec<&str> = after.split([' ', ')']).take(6).collect();
            if matches!(
                lock[..],
                [_, _, "skip", "locked", ..] | [_, _, "of", _, "skip", "locked"]
            ) {
                continue;
            }
            let chosen = before
                .rfind("select")
                .map_or(before, |start| &before[start..]);
            let waits_for_its_own = ["token = $", "token = any ($", "k.key_hash = "]
                .iter()
                .any(|comparison| chosen.contains(comparison));
            assert!(waits_for_its_own, "{} waits in:\n{chosen}", path.display());
        }
    }
    assert!(locks >= 3, "only {locks} locks were found");
}

/// Each operation has a file of the same name for each database. PostgreSQL has an additional file
/// that lists lapsed rows; in SQLite that is a statement of the reap.
#[test]
fn both_databases_have_the_same_files() {
    let mut postgres = row_files("postgres");
    assert!(postgres.remove("lapsed.sql"));
    assert_eq!(postgres, row_files("sqlite"));
}

/// The names of the files of the row layout.
fn row_files(database: &str) -> BTreeSet<String> {
    let folder = sql_folder().join(database).join("rows");
    let files = fs::read_dir(folder).unwrap();
    files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn sql_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sql")
}

/// Every `.sql` file of the crate, in all folders.
fn statement_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![sql_folder(), sql_folder().with_file_name("migrations")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sql") {
                files.push(path);
            }
        }
    }
    files
}

/// The text in lower case without comments, with words separated by one space.
fn without_comments(text: &str) -> String {
    let code = text
        .lines()
        .map(|line| line.split("--").next().unwrap_or(""));
    let words = code.flat_map(str::split_whitespace).map(str::to_lowercase);
    words.collect::<Vec<_>>().join(" ")
}
