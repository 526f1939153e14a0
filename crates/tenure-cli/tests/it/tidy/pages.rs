//! Pages: links lead to existing files, and the state diagram shows exactly the transitions of the
//! core.

use std::collections::BTreeSet;

use super::{File, assert_caught, assert_none, repository};

const STATES: &str = "docs/STATES.md";
const CORE: &str = "crates/tenure-core/src/state.rs";

/// The targets of `[text](target)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
}

/// The path of a link target, from the root of the repository.
fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('#').next().unwrap_or(target).split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn broken_links(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is("md")) {
        for (number, line) in file.lines() {
            for target in targets(line).filter(|target| !target.contains("://")) {
                let path = resolve(file.folder(), target);
                let within = format!("{path}/");
                let found = |other: &File| other.path == path || other.path.starts_with(&within);
                if !target.starts_with('#') && !files.iter().any(found) {
                    violations.push(format!("{}:{number}: there is no {path}", file.path));
                }
            }
        }
    }
    violations
}

/// Pairs of states: from and to.
type Transitions = BTreeSet<(String, String)>;

/// Reads the rows of the core's table, such as `(State::Pending, Cause::Claim, State::Claimed)`.
fn of_core(text: &str) -> Transitions {
    let states = |line: &str| -> Vec<String> {
        let names = line.split("State::").skip(1);
        names
            .map(|rest| rest.split([',', ')']).next().unwrap_or(rest).to_lowercase())
            .collect()
    };
    let rows = text
        .lines()
        .filter(|line| line.trim_start().starts_with("(State::"));
    rows.filter_map(|line| <[String; 2]>::try_from(states(line)).ok())
        .map(Into::into)
        .collect()
}

/// Reads the arrows of the diagram, except for the arrow that enters it.
fn of_diagram(text: &str) -> Transitions {
    let arrows = text
        .lines()
        .filter_map(|line| line.trim().split_once(" --> "));
    let ends = arrows.map(|(from, rest)| (from, rest.split(' ').next().unwrap_or(rest)));
    let inner = ends.filter(|(from, _)| *from != "[*]");
    inner
        .map(|(from, to)| (from.to_owned(), to.to_owned()))
        .collect()
}

#[test]
fn links_lead_to_existing_files() {
    assert_none("broken links", &broken_links(&repository()));
    let planted = [
        File::new(
            "docs/HERE.md",
            "[a](THERE.md) [b](../README.md#x) [c](https://example.org)\n",
        ),
        File::new(
            "README.md",
            "[d](docs) [e](docs/HERE.md) [f](docs/GONE.md) [g](#below)\n",
        ),
    ];
    assert_caught(&broken_links(&planted), 2);
}

#[test]
fn the_state_diagram_is_that_of_the_core() {
    let files = repository();
    let text = |path| {
        &files
            .iter()
            .find(|file| file.path == path)
            .expect("the file exists")
            .text
    };
    let core = of_core(text(CORE));
    assert_eq!(core.len(), 6, "the core's table was not read");
    assert_eq!(
        of_diagram(text(STATES)),
        core,
        "{STATES} shows other transitions than {CORE}"
    );

    let planted = "[*] --> pending : enqueue\npending --> done : never\n";
    assert_ne!(of_diagram(planted), core);
    assert_eq!(of_diagram(planted).len(), 1);
}
