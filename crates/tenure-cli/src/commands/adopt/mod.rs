//! `tenure adopt`: makes a table of the user's own a lease table, or gives it back.

mod map;
mod shown;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use tenure::{
    AdoptedTable, Identifier, LeaseTable, Obstacle, Plan, Tenure, Whereabouts, WhileHeld,
};

use self::shown::{Given, Planned, list, plan_table};
use super::Context;
use crate::confirm::{Question, confirm};
use crate::database::Absent;
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

    /// Its columns have the names of this preset
    #[arg(
        long,
        conflicts_with_all = ["map", "undo"],
        value_parser = PossibleValuesParser::new(LeaseTable::preset_names())
    )]
    preset: Option<String>,

    /// Its columns have the names that this file says
    #[arg(long, value_name = "FILE", conflicts_with = "undo")]
    map: Option<PathBuf>,

    /// Print the SQL and change nothing
    #[arg(long)]
    print: bool,

    /// Give it back: take away what was added, and nothing else
    #[arg(long)]
    undo: bool,

    /// Give it back even while workers of Tenure hold rows of it
    #[arg(long, requires = "undo")]
    force: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdoptCommand {
    /// List the tables that were adopted; exits with 3 when there are none
    #[command(after_help = "\
Examples:
  tenure adopt list
  tenure adopt list --json | jq -r .table")]
    List,
}

pub(super) async fn run(cx: &Context, args: &Adopt) -> Result<Exit, Stop> {
    let Some(name) = &args.table else {
        let tenure = cx.database.open(Absent::Report).await?;
        return list(cx, &tenure.adopted_tables().await?);
    };
    let name = Identifier::new(name).map_err(|problem| {
        Problem::new(Exit::Usage, problem.to_string()).hint(
            "a table of another schema is reached by the address, with \
             ?options=-c%20search_path%3DSCHEMA,public behind it; names in mixed case are not \
             supported: rename the table",
        )
    })?;
    // The file first: what is wrong with it is told without a database.
    let described = match (&args.preset, &args.map) {
        (Some(preset), _) => LeaseTable::preset(preset).map(|table| table.named(name.clone())),
        (None, Some(file)) => Some(map::read(&name, file)?),
        (None, None) => None,
    };
    if args.print && !tenure::is_migrated(cx.database.expose())? {
        let message = "the database has no tables of Tenure's yet, or older ones";
        return Err(Problem::new(Exit::Usage, message)
            .hint("`tenure migrate` makes them, `tenure migrate --print` shows them")
            .into());
    }
    let tenure = cx.database.open(Absent::Report).await?;
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

async fn adopt(cx: &Context, args: &Adopt, tenure: &Tenure, plan: &Plan) -> Result<Exit, Stop> {
    let name = &plan.table.name;
    if plan.is_done {
        cx.output.either(&Planned::new(plan, true), || {
            format!("{name} is adopted, and nothing is left to do")
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
            text: format!("add {missing} columns and what goes with them to {name}?"),
            unasked: format!("{missing} columns would be added to {name}"),
            hint: "look at it with --print, then say --yes",
            refused: "nothing was changed",
        })?;
    }
    tenure
        .adopt(plan, &|step| cx.output.note(format_args!("{step}")))
        .await?;
    cx.output.either(&Planned::new(plan, true), || {
        format!("adopted {name}: {missing} columns were added")
    })?;
    cx.output.hint(format_args!(
        "`tenure work --table {name} --exec CMD` works on it; `tenure adopt {name} --undo` gives \
         it back"
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
            "{column} bears no mark of Tenure's: it is left as it is"
        ));
    }
    let columns = recorded.columns.len();
    if !args.yes {
        confirm(&Question {
            text: format!(
                "drop the {columns} columns that were added to {name}, and what is in them?"
            ),
            unasked: format!("{columns} columns would be dropped from {name}"),
            hint: "look at it with --undo --print, then say --yes",
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
            let message = format!("{held} rows of {name} are claimed by workers of Tenure");
            return Err(Problem::new(Exit::Refused, message)
                .hint(format!(
                    "stop the workers of this table: they give back what they hold; what a dead \
                     one left, `tenure reap --table {name}` ends; --force does not wait"
                ))
                .into());
        }
    }
    cx.output
        .either(&Given::new(recorded), || match recorded.whereabouts {
            Whereabouts::Gone => format!("forgot {name}: there is no such table any more"),
            Whereabouts::Here | Whereabouts::Elsewhere => format!("gave back {name}"),
        })?;
    if recorded.whereabouts == Whereabouts::Gone {
        cx.output.hint(
            "a table that was renamed keeps the columns and indexes that were added to it; drop \
             them by hand",
        );
    }
    Ok(Exit::Done)
}

/// The report of what keeps a table from being leased.
fn refused(obstacles: Vec<Obstacle>) -> Stop {
    let problems = obstacles.into_iter();
    let problems = problems.map(|found| Problem::new(Exit::Usage, found.what).hint(found.hint));
    Stop::Problems(problems.collect())
}

fn undescribed(name: &Identifier) -> Problem {
    let presets: Vec<&str> = LeaseTable::preset_names().collect();
    Problem::new(
        Exit::Usage,
        format!("nothing says what the columns of {name} are called"),
    )
    .hint(format!(
        "give --preset ({}), or --map FILE: docs/ADOPT.md shows one",
        presets.join(", ")
    ))
}

fn not_adopted(name: &Identifier) -> Problem {
    Problem::new(Exit::Nothing, format!("the table {name} was not adopted"))
        .hint("`tenure adopt list` lists those that were")
}
