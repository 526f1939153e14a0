//! The operator's verbs and the queues.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::postgres::PgRow;
use tenure_core::store::{
    Answer, Bury, Counts, Filter, Operate, Page, Pause, Queue, QueueCounts, Queues, Replay,
    Replayed, StoreError,
};
use tenure_core::{
    Content, Counters, Encoding, EndedHold, Event, Fence, Guarded, Hold, ItemId, Priority,
    QueueName, Record, Refusal, State, StoredEvent, Term, Timestamp, Word,
};

use super::PostgresStore;
use super::error::store_error;
use super::lend::Borrow as _;
use super::row::{get, get_count, get_moment, get_timestamp, get_total, moment, unreadable};
use crate::error_text::error_text;
use crate::headers::read_headers;
use crate::page::{cut, in_order, page_limit};
use crate::second_look::{bury_refusal, replay_answers};

/// How often a bury asks again when someone has the item in hand that very moment.
pub(crate) const BURY_TRIES: u32 = 100;
/// How long it waits before it does.
pub(crate) const BURY_PAUSE: Duration = Duration::from_millis(5);

impl Operate for PostgresStore {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        Box::pin(async move {
            let numbers: Vec<i64> = ids.iter().map(|id| id.number()).collect();
            let query = self.statements().find.query().bind(numbers);
            let rows = query.all_from(self.pool()).await;
            let found =
                rows.and_then(|rows| rows.iter().map(record).collect::<Result<Vec<_>, _>>());
            Ok(in_order(
                ids,
                found.map_err(|error| store_error("find", error))?,
            ))
        })
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<EndedHold>> {
        Box::pin(async move {
            let query = self.statements().timeline.query().bind(id.number());
            let rows = query.all_from(self.pool()).await;
            let holds = rows.and_then(|rows| rows.iter().map(ended_hold).collect());
            holds.map_err(|error| store_error("timeline", error))
        })
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        Box::pin(async move {
            let statements = self.statements();
            let statement = match filter.state {
                None => &statements.page_all,
                Some(State::Pending) => &statements.page_pending,
                Some(State::Claimed) => &statements.page_claimed,
                Some(State::Done) => &statements.page_done,
                Some(State::Dead) => &statements.page_dead,
            };
            let queue = match &filter.queue {
                None => None,
                Some(queue) => Some(self.queue_number("list", queue).await?),
            };
            let limit = page_limit(limit);
            let query = statement
                .query()
                .bind(filter.before.map(ItemId::number))
                .bind(i64::from(limit) + 1)
                .bind(filter.topic.as_deref())
                .bind(queue)
                .bind(moment(filter.since))
                .bind(filter.key.as_deref());
            let rows = query.all_from(self.pool()).await;
            let ids = rows.and_then(|rows| rows.iter().map(item_id).collect());
            let (ids, next) = cut(ids.map_err(|error| store_error("list", error))?, limit);
            Ok(Page {
                records: self.find(&ids).await?,
                next,
            })
        })
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        Box::pin(async move {
            let query = self.statements().count.query().bind(moment(now));
            let rows = query.all_from(self.pool()).await;
            rows.and_then(|rows| counts(&rows))
                .map_err(|error| store_error("count", error))
        })
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        Box::pin(async move {
            // The statement cannot put one item back twice.
            let mut seen = HashSet::new();
            let first = |id: &ItemId| seen.insert(*id);
            let asked: Vec<ItemId> = replay.ids.iter().copied().filter(first).collect();
            let numbers: Vec<i64> = asked.iter().map(|id| id.number()).collect();
            let query = self.statements().replay.query();
            let query = query.bind(moment(replay.now)).bind(numbers);
            let rows = query.all_from(self.pool()).await;
            let back = rows.and_then(|rows| rows.iter().map(item_id).collect());
            let back: HashSet<ItemId> = back.map_err(|error| store_error("replay", error))?;
            let left = asked.iter().filter(|id| !back.contains(id));
            let left = left.map(|id| id.number()).collect();
            let looks = self.look("replay", "", left).await?;
            Ok(replay_answers(&replay.ids, back, &looks))
        })
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        Box::pin(async move {
            let mut tries = 0;
            loop {
                if self.try_bury(bury, Turn::Any).await? {
                    return Ok(Guarded::Kept(()));
                }
                let looks = self.look("bury", "", vec![bury.id.number()]).await?;
                let answer = bury_refusal(bury.id, looks.get(&bury.id));
                tries += 1;
                if answer.is_ok() || tries == BURY_TRIES {
                    return answer;
                }
                // Whoever has the row locked tells nobody when he lets go.
                tokio::time::sleep(BURY_PAUSE).await;
            }
        })
    }
}

/// Whether an item is buried whatever its turn, or only as the head of its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Any,
    Head,
}

impl PostgresStore {
    /// Buries an item; `false` when it is settled, or someone has it in hand this moment.
    pub(crate) async fn try_bury(&self, bury: &Bury, turn: Turn) -> Result<bool, StoreError> {
        let query = self
            .statements()
            .bury
            .query()
            .bind(moment(bury.now))
            .bind(bury.id.number())
            .bind(error_text(&bury.reason))
            .bind(bury.token.expose())
            .bind(bury.token.holder())
            .bind(turn == Turn::Head);
        let row = query.first_from(self.pool()).await;
        let row = row.map_err(|error| store_error("bury", error).item(bury.id))?;
        Ok(row.is_some())
    }
}

impl Queues for PostgresStore {
    fn queues(&self) -> Answer<'_, Vec<Queue>> {
        Box::pin(async move {
            let rows = self.statements().queues.query().all_from(self.pool()).await;
            let queues = rows.and_then(|rows| rows.iter().map(queue).collect());
            queues.map_err(|error| store_error("queues", error))
        })
    }

    fn add_queue<'a>(&'a self, name: &'a QueueName, term: Option<Term>) -> Answer<'a, ()> {
        Box::pin(async move {
            let query = self.statements().add_queue.query();
            let query = query.bind(name.as_str()).bind(term.map(Term::millis));
            let done = query.all_from(self.pool()).await;
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
            let row = query.first_from(self.pool()).await;
            let row = row.map_err(|error| store_error("pause queue", error))?;
            Ok(row.map_or(Guarded::Refused(Refusal::NotFound), |_| Guarded::Kept(())))
        })
    }
}

fn item_id(row: &PgRow) -> Result<ItemId, sqlx::Error> {
    get(row, 0).map(ItemId::new)
}

fn queue(row: &PgRow) -> Result<Queue, sqlx::Error> {
    let term = get::<Option<i64>>(row, 2)?
        .and_then(|ms| Term::new(Duration::from_millis(u64::try_from(ms).unwrap_or(0))).ok());
    Ok(Queue {
        name: queue_name(get(row, 0)?),
        term,
        paused: get(row, 3)?,
    })
}

/// A name that is stored was checked when it was added.
fn queue_name(stored: Option<&str>) -> QueueName {
    stored
        .and_then(|name| QueueName::new(name).ok())
        .unwrap_or_default()
}

fn record(row: &PgRow) -> Result<Record, sqlx::Error> {
    let state = match get::<&str>(row, 9)? {
        "PENDING" => State::Pending,
        "CLAIMED" => State::Claimed,
        "PUBLISHED" => State::Done,
        "DEAD" => State::Dead,
        other => return Err(unreadable(other)),
    };
    let level = u8::try_from(get::<i16>(row, 5)?).unwrap_or(0);
    let event = StoredEvent {
        event_id: get(row, 1)?,
        topic: get(row, 2)?,
        ordering_key: get(row, 3)?,
        queue: queue_name(get(row, 4)?),
        priority: Priority::new(level).unwrap_or_default(),
        payload: get(row, 6)?,
        headers: read_headers(get(row, 7)?),
        encoding: get::<Option<&str>>(row, 8)?.and_then(Encoding::parse),
    };
    Ok(Record {
        id: ItemId::new(get(row, 0)?),
        state,
        content: Content::Event(Event::from(event)),
        counters: Counters {
            attempts: get_count(row, 16)?,
            failures: get_count(row, 17)?,
            crashes: get_count(row, 18)?,
            generation: get_count(row, 23)?,
        },
        created_at: get_timestamp(row, 10)?,
        available_at: get_moment(row, 11)?,
        hold: hold(row)?,
        last_error: get(row, 19)?,
        done_at: get_moment(row, 20)?,
        dead_at: get_moment(row, 21)?,
        dead_reason: get(row, 22)?,
    })
}

fn hold(row: &PgRow) -> Result<Option<Hold>, sqlx::Error> {
    let Some(holder) = get(row, 13)? else {
        return Ok(None);
    };
    Ok(Some(Hold {
        holder,
        fence: Fence::new(get(row, 15)?),
        claimed_at: get_timestamp(row, 12)?,
        until: get_timestamp(row, 14)?,
    }))
}

fn ended_hold(row: &PgRow) -> Result<EndedHold, sqlx::Error> {
    let word: &str = get(row, 2)?;
    Ok(EndedHold {
        holder: get(row, 0)?,
        fence: Fence::new(get(row, 1)?),
        word: Word::parse(word).ok_or_else(|| unreadable(word))?,
        claimed_at: get_timestamp(row, 3)?,
        settled_at: get_timestamp(row, 4)?,
    })
}

fn counts(rows: &[PgRow]) -> Result<Counts, sqlx::Error> {
    let mut counts = Counts::default();
    let mut events = 0;
    for row in rows {
        let now = get_timestamp(row, 8)?;
        let queue = QueueCounts {
            behind: get_total(row, 9)?,
            due: get_total(row, 1)?,
            delayed: get_total(row, 2)?,
            oldest_due: get_moment(row, 3)?.map(|first| now.since(first)),
        };
        counts.queues.push((queue_name(get(row, 0)?), queue));
        counts.claimed = get_total(row, 4)?;
        counts.lapsed = get_total(row, 5)?;
        counts.dead = get_total(row, 6)?;
        events = get_total(row, 7)?;
    }
    // What is in no other place is published.
    counts.done = events.saturating_sub(counts.pending() + counts.claimed + counts.dead);
    Ok(counts)
}
