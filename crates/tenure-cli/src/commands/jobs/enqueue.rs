//! `tenure jobs enqueue`: writes a job.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::job::{MatrixName, NewJob};
use tenure::{DELAY_MAX, Invalid};

use super::follow;
use crate::commands::Context;
use crate::commands::enqueue::read_payload;
use crate::database::Absent;
use crate::exit::Exit;
use crate::problem::Stop;
use crate::time;

#[derive(Debug, Args)]
pub(super) struct EnqueueJob {
    /// What is to be done, such as import.orders
    kind: String,

    /// The payload; `-` or nothing reads it from the input
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,

    /// How urgent it is: -32768 to 32767, high first
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        allow_hyphen_values = true
    )]
    priority: i16,

    /// Work on the chunks of this matrix, maybe beside other jobs
    #[arg(long, value_parser = MatrixName::new)]
    matrix: Option<MatrixName>,

    /// Hold it back for this long: 30s, 5m, 1h 30m
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        value_parser = delay,
        allow_hyphen_values = true
    )]
    delay: Duration,

    /// Watch its progress until it has ended; exits with 1 if it failed
    #[arg(long)]
    follow: bool,
}

/// The answer, in JSON.
#[derive(Serialize)]
struct Written {
    id: i64,
}

pub(super) async fn run(cx: &Context, args: EnqueueJob) -> Result<Exit, Stop> {
    // The job is read and checked before a database is opened, or made.
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
    let tenure = cx.database.open(Absent::Make).await?;
    let id = tenure.jobs().enqueue(job).await?;
    cx.output
        .either(&Written { id }, || format!("enqueued job {id}"))?;
    if args.follow {
        return follow::run(cx, &tenure.jobs(), id, None).await;
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
