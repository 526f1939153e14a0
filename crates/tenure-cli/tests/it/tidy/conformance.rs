//! `docs/CONFORMANCE.md` links each requirement to its proof: the last column is computed from the
//! `Proves:` lines above the tests. `TENURE_UPDATE_DOCS=1` rewrites the column.

use std::{collections::BTreeMap, fs, path::Path};

use super::{File, identifiers, planted_proofs, repository};

const PAGE: &str = "docs/CONFORMANCE.md";

/// Maximum number of tests named per requirement; the others are counted.
const NAMED_MAX: usize = 2;

/// Maps each requirement to the tests that prove it, each with its crate, in the order of the
/// files' paths.
fn proofs(files: &[File]) -> BTreeMap<String, Vec<String>> {
    let mut proofs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut sources: Vec<&File> = files
        .iter()
        .filter(|file| file.is("rs") && !file.plants_proofs())
        .collect();
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    for file in sources {
        let home = file.path.split('/').nth(1).unwrap_or_default();
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for (index, line) in lines.iter().enumerate() {
            let Some((_, ids)) = line.split_once("Proves:") else {
                continue;
            };
            let mut after = lines.iter().skip(index + 1);
            let test = after.find(|next| !next.starts_with("//") && !next.starts_with("#["));
            let name = test.and_then(|test| test_name(test)).unwrap_or("a test");
            for id in ids.split(',') {
                let tests = proofs.entry(id.trim().to_owned()).or_default();
                let proof = format!("`{name}` ({home})");
                if !tests.contains(&proof) {
                    tests.push(proof);
                }
            }
        }
    }
    proofs
}

/// The name after `fn`, or the first argument of a macro.
fn test_name(line: &str) -> Option<&str> {
    let mut words = identifiers(line);
    let first = words.next();
    identifiers(line)
        .skip_while(|word| *word != "fn")
        .nth(1)
        .or_else(|| words.next())
        .or(first)
}

/// Returns the page with its last column computed. A requirement without a test keeps its link to
/// another page.
fn page(text: &str, proofs: &BTreeMap<String, Vec<String>>) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let Some((id, _)) = line
            .strip_prefix("| S")
            .and_then(|rest| rest.split_once(" | "))
        else {
            lines.push(line.to_owned());
            continue;
        };
        let row = line.trim_end_matches('|').trim_end();
        let (rest, old) = row.rsplit_once(" |").unwrap_or((row, ""));
        let proof = match proofs.get(&format!("S{id}")) {
            Some(tests) => named(tests),
            None if old.trim().starts_with('[') => old.trim().to_owned(),
            None => "*to come*".to_owned(),
        };
        lines.push(format!("{rest} | {proof} |"));
    }
    lines.join("\n") + "\n"
}

fn named(tests: &[String]) -> String {
    let names = tests
        .iter()
        .take(NAMED_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match tests.len().saturating_sub(NAMED_MAX) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

#[test]
fn every_requirement_leads_to_its_proof() {
    let files = repository();
    let current = files
        .iter()
        .find(|file| file.path == PAGE)
        .expect("the page exists");
    let proofs = proofs(&files);
    let fresh = page(&current.text, &proofs);
    for id in proofs.keys() {
        assert!(
            fresh.contains(&format!("| {id} |")),
            "{id} is proven, but not on {PAGE}"
        );
    }

    #[expect(clippy::disallowed_methods, reason = "a switch of this test")]
    let update = std::env::var_os("TENURE_UPDATE_DOCS").is_some();
    if update {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(PAGE);
        fs::write(path, &fresh).expect("the page can be written");
    } else {
        assert!(
            current.text == fresh,
            "{PAGE} is stale; TENURE_UPDATE_DOCS=1 cargo test -p tenure-cli --test it requirement"
        );
    }
}

#[test]
fn a_stale_page_is_detected() {
    let sources = [File::new(
        "crates/tenure-store/tests/it/claim.rs",
        &planted_proofs(
            "/// @ S1-001, S1-002\n#[test]\nfn a_claim_has_a_term() {}\n\
             /// @ S1-002\nasync fn two() {}\n/// @ S1-002\npromise!(three, |x| y);\n",
        ),
    )];
    let stale = "| S1-001 | MUST | text |  |\n| S1-002 | MUST | a \\| b | `gone` (x) |\n\
                 | S1-003 | NOTE | text | [PAGE.md](PAGE.md) |\n\
                 | S1-004 | MUST | text | `gone` (x) |\n";
    let fresh = "| S1-001 | MUST | text | `a_claim_has_a_term` (tenure-store) |\n\
                 | S1-002 | MUST | a \\| b | `a_claim_has_a_term` (tenure-store), \
                 `two` (tenure-store) and 1 more |\n\
                 | S1-003 | NOTE | text | [PAGE.md](PAGE.md) |\n\
                 | S1-004 | MUST | text | *to come* |\n";
    assert_eq!(page(stale, &proofs(&sources)), fresh);
    assert_eq!(page(fresh, &proofs(&sources)), fresh);
}
