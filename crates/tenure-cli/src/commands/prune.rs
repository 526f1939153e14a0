//! `tenure prune`: deletes published and dead events past their retention.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::Prune as Ask;

use super::Context;
use crate::database::Absent;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::progress::{Whole, begin};
use crate::time::{self, brief};

/// A retention below this is more likely a slip than a wish.
const SHORT: Duration = Duration::from_hours(1);

#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// Keep published events for this long [default: retention.published]
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    published: Option<Duration>,

    /// Keep dead events for this long [default: retention.dead]
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    dead: Option<Duration>,

    /// Delete even what is younger than an hour, if a retention says so
    #[arg(long)]
    yes: bool,
}

/// What was deleted, in JSON.
#[derive(Default, Serialize)]
struct Deleted {
    published: u64,
    dead: u64,
}

pub(super) async fn run(cx: &Context, args: &Prune) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let settings = cx.settings(&tenure).await?;
    let published = args.published.unwrap_or(settings.retention_published);
    let dead = args.dead.unwrap_or(settings.retention_dead);
    for (name, retention) in [("--published", published), ("--dead", dead)] {
        if retention < SHORT && !args.yes {
            let message = format!(
                "{name} is {}; expected at least {}",
                brief(retention),
                brief(SHORT)
            );
            return Err(Problem::new(Exit::Usage, message)
                .hint("what is deleted is gone: --yes says that it is meant")
                .into());
        }
    }
    let progress = begin(&cx.output, Whole::Unknown, "deleted");
    let ask = Ask::new(published, dead);
    let mut deleted = Deleted::default();
    loop {
        let round = tenure.prune(&ask).await?;
        deleted.published += round.done;
        deleted.dead += round.dead;
        progress.set_position(deleted.published + deleted.dead);
        if !round.more {
            break;
        }
    }
    progress.finish_and_clear();
    cx.output.either(&deleted, || match deleted {
        Deleted {
            published: 0,
            dead: 0,
        } => "nothing was past its retention".to_owned(),
        Deleted { published, dead } => format!("deleted {published} published and {dead} dead"),
    })?;
    Ok(Exit::Done)
}
