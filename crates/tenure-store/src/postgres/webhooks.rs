//! Endpoints and their deliveries.

use sqlx::postgres::PgRow;
use tenure_core::store::{
    Answer, ChangeEndpoint, Due, EndpointLane, ProvidesWebhooks, StoreError, Webhooks,
};
use tenure_core::webhook::{
    AttemptOutcome, Call, CallDetail, CallRecord, Disabled, Endpoint, EndpointHealth, EndpointId,
    EndpointSettings, EndpointState, NewEndpoint,
};
use tenure_core::{Fence, Guarded, ItemId, Refusal, Timestamp};

use super::PostgresStore;
use super::error::store_error;
use super::fan_out::unreadable_endpoint;
use super::queue::Sql;
use super::row::{get, get_timestamp, moment, unreadable};
use crate::calls::kept_call;
use crate::error_text::error_text;
use crate::lane::{Lane, queue_of, step_of};
use crate::limits::micros;

impl ProvidesWebhooks for PostgresStore {
    fn webhooks(&self) -> &dyn Webhooks {
        self
    }
}

impl Webhooks for PostgresStore {
    fn add_endpoint<'a>(
        &'a self,
        new: &'a NewEndpoint,
        now: Option<Timestamp>,
    ) -> Answer<'a, Option<Endpoint>> {
        Box::pin(async move {
            let query = self.webhook().add_endpoint.query();
            let query = query
                .bind(moment(now))
                .bind(new.id.as_str())
                .bind(new.settings.to_json())
                .bind(&new.sealed);
            let rows = self.fetch("add endpoint", query).await?;
            rows.first().map(endpoint).transpose()
        })
    }

    fn endpoints<'a>(
        &'a self,
        after: Option<&'a EndpointId>,
        limit: u32,
    ) -> Answer<'a, Vec<Endpoint>> {
        Box::pin(async move {
            let query = self.webhook().endpoints.query();
            let query = query
                .bind(after.map(EndpointId::as_str))
                .bind(i64::from(limit));
            let rows = self.fetch("endpoints", query).await?;
            rows.iter().map(endpoint).collect()
        })
    }

    fn endpoint<'a>(&'a self, id: &'a EndpointId) -> Answer<'a, Option<Endpoint>> {
        Box::pin(async move {
            let query = self.webhook().endpoint.query().bind(id.as_str());
            let rows = self.fetch("endpoints", query).await?;
            rows.first().map(endpoint).transpose()
        })
    }

    fn change_endpoint<'a>(&'a self, change: &'a ChangeEndpoint) -> Answer<'a, Guarded<Endpoint>> {
        Box::pin(async move {
            let (state, why, words) = state_words(&change.state);
            let query = self.webhook().change_endpoint.query();
            let query = query
                .bind(moment(change.now))
                .bind(change.id.as_str())
                .bind(i64::try_from(change.version).unwrap_or(i64::MAX))
                .bind(change.settings.to_json())
                .bind(&change.sealed)
                .bind(state)
                .bind(why)
                .bind(words);
            let rows = self.fetch("change endpoint", query).await?;
            if let Some(row) = rows.first() {
                return Ok(Guarded::Accepted(endpoint(row)?));
            }
            Ok(Guarded::Refused(match self.endpoint(&change.id).await? {
                Some(_) => Refusal::Changed,
                None => Refusal::NotFound,
            }))
        })
    }

    fn keep_health<'a>(&'a self, id: &'a EndpointId, health: &'a EndpointHealth) -> Answer<'a, ()> {
        Box::pin(async move {
            let query = self.webhook().keep_health.query();
            let query = query.bind(id.as_str()).bind(health.to_json());
            self.fetch("keep health", query).await.map(drop)
        })
    }

    fn due_deliveries(&self, now: Option<Timestamp>) -> Answer<'_, Due> {
        Box::pin(async move {
            self.promote_first(now).await?;
            let rows = self.due_rows(now).await?;
            // A delivery with a key must be promoted to head first; the caller claims only the
            // deliveries that this answer lists.
            self.observe_arrivals(&rows, 2)?;
            let rows = if self.promote_arrived(now).await? {
                self.due_rows(now).await?
            } else {
                rows
            };
            due(&rows).map_err(|error| store_error("due deliveries", error))
        })
    }

    fn record_calls<'a>(&'a self, calls: &'a [Call], now: Option<Timestamp>) -> Answer<'a, ()> {
        Box::pin(async move {
            if calls.is_empty() {
                return Ok(());
            }
            let query = bind_calls(self.webhook().record_calls.query(), calls, now).bind(false);
            self.fetch("record calls", query).await.map(drop)
        })
    }

    fn calls(&self, delivery: ItemId) -> Answer<'_, Vec<CallRecord>> {
        Box::pin(async move {
            let query = self.webhook().calls.query().bind(delivery.number());
            let rows = self.fetch("calls", query).await?;
            let calls = rows.iter().map(|row| call(row, delivery));
            let calls = calls.collect::<Result<_, _>>();
            calls.map_err(|error| store_error("calls", error))
        })
    }
}

impl PostgresStore {
    async fn due_rows(&self, now: Option<Timestamp>) -> Result<Vec<PgRow>, StoreError> {
        let query = self.webhook().due_deliveries.query().bind(moment(now));
        self.fetch("due deliveries", query).await
    }
}

fn due(rows: &[PgRow]) -> Result<Due, sqlx::Error> {
    let first = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let lanes = rows.iter().filter_map(|row| get(row, 3).transpose());
    let lanes = lanes.map(|lane: Result<Lane, _>| lane.map(endpoint_lane));
    Ok(Due {
        now: get_timestamp(first, 0)?,
        version: version(first, 1)?,
        lanes: lanes.collect::<Result<_, _>>()?,
    })
}

fn endpoint_lane(lane: Lane) -> EndpointLane {
    EndpointLane {
        endpoint: queue_of(lane).unsigned_abs(),
        step: step_of(lane),
    }
}

fn version(row: &PgRow, index: usize) -> Result<u64, sqlx::Error> {
    Ok(u64::try_from(get::<i64>(row, index)?).unwrap_or(0))
}

fn endpoint(row: &PgRow) -> Result<Endpoint, StoreError> {
    let failed = |error| store_error("endpoints", error);
    let id: &str = get(row, 0).map_err(failed)?;
    let settings = get(row, 2).map_err(failed)?;
    let settings = EndpointSettings::from_json(settings);
    let settings = settings.map_err(|problem| unreadable_endpoint(id, &problem))?;
    let name = EndpointId::new(id).map_err(|problem| unreadable_endpoint(id, &problem))?;
    read_endpoint(row, name, settings).map_err(failed)
}

fn read_endpoint(
    row: &PgRow,
    id: EndpointId,
    settings: EndpointSettings,
) -> Result<Endpoint, sqlx::Error> {
    let since = get_timestamp(row, 7)?;
    let state = match get::<&str>(row, 4)? {
        "enabled" => EndpointState::Enabled,
        "removed" => EndpointState::Removed { since },
        "disabled" => {
            let why = get::<Option<&str>>(row, 5)?.unwrap_or_default();
            let words = get::<Option<&str>>(row, 6)?.unwrap_or_default();
            let why = Disabled::parse(why, words).ok_or_else(|| unreadable(why))?;
            EndpointState::Disabled { why, since }
        }
        other => return Err(unreadable(other)),
    };
    Ok(Endpoint {
        id,
        number: u32::try_from(get::<i32>(row, 1)?).unwrap_or(0),
        settings,
        sealed: get(row, 3)?,
        state,
        health: EndpointHealth::from_json(get(row, 8)?),
        version: version(row, 9)?,
        created_at: get_timestamp(row, 10)?,
    })
}

/// Columns of a stored state: its word, the reason, and the operator's text.
fn state_words(state: &EndpointState) -> (&'static str, Option<&'static str>, Option<String>) {
    match state {
        EndpointState::Enabled => ("enabled", None, None),
        EndpointState::Removed { .. } => ("removed", None, None),
        EndpointState::Disabled { why, .. } => {
            let words = match why {
                Disabled::ByHand(words) => Some(error_text(words)),
                Disabled::Gone | Disabled::Requested | Disabled::Failing => None,
            };
            ("disabled", Some(why.as_str()), words)
        }
    }
}

pub(crate) fn bind_calls<'q>(query: Sql<'q>, calls: &[Call], now: Option<Timestamp>) -> Sql<'q> {
    let mut lists = Lists::default();
    for call in calls {
        lists.push(call);
    }
    query
        .bind(moment(now))
        .bind(lists.deliveries)
        .bind(lists.fences)
        .bind(lists.attempts)
        .bind(lists.ago)
        .bind(lists.outcomes)
        .bind(lists.statuses)
        .bind(lists.errors)
        .bind(lists.details)
}

/// Calls as parameter lists of the statement.
#[derive(Debug, Default)]
struct Lists {
    deliveries: Vec<i64>,
    fences: Vec<i64>,
    attempts: Vec<i32>,
    ago: Vec<i64>,
    outcomes: Vec<&'static str>,
    statuses: Vec<Option<i32>>,
    errors: Vec<Option<String>>,
    details: Vec<String>,
}

impl Lists {
    fn push(&mut self, call: &Call) {
        // Placeholder: the database sets the timestamp.
        let kept = kept_call(call, call.outcome, Timestamp::from_micros(0));
        self.deliveries.push(call.delivery.number());
        self.fences.push(call.fence.number());
        self.attempts
            .push(i32::try_from(call.attempt).unwrap_or(i32::MAX));
        self.ago.push(micros(call.ago));
        self.outcomes.push(call.outcome.as_str());
        self.statuses.push(kept.status.map(i32::from));
        self.errors.push(kept.error);
        self.details.push(kept.detail.to_json());
    }
}

fn call(row: &PgRow, delivery: ItemId) -> Result<CallRecord, sqlx::Error> {
    let outcome: &str = get(row, 3)?;
    Ok(CallRecord {
        delivery,
        fence: Fence::new(get(row, 0)?),
        attempt: u32::try_from(get::<i32>(row, 1)?).unwrap_or(0),
        began_at: get_timestamp(row, 2)?,
        outcome: AttemptOutcome::parse(outcome).ok_or_else(|| unreadable(outcome))?,
        status: get::<Option<i32>>(row, 4)?.and_then(|status| u16::try_from(status).ok()),
        error: get(row, 5)?,
        detail: CallDetail::from_json(get(row, 6)?),
    })
}
