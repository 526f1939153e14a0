//! `EnqueueStatement`: the enqueue of one event as a statement, for other drivers.

#[cfg(feature = "sqlite")]
use tenure_core::Encoding;
use tenure_core::store::StoreError;
use tenure_core::{Event, Invalid, NewEvent};
use uuid::Uuid;

use crate::events::checked;
#[cfg(feature = "sqlite")]
use crate::headers::stored_headers;
use crate::open::Opened;
#[cfg(feature = "sqlite")]
use crate::sqlite::SqliteStore;

/// A statement that enqueues one event, with its parameters in order. Every parameter is a text or
/// null, so that any driver can bind it. Run the statement in the transaction of the change.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnqueueStatement {
    /// SQL of the statement. On PostgreSQL it returns one row with an event id: that of the new
    /// event, or of the existing event with the same dedupe key. On SQLite it returns no rows.
    pub text: String,
    /// Parameters: `$1`, `$2`, … on PostgreSQL, `?1`, `?2`, … on SQLite.
    pub parameters: Vec<Option<String>>,
    /// Id of the event. Receivers drop duplicates by it, and operators find the event by it.
    pub event_id: Uuid,
}

impl std::fmt::Debug for EnqueueStatement {
    /// Omits the parameters, which contain the payload.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnqueueStatement")
            .field("text", &self.text)
            .field("event_id", &self.event_id)
            .finish_non_exhaustive()
    }
}

impl Opened {
    /// Returns the enqueue of one event as a statement, for use with another driver.
    ///
    /// # Errors
    /// The event is not valid, the store is in memory, the payload is bytes (PostgreSQL), or the
    /// event has a dedupe key (SQLite).
    pub fn enqueue_statement(&self, event: NewEvent) -> Result<EnqueueStatement, StoreError> {
        let event = checked(event)?;
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.enqueue_statement(&event),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => SqliteStore::enqueue_statement(&event),
            Self::Memory(_) => {
                let expected = "PostgreSQL or SQLite: memory has no statements";
                Err(refused("the store", "in memory", expected))
            }
        }
    }
}

/// Builds the statement for PostgreSQL; `text` is the SQL file with its schema filled in.
#[cfg(feature = "postgres")]
pub(crate) fn postgres(text: &str, event: &Event) -> Result<EnqueueStatement, StoreError> {
    if event.encoding().is_some() {
        let expected = "JSON: bytes are enqueued on a connection of sqlx, or by `enqueue_now`";
        return Err(refused("payload", "bytes", expected));
    }
    let event_id = event.event_id().unwrap_or_else(Uuid::now_v7);
    let mut options = serde_json::Map::new();
    options.insert("queue".into(), event.queue().as_str().into());
    options.insert("priority".into(), event.priority().level().into());
    options.insert("event_id".into(), event_id.to_string().into());
    if !event.delay().is_zero() {
        let micros = format!("{} microseconds", event.delay().as_micros());
        options.insert("delay".into(), micros.into());
    }
    if let Some(key) = event.dedupe() {
        options.insert("dedupe".into(), key.into());
    }
    if event.is_strict() {
        options.insert("strict".into(), true.into());
    }
    if !event.headers().is_empty() {
        let headers = event.headers().iter();
        let headers = headers.map(|(name, value)| (name.clone(), value.as_str().into()));
        let headers: serde_json::Map<_, serde_json::Value> = headers.collect();
        options.insert("headers".into(), headers.into());
    }
    Ok(EnqueueStatement {
        text: text.to_owned(),
        parameters: vec![
            Some(event.topic().to_owned()),
            Some(event.payload().to_owned()),
            event.key().map(str::to_owned),
            Some(serde_json::Value::Object(options).to_string()),
        ],
        event_id,
    })
}

/// Builds the statement for SQLite.
#[cfg(feature = "sqlite")]
pub(crate) fn sqlite(text: &str, event: &Event) -> Result<EnqueueStatement, StoreError> {
    if event.dedupe().is_some() {
        let expected =
            "none: on SQLite, enqueue an event with a dedupe key on a rusqlite connection";
        return Err(refused("dedupe key", "set", expected));
    }
    let event_id = event.event_id().unwrap_or_else(Uuid::now_v7);
    let delay = event.delay().as_micros();
    Ok(EnqueueStatement {
        text: text.to_owned(),
        parameters: vec![
            Some(event.topic().to_owned()),
            Some(event.payload().to_owned()),
            event.key().map(str::to_owned),
            Some(event.queue().to_string()),
            Some(event.priority().level().to_string()),
            (delay > 0).then(|| delay.to_string()),
            stored_headers(event),
            event.encoding().map(Encoding::as_str).map(str::to_owned),
            Some(event_id.simple().to_string()),
        ],
        event_id,
    })
}

fn refused(field: &'static str, found: &str, expected: &str) -> StoreError {
    StoreError::invalid("enqueue", &Invalid::new(field, found, expected))
}
