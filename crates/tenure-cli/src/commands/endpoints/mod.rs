//! `tenure endpoints`: adds, lists, shows, edits, tests, disables and removes the addresses that
//! receive webhooks.

mod rules;
mod secret;
mod state;
mod test_call;
mod view;

use std::time::Duration;

use clap::{Args, Subcommand};
use tenure::Tenure;
use tenure::lease::Guarded;
use tenure::webhook::{Endpoint, EndpointId};

use self::rules::Edit;
use self::secret::{Add, Rotate};
use super::Context;
use crate::args::reason;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

pub(super) use self::view::{status, waiting};

#[derive(Debug, Args)]
pub(crate) struct Endpoints {
    #[command(subcommand)]
    pub(crate) command: Option<EndpointCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EndpointCommand {
    /// Add an endpoint; its secret is printed once
    #[command(after_help = "\
The address is checked, and its name resolved, now and before every call: only https on public \
addresses is allowed, unless webhook.allow, webhook.allow_hosts or webhook.allow_http allow more. \
The secret is stored encrypted with the key in webhook.key_file, which is created if it does not \
exist.

Examples:
  tenure endpoints add https://example.com/hooks --topics 'order.*'
  tenure endpoints add https://example.com/hooks --id billing --ed25519
  tenure endpoints add https://example.com/hooks --timeout 5m --concurrency 2 --rate 10/s
  tenure endpoints add https://example.com/hooks --schedule 5s,1m,10m --no-retry 400,404
  TENURE_WEBHOOK_ALLOW_HTTP=true TENURE_WEBHOOK_ALLOW=127.0.0.0/8 TENURE_WEBHOOK_PORTS=9000 \\
    tenure endpoints add http://127.0.0.1:9000/")]
    Add(Box<Add>),
    /// List the endpoints; exits with 3 when there are none
    #[command(after_help = "\
Examples:
  tenure endpoints list
  tenure endpoints list --all --json | jq -r .id")]
    List {
        /// Include those that were removed
        #[arg(long)]
        all: bool,
    },
    /// Show an endpoint, except for its secrets
    #[command(after_help = "\
Examples:
  tenure endpoints show billing
  tenure endpoints show billing --json | jq .health")]
    Show {
        /// The id of the endpoint
        #[arg(value_parser = EndpointId::new)]
        id: EndpointId,
    },
    /// Change the settings of an endpoint; those not named stay as they are
    #[command(after_help = "\
Examples:
  tenure endpoints edit billing --url https://example.com/v2/hooks
  tenure endpoints edit billing --topics 'order.*,invoice.paid' --timeout 30s
  tenure endpoints edit billing --header 'x-api-key=…' --no-header x-old --rate none")]
    Edit(Box<Edit>),
    /// Give an endpoint a new secret; both secrets sign for a while
    #[command(after_help = "\
During the overlap every call carries a signature by each secret, so that the receiver can \
switch at any time.

Examples:
  tenure endpoints rotate billing
  tenure endpoints rotate billing --overlap 7d
  tenure endpoints rotate billing --overlap 0s")]
    Rotate(Rotate),
    /// Send to an endpoint again, and reset its health
    #[command(after_help = "\
Deliveries that are due are sent at once; one that failed keeps the time of its next attempt, \
unless --retry makes it due, as `tenure retry --endpoint` does. This also ends the wait of an \
endpoint that is backing off.

Examples:
  tenure endpoints enable billing
  tenure endpoints enable billing --retry")]
    Enable {
        /// The id of the endpoint
        #[arg(value_parser = EndpointId::new)]
        id: EndpointId,

        /// Make its deliveries that wait for their next attempt due now
        #[arg(long)]
        retry: bool,
    },
    /// Stop sending to an endpoint; queued deliveries wait, new events are not queued for it
    #[command(after_help = "\
Examples:
  tenure endpoints disable billing --reason 'they migrate until Friday'")]
    Disable {
        /// The id of the endpoint
        #[arg(value_parser = EndpointId::new)]
        id: EndpointId,

        /// The reason, for people
        #[arg(long, value_parser = reason)]
        reason: String,
    },
    /// Remove an endpoint; its queued deliveries are buried
    #[command(after_help = "\
This cannot be undone, and its id cannot be used again, because its deliveries are still listed. \
To stop sending for a while, use `tenure endpoints disable`.

Examples:
  tenure endpoints remove billing --yes")]
    Remove {
        /// The id of the endpoint
        #[arg(value_parser = EndpointId::new)]
        id: EndpointId,

        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Call an endpoint once with a test event and print the answer; exits with 1 unless it is 2xx
    #[command(after_help = "\
The call is signed and limited like any other; it is not queued, not retried, and does not affect \
the endpoint's health. The event has the topic tenure.test.

Examples:
  tenure endpoints test billing
  tenure endpoints test billing --json | jq .status")]
    Test {
        /// The id of the endpoint
        #[arg(value_parser = EndpointId::new)]
        id: EndpointId,
    },
}

pub(super) async fn run(cx: &Context, command: Option<EndpointCommand>) -> Result<Exit, Stop> {
    match command {
        None => view::list(cx, false).await,
        Some(EndpointCommand::List { all }) => view::list(cx, all).await,
        Some(EndpointCommand::Show { id }) => view::show(cx, &id).await,
        Some(EndpointCommand::Add(args)) => secret::add(cx, &args).await,
        Some(EndpointCommand::Edit(args)) => rules::edit(cx, &args).await,
        Some(EndpointCommand::Rotate(args)) => secret::rotate(cx, &args).await,
        Some(EndpointCommand::Enable { id, retry }) => state::enable(cx, &id, retry).await,
        Some(EndpointCommand::Disable { id, reason }) => state::disable(cx, &id, &reason).await,
        Some(EndpointCommand::Remove { id, yes }) => state::remove(cx, &id, yes).await,
        Some(EndpointCommand::Test { id }) => test_call::run(cx, &id).await,
    }
}

async fn find(tenure: &Tenure, id: &EndpointId) -> Result<Endpoint, Stop> {
    let endpoint = tenure.endpoint(id).await?;
    endpoint.ok_or_else(|| no_such_endpoint(id).into())
}

/// Reports that an endpoint does not exist.
pub(super) fn no_such_endpoint(id: &EndpointId) -> Problem {
    Problem::new(Exit::Nothing, format!("there is no endpoint {id}"))
        .hint("`tenure endpoints list --all` lists them")
}

/// Returns the changed endpoint, or the reason why it was not changed.
fn accepted(id: &EndpointId, answer: Guarded<Endpoint>) -> Result<Endpoint, Problem> {
    match answer {
        Guarded::Accepted(endpoint) => Ok(endpoint),
        Guarded::Refused(tenure::lease::Refusal::NotFound) => Err(no_such_endpoint(id)),
        Guarded::Refused(why) => {
            let message = format!("the endpoint {id} was not changed: {why}");
            Err(Problem::new(Exit::Refused, message)
                .hint("it was changed meanwhile; `tenure endpoints show` it and try again"))
        }
    }
}

const OVERLAP_MAX: Duration = Duration::from_hours(7 * 24);
