//! Enqueue: one or many events in one statement, in the caller's transaction or in one of its own.

use std::collections::{BTreeSet, HashMap};

use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection};
use tenure_core::store::{Answer, Enqueued, Intake, StoreError};
use tenure_core::{Encoding, Event, ItemId};
use uuid::Uuid;

use super::PostgresStore;
use super::error::store_error;
use super::lend::Lent;
use super::row::{Moment, get};
use crate::headers::stored_headers;
use crate::lane::{Lane, lane};
use crate::limits::micros;

impl Intake for PostgresStore {
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>> {
        Box::pin(async move {
            let batch = self.batch(events).await?;
            let lent = Lent::from(self.pool()).await;
            let mut lent = lent.map_err(|error| store_error("enqueue", error))?;
            let answer = if batch.strict.is_empty() {
                self.write(lent.connection(), batch).await
            } else {
                self.write_strict(lent.connection(), batch).await
            };
            lent.give_back();
            answer
        })
    }
}

impl PostgresStore {
    /// Writes the events in the caller's transaction: they exist if and only if it commits.
    ///
    /// # Errors
    /// An event names an unknown queue; the database refuses. After a database error the caller's
    /// transaction can only be rolled back, as after any failed statement.
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
        let batch = self.batch(events).await?;
        self.write(conn, batch).await
    }

    /// Everything that the statement takes, or what is wrong with the first bad event.
    async fn batch(&self, events: &[Event]) -> Result<Batch, StoreError> {
        let mut batch = Batch::default();
        let mut keys = BTreeSet::new();
        for event in events {
            let number = self.queue_number("enqueue", event.queue_name()).await?;
            let key = event.dedupe_key().map(str::to_owned);
            if key.as_ref().is_some_and(|key| !keys.insert(key.clone())) {
                batch.asked.push(Asked::Repeat(key.unwrap_or_default()));
                continue;
            }
            batch.push(event, lane(number, event.urgency()), key);
        }
        Ok(batch)
    }

    /// Writes in a transaction of its own: what is waited for must be held until the commit.
    async fn write_strict(
        &self,
        conn: &mut PgConnection,
        batch: Batch,
    ) -> Result<Vec<Enqueued>, StoreError> {
        let failed = |error| store_error("enqueue", error);
        let mut tx = conn.begin().await.map_err(failed)?;
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
            // A statement of its own, before the ids are drawn: whoever waits draws higher ones.
            let query = self.statements().enqueue_strict.query();
            let waited = query.bind(&batch.strict).execute(&mut *conn).await;
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
            .fetch_all(conn)
            .await
            .map_err(|error| store_error("enqueue", error))?;
        batch
            .answers(&rows, is_unique)
            .map_err(|error| store_error("enqueue", error))
    }
}

/// An event of a call, or a repeat of one before it.
#[derive(Debug)]
enum Asked {
    Event { event_id: Uuid, key: Option<String> },
    Repeat(String),
}

/// The columns that the statement takes, one entry per event.
#[derive(Debug, Default)]
struct Batch {
    asked: Vec<Asked>,
    event_ids: Vec<Uuid>,
    topics: Vec<String>,
    lanes: Vec<Lane>,
    payloads: Vec<String>,
    headers: Vec<Option<String>>,
    encodings: Vec<Option<&'static str>>,
    delays: Vec<i64>,
    ordering_keys: Vec<Option<String>>,
    /// The ordering keys whose producers wait for each other.
    strict: Vec<String>,
    keys: Vec<Option<String>>,
}

impl Batch {
    fn push(&mut self, event: &Event, lane: Lane, key: Option<String>) {
        let event_id = event.event_id().unwrap_or_else(Uuid::now_v7);
        self.asked.push(Asked::Event {
            event_id,
            key: key.clone(),
        });
        self.event_ids.push(event_id);
        self.topics.push(event.topic().to_owned());
        self.lanes.push(lane);
        self.payloads.push(event.payload().to_owned());
        self.headers.push(stored_headers(event));
        self.encodings.push(event.encoding().map(Encoding::as_str));
        self.delays.push(micros(event.held_back()));
        let ordering_key = event.ordering_key().map(str::to_owned);
        if event.is_strict() {
            self.strict.extend(ordering_key.clone());
        }
        self.ordering_keys.push(ordering_key);
        self.keys.push(key);
    }

    /// The statement's rows as answers, in the order asked. Ids are drawn in that order, so they
    /// tell it; two events may share an event id.
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
        let mut answer = |asked: &Asked| match asked {
            Asked::Repeat(key) => Some(Enqueued::Existed {
                id: ItemId::new(*winners.get(key)?),
            }),
            Asked::Event { event_id, key } => {
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
        let answers = self.asked.iter().map(&mut answer);
        answers
            .collect::<Option<_>>()
            .ok_or(sqlx::Error::RowNotFound)
    }
}
