//! Each law of `LeaseStore` has a test, each `Proves:` line belongs to a test, and no test is
//! ignored.

use super::{File, assert_caught, assert_none, identifiers, planted_proofs, repository};

/// The numbers of the laws, which are listed at `LeaseStore` in `tenure-core`.
const LAWS: [u8; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

fn laws_without_test(files: &[File]) -> Vec<String> {
    let proven = |law: u8| {
        let name = format!("law_{law}_");
        let is_law = |line: &str| {
            let mut words = identifiers(line).skip_while(|word| *word == "async");
            let comment = line.trim_start().starts_with("//");
            !comment
                && words.next() == Some("fn")
                && words.next().is_some_and(|word| word.starts_with(&name))
        };
        let sources = files.iter().filter(|file| file.is("rs") && !file.is_tidy());
        sources.flat_map(File::lines).any(|(_, line)| is_law(line))
    };
    let unproven = LAWS.into_iter().filter(|law| !proven(*law));
    unproven
        .map(|law| format!("law {law}: no test is called law_{law}_…"))
        .collect()
}

/// Returns true for an id such as `S1-013`: a specification and a number.
fn is_requirement(id: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    matches!(id.split_once('-'), Some((seed, number))
        if seed.len() == 2 && seed.starts_with('S') && digits(&seed[1..])
            && number.len() == 3 && digits(number))
}

/// Finds lines of proofs that do not list valid ids or do not belong to a test. Only comments and
/// attributes may stand between such a line and its test.
fn loose_proofs(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.is("rs") && !file.plants_proofs())
    {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for (index, line) in lines.iter().enumerate() {
            let Some((_, ids)) = line.split_once("Proves:") else {
                continue;
            };
            let attached = lines
                .iter()
                .skip(index + 1)
                .find(|next| !next.starts_with("//") && !next.starts_with("#["))
                .is_some_and(|next| !next.is_empty() && *next != "}");
            if !ids.split(',').map(str::trim).all(is_requirement) || !attached {
                violations.push(format!("{}:{}: {line}", file.path, index + 1));
            }
        }
    }
    violations
}

fn ignored_tests(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is("rs") && !file.is_tidy()) {
        for (number, line) in file.lines() {
            let inner = line.trim_start();
            if inner.starts_with("#[ignore") || inner.starts_with("#[should_panic]") {
                violations.push(format!("{}:{number}: {inner}", file.path));
            }
        }
    }
    violations
}

#[test]
fn every_law_has_its_test() {
    assert_none("laws", &laws_without_test(&repository()));
    let text = "async fn law_1_one_lease() {}\nfn law_22_other() {}\n// fn law_3_none() {}\n";
    let found = laws_without_test(&[File::new("crates/tenure-core/tests/it/laws.rs", text)]);
    assert_caught(&found, LAWS.len() - 1);
}

#[test]
fn every_proof_is_attached_to_a_test_and_readable() {
    assert_none("proofs", &loose_proofs(&repository()));
    let text = "/// @ S1-013, S4-021\n#[test]\nfn fine() {}\n\
                /// @ S1-13\nfn short() {}\n\
                /// @ S1-014\n\nfn apart() {}\n";
    assert_caught(
        &loose_proofs(&[File::new("crates/tenure/src/lib.rs", &planted_proofs(text))]),
        2,
    );
}

#[test]
fn no_test_is_ignored_or_panics_without_an_expected_message() {
    assert_none("ignored tests", &ignored_tests(&repository()));
    let text = "#[test]\n#[ignore = \"slow\"]\nfn slow() {}\n#[should_panic(expected = \"x\")]\n";
    assert_caught(
        &ignored_tests(&[File::new("crates/tenure/src/lib.rs", text)]),
        1,
    );
}
