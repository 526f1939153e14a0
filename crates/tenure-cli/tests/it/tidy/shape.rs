//! Shape of files: an opening comment, limits of length, and no paths of a single machine.

use super::{File, assert_caught, assert_none, identifiers, repository};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 500;
const LINE_COLUMNS_MAX: usize = 100;

/// Files over the limit, each with its own limit, which may only be lowered.
const LONG_FILES: &[(&str, usize)] = &[];

/// Home folders, which differ between machines.
const ELSEWHERE: &[&str] = &["/home/", "/root/", "/Users/"];

fn missing_openings(files: &[File]) -> Vec<String> {
    let opening = |file: &File| {
        let mut lines = file.text.lines();
        if file.is("rs") {
            lines.next().is_some_and(|line| line.starts_with("//! "))
        } else if file.is("sql") {
            lines.next().is_some_and(|line| line.starts_with("-- "))
        } else if file.is("sh") || file.text.starts_with("#!/bin/sh") {
            lines
                .find(|line| !line.starts_with("#!"))
                .is_some_and(|line| line.starts_with("# "))
        } else {
            true
        }
    };
    let bare = files.iter().filter(|file| !opening(file));
    bare.map(|file| format!("{}: has no opening comment", file.path))
        .collect()
}

fn long_files(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is("rs") && !file.is_test()) {
        let lines = file.shipped().count();
        let granted = LONG_FILES.iter().find(|(path, _)| *path == file.path);
        let limit = granted.map_or(FILE_LINES_MAX, |(_, lines)| *lines);
        if lines > limit {
            violations.push(format!("{}: {lines} lines, at most {limit}", file.path));
        }
    }
    violations
}

/// Finds long functions. Counts their lines as clippy does, without comments and empty lines. In
/// formatted code a function ends at the first closing brace with the indentation of its first
/// line.
fn long_functions(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let inner = line.trim_start();
            let before = inner.split('(').next().unwrap_or(inner);
            if inner.starts_with("//") || !identifiers(before).any(|word| word == "fn") {
                continue;
            }
            let end = format!("{}}}", &line[..line.len() - inner.len()]);
            let body = lines
                .iter()
                .skip(index + 1)
                .take_while(|line| **line != end);
            let counts = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with("//");
            let length = body.filter(counts).count();
            if length > FUNCTION_LINES_MAX && line.ends_with(['{', '(']) {
                violations.push(format!("{}:{}: {length} lines", file.path, index + 1));
            }
        }
    }
    violations
}

fn long_lines(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        for (number, line) in file.lines() {
            let columns = line.chars().count();
            // A row of a table cannot be broken.
            let table = ["/// |", "//! |"]
                .iter()
                .any(|row| line.trim_start().starts_with(row));
            if columns > LINE_COLUMNS_MAX && !table {
                violations.push(format!("{}:{number}: {columns} columns", file.path));
            }
        }
    }
    violations
}

fn of_one_machine(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| !file.is_tidy()) {
        for (number, line) in file.lines() {
            if let Some(found) = ELSEWHERE.iter().find(|part| line.contains(**part)) {
                violations.push(format!("{}:{number}: `{found}`", file.path));
            }
        }
    }
    violations
}

/// Finds unsafe code, and crates that do not inherit the workspace's lints, through which the
/// compiler forbids it.
fn unsafe_code(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        for (number, line) in file.lines() {
            let code = line.split("//").next().unwrap_or(line);
            let opens = |rest: &str| {
                let rest = rest.trim_start();
                ["{", "fn", "impl", "trait", "extern"]
                    .iter()
                    .any(|next| rest.starts_with(next))
            };
            if !file.is_tidy() && code.split("unsafe ").skip(1).any(opens) {
                violations.push(format!("{}:{number}: unsafe code", file.path));
            }
        }
    }
    for file in files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"))
    {
        if !file.text.contains("[lints]\nworkspace = true") {
            violations.push(format!(
                "{}: does not inherit the workspace's lints",
                file.path
            ));
        }
    }
    violations
}

#[test]
fn every_file_says_what_it_is_for() {
    assert_none(
        "files without an opening comment",
        &missing_openings(&repository()),
    );
    let planted = [
        File::new("crates/tenure/src/lib.rs", "use std::fmt;\n"),
        File::new("crates/tenure/src/open.rs", "//! Opens a store.\n"),
        File::new(
            "crates/tenure-store/sql/postgres/queue/claim.sql",
            "select 1\n",
        ),
        File::new("scripts/test", "#!/bin/sh\nset -eu\n"),
        File::new(".ci/run", "#!/bin/sh\n# The gate.\n"),
    ];
    assert_caught(&missing_openings(&planted), 3);
}

#[test]
fn source_files_are_within_the_line_limit() {
    assert_none("long files", &long_files(&repository()));
    let long = "//\n".repeat(FILE_LINES_MAX);
    let planted = [
        File::new("crates/tenure/src/lib.rs", &format!("{long}//\n")),
        File::new(
            "crates/tenure/src/open.rs",
            &format!("{long}#[cfg(test)]\n{long}"),
        ),
        File::new("crates/tenure/tests/it/open.rs", &format!("{long}//\n")),
    ];
    assert_caught(&long_files(&planted), 1);
}

#[test]
fn functions_are_within_the_line_limit() {
    assert_none("long functions", &long_functions(&repository()));
    let body = "    step();\n".repeat(FUNCTION_LINES_MAX);
    let text =
        format!("fn fits() {{\n    // Why.\n{body}}}\n\nfn grew() {{\n{body}    step();\n}}\n");
    assert_caught(
        &long_functions(&[File::new("crates/tenure/src/lib.rs", &text)]),
        1,
    );
}

#[test]
fn lines_are_within_the_column_limit() {
    assert_none("long lines", &long_lines(&repository()));
    let fits = "é".repeat(LINE_COLUMNS_MAX);
    let text = format!("{fits}\n{fits}x\n");
    assert_caught(
        &long_lines(&[File::new("crates/tenure/src/lib.rs", &text)]),
        1,
    );
}

#[test]
fn no_file_contains_a_path_of_one_machine() {
    assert_none("paths of one machine", &of_one_machine(&repository()));
    let planted = [File::new(
        "README.md",
        "Look into /home/me/tenure.\nOr /Users/me.\nUse /tmp/x.\n",
    )];
    assert_caught(&of_one_machine(&planted), 2);
}

#[test]
fn no_code_is_unsafe() {
    assert_none("unsafe code", &unsafe_code(&repository()));
    let planted = [
        File::new(
            "crates/tenure/src/lib.rs",
            "let x = unsafe { *p };\n// unsafe { }\n",
        ),
        File::new("crates/tenure/Cargo.toml", "[package]\n"),
        File::new(
            "crates/tenure-core/Cargo.toml",
            "[lints]\nworkspace = true\n",
        ),
    ];
    assert_caught(&unsafe_code(&planted), 2);
}
