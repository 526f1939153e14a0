//! `tenure bury`: settles events dead, now, whoever holds them.

use super::{Context, answers};
use crate::args::Bury;
use crate::database::Absent;
use crate::exit::Exit;
use crate::problem::Stop;

pub(super) async fn run(cx: &Context, args: &Bury) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let mut said = Vec::with_capacity(args.ids.len());
    for id in &args.ids {
        said.push((*id, tenure.bury(*id, &args.reason).await?));
    }
    answers(cx, "buried", &said)
}
