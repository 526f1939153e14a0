//! `tenure deliveries`: lists, shows, replays and buries deliveries to endpoints.

mod attempts;
mod view;

use clap::{Args, Subcommand};
use tenure::operate::{Filter, ReplayRate};
use tenure::store::Timestamp;
use tenure::webhook::EndpointId;
use tenure::{ItemId, Tenure};

pub(super) use self::attempts::{beginning, micros, times};
use self::view::{DeliveryView, table};
pub(super) use self::view::{EndpointNames, show};
use super::replay::{self, ReplayOptions, SettledArg};
use super::{Context, answers, once_each};
use crate::args::{StateArg, delivery_id, event_id, reason};
use crate::database::IfMissing;
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
    List(ListDeliveries),
    /// Show a delivery: its facts, and every attempt with its answer
    #[command(after_help = "\
It prints the status and the times of every answer, and the beginning of the last one, without \
control characters. An attempt is `unknown` when its worker died during the call: the receiver may \
have got the call.

Examples:
  tenure deliveries show d17
  tenure deliveries show d17 --json | jq '.timeline[].status'")]
    Show {
        /// The delivery's id
        #[arg(value_parser = delivery_id)]
        id: ItemId,
    },
    /// Send deliveries that are done or dead again
    #[command(after_help = "\
Name deliveries by id, or select them by --endpoint, --topic, --event, --since, --until or \
--state; a selection is counted and confirmed first, and becomes a bulk replay: see `tenure \
replay --help`. The receiver gets the same webhook-id again, with a newer fence.

Examples:
  tenure deliveries replay d17 d18
  tenure deliveries replay --endpoint billing --since 2h --dry-run
  tenure deliveries replay --endpoint billing --until 1h --rate 50/s --yes")]
    Replay(ReplayDeliveries),
    /// Mark deliveries dead now, even if a worker holds them
    #[command(after_help = "\
A call in progress is not aborted; its answer is recorded as superseded.

Examples:
  tenure deliveries bury d17 --reason 'the order was a test'")]
    Bury {
        /// The deliveries' ids
        #[arg(value_name = "ID", required = true, value_parser = delivery_id)]
        ids: Vec<ItemId>,

        /// The reason, for people
        #[arg(long, value_parser = reason)]
        reason: String,
    },
}

/// Options that select deliveries.
#[derive(Debug, Default, Args)]
pub(crate) struct DeliveryFilter {
    /// Only those to this endpoint
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
pub(crate) struct ListDeliveries {
    /// Only those in this state
    #[arg(long)]
    state: Option<StateArg>,

    #[command(flatten)]
    filter: DeliveryFilter,

    /// At most this many, 1 to 1000
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,

    /// Only those before this id: the next page
    #[arg(long, value_name = "ID", value_parser = delivery_id)]
    before: Option<ItemId>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayDeliveries {
    /// The deliveries' ids
    #[arg(value_name = "ID", value_parser = delivery_id)]
    ids: Vec<ItemId>,

    /// Those in this state [default: dead, if another filter is given]
    #[arg(long, conflicts_with = "ids")]
    state: Option<SettledArg>,

    #[command(flatten)]
    filter: DeliveryFilter,

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
}

impl DeliveryFilter {
    fn is_given(&self) -> bool {
        self.endpoint.is_some()
            || self.topic.is_some()
            || self.event.is_some()
            || self.since.is_some()
            || self.until.is_some()
    }

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
            kind: tenure::operate::Kind::Deliveries,
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
                &ListDeliveries {
                    limit,
                    ..ListDeliveries::default()
                },
            )
            .await
        }
        Some(DeliveryCommand::List(args)) => list(cx, &args).await,
        Some(DeliveryCommand::Show { id }) => {
            let tenure = cx.database.open(IfMissing::Report).await?;
            show(cx, &tenure, id).await
        }
        Some(DeliveryCommand::Replay(args)) => replay_some(cx, &args).await,
        Some(DeliveryCommand::Bury { ids, reason }) => {
            let tenure = cx.database.open(IfMissing::Report).await?;
            let mut answered = Vec::with_capacity(ids.len());
            for id in once_each(&ids) {
                answered.push((id, tenure.bury(id, &reason).await?));
            }
            answers(cx, "buried", &answered)
        }
    }
}

async fn list(cx: &Context, args: &ListDeliveries) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let filter = Filter {
        state: args.state.map(Into::into),
        before: args.before,
        ..args.filter.filter(&tenure).await?
    };
    let page = tenure.deliveries(&filter, args.limit).await?;
    if page.records.is_empty() {
        cx.output.note("no deliveries match");
        return Ok(Exit::Nothing);
    }
    let names = EndpointNames::load(&tenure).await?;
    if cx.output.is_json() {
        for record in &page.records {
            cx.output.json(&DeliveryView::new(record, &names))?;
        }
        return Ok(Exit::Done);
    }
    let (heading, rows) = table(&page.records, &names, cx.output.now);
    cx.output.table(&heading, rows)?;
    if let Some(next) = page.next {
        cx.output
            .note(format_args!("there are more: add --before {next}"));
    }
    Ok(Exit::Done)
}

async fn replay_some(cx: &Context, args: &ReplayDeliveries) -> Result<Exit, Stop> {
    let options = ReplayOptions {
        rate: args.rate,
        is_detached: args.detach,
        is_dry: args.dry_run,
        is_sure: args.yes,
    };
    let is_selected = args.state.is_some() || args.filter.is_given();
    let ways = "give ids, or select by --endpoint, --topic, --event, --since, --until or --state";
    match (args.ids.is_empty(), is_selected) {
        (true, false) => {
            let message = "no deliveries to replay are named";
            Err(Problem::new(Exit::Usage, message).hint(ways).into())
        }
        (false, true) => {
            let message = "ids cannot be combined with other filters";
            Err(Problem::new(Exit::Usage, message).hint(ways).into())
        }
        (false, false) => replay::by_id(cx, &args.ids, options).await,
        (true, true) => {
            let tenure = cx.database.open(IfMissing::Report).await?;
            let state = args.state.unwrap_or(SettledArg::Dead);
            let filter = Filter {
                state: Some(state.into()),
                ..args.filter.filter(&tenure).await?
            };
            replay::by_filter(cx, &tenure, filter, options).await
        }
    }
}
