//! A hand-written worker of an application: this test program, started again as a separate process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tenure_nemesis::notes::note;
use tenure_nemesis::{Process, argument};
use tokio::time::sleep;

use super::scene::{CHUNKS, PART_MATRIX, Scene, WORK, fails, part_hash};
use super::side::Side;
use super::statements::OF_CHUNKS;
use crate::program::Place;

/// Delay after an empty claim. Each claim is a write, and SQLite has one writer.
const PAUSE: Duration = Duration::from_millis(100);

/// The command of a worker, which runs until it is killed.
pub(super) fn command(scene: &Scene, place: &Place) -> Command {
    let log = place.path("log");
    let argument = format!("{} {} {}", scene.name, place.url, log.display());
    let name = "crash::raw_sql::worker::a_worker_that_was_written_by_hand";
    Process::test(name, &argument)
}

/// Runs in the started process; does nothing without an argument.
#[tokio::test]
async fn a_worker_that_was_written_by_hand() {
    let Some(argument) = argument() else {
        return;
    };
    let parts: Vec<&str> = argument.split(' ').collect();
    let me = format!("hand-{}", std::process::id());
    let worker = Worker {
        scene: Scene::named(parts[0]),
        side: Side::open(parts[1]).await,
        log: PathBuf::from(parts[2]),
        named: format!("'{me}'"),
        me,
    };
    loop {
        if worker.scene.is_of_parts() {
            worker.part().await;
        } else {
            worker.turn().await;
        }
    }
}

struct Worker {
    scene: Scene,
    side: Side,
    log: PathBuf,
    me: String,
    /// The worker's name as an SQL literal.
    named: String,
}

impl Worker {
    fn note(&self, word: &str, thing: &str) {
        note(Path::new(&self.log), word, thing, &self.me);
    }

    async fn change(&self, text: &str, values: &[(&str, &str)]) -> u64 {
        let values = [self.scene.renamed, values].concat();
        loop {
            match self.side.change(text, &values).await {
                Ok(rows) => return rows,
                // Two workers that recover many rows at the same time may deadlock.
                Err(why) if why.contains("deadlock") => {}
                Err(why) => panic!("{why}"),
            }
        }
    }

    /// Claims available rows, works on them and settles them.
    async fn turn(&self) {
        let run = &self.scene.statements;
        let values = [("$worker_id", &*self.named), ("$1", &*self.named)];
        if let Some(recover) = run.recover {
            self.change(recover, &[]).await;
        }
        let values = [self.scene.renamed, &values[..]].concat();
        let rows = self.side.keys(run.claim, &values).await.unwrap();
        if rows.is_empty() {
            sleep(PAUSE).await;
        }
        for id in rows {
            let thing = format!("row-{id}");
            self.note("begin", &thing);
            let is_mine = if self.scene.has_chunks {
                self.chunks(id).await
            } else {
                sleep(WORK / 2).await;
                let is_mine = self.heartbeat(id).await;
                sleep(WORK / 2).await;
                is_mine
            };
            if !is_mine {
                self.note("left", &thing);
                continue;
            }
            self.note("end", &thing);
            let id_text = id.to_string();
            let values = [
                ("$job_id", &*id_text),
                ("$error", "'failed by hand'"),
                ("$1", &*id_text),
                ("$2", &*self.named),
            ];
            let end = run.fail.filter(|_| fails(id)).unwrap_or(run.complete);
            self.change(end, &values).await;
        }
    }

    /// Returns true if the worker still holds the row.
    async fn heartbeat(&self, id: i64) -> bool {
        let Some(heartbeat) = self.scene.statements.heartbeat else {
            return true;
        };
        let id = id.to_string();
        let values = [("$job_id", &*id), ("$worker_id", &*self.named)];
        self.change(heartbeat, &values).await == 1
    }

    /// Works on one unfinished chunk without a job. The chunk is chosen at random, because Tenure's
    /// workers hold the first ones.
    async fn part(&self) {
        let ask = "select cast(id as text) from sync_checkpoints
                   where last_synced_at is null and completed_at is null
                   order by random() limit 10";
        for id in self.side.lines(ask).await {
            let (hash, thing) = (part_hash(&id), format!("part-{id}"));
            if self.chunk(PART_MATRIX, &hash, &thing).await.is_some() {
                return;
            }
        }
        sleep(PAUSE).await;
    }

    /// Works through the chunks of a job; returns true if the worker still holds the job.
    async fn chunks(&self, job: i64) -> bool {
        let ask = format!("select matrix_id from tenure_jobs where id = {job}");
        let matrix = self.side.lines(&ask).await.remove(0);
        for name in CHUNKS {
            let hash = format!("{matrix}.{name}");
            loop {
                if !self.heartbeat(job).await {
                    return false;
                }
                let thing = format!("chunk-{hash}");
                match self.chunk(&matrix, &hash, &thing).await {
                    Some(true) => break,
                    Some(false) => {}
                    None => sleep(PAUSE).await,
                }
            }
        }
        self.heartbeat(job).await
    }

    /// Works on a chunk. Returns true if it is done, false if its lease was lost, and `None` if
    /// another worker holds it.
    async fn chunk(&self, matrix: &str, hash: &str, thing: &str) -> Option<bool> {
        let [matrix, quoted] = [matrix, hash].map(|name| format!("'{name}'"));
        let values = [
            ("$worker_id", &*self.named),
            ("$matrix_id", &*matrix),
            ("$chunk_hash", &*quoted),
            ("$hash", &*quoted),
            ("$rows", "5"),
        ];
        let all = [self.scene.renamed, &values[..]].concat();
        match self.side.keys(OF_CHUNKS.claim, &all).await {
            Ok(rows) if rows.is_empty() => return None,
            Ok(_) => {}
            // The table refuses to reopen a chunk that is done for good.
            Err(why) if why.to_lowercase().contains("check constraint") => return Some(true),
            Err(why) => panic!("{why}"),
        }
        let done = "select id from sync_checkpoints
                    where chunk_hash = $hash and completed_at is not null";
        if !self.side.keys(done, &all).await.unwrap().is_empty() {
            // A Tenure worker completed the chunk first. In the specification, a completion is the
            // only way to release a chunk.
            self.change(OF_CHUNKS.complete, &values).await;
            return Some(true);
        }
        self.note("begin", thing);
        sleep(WORK / 2).await;
        if self.change(OF_CHUNKS.heartbeat, &values).await == 0 {
            self.note("left", thing);
            return Some(false);
        }
        sleep(WORK / 2).await;
        self.note("end", thing);
        assert_eq!(self.change(OF_CHUNKS.complete, &values).await, 1);
        Some(true)
    }
}
