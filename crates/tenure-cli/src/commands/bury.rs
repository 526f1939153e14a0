//! `tenure bury`: marks events dead, even if a worker holds them.

use super::{Context, answers, once_each, rows};
use crate::args::Bury;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::problem::Stop;

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
