//! `tenure events`: lists events or the rows of an adopted table, newest first.

use super::{Context, rows};
use crate::args::Events;
use crate::database::IfMissing;
use crate::event_view::{EventView, table};
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

pub(super) async fn run(cx: &Context, args: &Events) -> Result<Exit, Stop> {
    let mut filter = args.choice.filter(args.state.map(Into::into))?;
    filter.before = args.before;
    if let Some(table) = &args.of.table {
        if args.choice.is_of_events() {
            let message = "rows of a table can be filtered by --state and --since only";
            return Err(Problem::new(Exit::Usage, message)
                .hint("remove --topic, --queue and --key")
                .into());
        }
        return rows::list(cx, table, &filter, args.limit).await;
    }
    let tenure = cx.database.open(IfMissing::Report).await?;
    let page = tenure.list(&filter, args.limit).await?;
    if page.records.is_empty() {
        cx.output.note("no events match");
        return Ok(Exit::Nothing);
    }
    if cx.output.is_json() {
        for record in &page.records {
            cx.output.json(&EventView::new(record))?;
        }
        return Ok(Exit::Done);
    }
    let (heading, rows) = table(&page.records, cx.output.now);
    cx.output.table(&heading, rows)?;
    if let Some(next) = page.next {
        cx.output
            .note(format_args!("there are more: add --before {next}"));
    }
    Ok(Exit::Done)
}
