//! One word per concept: the words of `docs/GLOSSARY.md` that are never said, vague names for
//! files and types, open work without an issue.

use super::{File, assert_caught, assert_none, identifiers, repository};

/// Words that have no other use here, with the one to say instead.
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

/// Names that say nothing, so that everything ends up under them.
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

/// The lease tables and the migrations speak the specifications' words; the glossary and the
/// house rules have to name what they forbid, and the page on conformance quotes.
fn may_say_anything(file: &File) -> bool {
    file.is_tidy()
        || file.path.contains("/table/")
        || file.path.contains("/migrations/")
        || ["GLOSSARY", "STYLE", "CONFORMANCE"]
            .iter()
            .any(|page| file.path == format!("docs/{page}.md"))
}

/// `dead_letter` and `DeadLetter` become `dead letter`.
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

/// The entry that the line breaks, if any. Two words side by side count as one with `_`.
fn banned_in(line: &str) -> Option<&'static (&'static str, &'static str)> {
    let words: Vec<String> = identifiers(line).flat_map(words).collect();
    let pairs = words.windows(2).map(|pair| pair.join("_"));
    let all: Vec<String> = words.iter().cloned().chain(pairs).collect();
    BANNED
        .iter()
        .find(|(banned, _)| all.iter().any(|word| word == banned))
}

fn banned_words(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    let written = |file: &&File| {
        ["rs", "sql", "md", "sh", "toml"]
            .iter()
            .any(|end| file.is(end))
    };
    for file in files
        .iter()
        .filter(written)
        .filter(|file| !may_say_anything(file))
    {
        for (number, line) in file.lines() {
            if let Some((banned, ours)) = banned_in(line) {
                violations.push(format!("{}:{number}: `{banned}`, say {ours}", file.path));
            }
        }
    }
    violations
}

fn vague_names(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is("rs") || file.is("sql")) {
        if VAGUE.contains(&file.stem()) {
            violations.push(format!("{}: a vague name", file.path));
        }
        if file.is("sql") || file.is_tidy() {
            continue;
        }
        for (number, line) in file.lines() {
            let mut rest = identifiers(line).skip_while(|word| *word == "pub" || *word == "crate");
            let defines = matches!(
                rest.next(),
                Some("struct" | "enum" | "trait" | "type" | "mod")
            );
            let vague = |name: &str| {
                words(name)
                    .iter()
                    .any(|word| VAGUE.contains(&word.as_str()))
            };
            if defines && rest.next().is_some_and(vague) {
                violations.push(format!("{}:{number}: a vague name", file.path));
            }
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
fn the_glossary_is_spoken_everywhere() {
    assert_none("words of the third column", &banned_words(&repository()));
    let planted = [
        File::new(
            "crates/tenure/src/lib.rs",
            "fn ack_all() {}\nstruct LeaseTtl;\n// back, attack\n",
        ),
        File::new(
            "docs/OPERATIONS.md",
            "Requeue it.\nA dead letter.\nA dead-letter.\n",
        ),
        File::new(
            "crates/tenure-store/sql/postgres/queue/claim.sql",
            "-- expired rows\n",
        ),
        File::new("crates/tenure-core/src/table/webhook.rs", "// expired\n"),
        File::new("docs/GLOSSARY.md", "| lapse | expire |\n"),
    ];
    assert_caught(&banned_words(&planted), 6);
}

#[test]
fn names_say_what_a_thing_is() {
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

#[test]
fn open_work_names_its_issue() {
    assert_none("open work", &open_work_without_issue(&repository()));
    let planted = [File::new(
        "crates/tenure/src/lib.rs",
        "// TODO: later\n// TODO(#12): later\n// FIXME #x\n",
    )];
    assert_caught(&open_work_without_issue(&planted), 2);
}
