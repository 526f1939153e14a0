//! `tenure why`: explains in one sentence why an event is not being worked on.

use clap::Args;
use serde::Serialize;
use tenure::ItemId;
use tenure::operate::Why as Answer;

use super::{Context, TableArg, no_such_item, rows};
use crate::args::item_id;
use crate::database::IfMissing;
use crate::event_view::IdView;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::Stop;

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The id of the event, or of the delivery: 17, d17
    #[arg(value_parser = item_id)]
    id: ItemId,

    #[command(flatten)]
    of: TableArg,
}

/// The answer in JSON.
#[derive(Serialize)]
pub(super) struct WhyView<'a> {
    pub(super) id: IdView,
    /// A stable code of the reason.
    pub(super) code: &'static str,
    pub(super) why: &'a str,
    pub(super) hint: Option<&'a str>,
}

pub(super) async fn run(cx: &Context, args: &Why) -> Result<Exit, Stop> {
    if let Some(table) = &args.of.table {
        return rows::why(cx, table, args.id).await;
    }
    let tenure = cx.database.open(IfMissing::Report).await?;
    let settings = cx.settings(&tenure).await?;
    let Some(Answer {
        sentence,
        mut hint,
        code,
    }) = tenure.why(args.id, &settings).await?
    else {
        return Err(no_such_item(args.id).into());
    };
    if code == "backoff" && hint.is_none() {
        hint = Some(format!(
            "if its cause is fixed, `tenure retry {}` tries it now",
            args.id
        ));
    }
    let object = WhyView {
        id: IdView(args.id),
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
