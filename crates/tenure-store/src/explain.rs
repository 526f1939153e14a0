//! Explanations of why an item, a row or a job is not being worked on: reads the facts from a
//! store, for the functions of the core that judge them.

use std::time::Duration;

use tenure_core::job::JobId;
use tenure_core::store::{
    HeldChunks, Jobs, Presence, Queue, QueueCounts, Rows, Store, StoreError, WorkerRecord,
};
use tenure_core::webhook::{Delivery, Endpoint};
use tenure_core::{
    Clock as _, Event, Facts, ItemId, JobFacts, QueueName, Record, Settings, Timestamp, Why, why,
    why_job,
};

use crate::memory::SystemClock;

/// An explanation considers at most this many workers, those that reported most recently.
const WORKERS: u32 = 1_000;
/// The explanation of a job considers at most this many held chunks.
const HELD_LOOKED_AT: u32 = 1_000;

/// Explains why an event or a delivery is not being worked on; `None` if it does not exist.
///
/// # Errors
/// The database is unavailable.
pub async fn explain_item(
    store: &dyn Store,
    id: ItemId,
    settings: &Settings,
) -> Result<Option<Why>, StoreError> {
    // Read the workers first: the answer has the time of the store; later reads are not older.
    let (moment, workers) = store.workers(WORKERS).await?;
    let Some(record) = store.find(&[id]).await?.pop() else {
        return Ok(None);
    };
    let endpoint = match record.content.delivery() {
        Some(delivery) => endpoint(store, delivery.endpoint).await?,
        None => None,
    };
    let key = record.content.event().and_then(Event::key);
    // Deliveries keep the order of a key separately for each endpoint.
    let key = key.map(|key| match &endpoint {
        Some(endpoint) => Delivery::key(&endpoint.id, key),
        None => key.to_owned(),
    });
    let key = match key {
        Some(key) => store.key(&key).await?,
        None => None,
    };
    // An event behind the head of its key waits for that head, so the queue of the head counts.
    let first = key.as_ref().and_then(|key| key.head.as_ref());
    let queue = queue_of(first.unwrap_or(&record));
    let its_own = |other: &Queue| other.name == queue;
    let found = store.queues().await?.into_iter().find(its_own);
    let rules = found.as_ref().map(|queue| queue.rules).unwrap_or_default();
    let counts = store.count(None).await?;
    let facts = Facts {
        is_paused: found.is_some_and(|queue| queue.paused),
        counts: match &endpoint {
            Some(endpoint) => counts_of(counts.deliveries.endpoints, &endpoint.number),
            None => counts_of(counts.queues, &queue),
        },
        workers: present(workers, moment),
        settings: settings.clone().with_retry(rules.retry),
        key,
        endpoint,
    };
    let now = credible(moment, record.created_at);
    Ok(Some(why(&record, &facts, now)))
}

/// Explains why a row of an adopted table is not being worked on; `None` if it does not exist.
///
/// # Errors
/// The database is unavailable.
pub async fn explain_row(
    store: &dyn Store,
    rows: &dyn Rows,
    id: ItemId,
    settings: &Settings,
) -> Result<Option<Why>, StoreError> {
    let table = rows.table().name.as_str();
    let (moment, workers) = store.workers(WORKERS).await?;
    let Some(record) = rows.find(&[id]).await?.pop() else {
        return Ok(None);
    };
    let mut queues = rows.count(None).await?.queues.into_iter();
    let counts = queues.next().map(|(_, counts)| counts);
    let facts = Facts {
        counts: counts.unwrap_or_default(),
        workers: present(own(workers, table), moment),
        settings: settings.clone(),
        ..Facts::default()
    };
    let mut answer = why(&record, &facts, credible(moment, record.created_at));
    // The explanation of events applies to rows, but its commands must name the table.
    let work = format!("`tenure work --table {table}`");
    answer.hint = answer.hint.map(|hint| {
        let hint = hint.replace("`tenure serve`, or `tenure work`", &work);
        ["replay", "bury", "reap", "show"]
            .iter()
            .fold(hint, |hint, verb| {
                let named = format!("`tenure {verb} --table {table}");
                hint.replace(&format!("`tenure {verb}"), &named)
            })
    });
    Ok(Some(answer))
}

/// Explains why a job is not being worked on; `None` if it does not exist.
///
/// # Errors
/// The database is unavailable.
pub async fn explain_job(
    store: &dyn Store,
    jobs: &dyn Jobs,
    id: JobId,
    settings: &Settings,
) -> Result<Option<Why>, StoreError> {
    // Read the workers first: the answer has the time of the store; later reads are not older.
    let (moment, workers) = store.workers(WORKERS).await?;
    let Some(job) = jobs.job(id, None).await? else {
        return Ok(None);
    };
    let held = HeldChunks {
        matrix: Some(job.matrix.clone()),
        lapsed_for: None,
        limit: HELD_LOOKED_AT,
    };
    let facts = JobFacts {
        kinds: jobs.kinds(Duration::ZERO, None).await?,
        workers: present(workers, moment),
        settings: settings.clone(),
        chunks: jobs.held_chunks(&held, None).await?,
    };
    let now = credible(moment, job.created_at);
    Ok(Some(why_job(&job, &facts, now)))
}

async fn endpoint(store: &dyn Store, number: u32) -> Result<Option<Endpoint>, StoreError> {
    let all = store.webhooks().all_endpoints().await?;
    Ok(all.into_iter().find(|endpoint| endpoint.number == number))
}

/// Counts of one queue or endpoint.
fn counts_of<T: PartialEq>(lines: Vec<(T, QueueCounts)>, line: &T) -> QueueCounts {
    let found = lines.into_iter().find(|(name, _)| name == line);
    found.map(|(_, counts)| counts).unwrap_or_default()
}

fn queue_of(record: &Record) -> QueueName {
    let event = record.content.event().map(Event::queue);
    event.cloned().unwrap_or_default()
}

/// Keeps only the workers on this table; workers on events neither claim nor reap its rows. Clears
/// their lists of queues, since an empty list means all queues: the rows are in one queue, which
/// every worker on the table serves.
fn own(mut workers: Vec<WorkerRecord>, table: &str) -> Vec<WorkerRecord> {
    workers.retain(|worker| worker.report.works_on(table));
    for worker in &mut workers {
        worker.report.queues.clear();
    }
    workers
}

/// The workers, each with its presence at this time of the store.
fn present(workers: Vec<WorkerRecord>, moment: Timestamp) -> Vec<(WorkerRecord, Presence)> {
    let stands = |worker: WorkerRecord| {
        let presence = worker.presence(moment);
        (worker, presence)
    };
    workers.into_iter().map(stands).collect()
}

/// The time of the store, unless that is before the creation of the item: then the clock of the
/// store is wrong, and the time of this machine is used.
fn credible(moment: Timestamp, created_at: Timestamp) -> Timestamp {
    if moment < created_at {
        return SystemClock.now();
    }
    moment
}
