//! The public names of the front crate, compared with the checked-in list: adding, removing or
//! moving a name must be deliberate.

use super::{File, repository};

const LIST: &str = "docs/API.txt";
const SOURCES: &str = "crates/tenure/src/";
/// Maximum number of names at the root, which has only the names that most programs need.
const ROOT_MAX: usize = 30;

/// The crates whose types the front crate exports.
const CRATES: [&str; 6] = [
    "crates/tenure/src/",
    "crates/tenure-core/src/",
    "crates/tenure-engine/src/",
    "crates/tenure-publish/src/",
    "crates/tenure-server/src/",
    "crates/tenure-store/src/",
];

#[test]
fn the_public_names_and_signatures_are_those_of_the_list() {
    let files = repository();
    let mut lines = public_names(&files);
    lines.extend(members(&files, &lines));
    let text = lines.join("\n") + "\n";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(LIST);
    #[expect(clippy::disallowed_methods, reason = "a switch of this test")]
    if std::env::var_os("TENURE_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).expect("the list can be written");
    }
    let list = std::fs::read_to_string(&path).expect("the list exists");
    let (old, new): (Vec<_>, Vec<_>) = (list.lines().collect(), text.lines().collect());
    let only = |of: &[&str], others: &[&str]| -> Vec<String> {
        let only = of.iter().filter(|line| !others.contains(line));
        only.map(ToString::to_string).collect()
    };
    let (added, removed) = (only(&new, &old), only(&old, &new));
    assert!(
        list == text,
        "{LIST} is stale; TENURE_UPDATE_DOCS=1 cargo test -p tenure-cli --test it tidy::api\n\
         added: {added:#?}\nremoved: {removed:#?}"
    );
}

/// Fields, variants, methods and functions of the exported types, with their signatures, sorted.
fn members(files: &[File], names: &[String]) -> Vec<String> {
    let exported = |name: &str| {
        let is_it = |path: &String| path.rsplit("::").next() == Some(name);
        names.iter().any(is_it)
    };
    let mut members = Vec::new();
    for krate in CRATES {
        let own: Vec<_> = files
            .iter()
            .filter(|file| file.path.starts_with(krate))
            .map(|file| expanded(&file.text))
            .collect();
        let is_public = |name: &str| {
            let kinds = ["struct", "enum", "trait"];
            let starts = kinds.map(|kind| format!("pub {kind} {name}"));
            own.iter().flatten().any(|line| {
                let rest = starts
                    .iter()
                    .find_map(|start| line.strip_prefix(start.as_str()));
                rest.is_some_and(|rest| !rest.starts_with(is_part))
            })
        };
        for file in &own {
            let mut lines = file.iter().map(String::as_str);
            while let Some(line) = lines.next() {
                let Some((kind, name)) = block(line) else {
                    continue;
                };
                let is_listed = exported(&name) && is_public(&name);
                let mut body = lines.by_ref().take_while(|line| *line != "}");
                while let Some(line) = body.next() {
                    let Some(mut member) = member(kind, line).filter(|_| is_listed) else {
                        continue;
                    };
                    // A signature may take several lines.
                    while !member.ends_with(['{', ';', ',', '}']) {
                        let next = body.next().expect("a signature has an end");
                        let is_open = member.ends_with('(');
                        member.push_str(if is_open { "" } else { " " });
                        member.push_str(next.trim());
                    }
                    let member = member.trim_end_matches(['{', ';', ',', ' ']);
                    members.push(format!("{name}: {member}"));
                }
            }
        }
    }
    members.sort();
    members.dedup();
    members
}

/// The lines of a file, with the macros of `tenure-core/src/words.rs` written out.
fn expanded(text: &str) -> Vec<String> {
    let mut expanded = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == "words! {" {
            let body: Vec<_> = lines.by_ref().take_while(|line| *line != "}").collect();
            expanded.extend(enum_with_words(&body));
        } else if let Some(name) = line.strip_prefix("as_text!(") {
            expanded.push(format!("impl {} {{", name.trim_end_matches(");")));
            expanded.push("    pub fn as_str(&self) -> &str {".to_owned());
            expanded.push("}".to_owned());
        } else {
            expanded.push(line.to_owned());
        }
    }
    expanded
}

fn enum_with_words(body: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut variants = Vec::new();
    let (mut name, mut members) = ("", "");
    for line in body.iter().filter_map(|line| line.strip_prefix("    ")) {
        let is_variant = line.trim_start().starts_with(char::is_uppercase);
        if let Some(head) = line.strip_prefix("pub enum ") {
            (name, members) = head.split_once(": ").expect("the members follow a colon");
            lines.push(format!("pub enum {name} {{"));
        } else if let Some((variant, _)) = line.split_once(" = ").filter(|_| is_variant) {
            variants.push(variant.trim());
            lines.push(format!("{variant},"));
        } else {
            lines.push(line.to_owned());
        }
    }
    lines.push(format!("impl {name} {{"));
    for member in members.trim_end_matches(" {").split(", ") {
        match member {
            "as_str" => lines.push("    pub const fn as_str(self) -> &'static str {".to_owned()),
            "ALL" => {
                lines.push(format!("    pub const ALL: [Self; {}] = [", variants.len()));
                let first = variants.first().expect("an enum with words has a variant");
                lines.push(format!("        Self::{first},"));
            }
            _ => assert_eq!(member, "Display", "an unknown member of {name}"),
        }
    }
    lines.push("}".to_owned());
    lines
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The kind and the name of the type whose block this line opens.
fn block(line: &str) -> Option<(&'static str, String)> {
    if !line.ends_with('{') || line.contains(" for ") {
        return None;
    }
    let kinds = [
        ("pub struct ", "struct"),
        ("pub enum ", "enum"),
        ("pub trait ", "trait"),
    ];
    let mut kinds = kinds.into_iter().chain([("impl", "impl")]);
    let (rest, kind) = kinds.find_map(|(start, kind)| Some((line.strip_prefix(start)?, kind)))?;
    // Skips the parameters of an `impl`.
    let rest = match rest.strip_prefix('<') {
        Some(parameters) if kind == "impl" => parameters.split_once("> ")?.1,
        _ => rest.trim_start(),
    };
    let name: String = rest.chars().take_while(|c| is_part(*c)).collect();
    (!name.is_empty()).then_some((kind, name))
}

/// The first line of a member's declaration.
fn member(kind: &str, line: &str) -> Option<String> {
    let line = line.strip_prefix("    ")?;
    let is_it = match kind {
        "enum" => line.starts_with(char::is_uppercase),
        "trait" => ["fn ", "type ", "const "]
            .iter()
            .any(|word| line.starts_with(word)),
        _ => line.starts_with("pub ") && !line.starts_with("pub use"),
    };
    is_it.then(|| line.strip_prefix("pub ").unwrap_or(line).to_owned())
}

#[test]
fn the_root_has_few_names_and_no_module_re_exports_by_glob() {
    let files = repository();
    let names = public_names(&files);
    let at_root = names.iter().filter(|name| name.matches("::").count() == 1);
    let at_root: Vec<_> = at_root.filter(|name| !name.starts_with("mod ")).collect();
    assert!(
        at_root.len() <= ROOT_MAX,
        "{} names at the root: {at_root:#?}",
        at_root.len()
    );
    let is_ours = |file: &&File| file.path.starts_with(SOURCES);
    for file in files.iter().filter(is_ours) {
        for line in file.text.lines() {
            let is_glob = line.starts_with("pub use ") && line.ends_with("::*;");
            assert!(!is_glob, "{}: {line}", file.path);
        }
    }
}

/// Every public name of the root and of its public modules, sorted.
fn public_names(files: &[File]) -> Vec<String> {
    let mut names = Vec::new();
    let root = source(files, "lib.rs").expect("the front crate has a root");
    for (kind, name) in items(root) {
        if kind == "mod" {
            names.push(format!("mod tenure::{name}"));
            let text = source(files, &format!("{name}.rs"));
            let text = text.or_else(|| source(files, &format!("{name}/mod.rs")));
            for (_, inner) in text.map(items).unwrap_or_default() {
                names.push(format!("tenure::{name}::{inner}"));
            }
        } else {
            names.push(format!("tenure::{name}"));
        }
    }
    names.sort();
    names.dedup();
    names
}

fn source<'a>(files: &'a [File], name: &str) -> Option<&'a str> {
    let path = format!("{SOURCES}{name}");
    let file = files.iter().find(|file| file.path == path)?;
    Some(&file.text)
}

/// The public items at the top level of a file, without those hidden from the documentation.
fn items(text: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut is_hidden = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == "#[doc(hidden)]" {
            is_hidden = true;
            continue;
        }
        let Some(item) = line.strip_prefix("pub ") else {
            is_hidden &= line.starts_with("#[") || line.starts_with("///");
            continue;
        };
        let mut item = item.to_owned();
        if item.starts_with("use ") {
            while !item.ends_with(';') {
                item.push_str(lines.next().expect("a use ends with a semicolon").trim());
            }
        }
        if !std::mem::take(&mut is_hidden) {
            found.extend(named(&item));
        }
    }
    found
}

fn named(item: &str) -> Vec<(&'static str, String)> {
    let word = |text: &str| -> String { text.trim().chars().take_while(|c| is_part(*c)).collect() };
    if let Some(path) = item.strip_prefix("use ") {
        let path = path.trim_end_matches(';');
        let list = path
            .rsplit_once("::{")
            .map(|(_, list)| list.trim_end_matches('}'));
        let list = list.unwrap_or_else(|| path.rsplit("::").next().unwrap_or(path));
        let parts = list
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty());
        let shown = |part: &str| part.rsplit(" as ").next().unwrap_or(part).to_owned();
        return parts.map(|part| ("use", shown(part))).collect();
    }
    for kind in [
        "struct", "enum", "trait", "fn", "async fn", "type", "const", "mod",
    ] {
        if let Some(rest) = item.strip_prefix(kind).filter(|rest| rest.starts_with(' ')) {
            let kind = if kind == "mod" { "mod" } else { "item" };
            return vec![(kind, word(rest))];
        }
    }
    Vec::new()
}

#[test]
fn public_names_are_read_without_hidden_items() {
    let text = "#[doc(hidden)]\npub use a::Old;\npub use b::{\n    One,\n    Two as Other,\n};\n\
                #[cfg(feature = \"x\")]\npub mod inner;\npub(crate) fn own() {}\n\
                /// Documented.\npub struct Thing<'a> {\n    pub field: u8,\n}\n";
    let names: Vec<_> = items(text).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["One", "Other", "inner", "Thing"]);
}

#[test]
fn the_members_of_an_enum_with_words_and_of_a_name_are_written_out() {
    let text = "as_text!(Name);\nwords! {\n    /// A = \"a\".\n    pub enum Colour: as_str, ALL {\n\
                \x20       Red = \"red\",\n        Blue = \"blue\",\n    }\n}\n";
    let lines: Vec<_> = expanded(text)
        .into_iter()
        .filter_map(|line| member("enum", &line).or_else(|| member("impl", &line)))
        .collect();
    let as_str = "const fn as_str(self) -> &'static str {";
    let all = "const ALL: [Self; 2] = [";
    assert_eq!(
        lines,
        ["fn as_str(&self) -> &str {", "Red,", "Blue,", as_str, all]
    );
}
