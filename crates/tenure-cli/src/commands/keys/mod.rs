//! `tenure keys`: lists and shows ordering keys; skips, pauses and resumes one.

mod skip;
mod view;

use clap::{Args, Subcommand};
use tenure::operate::{KeyFilter, KeyRecord, KeyState, Pause, Why};
use tenure::{Settings, Tenure};

use self::view::{HEADING, KeyView, facts, row};
use super::Context;
use crate::args::{check_key, reason};
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};

#[derive(Debug, Args)]
pub(crate) struct Keys {
    #[command(subcommand)]
    command: Option<KeyCommand>,

    /// Only stuck keys, as with `list --stuck`
    #[arg(long)]
    stuck: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// List keys that have open events, are blocked or are paused, those with the same head for the
    /// longest time first; with --stuck, blocked keys first; exits with 3 when there are none
    #[command(after_help = "\
Examples:
  tenure keys list --stuck
  tenure keys list --limit 1000 --json | jq -r 'select(.blocked) | .key'")]
    List(ListKeys),
    /// Show the state of a key, and why its head is not done yet; exits with 3 when the key is
    /// unknown
    #[command(after_help = "\
Examples:
  tenure keys show customer-7
  tenure keys show customer-7 --json | jq .waiting")]
    Show(OneKey),
    /// Continue a key without its head, which is marked dead unless it is dead already
    #[command(after_help = "\
A holder that is working on the head stops at its next heartbeat, and its settle is refused; its \
call may still arrive. If the head was dead already, its last error records who skipped it, when \
and why. `tenure replay ID` puts it back, at the tail of its key. Exits with 4 when the key has no \
head.

--all-blocked continues every key that a dead head blocks, one after another, and leaves all \
other keys alone.

Examples:
  tenure keys skip customer-7 --reason 'the order was a test'
  tenure keys skip customer-7 --reason 'mended by hand' --yes --json
  tenure keys skip --all-blocked --reason 'the import was wrong' --dry-run")]
    Skip(SkipKeys),
    /// Pause a key: claims skip it
    #[command(after_help = "\
Held items are not interrupted, and new events are still written. A key without events can be \
paused, too.

Examples:
  tenure keys pause customer-7")]
    Pause(OneKey),
    /// Resume a paused key
    #[command(after_help = "\
Examples:
  tenure keys resume customer-7")]
    Resume(OneKey),
}

#[derive(Debug, Args)]
pub(crate) struct ListKeys {
    /// Only stuck keys: blocked, paused with waiting events, or with a head that failed, lapsed, or
    /// has not changed for over 10 minutes with events behind it
    #[arg(long)]
    stuck: bool,

    /// At most this many, 1 to 1000
    #[arg(
        long,
        default_value_t = LIMIT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(LIMIT_MAX))
    )]
    limit: u32,
}

/// Default and maximum of `--limit`.
const LIMIT: u32 = 50;
const LIMIT_MAX: u32 = 1000;

#[derive(Debug, Args)]
pub(crate) struct OneKey {
    /// The ordering key
    #[arg(allow_hyphen_values = true)]
    key: String,
}

#[derive(Debug, Args)]
pub(crate) struct SkipKeys {
    /// The ordering key
    #[arg(allow_hyphen_values = true, required_unless_present = "all_blocked")]
    key: Option<String>,

    /// Every key that a dead head blocks
    #[arg(long, conflicts_with = "key")]
    all_blocked: bool,

    /// With --all-blocked: count the keys and change nothing
    #[arg(long, requires = "all_blocked")]
    dry_run: bool,

    /// The reason, for people
    #[arg(long, value_parser = reason)]
    reason: String,

    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(cx: &Context, args: Keys) -> Result<Exit, Stop> {
    let Keys { command, stuck } = args;
    match command {
        None => list(cx, stuck, LIMIT).await,
        Some(KeyCommand::List(args)) => list(cx, stuck || args.stuck, args.limit).await,
        Some(_) if stuck => {
            let message = "--stuck applies only to `tenure keys list`";
            Err(Problem::new(Exit::Usage, message)
                .hint("`tenure keys --stuck` lists stuck keys")
                .into())
        }
        Some(KeyCommand::Show(OneKey { key })) => show(cx, &key).await,
        Some(KeyCommand::Skip(args)) => skip::run(cx, &args).await,
        Some(KeyCommand::Pause(OneKey { key })) => pause(cx, &key).await,
        Some(KeyCommand::Resume(OneKey { key })) => resume(cx, &key).await,
    }
}

/// Lists the criteria, because a key may be late for another reason.
const NONE_STUCK: &str = "no key is blocked, is paused with events that wait, or has a head that \
                          failed, lapsed or kept others waiting for over 10 minutes; `tenure \
                          keys` lists all keys by age";

async fn list(cx: &Context, is_stuck: bool, limit: u32) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let (filter, none) = if is_stuck {
        (KeyFilter::Stuck, NONE_STUCK)
    } else {
        (KeyFilter::Open, "no key has open events or is paused")
    };
    let keys = tenure.keys(filter, limit).await?;
    if keys.is_empty() {
        cx.output.note(none);
        return Ok(Exit::Nothing);
    }
    if cx.output.is_json() {
        for key in &keys {
            cx.output.json(&KeyView::new(key))?;
        }
        return Ok(Exit::Done);
    }
    let rows = keys.iter().map(|key| row(key, cx.output.now));
    cx.output.table(&HEADING, rows.collect())?;
    if keys.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
        if limit < LIMIT_MAX {
            cx.output.note(format_args!(
                "there may be more: raise --limit (now {limit})"
            ));
        } else {
            cx.output.note("there may be more");
        }
    }
    Ok(Exit::Done)
}

async fn show(cx: &Context, key: &str) -> Result<Exit, Stop> {
    let (tenure, key) = known(cx, key).await?;
    let settings = cx.settings(&tenure).await?;
    let why = why(&tenure, &key, &settings).await?;
    if cx.output.is_json() {
        cx.output.json(&KeyView::new(&key).why(why.as_ref()))?;
        return Ok(Exit::Done);
    }
    cx.output.table(&["KEY", ""], facts(&key, cx.output.now))?;
    if let Some(Why { sentence, hint, .. }) = &why {
        cx.output.line(format_args!("\n{}", plain(sentence)))?;
        if let Some(hint) = hint {
            cx.output.hint(hint);
        }
    }
    match key.state {
        // Resuming is not enough; the hint above names both steps.
        KeyState::Paused if key.is_blocked() => {}
        KeyState::Paused => cx
            .output
            .hint("`tenure keys resume KEY` lets claims take from it again"),
        KeyState::Idle if key.waiting > 0 => {
            cx.output
                .note("the next claim makes the first waiting event the head");
        }
        KeyState::Idle | KeyState::Due | KeyState::Delayed | KeyState::Held | KeyState::Blocked => {
        }
    }
    if key.waiting > 0 {
        cx.output
            .note("`tenure events --state pending --key KEY` lists those that wait");
    }
    Ok(Exit::Done)
}

/// Explains why the head of a key is not being worked on; `None` without a head.
async fn why(tenure: &Tenure, key: &KeyRecord, settings: &Settings) -> Result<Option<Why>, Stop> {
    match &key.head {
        Some(head) => Ok(tenure.why(head.id, settings).await?),
        None => Ok(None),
    }
}

async fn pause(cx: &Context, key: &str) -> Result<Exit, Stop> {
    check_key(key)?;
    let tenure = cx.database.open(IfMissing::Report).await?;
    let before = tenure.key(key).await?;
    tenure.pause_key(key, Pause::Begin).await?;
    say(cx, &tenure, key, "paused").await?;
    match before {
        Some(key) if key.state == KeyState::Paused => {
            cx.output.note("it was paused already");
        }
        Some(_) => {}
        None => cx
            .output
            .note("the key has no open events; the pause applies to future ones"),
    }
    Ok(Exit::Done)
}

async fn resume(cx: &Context, key: &str) -> Result<Exit, Stop> {
    let (tenure, before) = known(cx, key).await?;
    tenure.pause_key(key, Pause::End).await?;
    say(cx, &tenure, key, "resumed").await?;
    if before.state != KeyState::Paused {
        cx.output.note("it was not paused");
    }
    Ok(Exit::Done)
}

/// Prints the state of a key after a change.
async fn say(cx: &Context, tenure: &Tenure, key: &str, word: &str) -> Result<(), Stop> {
    // The store may forget a key without open events as soon as it is resumed.
    let record = tenure.key(key).await?.unwrap_or_else(|| KeyRecord {
        name: key.to_owned(),
        state: KeyState::Idle,
        since: None,
        head: None,
        waiting: 0,
    });
    cx.output
        .either(&KeyView::new(&record), || format!("{word} {}", plain(key)))
}

/// Opens the database and reads a key; fails if the key is unknown.
async fn known(cx: &Context, key: &str) -> Result<(Tenure, KeyRecord), Stop> {
    check_key(key)?;
    let tenure = cx.database.open(IfMissing::Report).await?;
    match tenure.key(key).await? {
        Some(key) => Ok((tenure, key)),
        None => Err(unknown(key).into()),
    }
}

fn unknown(key: &str) -> Problem {
    Problem::new(Exit::Nothing, format!("there is no key {key:?}")).hint(
        "a key is known while it has open events, is blocked or is paused: `tenure keys` lists \
         such keys, `tenure events --key KEY` finds events that are done or dead",
    )
}
