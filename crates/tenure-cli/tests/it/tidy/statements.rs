//! Every statement is a file, and both databases have the same ones.

use super::{File, assert_caught, assert_none, repository};

/// Statements that only one database has, each with the reason.
const ONE_SIDED: &[(&str, &str)] = &[
    (
        "queue/settle_and_claim.sql",
        "SQLite runs settle.sql and claim.sql in one transaction: there is no round trip to save",
    ),
    (
        "queue/settle_done_and_claim.sql",
        "settle_and_claim.sql with fewer branches for PostgreSQL to plan",
    ),
    (
        "queue/enqueue_strict.sql",
        "in SQLite one producer writes at a time",
    ),
    (
        "queue/sweep.sql",
        "in SQLite a claim sets aside thousands of events by itself: no payload crosses a network",
    ),
    (
        "queue/promote.sql",
        "in SQLite the enqueue itself chooses the head",
    ),
    (
        "queue/add_keys.sql",
        "in SQLite the enqueue itself chooses the head",
    ),
    (
        "queue/prune_keys.sql",
        "SQLite deletes an idle key at once: it has no concurrent writers",
    ),
    (
        "queue/prune_choose.sql",
        "PostgreSQL must lock the rows that it will delete, and then read them again",
    ),
    (
        "queue/lock_key.sql",
        "PostgreSQL must lock the key that it pauses, and then read it",
    ),
    (
        "jobs/make_chunk.sql",
        "in SQLite it is a statement of claim_chunk.sql",
    ),
    ("rows/lapsed.sql", "in SQLite it is a statement of the reap"),
    (
        "adopt/mark.sql",
        "SQLite keeps the mark of a column in the text of its table",
    ),
    (
        "adopt/made.sql",
        "SQLite has no list of check constraints: they are read from the `create table` text",
    ),
    (
        "adopt/noted.sql",
        "SQLite has no lock that outlasts a transaction: each step reads the record again",
    ),
    (
        "adopt/turn.sql",
        "PostgreSQL has a lock that lasts until its transaction ends; SQLite has none",
    ),
    (
        "session/facts.sql",
        "no pooler shares the connections of SQLite",
    ),
    (
        "session/names.sql",
        "no pooler shares the connections of SQLite",
    ),
    (
        "session/in_transaction.sql",
        "the driver of SQLite knows its transactions",
    ),
    (
        "bare_ready.sql",
        "SQLite cannot insert into two tables in one statement",
    ),
    (
        "row_enqueue.sql",
        "SQLite inserts row by row in one transaction",
    ),
    ("sessions.sql", "SQLite has no list of connections"),
];

/// Files that may contain statements, each with the reason.
const STATEMENTS_ALLOWED: &[(&str, &str)] = &[
    (
        "/migrate.rs",
        "it reads the schema's version when Tenure's tables may not exist yet",
    ),
    (
        "tenure-bench/src/yardstick/",
        "the bare loops' tables are emptied and analyzed between two runs",
    ),
    ("src/sqlite/tests/", "they are tests"),
];

/// Files that pass text to a driver as safe: the renderer, the code that creates and empties test
/// databases, and the `drop schema` of the scratch tables.
const SAYS_SAFE: &[&str] = &[
    "crates/tenure-store/src/postgres/statements.rs",
    "crates/tenure-store/src/testing/postgres.rs",
    "crates/tenure-store/src/testing/postgres_pool.rs",
    "crates/tenure-bench/src/yardstick/postgres.rs",
];

/// The folders of statements: PostgreSQL and SQLite.
const FOLDERS: [[&str; 2]; 2] = [
    [
        "crates/tenure-store/sql/postgres/",
        "crates/tenure-store/sql/sqlite/",
    ],
    [
        "crates/tenure-bench/sql/postgres/",
        "crates/tenure-bench/sql/sqlite/",
    ],
];

fn one_sided(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    let pairs = FOLDERS
        .into_iter()
        .flat_map(|[one, other]| [(one, other), (other, one)]);
    for (here, there) in pairs {
        for file in files {
            let Some(name) = file.path.strip_prefix(here) else {
                continue;
            };
            let excused = ONE_SIDED.iter().any(|(excused, _)| *excused == name);
            let twin = format!("{there}{name}");
            if !excused && !files.iter().any(|other| other.path == twin) {
                violations.push(format!("{}: there is no {twin}", file.path));
            }
        }
    }
    violations
}

fn unfounded_excuses(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, _) in ONE_SIDED {
        let homes = FOLDERS.as_flattened();
        let homes: Vec<_> = homes
            .iter()
            .map(|folder| format!("{folder}{name}"))
            .collect();
        let present = homes
            .iter()
            .filter(|home| files.iter().any(|file| file.path == **home));
        if present.count() != 1 {
            violations.push(format!("{name}: is not in exactly one folder"));
        }
    }
    violations
}

/// Returns true if a string that starts like this is a statement.
fn is_statement(literal: &str) -> bool {
    [
        "select ",
        "insert into ",
        "update ",
        "delete from ",
        "with ",
        "create table ",
    ]
    .iter()
    .any(|start| {
        literal
            .get(..start.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(start))
    }) && literal
        .split('"')
        .next()
        .is_some_and(|text| text.split(' ').count() > 3)
}

fn statements_in_code(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    let shipped = |file: &&File| {
        file.is("rs")
            && file.path.contains("/src/")
            && !file.path.contains("/testing/")
            && !file.is_test()
            && !STATEMENTS_ALLOWED
                .iter()
                .any(|(part, _)| file.path.contains(part))
    };
    for file in files.iter().filter(shipped) {
        for (number, line) in file.shipped() {
            let comment = line.trim_start().starts_with("//");
            if !comment && line.split('"').skip(1).step_by(2).any(is_statement) {
                violations.push(format!(
                    "{}:{number}: a statement outside its file",
                    file.path
                ));
            }
        }
    }
    violations
}

fn unchecked_text(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is("rs") && !file.is_test()) {
        let says = file
            .shipped()
            .any(|(_, line)| line.contains("AssertSqlSafe"));
        if says && !SAYS_SAFE.contains(&file.path.as_str()) {
            violations.push(format!(
                "{}: only the renderer says that text is safe",
                file.path
            ));
        }
    }
    violations
}

/// Parts of a condition under which a statement may wait for a row: the row belongs to the lease
/// with its own token, or is the row of a key, which is locked only briefly.
const OWN: [&str; 2] = ["token", "k.key_hash = "];

/// Finds statements that wait for locks. A statement that chooses work must skip locked rows; a
/// statement with its own token may wait for the rows of that lease or of its keys; no other
/// statement may wait.
fn waiting_locks(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| {
        FOLDERS
            .iter()
            .any(|[folder, _]| file.path.starts_with(folder))
    }) {
        let lines: Vec<&str> = file
            .text
            .lines()
            .filter(|line| !line.starts_with("--"))
            .collect();
        for (index, line) in lines.iter().enumerate() {
            let locks = ["for update", "for no key update", "for share"];
            if !locks.iter().any(|lock| line.contains(lock)) || line.contains("skip locked") {
                continue;
            }
            let mut before = lines.iter().take(index).rev();
            let condition = before.find(|line| line.trim_start().starts_with("where "));
            let is_own = |condition: &str| OWN.iter().any(|own| condition.contains(own));
            if !condition.is_some_and(|condition| is_own(condition)) {
                violations.push(format!("{}: {}: waits for others", file.path, line.trim()));
            }
        }
        let claims = file.stem() == "claim" || file.stem().ends_with("_claim");
        if claims
            && !lines
                .iter()
                .any(|line| line.contains("for update skip locked"))
        {
            violations.push(format!("{}: claims without `skip locked`", file.path));
        }
    }
    violations
}

/// Finds statements whose header does not begin with the name of the file or lacks a label.
fn headers_in_another_form(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    let verbs = |file: &&File| {
        ["/queue/", "/rows/", "/work_lease/"]
            .iter()
            .any(|layout| file.path.contains(layout))
    };
    for file in files.iter().filter(|file| file.is("sql")).filter(verbs) {
        let header: Vec<&str> = file
            .text
            .lines()
            .take_while(|line| line.starts_with("--"))
            .collect();
        let header = header.join("\n");
        if !header.starts_with(&format!("-- {}: ", file.stem())) {
            violations.push(format!("{}: does not begin with its verb", file.path));
        }
        for part in ["Parameters", "Returns", "Keeps", "Relies on"] {
            if !header.contains(part) {
                violations.push(format!("{}: the header lacks `{part}:`", file.path));
            }
        }
    }
    violations
}

#[test]
fn every_statement_has_the_same_header() {
    assert_none("headers", &headers_in_another_form(&repository()));
    let fine = "-- renew: prolongs.\n-- Parameters: $1.\n-- Returns: id.\n-- Keeps: law 3.\n\
                -- Relies on: the key.\nselect 1\n";
    let planted = [
        File::new("crates/tenure-store/sql/postgres/queue/renew.sql", fine),
        File::new("crates/tenure-store/sql/postgres/queue/reap.sql", fine),
        File::new(
            "crates/tenure-store/sql/sqlite/rows/renew.sql",
            &fine.replace("Keeps", "Does"),
        ),
    ];
    assert_caught(&headers_in_another_form(&planted), 2);
}

/// Proves: S1-006, S1-008, S1-047, S1-048
#[test]
fn claims_skip_rows_that_others_have_locked() {
    let files = repository();
    assert_none("locks that wait", &waiting_locks(&files));
    let claim = "crates/tenure-store/sql/postgres/queue/claim.sql";
    assert!(
        files.iter().any(|file| file.path == claim),
        "{claim} is gone"
    );
    let planted = [
        File::new(claim, "select 1\nwhere lane = 1\nfor update\n"),
        File::new(
            "crates/tenure-store/sql/postgres/rows/claim.sql",
            "for update skip locked\n",
        ),
        File::new(
            "crates/tenure-store/sql/postgres/queue/renew.sql",
            "where token = $1\nfor update",
        ),
        File::new(
            "crates/tenure-store/sql/postgres/queue/reap.sql",
            "where id = 1\nfor share\n",
        ),
    ];
    assert_caught(&waiting_locks(&planted), 3);
}

#[test]
fn both_databases_have_the_same_statements() {
    let files = repository();
    assert_none("statements of one database", &one_sided(&files));
    assert_none("excuses", &unfounded_excuses(&files));
    let planted = [
        File::new("crates/tenure-store/sql/postgres/queue/claim.sql", ""),
        File::new("crates/tenure-store/sql/sqlite/queue/claim.sql", ""),
        File::new("crates/tenure-store/sql/postgres/queue/lonely.sql", ""),
        File::new("crates/tenure-store/sql/sqlite/rows/claim.sql", ""),
    ];
    assert_caught(&one_sided(&planted), 2);
}

#[test]
fn every_statement_is_a_file() {
    assert_none("statements in code", &statements_in_code(&repository()));
    let text = "let text = \"select id from tenure_ready\";\nlet why = \"with care\";\n\
                // \"select id from tenure_ready\"\n#[cfg(test)]\n\"delete from tenure_ready t\"\n";
    assert_caught(
        &statements_in_code(&[File::new("crates/tenure/src/lib.rs", text)]),
        1,
    );
}

#[test]
fn only_the_renderer_tells_a_driver_that_text_is_safe() {
    assert_none("unchecked text", &unchecked_text(&repository()));
    let planted = [
        File::new(
            "crates/tenure-store/src/postgres/queue.rs",
            "AssertSqlSafe(text)\n",
        ),
        File::new(
            "crates/tenure-store/src/postgres/statements.rs",
            "AssertSqlSafe(text)\n",
        ),
    ];
    assert_caught(&unchecked_text(&planted), 1);
}
