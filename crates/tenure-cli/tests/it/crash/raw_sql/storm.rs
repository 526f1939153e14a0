//! A run with workers of both kinds on one table; workers are killed in the middle of a row.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_nemesis::notes::{Ends, Notes, note, note_at};
use tenure_nemesis::{History, POLL, Process, now};

use super::scene::{Scene, part_hash};
use super::side::{Side, TERM};
use super::statements::OF_CHUNKS;
use super::worker;
use crate::program::Place;

/// Number of hand-written statements that take work from a Tenure worker.
const ROBBERIES: usize = 4;
/// Time to wait for the report of a refusal once a renewal has failed or another lease was lost.
const REPORT: Duration = Duration::from_secs(5);
/// Timeout of a wait.
const LONGEST: Duration = Duration::from_mins(3);

/// Log lines in which a Tenure worker reports the loss of a lease.
const LOSSES: [&str; 4] = [
    "a settle was refused",
    "lost a lease",
    "gave up a settle",
    "released a claim",
];

/// A worker of either kind, with the name that the notes use.
struct Seat {
    process: Process,
    is_ours: bool,
    /// Number of rows and chunks that hand-written statements took from this worker.
    robberies: usize,
}

impl Seat {
    /// Number of the worker's log lines that contain all of these words.
    fn reports(&self, words: &[&str]) -> usize {
        let log = self.process.output();
        let lines = log.lines();
        lines
            .filter(|line| words.iter().all(|word| line.contains(word)))
            .count()
    }

    /// Number of refused renewals that the worker reported.
    fn refused_renewals(&self) -> usize {
        self.reports(&["lost a lease", "=\"refused\""])
    }

    fn losses(&self) -> usize {
        let log = self.process.output();
        let is_loss = |line: &&str| LOSSES.iter().any(|words| line.contains(words));
        log.lines().filter(is_loss).count()
    }
}

/// A hand-written statement, without a token, that takes work from a Tenure worker.
struct Robbery {
    /// Prefix of the names of the rows or chunks that the statement takes.
    prefix: &'static str,
    text: &'static str,
    /// Selects the row or chunk if a Tenure worker holds it.
    held: &'static str,
    /// The resulting state, if it is final.
    end: Option<&'static str>,
}

pub(super) struct Storm<'a> {
    scene: Scene,
    place: &'a Place,
    side: Side,
    seats: Vec<Seat>,
    ends: Ends,
    rows: i64,
    /// Rows that hand-written statements settled, with their states.
    by_hand: BTreeMap<String, &'static str>,
}

impl<'a> Storm<'a> {
    /// Starts two hand-written workers, and then two workers of Tenure.
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
            by_hand: BTreeMap::new(),
        };
        storm.scene.make(&storm.side).await;
        storm.top_up().await;
        for is_ours in [false, false, true, true] {
            if is_ours && storm.seats.len() == 2 {
                storm.scene.adopt(place);
            }
            storm.seats.push(storm.seat(is_ours));
        }
        storm
    }

    fn seat(&self, is_ours: bool) -> Seat {
        let mut process = if is_ours {
            let name = format!("ours-{}", now().as_micros());
            let mut command = self.place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
            command
                // The shell of the commands finds its programs in these folders.
                .env("PATH", "/usr/bin:/bin")
                .env("NAMED", &name)
                .args(self.scene.ours());
            let mut process =
                Process::start(&mut command, &self.place.path(&format!("{name}.log")));
            process.name = name;
            process
        } else {
            let mut command = worker::command(&self.scene, self.place);
            Process::start(&mut command, &self.place.path("hands.log"))
        };
        if !is_ours {
            process.name = format!("hand-{}", process.id());
        }
        Seat {
            process,
            is_ours,
            robberies: 0,
        }
    }

    /// Records a worker that reported more losses than hand-written statements caused. A busy
    /// machine may have delayed a renewal; the work is then repeated.
    fn excuse(&self, seat: &Seat) {
        if seat.is_ours && seat.losses() > seat.robberies {
            note(&self.log(), "stalled", "-", &seat.process.name);
        }
    }

    fn log(&self) -> PathBuf {
        self.place.path("log")
    }

    async fn count(&self, ask: &str) -> i64 {
        self.side.lines(ask).await[0].parse().unwrap()
    }

    /// Adds rows when few are left, so that every worker finds work.
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

    /// Returns the open work of a worker, that with this prefix first; nothing if no open work has
    /// this prefix.
    fn begun(&self, seat: usize, prefix: &str) -> Vec<(String, String)> {
        let mut begun = Notes::read(&self.log()).open(&self.seats[seat].process.name);
        begun.sort_by_key(|(thing, _)| !thing.starts_with(prefix));
        let first = begun.first();
        let is_any = first.is_some_and(|(thing, _)| thing.starts_with(prefix));
        if is_any { begun } else { Vec::new() }
    }

    /// Kills a worker in the middle of a row, or of a chunk if there are any, and starts another.
    /// The worker is paused first, so that it cannot settle before the kill.
    async fn kill(&mut self, nth: usize) {
        let prefix = self.middle();
        let start = now();
        let at = loop {
            // The other workers may have finished all rows before this worker got one.
            self.top_up().await;
            let process = &self.seats[nth].process;
            if !self.begun(nth, prefix).is_empty() {
                process.pause();
                let at = now();
                if !self.begun(nth, prefix).is_empty() {
                    break at;
                }
                process.resume();
            }
            let is_late = now().since(start) > LONGEST;
            assert!(
                !is_late,
                "{} never began: {}",
                process.name,
                process.output()
            );
            // Nothing notifies the test of new notes, so it polls.
            tokio::time::sleep(POLL / 2).await;
        };
        self.excuse(&self.seats[nth]);
        let log = self.log();
        let seat = &mut self.seats[nth];
        // From the pause on, the worker cannot report that its command has finished.
        note_at(&log, "killed", "-", &seat.process.name, at);
        seat.process.kill();
        let is_ours = seat.is_ours;
        self.seats[nth] = self.seat(is_ours);
        self.look().await;
    }

    fn middle(&self) -> &'static str {
        if self.scene.has_chunks {
            "chunk-"
        } else {
            self.scene.prefix()
        }
    }

    /// Takes work from a Tenure worker by a statement without a token, and waits until the worker
    /// reports the refusal. On a busy machine the worker may have lost the lease before; then it
    /// reports nothing.
    async fn rob(&mut self, nth: usize, how: &Robbery) {
        let lapses = |seat: &Seat| seat.reports(&["a renewal failed"]) + seat.losses();
        let start = now();
        loop {
            self.top_up().await;
            let (before, refused) = {
                let seat = &self.seats[nth];
                (lapses(seat), seat.refused_renewals())
            };
            let Some(taken) = self.taken(nth, how).await else {
                let is_late = now().since(start) > LONGEST;
                assert!(
                    !is_late,
                    "nothing was held: {}",
                    self.seats[nth].process.output()
                );
                tokio::time::sleep(POLL / 2).await;
                continue;
            };
            let mut lost_at = None;
            while lost_at.is_none_or(|at| now().since(at) < REPORT) {
                if self.is_refused(nth, &taken, refused) {
                    return;
                }
                if lost_at.is_none() && lapses(&self.seats[nth]) != before {
                    lost_at = Some(now());
                }
                let is_late = now().since(start) > LONGEST;
                assert!(!is_late, "{taken:?}: {}", self.seats[nth].process.output());
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// Returns true if the worker or its command has reported the refusal of this row or chunk.
    fn is_refused(&self, nth: usize, taken: &(String, String), before: usize) -> bool {
        if taken.0.starts_with("chunk-") {
            return Notes::read(&self.log()).refused.contains(taken);
        }
        let (_, id) = taken.0.split_once('-').unwrap();
        let is_refused = |line: &str| {
            let mut words = line.split([' ', '=', '"']);
            line.contains("a settle was refused") && words.any(|word| word == id)
        };
        let seat = &self.seats[nth];
        seat.refused_renewals() > before || seat.process.output().lines().any(is_refused)
    }

    /// Runs the statement if the worker has begun a matching row or chunk and still holds it, in a
    /// transaction that locks the row or chunk. Returns the row or chunk and its worker.
    async fn taken(&mut self, nth: usize, how: &Robbery) -> Option<(String, String)> {
        let taken = self.begun(nth, how.prefix).first().cloned()?;
        let id = taken.0.strip_prefix(how.prefix).unwrap();
        let hash = match how.prefix {
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
        let is_held = held.len() == 1 && self.begun(nth, how.prefix).contains(&taken);
        if is_held {
            assert_eq!(self.side.change(how.text, &values).await, Ok(1));
            note(&self.log(), "robbed", &taken.0, &taken.1);
            self.seats[nth].robberies += 1;
        }
        self.side.make("commit").await;
        if let Some(end) = how.end.filter(|_| is_held) {
            note(&self.log(), "final", &taken.0, "-");
            self.by_hand.insert(taken.0.clone(), end);
        }
        self.look().await;
        is_held.then_some(taken)
    }

    /// The hand-written statements that take rows and chunks from Tenure's workers.
    fn robberies(&self) -> Vec<Robbery> {
        let of_chunks = Robbery {
            prefix: self.middle(),
            text: OF_CHUNKS.complete,
            held: "select id from sync_checkpoints
                   where chunk_hash = $hash and locked_by not like 'hand-%'",
            end: None,
        };
        if self.scene.is_of_parts() {
            return vec![of_chunks];
        }
        let Some(fail) = self.scene.statements.fail else {
            // The statements of the outbox compare the token, so they cannot take work.
            return Vec::new();
        };
        let of_rows = [
            (self.scene.statements.complete, "completed"),
            (fail, "failed"),
        ];
        let of_rows = of_rows.map(|(text, end)| Robbery {
            prefix: "row-",
            text,
            held: "select id from sync_jobs
                   where id = $job_id and locked_by not like 'hand-%'",
            end: Some(end),
        });
        let of_chunks = self.scene.has_chunks.then_some(of_chunks);
        of_rows.into_iter().chain(of_chunks).collect()
    }

    /// Kills workers of both kinds in turn, and takes work from Tenure's workers.
    pub(super) async fn rage(&mut self, kills: usize) {
        for nth in 0..kills {
            // Workers 0 and 1 are hand-written; 2 and 3 are Tenure's.
            self.kill([0, 2, 1, 3][nth % 4]).await;
        }
        let ways = self.robberies();
        for (nth, how) in ways.iter().cycle().take(ROBBERIES).enumerate() {
            self.rob(2 + nth % 2, how).await;
        }
    }

    /// Breaks two rules: settles one row a second time, and inserts a settled row that no worker
    /// has worked on. The workers of this run already take rows that others hold.
    pub(super) async fn plant(&mut self) {
        let start = now();
        while self.ends.current.len() < 10 {
            assert!(now().since(start) < LONGEST, "too few are settled");
            tokio::time::sleep(POLL).await;
            self.look().await;
        }
        let ended = self.ends.current.keys().next().unwrap();
        let id = ended.strip_prefix("row-").unwrap().to_owned();
        let complete = self.scene.statements.complete;
        let ended = self.side.change(complete, &[("$job_id", &id)]).await;
        assert_eq!(ended, Ok(1));
        let undone = "insert into sync_jobs (completed_at) values (NOW())";
        assert_eq!(self.side.change(undone, &[]).await, Ok(1));
    }

    /// Waits until all work is settled; returns the history and the number of kills.
    pub(super) async fn finish(&mut self) -> (History, usize) {
        let start = now();
        loop {
            self.look().await;
            let (left, held) = (self.count(self.scene.left).await, self.held().await);
            if left == 0 && held.is_empty() {
                break;
            }
            assert!(
                now().since(start) < LONGEST,
                "{left} rows are stuck, {held:?}"
            );
            tokio::time::sleep(5 * POLL).await;
        }
        for seat in &self.seats {
            self.excuse(seat);
        }
        self.seats.clear();
        self.look().await;
        let notes = Notes::read(&self.log());
        (notes.history(self.ends.log.clone()), notes.kills.len())
    }

    /// Chunks that are still held or not done.
    async fn held(&self) -> Vec<String> {
        if !self.scene.has_chunks {
            return Vec::new();
        }
        let ask = "select chunk_hash from tenure_checkpoints
                   where last_synced_at is null or locked_until is not null";
        self.side.lines(ask).await
    }

    /// Asserts that every row exists and has its required final state.
    pub(super) fn expect_ends(&self) {
        for id in 1..=self.rows {
            let thing = format!("{}{id}", self.scene.prefix());
            let end = self.ends.current.get(&thing);
            let end = end.and_then(|end| end.split(' ').next());
            let by_hand = self.by_hand.get(&thing).copied();
            let expected = by_hand.unwrap_or(self.scene.end_of(id));
            assert_eq!(end, Some(expected), "{thing}");
        }
    }
}
