//! `tenure bury`: marks events dead, even if a worker holds them.

use clap::Args;
use tenure::ItemId;

use super::{Context, TableArg, answers, once_each, rows};
use crate::args::{item_id, reason};
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::problem::Stop;

#[derive(Debug, Args)]
pub(crate) struct Bury {
    /// The ids of events, or of deliveries: 17, d17
    #[arg(value_name = "ID", required = true, value_parser = item_id)]
    ids: Vec<ItemId>,

    /// The reason, for people
    #[arg(long, value_parser = reason)]
    reason: String,

    #[command(flatten)]
    of: TableArg,
}

pub(super) async fn run(cx: &Context, args: &Bury) -> Result<Exit, Stop> {
    if let Some(table) = &args.of.table {
        return rows::bury(cx, table, &args.ids, &args.reason).await;
    }
    let tenure = cx.database.open(IfMissing::Report).await?;
    let ids = once_each(&args.ids);
    let mut answered = Vec::with_capacity(ids.len());
    for id in ids {
        answered.push((id, tenure.bury(id, &args.reason).await?));
    }
    answers(cx, "buried", &answered)
}
