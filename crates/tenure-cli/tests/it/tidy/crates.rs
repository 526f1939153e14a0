//! Who may depend on whom: the table of edges against the manifests, outside crates in their one
//! home, and no source file that nothing refers to.

use super::{File, assert_caught, assert_none, identifiers, repository};

/// What each of our crates may depend on, and what its tests may use besides.
const EDGES: &[(&str, &[&str], &[&str])] = &[
    ("tenure-core", &[], &[]),
    ("tenure-engine", &["tenure-core"], &["tenure-store"]),
    ("tenure-publish", &["tenure-core"], &[]),
    ("tenure-server", &["tenure-core"], &["tenure-store"]),
    // Its own tests use it with every feature on, as do those of the front door.
    ("tenure-store", &["tenure-core"], &["tenure-store"]),
    (
        "tenure",
        &[
            "tenure-core",
            "tenure-engine",
            "tenure-publish",
            "tenure-server",
            "tenure-store",
        ],
        &["tenure", "tenure-store"],
    ),
    ("tenure-cli", &["tenure"], &["tenure-store"]),
];

/// Outside crates that only their homes may name.
const HOMES: &[(&str, &[&str])] = &[
    // The front door names both drivers in two signatures: the caller's own transaction.
    ("sqlx", &["tenure-store", "tenure"]),
    ("rusqlite", &["tenure-store", "tenure"]),
    ("clap", &["tenure-cli"]),
    ("comfy-table", &["tenure-cli"]),
    ("anstream", &["tenure-cli"]),
    ("anstyle", &["tenure-cli"]),
];

/// Parts of the names of crates that speak to a service which locks, or remembers what was seen.
const SERVICES: &[&str] = &[
    "etcd",
    "zookeeper",
    "consul",
    "memcache",
    "redlock",
    "redis",
];

/// What the core may name: nothing that does I/O, reads a clock, draws chance or runs tasks.
const CORE: &[&str] = &["base64", "jiff", "serde", "serde_json", "thiserror", "uuid"];

/// A dependency as a manifest names it.
#[derive(Debug, PartialEq, Eq)]
struct Dependency<'a> {
    name: &'a str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Shipped,
    Test,
}

/// Reads the tables `[dependencies]`, `[dev-dependencies]`, `[target.….dependencies]` and so on.
/// Enough TOML for manifests, where a dependency is one line or a table of its own.
fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut kind = None;
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            let dependencies = table.find("dependencies");
            kind = dependencies.map(|_| {
                if table.contains("dev-dependencies") {
                    Kind::Test
                } else {
                    Kind::Shipped
                }
            });
            if let (Some(kind), Some((_, name))) = (kind, table.split_once("dependencies.")) {
                found.push(Dependency { name, kind });
            }
        } else if let Some(kind) = kind
            && !line.starts_with('#')
            && let Some((name, _)) = line.split_once(['.', ' ', '='])
        {
            found.push(Dependency { name, kind });
        }
    }
    found
}

/// Each crate's manifest, with the crate's name.
fn manifests(files: &[File]) -> impl Iterator<Item = (&str, &File)> {
    files.iter().filter_map(|file| {
        let name = file
            .path
            .strip_prefix("crates/")?
            .strip_suffix("/Cargo.toml")?;
        Some((name, file))
    })
}

fn forbidden_edges(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, manifest) in manifests(files) {
        let Some((_, shipped, test)) = EDGES.iter().find(|(of, ..)| *of == name) else {
            violations.push(format!(
                "{name}: a crate that the table of edges does not know"
            ));
            continue;
        };
        for dependency in dependencies(&manifest.text) {
            let ours = EDGES.iter().any(|(of, ..)| *of == dependency.name);
            let allowed = shipped.contains(&dependency.name)
                || dependency.kind == Kind::Test && test.contains(&dependency.name);
            if ours && !allowed {
                violations.push(format!("{name} may not depend on {}", dependency.name));
            }
        }
    }
    violations
}

fn away_from_home(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, manifest) in manifests(files) {
        for dependency in dependencies(&manifest.text) {
            let outside = dependency.name;
            let ours = EDGES.iter().any(|(of, ..)| *of == outside);
            if dependency.kind == Kind::Test || ours {
                continue;
            }
            let home = HOMES.iter().find(|(of, _)| *of == outside);
            let foreign = home.is_some_and(|(_, homes)| !homes.contains(&name));
            if foreign || name == "tenure-core" && !CORE.contains(&outside) {
                violations.push(format!("{name} may not use {outside}"));
            }
        }
    }
    violations
}

/// Whether cargo finds the file by its place, without a `mod`.
fn is_root(path: &str) -> bool {
    let within = path
        .split_once("crates/")
        .map_or(path, |(_, within)| within);
    let parts: Vec<&str> = within.split('/').skip(1).collect();
    matches!(
        parts.as_slice(),
        ["src", "lib.rs" | "main.rs"]
            | ["tests" | "examples" | "benches", _]
            | ["src", "bin", _]
            | ["tests" | "examples" | "benches", _, "main.rs"]
            | ["build.rs"]
    )
}

fn unreferenced_sources(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.is("rs") && !is_root(&file.path))
    {
        let (folder, name) = if file.stem() == "mod" {
            file.folder()
                .rsplit_once('/')
                .unwrap_or(("", file.folder()))
        } else {
            (file.folder(), file.stem())
        };
        let declaration = format!("mod {name};");
        let declared = ["mod.rs", "lib.rs", "main.rs"].iter().any(|parent| {
            let parent = format!("{folder}/{parent}");
            files
                .iter()
                .any(|other| other.path == parent && other.text.contains(&declaration))
        });
        if !declared {
            violations.push(format!("{}: no `{declaration}` in {folder}", file.path));
        }
    }
    violations
}

/// A statement or migration is referred to by a source file of its database that includes files
/// and names it, as text or as the argument of a macro.
fn unreferenced_statements(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is("sql")) {
        let database = if file.path.contains("/sqlite/") {
            "sqlite"
        } else {
            "postgres"
        };
        let named = files.iter().any(|source| {
            source.is("rs")
                && source.path.contains(database)
                && source.text.contains("include_str!")
                && identifiers(&source.text).any(|word| word == file.stem())
        });
        if !named {
            violations.push(format!("{}: no source file includes it", file.path));
        }
    }
    violations
}

/// The engine that renews reaches a store through the core's port only; rules, store and running
/// are three crates.
///
/// Proves: S2-065, S2-067
#[test]
fn our_crates_depend_on_one_another_only_as_allowed() {
    assert_none("forbidden edges", &forbidden_edges(&repository()));
    let planted = [
        File::new(
            "crates/tenure-engine/Cargo.toml",
            "[dependencies]\ntenure-store = \"1\"\n",
        ),
        File::new(
            "crates/tenure-cli/Cargo.toml",
            "[dependencies.tenure-core]\nworkspace = true\n",
        ),
        File::new("crates/tenure-more/Cargo.toml", ""),
        File::new(
            "crates/tenure-core/Cargo.toml",
            "[target.'cfg(unix)'.dependencies]\ntenure.workspace = true\n",
        ),
        // A test's edge, which is allowed.
        File::new(
            "crates/tenure-server/Cargo.toml",
            "[dev-dependencies]\ntenure-store = \"1\"\n",
        ),
    ];
    assert_caught(&forbidden_edges(&planted), 4);
}

#[test]
fn outside_crates_stay_in_their_homes() {
    assert_none("away from home", &away_from_home(&repository()));
    let planted = [
        File::new(
            "crates/tenure-engine/Cargo.toml",
            "[dependencies]\nsqlx.workspace = true\n",
        ),
        File::new(
            "crates/tenure-core/Cargo.toml",
            "[dependencies]\ntokio = \"1\"\n",
        ),
        File::new(
            "crates/tenure-store/Cargo.toml",
            "[dependencies]\nsqlx.workspace = true\n",
        ),
    ];
    assert_caught(&away_from_home(&planted), 2);
}

fn other_services(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, manifest) in manifests(files) {
        for dependency in dependencies(&manifest.text) {
            let is_other = SERVICES
                .iter()
                .any(|service| dependency.name.contains(service));
            if is_other && dependency.kind == Kind::Shipped {
                violations.push(format!("{name} needs {}", dependency.name));
            }
        }
    }
    violations
}

/// The database that is there is enough: nothing locks or remembers receipts elsewhere.
///
/// Proves: S2-003, S2-004
#[test]
fn no_other_service_locks_or_remembers() {
    assert_none("other services", &other_services(&repository()));
    let planted = [File::new(
        "crates/tenure-engine/Cargo.toml",
        "[dependencies]\netcd-client = \"1\"\n[dev-dependencies]\nredis = \"1\"\n",
    )];
    assert_caught(&other_services(&planted), 1);
}

/// Proves: S2-063
#[test]
fn the_licence_is_the_only_condition_that_others_set() {
    let files = repository();
    let text = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map(|file| file.text.clone()).unwrap_or_default()
    };
    assert!(text("Cargo.toml").contains("license = \"MIT OR Apache-2.0\""));
    assert!(text("deny.toml").contains("[licenses]"));
}

#[test]
fn every_source_file_belongs_to_a_module() {
    assert_none(
        "files nothing refers to",
        &unreferenced_sources(&repository()),
    );
    let planted = [
        File::new("crates/tenure/src/lib.rs", "mod open;\nmod store;\n"),
        File::new("crates/tenure/src/open.rs", ""),
        File::new("crates/tenure/src/orphan.rs", ""),
        File::new("crates/tenure/src/store/mod.rs", ""),
        File::new("crates/tenure/src/store/orphan.rs", ""),
        File::new("crates/tenure/tests/it/main.rs", ""),
        File::new("crates/tenure/examples/outbox.rs", ""),
    ];
    assert_caught(&unreferenced_sources(&planted), 2);
}

#[test]
fn every_statement_is_used() {
    assert_none(
        "statements nothing refers to",
        &unreferenced_statements(&repository()),
    );
    let planted = [
        File::new("crates/tenure-store/sql/postgres/queue/claim.sql", ""),
        File::new("crates/tenure-store/sql/postgres/queue/orphan.sql", ""),
        File::new("crates/tenure-store/sql/sqlite/queue/claim.sql", ""),
        File::new(
            "crates/tenure-store/src/postgres/statements.rs",
            "include_str!(concat!(\"../\", stringify!($name))) claim",
        ),
    ];
    assert_caught(&unreferenced_statements(&planted), 2);
}
