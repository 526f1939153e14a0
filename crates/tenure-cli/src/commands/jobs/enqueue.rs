//! `tenure jobs enqueue`: writes a job.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::Invalid;
use tenure::job::{MatrixName, NewJob};
use tenure::store::DELAY_MAX;

use super::follow;
use crate::commands::Context;
use crate::commands::enqueue::read_payload;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::problem::Stop;
use crate::time;

#[derive(Debug, Args)]
pub(super) struct EnqueueJob {
    /// The kind of job, such as import.orders
    kind: String,

    /// The payload; `-` or nothing reads it from the input
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,

    /// The priority of the job: -32768 to 32767, highest first
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        allow_hyphen_values = true
    )]
    priority: i16,

    /// Work on this matrix (set of chunks), which other jobs may share
    #[arg(long, value_parser = MatrixName::new)]
    matrix: Option<MatrixName>,

    /// Delay the job by this long: 30s, 5m, 1h 30m
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        value_parser = delay,
        allow_hyphen_values = true
    )]
    delay: Duration,

    /// Follow the progress until the job is settled; exits with 1 if it failed
    #[arg(long)]
    follow: bool,
}

/// The answer in JSON.
#[derive(Serialize)]
struct EnqueuedJobView {
    id: i64,
}

pub(super) async fn run(cx: &Context, args: EnqueueJob) -> Result<Exit, Stop> {
    // The job is read and checked before a database is opened or created.
    NewJob::new(&args.kind, "null")?;
    let payload = match args.payload.as_deref() {
        None | Some("-") => read_payload(cx)?,
        Some(json) => json.to_owned(),
    };
    let job = NewJob {
        priority: args.priority,
        matrix: args.matrix,
        delay: args.delay,
        ..NewJob::new(&args.kind, &payload)?
    };
    let tenure = cx.database.open(IfMissing::Make).await?;
    let id = tenure.jobs().enqueue(job).await?;
    cx.output.either(&EnqueuedJobView { id: id.number() }, || {
        format!("enqueued job {id}")
    })?;
    if args.follow {
        return follow::run(cx, &tenure.jobs(), id.number(), None).await;
    }
    Ok(Exit::Done)
}

fn delay(text: &str) -> Result<Duration, Invalid> {
    let delay = time::duration(text)?;
    if delay > DELAY_MAX {
        let expected = format!("at most {}", time::brief(DELAY_MAX));
        return Err(Invalid::new("the delay", format!("{text:?}"), expected));
    }
    Ok(delay)
}
