//! Commands, one file each, and their shared parts: context, dispatch, answers by id.

mod adopt;
mod bench;
mod bury;
mod completions;
mod config;
mod deliveries;
mod doctor;
mod endpoints;
mod enqueue;
mod events;
mod health;
mod jobs;
mod keys;
mod listen;
mod man;
mod migrate;
mod prune;
mod queues;
mod reap;
mod replay;
mod retry;
mod rows;
mod serve;
mod settings;
mod show;
mod stats;
mod verify;
mod why;
mod work;
mod workers;

use std::collections::HashSet;
use std::time::Duration;

use comfy_table::{Cell, Color};
use serde::Serialize;
use tenure::lease::{Guarded, Refusal};
use tenure::{ItemId, Settings, Tenure};

pub(crate) use self::adopt::Adopt;
pub(crate) use self::bury::Bury;
pub(crate) use self::completions::Completions;
pub(crate) use self::config::ConfigArgs;
pub(crate) use self::deliveries::Deliveries;
pub(crate) use self::endpoints::Endpoints;
pub(crate) use self::enqueue::Enqueue;
pub(crate) use self::health::Health;
pub(crate) use self::jobs::Jobs;
pub(crate) use self::keys::Keys;
pub(crate) use self::listen::Listen;
pub(crate) use self::man::Man;
pub(crate) use self::migrate::Migrate;
pub(crate) use self::prune::Prune;
pub(crate) use self::queues::Queues;
pub(crate) use self::replay::Replay;
pub(crate) use self::retry::Retry;
pub(crate) use self::rows::TableArg;
pub(crate) use self::serve::Serve;
pub(crate) use self::settings::SettingsArgs;
pub(crate) use self::verify::Verify;
pub(crate) use self::why::Why;
pub(crate) use self::work::Work;
pub(crate) use self::workers::Workers;
use crate::args::{Cli, Command};
use crate::config::{self as configuration, Config, Override, Sources};
use crate::database::{Database, hide_addresses};
use crate::event_view::IdView;
use crate::exit::Exit;
use crate::output::{Output, Reader, report};
use crate::problem::{Problem, Stop};

/// The context of a command.
#[derive(Clone, Debug)]
struct Context {
    config: Config,
    /// The configured database, with its options.
    database: Database,
    output: Output,
}

impl Context {
    /// The settings in force: those of this configuration, overridden by the cluster's unless the
    /// result is invalid.
    async fn settings(&self, tenure: &Tenure) -> Result<Settings, Stop> {
        let cluster = tenure.settings().await?;
        let own = &self.config.settings;
        Ok(own
            .overlaid(&cluster.values)
            .unwrap_or_else(|_refused| own.clone()))
    }
}

/// Runs the command and reports its problems.
pub(crate) fn run(cli: Cli, command: Command) -> Exit {
    let reader = if cli.json {
        Reader::Program
    } else {
        Reader::Person
    };
    let sources = Sources {
        file: cli.config,
        database: cli.database,
        overrides: overrides(&command),
    };
    if let Command::Config(args) = &command {
        let checked = config::run(&sources, &Output::new(reader), args);
        return checked.unwrap_or_else(|stop| stopped(stop, hide_addresses));
    }
    // These need no configuration, and shell completion must not fail because of a bad file.
    let talks_to_its_worker = matches!(&command, Command::Jobs(args) if args.is_bare());
    let is_bare = talks_to_its_worker
        || matches!(
            command,
            Command::Completions(_)
                | Command::Demo(_)
                | Command::Listen(_)
                | Command::Man(_)
                | Command::Verify(_)
        );
    let loaded = if is_bare {
        Ok(Config::default())
    } else {
        configuration::load(&sources)
    };
    let config = match loaded {
        Ok(config) => config,
        Err(complaints) => return stopped(complaints.into(), hide_addresses),
    };
    let cx = Context {
        database: config.database.clone().opened_with(config.store.clone()),
        config,
        output: Output::new(reader),
    };
    match start(&cx, command) {
        Ok(exit) => exit,
        Err(stop) => stopped(stop, |text| cx.database.hide(text)),
    }
}

fn overrides(command: &Command) -> Vec<Override> {
    if let Command::Serve(args) = command {
        return args.overrides();
    }
    if let Command::Work(args) = command {
        return args.overrides();
    }
    if let Command::Jobs(args) = command {
        return args.overrides();
    }
    if let Command::Health(args) = command {
        return args.overrides();
    }
    Vec::new()
}

/// Reports the problems that stopped a command.
fn stopped(stop: Stop, hide: impl Fn(&str) -> String) -> Exit {
    let problems = match stop {
        Stop::Closed => return Exit::Done,
        Stop::Problem(problem) => vec![problem],
        Stop::Problems(problems) => problems,
    };
    for problem in &problems {
        report(problem, &hide);
    }
    problems
        .first()
        .map_or(Exit::Failed, |problem| problem.exit)
}

/// Time for a worker that ends at once to clean up.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(1);

fn start(cx: &Context, command: Command) -> Result<Exit, Stop> {
    let runs_jobs = matches!(&command, Command::Jobs(args) if args.is_working());
    let is_working = runs_jobs
        || matches!(
            command,
            Command::Serve(_) | Command::Work(_) | Command::Bench(_)
        );
    let mut builder = if is_working {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = builder.enable_all().build()?;
    let exit = runtime.block_on(dispatch(cx, command));
    // Tasks that did not stop are abandoned, because the process ends. Workers get a moment to kill
    // their commands and to remove their folders.
    if is_working {
        runtime.shutdown_timeout(CLEANUP_TIMEOUT);
    } else {
        runtime.shutdown_background();
    }
    exit
}

async fn dispatch(cx: &Context, command: Command) -> Result<Exit, Stop> {
    match command {
        Command::Migrate(args) => migrate::run(cx, &args).await,
        Command::Enqueue(args) => enqueue::run(cx, args).await,
        Command::Events(args) => events::run(cx, &args).await,
        Command::Show(args) => show::run(cx, &args).await,
        Command::Why(args) => why::run(cx, &args).await,
        Command::Stats(of) => stats::run(cx, &of).await,
        Command::Replay(args) => replay::run(cx, &args).await,
        Command::Retry(args) => retry::run(cx, &args).await,
        Command::Bury(args) => bury::run(cx, &args).await,
        Command::Reap(of) => reap::run(cx, &of).await,
        Command::Prune(args) => prune::run(cx, &args).await,
        Command::Queues(args) => queues::run(cx, args.command).await,
        Command::Keys(args) => keys::run(cx, args).await,
        Command::Endpoints(args) => endpoints::run(cx, args.command).await,
        Command::Deliveries(args) => deliveries::run(cx, args.command).await,
        Command::Jobs(args) => jobs::run(cx, args).await,
        Command::Listen(args) => listen::run(cx, args).await,
        Command::Verify(args) => verify::run(cx, &args),
        Command::Serve(args) => serve::run(cx, &args).await,
        Command::Work(args) => work::run(cx, &args).await,
        Command::Adopt(args) => adopt::run(cx, &args).await,
        Command::Settings(args) => settings::run(cx, args).await,
        Command::Workers(args) => workers::run(cx, &args).await,
        // `run` has handled it: it needs the faults of the configuration, too.
        Command::Config(_) => Ok(Exit::Done),
        Command::Doctor => doctor::run(cx).await,
        Command::Health(args) => health::run(cx, &args).await,
        Command::Bench(args) => bench::bench(cx, &args).await,
        Command::Demo(args) => bench::demo(cx, &args).await,
        Command::Completions(args) => completions::run(cx, &args),
        Command::Man(args) => man::run(cx, &args),
    }
}

/// The answer to an operator's command on one item, in JSON.
#[derive(Serialize)]
struct AnswerView {
    id: IdView,
    /// The command took effect.
    accepted: bool,
    /// The code of the refusal.
    refused: Option<&'static str>,
}

/// Prints one line per answer: `verb` and the id, or the refusal.
fn answers(cx: &Context, verb: &str, answers: &[(ItemId, Guarded)]) -> Result<Exit, Stop> {
    for (id, answer) in answers {
        let refusal = answer.refusal();
        let object = AnswerView {
            id: IdView(*id),
            accepted: refusal.is_none(),
            refused: refusal.map(Refusal::as_str),
        };
        cx.output.either(&object, || match refusal {
            None => format!("{verb} {id}"),
            Some(why) => format!("not {verb} {id}: {why}"),
        })?;
    }
    Ok(exit_of(answers))
}

/// `Refused` if anything was refused; `Nothing` if the only refusals are unknown ids.
fn exit_of(answers: &[(ItemId, Guarded)]) -> Exit {
    answers
        .iter()
        .filter_map(|(_, answer)| answer.refusal())
        .map(|why| match why {
            Refusal::NotFound => Exit::Nothing,
            Refusal::Lost
            | Refusal::NotClaimed
            | Refusal::Lapsed
            | Refusal::AlreadySettled
            | Refusal::NotSettled
            | Refusal::OutOfTurn
            | Refusal::Changed => Exit::Refused,
        })
        .max()
        .unwrap_or(Exit::Done)
}

/// The mark of a paused queue in a table.
fn paused_cell(is_paused: bool) -> Cell {
    if is_paused {
        Cell::new("paused").fg(Color::Yellow)
    } else {
        Cell::new("")
    }
}

/// The ids in the given order, without duplicates.
fn once_each(ids: &[ItemId]) -> Vec<ItemId> {
    let mut known = HashSet::new();
    ids.iter().copied().filter(|id| known.insert(*id)).collect()
}

/// Reports that an event or a delivery does not exist.
fn no_such_item(id: ItemId) -> Problem {
    if id.is_delivery() {
        return Problem::new(Exit::Nothing, format!("there is no delivery {id}"))
            .hint("`tenure deliveries list` lists the newest");
    }
    Problem::new(Exit::Nothing, format!("there is no event {id}"))
        .hint("`tenure events` lists the newest")
}
