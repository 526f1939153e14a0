//! `tenure domains skip`: goes on without the head of a key.

use serde::Serialize;
use tenure::{DomainRecord, DomainState, Guarded, ItemId, Record, Refusal, State};

use super::{Skip, known};
use crate::commands::Context;
use crate::confirm::{Question, confirm};
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};

/// The answer, in JSON.
#[derive(Serialize)]
struct Skipped<'a> {
    key: &'a str,
    /// The event that was skipped; null: none.
    id: Option<i64>,
    kept: bool,
    /// Why not, as one word.
    refused: Option<&'static str>,
}

pub(super) async fn run(cx: &Context, args: &Skip) -> Result<Exit, Stop> {
    let (tenure, shown) = known(cx, &args.key).await?;
    if !args.yes {
        // What nobody was shown is not skipped, whatever becomes of the key this moment.
        let Some(question) = question(&shown) else {
            return say(cx, &shown, Guarded::Refused(Refusal::NotFound));
        };
        confirm(&question)?;
    }
    // Whoever is asked may take minutes to answer; by then it may be another event's turn.
    let seen = shown.head.as_ref().map(|head| head.id);
    let answer = tenure.skip(&args.key, seen, &args.reason).await?;
    if answer.refusal() == Some(Refusal::Lost) {
        let message = format!("the key {:?} has another head by now", args.key);
        return Err(Problem::new(Exit::Refused, message)
            .hint("nothing was skipped: `tenure domains show KEY` shows where it stands")
            .into());
    }
    say(cx, &shown, answer)
}

/// Tells what became of the head.
fn say(cx: &Context, shown: &DomainRecord, answer: Guarded<ItemId>) -> Result<Exit, Stop> {
    let id = match answer {
        Guarded::Kept(id) => Some(id),
        Guarded::Refused(_) => None,
    };
    let object = Skipped {
        key: &shown.key,
        id: id.map(ItemId::number),
        kept: answer.is_kept(),
        refused: answer.refusal().map(Refusal::as_str),
    };
    let key = plain(&shown.key);
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
    if shown.state == DomainState::Paused && shown.waiting > 0 {
        cx.output.hint(
            "it is paused: `tenure domains resume KEY` first, or `tenure bury ID` for the first of \
             `tenure events --state pending --key KEY`, which lists the newest first",
        );
    }
    Ok(Exit::Refused)
}

/// What is to be confirmed; `None`: there is nothing to skip.
fn question(domain: &DomainRecord) -> Option<Question> {
    let what = match &domain.head {
        Some(head) if head.state == State::Dead => {
            format!("leave the dead event {} behind", head.id)
        }
        Some(head) => format!("settle event {} dead{}", head.id, at_work(head)),
        // It has a head as soon as a claim, or the skip itself, has found the first one its place.
        None if domain.state == DomainState::Idle && domain.waiting > 0 => {
            "settle its first event dead".to_owned()
        }
        None => return None,
    };
    let key = plain(&domain.key);
    Some(Question {
        text: format!("{what} and go on with the key {key}?"),
        unasked: format!("this would {what} and go on with the key {key}"),
        hint: "--yes does it",
        refused: "nothing was skipped",
    })
}

/// Who is at work on it, and what that means; nothing when nobody is.
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
    fn a_key_without_a_head_is_asked_about_only_while_it_may_get_one() {
        let domain = |state, waiting| DomainRecord {
            key: "a\u{1b}b".to_owned(),
            state,
            since: None,
            head: None,
            waiting,
        };
        let asked = question(&domain(DomainState::Idle, 2)).map(|asked| asked.text);
        assert_eq!(
            asked.as_deref(),
            Some("settle its first event dead and go on with the key a\u{fffd}b?")
        );
        assert!(question(&domain(DomainState::Idle, 0)).is_none());
        assert!(question(&domain(DomainState::Paused, 2)).is_none());
    }
}
