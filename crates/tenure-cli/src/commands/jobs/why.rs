//! `tenure jobs why`: explains in one sentence why a job is not running.

use serde::Serialize;
use tenure::job::JobId;
use tenure::operate::Why;

use super::no_such_job;
use crate::commands::Context;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::Stop;

/// The answer in JSON.
#[derive(Serialize)]
struct JobWhyView<'a> {
    id: i64,
    /// A stable code of the reason.
    code: &'static str,
    why: &'a str,
    hint: Option<&'a str>,
}

pub(super) async fn run(cx: &Context, id: i64) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let settings = cx.settings(&tenure).await?;
    let answer = tenure.jobs().why(JobId::new(id), &settings).await?;
    let Why {
        sentence,
        hint,
        code,
    } = answer.ok_or_else(|| no_such_job(id))?;
    let object = JobWhyView {
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
