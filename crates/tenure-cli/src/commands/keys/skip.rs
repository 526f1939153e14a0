//! `tenure keys skip`: continues a key without its head.

use serde::Serialize;
use tenure::lease::{Guarded, Record, Refusal};
use tenure::operate::{KeyRecord, KeyState};
use tenure::{ItemId, State, Tenure};

use super::{SkipKeys, known};
use crate::commands::Context;
use crate::confirm::{Question, confirm};
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};
use crate::progress::{Total, begin};

/// The answer in JSON.
#[derive(Serialize)]
struct Skipped<'a> {
    key: &'a str,
    /// The skipped event; null if none was skipped.
    id: Option<i64>,
    accepted: bool,
    /// The code of the refusal.
    refused: Option<&'static str>,
}

/// The result of `--all-blocked`, in JSON.
#[derive(Serialize)]
struct AllSkipped {
    skipped: usize,
    /// Keys that another operator continued meanwhile.
    refused: usize,
}

/// The result of a dry run, in JSON.
#[derive(Serialize)]
struct WouldSkip {
    would_skip: usize,
}

pub(super) async fn run(cx: &Context, args: &SkipKeys) -> Result<Exit, Stop> {
    let Some(key) = &args.key else {
        return all_blocked(cx, args).await;
    };
    let (tenure, shown) = known(cx, key).await?;
    if !args.yes {
        // Skip nothing that the user was not shown, even if the key gets a head now.
        let Some(question) = question(&shown) else {
            return say(cx, &shown, Guarded::Refused(Refusal::NotFound));
        };
        confirm(&question)?;
    }
    // The user may take minutes to answer; skip only the head that was shown.
    let seen = shown.head.as_ref().map(|head| head.id);
    let answer = tenure.skip(key, seen, &args.reason).await?;
    if answer.refusal() == Some(Refusal::Lost) {
        let message = format!("the key {key:?} has another head by now");
        return Err(Problem::new(Exit::Refused, message)
            .hint("nothing was skipped: `tenure keys show KEY` shows its head")
            .into());
    }
    say(cx, &shown, answer)
}

/// Keys per page.
const PAGE: u32 = 1_000;

/// Skips the head of every blocked key; each skip is one transaction.
async fn all_blocked(cx: &Context, args: &SkipKeys) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let found = count_blocked(&tenure).await?;
    if found == 0 {
        cx.output.note("no key is blocked");
        return Ok(Exit::Nothing);
    }
    if args.dry_run {
        cx.output.either(&WouldSkip { would_skip: found }, || {
            format!("{} would go on without their dead heads", keys(found))
        })?;
        return Ok(Exit::Done);
    }
    if !args.yes {
        confirm(&Question {
            text: format!("leave the dead heads of {} behind?", keys(found)),
            unasked: format!("this would leave the dead heads of {} behind", keys(found)),
            hint: "--yes does it, --dry-run only counts the keys",
            refused: "nothing was skipped",
        })?;
    }
    let total = Total::Events(u64::try_from(found).unwrap_or(u64::MAX));
    let progress = begin(&cx.output, total, "skipped");
    let mut done = AllSkipped {
        skipped: 0,
        refused: 0,
    };
    let mut after: Option<String> = None;
    loop {
        let page = tenure.blocked_keys(after.as_deref(), PAGE).await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        for (key, head) in &page {
            // Only the dead head that was listed: another operator may have been faster.
            let answer = tenure.skip(key, Some(*head), &args.reason).await?;
            done.skipped += usize::from(answer.is_accepted());
            done.refused += usize::from(!answer.is_accepted());
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    cx.output.either(&done, || {
        format!("skipped the heads of {}", keys(done.skipped))
    })?;
    cx.output.hint(
        "`tenure events --state dead` lists the events that were left behind; `tenure replay ID` \
         would put one back, at the tail of its key",
    );
    Ok(Exit::Done)
}

async fn count_blocked(tenure: &Tenure) -> Result<usize, Stop> {
    let mut number = 0;
    let mut after: Option<String> = None;
    loop {
        let page = tenure.blocked_keys(after.as_deref(), PAGE).await?;
        let Some((last, _)) = page.last() else {
            return Ok(number);
        };
        number += page.len();
        after = Some(last.clone());
    }
}

/// `1 key`, `2 keys`.
fn keys(number: usize) -> String {
    match number {
        1 => "1 key".to_owned(),
        number => format!("{number} keys"),
    }
}

/// Prints the result.
fn say(cx: &Context, shown: &KeyRecord, answer: Guarded<ItemId>) -> Result<Exit, Stop> {
    let id = match answer {
        Guarded::Accepted(id) => Some(id),
        Guarded::Refused(_) => None,
    };
    let object = Skipped {
        key: &shown.name,
        id: id.map(ItemId::number),
        accepted: answer.is_accepted(),
        refused: answer.refusal().map(Refusal::as_str),
    };
    let key = plain(&shown.name);
    cx.output.either(&object, || match id {
        Some(id) => format!("skipped {id} of {key}"),
        None => format!("not skipped: {key} has no head"),
    })?;
    if let Some(id) = id {
        cx.output.hint(format_args!(
            "`tenure replay {id}` would put it back, at the tail of its key"
        ));
        return Ok(Exit::Done);
    }
    if shown.state == KeyState::Paused && shown.waiting > 0 {
        cx.output.hint(
            "it is paused: run `tenure keys resume KEY` first, or bury its oldest event: `tenure \
             events --state pending --key KEY` lists it last, `tenure bury ID` buries it",
        );
    }
    Ok(Exit::Refused)
}

/// The question to confirm; `None` if there is nothing to skip.
fn question(key: &KeyRecord) -> Option<Question> {
    let what = match &key.head {
        Some(head) if head.state == State::Dead => {
            format!("leave the dead event {} behind", head.id)
        }
        Some(head) => format!("settle event {} as dead{}", head.id, at_work(head)),
        // A claim, or the skip itself, makes the first event the head.
        None if key.state == KeyState::Idle && key.waiting > 0 => {
            "settle its first event as dead".to_owned()
        }
        None => return None,
    };
    let name = plain(&key.name);
    Some(Question {
        text: format!("{what} and go on with the key {name}?"),
        unasked: format!("this would {what} and go on with the key {name}"),
        hint: "--yes does it",
        refused: "nothing was skipped",
    })
}

/// The holder of the head, as a remark; empty without one.
fn at_work(head: &Record) -> String {
    head.hold.as_ref().map_or_else(String::new, |hold| {
        format!(
            " ({} is at work on it and stops at its next heartbeat; its call may still arrive)",
            plain(&hold.holder)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_a_head_can_be_skipped_only_if_an_event_can_become_its_head() {
        let key = |state, waiting| KeyRecord {
            name: "a\u{1b}b".to_owned(),
            state,
            since: None,
            head: None,
            waiting,
        };
        let asked = question(&key(KeyState::Idle, 2)).map(|asked| asked.text);
        assert_eq!(
            asked.as_deref(),
            Some("settle its first event as dead and go on with the key a\u{fffd}b?")
        );
        assert!(question(&key(KeyState::Idle, 0)).is_none());
        assert!(question(&key(KeyState::Paused, 2)).is_none());
    }
}
