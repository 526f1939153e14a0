//! `tenure endpoints`: adds, lists, shows, edits, tries, disables and removes the addresses that
//! receive webhooks.

mod rules;
mod secret;
mod shown;
mod state;
mod trial;

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use tenure::webhook::{Endpoint, EndpointId};
use tenure::{Guarded, Tenure};

use self::rules::Edit;
use self::secret::{Add, Rotate};
use super::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

pub(super) use self::shown::{standing, waiting};

#[derive(Debug, Args)]
pub(crate) struct Endpoints {
    #[command(subcommand)]
    pub(crate) command: Option<EndpointCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EndpointCommand {
    /// Add an endpoint; its secret is shown once
    #[command(after_help = "\
The address is checked now, its name resolved, and again at every call: only https on public \
addresses, unless webhook.allow, webhook.allow_hosts or webhook.allow_http say otherwise. The \
secret is kept sealed by the key in webhook.key_file, which is made if it is not there.

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
        /// Also those that were removed
        #[arg(long)]
        all: bool,
    },
    /// Show all that is known of an endpoint, but for its secrets
    #[command(after_help = "\
Examples:
  tenure endpoints show billing
  tenure endpoints show billing --json | jq .health")]
    Show {
        /// Its id
        #[arg(value_parser = EndpointId::new)]
        id: EndpointId,
    },
    /// Change the rules of an endpoint; what is not named stays as it is
    #[command(after_help = "\
Examples:
  tenure endpoints edit billing --url https://example.com/v2/hooks
  tenure endpoints edit billing --topics 'order.*,invoice.paid' --timeout 30s
  tenure endpoints edit billing --header 'x-api-key=…' --no-header x-old --rate none")]
    Edit(Box<Edit>),
    /// Give an endpoint a new secret; the old one signs beside it for a while
    #[command(after_help = "\
Until the overlap is over every call has a signature of each, so that the receiver can change \
over when it likes.

Examples:
  tenure endpoints rotate billing
  tenure endpoints rotate billing --overlap 7d
  tenure endpoints rotate billing --overlap 0s")]
    Rotate(Rotate),
    /// Send to an endpoint again, and forget how it fared
    #[command(after_help = "\
What had queued up is sent now. Also ends the wait of one that is left alone because calls failed.

Examples:
  tenure endpoints enable billing")]
    Enable {
        /// Its id
        #[arg(value_parser = EndpointId::new)]
        id: EndpointId,
    },
    /// Send nothing to an endpoint; what is queued waits, new events are not owed to it
    #[command(after_help = "\
Examples:
  tenure endpoints disable billing --reason 'they migrate until Friday'")]
    Disable {
        /// Its id
        #[arg(value_parser = EndpointId::new)]
        id: EndpointId,

        /// Why, for people
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        reason: String,
    },
    /// Remove an endpoint; what is queued for it is buried
    #[command(after_help = "\
It cannot be taken back: its id stays taken, so that its deliveries can still be shown. To stop \
sending for a while there is `tenure endpoints disable`.

Examples:
  tenure endpoints remove billing --yes")]
    Remove {
        /// Its id
        #[arg(value_parser = EndpointId::new)]
        id: EndpointId,

        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Call an endpoint once with a test event, and show the answer; exits with 1 unless it is 2xx
    #[command(after_help = "\
The call is signed and limited like any other; it is not queued, not tried again, and does not \
count for the endpoint's health. The event has the topic tenure.test.

Examples:
  tenure endpoints test billing
  tenure endpoints test billing --json | jq .status")]
    Test {
        /// Its id
        #[arg(value_parser = EndpointId::new)]
        id: EndpointId,
    },
}

pub(super) async fn run(cx: &Context, command: Option<EndpointCommand>) -> Result<Exit, Stop> {
    match command {
        None => shown::list(cx, false).await,
        Some(EndpointCommand::List { all }) => shown::list(cx, all).await,
        Some(EndpointCommand::Show { id }) => shown::show(cx, &id).await,
        Some(EndpointCommand::Add(args)) => secret::add(cx, &args).await,
        Some(EndpointCommand::Edit(args)) => rules::edit(cx, &args).await,
        Some(EndpointCommand::Rotate(args)) => secret::rotate(cx, &args).await,
        Some(EndpointCommand::Enable { id }) => state::enable(cx, &id).await,
        Some(EndpointCommand::Disable { id, reason }) => state::disable(cx, &id, &reason).await,
        Some(EndpointCommand::Remove { id, yes }) => state::remove(cx, &id, yes).await,
        Some(EndpointCommand::Test { id }) => trial::run(cx, &id).await,
    }
}

/// The endpoint of this name.
async fn find(tenure: &Tenure, id: &EndpointId) -> Result<Endpoint, Stop> {
    let found = tenure.endpoint(id).await?;
    found.ok_or_else(|| no_such_endpoint(id).into())
}

/// The report that there is no such endpoint.
pub(super) fn no_such_endpoint(id: &EndpointId) -> Problem {
    Problem::new(Exit::Nothing, format!("there is no endpoint {id}"))
        .hint("`tenure endpoints list --all` lists them")
}

/// The endpoint as it was changed, or why it was not.
fn kept(id: &EndpointId, answer: Guarded<Endpoint>) -> Result<Endpoint, Problem> {
    match answer {
        Guarded::Kept(endpoint) => Ok(endpoint),
        Guarded::Refused(tenure::Refusal::NotFound) => Err(no_such_endpoint(id)),
        Guarded::Refused(why) => {
            let message = format!("the endpoint {id} was not changed: {why}");
            Err(Problem::new(Exit::Refused, message)
                .hint("somebody else changes it, too; look at it and say it again"))
        }
    }
}

/// The longest overlap of a rotation.
const OVERLAP_MAX: Duration = Duration::from_hours(7 * 24);
