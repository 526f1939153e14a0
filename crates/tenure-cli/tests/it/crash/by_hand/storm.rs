//! A run: workers of both kinds on one table, killed in the middle of a row.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::time::{Instant, sleep};

use super::super::{now, say};
use super::history::{Ends, History, Summary, note, open};
use super::scene::Scene;
use super::side::{Side, TERM};
use super::worker;
use crate::program::Place;

/// Kills of a run, of theirs and of ours in turn.
pub(super) const KILLS: usize = 8;
/// How often somebody ends by hand what a worker of ours holds.
const ENDED_BY_HAND: usize = 4;
/// How often a fact is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// What has to come about comes about by then, also on a busy machine.
const LONGEST: Duration = Duration::from_mins(1);
/// A worker that was stopped in the middle of a statement is not waited for.
const SHORT: Duration = Duration::from_millis(300);

/// A worker's process; killed with the value.
struct Seat {
    child: Child,
    is_ours: bool,
    /// How it is called in the history.
    who: String,
    said: std::path::PathBuf,
}

impl Drop for Seat {
    fn drop(&mut self) {
        // One that has ended cannot be killed any more.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Seat {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it; nothing of it runs any more.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let id = Pid::from_child(&self.child);
        let stopped = waitpid(Some(id), WaitOptions::UNTRACED).unwrap();
        let is_stopped = stopped.is_some_and(|(_, status)| status.stopped());
        assert!(is_stopped, "{} has ended: {}", self.who, self.told());
    }

    fn told(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// How often it has told that somebody else has what it held.
    fn losses(&self) -> usize {
        let told = self.told();
        let is_loss =
            |line: &&str| line.contains("a settle was refused") || line.contains("lost a hold");
        told.lines().filter(is_loss).count()
    }
}

/// What somebody does by hand to what a worker of ours holds: a statement without a token.
struct Interference {
    /// What the name of the thing begins with.
    what: &'static str,
    text: &'static str,
    /// It has ended then.
    is_end: bool,
}

pub(super) struct Storm<'a> {
    scene: Scene,
    place: &'a Place,
    side: Side,
    seats: Vec<Seat>,
    ends: Ends,
    rows: i64,
    /// Rows that somebody ended by hand, and how.
    by_hand: Vec<(String, &'static str)>,
    cuts: usize,
}

impl<'a> Storm<'a> {
    /// Their own workers run already when ours come.
    pub(super) async fn begin(scene: Scene, place: &'a Place) -> Self {
        place.run(&["migrate"]).succeeded();
        let config = format!("[lease]\nterm = \"{TERM}\"\n[retry]\nmax_crashes = 50\n");
        place.write("tenure.toml", &config);
        let side = Side::open(&place.url, SHORT).await;
        let mut storm = Self {
            scene,
            place,
            side,
            seats: Vec::new(),
            ends: Ends::default(),
            rows: 0,
            by_hand: Vec::new(),
            cuts: 0,
        };
        storm.scene.make(&storm.side).await;
        storm.top_up().await;
        for is_ours in [false, false] {
            storm.seats.push(storm.seat(is_ours));
        }
        storm.scene.adopt(place);
        for is_ours in [true, true] {
            storm.seats.push(storm.seat(is_ours));
        }
        storm
    }

    fn seat(&self, is_ours: bool) -> Seat {
        if !is_ours {
            let child = worker::start(&self.scene, self.place);
            return Seat {
                who: format!("hand-{}", child.id()),
                said: self.place.path("hands.log"),
                child,
                is_ours,
            };
        }
        let program = Path::new(env!("CARGO_BIN_EXE_tenure"));
        let said = self.place.path(&format!("ours-{}.log", now().as_micros()));
        let child = self
            .place
            .command(program)
            // The shell of the commands finds its programs there.
            .env("PATH", "/usr/bin:/bin")
            .args(self.scene.ours())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        Seat {
            who: format!("ours-{}", child.id()),
            said,
            child,
            is_ours,
        }
    }

    fn log(&self) -> std::path::PathBuf {
        self.place.path("log")
    }

    async fn left(&self) -> i64 {
        self.side.lines(self.scene.left).await[0].parse().unwrap()
    }

    /// Sees to it that there is enough to do.
    async fn top_up(&mut self) {
        let missing = self.scene.rows - self.left().await;
        // A worker that was stopped may have the file in hand for a moment.
        if missing > 0 {
            self.scene.fill(&self.side, self.rows, missing).await;
            self.rows += missing;
        }
    }

    async fn look(&mut self) {
        let lines = self.side.lines(self.scene.ends).await;
        self.ends.look(&lines);
    }

    /// Stops a worker that has begun something of this kind and not ended it; what, and as whom.
    /// It has not told the database of an end, and cannot any more.
    async fn caught(&self, seat: usize, what: &str) -> Vec<(String, String)> {
        let seat = &self.seats[seat];
        let begun = || -> Vec<_> {
            let open = open(&self.log(), &seat.who);
            open.into_iter()
                .filter(|(thing, _)| thing.starts_with(what))
                .collect()
        };
        let start = Instant::now();
        loop {
            if !begun().is_empty() {
                seat.stop();
                let caught = begun();
                if !caught.is_empty() {
                    return caught;
                }
                seat.signal(Signal::CONT);
            }
            assert!(start.elapsed() < LONGEST, "{}: {}", seat.who, seat.told());
            sleep(LOOK).await;
        }
    }

    /// What a worker is in the middle of when it is killed: of a chunk, where there are any.
    fn middle(&self) -> &'static str {
        if self.scene.has_chunks {
            "chunk-"
        } else {
            "row-"
        }
    }

    /// Kills a worker in the middle of its work and puts another one in its place.
    async fn kill(&mut self, nth: usize) {
        self.caught(nth, self.middle()).await;
        let seat = &mut self.seats[nth];
        note(&self.place.path("log"), "killed", "-", &seat.who);
        seat.child.kill().unwrap();
        seat.child.wait().unwrap();
        let is_ours = seat.is_ours;
        self.seats[nth] = self.seat(is_ours);
    }

    /// Ends by hand what a worker of ours holds, by its name alone; the worker must tell that it
    /// was refused.
    async fn interfere(&mut self, nth: usize, how: &Interference) {
        let start = Instant::now();
        let before = self.seats[nth].losses();
        let refusals = self.refusals();
        loop {
            let (thing, who) = self.caught(nth, how.what).await.remove(0);
            let id = thing.strip_prefix(how.what).unwrap();
            let hash = format!("'{id}'");
            let values = [
                ("$job_id", id),
                ("$hash", &*hash),
                ("$error", "'stopped by hand'"),
                ("$rows", "3"),
            ];
            let values = [self.scene.renamed, &values[..]].concat();
            let changed = self.side.change(how.text, &values).await;
            if changed.is_ok() {
                note(&self.log(), "cut", &thing, &who);
                if how.is_end {
                    note(&self.log(), "final", &thing, "-");
                    let is_failure = how.text.contains("failed_at");
                    let word = if is_failure { "failed" } else { "completed" };
                    self.by_hand.push((thing, word));
                }
            }
            self.look().await;
            self.seats[nth].signal(Signal::CONT);
            match changed {
                Ok(rows) => {
                    assert_eq!(rows, 1);
                    break;
                }
                // It was stopped in the middle of a statement of its own.
                Err(why) => assert!(start.elapsed() < LONGEST, "{why}"),
            }
        }
        self.cuts += 1;
        while self.seats[nth].losses() == before && self.refusals() == refusals {
            let told = self.seats[nth].told();
            assert!(start.elapsed() < LONGEST, "nobody was refused: {told}");
            sleep(LOOK).await;
        }
    }

    fn refusals(&self) -> usize {
        let text = fs::read_to_string(self.log()).unwrap();
        History::read(&text).refusals
    }

    /// What can be done by hand to rows that others hold.
    fn interferences(&self) -> Vec<Interference> {
        let Some(fail) = self.scene.statements.fail else {
            // The statements of the outbox name the token.
            return Vec::new();
        };
        let of_rows = [self.scene.statements.complete, fail].map(|text| Interference {
            what: "row-",
            text,
            is_end: true,
        });
        let of_chunks = Interference {
            what: "chunk-",
            text: super::statements::OF_CHUNKS.complete,
            is_end: false,
        };
        let of_chunks = self.scene.has_chunks.then_some(of_chunks);
        of_rows.into_iter().chain(of_chunks).collect()
    }

    /// Kills workers of both kinds in turn, and ends by hand what ours hold.
    pub(super) async fn rage(&mut self) {
        for nth in 0..KILLS {
            self.top_up().await;
            // 0 and 1 are theirs, 2 and 3 ours.
            self.kill([0, 2, 1, 3][nth % 4]).await;
            self.look().await;
        }
        let ways = self.interferences();
        for (nth, how) in ways
            .iter()
            .cycle()
            .take(ENDED_BY_HAND * usize::from(!ways.is_empty()))
            .enumerate()
        {
            self.top_up().await;
            self.interfere(2 + nth % 2, how).await;
        }
    }

    /// Waits until everything has ended, and says what it came to.
    pub(super) async fn end(mut self) -> Summary {
        let start = Instant::now();
        loop {
            self.look().await;
            let (left, held) = (self.left().await, self.held().await);
            if left == 0 && held.is_empty() {
                break;
            }
            assert!(start.elapsed() < LONGEST, "{left} rows are stuck, {held:?}");
            sleep(20 * LOOK).await;
        }
        self.seats.clear();
        self.look().await;
        let text = fs::read_to_string(self.log()).unwrap();
        let (violations, summary) = History::read(&text).judge(&self.ends);
        say(&format!(
            "{} {}: {summary:?}",
            self.scene.name, self.place.url
        ));
        assert_eq!(violations, []);
        self.expect_ends();
        summary
    }

    /// Chunks that somebody still holds, or that nobody has done.
    async fn held(&self) -> Vec<String> {
        if !self.scene.has_chunks {
            return Vec::new();
        }
        let ask = "select chunk_hash from tenure_checkpoints
                   where last_synced_at is null or locked_until is not null";
        self.side.lines(ask).await
    }

    /// Every row is there and ended as it had to.
    fn expect_ends(&self) {
        let ended = |id: i64| {
            let thing = format!("row-{id}");
            let end = self.ends.seen.get(&thing).map(|end| {
                let word = end.split(' ').next().unwrap();
                word.to_owned()
            });
            let by_hand = self.by_hand.iter().find(|(of, _)| *of == thing);
            let expected = by_hand.map_or(self.scene.end_of(id), |(_, word)| word);
            (thing, end, expected)
        };
        for (thing, end, expected) in (1..=self.rows).map(ended) {
            assert_eq!(end.as_deref(), Some(expected), "{thing}");
        }
    }
}
