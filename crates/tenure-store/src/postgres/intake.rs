//! Enqueue: one or many events in one statement, in the caller's transaction or in one of its own.

use std::collections::{BTreeSet, HashMap};

use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection};
use tenure_core::store::{Answer, Enqueued, Intake, StoreError};
use tenure_core::{Encoding, Event, ItemId, Priority, QueueName, StoredEvent};
use uuid::Uuid;

use super::PostgresStore;
use super::directory::Directory;
use super::error::store_error;
use super::row::{Moment, get};
use super::session::RunOn as _;
use crate::enqueue_statement::{self, EnqueueStatement};
use crate::headers::{read_headers, stored_headers};
use crate::lane::{Lane, lane};
use crate::limits::micros;
use crate::messages::unknown_queue;

impl Intake for PostgresStore {
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>> {
        Box::pin(async move {
            let mut directory = self.directory();
            if needs_reload(&directory, events) {
                directory = self.reload_directory("enqueue").await?;
            }
            let batch = Batch::of(&directory, events)?;
            let lent = self.pool.borrow().await;
            let mut lent = lent.map_err(|error| store_error("enqueue", error))?;
            let conn = lent.connection();
            let answer = if batch.strict.is_empty() && !self.pool.needs_transaction(conn) {
                self.write(conn, batch).await
            } else {
                self.write_alone(conn, batch).await
            };
            lent.give_back(&answer);
            answer
        })
    }
}

impl PostgresStore {
    /// Returns the enqueue of one event as a statement, for use with another driver.
    ///
    /// # Errors
    /// The payload of the event is binary.
    pub fn enqueue_statement(&self, event: &Event) -> Result<EnqueueStatement, StoreError> {
        enqueue_statement::postgres(&self.statements().enqueue_call.bare(), event)
    }

    /// Writes the events in the caller's transaction: they exist if and only if it commits.
    ///
    /// # Errors
    /// An event names an unknown queue, or the database returns an error. After a database error
    /// the caller's transaction can only be rolled back, as after any failed statement.
    ///
    /// ```no_run
    /// # async fn example(store: tenure_store::postgres::PostgresStore, pool: sqlx::PgPool)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("insert into orders (id) values (7)").execute(&mut *tx).await?;
    /// let event = tenure_core::Event::new("order.paid", &7)?;
    /// store.enqueue_on(&mut tx, &[event]).await?;
    /// tx.commit().await?; // the event exists iff the order does
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_on(
        &self,
        conn: &mut PgConnection,
        events: &[Event],
    ) -> Result<Vec<Enqueued>, StoreError> {
        self.meet("enqueue", conn).await?;
        let mut directory = self.directory();
        if needs_reload(&directory, events) {
            let queues = self.statements().queues.query().rows_on(conn).await;
            directory = self.replace_directory("enqueue", queues)?;
        }
        let batch = Batch::of(&directory, events)?;
        self.write(conn, batch).await
    }

    /// Returns the events that the caller's open transaction has written so far, oldest first.
    ///
    /// # Errors
    /// The database returns an error.
    pub async fn written_on(&self, conn: &mut PgConnection) -> Result<Vec<Event>, StoreError> {
        self.meet("enqueued", conn).await?;
        let rows = self.statements().written_here.query().rows_on(conn).await;
        let rows = rows.map_err(|error| store_error("enqueued", error))?;
        let events: Result<Vec<_>, _> = rows.iter().map(written).collect();
        events.map_err(|error| store_error("enqueued", error))
    }

    /// Writes in its own transaction: the locks of strict keys must be held until commit, and
    /// statements without a name need one.
    async fn write_alone(
        &self,
        conn: &mut PgConnection,
        batch: Batch,
    ) -> Result<Vec<Enqueued>, StoreError> {
        let failed = |error| store_error("enqueue", error);
        let mut tx = conn
            .begin_with(self.pool.begin_text())
            .await
            .map_err(failed)?;
        let answers = self.write(&mut tx, batch).await?;
        tx.commit().await.map_err(failed)?;
        Ok(answers)
    }

    async fn write(
        &self,
        conn: &mut PgConnection,
        batch: Batch,
    ) -> Result<Vec<Enqueued>, StoreError> {
        if !batch.strict.is_empty() {
            // Lock in a separate statement before ids are drawn, so that waiting producers draw
            // higher ids.
            let query = self.statements().enqueue_strict.query();
            let waited = query.bind(&batch.strict).rows_on(conn).await;
            waited.map_err(|error| store_error("enqueue", error))?;
        }
        let is_unique = batch.keys.iter().any(Option::is_some);
        let statement = if is_unique {
            &self.statements().enqueue_unique
        } else {
            &self.statements().enqueue
        };
        let query = statement
            .query()
            .bind(None::<Moment>)
            .bind(&batch.event_ids)
            .bind(&batch.topics)
            .bind(&batch.lanes)
            .bind(&batch.payloads)
            .bind(&batch.headers)
            .bind(&batch.encodings)
            .bind(&batch.delays)
            .bind(&batch.ordering_keys);
        let query = if is_unique {
            query.bind(&batch.keys)
        } else {
            query
        };
        let rows = query
            .rows_on(conn)
            .await
            .map_err(|error| store_error("enqueue", error))?;
        batch
            .answers(&rows, is_unique)
            .map_err(|error| store_error("enqueue", error))
    }
}

/// Returns true if a queue is unknown, or topics may have become separate.
fn needs_reload(directory: &Directory, events: &[Event]) -> bool {
    let mut events = events.iter();
    directory.is_old() || events.any(|event| directory.number(event.queue()).is_none())
}

fn written(row: &PgRow) -> Result<Event, sqlx::Error> {
    let queue: Option<String> = get(row, 3)?;
    let level: i32 = get(row, 4)?;
    let level = u8::try_from(level).unwrap_or_default();
    Ok(Event::from(StoredEvent {
        event_id: get(row, 0)?,
        topic: get(row, 1)?,
        ordering_key: get(row, 2)?,
        queue: queue
            .and_then(|name| QueueName::new(&name).ok())
            .unwrap_or_default(),
        priority: Priority::new(level).unwrap_or_default(),
        payload: get(row, 5)?,
        headers: read_headers(get::<Option<&str>>(row, 6)?),
        encoding: get::<Option<&str>>(row, 7)?.and_then(Encoding::parse),
    }))
}

/// An event of the batch, or a repeat of an earlier dedupe key.
#[derive(Debug)]
enum BatchEntry {
    Event { event_id: Uuid, key: Option<String> },
    Repeat(String),
}

/// Parameter columns of the statement, one entry per event.
#[derive(Debug, Default)]
struct Batch {
    entries: Vec<BatchEntry>,
    event_ids: Vec<Uuid>,
    topics: Vec<String>,
    lanes: Vec<Lane>,
    payloads: Vec<String>,
    headers: Vec<Option<String>>,
    encodings: Vec<Option<&'static str>>,
    delays: Vec<i64>,
    ordering_keys: Vec<Option<String>>,
    /// Ordering keys of strict events: their producers wait for each other.
    strict: Vec<String>,
    keys: Vec<Option<String>>,
}

impl Batch {
    /// Builds the statement's parameters, or the error of the first invalid event.
    fn of(directory: &Directory, events: &[Event]) -> Result<Self, StoreError> {
        let mut batch = Self::default();
        let mut keys = BTreeSet::new();
        for event in events {
            let number = directory.number_for(event.queue(), event.topic());
            let number = number.ok_or_else(|| unknown_queue("enqueue", event.queue()))?;
            let key = event.dedupe().map(str::to_owned);
            if key.as_ref().is_some_and(|key| !keys.insert(key.clone())) {
                batch
                    .entries
                    .push(BatchEntry::Repeat(key.unwrap_or_default()));
                continue;
            }
            batch.push(event, lane(number, event.priority()), key);
        }
        Ok(batch)
    }

    fn push(&mut self, event: &Event, lane: Lane, key: Option<String>) {
        let event_id = event.event_id().unwrap_or_else(Uuid::now_v7);
        self.entries.push(BatchEntry::Event {
            event_id,
            key: key.clone(),
        });
        self.event_ids.push(event_id);
        self.topics.push(event.topic().to_owned());
        self.lanes.push(lane);
        self.payloads.push(event.payload().to_owned());
        self.headers.push(stored_headers(event));
        self.encodings.push(event.encoding().map(Encoding::as_str));
        self.delays.push(micros(event.delay()));
        let ordering_key = event.key().map(str::to_owned);
        if event.is_strict() {
            self.strict.extend(ordering_key.clone());
        }
        self.ordering_keys.push(ordering_key);
        self.keys.push(key);
    }

    /// Maps the statement's rows to answers in request order. Ids are drawn in that order, so
    /// sorting by id restores it; event ids need not be unique.
    fn answers(&self, rows: &[PgRow], is_unique: bool) -> Result<Vec<Enqueued>, sqlx::Error> {
        let mut drawn: Vec<(i64, Uuid)> = Vec::with_capacity(rows.len());
        let mut winners: HashMap<String, i64> = HashMap::new();
        for row in rows {
            match get::<Option<Uuid>>(row, 0)? {
                Some(event_id) => drawn.push((get(row, 1)?, event_id)),
                None if is_unique => drop(winners.insert(get(row, 3)?, get(row, 1)?)),
                None => {}
            }
        }
        drawn.sort_unstable();
        let mut drawn = drawn.into_iter();
        let mut answer = |entries: &BatchEntry| match entries {
            BatchEntry::Repeat(key) => Some(Enqueued::Existed {
                id: ItemId::new(*winners.get(key)?),
            }),
            BatchEntry::Event { event_id, key } => {
                let (own, _) = drawn.next().filter(|(_, drawn)| drawn == event_id)?;
                let winner = match key {
                    Some(key) => *winners.get(key)?,
                    None => own,
                };
                let id = ItemId::new(winner);
                let event_id = *event_id;
                Some(if winner == own {
                    Enqueued::Fresh { id, event_id }
                } else {
                    Enqueued::Existed { id }
                })
            }
        };
        let answers = self.entries.iter().map(&mut answer);
        answers
            .collect::<Option<_>>()
            .ok_or(sqlx::Error::RowNotFound)
    }
}
