//! `tenure why`: why an event is not being worked on, in one sentence.

use clap::Args;
use serde::Serialize;
use tenure::{ItemId, Why as Answer};

use super::{Context, OfTable, no_such_item, rows};
use crate::args::item_id;
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::Stop;
use crate::record::ShownId;

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The id of the event, or of the delivery: 17, d17
    #[arg(value_parser = item_id)]
    id: ItemId,

    #[command(flatten)]
    of: OfTable,
}

/// The answer, in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    id: ShownId,
    /// Why, as one word.
    code: &'static str,
    why: &'a str,
    hint: Option<&'a str>,
}

pub(super) async fn run(cx: &Context, args: &Why) -> Result<Exit, Stop> {
    if let Some(table) = &args.of.table {
        return rows::why(cx, table, args.id).await;
    }
    let tenure = cx.database.open(Absent::Report).await?;
    let settings = cx.settings(&tenure).await?;
    let Some(Answer {
        sentence,
        hint,
        code,
    }) = tenure.why(args.id, &settings).await?
    else {
        return Err(no_such_item(args.id).into());
    };
    let object = Shown {
        id: ShownId(args.id),
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
