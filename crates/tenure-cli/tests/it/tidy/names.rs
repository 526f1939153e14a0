//! Names: one word per concept of `docs/GLOSSARY.md`, no private words that need an explanation, no
//! vague words; and no open work without an issue.

use std::collections::{BTreeMap, HashSet};

use super::{File, assert_caught, assert_none, identifiers, repository};

/// Second names of the core's concepts, each with the name to use. Prose may contain them, so that
/// a search for "dead letter" or "visibility timeout" finds the right page.
const BANNED: &[(&str, &str)] = &[
    ("ack", "settle"),
    ("acks", "settles"),
    ("acked", "settled"),
    ("nack", "release"),
    ("dequeue", "claim"),
    ("dequeued", "claimed"),
    ("requeue", "replay"),
    ("requeued", "replayed"),
    ("redrive", "replay"),
    ("ttl", "term"),
    ("visibility", "lease"),
    ("deadletter", "dead"),
    ("dead_letter", "dead"),
    ("dlq", "dead"),
    ("expire", "lapse"),
    ("expires", "lapses"),
    ("expired", "lapsed"),
    ("expiry", "lapse"),
    ("expiration", "lapse"),
    ("rescue", "reap"),
    ("keepalive", "heartbeat"),
    ("finalise", "settle"),
    ("finalize", "settle"),
];

/// Former names that needed an explanation. A type, a file, a module or a function must have a
/// descriptive name instead.
const PRIVATE: &[&str] = &[
    "abreast", "absent", "asked", "bell", "beside", "board", "book", "company", "desk", "dice",
    "door", "found", "hand", "heed", "house", "kept", "lend", "lent", "owed", "rung", "said",
    "seen", "shelf", "shown", "sight", "standing", "tally",
];

/// Vague names, which attract unrelated code.
const VAGUE: &[&str] = &[
    "util",
    "utils",
    "common",
    "helper",
    "helpers",
    "misc",
    "manager",
    "service",
    "processor",
    "types",
    "base",
    "data",
    "info",
];

/// Returns true for the rules themselves, and for lease tables and migrations, which use the words
/// of the specifications.
fn may_say_anything(file: &File) -> bool {
    file.is_tidy() || file.path.contains("/table/") || file.path.contains("/migrations/")
}

/// Splits an identifier into words: `dead_letter` and `DeadLetter` become `dead letter`.
fn words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower_before = false;
    for c in identifier.chars() {
        if c == '_' || c.is_uppercase() && lower_before {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut()
            && c != '_'
        {
            word.extend(c.to_lowercase());
        }
        lower_before = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The kind and the name of a Rust definition in a line.
fn definition(line: &str) -> Option<(&str, &str)> {
    if line.trim_start().starts_with("//") {
        return None;
    }
    let prefixes = ["pub", "crate", "super", "in", "const", "async", "unsafe"];
    let mut rest = identifiers(line)
        .skip_while(|word| prefixes.contains(word))
        .peekable();
    let kind = rest.next()?;
    let kinds = ["struct", "enum", "trait", "type", "mod", "fn", "static"];
    kinds.contains(&kind).then(|| Some((kind, rest.next()?)))?
}

/// The definitions in the Rust and SQL files; an SQL file defines only its own name.
fn definitions(files: &[File]) -> impl Iterator<Item = (String, &str, &str)> {
    let files = files.iter().filter(|file| !may_say_anything(file));
    let files = files.filter(|file| file.is("rs") || file.is("sql"));
    files.flat_map(|file| {
        let lines = file.lines().filter(|_| file.is("rs"));
        let defined = lines.filter_map(|(number, line)| {
            let (kind, name) = definition(line)?;
            Some((format!("{}:{number}", file.path), kind, name))
        });
        std::iter::once((file.path.clone(), "file", file.stem())).chain(defined)
    })
}

fn second_names(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for (place, _, name) in definitions(files) {
        let words = words(name);
        let pairs = words.windows(2).map(|pair| pair.join("_"));
        let all: Vec<String> = words.iter().cloned().chain(pairs).collect();
        let banned = BANNED
            .iter()
            .find(|(banned, _)| all.iter().any(|word| word == banned));
        if let Some((banned, ours)) = banned {
            violations.push(format!("{place}: `{banned}` in `{name}`, say {ours}"));
        }
    }
    violations
}

/// Finds private words in names. The name of a function may contain one, as in the sentence of a
/// test, but not consist of it; the name of a type, a module or a file may not contain one.
fn private_names(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for (place, kind, name) in definitions(files) {
        let is_private = |word: &str| PRIVATE.contains(&word);
        let breaks = match kind {
            "fn" => is_private(name),
            _ => words(name).iter().any(|word| is_private(word)),
        };
        if breaks {
            violations.push(format!("{place}: `{name}` needs an explanation"));
        }
    }
    violations
}

fn vague_names(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for (place, kind, name) in definitions(files) {
        let is_vague = match kind {
            "fn" | "static" => false,
            "file" => VAGUE.contains(&name),
            _ => words(name)
                .iter()
                .any(|word| VAGUE.contains(&word.as_str())),
        };
        if is_vague {
            violations.push(format!("{place}: `{name}` is a vague name"));
        }
    }
    violations
}

fn open_work_without_issue(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files
        .iter()
        .filter(|file| !file.is_tidy() && file.path != "docs/STYLE.md")
    {
        for (number, line) in file.lines() {
            let open = identifiers(line).any(|word| matches!(word, "TODO" | "FIXME" | "XXX"));
            let numbered = line
                .split('#')
                .skip(1)
                .any(|rest| rest.starts_with(char::is_numeric));
            if open && !numbered {
                violations.push(format!("{}:{number}: open work is an issue", file.path));
            }
        }
    }
    violations
}

#[test]
fn a_concept_has_one_name() {
    assert_none("second names of a concept", &second_names(&repository()));
    let planted = [
        File::new(
            "crates/tenure/src/lib.rs",
            "fn ack_all() {}\nstruct LeaseTtl;\n// ack, ttl, expired\nfn attack() {}\n",
        ),
        File::new("crates/tenure-store/sql/postgres/queue/expire_rows.sql", ""),
        File::new(
            "crates/tenure-core/src/table/webhook.rs",
            "fn expired() {}\n",
        ),
    ];
    assert_caught(&second_names(&planted), 3);
}

#[test]
fn no_name_needs_an_explanation() {
    assert_none("private names", &private_names(&repository()));
    let planted = [
        File::new("crates/tenure/src/desk.rs", ""),
        File::new(
            "crates/tenure/src/lib.rs",
            "struct ShownJob;\npub(crate) fn tally() {}\nfn not_found() {}\nmod dice;\n",
        ),
    ];
    assert_caught(&private_names(&planted), 4);
}

#[test]
fn no_name_is_vague() {
    assert_none("vague names", &vague_names(&repository()));
    let planted = [
        File::new("crates/tenure/src/util.rs", ""),
        File::new(
            "crates/tenure/src/lib.rs",
            "pub(crate) struct LeaseManager;\nenum Base64 {}\npub mod data {\nlet info = 1;\n",
        ),
    ];
    assert_caught(&vague_names(&planted), 3);
}

/// Finds types with the same name at the top level of two files of a crate. Files of different
/// stores may use the same name for the same thing.
fn names_of_two_things(files: &[File]) -> Vec<String> {
    let mut defined: BTreeMap<(&str, &str), Vec<&File>> = BTreeMap::new();
    for file in files {
        let Some((krate, _)) = file.path.split_once("/src/") else {
            continue;
        };
        for line in file.text.lines() {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
            let line = line.strip_prefix("pub(super) ").unwrap_or(line);
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let (Some("struct" | "enum" | "trait"), Some(name)) = (words.next(), words.next()) {
                defined.entry((krate, name)).or_default().push(file);
            }
        }
    }
    let database = |file: &File| {
        let databases = ["/postgres/", "/sqlite/", "/memory/"];
        databases.iter().position(|name| file.path.contains(name))
    };
    let mut violations = Vec::new();
    for ((_, name), files) in defined {
        let databases: HashSet<_> = files.iter().map(|file| database(file)).collect();
        if files.len() > 1 && databases.len() < files.len() {
            let paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
            violations.push(format!("{name}: {}", paths.join(", ")));
        }
    }
    violations
}

#[test]
fn no_two_types_of_a_crate_share_a_name() {
    assert_none("names of two things", &names_of_two_things(&repository()));
    let planted = [
        File::new("crates/tenure/src/a.rs", "pub(crate) struct Rate {\n"),
        File::new("crates/tenure/src/b.rs", "pub enum Rate {\nstruct Run;\n"),
        File::new("crates/tenure-store/src/postgres/c.rs", "struct Text {\n"),
        File::new("crates/tenure-store/src/sqlite/c.rs", "struct Text;\n"),
    ];
    assert_caught(&names_of_two_things(&planted), 1);
}

#[test]
fn open_work_names_its_issue() {
    assert_none("open work", &open_work_without_issue(&repository()));
    let planted = [File::new(
        "crates/tenure/src/lib.rs",
        "// TODO: later\n// TODO(#12): later\n// FIXME #x\n",
    )];
    assert_caught(&open_work_without_issue(&planted), 2);
}
