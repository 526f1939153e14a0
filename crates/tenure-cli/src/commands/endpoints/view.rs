//! Views of endpoints: the JSON for scripts, the row of a table, all facts.

use std::collections::BTreeMap;

use comfy_table::{Cell, Color};
use serde::Serialize;
use serde_json::value::RawValue;
use tenure::operate::{Counts, QueueCounts};
use tenure::settings::duration_text;
use tenure::store::Timestamp;
use tenure::webhook::{Disabled, Endpoint, EndpointId, EndpointState, Schedule, Secrets};

use super::find;
use crate::commands::Context;
use crate::database::IfMissing;
use crate::event_view::{fact, moment, text};
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::Stop;
use crate::time::{brief, relative};

/// An endpoint in JSON, without secrets.
#[derive(Serialize)]
pub(super) struct EndpointView<'a> {
    id: &'a str,
    number: u32,
    state: &'static str,
    /// A code for the reason why the endpoint is disabled.
    why: Option<&'static str>,
    /// The operator's reason.
    reason: Option<&'a str>,
    since: Option<String>,
    /// The settings, as stored.
    settings: Option<Box<RawValue>>,
    health: Option<Box<RawValue>>,
    /// The name of the key that encrypts its secrets.
    sealed_by: Option<&'a str>,
    version: u64,
    created_at: String,
    waiting: Option<WaitingView>,
}

/// Pending deliveries of an endpoint, in JSON.
#[derive(Serialize)]
struct WaitingView {
    due: u64,
    delayed: u64,
    behind: u64,
    oldest_due_ms: Option<u64>,
}

impl From<&QueueCounts> for WaitingView {
    fn from(counts: &QueueCounts) -> Self {
        let millis = |age: std::time::Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Self {
            due: counts.due,
            delayed: counts.delayed,
            behind: counts.behind,
            oldest_due_ms: counts.oldest_due.map(millis),
        }
    }
}

impl<'a> EndpointView<'a> {
    pub(super) fn new(endpoint: &'a Endpoint, waits: Option<&QueueCounts>) -> Self {
        let (why, reason, since) = match &endpoint.state {
            EndpointState::Enabled => (None, None, None),
            EndpointState::Disabled { why, since } => {
                let reason = match why {
                    Disabled::ByHand(text) => Some(text.as_str()),
                    Disabled::Gone | Disabled::Requested | Disabled::Failing => None,
                };
                (Some(why.as_str()), reason, Some(*since))
            }
            EndpointState::Removed { since } => (None, None, Some(*since)),
        };
        Self {
            id: endpoint.id.as_str(),
            number: endpoint.number,
            state: state_name(&endpoint.state),
            why,
            reason,
            since: text(since),
            settings: RawValue::from_string(endpoint.settings.to_json()).ok(),
            health: RawValue::from_string(endpoint.health.to_json()).ok(),
            sealed_by: Secrets::sealed_by(&endpoint.sealed),
            version: endpoint.version,
            created_at: endpoint.created_at.to_string(),
            waiting: waits.map(Into::into),
        }
    }
}

fn state_name(state: &EndpointState) -> &'static str {
    match state {
        EndpointState::Enabled => "enabled",
        EndpointState::Disabled { .. } => "disabled",
        EndpointState::Removed { .. } => "removed",
    }
}

/// The status of an endpoint, coloured, and a remark on it.
pub(in crate::commands) fn status(endpoint: &Endpoint, now: Timestamp) -> (Cell, String) {
    let health = &endpoint.health;
    let ago = |moment: Timestamp| relative(moment, now);
    match &endpoint.state {
        EndpointState::Removed { since } => (Cell::new("removed").fg(Color::DarkGrey), ago(*since)),
        EndpointState::Disabled { why, since } => {
            let why = match why {
                Disabled::ByHand(text) => plain(text),
                Disabled::Gone => "it answered 410".to_owned(),
                Disabled::Requested => "it requested this".to_owned(),
                Disabled::Failing => "nothing had succeeded for days".to_owned(),
            };
            let note = format!("{why}; {}", ago(*since));
            (Cell::new("disabled").fg(Color::Red), note)
        }
        EndpointState::Enabled => {
            let last = match health.last_error.as_deref() {
                Some(error) => format!("; last: {}", plain(error)),
                None => String::new(),
            };
            let failing = health.failing_since.map(|since| {
                format!(
                    "{} failures, the first {}{last}",
                    health.failures,
                    ago(since)
                )
            });
            if let Some(until) = health.paused_until.filter(|until| now < *until) {
                let rest = brief(until.since(now));
                let cause = health.pause.as_deref().map_or_else(String::new, plain);
                let note = format!("for another {rest}: {cause}{last}");
                return (Cell::new("backing off").fg(Color::Yellow), note);
            }
            match failing {
                Some(note) => (Cell::new("failing").fg(Color::Yellow), note),
                None => (Cell::new("enabled").fg(Color::Green), String::new()),
            }
        }
    }
}

/// The pending deliveries of an endpoint.
pub(in crate::commands) fn waiting(counts: &Counts, number: u32) -> QueueCounts {
    let mut queues = counts.deliveries.endpoints.iter();
    let queue = queues.find(|(of, _)| *of == number);
    queue.map(|(_, waits)| waits.clone()).unwrap_or_default()
}

/// An address without its query, which may hold a secret.
fn brief_url(url: &str) -> String {
    match url.split_once('?') {
        Some((address, _)) => format!("{}?…", plain(address)),
        None => plain(url),
    }
}

pub(super) async fn list(cx: &Context, is_all: bool) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let all: BTreeMap<EndpointId, Endpoint> = tenure
        .endpoints_by_number()
        .await?
        .into_values()
        .filter(|endpoint| is_all || !matches!(endpoint.state, EndpointState::Removed { .. }))
        .map(|endpoint| (endpoint.id.clone(), endpoint))
        .collect();
    if all.is_empty() {
        cx.output.note("there are no endpoints");
        cx.output.hint("`tenure endpoints add URL` adds one");
        return Ok(Exit::Nothing);
    }
    let counts = tenure.count().await?;
    if cx.output.is_json() {
        for endpoint in all.values() {
            let waits = waiting(&counts, endpoint.number);
            cx.output.json(&EndpointView::new(endpoint, Some(&waits)))?;
        }
        return Ok(Exit::Done);
    }
    let rows = all.values().map(|endpoint| {
        let waits = waiting(&counts, endpoint.number);
        let (state, note) = status(endpoint, cx.output.now);
        vec![
            Cell::new(&endpoint.id),
            state,
            Cell::new(waits.due + waits.delayed + waits.behind),
            Cell::new(topics(endpoint)),
            Cell::new(brief_url(&endpoint.settings.url)),
            Cell::new(note),
        ]
    });
    let heading = ["ENDPOINT", "STATE", " PENDING", "TOPICS", "URL", "NOTE"];
    cx.output.table(&heading, rows.collect())?;
    Ok(Exit::Done)
}

fn topics(endpoint: &Endpoint) -> String {
    let topics = endpoint
        .settings
        .topics
        .iter()
        .map(|topic| plain(topic.as_str()));
    topics.collect::<Vec<_>>().join(", ")
}

pub(super) async fn show(cx: &Context, id: &EndpointId) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let endpoint = find(&tenure, id).await?;
    let waits = waiting(&tenure.count().await?, endpoint.number);
    if cx.output.is_json() {
        cx.output
            .json(&EndpointView::new(&endpoint, Some(&waits)))?;
        return Ok(Exit::Done);
    }
    let mut rows = facts(&endpoint, cx.output.now);
    rows.push(vec![
        Cell::new("pending"),
        Cell::new(format!(
            "{} due, {} delayed, {} behind",
            waits.due, waits.delayed, waits.behind
        )),
    ]);
    cx.output.table(&["ENDPOINT", ""], rows)?;
    Ok(Exit::Done)
}

/// The facts that have a value, by name.
fn facts(endpoint: &Endpoint, now: Timestamp) -> Vec<Vec<Cell>> {
    let settings = &endpoint.settings;
    let health = &endpoint.health;
    let (state, note) = status(endpoint, now);
    let statuses: Vec<_> = settings.no_retry.iter().map(ToString::to_string).collect();
    let not_empty = |text: String| Some(text).filter(|text| !text.is_empty());
    let mut rows = vec![
        fact("id", Some(endpoint.id.to_string())),
        vec![Cell::new("state"), state],
        fact("note", not_empty(note)),
        fact("url", Some(settings.url.clone())),
        fact("description", not_empty(settings.description.clone())),
        fact("topics", Some(topics(endpoint))),
        fact("timeout", Some(duration_text(settings.timeout))),
        fact("concurrency", Some(settings.concurrency.to_string())),
        fact(
            "rate",
            settings.rate.map(|rate| format!("{}/s", rate.per_second)),
        ),
        fact("attempts", Some(settings.schedule.attempts().to_string())),
        fact("delays", not_empty(delays(&settings.schedule))),
        fact("no retry", not_empty(statuses.join(", "))),
        fact(
            "sealed by",
            Secrets::sealed_by(&endpoint.sealed).map(str::to_owned),
        ),
        fact("failing since", moment(health.failing_since, now)),
        fact("last error", health.last_error.as_deref().map(plain)),
        fact(
            "backing off",
            moment(health.paused_until.filter(|until| *until > now), now),
        ),
        fact("created", moment(Some(endpoint.created_at), now)),
        fact("version", Some(endpoint.version.to_string())),
    ];
    let metadata = settings.metadata.iter();
    rows.extend(metadata.map(|(name, value)| fact("meta", Some(format!("{name}: {value}")))));
    rows.retain(|row| !row.is_empty());
    rows
}

fn delays(schedule: &Schedule) -> String {
    let delays = schedule.waits().iter().map(|delay| brief(*delay));
    delays.collect::<Vec<_>>().join(", ")
}

/// Prints one endpoint after a change.
pub(super) fn print(cx: &Context, endpoint: &Endpoint, done: &str) -> Result<Exit, Stop> {
    cx.output.either(&EndpointView::new(endpoint, None), || {
        format!(
            "{done} {}: {} for {}",
            endpoint.id,
            brief_url(&endpoint.settings.url),
            topics(endpoint)
        )
    })?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_hides_the_query_of_an_address() {
        assert_eq!(brief_url("https://a.b/c?key=canary"), "https://a.b/c?…");
        assert_eq!(brief_url("https://a.b/c"), "https://a.b/c");
    }
}
