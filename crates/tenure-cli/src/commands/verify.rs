//! `tenure verify`: whether a call that was received can be believed.

use std::io::Read as _;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::Timestamp;
use tenure::webhook::verify::{Verified, Verifier};

use super::Context;
use crate::config::Hidden;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};
use crate::time;

/// No body is read further.
const BODY_BYTES_MAX: u64 = 2 * 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The body exactly as it was received; - reads it from the input
    body: String,

    /// A secret or public key that may have signed it: whsec_…, whpk_…; may be given often
    #[arg(long = "secret", value_name = "KEY", required = true)]
    secrets: Vec<Hidden>,

    /// A header as it was received, such as 'webhook-id: …'; may be given often
    #[arg(long = "header", value_name = "NAME: VALUE", required = true)]
    headers: Vec<String>,

    /// How old the call may be, or how far ahead
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = time::duration)]
    tolerance: Duration,

    /// Judge its age as of then: 1h (ago), 2026-11-15T10:00:00Z [default: now]
    #[arg(long, value_name = "WHEN", value_parser = time::moment)]
    at: Option<Timestamp>,
}

/// What came of it, in JSON.
#[derive(Serialize)]
struct Shown {
    verified: bool,
    /// Why not.
    why: Option<String>,
    id: Option<String>,
    timestamp: Option<String>,
    attempt: Option<u32>,
    fence: Option<i64>,
    sequence: Option<i64>,
    topic: Option<String>,
}

pub(super) fn run(cx: &Context, args: &Verify) -> Result<Exit, Stop> {
    let headers = headers(&args.headers)?;
    let body = body(&args.body)?;
    let verifier = Verifier::new(&args.secrets)?
        .tolerance(args.tolerance)
        .accept_plain();
    let now = args.at.unwrap_or(cx.output.now);
    let pairs = headers.iter().map(|(name, value)| (name, value.as_bytes()));
    let (shown, words, exit) = match verifier.verify(pairs, &body, now) {
        Ok(call) => {
            let words = words(&call);
            (believed(call), words, Exit::Done)
        }
        Err(error) => {
            let why = error.to_string();
            let words = format!("not to be believed: {why}");
            (refused(why), words, Exit::Failed)
        }
    };
    cx.output.either(&shown, || plain(&words))?;
    Ok(exit)
}

fn headers(given: &[String]) -> Result<Vec<(String, String)>, Problem> {
    let read = given.iter().map(|text| {
        let Some((name, value)) = text.split_once(':') else {
            let message = format!("the header {text:?} has no colon; expected 'NAME: VALUE'");
            return Err(Problem::new(Exit::Usage, message));
        };
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    });
    read.collect()
}

fn body(given: &str) -> Result<Vec<u8>, Problem> {
    if given != "-" {
        return Ok(given.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    let mut input = std::io::stdin().take(BODY_BYTES_MAX);
    input.read_to_end(&mut bytes).map_err(|cause| {
        Problem::new(Exit::Usage, "the body cannot be read from the input").cause(cause)
    })?;
    if input.limit() == 0 {
        return Err(Problem::new(Exit::Usage, "the body is longer than 2 MiB"));
    }
    Ok(bytes)
}

fn believed(call: Verified) -> Shown {
    Shown {
        verified: true,
        why: None,
        timestamp: Some(call.timestamp.to_string()),
        attempt: call.attempt,
        fence: call.fence.map(tenure::Fence::number),
        sequence: call.sequence,
        topic: call.topic,
        id: Some(call.id),
    }
}

fn refused(why: String) -> Shown {
    Shown {
        verified: false,
        why: Some(why),
        id: None,
        timestamp: None,
        attempt: None,
        fence: None,
        sequence: None,
        topic: None,
    }
}

/// What a call that is believed says of itself.
pub(super) fn words(call: &Verified) -> String {
    let mut parts = vec![format!("verified: message {}", call.id)];
    parts.extend(call.attempt.map(|attempt| format!("attempt {attempt}")));
    parts.extend(call.fence.map(|fence| format!("fence {fence}")));
    parts.extend(call.sequence.map(|sequence| format!("sequence {sequence}")));
    parts.extend(
        call.topic
            .as_ref()
            .map(|topic| format!("topic {}", plain(topic))),
    );
    if call.fence.is_none() {
        parts.push("without attempt and fence: a plain Standard Webhooks call".to_owned());
    }
    parts.join(", ")
}
