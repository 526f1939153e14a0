//! `tenure endpoints add` and `rotate`, which create secrets and print them once.

use std::io::Read as _;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::webhook::{
    Endpoint, EndpointId, EndpointSettings, NewEndpoint, Scheme, Secrets, SigningKey,
};

use super::rules::Rules;
use super::view::{self, EndpointView};
use super::{OVERLAP_MAX, accepted, find};
use crate::commands::Context;
use crate::config::Hidden;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::{time, webhook};

/// Maximum size of a secret.
const SECRET_BYTES_MAX: u64 = 1024;

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The address to call
    url: String,

    /// The id of the endpoint, of a-z, 0-9, - and _ [default: from the host name]
    #[arg(long, value_parser = EndpointId::new)]
    id: Option<EndpointId>,

    #[command(flatten)]
    rules: Rules,

    #[command(flatten)]
    signing: SigningArgs,
}

/// Options for the signing key.
#[derive(Debug, Args)]
pub(crate) struct SigningArgs {
    /// Sign with this secret, whsec_…, in place of a new one; - reads it from the input
    #[arg(long, value_name = "SECRET", conflicts_with = "ed25519")]
    secret: Option<Hidden>,

    /// Sign with a key pair: the receiver gets the public half and cannot sign itself
    #[arg(long)]
    ed25519: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rotate {
    /// The id of the endpoint
    #[arg(value_parser = EndpointId::new)]
    id: EndpointId,

    /// Time during which both secrets sign, at most 7d
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = overlap)]
    overlap: Duration,

    #[command(flatten)]
    signing: SigningArgs,
}

fn overlap(text: &str) -> Result<Duration, tenure::Invalid> {
    let length = time::duration(text)?;
    if length > OVERLAP_MAX {
        let actual = format!("{text:?}");
        return Err(tenure::Invalid::new("the overlap", actual, "at most 7d"));
    }
    Ok(length)
}

impl SigningArgs {
    /// The key; `true` if it was generated here and must be printed.
    fn key(&self) -> Result<(SigningKey, bool), Stop> {
        let Some(Hidden(text)) = &self.secret else {
            let scheme = if self.ed25519 {
                Scheme::Ed25519
            } else {
                Scheme::Hmac
            };
            return Ok((SigningKey::generate(scheme), true));
        };
        let mut read = String::new();
        let text = if text == "-" {
            let mut input = std::io::stdin().take(SECRET_BYTES_MAX);
            input.read_to_string(&mut read).map_err(|cause| {
                Problem::new(Exit::Usage, "cannot read the secret from the input").cause(cause)
            })?;
            &read
        } else {
            text
        };
        Ok((SigningKey::parse(text)?, false))
    }
}

/// An endpoint with its new secret, in JSON.
#[derive(Serialize)]
struct NewSecretView<'a> {
    #[serde(flatten)]
    endpoint: EndpointView<'a>,
    /// The secret for the receiver; null unless it was generated here.
    secret: Option<String>,
    /// The public half of a key pair.
    public_key: Option<String>,
}

pub(super) async fn add(cx: &Context, args: &Add) -> Result<Exit, Stop> {
    let mut settings = EndpointSettings::new(&args.url, args.rules.topics_or_any());
    args.rules.apply_to(&mut settings)?;
    let headers = args.rules.headers()?;
    let id = match &args.id {
        Some(id) => id.clone(),
        None => id_of(&args.url)?,
    };
    webhook::check_address(&cx.config.webhook, &args.url).await?;
    let (key, is_new) = args.signing.key()?;
    let secrets = Secrets {
        headers,
        ..Secrets::new(key.clone())
    };
    secrets.check()?;
    let tenure = cx.database.open(IfMissing::Make).await?;
    if tenure.endpoint(&id).await?.is_some() {
        return Err(taken(&id).into());
    }
    let keys = webhook::load_or_create_keys(&cx.config.webhook, &tenure, &cx.output).await?;
    let new = NewEndpoint {
        sealed: secrets.seal(&keys, &id)?,
        id,
        settings,
    };
    let Some(endpoint) = tenure.add_endpoint(&new).await? else {
        return Err(taken(&new.id).into());
    };
    print(cx, &endpoint, "added", &key, is_new)
}

fn taken(id: &EndpointId) -> Problem {
    let message = format!("the id {id} is taken by an endpoint, maybe a removed one");
    Problem::new(Exit::Refused, message).hint(
        "give another --id; `tenure endpoints show ID` shows it, `tenure endpoints edit ID` \
         changes it",
    )
}

/// An id made of the host name and the port of the address.
fn id_of(url: &str) -> Result<EndpointId, Problem> {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (_, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let name: String = host
        .chars()
        .map(plain)
        .take(EndpointId::BYTES_MAX)
        .collect();
    EndpointId::new(name.trim_matches('-')).map_err(|_cause| {
        Problem::new(Exit::Usage, "the address has no host to make an id of")
            .hint("give an address such as https://example.com/hooks, or --id billing")
    })
}

pub(super) async fn rotate(cx: &Context, args: &Rotate) -> Result<Exit, Stop> {
    let (key, is_new) = args.signing.key()?;
    let tenure = cx.database.open(IfMissing::Report).await?;
    let current = find(&tenure, &args.id).await?;
    let keys = webhook::keys(&cx.config.webhook)?;
    let mut secrets = webhook::open(&current, &keys)?;
    let now = cx.output.now;
    secrets.rotate(key.clone(), now, now.after(args.overlap))?;
    let change = tenure::webhook::ChangeEndpoint {
        sealed: secrets.seal(&keys, &args.id)?,
        id: current.id,
        version: current.version,
        settings: current.settings,
        state: current.state,
        now: None,
    };
    let endpoint = accepted(&args.id, tenure.change_endpoint(&change).await?)?;
    print(cx, &endpoint, "rotated", &key, is_new)?;
    if args.overlap.is_zero() {
        cx.output.note("the old secret no longer signs");
    } else {
        cx.output.note(format_args!(
            "the old secret signs, too, for another {}",
            time::brief(args.overlap)
        ));
    }
    Ok(Exit::Done)
}

/// Prints the change, and the secret or public key that the receiver verifies with.
fn print(
    cx: &Context,
    endpoint: &Endpoint,
    done: &str,
    key: &SigningKey,
    is_new: bool,
) -> Result<Exit, Stop> {
    let public_key = key.public();
    let secret = (is_new && public_key.is_none()).then(|| key.expose());
    if cx.output.is_json() {
        cx.output.json(&NewSecretView {
            endpoint: EndpointView::new(endpoint, None),
            secret,
            public_key,
        })?;
        return Ok(Exit::Done);
    }
    view::print(cx, endpoint, done)?;
    match (&secret, &public_key) {
        (Some(secret), _) => {
            cx.output.line(format_args!("secret  {secret}"))?;
            cx.output
                .note("it is printed only once; the receiver verifies with it");
        }
        (None, Some(public)) => {
            cx.output.line(format_args!("public key  {public}"))?;
            cx.output.note("the receiver verifies with it");
        }
        (None, None) => {}
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_named_after_its_host() {
        for (url, name) in [
            ("https://Hooks.Example.com/x?y=z", "hooks-example-com"),
            ("https://user:canary@example.com:8443", "example-com-8443"),
            ("http://[::1]:9000/", "1--9000"),
        ] {
            assert_eq!(id_of(url).unwrap().as_str(), name);
        }
        for bad in ["https://", "", "https:///path"] {
            assert!(id_of(bad).is_err(), "{bad}");
        }
    }
}
