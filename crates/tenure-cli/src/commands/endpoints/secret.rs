//! `tenure endpoints add` and `rotate`: what makes secrets, and shows them once.

use std::io::Read as _;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::webhook::{
    Endpoint, EndpointId, EndpointSettings, NewEndpoint, Scheme, Secrets, SigningKey,
};

use super::rules::Rules;
use super::shown::{self, ShownEndpoint};
use super::{OVERLAP_MAX, find, kept};
use crate::commands::Context;
use crate::config::Hidden;
use crate::database::Absent;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::{time, webhook};

/// No secret is longer.
const SECRET_BYTES_MAX: u64 = 1024;

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Where to call
    url: String,

    /// Its id, of a-z, 0-9, - and _ [default: from the name of the host]
    #[arg(long, value_parser = EndpointId::new)]
    id: Option<EndpointId>,

    #[command(flatten)]
    rules: Rules,

    #[command(flatten)]
    signing: SigningArgs,
}

/// What calls are signed with.
#[derive(Debug, Args)]
pub(crate) struct SigningArgs {
    /// Sign with this secret, whsec_…, and make none; - reads it from the input
    #[arg(long, value_name = "SECRET", conflicts_with = "ed25519")]
    secret: Option<Hidden>,

    /// Sign with a key pair: the receiver gets the public half and cannot sign itself
    #[arg(long)]
    ed25519: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rotate {
    /// Its id
    #[arg(value_parser = EndpointId::new)]
    id: EndpointId,

    /// How long the old secret signs beside the new one, at most 7d
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = overlap)]
    overlap: Duration,

    #[command(flatten)]
    signing: SigningArgs,
}

fn overlap(text: &str) -> Result<Duration, tenure::Invalid> {
    let length = time::duration(text)?;
    if length > OVERLAP_MAX {
        let found = format!("{text:?}");
        return Err(tenure::Invalid::new("the overlap", found, "at most 7d"));
    }
    Ok(length)
}

impl SigningArgs {
    /// The key, and whether it was made here and is to be shown.
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
                Problem::new(Exit::Usage, "the secret cannot be read from the input").cause(cause)
            })?;
            &read
        } else {
            text
        };
        Ok((SigningKey::parse(text)?, false))
    }
}

/// An endpoint with a secret that is shown this once, in JSON.
#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    endpoint: ShownEndpoint<'a>,
    /// What the receiver verifies with, if it was made here.
    secret: Option<String>,
    /// The public half of a key pair.
    public_key: Option<String>,
}

pub(super) async fn add(cx: &Context, args: &Add) -> Result<Exit, Stop> {
    let mut settings = EndpointSettings::new(&args.url, args.rules.topics_or_any());
    args.rules.lay_over(&mut settings)?;
    let headers = args.rules.headers()?;
    let id = match &args.id {
        Some(id) => id.clone(),
        None => id_of(&args.url)?,
    };
    webhook::check_address(&cx.config.webhook, &args.url).await?;
    let (key, is_made) = args.signing.key()?;
    let secrets = Secrets {
        headers,
        ..Secrets::new(key.clone())
    };
    secrets.check()?;
    let tenure = cx.database.open(Absent::Make).await?;
    if tenure.endpoint(&id).await?.is_some() {
        return Err(taken(&id).into());
    }
    let keys = webhook::keys_or_made(&cx.config.webhook, &tenure, &cx.output).await?;
    let new = NewEndpoint {
        sealed: secrets.seal(&keys, &id)?,
        id,
        settings,
    };
    let Some(endpoint) = tenure.add_endpoint(&new).await? else {
        return Err(taken(&new.id).into());
    };
    told(cx, &endpoint, "added", &key, is_made)
}

fn taken(id: &EndpointId) -> Problem {
    let message = format!("there is an endpoint {id} already, or was one");
    Problem::new(Exit::Refused, message).hint(
        "give another --id; `tenure endpoints show ID` shows it, `tenure endpoints edit ID` \
         changes it",
    )
}

/// An id made of the name of the host.
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
        Problem::new(
            Exit::Usage,
            "the address has no host to name the endpoint after",
        )
        .hint("give an address such as https://example.com/hooks, or --id billing")
    })
}

pub(super) async fn rotate(cx: &Context, args: &Rotate) -> Result<Exit, Stop> {
    let (key, is_made) = args.signing.key()?;
    let tenure = cx.database.open(Absent::Report).await?;
    let seen = find(&tenure, &args.id).await?;
    let keys = webhook::keys(&cx.config.webhook)?;
    let mut secrets = webhook::open(&seen, &keys)?;
    let now = cx.output.now;
    secrets.rotate(key.clone(), now, now.after(args.overlap))?;
    let change = tenure::ChangeEndpoint {
        sealed: secrets.seal(&keys, &args.id)?,
        id: seen.id,
        version: seen.version,
        settings: seen.settings,
        state: seen.state,
        now: None,
    };
    let endpoint = kept(&args.id, tenure.change_endpoint(&change).await?)?;
    told(cx, &endpoint, "rotated", &key, is_made)?;
    if args.overlap.is_zero() {
        cx.output.note("the old secret signs no more");
    } else {
        cx.output.note(format_args!(
            "the old secret signs beside it for {}",
            time::brief(args.overlap)
        ));
    }
    Ok(Exit::Done)
}

/// Says what was done, and shows what the receiver verifies with.
fn told(
    cx: &Context,
    endpoint: &Endpoint,
    word: &str,
    key: &SigningKey,
    is_made: bool,
) -> Result<Exit, Stop> {
    let public_key = key.public();
    let secret = (is_made && public_key.is_none()).then(|| key.expose());
    if cx.output.is_json() {
        cx.output.json(&Made {
            endpoint: ShownEndpoint::new(endpoint, None),
            secret,
            public_key,
        })?;
        return Ok(Exit::Done);
    }
    shown::one(cx, endpoint, word)?;
    match (&secret, &public_key) {
        (Some(secret), _) => {
            cx.output.line(format_args!("secret  {secret}"))?;
            cx.output
                .note("it is shown this once: the receiver verifies with it");
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
