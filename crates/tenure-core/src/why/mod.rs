//! Why an item is not being worked on, in one sentence, and what to do about it.
//!
//! A pure function of what a store knows: the item, its queue, its key, who is there to work.

mod delivery;
mod job;
mod key;

use std::fmt;

use crate::event::Event;
use crate::item::{Hold, Record};
use crate::queue::QueueName;
use crate::reason;
use crate::retry::LapsePolicy;
use crate::settings::Settings;
use crate::state::State;
use crate::store::{DomainRecord, Presence, QueueCounts, WorkerRecord};
use crate::time::{Timestamp, brief_duration};
use crate::webhook::Endpoint;

pub use job::{JobFacts, why_job};

/// What is known around an item.
///
/// Its queue is that of the event whose turn it is: an event behind another one of its key waits
/// for that one, which may be in another queue.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether claims pass the queue by.
    pub is_paused: bool,
    /// What waits in the queue.
    pub counts: QueueCounts,
    /// The workers, and where each one stands by the store's clock.
    pub workers: Vec<(WorkerRecord, Presence)>,
    /// How workers behave.
    pub settings: Settings,
    /// Its domain, if it has a key.
    pub domain: Option<DomainRecord>,
    /// The endpoint that it is owed to, if it is a delivery; `counts` is then what waits for that.
    pub endpoint: Option<Endpoint>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// Why, in one sentence for people.
    pub sentence: String,
    /// What to do about it, where something is to be done.
    pub hint: Option<String>,
    /// Why, as one stable word for programs.
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

/// Why an item is not being worked on, or by whom it is.
///
/// The words: `published`, `dead`; `claimed`, `silent` (its holder no longer reports), `lapsed`;
/// `paused`, `delayed`, `backoff`; `no_worker`, `unserved` (none for its queue), `alone`,
/// `waiting`; and of an event with a key `behind` (another one comes first), `key_paused`,
/// `key_blocked` (by a dead one), `unplaced` (its key has no head yet); and of a delivery
/// `delivered`, `endpoint_disabled`, `endpoint_removed`, `endpoint_paused` (it is left alone for a
/// while), `endpoint_on_trial` (one call at a time).
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
/// assert_eq!(answer.sentence, "its producer held it back: it is due in 5m");
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
        // Holds are kept with the items that they are on; this is only for tables of strangers.
        (State::Claimed, None) => Why::new("claimed", "it is claimed; by whom is not written down"),
        (State::Pending, _) => pending(record, facts, now),
    }
}

fn published(record: &Record, now: Timestamp) -> Why {
    let when = record.done_at.map_or_else(String::new, |moment| {
        format!(" {} ago", brief_duration(now.since(moment)))
    });
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
        "mend the cause, then `tenure replay {}` puts it back with its counters at zero",
        record.id
    ))
}

/// When something died, and of what.
fn died(record: &Record, now: Timestamp) -> String {
    let when = record.dead_at.map_or_else(String::new, |moment| {
        format!(" {} ago", brief_duration(now.since(moment)))
    });
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
            ", because its holder said that trying again is no use".to_owned()
        }
        Some(reason::CRASH_LOOP) => format!(
            ", because its lease lapsed {}",
            times(record.counters.crashes.max(1))
        ),
        Some(reason::BURIED) => ", because an operator buried it".to_owned(),
        Some(reason::GONE) => ", because its endpoint said that it is gone for good".to_owned(),
        Some(reason::REMOVED) => ", because its endpoint was removed".to_owned(),
        Some(reason::ABORTED) => ", because the receiver wants it no more".to_owned(),
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
        None => {
            format!(
                "{holder} has been at work on it for {length}, under a lease for another {rest}"
            )
        }
        Some(first) => format!(
            "{holder} has held it for {length}, under a lease for another {rest}, and works on \
             event {} of the same key first",
            first.id
        ),
    };
    match facts.holder(hold) {
        Some((worker, Presence::Silent)) => Why::new(
            "silent",
            format!(
                "{holder} holds it but has said nothing for {}; its lease runs for another {}",
                brief_duration(now.since(worker.seen_at)),
                brief_duration(hold.until.since(now))
            ),
        )
        .hint("when the lease lapses, a reaper gives the event to another worker: wait"),
        Some((_, Presence::Left)) => Why::new(
            "silent",
            format!(
                "{holder} holds it but has left; its lease runs for another {}",
                brief_duration(hold.until.since(now))
            ),
        )
        .hint("when the lease lapses, a reaper gives the event to another worker: wait"),
        // Programs that claim by hand do not report.
        Some((_, Presence::Here)) | None => Why::new("claimed", held),
    }
}

fn lapsed(hold: &Hold, facts: &Facts, now: Timestamp) -> Why {
    let over = format!(
        "{} held it, but that lease lapsed {} ago",
        hold.holder,
        brief_duration(now.since(hold.until))
    );
    if facts.is_anyone_here() {
        let interval = brief_duration(facts.settings.reaper_interval());
        return Why::new(
            "lapsed",
            format!("{over}; it waits for a reaper, and workers look every {interval}"),
        );
    }
    Why::new(
        "lapsed",
        format!("{over}, and no worker is here to reap it"),
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
        return not_due(record, facts, &brief_duration(moment.since(now)));
    }
    if !facts.is_anyone_here() {
        return Why::new("no_worker", "it is due, but no worker is here").hint(
            "start one: `tenure serve`, or `tenure work`; `tenure workers` shows who was here",
        );
    }
    if facts.serving(&queue).next().is_none() {
        return Why::new(
            "unserved",
            format!("it is due, but none of the workers here serves the queue {queue}"),
        )
        .hint(format!(
            "`tenure work --queue {queue}` serves it; `tenure workers` shows who serves what"
        ));
    }
    if record.counters.crashes >= LapsePolicy::ALONE_AFTER {
        return Why::new(
            "alone",
            format!(
                "it is due, but its lease lapsed {} ({} are allowed), so that it is worked alone: \
                 it waits for a claim that takes nothing else",
                times(record.counters.crashes),
                facts.settings.max_crashes
            ),
        )
        .hint(format!(
            "see with `tenure show {}` who held it: something in it may kill its worker",
            record.id
        ));
    }
    if let Some(why) = key::unplaced(facts) {
        return why;
    }
    waiting(record, &queue, facts)
}

/// It is pending and may not be claimed for `wait`.
fn not_due(record: &Record, facts: &Facts, wait: &str) -> Why {
    let counters = record.counters;
    let error = match &record.last_error {
        Some(error) => format!(", last with {error:?}"),
        None => String::new(),
    };
    if counters.failures == 0 && counters.crashes == 0 {
        return match given_back(record) {
            None => Why::new(
                "delayed",
                format!("its producer held it back: it is due in {wait}"),
            ),
            Some(given) => Why::new("delayed", format!("{given}: it is due in {wait}")).hint(AWAY),
        };
    }
    let mut causes = Vec::new();
    if counters.failures > 0 {
        causes.push(format!(
            "it failed {} ({} are allowed){error}",
            times(counters.failures),
            facts.settings.max_retries
        ));
    }
    if counters.crashes > 0 {
        let alone = if counters.crashes >= LapsePolicy::ALONE_AFTER {
            " and must be worked alone"
        } else {
            ""
        };
        causes.push(format!(
            "its lease lapsed {} ({} are allowed){alone}",
            times(counters.crashes),
            facts.settings.max_crashes
        ));
    }
    Why::new(
        "backoff",
        format!("{}; it is tried again in {wait}", causes.join(" and ")),
    )
}

/// Where to look when something is given back again and again.
const AWAY: &str =
    "if its publisher is away, the log of its worker says so and why: `publisher was away`";

/// That holders gave it back without a failure, if they did.
fn given_back(record: &Record) -> Option<String> {
    let counters = record.counters;
    let ended = counters.failures.saturating_add(counters.crashes);
    match counters.attempts.saturating_sub(ended) {
        0 => None,
        count => Some(format!("it was given back unworked {}", times(count))),
    }
}

/// It is due, and there are workers for it.
fn waiting(record: &Record, queue: &QueueName, facts: &Facts) -> Why {
    let (mut running, mut places) = (0_u64, 0_u64);
    for worker in facts.serving(queue) {
        running += u64::from(worker.report.running);
        places += u64::from(worker.report.concurrency);
    }
    let due = match facts.counts.due {
        0 | 1 => "it is the only one that is due".to_owned(),
        due => format!("it is one of {due} that are due"),
    };
    let oldest = facts.counts.oldest_due.map_or_else(String::new, |age| {
        format!(", the first for {}", brief_duration(age))
    });
    let busy = format!("the workers there run {running} of {places}");
    let given = given_back(record);
    let after = match &given {
        Some(given) => format!("; {given}"),
        None => String::new(),
    };
    let why = Why::new(
        "waiting",
        format!("{due} in the queue {queue}{oldest}; {busy}{after}"),
    );
    if running >= places {
        return why.hint("all are busy: start another worker, or raise the concurrency");
    }
    match given {
        Some(_) => why.hint(AWAY),
        None => why,
    }
}

impl Facts {
    /// The workers that report.
    fn here(&self) -> impl Iterator<Item = &WorkerRecord> {
        let here = |(_, presence): &&(WorkerRecord, Presence)| *presence == Presence::Here;
        self.workers.iter().filter(here).map(|(worker, _)| worker)
    }

    fn is_anyone_here(&self) -> bool {
        self.here().next().is_some()
    }

    /// The workers that report and serve this queue.
    fn serving(&self, queue: &QueueName) -> impl Iterator<Item = &WorkerRecord> {
        self.here().filter(|worker| worker.report.serves(queue))
    }

    /// The worker that a hold names.
    fn holder(&self, hold: &Hold) -> Option<(&WorkerRecord, Presence)> {
        self.workers
            .iter()
            .find(|(worker, _)| worker.report.worker.as_str() == hold.holder)
            .map(|(worker, presence)| (worker, *presence))
    }
}

/// The queue of an item; a lease table has one line.
fn queue_of(record: &Record) -> QueueName {
    let event = record.content.event().map(Event::queue_name);
    event.cloned().unwrap_or_default()
}

fn times(number: u32) -> String {
    match number {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        number => format!("{number} times"),
    }
}
