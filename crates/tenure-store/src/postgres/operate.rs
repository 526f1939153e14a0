//! The operator's commands, and queues.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::postgres::PgRow;
use tenure_core::store::{
    Answer, Bury, Counts, Filter, KeyRecord, Kind, Operate, Page, Pause, Queue, QueueCounts,
    QueueRules, Queues, Replay, Replayed, SeparateTopic, StoreError,
};
use tenure_core::{
    Counters, Fence, Guarded, Hold, ItemId, OutcomeKind, PastHold, QueueName, Record, Refusal,
    State, Timestamp,
};

use super::PostgresStore;
use super::error::store_error;
use super::pool::Borrow as _;
use super::row::{get, get_count, get_moment, get_timestamp, get_total, moment, unreadable};
use super::sources::Events;
use crate::error_text::error_text;
use crate::limits::micros;
use crate::page::{cut, in_order, page_limit};
use crate::queue_rules::StoredRules;
use crate::refusal_reason::{bury_refusal, replay_answers};

/// Maximum attempts of a bury while the item's row is locked.
pub(crate) const BURY_TRIES: u32 = 100;
/// Pause between two attempts.
pub(crate) const BURY_PAUSE: Duration = Duration::from_millis(5);

impl Operate for PostgresStore {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        Box::pin(async move {
            let numbers: Vec<i64> = ids.iter().map(|id| id.number()).collect();
            let query = self.statements().find.query().bind(numbers);
            let rows = query.all_from(&self.pool).await;
            let rows = rows.map_err(|error| store_error("find", error))?;
            let fact = |row: &PgRow| Ok((get(row, 4)?, get(row, 23)?));
            let facts = rows.iter().map(fact).collect::<Result<Vec<_>, _>>();
            let facts = facts.map_err(|error| store_error("find", error))?;
            let events = self.events_for("find", &facts).await?;
            let found = rows.iter().map(|row| record(row, &events));
            let found = found.collect::<Result<Vec<_>, _>>();
            Ok(in_order(
                ids,
                found.map_err(|error| store_error("find", error))?,
            ))
        })
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<PastHold>> {
        Box::pin(async move {
            let query = self.statements().timeline.query().bind(id.number());
            let rows = query.all_from(&self.pool).await;
            let holds = rows.and_then(|rows| rows.iter().map(ended_hold).collect());
            holds.map_err(|error| store_error("timeline", error))
        })
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        Box::pin(async move {
            let limit = page_limit(limit);
            if filter.source.is_some() && filter.state.is_some() {
                return self.list_of_event(filter, limit).await;
            }
            let (ids, next) = cut(self.page(filter, limit + 1).await?, limit);
            Ok(Page {
                records: self.find(&ids).await?,
                next,
            })
        })
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        Box::pin(async move {
            let query = self.statements().count.query().bind(moment(now));
            let query = query.bind(micros(KeyRecord::RETRIED_LONG));
            let rows = query.all_from(&self.pool).await;
            rows.and_then(|rows| counts(&rows))
                .map_err(|error| store_error("count", error))
        })
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        Box::pin(async move {
            // Remove duplicates: the statement cannot replay one item twice.
            let mut seen = HashSet::new();
            let first = |id: &ItemId| seen.insert(*id);
            let asked: Vec<ItemId> = replay.ids.iter().copied().filter(first).collect();
            let numbers: Vec<i64> = asked.iter().map(|id| id.number()).collect();
            let query = self.statements().replay.query();
            let query = query.bind(moment(replay.now)).bind(numbers);
            let rows = query.all_from(&self.pool).await;
            let back = rows.and_then(|rows| rows.iter().map(item_id).collect());
            let back: HashSet<ItemId> = back.map_err(|error| store_error("replay", error))?;
            let left = asked.iter().filter(|id| !back.contains(id));
            let left = left.map(|id| id.number()).collect();
            let positions = self.look("replay", "", left).await?;
            Ok(replay_answers(&replay.ids, back, &positions))
        })
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        Box::pin(async move {
            let mut tries = 0;
            loop {
                if self.try_bury(bury, BuryScope::Any).await? {
                    return Ok(Guarded::Accepted(()));
                }
                let positions = self.look("bury", "", vec![bury.id.number()]).await?;
                let answer = bury_refusal(bury.id, positions.get(&bury.id));
                tries += 1;
                if answer.is_ok() || tries == BURY_TRIES {
                    return answer;
                }
                // There is no notification when the row lock is released, so poll.
                tokio::time::sleep(BURY_PAUSE).await;
            }
        })
    }
}

/// Scope of a bury: any item, or only the head of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuryScope {
    Any,
    Head,
}

impl PostgresStore {
    /// Returns the ids of up to `limit` items, newest first. If the filter names a source event,
    /// the state is ignored.
    async fn page(&self, filter: &Filter, limit: u32) -> Result<Vec<ItemId>, StoreError> {
        let statements = self.statements();
        let statement = match (filter.source, filter.state) {
            (Some(_), _) => &self.webhook().page_source,
            (None, None) => &statements.page_all,
            (None, Some(State::Pending)) => &statements.page_pending,
            (None, Some(State::Claimed)) => &statements.page_claimed,
            (None, Some(State::Done)) => &statements.page_done,
            (None, Some(State::Dead)) => &statements.page_dead,
        };
        let queue = match &filter.queue {
            None => None,
            Some(queue) => Some(self.queue_numbers("list", queue).await?),
        };
        let (behind, before) = match filter.kind {
            Kind::Events => (i64::MIN, ItemId::FIRST_DELIVERY + 1),
            Kind::Deliveries => (ItemId::FIRST_DELIVERY, i64::MAX),
        };
        let before = filter.before.map_or(before, |id| before.min(id.number()));
        let endpoint = filter
            .endpoint
            .map(|number| i32::try_from(number).unwrap_or(-1));
        let query = statement
            .query()
            .bind(before)
            .bind(i64::from(limit))
            .bind(filter.topic.as_deref())
            .bind(queue)
            .bind(moment(filter.since))
            .bind(filter.key.as_deref())
            .bind(moment(filter.until))
            .bind(behind)
            .bind(endpoint);
        let query = match filter.source {
            Some(source) => query.bind(source.number()),
            None => query,
        };
        let rows = query.all_from(&self.pool).await;
        let ids = rows.and_then(|rows| rows.iter().map(item_id).collect());
        ids.map_err(|error| store_error("list", error))
    }

    /// Lists the deliveries of an event in one state. An event has few: this reads those in every
    /// state and filters.
    async fn list_of_event(&self, filter: &Filter, limit: u32) -> Result<Page, StoreError> {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut filter = filter.clone();
        let mut records: Vec<Record> = Vec::new();
        loop {
            let ids = self.page(&filter, Filter::PAGE_MAX).await?;
            let found = self.find(&ids).await?.into_iter();
            records.extend(found.filter(|record| Some(record.state) == filter.state));
            let last = ids.last().copied();
            if last.is_none() || records.len() > most {
                break;
            }
            filter.before = last;
        }
        let (ids, next) = cut(records.iter().map(|record| record.id).collect(), limit);
        records.truncate(ids.len());
        Ok(Page { records, next })
    }

    /// Buries an item; `false`: it is not open, it is not the head that `turn` requires, or its row
    /// is locked.
    pub(crate) async fn try_bury(&self, bury: &Bury, turn: BuryScope) -> Result<bool, StoreError> {
        let query = self
            .statements()
            .bury
            .query()
            .bind(moment(bury.now))
            .bind(bury.id.number())
            .bind(error_text(&bury.reason))
            .bind(bury.token.expose())
            .bind(bury.token.holder())
            .bind(turn == BuryScope::Head);
        let row = query.first_from(&self.pool).await;
        let row = row.map_err(|error| store_error("bury", error).with_item(bury.id))?;
        Ok(row.is_some())
    }
}

impl Queues for PostgresStore {
    fn queues(&self) -> Answer<'_, Vec<Queue>> {
        Box::pin(async move {
            let rows = self.statements().queues.query().all_from(&self.pool).await;
            let is_queue = |row: &&PgRow| get(row, 4).is_ok_and(str::is_empty);
            let read = |rows: Vec<PgRow>| rows.iter().filter(is_queue).map(queue).collect();
            rows.and_then(read)
                .map_err(|error| store_error("queues", error))
        })
    }

    fn separate_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<SeparateTopic>> {
        Box::pin(async move {
            let query = self.statements().separate_topics.query().bind(moment(now));
            let rows = query.all_from(&self.pool).await;
            let topics = rows.and_then(|rows| rows.iter().map(separate_topic).collect());
            topics.map_err(|error| store_error("topics", error))
        })
    }

    fn due_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<(QueueName, Option<String>)>> {
        Box::pin(async move {
            let query = self.statements().due_topics.query().bind(moment(now));
            let rows = query.all_from(&self.pool).await;
            let topics = rows.and_then(|rows| rows.iter().map(due_topic).collect());
            topics.map_err(|error| store_error("topics", error))
        })
    }

    fn add_queue<'a>(&'a self, name: &'a QueueName, rules: QueueRules) -> Answer<'a, ()> {
        Box::pin(async move {
            let stored = StoredRules::new(rules)?;
            let query = self.statements().add_queue.query();
            let query = query
                .bind(name.as_str())
                .bind(stored.term_ms)
                .bind(stored.max_retries)
                .bind(stored.retry_base_ms)
                .bind(stored.retry_cap_ms);
            let done = query.all_from(&self.pool).await;
            done.map(drop)
                .map_err(|error| store_error("add queue", error))
        })
    }

    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded> {
        Box::pin(async move {
            let query = self
                .statements()
                .pause_queue
                .query()
                .bind(name.as_str())
                .bind(pause == Pause::Begin);
            let row = query.first_from(&self.pool).await;
            let row = row.map_err(|error| store_error("pause queue", error))?;
            Ok(row.map_or(Guarded::Refused(Refusal::NotFound), |_| {
                Guarded::Accepted(())
            }))
        })
    }
}

fn item_id(row: &PgRow) -> Result<ItemId, sqlx::Error> {
    get(row, 0).map(ItemId::new)
}

fn queue(row: &PgRow) -> Result<Queue, sqlx::Error> {
    let stored = StoredRules {
        term_ms: get(row, 2)?,
        max_retries: get(row, 5)?,
        retry_base_ms: get(row, 6)?,
        retry_cap_ms: get(row, 7)?,
    };
    Ok(Queue {
        name: queue_name(get(row, 0)?),
        rules: stored.rules(),
        paused: get(row, 3)?,
    })
}

fn due_topic(row: &PgRow) -> Result<(QueueName, Option<String>), sqlx::Error> {
    let topic: String = get(row, 1)?;
    let topic = Some(topic).filter(|topic| !topic.is_empty());
    Ok((queue_name(get(row, 0)?), topic))
}

fn separate_topic(row: &PgRow) -> Result<SeparateTopic, sqlx::Error> {
    let count = |index| Ok::<_, sqlx::Error>(get::<i64>(row, index)?.unsigned_abs());
    Ok(SeparateTopic {
        queue: queue_name(get(row, 0)?),
        topic: get(row, 1)?,
        due: count(2)?,
        delayed: count(3)?,
        oldest_due: get::<Option<i64>>(row, 4)?
            .map(|micros| Duration::from_micros(micros.unsigned_abs())),
    })
}

/// Stored names were validated when the queue was added.
fn queue_name(stored: Option<&str>) -> QueueName {
    stored
        .and_then(|name| QueueName::new(name).ok())
        .unwrap_or_default()
}

fn record(row: &PgRow, events: &Events) -> Result<Record, sqlx::Error> {
    let state = match get::<&str>(row, 8)? {
        "PENDING" => State::Pending,
        "CLAIMED" => State::Claimed,
        "PUBLISHED" => State::Done,
        "DEAD" => State::Dead,
        other => return Err(unreadable(other)),
    };
    Ok(Record {
        id: ItemId::new(get(row, 0)?),
        state,
        content: events.content(row, 1, get(row, 23)?)?,
        counters: Counters {
            attempts: get_count(row, 15)?,
            failures: get_count(row, 16)?,
            crashes: get_count(row, 17)?,
            generation: get_count(row, 22)?,
        },
        created_at: get_timestamp(row, 9)?,
        available_at: get_moment(row, 10)?,
        hold: hold(row)?,
        last_error: get(row, 18)?,
        done_at: get_moment(row, 19)?,
        dead_at: get_moment(row, 20)?,
        dead_reason: get(row, 21)?,
    })
}

fn hold(row: &PgRow) -> Result<Option<Hold>, sqlx::Error> {
    let Some(holder) = get(row, 12)? else {
        return Ok(None);
    };
    Ok(Some(Hold {
        holder,
        fence: Fence::new(get(row, 14)?),
        claimed_at: get_timestamp(row, 11)?,
        until: get_timestamp(row, 13)?,
    }))
}

fn ended_hold(row: &PgRow) -> Result<PastHold, sqlx::Error> {
    let word: &str = get(row, 2)?;
    Ok(PastHold {
        holder: get(row, 0)?,
        fence: Fence::new(get(row, 1)?),
        outcome: OutcomeKind::parse(word).ok_or_else(|| unreadable(word))?,
        claimed_at: get_timestamp(row, 3)?,
        settled_at: get_timestamp(row, 4)?,
    })
}

fn counts(rows: &[PgRow]) -> Result<Counts, sqlx::Error> {
    let mut counts = Counts::default();
    let mut events = 0;
    let mut deliveries = 0;
    for row in rows {
        let now = get_timestamp(row, 6)?;
        let waiting = QueueCounts {
            due: get_total(row, 1)?,
            delayed: get_total(row, 2)?,
            behind: get_total(row, 4)?,
            oldest_due: get_moment(row, 3)?.map(|first| now.since(first)),
        };
        let name = get::<Option<&str>>(row, 0)?;
        if name.is_some() {
            counts.queues.push((queue_name(name), waiting));
        } else {
            let number = u32::try_from(get::<i32>(row, 5)?).unwrap_or(0);
            counts.deliveries.endpoints.push((number, waiting));
        }
        counts.claimed = get_total(row, 7)?;
        counts.lapsed = get_total(row, 8)?;
        counts.dead = get_total(row, 9)?;
        events = get_total(row, 10)?;
        counts.deliveries.claimed = get_total(row, 11)?;
        counts.deliveries.lapsed = get_total(row, 12)?;
        counts.deliveries.dead = get_total(row, 13)?;
        deliveries = get_total(row, 14)?;
        counts.retried_keys = get_total(row, 15)?;
    }
    // Items that are not pending, claimed or dead are done.
    counts.done = events.saturating_sub(counts.pending() + counts.claimed + counts.dead);
    let waiting = counts.deliveries.endpoints.iter();
    let waiting: u64 = waiting.map(|(_, w)| w.due + w.delayed + w.behind).sum();
    let elsewhere = waiting + counts.deliveries.claimed + counts.deliveries.dead;
    counts.deliveries.delivered = deliveries.saturating_sub(elsewhere);
    Ok(counts)
}
