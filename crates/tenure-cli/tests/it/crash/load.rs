//! The load of a run: a producer that notes what it was told, and a watch that looks into the store
//! and at the receiver while everything runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::{Enqueued, Event, Filter, State, Tenure, Timestamp};
use tokio::time::sleep;

use super::TERM;
use super::history::{Id, Receipt, Serial};
use super::nemesis::Dice;
use super::world::World;

/// Between two enqueues.
const PACE: Duration = Duration::from_millis(100);
/// Between two looks of the watch.
const LOOK: Duration = Duration::from_millis(100);
/// The topics, by which publisher takes them; work that takes its time is what kills hit.
const TOPICS: [&str; 3] = ["quick", "slow", "slow"];

/// What is enqueued.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// One to three events at a time; half of them under one of twenty keys.
    Mixed,
    /// Six at a time, of brisk work, under four keys: more than one at a time of a key could take,
    /// so that claims take runs.
    Runs,
    /// One at a time; half of them under one of six keys.
    Owed,
}

/// An event to be: its topic and its key.
pub(super) type Piece = (&'static str, Option<String>);

impl Load {
    /// The term of leases under it. A claim takes runs as far as they are started within a tenth of
    /// the term, also on a busy machine.
    pub(super) fn term(self) -> Duration {
        match self {
            Self::Mixed | Self::Owed => TERM,
            Self::Runs => 2 * TERM,
        }
    }

    fn draw(self, dice: &mut Dice) -> Vec<Piece> {
        let key = |number: usize| Some(format!("key-{number}"));
        match self {
            Self::Mixed => {
                let number = 1 + dice.below(3);
                let piece = |_| match dice.below(40) {
                    // One file of the receiver each: in two of them there is no order.
                    nth @ 0..20 => (["quick", "slow"][nth % 2], key(nth)),
                    _ => (*dice.pick(&TOPICS), None),
                };
                (0..number).map(piece).collect()
            }
            Self::Runs => (0..6).map(|_| ("brisk", key(dice.below(4)))).collect(),
            Self::Owed => match dice.below(12) {
                nth @ 0..6 => vec![("keyed", key(nth))],
                _ => vec![("plain", None)],
            },
        }
    }
}

/// What the producer was told.
#[derive(Debug, Default)]
pub(super) struct Intake {
    next: Serial,
    pub(super) written: BTreeMap<Serial, Id>,
    pub(super) unknown: BTreeSet<Serial>,
}

impl Intake {
    /// Enqueues for as long as `is_on`.
    pub(super) async fn run(
        &mut self,
        tenure: &Tenure,
        (load, seed): (Load, u64),
        is_on: &AtomicBool,
    ) {
        let mut dice = Dice::new(seed, "load");
        while is_on.load(Ordering::Relaxed) {
            self.enqueue(tenure, &load.draw(&mut dice)).await;
            sleep(PACE).await;
        }
    }

    /// Enqueues these, all or none.
    pub(super) async fn enqueue(&mut self, tenure: &Tenure, pieces: &[Piece]) {
        let serials: Vec<Serial> = (self.next..).take(pieces.len()).collect();
        self.next += u64::try_from(pieces.len()).unwrap();
        let event = |((topic, key), serial): (&Piece, &Serial)| {
            let event = Event::new(topic, serial).unwrap();
            match key {
                Some(key) => event.key(key).unwrap(),
                None => event,
            }
        };
        let events: Vec<Event> = pieces.iter().zip(&serials).map(event).collect();
        match tenure.enqueue_all(&events).await {
            Ok(answers) => {
                let ids = answers.into_iter().map(Enqueued::id);
                let ids = ids.map(tenure::ItemId::number);
                self.written.extend(serials.into_iter().zip(ids));
            }
            // It may have been written, or not.
            Err(error) if error.is_transient() => self.unknown.extend(serials),
            Err(error) => panic!("an enqueue failed for good: {error}"),
        }
    }
}

/// What was seen while the run went on.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// The latest end of each hold.
    pub(super) until: BTreeMap<(Id, i64), Timestamp>,
    /// What was done before it was received.
    pub(super) unreceived: BTreeSet<Id>,
    /// Keys of which items were held under two leases at one moment.
    pub(super) torn: BTreeSet<String>,
    pub(super) looks: u32,
}

impl Sight {
    /// Looks for as long as `is_on`. What the store does not tell now, it may the next time.
    pub(super) async fn run(&mut self, tenure: &Tenure, world: &World, is_on: &AtomicBool) {
        let mut receiver = Receiver::new(world);
        while is_on.load(Ordering::Relaxed) {
            drop(self.look(tenure, &mut receiver).await);
            sleep(LOOK).await;
        }
    }

    async fn look(
        &mut self,
        tenure: &Tenure,
        receiver: &mut Receiver,
    ) -> Result<(), tenure::StoreError> {
        let of = |state| Filter {
            state: Some(state),
            ..Filter::default()
        };
        let mut fences: BTreeMap<String, i64> = BTreeMap::new();
        // The records of a page are read in one snapshot: this is exact, whatever the stamps say.
        for record in tenure.list(&of(State::Claimed), 1000).await?.records {
            let Some(hold) = record.hold else { continue };
            let key = (record.id.number(), hold.fence.number());
            let until = self.until.entry(key).or_insert(hold.until);
            *until = hold.until.max(*until);
            let fence = hold.fence.number();
            let key = record.content.event().and_then(Event::ordering_key);
            if let Some(key) = key
                && *fences.entry(key.to_owned()).or_insert(fence) != fence
            {
                self.torn.insert(key.to_owned());
            }
        }
        // The store first, then the receiver: what is done by now was received before.
        let done = tenure.list(&of(State::Done), 100).await?.records;
        receiver.read();
        let done = done.iter().map(|record| record.id.number());
        let missing = done.filter(|id| !receiver.ids.contains(id));
        self.unreceived.extend(missing);
        self.looks += 1;
        Ok(())
    }
}

/// The receiver's files.
pub(super) struct Receiver {
    files: [(PathBuf, u64); 2],
    pub(super) receipts: Vec<Receipt>,
    ids: BTreeSet<Id>,
}

impl Receiver {
    pub(super) fn new(world: &World) -> Self {
        Self {
            files: ["lines.jsonl", "exec.jsonl"].map(|name| (world.place.path(name), 0)),
            receipts: Vec::new(),
            ids: BTreeSet::new(),
        }
    }

    /// Reads what has come since the last time, whole lines only.
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
            // What was left incomplete by a kill is no receipt.
            let lines = bytes.split(|byte| *byte == b'\n');
            self.receipts.extend(lines.filter_map(receipt));
        }
        self.ids = self.receipts.iter().map(|receipt| receipt.id).collect();
    }
}

fn receipt(line: &[u8]) -> Option<Receipt> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    Some(Receipt {
        id: line.get("id")?.as_i64()?,
        event_id: line.get("event_id")?.as_str()?.parse().ok()?,
        fence: line.get("fence")?.as_i64()?,
        attempt: usize::try_from(line.get("attempt")?.as_u64()?).ok()?,
    })
}
