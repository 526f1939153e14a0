//! `tenure migrate`: brings the schema up to date, or prints the SQL for it.

use clap::Args;
use serde::Serialize;

use super::Context;
use crate::exit::Exit;
use crate::problem::Stop;

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Print the SQL and change nothing
    #[arg(long)]
    print: bool,
}

/// The answer in JSON.
#[derive(Serialize)]
struct MigrationView {
    from: u32,
    to: u32,
}

pub(super) async fn run(cx: &Context, args: &Migrate) -> Result<Exit, Stop> {
    cx.database.check_lasting()?;
    let url = cx.database.expose();
    if args.print {
        cx.output
            .line(tenure::store::migration_sql(url)?.trim_end())?;
        return Ok(Exit::Done);
    }
    let moved = tenure::migrate(url, &cx.config.store).await?;
    let object = MigrationView {
        from: moved.from,
        to: moved.to,
    };
    cx.output.either(&object, || {
        if moved.from == moved.to {
            format!("the schema is at version {}: nothing to do", moved.to)
        } else {
            format!(
                "migrated the schema from version {} to {}",
                moved.from, moved.to
            )
        }
    })?;
    Ok(Exit::Done)
}
