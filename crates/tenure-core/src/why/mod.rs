//! Explanation of why an item is not being worked on, in one sentence, with advice.
//!
//! A pure function of facts from a store: the item, its queue, its key, the workers.

mod delivery;
mod job;
mod key;

use std::fmt;
use std::time::Duration;

use crate::event::Event;
use crate::item::{Counters, Hold, Record};
use crate::queue::QueueName;
use crate::reason;
use crate::retry::LapsePolicy;
use crate::settings::Settings;
use crate::state::State;
use crate::store::{KeyRecord, Presence, QueueCounts, WorkerRecord};
use crate::time::{Timestamp, brief_duration};
use crate::webhook::Endpoint;

pub use job::{JobFacts, why_job};

/// Facts around an item.
///
/// For an event behind another one of its key, the queue is that of the head: the event waits for
/// the head, which may be in another queue.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The queue is paused: claims skip it.
    pub is_paused: bool,
    /// Pending items of the queue.
    pub counts: QueueCounts,
    /// Workers, and the presence of each by the store's clock.
    pub workers: Vec<(WorkerRecord, Presence)>,
    /// Settings of the workers.
    pub settings: Settings,
    /// Its ordering key, if it has one.
    pub key: Option<KeyRecord>,
    /// Endpoint of a delivery; `counts` then covers the deliveries of that endpoint.
    pub endpoint: Option<Endpoint>,
}

/// Explanation of an item's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// Reason, in one sentence for people.
    pub sentence: String,
    /// Advice, if there is something to do.
    pub hint: Option<String>,
    /// Reason as a stable word for programs.
    pub code: &'static str,
}

impl Why {
    fn new(code: &'static str, sentence: impl Into<String>) -> Self {
        Self {
            sentence: sentence.into(),
            hint: None,
            code,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// Explains why an item is not being worked on, or which worker holds it.
///
/// Codes: `published`, `dead`; `claimed`, `silent` (its holder no longer reports), `lapsed`;
/// `paused`, `delayed`, `backoff`; `no_worker`, `unserved` (no worker serves its queue), `untaken`
/// (no worker takes its topic), `alone` (after repeated lapses), `waiting`; for an event with a key
/// `behind` (another event comes first), `key_paused`, `key_blocked` (by a dead event),
/// `not_promoted` (its key has no head yet); for a delivery `delivered`, `endpoint_disabled`,
/// `endpoint_removed`, `endpoint_paused` (after failed calls), `endpoint_on_trial` (one call at a
/// time).
///
/// ```
/// use std::time::Duration;
/// use tenure_core::{
///     Content, Counters, Event, Facts, ItemId, Record, State, Timestamp, why,
/// };
///
/// let now = Timestamp::from_micros(0);
/// let record = Record {
///     id: ItemId::new(17),
///     state: State::Pending,
///     content: Content::Event(Event::new("order.paid", &7)?),
///     counters: Counters::default(),
///     created_at: now,
///     available_at: Some(now.after(Duration::from_secs(300))),
///     hold: None,
///     last_error: None,
///     done_at: None,
///     dead_at: None,
///     dead_reason: None,
/// };
/// let answer = why(&record, &Facts::default(), now);
/// assert_eq!(answer.code, "delayed");
/// assert_eq!(answer.sentence, "its producer delayed it: it is due in 5m");
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
pub fn why(record: &Record, facts: &Facts, now: Timestamp) -> Why {
    if let Some(why) = delivery::why(record, facts, now) {
        return why;
    }
    match (record.state, &record.hold) {
        (State::Done, _) => published(record, now),
        (State::Dead, _) => dead(record, facts, now),
        (State::Claimed, Some(hold)) if hold.until > now => claimed(record, hold, facts, now),
        (State::Claimed, Some(hold)) => lapsed(hold, facts, now),
        // Tenure always stores a lease with a claimed item; this case occurs only in a table that
        // other programs write.
        (State::Claimed, None) => {
            Why::new("claimed", "it is claimed, but its holder is not recorded")
        }
        (State::Pending, _) => pending(record, facts, now),
    }
}

fn published(record: &Record, now: Timestamp) -> Why {
    let when = ago(record.done_at, now);
    Why::new("published", format!("it was published{when}")).hint(format!(
        "`tenure replay {}` puts it back, to be published again",
        record.id
    ))
}

fn dead(record: &Record, facts: &Facts, now: Timestamp) -> Why {
    if let Some(why) = key::blocking(record, facts, now) {
        return why;
    }
    Why::new("dead", died(record, now)).hint(format!(
        "fix the cause, then `tenure replay {}` puts it back with its counters at zero",
        record.id
    ))
}

/// Time and cause of a death.
fn died(record: &Record, now: Timestamp) -> String {
    let when = ago(record.dead_at, now);
    let error = match &record.last_error {
        Some(error) => format!(": {error}"),
        None => String::new(),
    };
    let cause = match record.dead_reason.as_deref() {
        Some(reason::FAILED) => format!(
            ", because it failed {}",
            times(record.counters.failures.max(1))
        ),
        Some(reason::REJECTED) => {
            ", because its holder reported that a retry cannot help".to_owned()
        }
        Some(reason::CRASH_LOOP) => format!(
            ", because its lease lapsed {}",
            times(record.counters.crashes.max(1))
        ),
        Some(reason::BURIED) => ", because an operator buried it".to_owned(),
        Some(reason::GONE) => ", because its endpoint answered that it is gone for good".to_owned(),
        Some(reason::REMOVED) => ", because its endpoint was removed".to_owned(),
        Some(reason::ABORTED) => ", because the receiver wants no further attempts".to_owned(),
        Some(other) => format!(" ({other})"),
        None => String::new(),
    };
    format!("it died{when}{cause}{error}")
}

fn claimed(record: &Record, hold: &Hold, facts: &Facts, now: Timestamp) -> Why {
    let Hold { holder, .. } = hold;
    let length = brief_duration(now.since(hold.claimed_at));
    let rest = brief_duration(hold.until.since(now));
    let held = match key::held_before(record, facts) {
        None => format!(
            "{holder} has been at work on it for {length}, under a lease for another {rest}"
        ),
        Some(first) => format!(
            "{holder} has held it for {length}, under a lease for another {rest}, and works on \
             event {} of the same key first",
            first.id
        ),
    };
    let how = match holder_of(hold, &facts.workers) {
        Some((worker, Presence::Silent)) => {
            let silence = brief_duration(now.since(worker.reported_at));
            format!("has not reported for {silence}")
        }
        Some((_, Presence::Left)) => "has stopped".to_owned(),
        // Programs that claim directly do not report.
        Some((_, Presence::Active)) | None => {
            let why = Why::new("claimed", held + &lapsed_before(record, facts));
            return match crashes_worker(record) {
                Some(hint) => why.hint(hint),
                None => why,
            };
        }
    };
    let before = lapsed_before(record, facts);
    let sentence =
        format!("{holder} holds it but {how}; its lease runs for another {rest}{before}");
    Why::new("silent", sentence).hint(crashes_worker(record).unwrap_or_else(|| {
        "when the lease lapses, a reaper gives the event to another worker: wait".to_owned()
    }))
}

/// Names the earlier leases that lapsed, if there are any.
fn lapsed_before(record: &Record, facts: &Facts) -> String {
    match record.counters.crashes {
        0 => String::new(),
        crashes => format!(
            "; before, its lease lapsed {} ({} are allowed)",
            times(crashes),
            facts.settings.max_crashes
        ),
    }
}

/// The hint for a poison item.
fn crashes_worker(record: &Record) -> Option<String> {
    (record.counters.crashes >= LapsePolicy::ALONE_AFTER).then(|| {
        format!(
            "`tenure show {}` lists its holders: its content may crash the worker",
            record.id
        )
    })
}

fn lapsed(hold: &Hold, facts: &Facts, now: Timestamp) -> Why {
    let over = format!(
        "{} held it, but that lease lapsed {} ago",
        hold.holder,
        brief_duration(now.since(hold.until))
    );
    if facts.is_any_active() {
        let interval = brief_duration(facts.settings.reaper_interval());
        return Why::new(
            "lapsed",
            format!("{over}; it waits for a reaper, which runs every {interval}"),
        );
    }
    Why::new(
        "lapsed",
        format!("{over}, and no worker is running to reap it"),
    )
    .hint("`tenure reap` ends the lease now; `tenure serve` and `tenure work` reap by themselves")
}

fn pending(record: &Record, facts: &Facts, now: Timestamp) -> Why {
    if let Some(why) = key::pending(record, facts, now) {
        return why;
    }
    let queue = queue_of(record);
    let wait = record.available_at.filter(|moment| *moment > now);
    if facts.is_paused {
        let later = wait.map_or_else(String::new, |moment| {
            format!(
                ", and it is not due for {}",
                brief_duration(moment.since(now))
            )
        });
        return Why::new("paused", format!("the queue {queue} is paused{later}"))
            .hint(format!("`tenure queues resume {queue}`"));
    }
    if let Some(moment) = wait {
        let why = not_due(record, facts, moment.since(now));
        return key::with_warning(record, facts, why, now);
    }
    if !facts.is_any_active() {
        return Why::new("no_worker", "it is due, but no worker is running").hint(
            "start one: `tenure serve`, or `tenure work`; `tenure workers` lists earlier ones",
        );
    }
    if facts.serving(&queue).next().is_none() {
        return Why::new(
            "unserved",
            format!("it is due, but no running worker serves the queue {queue}"),
        )
        .hint(format!(
            "`tenure work --queue {queue}` serves it; `tenure workers` lists the queues of each"
        ));
    }
    if let Some(why) = untaken(record, &queue, facts) {
        return why;
    }
    if let Some(hint) = crashes_worker(record) {
        return Why::new(
            "alone",
            format!(
                "it is due, but its lease lapsed {} ({} are allowed), so it must be worked alone: \
                 it waits for a claim that takes nothing else",
                times(record.counters.crashes),
                facts.settings.max_crashes
            ),
        )
        .hint(hint);
    }
    if let Some(why) = key::not_promoted(facts) {
        return why;
    }
    waiting(record, &queue, facts)
}

/// Explains an event whose topic no running worker takes.
fn untaken(record: &Record, queue: &QueueName, facts: &Facts) -> Option<Why> {
    let event = record.content.event();
    let event = event.filter(|_| record.content.delivery().is_none())?;
    let topic = event.topic();
    let mut workers = facts.serving(queue);
    if workers.any(|worker| worker.report.topics.takes(topic)) {
        return None;
    }
    let sentence = format!("it is due, but no running worker takes the topic {topic}");
    Some(Why::new("untaken", sentence).hint(
        "it waits and uses up no retry; a worker takes the topics of its handlers, routes and \
         subscribed endpoints: `tenure workers` lists them",
    ))
}

/// Explains a pending item that is due in `wait`.
fn not_due(record: &Record, facts: &Facts, wait: Duration) -> Why {
    let rest = rest(record.counters, &facts.settings, wait);
    let wait = brief_duration(wait);
    let error = record.last_error.as_deref();
    let mut causes = used(record.counters, error, &facts.settings);
    if causes.is_empty() {
        return match given_back(record) {
            None => Why::new(
                "delayed",
                format!("its producer delayed it: it is due in {wait}"),
            ),
            Some(given) => Why::new("delayed", format!("{given}: it is due in {wait}")).hint(AWAY),
        };
    }
    if record.counters.crashes >= LapsePolicy::ALONE_AFTER
        && let Some(lapses) = causes.last_mut()
    {
        lapses.push_str(" and must be worked alone");
    }
    Why::new(
        "backoff",
        format!("{}; it is retried in {wait}{rest}", causes.join(" and ")),
    )
}

/// Advice for an item that workers keep releasing.
const AWAY: &str = "if its publisher is unavailable, the log of its worker has the reason: \
                    `publisher is unavailable`";

/// Clause with the number of releases, if there were any.
fn given_back(record: &Record) -> Option<String> {
    let counters = record.counters;
    let settled = counters.failures.saturating_add(counters.crashes);
    match counters.attempts.saturating_sub(settled) {
        0 => None,
        count => Some(format!("it was released without a result {}", times(count))),
    }
}

/// Explains a due item for which there are workers.
fn waiting(record: &Record, queue: &QueueName, facts: &Facts) -> Why {
    let (mut running, mut capacity) = (0_u64, 0_u64);
    for worker in facts.serving(queue) {
        running += u64::from(worker.report.running);
        capacity += u64::from(worker.report.concurrency);
    }
    let due = match facts.counts.due {
        0 | 1 => "it is the only due item".to_owned(),
        due => format!("it is one of {due} due items"),
    };
    let oldest = facts.counts.oldest_due.map_or_else(String::new, |age| {
        format!(", the oldest for {}", brief_duration(age))
    });
    let busy = format!("its workers run {running} of {capacity}");
    let given = given_back(record);
    let after = match &given {
        Some(given) => format!("; {given}"),
        None => String::new(),
    };
    let why = Why::new(
        "waiting",
        format!("{due} in the queue {queue}{oldest}; {busy}{after}"),
    );
    if running >= capacity {
        return why.hint("all are busy: start another worker, or raise the concurrency");
    }
    match given {
        Some(_) => why.hint(AWAY),
        None => why,
    }
}

impl Facts {
    /// Active workers: those that report in time.
    fn active(&self) -> impl Iterator<Item = &WorkerRecord> {
        let active = |(_, presence): &&(WorkerRecord, Presence)| *presence == Presence::Active;
        self.workers.iter().filter(active).map(|(worker, _)| worker)
    }

    fn is_any_active(&self) -> bool {
        self.active().next().is_some()
    }

    /// Active workers that serve this queue.
    fn serving(&self, queue: &QueueName) -> impl Iterator<Item = &WorkerRecord> {
        self.active().filter(|worker| worker.report.serves(queue))
    }
}

/// Worker that holds the item.
fn holder_of<'a>(
    hold: &Hold,
    workers: &'a [(WorkerRecord, Presence)],
) -> Option<(&'a WorkerRecord, Presence)> {
    let mut workers = workers.iter();
    workers
        .find(|(worker, _)| worker.report.worker.as_str() == hold.holder)
        .map(|(worker, presence)| (worker, *presence))
}

/// Queue of an item; a lease table has only the default queue.
fn queue_of(record: &Record) -> QueueName {
    let event = record.content.event().map(Event::queue);
    event.cloned().unwrap_or_default()
}

/// Failures and then lapses so far, with their limits.
fn used(counters: Counters, last_error: Option<&str>, settings: &Settings) -> Vec<String> {
    let mut used = Vec::new();
    if counters.failures > 0 {
        let (failed, allowed) = (times(counters.failures), settings.max_retries);
        let error = last_with(last_error);
        used.push(format!("it failed {failed} ({allowed} are allowed){error}"));
    }
    if counters.crashes > 0 {
        let (lapsed, allowed) = (times(counters.crashes), settings.max_crashes);
        used.push(format!("its lease lapsed {lapsed} ({allowed} are allowed)"));
    }
    used
}

/// Clause with the longest time until the last retry of an item that failed and is due in `wait`.
fn rest(counters: Counters, settings: &Settings, wait: Duration) -> String {
    if counters.failures == 0 {
        return String::new();
    }
    match settings.retry_policy().window(counters.failures) {
        Duration::ZERO => ", for the last time".to_owned(),
        window => {
            let longest = brief_duration(wait.saturating_add(window));
            format!(", and at most for another {longest}")
        }
    }
}

fn last_with(error: Option<&str>) -> String {
    error.map_or_else(String::new, |error| format!(", last with {error:?}"))
}

fn ago(moment: Option<Timestamp>, now: Timestamp) -> String {
    moment.map_or_else(String::new, |moment| {
        format!(" {} ago", brief_duration(now.since(moment)))
    })
}

fn times(number: u32) -> String {
    match number {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        number => format!("{number} times"),
    }
}
