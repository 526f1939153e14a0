//! `tenure migrate`: brings the schema up to date, prints the SQL for it, or compares versions.

use clap::Args;
use serde::Serialize;
use tenure::store::SchemaVersion;

use super::Context;
use crate::exit::Exit;
use crate::problem::Stop;

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Print the SQL and change nothing
    #[arg(long)]
    print: bool,

    /// Compare the schema with this program and change nothing; exits with 1 if the program cannot
    /// use the schema
    #[arg(long, conflicts_with = "print")]
    status: bool,
}

/// The answer in JSON.
#[derive(Serialize)]
struct MigrationView {
    from: u32,
    to: u32,
    readable_from: u32,
    program: u32,
}

/// The versions in JSON.
#[derive(Serialize)]
struct StatusView {
    schema: u32,
    readable_from: u32,
    program: u32,
    usable: bool,
}

pub(super) async fn run(cx: &Context, args: &Migrate) -> Result<Exit, Stop> {
    cx.database.check_lasting()?;
    let url = cx.database.expose();
    if args.print {
        cx.output
            .line(tenure::store::migration_sql(url)?.trim_end())?;
        return Ok(Exit::Done);
    }
    if args.status {
        let version = tenure::store::schema_version(url, &cx.config.store).await?;
        return status(cx, version);
    }
    let moved = tenure::migrate(url, &cx.config.store).await?;
    let object = MigrationView {
        from: moved.from,
        to: moved.to.tables,
        readable_from: moved.to.readable_from,
        program: moved.to.program,
    };
    cx.output.either(&object, || {
        let (from, to) = (moved.from, moved.to);
        if moved.is_changed() {
            format!("migrated the schema from version {from} to {}", to.tables)
        } else {
            format!("the schema is at {to}: nothing to do")
        }
    })?;
    Ok(Exit::Done)
}

fn status(cx: &Context, version: SchemaVersion) -> Result<Exit, Stop> {
    let object = StatusView {
        schema: version.tables,
        readable_from: version.readable_from,
        program: version.program,
        usable: version.is_usable(),
    };
    cx.output
        .either(&object, || format!("the schema is at {version}"))?;
    Ok(if version.is_usable() {
        Exit::Done
    } else {
        Exit::Failed
    })
}
