//! Every statement is a file, and both databases have the same ones.

use super::{File, assert_caught, assert_none, repository};

/// Statements that one database alone has, with the reason.
const ONE_SIDED: &[(&str, &str)] = &[];

/// Files that hand text to a driver as safe: the renderer, and the tests' `create database`.
const SAYS_SAFE: &[&str] = &[
    "crates/tenure-store/src/postgres/statements.rs",
    "crates/tenure-store/src/testing/postgres.rs",
];

const FOLDERS: [&str; 2] = [
    "crates/tenure-store/sql/postgres/",
    "crates/tenure-store/sql/sqlite/",
];

fn one_sided(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for (here, there) in [(FOLDERS[0], FOLDERS[1]), (FOLDERS[1], FOLDERS[0])] {
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
        let homes = FOLDERS.map(|folder| format!("{folder}{name}"));
        let present = homes
            .iter()
            .filter(|home| files.iter().any(|file| file.path == **home));
        if present.count() != 1 {
            violations.push(format!("{name}: is not in exactly one folder"));
        }
    }
    violations
}

/// Whether a string that starts like this is a statement.
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
        file.is("rs") && file.path.contains("/src/") && !file.path.contains("/testing/")
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
