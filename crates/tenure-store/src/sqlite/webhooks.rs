//! Endpoints and their deliveries.

use rusqlite::{Connection, OptionalExtension, Row, named_params};
use tenure_core::store::{
    Answer, ChangeEndpoint, Due, EndpointLane, ProvidesWebhooks, StoreError, Webhooks,
};
use tenure_core::webhook::{
    Call, CallRecord, Disabled, Endpoint, EndpointHealth, EndpointId, EndpointState, NewEndpoint,
};
use tenure_core::{Guarded, ItemId, Refusal, Timestamp};

use super::error::failed;
use super::{SqliteStore, calls, row, statements as sql};
use crate::error_text::error_text;
use crate::lane::{Lane, queue_of, step_of};

impl ProvidesWebhooks for SqliteStore {
    fn webhooks(&self) -> &dyn Webhooks {
        self
    }
}

impl Webhooks for SqliteStore {
    fn add_endpoint<'a>(
        &'a self,
        endpoint: &'a NewEndpoint,
        now: Option<Timestamp>,
    ) -> Answer<'a, Option<Endpoint>> {
        let new = endpoint.clone();
        Box::pin(self.write("add endpoint", now, move |connection, now| {
            add(connection, &new, now).map_err(failed("add endpoint"))
        }))
    }

    fn endpoints<'a>(
        &'a self,
        after: Option<&'a EndpointId>,
        limit: u32,
    ) -> Answer<'a, Vec<Endpoint>> {
        let after = after.cloned();
        Box::pin(self.writer.read("endpoints", move |connection| {
            list(connection, after.as_ref(), limit).map_err(failed("endpoints"))
        }))
    }

    fn endpoint<'a>(&'a self, id: &'a EndpointId) -> Answer<'a, Option<Endpoint>> {
        let id = id.clone();
        Box::pin(self.writer.read("endpoint", move |connection| {
            find(connection, &id).map_err(failed("endpoint"))
        }))
    }

    fn change_endpoint<'a>(&'a self, change: &'a ChangeEndpoint) -> Answer<'a, Guarded<Endpoint>> {
        let (now, ask) = (change.now, change.clone());
        Box::pin(self.write("change endpoint", now, move |connection, now| {
            change_one(connection, &ask, now).map_err(failed("change endpoint"))
        }))
    }

    fn keep_health<'a>(&'a self, id: &'a EndpointId, health: &'a EndpointHealth) -> Answer<'a, ()> {
        let (id, health) = (id.clone(), health.to_json());
        Box::pin(self.write("keep health", None, move |connection, _| {
            keep_health(connection, &id, &health).map_err(failed("keep health"))
        }))
    }

    fn due_deliveries(&self, now: Option<Timestamp>) -> Answer<'_, Due> {
        let now = self.moment(now);
        Box::pin(self.writer.read("due deliveries", move |connection| {
            due(connection, now).map_err(failed("due deliveries"))
        }))
    }

    fn record_calls<'a>(&'a self, calls: &'a [Call], now: Option<Timestamp>) -> Answer<'a, ()> {
        let all = calls.to_vec();
        Box::pin(async move {
            if all.is_empty() {
                return Ok(());
            }
            let write = move |connection: &Connection, now| -> Result<(), StoreError> {
                calls::write(connection, &all, |call| call.outcome, now)
                    .map_err(failed("record calls"))
            };
            self.write("record calls", now, write).await
        })
    }

    fn calls(&self, delivery: ItemId) -> Answer<'_, Vec<CallRecord>> {
        Box::pin(self.writer.read("calls", move |connection| {
            calls::of(connection, delivery).map_err(failed("calls"))
        }))
    }
}

fn add(
    connection: &Connection,
    new: &NewEndpoint,
    now: Timestamp,
) -> rusqlite::Result<Option<Endpoint>> {
    let added = connection
        .prepare_cached(sql::ADD_ENDPOINT)?
        .query_row(
            named_params! {
                ":id": new.id.as_str(),
                ":settings": new.settings.to_json(),
                ":sealed": new.sealed,
                ":now": now.as_micros(),
            },
            read,
        )
        .optional()?;
    if added.is_some() {
        connection
            .prepare_cached(sql::ADD_ENDPOINT_MOVED)?
            .execute([])?;
    }
    Ok(added)
}

fn list(
    connection: &Connection,
    after: Option<&EndpointId>,
    limit: u32,
) -> rusqlite::Result<Vec<Endpoint>> {
    let ask = named_params! {":after": after.map(EndpointId::as_str), ":limit": limit};
    connection
        .prepare_cached(sql::ENDPOINTS)?
        .query_map(ask, read)?
        .collect()
}

fn find(connection: &Connection, id: &EndpointId) -> rusqlite::Result<Option<Endpoint>> {
    connection
        .prepare_cached(sql::ENDPOINT)?
        .query_row(named_params! {":id": id.as_str()}, read)
        .optional()
}

fn change_one(
    connection: &Connection,
    ask: &ChangeEndpoint,
    now: Timestamp,
) -> rusqlite::Result<Guarded<Endpoint>> {
    let (state, why) = match &ask.state {
        EndpointState::Enabled => ("enabled", None),
        EndpointState::Disabled { why, .. } => ("disabled", Some(why)),
        EndpointState::Removed { .. } => ("removed", None),
    };
    let words = why.and_then(|why| match why {
        Disabled::ByHand(words) => Some(error_text(words)),
        Disabled::Gone | Disabled::Requested | Disabled::Failing => None,
    });
    let changed = connection
        .prepare_cached(sql::CHANGE_ENDPOINT)?
        .query_row(
            named_params! {
                ":id": ask.id.as_str(),
                ":version": i64::try_from(ask.version).unwrap_or(i64::MAX),
                ":settings": ask.settings.to_json(),
                ":sealed": ask.sealed,
                ":state": state,
                ":why": why.map(Disabled::as_str),
                ":words": words,
                ":now": now.as_micros(),
            },
            read,
        )
        .optional()?;
    let Some(changed) = changed else {
        let is_there = find(connection, &ask.id)?.is_some();
        return Ok(Guarded::Refused(if is_there {
            Refusal::Changed
        } else {
            Refusal::NotFound
        }));
    };
    connection
        .prepare_cached(sql::ADD_ENDPOINT_MOVED)?
        .execute([])?;
    Ok(Guarded::Accepted(changed))
}

fn keep_health(connection: &Connection, id: &EndpointId, health: &str) -> rusqlite::Result<()> {
    let ask = named_params! {":id": id.as_str(), ":health": health};
    if connection.prepare_cached(sql::KEEP_HEALTH)?.execute(ask)? > 0 {
        connection
            .prepare_cached(sql::KEEP_HEALTH_MOVED)?
            .execute([])?;
    }
    Ok(())
}

fn due(connection: &Connection, now: Timestamp) -> rusqlite::Result<Due> {
    let version = connection
        .prepare_cached(sql::DUE_VERSION)?
        .query_row([], |found| row::count(found, 0))?;
    let lanes = connection
        .prepare_cached(sql::DUE_LANES)?
        .query_map(named_params! {":now": now.as_micros()}, |found| {
            let lane: Lane = found.get(0)?;
            Ok(EndpointLane {
                endpoint: queue_of(lane).unsigned_abs(),
                step: step_of(lane),
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Due {
        now,
        version,
        lanes,
    })
}

/// Reads an endpoint: the columns of `endpoint.sql`.
fn read(found: &Row<'_>) -> rusqlite::Result<Endpoint> {
    let id = EndpointId::new(found.get_ref(0)?.as_str()?);
    Ok(Endpoint {
        id: id.map_err(|cause| row::unreadable(0, cause))?,
        number: found.get(1)?,
        settings: row::endpoint_settings(found, 2)?,
        sealed: found.get(3)?,
        state: state(found)?,
        health: EndpointHealth::from_json(found.get_ref(8)?.as_str()?),
        version: row::count(found, 9)?,
        created_at: row::moment(found, 10)?,
    })
}

fn state(found: &Row<'_>) -> rusqlite::Result<EndpointState> {
    let since = row::moment(found, 7)?;
    let words: Option<String> = found.get(6)?;
    let why = |word: &str| Disabled::parse(word, words.as_deref().unwrap_or_default());
    Ok(match found.get_ref(4)?.as_str()? {
        "enabled" => EndpointState::Enabled,
        "removed" => EndpointState::Removed { since },
        _ => EndpointState::Disabled {
            why: row::word(found, 5, why)?,
            since,
        },
    })
}
