//! `tenure domains`: ordering keys, where they stand, and the operator's verbs on them.

mod record;
mod skip;

use clap::{Args, Subcommand};
use tenure::{DomainFilter, DomainRecord, DomainState, Pause, Settings, Tenure, Why};

use self::record::{HEADING, Shown, facts, row};
use super::Context;
use crate::args::{check_key, reason};
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};

#[derive(Debug, Args)]
pub(crate) struct Domains {
    #[command(subcommand)]
    command: Option<DomainCommand>,

    /// Only those that stand still, as `list --stuck`
    #[arg(long)]
    stuck: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DomainCommand {
    /// List the keys that have open events or are paused, the longest at one event first; exits
    /// with 3 when there are none. With --stuck, those that are blocked come before all others
    #[command(after_help = "\
Examples:
  tenure domains list --stuck
  tenure domains list --limit 1000 --json | jq -r 'select(.blocked) | .key'")]
    List(List),
    /// Show where a key stands, and why its head is not done; exits with 3 when nothing is known of
    /// it
    #[command(after_help = "\
Examples:
  tenure domains show customer-7
  tenure domains show customer-7 --json | jq .waiting")]
    Show(Key),
    /// Go on without the head of a key: it is settled dead, unless it is dead already
    #[command(after_help = "\
A holder that is at work on it stops at its next heartbeat and is refused when it settles; its \
call may still arrive. Of one that is dead already the last error says who left it behind, when \
and why. `tenure replay ID` puts it back, at the tail of its key. Exits with 4 when the key has no \
head.

Examples:
  tenure domains skip customer-7 --reason 'the order was a test'
  tenure domains skip customer-7 --reason 'mended by hand' --yes --json")]
    Skip(Skip),
    /// Let claims pass a key by
    #[command(after_help = "\
What is in hand is not called back, and new events are still written. It is remembered also for a \
key that has no events yet.

Examples:
  tenure domains pause customer-7")]
    Pause(Key),
    /// Let claims take from a key again
    #[command(after_help = "\
Examples:
  tenure domains resume customer-7")]
    Resume(Key),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only those that stand still: blocked, paused with events that wait, or with a head that
    /// failed, lapsed, or has been it for over 10 minutes with others behind it
    #[arg(long)]
    stuck: bool,

    /// At most this many, 1 to 1000
    #[arg(
        long,
        default_value_t = LIMIT,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    limit: u32,
}

/// As many keys are listed unless something else is asked for.
const LIMIT: u32 = 50;

#[derive(Debug, Args)]
pub(crate) struct Key {
    /// The ordering key
    #[arg(allow_hyphen_values = true)]
    key: String,
}

#[derive(Debug, Args)]
pub(crate) struct Skip {
    /// The ordering key
    #[arg(allow_hyphen_values = true)]
    key: String,

    /// Why, for people
    #[arg(long, value_parser = reason)]
    reason: String,

    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(cx: &Context, args: Domains) -> Result<Exit, Stop> {
    let Domains { command, stuck } = args;
    match command {
        None => list(cx, stuck, LIMIT).await,
        Some(DomainCommand::List(args)) => list(cx, stuck || args.stuck, args.limit).await,
        Some(_) if stuck => {
            let message = "--stuck is for the list, and this is another command";
            Err(Problem::new(Exit::Usage, message)
                .hint("`tenure domains --stuck` lists what stands still")
                .into())
        }
        Some(DomainCommand::Show(Key { key })) => show(cx, &key).await,
        Some(DomainCommand::Skip(args)) => skip::run(cx, &args).await,
        Some(DomainCommand::Pause(Key { key })) => pause(cx, &key).await,
        Some(DomainCommand::Resume(Key { key })) => resume(cx, &key).await,
    }
}

/// Says what was looked for: a key may be late for another reason.
const NONE_STUCK: &str = "no key is blocked, is paused with events that wait, or has a head that \
                          failed, lapsed or kept others waiting for over 10 minutes; `tenure \
                          domains` lists all keys by age";

async fn list(cx: &Context, is_stuck: bool, limit: u32) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let (filter, none) = if is_stuck {
        (DomainFilter::Stuck, NONE_STUCK)
    } else {
        (DomainFilter::Open, "no key has open events or is paused")
    };
    let domains = tenure.domains(filter, limit).await?;
    if domains.is_empty() {
        cx.output.note(none);
        return Ok(Exit::Nothing);
    }
    if cx.output.is_json() {
        for domain in &domains {
            cx.output.json(&Shown::new(domain))?;
        }
        return Ok(Exit::Done);
    }
    let rows = domains.iter().map(|domain| row(domain, cx.output.now));
    cx.output.table(&HEADING, rows.collect())?;
    if domains.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
        cx.output
            .note(format_args!("there may be more: --limit, now {limit}"));
    }
    Ok(Exit::Done)
}

async fn show(cx: &Context, key: &str) -> Result<Exit, Stop> {
    let (tenure, domain) = known(cx, key).await?;
    let settings = cx.settings(&tenure).await?;
    let why = why(&tenure, &domain, &settings).await?;
    if cx.output.is_json() {
        cx.output.json(&Shown::new(&domain).why(why.as_ref()))?;
        return Ok(Exit::Done);
    }
    cx.output
        .table(&["KEY", ""], facts(&domain, cx.output.now))?;
    if let Some(Why { sentence, hint, .. }) = &why {
        cx.output.line(format_args!("\n{}", plain(sentence)))?;
        if let Some(hint) = hint {
            cx.output.hint(hint);
        }
    }
    match domain.state {
        // Resuming is not enough then, and the reason has said what is.
        DomainState::Paused if domain.is_blocked() => {}
        DomainState::Paused => cx
            .output
            .hint("`tenure domains resume KEY` lets claims take from it again"),
        DomainState::Idle if domain.waiting > 0 => {
            cx.output
                .note("the next claim makes the first one its head");
        }
        DomainState::Idle
        | DomainState::Due
        | DomainState::Delayed
        | DomainState::Held
        | DomainState::Blocked => {}
    }
    if domain.waiting > 0 {
        cx.output
            .note("`tenure events --state pending --key KEY` lists those that wait");
    }
    Ok(Exit::Done)
}

/// Why the head of a domain is not done.
async fn why(
    tenure: &Tenure,
    domain: &DomainRecord,
    settings: &Settings,
) -> Result<Option<Why>, Stop> {
    match &domain.head {
        Some(head) => Ok(tenure.why(head.id, settings).await?),
        None => Ok(None),
    }
}

async fn pause(cx: &Context, key: &str) -> Result<Exit, Stop> {
    check_key(key)?;
    let tenure = cx.database.open(Absent::Report).await?;
    let before = tenure.domain(key).await?;
    tenure.pause_domain(key, Pause::Begin).await?;
    say(cx, &tenure, key, "paused").await?;
    match before {
        Some(domain) if domain.state == DomainState::Paused => {
            cx.output.note("it was paused already");
        }
        Some(_) => {}
        None => cx
            .output
            .note("nothing was known of this key: it is remembered for events to come"),
    }
    Ok(Exit::Done)
}

async fn resume(cx: &Context, key: &str) -> Result<Exit, Stop> {
    let (tenure, before) = known(cx, key).await?;
    tenure.pause_domain(key, Pause::End).await?;
    say(cx, &tenure, key, "resumed").await?;
    if before.state != DomainState::Paused {
        cx.output.note("it was not paused");
    }
    Ok(Exit::Done)
}

/// Says where a key stands now.
async fn say(cx: &Context, tenure: &Tenure, key: &str, word: &str) -> Result<(), Stop> {
    // One without open events may be forgotten as soon as it is no longer paused.
    let domain = tenure.domain(key).await?.unwrap_or_else(|| DomainRecord {
        key: key.to_owned(),
        state: DomainState::Idle,
        since: None,
        head: None,
        waiting: 0,
    });
    cx.output
        .either(&Shown::new(&domain), || format!("{word} {}", plain(key)))
}

/// The database, and a key that it knows.
async fn known(cx: &Context, key: &str) -> Result<(Tenure, DomainRecord), Stop> {
    check_key(key)?;
    let tenure = cx.database.open(Absent::Report).await?;
    match tenure.domain(key).await? {
        Some(domain) => Ok((tenure, domain)),
        None => Err(unknown(key).into()),
    }
}

fn unknown(key: &str) -> Problem {
    Problem::new(
        Exit::Nothing,
        format!("nothing is known of the key {key:?}"),
    )
    .hint(
        "a key is known while events of it are open or it is paused: `tenure domains` lists them, \
         `tenure events --key KEY` finds what is done or dead",
    )
}
