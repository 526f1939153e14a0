//! Replays on record: begins one, follows it and helps it along, lists and cancels them.

use std::time::Duration;

use comfy_table::{Cell, Color};
use indicatif::ProgressBar;
use serde::Serialize;
use tenure::{
    Filter, Guarded, Kind, NewReplay, Refusal, ReplayOperation, ReplayState, StepReplay, Tenure,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Choosing, counted};
use crate::commands::Context;
use crate::commands::deliveries::Names;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};
use crate::progress::{Whole, begin};
use crate::record::{ShownId, text};
use crate::time::relative;

/// Items in a step, unless the rate says less.
const ITEMS: u32 = 1_000;
/// Between two steps, so that it never takes the database from others.
const BREATH: Duration = Duration::from_millis(20);
/// Others may take the steps: so often it is looked how far they came.
const LOOK: Duration = Duration::from_secs(1);
/// As many are listed.
const LISTED: u32 = 100;

/// A replay on record, in JSON. A field that has nothing to say is null.
#[derive(Serialize)]
struct Shown<'a> {
    id: u64,
    state: &'static str,
    replayed: u64,
    refused: u64,
    expected: Option<u64>,
    rate: Option<String>,
    created_at: String,
    ended_at: Option<String>,
    filter: ShownFilter<'a>,
}

/// What is chosen, in JSON.
#[derive(Serialize)]
struct ShownFilter<'a> {
    kind: &'static str,
    state: Option<&'static str>,
    topic: Option<&'a str>,
    queue: Option<&'a str>,
    key: Option<&'a str>,
    endpoint: Option<&'a str>,
    event: Option<ShownId>,
    since: Option<String>,
    until: Option<String>,
}

impl<'a> ShownFilter<'a> {
    fn new(filter: &'a Filter, names: &'a Names) -> Self {
        Self {
            kind: match filter.kind {
                Kind::Events => "events",
                Kind::Deliveries => "deliveries",
            },
            state: filter.state.map(tenure::State::as_str),
            topic: filter.topic.as_deref(),
            queue: filter.queue.as_ref().map(tenure::QueueName::as_str),
            key: filter.key.as_deref(),
            endpoint: filter.endpoint.map(|number| names.name(number)),
            event: filter.source.map(ShownId),
            since: text(filter.since),
            until: text(filter.until),
        }
    }

    /// As it would be typed.
    fn words(&self) -> String {
        let mut words = vec![format!("{} {}", self.state.unwrap_or("all"), self.kind)];
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
                words.push(format!("--{name} {}", plain(value)));
            }
        }
        words.join(" ")
    }
}

impl<'a> Shown<'a> {
    fn new(operation: &'a ReplayOperation, names: &'a Names) -> Self {
        Self {
            id: operation.id,
            state: operation.state.as_str(),
            replayed: operation.replayed,
            refused: operation.refused,
            expected: operation.expected,
            rate: operation.rate.map(|rate| rate.to_string()),
            created_at: operation.created_at.to_string(),
            ended_at: text(operation.ended_at),
            filter: ShownFilter::new(&operation.filter, names),
        }
    }
}

/// Begins a replay of so many, and follows it unless it is to be left alone.
pub(super) async fn start(
    cx: &Context,
    tenure: &Tenure,
    (filter, number): (Filter, usize),
    how: Choosing,
) -> Result<Exit, Stop> {
    let kind = filter.kind;
    let mut replay = NewReplay::new(filter)?;
    replay.rate = how.rate;
    replay.expected = u64::try_from(number).ok();
    // Before it begins: from here on Ctrl-C must not end this process without a word.
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
        "workers go on with it; `tenure replay follow {id}` does too"
    ));
    Ok(Exit::Done)
}

/// Follows a replay to its end, and takes steps of it.
pub(super) async fn follow(cx: &Context, tenure: &Tenure, id: u64) -> Result<Exit, Stop> {
    let interrupt = interrupts()?;
    match tenure.replay_operation(id).await? {
        Some(operation) => follow_from(cx, tenure, operation, interrupt).await,
        None => Err(no_such_replay(id).into()),
    }
}

/// Ctrl-C, listened for.
fn interrupts() -> Result<Signal, Problem> {
    signal(SignalKind::interrupt())
        .map_err(|error| Problem::new(Exit::Failed, "Ctrl-C cannot be listened for").cause(error))
}

async fn follow_from(
    cx: &Context,
    tenure: &Tenure,
    operation: ReplayOperation,
    mut interrupt: Signal,
) -> Result<Exit, Stop> {
    let whole = operation.expected.map_or(Whole::Unknown, Whole::Events);
    let progress = begin(&cx.output, whole, "replayed");
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
            ended(cx, tenure, &last).await
        }
    }
}

/// Takes steps, or looks at those of others, until it has ended.
async fn take_steps(
    tenure: &Tenure,
    last: &mut ReplayOperation,
    progress: &ProgressBar,
) -> Result<(), Stop> {
    let step = StepReplay::new(ITEMS).only(last.id);
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
            let wait = stepped.next_in.unwrap_or(BREATH);
            // The rate says when the next step is due; others step too, and give no notice.
            tokio::time::sleep(wait.clamp(BREATH, LOOK)).await;
        }
    }
}

/// Nobody looks on any more, which does not end it.
fn stopped(operation: &ReplayOperation) -> Problem {
    let id = operation.id;
    let done = operation.replayed + operation.refused;
    let of = operation.expected.map(|all| format!(" of {all}"));
    let message = format!(
        "no longer following replay {id}, after {done}{}",
        of.unwrap_or_default()
    );
    Problem::new(Exit::Failed, message).hint(format!(
        "it goes on wherever a worker runs: `tenure replay follow {id}` follows it, `tenure \
         replay cancel {id}` ends it"
    ))
}

async fn ended(cx: &Context, tenure: &Tenure, operation: &ReplayOperation) -> Result<Exit, Stop> {
    if cx.output.is_json() {
        show(cx, tenure, operation).await?;
    } else {
        let number = usize::try_from(operation.replayed).unwrap_or(usize::MAX);
        let number = counted(operation.filter.kind, number);
        cx.output.line(format_args!("replayed {number}"))?;
    }
    if operation.refused > 0 {
        cx.output.note(format_args!(
            "{} had changed in the meantime and were left alone",
            operation.refused
        ));
    }
    if operation.state == ReplayState::Cancelled {
        let message = format!("replay {} was cancelled", operation.id);
        return Err(Problem::new(Exit::Failed, message)
            .hint("the rest is as it was: choose it again to replay it")
            .into());
    }
    Ok(if operation.refused > 0 {
        Exit::Refused
    } else {
        Exit::Done
    })
}

async fn show(cx: &Context, tenure: &Tenure, operation: &ReplayOperation) -> Result<(), Stop> {
    let names = Names::load(tenure).await?;
    cx.output.json(&Shown::new(operation, &names))
}

/// Lists replays on record, the newest first.
pub(super) async fn list(cx: &Context, tenure: &Tenure) -> Result<Exit, Stop> {
    let all = tenure.replays(LISTED).await?;
    if all.is_empty() {
        cx.output.note("no replays are on record");
        return Ok(Exit::Nothing);
    }
    let names = Names::load(tenure).await?;
    if cx.output.is_json() {
        for operation in &all {
            cx.output.json(&Shown::new(operation, &names))?;
        }
        return Ok(Exit::Done);
    }
    let heading = [" ID", "STATE", " REPLAYED", " RATE", "BEGAN", "OF"];
    let rows = all.iter().map(|operation| row(cx, operation, &names));
    cx.output.table(&heading, rows.collect())?;
    Ok(Exit::Done)
}

fn row(cx: &Context, operation: &ReplayOperation, names: &Names) -> Vec<Cell> {
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
        Cell::new(ShownFilter::new(&operation.filter, names).words()),
    ]
}

/// Ends a replay.
pub(super) async fn cancel(cx: &Context, tenure: &Tenure, id: u64) -> Result<Exit, Stop> {
    match tenure.cancel_replay(id).await? {
        Guarded::Kept(operation) => {
            if cx.output.is_json() {
                show(cx, tenure, &operation).await?;
            } else {
                let number = operation.replayed;
                cx.output.line(format_args!(
                    "cancelled replay {id}; what it had replayed, {number}, stays so"
                ))?;
            }
            Ok(Exit::Done)
        }
        Guarded::Refused(Refusal::NotFound) => Err(no_such_replay(id).into()),
        Guarded::Refused(_) => {
            let message = format!("replay {id} has ended already");
            let hint = "`tenure replay list` says how";
            Err(Problem::new(Exit::Refused, message).hint(hint).into())
        }
    }
}

fn no_such_replay(id: u64) -> Problem {
    Problem::new(Exit::Nothing, format!("there is no replay {id}"))
        .hint("`tenure replay list` lists the newest")
}
