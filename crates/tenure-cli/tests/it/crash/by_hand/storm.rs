//! A run: workers of both kinds on one table, killed in the middle of a row.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::time::{Instant, sleep};

use super::super::{now, say};
use super::history::{Ends, History, Summary, Violation, note, open};
use super::scene::{Scene, part_hash};
use super::side::{Side, TERM};
use super::statements::OF_CHUNKS;
use super::worker;
use crate::program::Place;

/// Kills of a run, of theirs and of ours in turn.
pub(super) const KILLS: usize = 8;
/// How often somebody ends by hand what a worker of ours holds.
const ENDED_BY_HAND: usize = 4;
/// How often a fact is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// What has to come about comes about by then, also on a busy machine.
const LONGEST: Duration = Duration::from_mins(1);

/// What a worker of ours says when it no longer has what it held.
const LOSSES: [&str; 4] = [
    "a settle was refused",
    "lost a hold",
    "gave up a settle",
    "gave back a claim",
];

/// A worker's process; killed with the value.
struct Seat {
    child: Child,
    is_ours: bool,
    /// How it is called in the history.
    who: String,
    said: PathBuf,
    /// How often something was taken from it by hand.
    cuts: usize,
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

    /// How often it was told at a renewal that it no longer has what it held.
    fn refused_holds(&self) -> usize {
        let told = self.told();
        let is_refused =
            |line: &&str| line.contains("lost a hold") && line.contains("=\"refused\"");
        told.lines().filter(is_refused).count()
    }

    /// How often it has told that it no longer has what it held.
    fn losses(&self) -> usize {
        let told = self.told();
        let is_loss = |line: &&str| LOSSES.iter().any(|words| line.contains(words));
        told.lines().filter(is_loss).count()
    }
}

/// What somebody does by hand to what a worker of ours holds: a statement without a token.
struct Interference {
    /// What the name of the thing begins with.
    what: &'static str,
    text: &'static str,
    /// The row, if one of ours holds it.
    held: &'static str,
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
}

impl<'a> Storm<'a> {
    /// Their own workers run already when ours come.
    pub(super) async fn begin(scene: Scene, place: &'a Place) -> Self {
        place.run(&["migrate"]).succeeded();
        let config = format!("[lease]\nterm = \"{TERM}\"\n[retry]\nmax_crashes = 50\n");
        place.write("tenure.toml", &config);
        let mut storm = Self {
            scene,
            place,
            side: Side::open(&place.url).await,
            seats: Vec::new(),
            ends: Ends::default(),
            rows: 0,
            by_hand: Vec::new(),
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
                cuts: 0,
            };
        }
        let program = Path::new(env!("CARGO_BIN_EXE_tenure"));
        let who = format!("ours-{}", now().as_micros());
        let said = self.place.path(&format!("{who}.log"));
        let child = self
            .place
            .command(program)
            // The shell of the commands finds its programs there.
            .env("PATH", "/usr/bin:/bin")
            .env("NAMED", &who)
            .args(self.scene.ours())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        Seat {
            who,
            said,
            child,
            is_ours,
            cuts: 0,
        }
    }

    /// Notes that a worker has lost more than was taken from it by hand: on a busy machine it may
    /// not have come to renew. What it was at is then done again.
    fn excuse(&self, seat: &Seat) {
        if seat.is_ours && seat.losses() > seat.cuts {
            note(&self.log(), "paused", "-", &seat.who);
        }
    }

    fn log(&self) -> PathBuf {
        self.place.path("log")
    }

    async fn count(&self, ask: &str) -> i64 {
        self.side.lines(ask).await[0].parse().unwrap()
    }

    /// Sees to it that there is enough to do, and not ever more.
    async fn top_up(&mut self) {
        let missing = self.scene.rows - self.count(self.scene.free).await;
        if missing > self.scene.rows / 3 {
            self.scene.fill(&self.side, self.rows, missing).await;
            self.rows += missing;
        }
    }

    async fn look(&mut self) {
        let lines = self.side.lines(self.scene.ends).await;
        self.ends.look(&lines);
    }

    /// What a worker is at, and as whom, if any of it is of this kind; that is the first.
    fn begun(&self, seat: usize, what: &str) -> Vec<(String, String)> {
        let mut begun = open(&self.log(), &self.seats[seat].who);
        begun.sort_by_key(|(thing, _)| !thing.starts_with(what));
        let is_any = begun
            .first()
            .is_some_and(|(thing, _)| thing.starts_with(what));
        if is_any { begun } else { Vec::new() }
    }

    /// Stops a worker that has begun something of this kind and not ended it; what it is at, and as
    /// whom. It has not told the database of an end, and cannot any more.
    async fn caught(&mut self, nth: usize, what: &str) -> Vec<(String, String)> {
        let start = Instant::now();
        loop {
            // Others may have done everything before it came to its first.
            self.top_up().await;
            let seat = &self.seats[nth];
            if !self.begun(nth, what).is_empty() {
                seat.stop();
                let caught = self.begun(nth, what);
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
            self.scene.prefix()
        }
    }

    /// Kills a worker in the middle of its work and puts another one in its place.
    async fn kill(&mut self, nth: usize) {
        let caught = self.caught(nth, self.middle()).await;
        let log = self.log();
        self.excuse(&self.seats[nth]);
        let seat = &mut self.seats[nth];
        for (thing, who) in caught {
            note(&log, "broken", &thing, &who);
        }
        note(&log, "killed", "-", &seat.who);
        seat.child.kill().unwrap();
        seat.child.wait().unwrap();
        let is_ours = seat.is_ours;
        self.seats[nth] = self.seat(is_ours);
    }

    /// Ends by hand what a worker of ours holds, by its name alone; the worker must tell that it
    /// was refused. One that lost it otherwise, on a busy machine, has nothing to tell.
    async fn interfere(&mut self, nth: usize, how: &Interference) {
        let start = Instant::now();
        let lapses = |seat: &Seat| seat.told().matches("a renewal failed").count();
        loop {
            self.top_up().await;
            let before = lapses(&self.seats[nth]);
            let refused = self.seats[nth].refused_holds();
            let Some(taken) = self.taken_by_hand(nth, how).await else {
                assert!(
                    start.elapsed() < LONGEST,
                    "nothing: {}",
                    self.seats[nth].told()
                );
                sleep(LOOK).await;
                continue;
            };
            while !self.is_refused(nth, &taken, refused) && lapses(&self.seats[nth]) == before {
                let told = self.seats[nth].told();
                assert!(
                    start.elapsed() < LONGEST,
                    "{taken:?} was not refused: {told}"
                );
                sleep(LOOK).await;
            }
            if self.is_refused(nth, &taken, refused) {
                return;
            }
        }
    }

    /// Whether a worker, or its command, has told that it was refused this thing.
    fn is_refused(&self, nth: usize, taken: &(String, String), before: usize) -> bool {
        if taken.0.starts_with("chunk-") {
            let text = fs::read_to_string(self.log()).unwrap();
            return History::read(&text).refused.contains(taken);
        }
        let (_, id) = taken.0.split_once('-').unwrap();
        let is_told = |line: &str| {
            let mut words = line.split([' ', '=', '"']);
            line.contains("a settle was refused") && words.any(|word| word == id)
        };
        if self.seats[nth].refused_holds() > before {
            return true;
        }
        self.seats[nth].told().lines().any(is_told)
    }

    /// Runs the statement if the worker has begun something of the kind, and holds it for as long
    /// as nobody else can change that; what, and who had it.
    async fn taken_by_hand(&mut self, nth: usize, how: &Interference) -> Option<(String, String)> {
        let (thing, who) = self.begun(nth, how.what).first().cloned()?;
        let id = thing.strip_prefix(how.what).unwrap();
        let hash = match how.what {
            "part-" => format!("'{}'", part_hash(id)),
            _ => format!("'{id}'"),
        };
        let values = [
            ("$job_id", id),
            ("$hash", &*hash),
            ("$error", "'stopped by hand'"),
            ("$rows", "3"),
        ];
        let values = [self.scene.renamed, &values[..]].concat();
        self.side.begin().await;
        let held = format!("{} {}", how.held, self.side.locked());
        let held = self.side.keys(&held, &values).await.unwrap();
        let is_at_it = self
            .begun(nth, how.what)
            .contains(&(thing.clone(), who.clone()));
        let is_held = held.len() == 1 && is_at_it;
        if is_held {
            assert_eq!(self.side.change(how.text, &values).await, Ok(1));
            note(&self.log(), "cut", &thing, &who);
            self.seats[nth].cuts += 1;
        }
        self.side.make("commit").await;
        if is_held && how.is_end {
            note(&self.log(), "final", &thing, "-");
            let is_failure = how.text.contains("failed_at");
            let word = if is_failure { "failed" } else { "completed" };
            self.by_hand.push((thing.clone(), word));
        }
        self.look().await;
        is_held.then_some((thing, who))
    }

    /// What can be done by hand to rows that others hold.
    fn interferences(&self) -> Vec<Interference> {
        let of_chunks = Interference {
            what: self.middle(),
            text: OF_CHUNKS.complete,
            held: "select id from sync_checkpoints
                   where chunk_hash = $hash and locked_by not like 'hand-%'",
            is_end: false,
        };
        if self.scene.is_of_parts() {
            return vec![of_chunks];
        }
        let Some(fail) = self.scene.statements.fail else {
            // The statements of the outbox name the token.
            return Vec::new();
        };
        let of_rows = [self.scene.statements.complete, fail].map(|text| Interference {
            what: "row-",
            text,
            held: "select id from sync_jobs
                   where id = $job_id and locked_by not like 'hand-%'",
            is_end: true,
        });
        let of_chunks = self.scene.has_chunks.then_some(of_chunks);
        of_rows.into_iter().chain(of_chunks).collect()
    }

    /// Kills workers of both kinds in turn, and ends by hand what ours hold.
    pub(super) async fn rage(&mut self) {
        for nth in 0..KILLS {
            // 0 and 1 are theirs, 2 and 3 ours.
            self.kill([0, 2, 1, 3][nth % 4]).await;
            self.look().await;
        }
        let ways = self.interferences();
        for (nth, how) in ways.iter().cycle().take(ENDED_BY_HAND).enumerate() {
            self.interfere(2 + nth % 2, how).await;
        }
    }

    /// Does two things that must not be: ends a row that has ended, and one that nobody has
    /// done; workers that take what others hold are there already.
    pub(super) async fn plant(&mut self) {
        let start = Instant::now();
        while self.ends.seen.len() < 10 {
            assert!(start.elapsed() < LONGEST, "nothing is done");
            sleep(LOOK).await;
            self.look().await;
        }
        let ended = self.ends.seen.keys().next().unwrap();
        let id = ended.strip_prefix("row-").unwrap().to_owned();
        let complete = self.scene.statements.complete;
        let ended = self.side.change(complete, &[("$job_id", &id)]).await;
        assert_eq!(ended, Ok(1));
        let undone = "insert into sync_jobs (completed_at) values (NOW())";
        assert_eq!(self.side.change(undone, &[]).await, Ok(1));
    }

    /// Waits until everything has ended, and says what it came to.
    pub(super) async fn finish(&mut self) -> (Vec<Violation>, Summary) {
        let start = Instant::now();
        loop {
            self.look().await;
            let (left, held) = (self.count(self.scene.left).await, self.held().await);
            if left == 0 && held.is_empty() {
                break;
            }
            assert!(start.elapsed() < LONGEST, "{left} rows are stuck, {held:?}");
            sleep(10 * LOOK).await;
        }
        for seat in &self.seats {
            self.excuse(seat);
        }
        self.seats.clear();
        self.look().await;
        let text = fs::read_to_string(self.log()).unwrap();
        let (violations, summary) = History::read(&text).judge(&self.ends);
        let (base, _) = self.place.url.split_once(':').unwrap();
        say(&format!("{} on {base}: {summary:?}", self.scene.name));
        (violations, summary)
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
    pub(super) fn expect_ends(&self) {
        let ended = |id: i64| {
            let thing = format!("{}{id}", self.scene.prefix());
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
