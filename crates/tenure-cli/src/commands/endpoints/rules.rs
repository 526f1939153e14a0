//! Endpoint settings on the command line, and `tenure endpoints edit`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{ArgGroup, Args};
use tenure::Invalid;
use tenure::publish::TopicPattern;
use tenure::webhook::{EndpointId, EndpointSettings, OnGone, RateLimit, Schedule};

use super::{accepted, find, view};
use crate::commands::Context;
use crate::config::Hidden;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::{time, webhook};

/// Options for the settings of an endpoint.
#[derive(Debug, Default, Args)]
#[command(group = ArgGroup::new("gone").args(["keep_when_gone", "bury_when_gone"]))]
pub(crate) struct Rules {
    /// The topics that the endpoint subscribes to: order.paid, order.*, * [default: *]
    #[arg(long, value_name = "TOPIC,…", value_delimiter = ',', value_parser = TopicPattern::new)]
    topics: Vec<TopicPattern>,

    /// The purpose of the endpoint, for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// Send this header with every call; its value is stored encrypted; repeatable
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<Hidden>,

    /// Timeout of a call, including the answer, 1s to 15m [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    timeout: Option<Duration>,

    /// Maximum concurrent calls per process [default: 10]
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,

    /// Maximum calls per second and process, such as 10/s; none for no limit
    #[arg(long, value_name = "N/s", value_parser = Limit::parse)]
    rate: Option<Limit>,

    /// Delays between attempts: 5s,5m,1h; none for one attempt; default for ten in three days
    #[arg(long, value_name = "DURATION,…", value_parser = schedule)]
    schedule: Option<Schedule>,

    /// Statuses that make a delivery dead at once: 400,404; none for no such status
    #[arg(long, value_name = "STATUS,…", value_parser = Statuses::parse)]
    no_retry: Option<Statuses>,

    /// After a 410, keep the queued deliveries until the endpoint is enabled again
    #[arg(long)]
    keep_when_gone: bool,

    /// After a 410, bury the queued deliveries (the default)
    #[arg(long)]
    bury_when_gone: bool,

    /// Store this metadata; repeatable
    #[arg(long = "meta", value_name = "NAME=VALUE")]
    metadata: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(Option<RateLimit>);

impl Limit {
    fn parse(text: &str) -> Result<Self, Invalid> {
        if text == "none" {
            return Ok(Self(None));
        }
        let number = text.strip_suffix("/s").and_then(|n| n.trim().parse().ok());
        let Some(per_second) = number.filter(|number| *number > 0) else {
            let expected = match number {
                Some(_) => "above 0, such as 10/s, or none",
                None => "one such as 10/s, or none",
            };
            return Err(Invalid::new("the rate", format!("{text:?}"), expected));
        };
        // The burst is one second's worth of calls.
        let burst = per_second;
        Ok(Self(Some(RateLimit { per_second, burst })))
    }
}

/// Statuses without a retry.
#[derive(Clone, Debug)]
pub(crate) struct Statuses(Vec<u16>);

impl Statuses {
    fn parse(text: &str) -> Result<Self, Invalid> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let parts = text.split(',').map(|part| part.trim().parse().ok());
        let statuses: Option<Vec<u16>> = parts.collect();
        statuses.map(Self).ok_or_else(|| {
            let expected = "statuses such as 400,404, or none";
            Invalid::new("the list", format!("{text:?}"), expected)
        })
    }
}

fn schedule(text: &str) -> Result<Schedule, Invalid> {
    match text {
        "none" => Schedule::new(Vec::new()),
        "default" => Ok(Schedule::default()),
        _ => {
            let delays = text.split(',').map(|part| time::duration(part.trim()));
            Schedule::new(delays.collect::<Result<_, _>>()?)
        }
    }
}

/// Parses `name=value`; an error does not quote the text, which may be a secret.
fn pair(text: &str) -> Result<(String, String), Problem> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.to_owned()))
        }
        _ => {
            let message = format!(
                "the value has {} characters, but no name before a `=`; expected NAME=VALUE",
                text.chars().count()
            );
            Err(Problem::new(Exit::Usage, message))
        }
    }
}

impl Rules {
    /// The given topics, or all.
    pub(super) fn topics_or_any(&self) -> Vec<TopicPattern> {
        if self.topics.is_empty() {
            return vec![TopicPattern::any()];
        }
        self.topics.clone()
    }

    /// The given headers, with lower-case names.
    pub(super) fn headers(&self) -> Result<BTreeMap<String, String>, Problem> {
        let pairs = self.headers.iter().map(|Hidden(text)| pair(text));
        let lower = pairs.map(|pair| pair.map(|(name, value)| (name.to_lowercase(), value)));
        lower.collect()
    }

    /// Applies the given options to the settings, and checks them.
    pub(super) fn apply_to(&self, settings: &mut EndpointSettings) -> Result<(), Stop> {
        if !self.topics.is_empty() {
            settings.topics.clone_from(&self.topics);
        }
        if let Some(description) = &self.description {
            settings.description.clone_from(description);
        }
        if let Some(timeout) = self.timeout {
            settings.timeout = timeout;
        }
        if let Some(concurrency) = self.concurrency {
            settings.concurrency = concurrency;
        }
        if let Some(Limit(rate)) = self.rate {
            settings.rate = rate;
        }
        if let Some(schedule) = &self.schedule {
            settings.schedule.clone_from(schedule);
        }
        if let Some(Statuses(statuses)) = &self.no_retry {
            settings.no_retry.clone_from(statuses);
        }
        if self.keep_when_gone {
            settings.on_gone = OnGone::Keep;
        }
        if self.bury_when_gone {
            settings.on_gone = OnGone::Bury;
        }
        for text in &self.metadata {
            let (name, value) = pair(text)?;
            settings.metadata.insert(name, value);
        }
        check(settings)
    }
}

/// Refuses invalid settings with all their faults.
fn check(settings: &EndpointSettings) -> Result<(), Stop> {
    settings.check().map_err(|problems| {
        let problems = problems.iter();
        let problems = problems.map(|problem| Problem::new(Exit::Usage, problem.to_string()));
        Stop::Problems(problems.collect())
    })
}

#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// The id of the endpoint
    #[arg(value_parser = EndpointId::new)]
    id: EndpointId,

    /// Call this address from now on, also for queued deliveries
    #[arg(long)]
    url: Option<String>,

    #[command(flatten)]
    rules: Rules,

    /// Stop sending this header; repeatable
    #[arg(long = "no-header", value_name = "NAME")]
    no_headers: Vec<String>,

    /// Remove this metadata; repeatable
    #[arg(long = "no-meta", value_name = "NAME")]
    no_metadata: Vec<String>,
}

pub(super) async fn edit(cx: &Context, args: &Edit) -> Result<Exit, Stop> {
    let added = args.rules.headers()?;
    let tenure = cx.database.open(IfMissing::Report).await?;
    let current = find(&tenure, &args.id).await?;
    let mut settings = current.settings.clone();
    if let Some(url) = &args.url {
        webhook::check_address(&cx.config.webhook, url).await?;
        settings.url.clone_from(url);
    }
    args.rules.apply_to(&mut settings)?;
    for name in &args.no_metadata {
        settings.metadata.remove(name);
    }
    let mut sealed = current.sealed.clone();
    if !added.is_empty() || !args.no_headers.is_empty() {
        let keys = webhook::keys(&cx.config.webhook)?;
        let mut secrets = webhook::open(&current, &keys)?;
        secrets.headers.extend(added);
        for name in &args.no_headers {
            secrets.headers.remove(&name.to_lowercase());
        }
        sealed = secrets.seal(&keys, &args.id)?;
    }
    if settings == current.settings && sealed == current.sealed {
        cx.output.note("this changes nothing");
    }
    // Guarded by the version, so that a concurrent change is not lost.
    let change = tenure::webhook::ChangeEndpoint {
        id: current.id,
        version: current.version,
        settings,
        sealed,
        state: current.state,
        now: None,
    };
    let endpoint = accepted(&args.id, tenure.change_endpoint(&change).await?)?;
    view::print(cx, &endpoint, "changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_statuses_and_schedules_are_parsed_as_people_write_them() {
        let rate = Limit::parse("10/s").unwrap().0.unwrap();
        assert_eq!((rate.per_second, rate.burst), (10, 10));
        assert!(Limit::parse("none").unwrap().0.is_none());
        for bad in ["", "10", "0/s", "-1/s", "10/m", "1.5/s"] {
            assert!(Limit::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Statuses::parse("400, 404").unwrap().0, [400, 404]);
        assert!(Statuses::parse("none").unwrap().0.is_empty());
        assert!(Statuses::parse("4xx").is_err());
        assert_eq!(schedule("5s, 5m").unwrap().attempts(), 3);
        assert_eq!(schedule("none").unwrap().attempts(), 1);
        assert_eq!(schedule("default").unwrap(), Schedule::default());
        assert!(schedule("1ms").is_err());
    }

    #[test]
    fn a_value_that_may_be_a_secret_is_not_printed() {
        let problem = pair("canary").unwrap_err();
        assert!(!problem.message.contains("canary"), "{problem:?}");
        assert!(pair("=canary").is_err());
        assert_eq!(pair("a=b=c").unwrap(), ("a".to_owned(), "b=c".to_owned()));
    }
}
