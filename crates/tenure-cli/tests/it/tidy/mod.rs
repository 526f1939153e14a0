//! The rules of `docs/STYLE.md`, run as tests over every file of the repository.
//!
//! A rule is a function from the files to its violations. Each rule has a test with planted
//! violations, because a checker that never failed proves nothing.

mod api;
mod conformance;
mod crates;
mod names;
mod pages;
mod promises;
mod shape;
mod statements;

use std::{fs, path::Path};

/// A text file: its path from the root of the repository, with `/`, and its contents.
#[derive(Debug, Clone)]
struct File {
    path: String,
    text: String,
}

impl File {
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn is(&self, extension: &str) -> bool {
        self.path
            .rsplit_once('.')
            .is_some_and(|(_, end)| end == extension)
    }

    /// The name without folders and extension.
    fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.split('.').next().unwrap_or(name)
    }

    fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// Returns true for test files. Unit tests at the end of a source file are cut off by
    /// `shipped`.
    fn is_test(&self) -> bool {
        self.path.contains("/tests/")
    }

    /// Returns true for the rules themselves, which contain the forbidden words.
    fn is_tidy(&self) -> bool {
        self.path.contains("/tests/it/tidy/")
    }

    /// Returns true for the rules on proofs, which contain planted proofs.
    fn plants_proofs(&self) -> bool {
        self.is_tidy() && matches!(self.stem(), "mod" | "conformance" | "promises")
    }

    /// The lines before the unit tests.
    fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().take_while(|(_, line)| *line != "#[cfg(test)]")
    }

    /// The lines, numbered from one.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

/// Returns every hand-written text file of the repository.
fn repository() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    collect(&root, "", &mut files);
    assert!(files.len() > 20, "the repository was not found");
    files
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository is readable") {
        let entry = entry.expect("a folder of the repository is readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if matches!(name.as_str(), "target" | ".git" | "Cargo.lock") {
            continue;
        }
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.push(File { path, text });
        }
    }
}

/// Fails with all violations at once, each with its place.
fn assert_none(rule: &str, violations: &[String]) {
    assert!(
        violations.is_empty(),
        "{rule}:\n  {}",
        violations.join("\n  ")
    );
}

/// Fails unless the checker finds exactly the planted number of violations.
fn assert_caught(violations: &[String], planted: usize) {
    assert_eq!(
        violations.len(),
        planted,
        "planted and found differ: {violations:#?}"
    );
}

/// Replaces `@` by the mark of a proof, so that tools that collect proofs do not find the planted
/// ones.
fn planted_proofs(text: &str) -> String {
    text.replace('@', "Proves:")
}

/// The words of a text: runs of letters, digits and `_`.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}
