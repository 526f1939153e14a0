//! `tenure domains skip`: goes on without the head of a key.

use serde::Serialize;
use tenure::{DomainRecord, DomainState, Guarded, ItemId, Refusal, State};

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
    if !args.yes
        && let Some(question) = question(&shown)
    {
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
    let id = match answer {
        Guarded::Kept(id) => Some(id),
        Guarded::Refused(_) => None,
    };
    let object = Skipped {
        key: &args.key,
        id: id.map(ItemId::number),
        kept: answer.is_kept(),
        refused: answer.refusal().map(Refusal::as_str),
    };
    let key = plain(&args.key);
    cx.output.either(&object, || match id {
        Some(id) => format!("skipped {id} of {key}"),
        None => format!("not skipped: {key} has no head"),
    })?;
    let Some(id) = id else {
        return Ok(Exit::Refused);
    };
    cx.output.hint(format_args!(
        "`tenure replay {id}` would put it back, at the tail of its key"
    ));
    Ok(Exit::Done)
}

/// What is to be confirmed; `None`: there is nothing to skip.
fn question(domain: &DomainRecord) -> Option<Question> {
    let what = match &domain.head {
        Some(head) if head.state == State::Dead => {
            format!("leave the dead event {} behind", head.id)
        }
        Some(head) => format!("settle event {} dead", head.id),
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
