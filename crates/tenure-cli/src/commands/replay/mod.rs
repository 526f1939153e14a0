//! `tenure replay`: puts events that are done or dead back, as fast as is asked for: by id, or by
//! choice, which is an operation on record.

mod operation;
mod pace;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use tenure::{Filter, ItemId, Kind, Rate, Replayed, State, Tenure, Timestamp};

use self::pace::{Pace, Step};
use super::rows::Replaying;
use super::{Context, OfTable, answers, once_each, rows};
use crate::args::{Choice, item_id};
use crate::confirm::{Question, confirm};
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::{deliveries, events};
use crate::problem::{Problem, Stop};
use crate::progress::{Whole, begin};
use crate::time;

/// Events per page.
const PAGE: u32 = 1_000;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Replay {
    #[command(subcommand)]
    pub(crate) command: Option<ReplayCommand>,

    /// The ids of events, or of deliveries: 17, d17
    #[arg(value_name = "ID", value_parser = item_id)]
    ids: Vec<ItemId>,

    /// Those in this state [default: dead, when chosen by another option]
    #[arg(long, conflicts_with = "ids")]
    state: Option<SettledWord>,

    #[command(flatten)]
    choice: Choice,

    /// Only those written before: 1h (ago), 2026-11-15, 2026-11-15T10:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = time::moment)]
    until: Option<Timestamp>,

    /// At most this many per second or minute: 50/s, 600/m
    #[arg(long, value_name = "N/s", value_parser = Rate::parse)]
    rate: Option<Rate>,

    /// Leave what is chosen to the workers, and return at once
    #[arg(long, conflicts_with = "ids")]
    detach: bool,

    /// Say how many would be replayed and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    of: OfTable,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReplayCommand {
    /// List replays on record, newest first; exits with 3 when there are none
    #[command(after_help = "\
Examples:
  tenure replay list
  tenure replay list --json | jq 'select(.state == \"running\")'")]
    List,
    /// Follow a replay to its end, and help it along; Ctrl-C leaves it running
    #[command(after_help = "\
Examples:
  tenure replay follow 3")]
    Follow {
        /// Its number
        id: u64,
    },
    /// End a replay; what it has put back stays so
    #[command(after_help = "\
Examples:
  tenure replay cancel 3")]
    Cancel {
        /// Its number
        id: u64,
    },
}

/// The word for a state that a replay leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SettledWord {
    Done,
    Dead,
}

impl From<SettledWord> for State {
    fn from(word: SettledWord) -> Self {
        match word {
            SettledWord::Done => Self::Done,
            SettledWord::Dead => Self::Dead,
        }
    }
}

/// What a dry run would do, in JSON.
#[derive(Serialize)]
struct Planned {
    would_replay: usize,
}

pub(super) async fn run(cx: &Context, args: &Replay) -> Result<Exit, Stop> {
    let Some(command) = &args.command else {
        return replay_some(cx, args).await;
    };
    let tenure = cx.database.open(Absent::Report).await?;
    match command {
        ReplayCommand::List => operation::list(cx, &tenure).await,
        ReplayCommand::Follow { id } => operation::follow(cx, &tenure, *id).await,
        ReplayCommand::Cancel { id } => operation::cancel(cx, &tenure, *id).await,
    }
}

async fn replay_some(cx: &Context, args: &Replay) -> Result<Exit, Stop> {
    let choosing = Choosing {
        rate: args.rate,
        is_detached: args.detach,
        is_dry: args.dry_run,
        is_sure: args.yes,
    };
    if let Some(table) = &args.of.table {
        return replay_rows(cx, table, args).await;
    }
    let is_chosen = args.state.is_some() || args.until.is_some() || args.choice.is_given();
    match (args.ids.is_empty(), is_chosen) {
        (true, false) => Err(
            Problem::new(Exit::Usage, "nothing says which events to replay")
                .hint(
                    "name ids, or choose by --state dead, --topic, --queue, --key, --since or \
                     --until",
                )
                .into(),
        ),
        (false, true) => Err(Problem::new(Exit::Usage, "both ids and a choice are given")
            .hint("name ids, or choose by --state, --topic, --queue, --key, --since and --until")
            .into()),
        (false, false) => by_id(cx, &args.ids, choosing).await,
        (true, true) => {
            let state = args.state.unwrap_or(SettledWord::Dead);
            let mut filter = args.choice.filter(Some(State::from(state)))?;
            filter.until = args.until;
            let tenure = cx.database.open(Absent::Report).await?;
            by_filter(cx, &tenure, filter, choosing).await
        }
    }
}

/// Replays rows of a table: by id, or those in a state.
async fn replay_rows(cx: &Context, table: &str, args: &Replay) -> Result<Exit, Stop> {
    let is_foreign =
        args.choice.is_of_events() || args.until.is_some() || args.rate.is_some() || args.detach;
    if is_foreign {
        let message = "rows of a table are chosen by id, --state and --since alone";
        return Err(Problem::new(Exit::Usage, message)
            .hint("leave the other options out")
            .into());
    }
    let is_chosen = args.state.is_some() || args.choice.since.is_some();
    if args.ids.is_empty() != is_chosen {
        let message = "nothing says which rows to replay, or ids and a choice both do";
        return Err(Problem::new(Exit::Usage, message)
            .hint("name ids, or choose by --state dead or --since")
            .into());
    }
    let state = args.state.unwrap_or(SettledWord::Dead);
    let filter = args.choice.filter(Some(State::from(state)))?;
    let ask = Replaying {
        ids: &args.ids,
        filter: is_chosen.then_some(filter),
        is_dry: args.dry_run,
        is_sure: args.yes,
    };
    rows::replay(cx, table, ask).await
}

/// How a choice is replayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choosing {
    /// How fast at most.
    pub(super) rate: Option<Rate>,
    /// Begun, and left to the workers.
    pub(super) is_detached: bool,
    /// Only counted.
    pub(super) is_dry: bool,
    /// Not asked about.
    pub(super) is_sure: bool,
}

/// Replays these, and answers for each.
pub(super) async fn by_id(cx: &Context, ids: &[ItemId], how: Choosing) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let ids = once_each(ids);
    let kind = ids.first().map_or(Kind::Events, |id| kind_of(*id));
    if how.is_dry {
        let found = tenure.find(&ids).await?;
        let settled = found.iter().filter(|record| record.state.is_terminal());
        return planned(cx, kind, settled.count());
    }
    let (said, end) = replay(cx, &tenure, &ids, how.rate).await;
    let exit = answers(cx, "replayed", &said)?;
    end.map(|()| exit)
}

/// Replays everything that the filter matches, as an operation on record.
pub(super) async fn by_filter(
    cx: &Context,
    tenure: &Tenure,
    filter: Filter,
    how: Choosing,
) -> Result<Exit, Stop> {
    let kind = filter.kind;
    let number = count(tenure, filter.clone()).await?;
    if number == 0 {
        cx.output.note(match kind {
            Kind::Events => "no events match",
            Kind::Deliveries => "no deliveries match",
        });
        if filter.state == Some(State::Dead) {
            cx.output
                .hint("only what is dead was looked at; --state done takes what is done");
        }
        return Ok(Exit::Nothing);
    }
    if how.is_dry {
        return planned(cx, kind, number);
    }
    if !how.is_sure {
        ask(kind, number)?;
    }
    operation::start(cx, tenure, (filter, number), how).await
}

/// How many the filter matches.
async fn count(tenure: &Tenure, mut filter: Filter) -> Result<usize, Stop> {
    let mut number = 0;
    loop {
        let page = tenure.list(&filter, PAGE).await?;
        number += page.records.len();
        filter.before = page.next;
        if page.next.is_none() {
            return Ok(number);
        }
    }
}

fn kind_of(id: ItemId) -> Kind {
    if id.is_delivery() {
        Kind::Deliveries
    } else {
        Kind::Events
    }
}

/// `2 events`, `1 delivery`.
fn counted(kind: Kind, number: usize) -> String {
    match kind {
        Kind::Events => events(number),
        Kind::Deliveries => deliveries(number),
    }
}

/// Replays in steps; answers what was done, and whether that was all.
async fn replay(
    cx: &Context,
    tenure: &Tenure,
    ids: &[ItemId],
    rate: Option<Rate>,
) -> (Replayed, Result<(), Stop>) {
    let whole = Whole::Events(u64::try_from(ids.len()).unwrap_or(u64::MAX));
    let progress = begin(&cx.output, whole, "replayed");
    let mut said = Vec::with_capacity(ids.len());
    let mut pace = match Pace::new(rate) {
        Ok(pace) => pace,
        Err(problem) => return (said, Err(problem.into())),
    };
    let mut end = Ok(());
    for part in ids.chunks(pace.size) {
        if pace.next().await == Step::Stop {
            let kind = ids.first().map_or(Kind::Events, |id| kind_of(*id));
            let all = counted(kind, ids.len());
            let message = format!("stopped after {} of {all}", said.len());
            end = Err(Problem::new(Exit::Failed, message)
                .hint("the rest is as it was: say it again to go on with it")
                .into());
            break;
        }
        match tenure.replay(part).await {
            Ok(answers) => said.extend(answers),
            Err(error) => {
                end = Err(error.into());
                break;
            }
        }
        progress.set_position(u64::try_from(said.len()).unwrap_or(u64::MAX));
    }
    progress.finish_and_clear();
    (said, end)
}

fn planned(cx: &Context, kind: Kind, number: usize) -> Result<Exit, Stop> {
    let object = Planned {
        would_replay: number,
    };
    cx.output.either(&object, || {
        format!("{} would be replayed", counted(kind, number))
    })?;
    Ok(if number == 0 {
        Exit::Nothing
    } else {
        Exit::Done
    })
}

/// Asks whether so many are to be replayed.
fn ask(kind: Kind, number: usize) -> Result<(), Stop> {
    let number = counted(kind, number);
    confirm(&Question {
        text: format!("replay {number}?"),
        unasked: format!("{number} would be replayed"),
        hint: "--yes replays them, --dry-run only counts them",
        refused: "nothing was replayed",
    })
}
