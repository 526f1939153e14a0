//! `tenure keys skip`: continues a key without its head.

use serde::Serialize;
use tenure::lease::{Guarded, Record, Refusal};
use tenure::operate::{KeyRecord, KeyState};
use tenure::{ItemId, State};

use super::{SkipKeys, known};
use crate::commands::Context;
use crate::confirm::{Question, confirm};
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};

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

pub(super) async fn run(cx: &Context, args: &SkipKeys) -> Result<Exit, Stop> {
    let (tenure, shown) = known(cx, &args.key).await?;
    if !args.yes {
        // Skip nothing that the user was not shown, even if the key gets a head now.
        let Some(question) = question(&shown) else {
            return say(cx, &shown, Guarded::Refused(Refusal::NotFound));
        };
        confirm(&question)?;
    }
    // The user may take minutes to answer; skip only the head that was shown.
    let seen = shown.head.as_ref().map(|head| head.id);
    let answer = tenure.skip(&args.key, seen, &args.reason).await?;
    if answer.refusal() == Some(Refusal::Lost) {
        let message = format!("the key {:?} has another head by now", args.key);
        return Err(Problem::new(Exit::Refused, message)
            .hint("nothing was skipped: `tenure keys show KEY` shows its head")
            .into());
    }
    say(cx, &shown, answer)
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
