//! `tenure deliveries`: lists what is owed to endpoints; shows, replays and buries single ones.

mod attempts;
mod shown;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use tenure::webhook::EndpointId;
use tenure::{Filter, ItemId, Rate, Tenure, Timestamp};

pub(super) use self::attempts::{beginning, micros, times};
pub(super) use self::shown::{Names, show};
use self::shown::{ShownDelivery, table};
use super::replay::{self, Choosing, SettledWord};
use super::{Context, answers, once_each};
use crate::args::{StateWord, delivery_id, event_id};
use crate::database::Absent;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::time;

#[derive(Debug, Args)]
pub(crate) struct Deliveries {
    #[command(subcommand)]
    pub(crate) command: Option<DeliveryCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeliveryCommand {
    /// List deliveries, newest first; exits with 3 when there are none
    #[command(after_help = "\
Examples:
  tenure deliveries list
  tenure deliveries list --endpoint billing --state dead --since 1d
  tenure deliveries list --event 17 --json | jq .state")]
    List(List),
    /// Show all that is known of a delivery: its facts, and every attempt with its answer
    #[command(after_help = "\
Of an answer its status, its times and its first bytes are shown; what would steer a terminal is \
not. An attempt that is `unknown` began and its worker died: the receiver may have seen it.

Examples:
  tenure deliveries show d17
  tenure deliveries show d17 --json | jq '.timeline[].status'")]
    Show {
        /// The delivery's id
        #[arg(value_parser = delivery_id)]
        id: ItemId,
    },
    /// Put deliveries that are done or dead back, to be made again
    #[command(after_help = "\
Name deliveries by id, or choose them by --endpoint, --topic, --event, --since, --until or \
--state; what is chosen is counted and asked about first, and is then a replay on record: see \
`tenure replay --help`. The receiver sees the same webhook-id again, with a newer fence.

Examples:
  tenure deliveries replay d17 d18
  tenure deliveries replay --endpoint billing --since 2h --dry-run
  tenure deliveries replay --endpoint billing --until 1h --rate 50/s --yes")]
    Replay(Replay),
    /// Settle deliveries dead, now, whoever holds them
    #[command(after_help = "\
A call that is on its way is not called back; its answer is kept as superseded.

Examples:
  tenure deliveries bury d17 --reason 'the order was a test'")]
    Bury {
        /// The deliveries' ids
        #[arg(value_name = "ID", required = true, value_parser = delivery_id)]
        ids: Vec<ItemId>,

        /// Why, for people
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        reason: String,
    },
}

/// Which deliveries.
#[derive(Debug, Default, Args)]
pub(crate) struct Owed {
    /// Only those owed to this endpoint
    #[arg(long, value_name = "ID", value_parser = EndpointId::new)]
    endpoint: Option<EndpointId>,

    /// Only those of events of this topic
    #[arg(long)]
    topic: Option<String>,

    /// Only those of this event
    #[arg(long, value_name = "ID", value_parser = event_id)]
    event: Option<ItemId>,

    /// Only those written since: 1h (ago), 2026-11-15, 2026-11-15T10:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = time::moment)]
    since: Option<Timestamp>,

    /// Only those written before: 1h (ago), 2026-11-15, 2026-11-15T10:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = time::moment)]
    until: Option<Timestamp>,
}

#[derive(Debug, Default, Args)]
pub(crate) struct List {
    /// Only those in this state
    #[arg(long)]
    state: Option<StateWord>,

    #[command(flatten)]
    owed: Owed,

    /// At most this many, 1 to 1000
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,

    /// Only those before this id: the next page
    #[arg(long, value_name = "ID", value_parser = delivery_id)]
    before: Option<ItemId>,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The deliveries' ids
    #[arg(value_name = "ID", value_parser = delivery_id)]
    ids: Vec<ItemId>,

    /// Those in this state [default: dead, when chosen by another option]
    #[arg(long, conflicts_with = "ids")]
    state: Option<SettledWord>,

    #[command(flatten)]
    owed: Owed,

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
}

impl Owed {
    fn is_given(&self) -> bool {
        self.endpoint.is_some()
            || self.topic.is_some()
            || self.event.is_some()
            || self.since.is_some()
            || self.until.is_some()
    }

    /// As a filter.
    async fn filter(&self, tenure: &Tenure) -> Result<Filter, Stop> {
        let endpoint = match &self.endpoint {
            None => None,
            Some(id) => match tenure.endpoint(id).await? {
                Some(endpoint) => Some(endpoint.number),
                None => return Err(super::endpoints::no_such_endpoint(id).into()),
            },
        };
        Ok(Filter {
            topic: self.topic.clone(),
            since: self.since,
            until: self.until,
            kind: tenure::Kind::Deliveries,
            endpoint,
            source: self.event,
            ..Filter::default()
        })
    }
}

pub(super) async fn run(cx: &Context, command: Option<DeliveryCommand>) -> Result<Exit, Stop> {
    match command {
        None => {
            let limit = 50;
            list(
                cx,
                &List {
                    limit,
                    ..List::default()
                },
            )
            .await
        }
        Some(DeliveryCommand::List(args)) => list(cx, &args).await,
        Some(DeliveryCommand::Show { id }) => {
            let tenure = cx.database.open(Absent::Report).await?;
            show(cx, &tenure, id).await
        }
        Some(DeliveryCommand::Replay(args)) => replay_some(cx, &args).await,
        Some(DeliveryCommand::Bury { ids, reason }) => {
            let tenure = cx.database.open(Absent::Report).await?;
            let mut said = Vec::with_capacity(ids.len());
            for id in once_each(&ids) {
                said.push((id, tenure.bury(id, &reason).await?));
            }
            answers(cx, "buried", &said)
        }
    }
}

async fn list(cx: &Context, args: &List) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let filter = Filter {
        state: args.state.map(Into::into),
        before: args.before,
        ..args.owed.filter(&tenure).await?
    };
    let page = tenure.deliveries(&filter, args.limit).await?;
    if page.records.is_empty() {
        cx.output.note("no deliveries match");
        return Ok(Exit::Nothing);
    }
    let names = Names::load(&tenure).await?;
    if cx.output.is_json() {
        for record in &page.records {
            cx.output.json(&ShownDelivery::new(record, &names))?;
        }
        return Ok(Exit::Done);
    }
    let (heading, rows) = table(&page.records, &names, cx.output.now);
    cx.output.table(&heading, rows)?;
    if let Some(next) = page.next {
        cx.output
            .note(format_args!("there are more: --before {next}"));
    }
    Ok(Exit::Done)
}

async fn replay_some(cx: &Context, args: &Replay) -> Result<Exit, Stop> {
    let choosing = Choosing {
        rate: args.rate,
        is_detached: args.detach,
        is_dry: args.dry_run,
        is_sure: args.yes,
    };
    let is_chosen = args.state.is_some() || args.owed.is_given();
    let ways = "name ids, or choose by --endpoint, --topic, --event, --since, --until or --state";
    match (args.ids.is_empty(), is_chosen) {
        (true, false) => {
            let message = "nothing says which deliveries to replay";
            Err(Problem::new(Exit::Usage, message).hint(ways).into())
        }
        (false, true) => {
            let message = "both ids and a choice are given";
            Err(Problem::new(Exit::Usage, message).hint(ways).into())
        }
        (false, false) => replay::by_id(cx, &args.ids, choosing).await,
        (true, true) => {
            let tenure = cx.database.open(Absent::Report).await?;
            let state = args.state.unwrap_or(SettledWord::Dead);
            let filter = Filter {
                state: Some(state.into()),
                ..args.owed.filter(&tenure).await?
            };
            replay::by_filter(cx, &tenure, filter, choosing).await
        }
    }
}
