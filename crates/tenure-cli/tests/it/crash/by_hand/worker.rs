//! A worker that an application wrote by hand, as a process of its own: this test program again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::sleep;

use super::history::note;
use super::scene::{CHUNKS, PART_MATRIX, Scene, WORK, fails, part_hash};
use super::side::Side;
use super::statements::OF_CHUNKS;
use crate::program::Place;

/// Until it asks again when there was nothing to claim. Each question is a write, and in SQLite
/// there is one writer.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts one; it works until it is killed.
pub(super) fn start(scene: &Scene, place: &Place) -> Child {
    let order = format!(
        "order={} {} {}",
        scene.name,
        place.url,
        place.path("log").display()
    );
    let name = "crash::by_hand::worker::a_worker_that_was_written_by_hand";
    let said = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(place.path("hands.log"))
        .unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", &order])
        .stdin(Stdio::null())
        .stdout(said.try_clone().unwrap())
        .stderr(said)
        .spawn()
        .unwrap()
}

/// The other half of the tests: without an order it has nothing to do.
#[tokio::test]
async fn a_worker_that_was_written_by_hand() {
    let order = std::env::args().find_map(|arg| arg.strip_prefix("order=").map(str::to_owned));
    let Some(order) = order else {
        return;
    };
    let parts: Vec<&str> = order.split(' ').collect();
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
    /// Its name as a value in a statement.
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
                // Two that put back many rows at once may be in each other's way.
                Err(why) if why.contains("deadlock") => {}
                Err(why) => panic!("{why}"),
            }
        }
    }

    /// Claims what there is, works on it, and says how it ended.
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

    /// Whether the row is its own yet.
    async fn heartbeat(&self, id: i64) -> bool {
        let Some(heartbeat) = self.scene.statements.heartbeat else {
            return true;
        };
        let id = id.to_string();
        let values = [("$job_id", &*id), ("$worker_id", &*self.named)];
        self.change(heartbeat, &values).await == 1
    }

    /// Does one of the chunks that nobody has done, without a job: any, for those at the head of
    /// the line are in the hands of ours.
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

    /// Works through the chunks of a job; whether the job is its own yet.
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

    /// Whether it is done; nothing if somebody else has it.
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
            // The table does not let go of what is done for good.
            Err(why) if why.to_lowercase().contains("check constraint") => return Some(true),
            Err(why) => panic!("{why}"),
        }
        let done = "select id from sync_checkpoints
                    where chunk_hash = $hash and completed_at is not null";
        if !self.side.keys(done, &all).await.unwrap().is_empty() {
            // One of ours was quicker; the specification knows no other way to let go of it.
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
