//! `tenure verify`: verifies the signature of a received webhook.

use std::io::Read as _;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::store::Timestamp;
use tenure::webhook::verify::{Verified, Verifier};

use super::Context;
use crate::config::Hidden;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};
use crate::time;

/// Maximum size of a body.
const BODY_BYTES_MAX: u64 = 2 * 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The body exactly as it was received; - reads it from the input
    body: String,

    /// A secret or public key to verify with: whsec_…, whpk_…; repeatable
    #[arg(long = "secret", value_name = "KEY", required = true)]
    secrets: Vec<Hidden>,

    /// A header as it was received, such as 'webhook-id: …'; repeatable
    #[arg(long = "header", value_name = "NAME: VALUE", required = true)]
    headers: Vec<String>,

    /// Maximum difference between the call's timestamp and now
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = time::duration)]
    tolerance: Duration,

    /// Check the age of the call at this time: 1h (ago), 2026-11-15T10:00:00Z [default: now]
    #[arg(long, value_name = "WHEN", value_parser = time::moment)]
    at: Option<Timestamp>,
}

/// The result in JSON.
#[derive(Serialize)]
struct VerificationView {
    verified: bool,
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
    let (view, text, exit) = match verifier.verify(pairs, &body, now) {
        Ok(call) => {
            let text = describe(&call);
            (verified(call), text, Exit::Done)
        }
        Err(error) => {
            let why = error.to_string();
            let text = format!("not verified: {why}");
            (refused(why), text, Exit::Failed)
        }
    };
    cx.output.either(&view, || plain(&text))?;
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
        Problem::new(Exit::Usage, "cannot read the body from the input").cause(cause)
    })?;
    if input.limit() == 0 {
        return Err(Problem::new(Exit::Usage, "the body is longer than 2 MiB"));
    }
    Ok(bytes)
}

fn verified(call: Verified) -> VerificationView {
    VerificationView {
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

fn refused(why: String) -> VerificationView {
    VerificationView {
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

fn describe(call: &Verified) -> String {
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
