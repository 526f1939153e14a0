//! `tenure adopt`: makes a user's table a lease table, or undoes that.

mod map;
mod view;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use tenure::Tenure;
use tenure::lease::WhileHeld;
use tenure::store::SchemaFit;
use tenure::table::{AdoptedTable, Identifier, LeaseTable, Obstacle, Plan, TableLocation};

use self::view::{PlanView, UndoneView, list, plan_table};
use super::Context;
use crate::confirm::{Question, confirm};
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Adopt {
    #[command(subcommand)]
    command: Option<AdoptCommand>,

    /// The table
    #[arg(required = true)]
    table: Option<String>,

    /// Use the column names of this preset
    #[arg(
        long,
        conflicts_with_all = ["map", "undo"],
        value_parser = PossibleValuesParser::new(LeaseTable::preset_names())
    )]
    preset: Option<String>,

    /// Use the column names in this file
    #[arg(long, value_name = "FILE", conflicts_with = "undo")]
    map: Option<PathBuf>,

    /// Print the SQL and change nothing
    #[arg(long)]
    print: bool,

    /// Undo the adoption: drop the added columns and indexes, and nothing else
    #[arg(long)]
    undo: bool,

    /// Undo the adoption even while workers hold rows of the table
    #[arg(long, requires = "undo")]
    force: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdoptCommand {
    /// List the adopted tables; exits with 3 when there are none
    #[command(after_help = "\
Examples:
  tenure adopt list
  tenure adopt list --json | jq -r .table")]
    List,
}

pub(super) async fn run(cx: &Context, args: &Adopt) -> Result<Exit, Stop> {
    let Some(name) = &args.table else {
        let tenure = cx.database.open(IfMissing::Report).await?;
        return list(cx, &tenure.adopted_tables().await?);
    };
    let name = Identifier::new(name).map_err(|problem| {
        Problem::new(Exit::Usage, problem.to_string()).hint(
            "for a table in another schema, append ?options=-c%20search_path%3DSCHEMA,public to \
             the address; names in mixed case are not supported: rename the table",
        )
    })?;
    // Read the map first: its faults are reported without a database.
    let described = match (&args.preset, &args.map) {
        (Some(preset), _) => LeaseTable::preset(preset).map(|table| table.named(name.clone())),
        (None, Some(file)) => Some(map::read(&name, file)?),
        (None, None) => None,
    };
    if args.print {
        check_migrated(cx).await?;
    }
    let tenure = cx.database.open(IfMissing::Report).await?;
    let recorded = tenure.adopted_tables().await?;
    let recorded = recorded.into_iter().find(|known| known.table.name == name);
    if args.undo {
        let recorded = recorded.ok_or_else(|| not_adopted(&name))?;
        return undo(cx, args, &tenure, &recorded).await;
    }
    let table = described
        .or_else(|| recorded.map(|known| known.table))
        .ok_or_else(|| undescribed(&name))?;
    let plan = tenure.adoption(&table).await?.map_err(refused)?;
    adopt(cx, args, &tenure, &plan).await
}

/// Refuses an SQLite file that would be migrated when it is opened.
async fn check_migrated(cx: &Context) -> Result<(), Stop> {
    cx.database.check_present()?;
    let version = tenure::store::schema_version(cx.database.expose(), &cx.config.store).await?;
    if version.fit() != SchemaFit::Older {
        return Ok(());
    }
    let message = "the database lacks Tenure's tables, or they are out of date";
    Err(Problem::new(Exit::Usage, message)
        .hint("`tenure migrate` creates them, `tenure migrate --print` prints the SQL")
        .into())
}

async fn adopt(cx: &Context, args: &Adopt, tenure: &Tenure, plan: &Plan) -> Result<Exit, Stop> {
    let name = &plan.table.name;
    if plan.is_done {
        cx.output.either(&PlanView::new(plan, true), || {
            format!("{name} is adopted already: nothing to do")
        })?;
        return Ok(Exit::Done);
    }
    if args.print {
        cx.output.line(tenure.adoption_sql(plan)?.trim_end())?;
        return Ok(Exit::Done);
    }
    if !cx.output.is_json() {
        plan_table(cx, plan)?;
    }
    for remark in &plan.remarks {
        cx.output.note(remark);
    }
    let missing = plan.missing().count();
    if !args.yes {
        confirm(&Question {
            text: format!("add {missing} columns and their indexes to {name}?"),
            unasked: format!("{missing} columns would be added to {name}"),
            hint: "--print prints the SQL, --yes runs it",
            refused: "nothing was changed",
        })?;
    }
    tenure
        .adopt(plan, &|step| cx.output.note(format_args!("{step}")))
        .await?;
    cx.output.either(&PlanView::new(plan, true), || {
        format!("adopted {name}: added {missing} columns")
    })?;
    cx.output.hint(format_args!(
        "`tenure work --table {name} --exec CMD` works on it; `tenure adopt {name} --undo` undoes \
         this"
    ));
    Ok(Exit::Done)
}

async fn undo(
    cx: &Context,
    args: &Adopt,
    tenure: &Tenure,
    recorded: &AdoptedTable,
) -> Result<Exit, Stop> {
    let name = &recorded.table.name;
    if args.print {
        cx.output.line(tenure.undo_sql(recorded)?.trim_end())?;
        return Ok(Exit::Done);
    }
    for column in &recorded.left {
        cx.output.note(format_args!(
            "{column} has no mark of Tenure and is not dropped"
        ));
    }
    let columns = recorded.columns.len();
    if !args.yes {
        confirm(&Question {
            text: format!(
                "drop the {columns} columns that were added to {name}, with their contents?"
            ),
            unasked: format!("{columns} columns would be dropped from {name}"),
            hint: "--undo --print prints the SQL, --yes runs it",
            refused: "nothing was changed",
        })?;
    }
    let held = if args.force {
        WhileHeld::Force
    } else {
        WhileHeld::Refuse
    };
    match tenure.undo_adoption(recorded, held).await? {
        0 => {}
        held => {
            let message = format!("rows of {name} that workers hold: {held}");
            return Err(Problem::new(Exit::Refused, message)
                .hint(format!(
                    "stop the workers of this table: they release their rows; `tenure reap \
                     --table {name}` ends the leases of dead workers; --force does not wait"
                ))
                .into());
        }
    }
    cx.output
        .either(&UndoneView::new(recorded), || match recorded.location {
            TableLocation::Gone => format!("removed the record of {name}: the table is gone"),
            TableLocation::Here | TableLocation::Elsewhere => {
                format!("undid the adoption of {name}")
            }
        })?;
    if recorded.location == TableLocation::Gone {
        cx.output.hint(
            "a table that was renamed keeps the added columns and indexes; drop them yourself",
        );
    }
    Ok(Exit::Done)
}

/// Reports the obstacles to leasing a table.
fn refused(obstacles: Vec<Obstacle>) -> Stop {
    let problems = obstacles.into_iter();
    let problems =
        problems.map(|obstacle| Problem::new(Exit::Usage, obstacle.what).hint(obstacle.hint));
    Stop::Problems(problems.collect())
}

fn undescribed(name: &Identifier) -> Problem {
    let presets: Vec<&str> = LeaseTable::preset_names().collect();
    Problem::new(
        Exit::Usage,
        format!("the column names of {name} are not given"),
    )
    .hint(format!(
        "give --preset ({}), or --map FILE: docs/ADOPT.md shows one",
        presets.join(", ")
    ))
}

fn not_adopted(name: &Identifier) -> Problem {
    Problem::new(Exit::Nothing, format!("the table {name} was not adopted"))
        .hint("`tenure adopt list` lists the adopted tables")
}
