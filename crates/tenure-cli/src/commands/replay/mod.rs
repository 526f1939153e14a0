//! `tenure replay`: makes events that are done or dead pending again, by id or by filter (a bulk
//! replay).

mod operation;
mod pace;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use tenure::operate::{Filter, Kind, ReplayRate, Replayed};
use tenure::store::Timestamp;
use tenure::{ItemId, State, Tenure};

use self::pace::{Pace, PaceStep};
use super::rows::RowReplay;
use super::{Context, TableArg, answers, once_each, rows};
use crate::args::{Choice, item_id};
use crate::confirm::{Question, confirm};
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::{deliveries, events};
use crate::problem::{Problem, Stop};
use crate::progress::{Total, begin};
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

    /// Those in this state [default: dead, if another filter is given]
    #[arg(long, conflicts_with = "ids")]
    state: Option<SettledArg>,

    #[command(flatten)]
    choice: Choice,

    /// Only those written before: 1h (ago), 2026-11-15, 2026-11-15T10:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = time::moment)]
    until: Option<Timestamp>,

    /// At most this many per second or minute: 50/s, 600/m
    #[arg(long, value_name = "N/s", value_parser = ReplayRate::parse)]
    rate: Option<ReplayRate>,

    /// Leave the replay to the workers, and return at once
    #[arg(long, conflicts_with = "ids")]
    detach: bool,

    /// Count them and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    of: TableArg,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReplayCommand {
    /// List bulk replays, newest first; exits with 3 when there are none
    #[command(after_help = "\
Examples:
  tenure replay list
  tenure replay list --json | jq 'select(.state == \"running\")'")]
    List,
    /// Follow a replay to its end, and help with it; Ctrl-C leaves it running
    #[command(after_help = "\
Examples:
  tenure replay follow 3")]
    Follow {
        /// The number of the replay
        id: u64,
    },
    /// Cancel a replay; items that were replayed already stay pending
    #[command(after_help = "\
Examples:
  tenure replay cancel 3")]
    Cancel {
        /// The number of the replay
        id: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SettledArg {
    Done,
    Dead,
}

impl From<SettledArg> for State {
    fn from(arg: SettledArg) -> Self {
        match arg {
            SettledArg::Done => Self::Done,
            SettledArg::Dead => Self::Dead,
        }
    }
}

/// The result of a dry run, in JSON.
#[derive(Serialize)]
pub(super) struct DryRunView {
    pub(super) would_replay: usize,
}

pub(super) async fn run(cx: &Context, args: &Replay) -> Result<Exit, Stop> {
    let Some(command) = &args.command else {
        return replay_some(cx, args).await;
    };
    let tenure = cx.database.open(IfMissing::Report).await?;
    match command {
        ReplayCommand::List => operation::list(cx, &tenure).await,
        ReplayCommand::Follow { id } => operation::follow(cx, &tenure, *id).await,
        ReplayCommand::Cancel { id } => operation::cancel(cx, &tenure, *id).await,
    }
}

async fn replay_some(cx: &Context, args: &Replay) -> Result<Exit, Stop> {
    let options = ReplayOptions {
        rate: args.rate,
        is_detached: args.detach,
        is_dry: args.dry_run,
        is_sure: args.yes,
    };
    if let Some(table) = &args.of.table {
        return replay_rows(cx, table, args).await;
    }
    let is_selected = args.state.is_some() || args.until.is_some() || args.choice.is_given();
    match (args.ids.is_empty(), is_selected) {
        (true, false) => Err(Problem::new(Exit::Usage, "no events to replay are named")
            .hint(
                "give ids, or select by --state dead, --topic, --queue, --key, --since or \
                     --until",
            )
            .into()),
        (false, true) => Err(Problem::new(
            Exit::Usage,
            "ids cannot be combined with other filters",
        )
        .hint("give ids, or select by --state, --topic, --queue, --key, --since and --until")
        .into()),
        (false, false) => by_id(cx, &args.ids, options).await,
        (true, true) => {
            let state = args.state.unwrap_or(SettledArg::Dead);
            let mut filter = args.choice.filter(Some(State::from(state)))?;
            filter.until = args.until;
            let tenure = cx.database.open(IfMissing::Report).await?;
            by_filter(cx, &tenure, filter, options).await
        }
    }
}

/// Replays rows of a table: by id, or those in a state.
async fn replay_rows(cx: &Context, table: &str, args: &Replay) -> Result<Exit, Stop> {
    let is_foreign =
        args.choice.is_of_events() || args.until.is_some() || args.rate.is_some() || args.detach;
    if is_foreign {
        let message = "rows of a table can be selected by id, --state and --since only";
        return Err(Problem::new(Exit::Usage, message)
            .hint("remove the other options")
            .into());
    }
    let is_selected = args.state.is_some() || args.choice.since.is_some();
    if args.ids.is_empty() != is_selected {
        let message = "no rows to replay are named, or ids are combined with other filters";
        return Err(Problem::new(Exit::Usage, message)
            .hint("give ids, or select by --state dead or --since")
            .into());
    }
    let state = args.state.unwrap_or(SettledArg::Dead);
    let filter = args.choice.filter(Some(State::from(state)))?;
    let options = RowReplay {
        ids: &args.ids,
        filter: is_selected.then_some(filter),
        is_dry: args.dry_run,
        is_sure: args.yes,
    };
    rows::replay(cx, table, options).await
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayOptions {
    /// Maximum rate; `None` means no limit.
    pub(super) rate: Option<ReplayRate>,
    /// Leave it to the workers.
    pub(super) is_detached: bool,
    /// Only count.
    pub(super) is_dry: bool,
    /// Skip the confirmation.
    pub(super) is_sure: bool,
}

/// Replays the items with these ids, and prints an answer for each.
pub(super) async fn by_id(cx: &Context, ids: &[ItemId], how: ReplayOptions) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let ids = once_each(ids);
    let kind = ids.first().map_or(Kind::Events, |id| kind_of(*id));
    if how.is_dry {
        let records = tenure.find(&ids).await?;
        let settled = records.iter().filter(|record| record.state.is_terminal());
        return planned(cx, kind, settled.count());
    }
    let (answered, end) = replay(cx, &tenure, &ids, how.rate).await;
    let exit = answers(cx, "replayed", &answered)?;
    end.map(|()| exit)
}

/// Replays everything that matches the filter, as a bulk replay.
pub(super) async fn by_filter(
    cx: &Context,
    tenure: &Tenure,
    filter: Filter,
    how: ReplayOptions,
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
                .hint("only dead ones were considered; --state done selects those that are done");
        }
        return Ok(Exit::Nothing);
    }
    if how.is_dry {
        return planned(cx, kind, number);
    }
    if !how.is_sure {
        confirm_replay(kind, number)?;
    }
    operation::start(cx, tenure, (filter, number), how).await
}

/// The number of items that match the filter.
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

/// Replays in steps; returns the answers so far, and an error if it stopped early.
async fn replay(
    cx: &Context,
    tenure: &Tenure,
    ids: &[ItemId],
    rate: Option<ReplayRate>,
) -> (Replayed, Result<(), Stop>) {
    let total = Total::Events(u64::try_from(ids.len()).unwrap_or(u64::MAX));
    let progress = begin(&cx.output, total, "replayed");
    let mut answered = Vec::with_capacity(ids.len());
    let mut pace = match Pace::new(rate) {
        Ok(pace) => pace,
        Err(problem) => return (answered, Err(problem.into())),
    };
    let mut end = Ok(());
    for part in ids.chunks(pace.size) {
        if pace.next().await == PaceStep::Stop {
            let kind = ids.first().map_or(Kind::Events, |id| kind_of(*id));
            let all = counted(kind, ids.len());
            let message = format!("stopped after {} of {all}", answered.len());
            end = Err(Problem::new(Exit::Failed, message)
                .hint("the rest is unchanged: repeat the command to continue")
                .into());
            break;
        }
        match tenure.replay(part).await {
            Ok(answers) => answered.extend(answers),
            Err(error) => {
                end = Err(error.into());
                break;
            }
        }
        progress.set_position(u64::try_from(answered.len()).unwrap_or(u64::MAX));
    }
    progress.finish_and_clear();
    (answered, end)
}

fn planned(cx: &Context, kind: Kind, number: usize) -> Result<Exit, Stop> {
    let object = DryRunView {
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

fn confirm_replay(kind: Kind, number: usize) -> Result<(), Stop> {
    let number = counted(kind, number);
    confirm(&Question {
        text: format!("replay {number}?"),
        unasked: format!("{number} would be replayed"),
        hint: "--yes replays them, --dry-run only counts them",
        refused: "nothing was replayed",
    })
}
