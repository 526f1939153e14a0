//! `tenure bench` and `tenure demo`: the parts of this program that the crate `tenure-bench` needs.

use std::fmt::Display;
use std::io;

use comfy_table::Cell;
use indicatif::ProgressBar;
use serde_json::value::RawValue;
use tenure_bench::{Bench, Completion, Console, Demo, Host};

use super::Context;
use crate::assemble;
use crate::env;
use crate::exit::Exit;
use crate::output::Output;
use crate::problem::{Problem, Stop};
use crate::progress::{self, Total};

pub(super) async fn bench(cx: &Context, args: &Bench) -> Result<Exit, Stop> {
    cx.database.check_lasting()?;
    let figures = assemble::figures()?;
    let variables = variables();
    let host = Host {
        console: &cx.output,
        database: cx.database.expose(),
        metrics: &|| figures.render(),
        variables: &variables,
    };
    exit(args.run(&host).await)
}

pub(super) async fn demo(cx: &Context, args: &Demo) -> Result<Exit, Stop> {
    let variables = variables();
    let host = Host {
        console: &cx.output,
        database: cx.database.expose(),
        metrics: &String::new,
        variables: &variables,
    };
    exit(args.run(&host).await)
}

fn variables() -> Vec<String> {
    env::given().into_iter().map(|(name, _)| name).collect()
}

fn exit(answer: Result<Completion, tenure_bench::Stop>) -> Result<Exit, Stop> {
    match answer? {
        Completion::Passed => Ok(Exit::Done),
        Completion::Failed => Ok(Exit::Failed),
    }
}

impl From<tenure_bench::Stop> for Stop {
    fn from(stop: tenure_bench::Stop) -> Self {
        match stop {
            tenure_bench::Stop::Io(error) => error.into(),
            tenure_bench::Stop::Store(error) => error.into(),
            tenure_bench::Stop::Invalid(problem) => problem.into(),
            tenure_bench::Stop::Failed(failure) => Self::Problem(Problem {
                message: failure.message,
                causes: failure.causes,
                hint: failure.hint,
                exit: Exit::Failed,
            }),
            other => Problem::new(Exit::Failed, format!("{other:?}")).into(),
        }
    }
}

impl Console for Output {
    fn is_json(&self) -> bool {
        self.is_json()
    }

    fn line(&self, text: &dyn Display) -> io::Result<()> {
        written(self.line(text))
    }

    fn json(&self, object: &RawValue) -> io::Result<()> {
        written(self.json(&object))
    }

    fn table(&self, heading: &[&str], rows: Vec<Vec<Cell>>) -> io::Result<()> {
        written(self.table(heading, rows))
    }

    fn note(&self, text: &dyn Display) {
        self.note(text);
    }

    fn hint(&self, text: &dyn Display) {
        self.hint(text);
    }

    fn progress(&self, steps: u64) -> ProgressBar {
        progress::begin(self, Total::Steps(steps), "")
    }
}

/// Converts an error of the output back to an I/O error.
fn written(done: Result<(), Stop>) -> io::Result<()> {
    done.map_err(|stop| match stop {
        Stop::Closed => io::ErrorKind::BrokenPipe.into(),
        Stop::Problem(problem) => io::Error::other(problem.causes.join(": ")),
        Stop::Problems(_) => io::Error::other("the output cannot be written"),
    })
}
