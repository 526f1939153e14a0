//! `tenure jobs why`: why a job is not running, in one sentence.

use serde::Serialize;
use tenure::Why;

use super::no_such_job;
use crate::commands::Context;
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::Stop;

/// The answer, in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    id: i64,
    /// Why, as one word.
    code: &'static str,
    why: &'a str,
    hint: Option<&'a str>,
}

pub(super) async fn run(cx: &Context, id: i64) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let settings = cx.settings(&tenure).await?;
    let answer = tenure.jobs().why(id, &settings).await?;
    let Why {
        sentence,
        hint,
        code,
    } = answer.ok_or_else(|| no_such_job(id))?;
    let object = Shown {
        id,
        code,
        why: &sentence,
        hint: hint.as_deref(),
    };
    cx.output.either(&object, || plain(&sentence))?;
    if let Some(hint) = &hint {
        cx.output.hint(hint);
    }
    Ok(Exit::Done)
}
