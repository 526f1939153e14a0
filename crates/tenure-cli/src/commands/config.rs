//! `tenure config check`: checks the whole configuration without a database.

use std::path::Path;

use clap::{Args, Subcommand};
use comfy_table::Cell;
use serde::Serialize;

use crate::command_path::{Program, program};
use crate::config::{Config, PublisherConfig, Sources, examine};
use crate::database::hide_addresses;
use crate::exit::Exit;
use crate::output::{Output, plain};
use crate::problem::{Problem, Stop};
use crate::{assemble, env};

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check the configuration without a database, and show where events would go
    #[command(after_help = "\
It reads the file, the environment and the flags as `tenure serve` does, resolves routes and \
publishers, and looks for their commands and files. It opens no database and runs nothing. All \
faults are reported at once; exits with 2 when there is one.

Examples:
  tenure config check
  tenure --config /etc/tenure/tenure.toml config check --json | jq .routes")]
    Check,
}

/// The result in JSON.
#[derive(Serialize)]
struct ConfigView<'a> {
    /// The configuration file; null when there is none.
    file: Option<&'a str>,
    database: String,
    routes: Vec<RouteView<'a>>,
    warnings: &'a [String],
}

/// A route in JSON.
#[derive(Serialize)]
struct RouteView<'a> {
    topics: Vec<String>,
    publisher: &'a str,
    kind: &'static str,
    /// The file or the program; null for standard output, and if only the shell can find it.
    target: Option<String>,
}

pub(super) fn run(sources: &Sources, output: &Output, args: &ConfigArgs) -> Result<Exit, Stop> {
    let ConfigCommand::Check = args.command;
    let (config, complaints) = examine(sources);
    let mut problems: Vec<Problem> = complaints.into_iter().map(Problem::from).collect();
    problems.extend(faults(&config));
    if !problems.is_empty() {
        return Err(Stop::Problems(problems));
    }
    let routes = config.routes.iter().filter_map(|route| {
        let publisher = config.publishers.get(&route.publisher)?;
        let topics = route.topics.iter();
        Some(RouteView {
            topics: topics.map(ToString::to_string).collect(),
            publisher: &route.publisher,
            kind: kind(publisher),
            target: target(publisher),
        })
    });
    let view = ConfigView {
        file: config.file.as_deref(),
        database: config.database.to_string(),
        routes: routes.collect(),
        warnings: &config.warnings,
    };
    if output.is_json() {
        output.json(&view)?;
        return Ok(Exit::Done);
    }
    let file = view.file.unwrap_or("none: these are the defaults");
    output.line(format_args!("file      {}", plain(file)))?;
    output.line(format_args!("database  {}\n", plain(&view.database)))?;
    let rows = view.routes.iter().map(|route| {
        vec![
            Cell::new(route.topics.join(", ")),
            Cell::new(route.publisher),
            Cell::new(route.kind),
            Cell::new(plain(route.target.as_deref().unwrap_or("-"))),
        ]
    });
    output.table(&["TOPICS", "PUBLISHER", "KIND", "TARGET"], rows.collect())?;
    if view.routes.is_empty() {
        output.note("no routes: events without a subscribed endpoint stay pending");
    }
    for warning in view.warnings {
        output.note(warning);
    }
    output.note("the configuration is valid");
    Ok(Exit::Done)
}

/// Faults that only show when the program works.
fn faults(config: &Config) -> Vec<Problem> {
    let publishers = config.publishers.iter();
    let mut faults: Vec<Problem> = publishers
        .filter_map(|(name, publisher)| fault(name, publisher))
        .collect();
    faults.extend(assemble::check_connections(config).err());
    faults
}

/// The reason why a publisher cannot work.
pub(super) fn fault(name: &str, publisher: &PublisherConfig) -> Option<Problem> {
    match publisher {
        PublisherConfig::Lines { path: None } => None,
        PublisherConfig::Lines { path: Some(path) } => {
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            let folder = folder.unwrap_or(Path::new("."));
            let found = match (path.is_dir(), folder.is_dir()) {
                (true, _) => "is a folder",
                (false, false) => "is in a folder that does not exist",
                (false, true) => return None,
            };
            let message = format!(
                "publishers.{name}.path is {}, which {found}; expected a file to append to",
                path.display()
            );
            Some(Problem::new(Exit::Usage, message))
        }
        PublisherConfig::Exec { command, .. } | PublisherConfig::ExecLines { command, .. } => {
            match program(command, env::path().as_deref()) {
                Program::File(_) | Program::Shell => None,
                Program::Missing(word) => {
                    let place = if word.contains('/') {
                        "is not an executable file"
                    } else {
                        "is in no folder of PATH"
                    };
                    let message = format!(
                        "the command of publisher {name} begins with {word:?}, which {place}; \
                     expected a program that can run"
                    );
                    let problem = Problem::new(Exit::Usage, hide_addresses(&message));
                    Some(problem.hint("install it, or give its whole path"))
                }
            }
        }
    }
}

const fn kind(publisher: &PublisherConfig) -> &'static str {
    match publisher {
        PublisherConfig::Lines { .. } => "lines",
        PublisherConfig::Exec { .. } => "exec",
        PublisherConfig::ExecLines { .. } => "exec-lines",
    }
}

fn target(publisher: &PublisherConfig) -> Option<String> {
    match publisher {
        PublisherConfig::Lines { path } => path.as_ref().map(|path| path.display().to_string()),
        PublisherConfig::Exec { command, .. } | PublisherConfig::ExecLines { command, .. } => {
            match program(command, env::path().as_deref()) {
                Program::File(file) => Some(file.display().to_string()),
                Program::Shell | Program::Missing(_) => None,
            }
        }
    }
}
