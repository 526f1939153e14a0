//! Dependencies: the manifests match the table of edges, only the allowed crates use certain
//! outside crates, and no source file is unreferenced.

use std::path::Path;

use super::{File, assert_caught, assert_none, identifiers, repository};

/// Allowed dependencies of each crate, and those that only its tests may use.
const EDGES: &[(&str, &[&str], &[&str])] = &[
    ("tenure-core", &[], &[]),
    ("tenure-engine", &["tenure-core"], &["tenure-store"]),
    ("tenure-publish", &["tenure-core"], &[]),
    ("tenure-server", &["tenure-core"], &["tenure-store"]),
    // This crate kills and pauses processes for the tests of the other crates; no shipped crate may
    // depend on it.
    ("tenure-nemesis", &["tenure-core", "tenure-store"], &[]),
    // In their tests, this crate and the front crate depend on themselves, with every feature.
    (
        "tenure-store",
        &["tenure-core"],
        &["tenure-nemesis", "tenure-store"],
    ),
    (
        "tenure",
        &[
            "tenure-core",
            "tenure-engine",
            "tenure-publish",
            "tenure-server",
            "tenure-store",
        ],
        &["tenure", "tenure-nemesis", "tenure-store"],
    ),
    (
        "tenure-cli",
        &["tenure", "tenure-bench"],
        &["tenure-nemesis", "tenure-store"],
    ),
    ("tenure-bench", &["tenure"], &[]),
];

/// Outside crates, and the crates that may depend on them.
const HOMES: &[(&str, &[&str])] = &[
    // The front crate has signatures with the caller's own connection; the benchmark contains
    // hand-written SQL loops.
    ("sqlx", &["tenure-store", "tenure", "tenure-bench"]),
    ("rusqlite", &["tenure-store", "tenure", "tenure-bench"]),
    ("clap", &["tenure-cli", "tenure-bench"]),
    ("comfy-table", &["tenure-cli", "tenure-bench"]),
    ("anstream", &["tenure-cli"]),
    ("anstyle", &["tenure-cli", "tenure-bench"]),
];

/// Sets of features of the front crate, and the crates that must not be compiled with them.
const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "",
        &["hyper", "ring", "rusqlite", "rustix", "rustls", "sqlx"],
    ),
    ("sqlite", &["hyper", "ring", "rustix", "rustls", "sqlx"]),
    ("exec", &["hyper", "ring", "rusqlite", "rustls", "sqlx"]),
    (
        "lines",
        &["hyper", "ring", "rusqlite", "rustix", "rustls", "sqlx"],
    ),
    ("postgres", &["hyper", "rusqlite"]),
    ("sqlx-sqlite", &["hyper", "ring", "rustls", "sqlx-postgres"]),
];

/// Parts of the names of crates for external lock or deduplication services.
const SERVICES: &[&str] = &[
    "etcd",
    "zookeeper",
    "consul",
    "memcache",
    "redlock",
    "redis",
];

#[test]
fn a_feature_leaves_out_what_it_does_not_need() {
    for (features, left_out) in LEFT_OUT {
        let tree = tree_of(features);
        assert!(tree.contains(&"tokio".to_owned()), "no tree: {tree:?}");
        for name in *left_out {
            let is_there = tree.iter().any(|part| part == name);
            assert!(
                !is_there,
                "tenure with the features {features:?} compiles {name}"
            );
        }
    }
    // Each name must be in the whole tree; otherwise it is misspelt.
    let whole = tree_of("exec lines postgres sqlite webhook");
    for name in LEFT_OUT.iter().flat_map(|(_, names)| *names) {
        assert!(
            whole.iter().any(|part| part == name),
            "no crate is called {name}"
        );
    }
}

/// The crates that the front crate compiles with these features alone.
fn tree_of(features: &str) -> Vec<String> {
    let output = std::process::Command::new(env!("CARGO"))
        .args([
            "tree",
            "-p",
            "tenure",
            "--no-default-features",
            "--features",
            features,
        ])
        .args([
            "-e",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--offline",
        ])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .expect("cargo can be run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

/// Allowed dependencies of the core: none that does I/O, reads a clock, draws random numbers or
/// runs tasks.
const CORE: &[&str] = &["base64", "jiff", "serde", "serde_json", "thiserror", "uuid"];

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

/// Reads the tables `[dependencies]`, `[dev-dependencies]`, `[target.….dependencies]` and so on. It
/// understands only the TOML of manifests, where a dependency is one line or a table of its own.
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

/// Returns true if cargo finds the file by its path, without a `mod`.
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

/// Finds statements and migrations that no source file references. A reference is a source file of
/// the same database that includes files and names this one, as text or as the argument of a macro.
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

/// The engine uses a store only through the core's ports; rules, store and engine are three crates.
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
        // Tests may have this edge.
        File::new(
            "crates/tenure-server/Cargo.toml",
            "[dev-dependencies]\ntenure-store = \"1\"\n",
        ),
    ];
    assert_caught(&forbidden_edges(&planted), 4);
}

#[test]
fn outside_crates_are_used_only_where_allowed() {
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

/// The database is the only service that stores locks and records.
///
/// Proves: S2-003, S2-004
#[test]
fn no_crate_depends_on_a_lock_or_cache_service() {
    assert_none("other services", &other_services(&repository()));
    let planted = [File::new(
        "crates/tenure-engine/Cargo.toml",
        "[dependencies]\netcd-client = \"1\"\n[dev-dependencies]\nredis = \"1\"\n",
    )];
    assert_caught(&other_services(&planted), 1);
}

/// Proves: S2-063
#[test]
fn the_licence_is_mit_or_apache_and_those_of_dependencies_are_checked() {
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
