//! The load of a run: a producer that records the store's answers, and a watch that polls the store
//! and the receiver during the run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::lease::Record;
use tenure::operate::Filter;
use tenure::store::Timestamp;
use tenure::{Enqueued, Event, NewEvent, State, Tenure};
use tenure_nemesis::{Effect, Id, Rng, Serial, now};
use tokio::time::sleep;

use super::world::{World, process_of};

/// Interval between two enqueues, and between two polls of the watch.
const PACE: Duration = Duration::from_millis(100);
/// The producer pauses while more events than this are pending, so that a busy machine can keep up.
const WAITING_MAX: u64 = 150;

/// Topic and key of a future event.
pub(super) type Piece = (&'static str, Option<String>);

/// Draws one to three events, which are published to a file or by a command; some are also
/// delivered to endpoints. Half of the published events have one of twenty keys. Some draws are
/// bursts: either of quick work with two keys, so that claims take runs, or of deliveries, so that
/// every fault hits some of them.
fn draw(rng: &mut Rng) -> Vec<Piece> {
    let key = |kind: &str, number: usize| Some(format!("{kind}-{number}"));
    match rng.below(8) {
        0 => return (0..6).map(|nth| ("brisk", key("run", nth % 2))).collect(),
        1 => return vec![("plain", None); 8],
        _ => {}
    }
    let piece = |rng: &mut Rng| match rng.below(54) {
        // All events of a key go to one file, because two files have no common order.
        nth @ 0..20 => (["quick", "slow"][nth % 2], key("key", nth)),
        20..26 => ("quick", None),
        26..40 => ("slow", None),
        nth @ 40..46 => ("keyed", key("owed", nth)),
        _ => ("plain", None),
    };
    (0..=rng.below(3)).map(|_| piece(rng)).collect()
}

/// The store's answers to the producer.
#[derive(Debug, Default)]
pub(super) struct Intake {
    next: Serial,
    pub(super) written: BTreeMap<Serial, Id>,
    pub(super) unknown: BTreeSet<Serial>,
}

impl Intake {
    /// Enqueues events while `is_on`.
    pub(super) async fn run(&mut self, tenure: &Tenure, seed: u64, is_on: &AtomicBool) {
        let mut rng = Rng::new(seed, "load");
        while is_on.load(Ordering::Relaxed) {
            let pieces = draw(&mut rng);
            let counts = tenure.count().await;
            if counts.is_ok_and(|counts| counts.pending() < WAITING_MAX) {
                self.enqueue(tenure, &pieces).await;
            }
            sleep(PACE).await;
        }
    }

    /// Enqueues all of these events or none.
    pub(super) async fn enqueue(&mut self, tenure: &Tenure, pieces: &[Piece]) {
        let serials: Vec<Serial> = (self.next..).take(pieces.len()).collect();
        self.next += u64::try_from(pieces.len()).unwrap();
        let event = |((topic, key), serial): (&Piece, &Serial)| {
            let event = NewEvent::new(topic, serial);
            match key {
                Some(key) => event.key(key),
                None => event,
            }
        };
        let events: Vec<NewEvent> = pieces.iter().zip(&serials).map(event).collect();
        match tenure.enqueue_now(events).await {
            Ok(answers) => {
                let ids = answers.into_iter().map(Enqueued::id);
                let ids = ids.map(tenure::ItemId::number);
                self.written.extend(serials.into_iter().zip(ids));
            }
            // The store may or may not have written the events.
            Err(error) if error.is_transient() => self.unknown.extend(serials),
            Err(error) => panic!("an enqueue failed for good: {error}"),
        }
    }
}

/// Facts that only a poll during the run can show.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The latest end of each lease, by item and fence.
    pub(super) until: BTreeMap<(Id, i64), Timestamp>,
    /// Events that were done before they were received.
    pub(super) too_soon: BTreeSet<Id>,
    /// Keys whose items were held under two leases at once.
    pub(super) torn_keys: BTreeSet<String>,
    pub(super) looks: u32,
}

impl Watch {
    /// Polls while `is_on`. A poll that the store does not answer is repeated.
    pub(super) async fn run(&mut self, tenure: &Tenure, world: &World, is_on: &AtomicBool) {
        let mut receiver = Receiver::new(world);
        while is_on.load(Ordering::Relaxed) {
            drop(self.look(tenure, &mut receiver).await);
            sleep(PACE).await;
        }
    }

    async fn look(
        &mut self,
        tenure: &Tenure,
        receiver: &mut Receiver,
    ) -> Result<(), tenure::StoreError> {
        let mut fences: BTreeMap<String, i64> = BTreeMap::new();
        // One statement reads all holds, so two fences of a key are two leases.
        for record in tenure.list(&claimed(), 1000).await?.records {
            let Some(hold) = record.hold else { continue };
            let key = (record.id.number(), hold.fence.number());
            let until = self.until.entry(key).or_insert(hold.until);
            *until = hold.until.max(*until);
            let fence = hold.fence.number();
            let key = record.content.event().and_then(Event::key);
            if let Some(key) = key
                && *fences.entry(key.to_owned()).or_insert(fence) != fence
            {
                self.torn_keys.insert(key.to_owned());
            }
        }
        // The store is read before the receiver: an event that the store shows as done must have
        // been received by then.
        let done = Filter {
            state: Some(State::Done),
            ..Filter::default()
        };
        let done = tenure.list(&done, 100).await?.records;
        receiver.read();
        let done = done.iter().map(|record| record.id.number());
        let missing = done.filter(|id| !receiver.ids.contains(id));
        self.too_soon.extend(missing);
        self.looks += 1;
        Ok(())
    }
}

/// Returns true if the worker has published an event and still holds it. False if the store does
/// not answer.
pub(super) async fn has_published(world: &World, tenure: &Tenure, worker: &str) -> bool {
    let Ok(page) = tenure.list(&claimed(), Filter::PAGE_MAX).await else {
        return false;
    };
    let mut receiver = Receiver::new(world);
    receiver.read();
    page.records.iter().any(|record| {
        let is_received = |fence| {
            let mut effects = receiver.effects.iter();
            effects.any(|it| it.id == record.id.number() && it.fence == fence)
        };
        held_by(record, worker).is_some_and(is_received)
    })
}

/// The fence under which the worker holds the item, if its lease has not ended.
pub(super) fn held_by(record: &Record, worker: &str) -> Option<i64> {
    let hold = record.hold.as_ref()?;
    let is_held = process_of(&hold.holder) == worker && hold.until > now();
    is_held.then(|| hold.fence.number())
}

/// Items that workers hold.
fn claimed() -> Filter {
    Filter {
        state: Some(State::Claimed),
        ..Filter::default()
    }
}

/// The receiver's files.
pub(super) struct Receiver {
    files: [(PathBuf, u64); 2],
    pub(super) effects: Vec<Effect>,
    ids: BTreeSet<Id>,
}

impl Receiver {
    pub(super) fn new(world: &World) -> Self {
        Self {
            files: ["lines.jsonl", "exec.jsonl"].map(|name| (world.place.path(name), 0)),
            effects: Vec::new(),
            ids: BTreeSet::new(),
        }
    }

    /// Reads the complete lines since the last call.
    pub(super) fn read(&mut self) {
        for (path, offset) in &mut self.files {
            let Ok(mut file) = File::open(path) else {
                continue;
            };
            file.seek(SeekFrom::Start(*offset)).unwrap();
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            let whole = bytes.iter().rposition(|byte| *byte == b'\n');
            bytes.truncate(whole.map_or(0, |last| last + 1));
            *offset += u64::try_from(bytes.len()).unwrap();
            // A kill may have left the last line incomplete; that line is ignored.
            let lines = bytes.split(|byte| *byte == b'\n');
            self.effects.extend(lines.filter_map(effect));
        }
        self.ids = self.effects.iter().map(|effect| effect.id).collect();
    }
}

fn effect(line: &[u8]) -> Option<Effect> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    Some(Effect {
        id: line.get("id")?.as_i64()?,
        event_id: line.get("event_id")?.as_str()?.parse().ok(),
        fence: line.get("fence")?.as_i64()?,
        attempt: usize::try_from(line.get("attempt")?.as_u64()?).ok(),
    })
}
