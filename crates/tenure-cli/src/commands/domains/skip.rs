//! `tenure domains skip`: goes on without the head of a key.

use serde::Serialize;
use tenure::{DomainRecord, DomainState, Guarded, Refusal};

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
    if !args.yes && shown.head.is_some() {
        confirm(&question(&shown))?;
        // Whoever answers may take minutes; by then it may be another event's turn.
        let (_, now) = known(cx, &args.key).await?;
        if head(&now) != head(&shown) {
            let message = format!("the key {:?} has another head by now", args.key);
            return Err(Problem::new(Exit::Refused, message)
                .hint("nothing was skipped: `tenure domains show KEY` shows where it stands")
                .into());
        }
    }
    let answer = tenure.skip(&args.key, &args.reason).await?;
    let id = match answer {
        Guarded::Kept(id) => Some(id),
        Guarded::Refused(_) => None,
    };
    let object = Skipped {
        key: &args.key,
        id: id.map(tenure::ItemId::number),
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

fn head(domain: &DomainRecord) -> Option<i64> {
    domain.head.as_ref().map(|head| head.id.number())
}

fn question(domain: &DomainRecord) -> Question {
    let id = head(domain).unwrap_or_default();
    let what = match domain.state {
        DomainState::Blocked => format!("leave the dead event {id} behind"),
        DomainState::Idle
        | DomainState::Due
        | DomainState::Delayed
        | DomainState::Held
        | DomainState::Paused => format!("settle event {id} dead"),
    };
    let key = plain(&domain.key);
    Question {
        question: format!("{what} and go on with the key {key}?"),
        unasked: format!("this would {what} and go on with the key {key}"),
        hint: "--yes does it",
        refused: "nothing was skipped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_says_what_becomes_of_the_head() {
        let domain = |state| DomainRecord {
            key: "a\u{1b}b".to_owned(),
            state,
            since: None,
            head: None,
            waiting: 0,
        };
        let asked = question(&domain(DomainState::Held)).question;
        assert_eq!(
            asked,
            "settle event 0 dead and go on with the key a\u{fffd}b?"
        );
        let asked = question(&domain(DomainState::Blocked)).question;
        assert!(
            asked.starts_with("leave the dead event 0 behind"),
            "{asked}"
        );
    }
}
