//! Bulk replays: starting, following, listing and cancelling them.

use std::time::Duration;

use comfy_table::{Cell, Color};
use indicatif::ProgressBar;
use serde::Serialize;
use tenure::Tenure;
use tenure::lease::{Guarded, Refusal};
use tenure::operate::{Filter, Kind, NewReplay, ReplayOperation, ReplayState, StepReplay};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{ReplayOptions, counted};
use crate::commands::Context;
use crate::commands::deliveries::EndpointNames;
use crate::event_view::{IdView, text};
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};
use crate::progress::{Total, begin};
use crate::time::relative;

/// Maximum items in a step; the rate may demand fewer.
const STEP_ITEMS: u32 = 1_000;
/// Minimum pause between two steps, for other work of the database.
const STEP_PAUSE: Duration = Duration::from_millis(20);
/// Interval between reads while other processes take the steps.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of replays listed.
const LIST_MAX: u32 = 100;

/// A bulk replay in JSON. A field that does not apply is null.
#[derive(Serialize)]
struct ReplayView<'a> {
    id: u64,
    state: &'static str,
    replayed: u64,
    refused: u64,
    expected: Option<u64>,
    rate: Option<String>,
    created_at: String,
    ended_at: Option<String>,
    filter: FilterView<'a>,
}

/// The filter in JSON.
#[derive(Serialize)]
struct FilterView<'a> {
    kind: &'static str,
    state: Option<&'static str>,
    topic: Option<&'a str>,
    queue: Option<&'a str>,
    key: Option<&'a str>,
    endpoint: Option<&'a str>,
    event: Option<IdView>,
    since: Option<String>,
    until: Option<String>,
}

impl<'a> FilterView<'a> {
    fn new(filter: &'a Filter, names: &'a EndpointNames) -> Self {
        Self {
            kind: match filter.kind {
                Kind::Events => "events",
                Kind::Deliveries => "deliveries",
            },
            state: filter.state.map(tenure::State::as_str),
            topic: filter.topic.as_deref(),
            queue: filter.queue.as_ref().map(tenure::store::QueueName::as_str),
            key: filter.key.as_deref(),
            endpoint: filter.endpoint.map(|number| names.name(number)),
            event: filter.source.map(IdView),
            since: text(filter.since),
            until: text(filter.until),
        }
    }

    /// The filter as options of the command line.
    fn text(&self) -> String {
        let mut parts = vec![format!("{} {}", self.state.unwrap_or("all"), self.kind)];
        let event = self.event.as_ref().map(|event| event.0.to_string());
        for (name, value) in [
            ("topic", self.topic),
            ("queue", self.queue),
            ("key", self.key),
            ("endpoint", self.endpoint),
            ("event", event.as_deref()),
            ("since", self.since.as_deref()),
            ("until", self.until.as_deref()),
        ] {
            if let Some(value) = value {
                parts.push(format!("--{name} {}", plain(value)));
            }
        }
        parts.join(" ")
    }
}

impl<'a> ReplayView<'a> {
    fn new(operation: &'a ReplayOperation, names: &'a EndpointNames) -> Self {
        Self {
            id: operation.id,
            state: operation.state.as_str(),
            replayed: operation.replayed,
            refused: operation.refused,
            expected: operation.expected,
            rate: operation.rate.map(|rate| rate.to_string()),
            created_at: operation.created_at.to_string(),
            ended_at: text(operation.ended_at),
            filter: FilterView::new(&operation.filter, names),
        }
    }
}

/// Starts a replay of `number` items, and follows it unless it is detached.
pub(super) async fn start(
    cx: &Context,
    tenure: &Tenure,
    (filter, number): (Filter, usize),
    how: ReplayOptions,
) -> Result<Exit, Stop> {
    let kind = filter.kind;
    let mut replay = NewReplay::new(filter)?;
    replay.rate = how.rate;
    replay.expected = u64::try_from(number).ok();
    // Installed before the start: from then on Ctrl-C must not end this process without a message.
    let interrupt = interrupts()?;
    let started = tenure.start_replay(&replay).await?;
    if !how.is_detached {
        return follow_from(cx, tenure, started, interrupt).await;
    }
    let id = started.id;
    if cx.output.is_json() {
        show(cx, tenure, &started).await?;
    } else {
        let of = counted(kind, number);
        cx.output
            .line(format_args!("started replay {id} of {of}"))?;
    }
    cx.output.note(format_args!(
        "workers carry it out; `tenure replay follow {id}` follows it"
    ));
    Ok(Exit::Done)
}

/// Follows a replay to its end, and takes steps itself.
pub(super) async fn follow(cx: &Context, tenure: &Tenure, id: u64) -> Result<Exit, Stop> {
    let interrupt = interrupts()?;
    match tenure.replay_operation(id).await? {
        Some(operation) => follow_from(cx, tenure, operation, interrupt).await,
        None => Err(no_such_replay(id).into()),
    }
}

fn interrupts() -> Result<Signal, Problem> {
    signal(SignalKind::interrupt())
        .map_err(|error| Problem::new(Exit::Failed, "cannot listen for Ctrl-C").cause(error))
}

async fn follow_from(
    cx: &Context,
    tenure: &Tenure,
    operation: ReplayOperation,
    mut interrupt: Signal,
) -> Result<Exit, Stop> {
    let total = operation.expected.map_or(Total::Unknown, Total::Events);
    let progress = begin(&cx.output, total, "replayed");
    let mut last = operation;
    let end = tokio::select! {
        biased;
        _ = interrupt.recv() => None,
        end = take_steps(tenure, &mut last, &progress) => Some(end),
    };
    progress.finish_and_clear();
    match end {
        None => Err(stopped(&last).into()),
        Some(end) => {
            end?;
            print_end(cx, tenure, &last).await
        }
    }
}

/// Takes steps, or waits for those of other processes, until the replay ends.
async fn take_steps(
    tenure: &Tenure,
    last: &mut ReplayOperation,
    progress: &ProgressBar,
) -> Result<(), Stop> {
    let step = StepReplay::new(STEP_ITEMS).only(last.id);
    loop {
        progress.set_position(last.replayed + last.refused);
        if !last.is_running() {
            return Ok(());
        }
        let stepped = tenure.step_replay(&step).await?;
        let now = match stepped.operation {
            Some(operation) => Some(operation),
            None => tenure.replay_operation(last.id).await?,
        };
        *last = now.ok_or_else(|| no_such_replay(last.id))?;
        if last.is_running() {
            let wait = stepped.next_in.unwrap_or(STEP_PAUSE);
            // The rate sets the time of the next step; other processes do not announce their steps.
            tokio::time::sleep(wait.clamp(STEP_PAUSE, POLL_INTERVAL)).await;
        }
    }
}

/// Reports that this process stopped following; the replay goes on.
fn stopped(operation: &ReplayOperation) -> Problem {
    let id = operation.id;
    let done = operation.replayed + operation.refused;
    let of = operation.expected.map(|all| format!(" of {all}"));
    let message = format!(
        "no longer following replay {id}, after {done}{}",
        of.unwrap_or_default()
    );
    Problem::new(Exit::Failed, message).hint(format!(
        "workers carry on with it: `tenure replay follow {id}` follows it, `tenure replay cancel \
         {id}` ends it"
    ))
}

async fn print_end(
    cx: &Context,
    tenure: &Tenure,
    operation: &ReplayOperation,
) -> Result<Exit, Stop> {
    if cx.output.is_json() {
        show(cx, tenure, operation).await?;
    } else {
        let number = usize::try_from(operation.replayed).unwrap_or(usize::MAX);
        let number = counted(operation.filter.kind, number);
        cx.output.line(format_args!("replayed {number}"))?;
    }
    if operation.refused > 0 {
        cx.output.note(format_args!(
            "{} had changed in the meantime and were skipped",
            operation.refused
        ));
    }
    if operation.state == ReplayState::Cancelled {
        let message = format!("replay {} was cancelled", operation.id);
        return Err(Problem::new(Exit::Failed, message)
            .hint("the rest is unchanged: select it again to replay it")
            .into());
    }
    Ok(if operation.refused > 0 {
        Exit::Refused
    } else {
        Exit::Done
    })
}

async fn show(cx: &Context, tenure: &Tenure, operation: &ReplayOperation) -> Result<(), Stop> {
    let names = EndpointNames::load(tenure).await?;
    cx.output.json(&ReplayView::new(operation, &names))
}

/// Lists bulk replays, newest first.
pub(super) async fn list(cx: &Context, tenure: &Tenure) -> Result<Exit, Stop> {
    let all = tenure.replays(LIST_MAX).await?;
    if all.is_empty() {
        cx.output.note("there are no bulk replays");
        return Ok(Exit::Nothing);
    }
    let names = EndpointNames::load(tenure).await?;
    if cx.output.is_json() {
        for operation in &all {
            cx.output.json(&ReplayView::new(operation, &names))?;
        }
        return Ok(Exit::Done);
    }
    let heading = [" ID", "STATE", " REPLAYED", " RATE", "BEGAN", "OF"];
    let rows = all.iter().map(|operation| row(cx, operation, &names));
    cx.output.table(&heading, rows.collect())?;
    Ok(Exit::Done)
}

fn row(cx: &Context, operation: &ReplayOperation, names: &EndpointNames) -> Vec<Cell> {
    let color = match operation.state {
        ReplayState::Running => Color::Cyan,
        ReplayState::Done => Color::Green,
        ReplayState::Cancelled => Color::Yellow,
    };
    let replayed = match operation.expected {
        Some(expected) => format!("{}/{expected}", operation.replayed),
        None => operation.replayed.to_string(),
    };
    let rate = operation.rate.map(|rate| rate.to_string());
    vec![
        Cell::new(operation.id),
        Cell::new(operation.state.as_str()).fg(color),
        Cell::new(replayed),
        Cell::new(rate.unwrap_or_default()),
        Cell::new(relative(operation.created_at, cx.output.now)),
        Cell::new(FilterView::new(&operation.filter, names).text()),
    ]
}

pub(super) async fn cancel(cx: &Context, tenure: &Tenure, id: u64) -> Result<Exit, Stop> {
    match tenure.cancel_replay(id).await? {
        Guarded::Accepted(operation) => {
            if cx.output.is_json() {
                show(cx, tenure, &operation).await?;
            } else {
                let number = operation.replayed;
                cx.output.line(format_args!(
                    "cancelled replay {id}; the {number} already replayed stay replayed"
                ))?;
            }
            Ok(Exit::Done)
        }
        Guarded::Refused(Refusal::NotFound) => Err(no_such_replay(id).into()),
        Guarded::Refused(_) => {
            let message = format!("replay {id} has ended already");
            let hint = "`tenure replay list` shows how";
            Err(Problem::new(Exit::Refused, message).hint(hint).into())
        }
    }
}

fn no_such_replay(id: u64) -> Problem {
    Problem::new(Exit::Nothing, format!("there is no replay {id}"))
        .hint("`tenure replay list` lists the newest")
}
