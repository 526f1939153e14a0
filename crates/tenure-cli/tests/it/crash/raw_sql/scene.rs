//! The tables of a run, and the workers on them.

use std::time::Duration;

use super::side::{Side, TERM};
use super::statements::{
    CARELESS, OF_JOBS, OF_OUTBOX, OUTBOX, SYNC_CHECKPOINTS, SYNC_JOBS, Statements,
};
use crate::program::Place;

/// Time that a worker spends on a row or a chunk.
pub(super) const WORK: Duration = Duration::from_millis(100);
/// The chunks of every matrix. Tenure's workers complete those of the first half for good, and the
/// others repeatedly. Hand-written workers complete all of them repeatedly.
pub(super) const CHUNKS: [&str; 4] = ["good-1", "good-2", "fresh-1", "fresh-2"];
const MATRICES: i64 = 6;

/// The matrix of the chunks that are rows of an adopted table.
pub(super) const PART_MATRIX: &str = "m";

pub(super) fn part_hash(id: &str) -> String {
    format!("h{id}")
}

/// Returns true if the work on a row fails, in tables whose rows can fail.
pub(super) fn fails(id: i64) -> bool {
    id % 7 == 0
}

/// A table that both kinds of workers work on.
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) table: &'static str,
    /// The preset for adoption; `None` for Tenure's own table.
    preset: Option<&'static str>,
    pub(super) statements: Statements,
    /// Replacements for the table names in the statements.
    pub(super) renamed: &'static [(&'static str, &'static str)],
    pub(super) has_chunks: bool,
    /// Selects a line for each settled row, with its final values.
    pub(super) ends: &'static str,
    /// Counts the rows that are not settled.
    pub(super) left: &'static str,
    /// Counts the rows that no worker of either kind has finished.
    pub(super) free: &'static str,
    /// Number of free rows at the start; the storm adds rows when a third of them is finished.
    pub(super) rows: i64,
}

const ENDED: &str = "select 'row-' || id
       || case when completed_at is null then ' failed' when failed_at is null then ' completed'
               else ' both' end
       || ' ' || coalesce(cast(completed_at as text), '-')
       || ' ' || coalesce(cast(failed_at as text), '-') || ' ' || coalesce(error_message, '-')
       || ' ' || coalesce(locked_by, '-')
from sync_jobs where completed_at is not null or failed_at is not null";

const OWN_ENDED: &str = "select 'row-' || id
       || case when completed_at is null then ' failed' when failed_at is null then ' completed'
               else ' both' end
       || ' ' || coalesce(cast(completed_at as text), '-')
       || ' ' || coalesce(cast(failed_at as text), '-') || ' ' || coalesce(error_message, '-')
       || ' ' || coalesce(locked_by, '-')
from tenure_jobs where completed_at is not null or failed_at is not null
union all
select 'chunk-' || chunk_hash || ' completed ' || cast(completed_at as text)
       || ' ' || row_count || ' ' || cast(last_synced_at as text)
from tenure_checkpoints where completed_at is not null or failed_at is not null";

const PARTS_ENDED: &str = "select 'part-' || id || ' completed ' || cast(completed_at as text)
       || ' ' || coalesce(cast(failed_at as text), '-')
from sync_checkpoints where completed_at is not null or failed_at is not null";

const JOBS_LEFT: &str = "select cast(count(*) as text) from sync_jobs
where completed_at is null and failed_at is null";
const OUTBOX_LEFT: &str = "select cast(count(*) as text) from outbox
where status in ('PENDING', 'PROCESSING')";
const OWN_LEFT: &str = "select cast(count(*) as text) from tenure_jobs
where completed_at is null and failed_at is null";

impl Scene {
    /// The adopted table of the specification's jobs.
    pub(super) fn sync_jobs() -> Self {
        Self {
            name: "sync_jobs",
            table: "sync_jobs",
            preset: Some("sync_jobs"),
            statements: OF_JOBS,
            renamed: &[],
            has_chunks: false,
            ends: ENDED,
            left: JOBS_LEFT,
            free: JOBS_LEFT,
            rows: 150,
        }
    }

    /// The same table with faulty hand-written workers, which take rows that others hold.
    pub(super) fn careless() -> Self {
        let mut scene = Self::sync_jobs();
        scene.name = "careless";
        scene.statements.claim = CARELESS;
        scene.rows = 60;
        scene
    }

    /// The adopted table of the specification's checkpoints. A chunk that a hand-written worker
    /// completed is free again; a chunk that Tenure completed stays completed.
    pub(super) fn sync_checkpoints() -> Self {
        Self {
            name: "sync_checkpoints",
            table: "sync_checkpoints",
            preset: Some("sync_checkpoints"),
            ends: PARTS_ENDED,
            left: "select cast(count(*) as text) from sync_checkpoints
                   where completed_at is null or locked_until is not null",
            free: "select cast(count(*) as text) from sync_checkpoints
                   where completed_at is null and last_synced_at is null",
            rows: 80,
            ..Self::sync_jobs()
        }
    }

    /// An adopted outbox with the status values of its specification.
    pub(super) fn outbox() -> Self {
        Self {
            name: "outbox",
            table: "outbox",
            preset: Some("outbox_processing"),
            statements: OF_OUTBOX,
            renamed: &[],
            has_chunks: false,
            ends: "select 'row-' || id || ' ' || lower(status) from outbox
                   where status not in ('PENDING', 'PROCESSING')",
            left: OUTBOX_LEFT,
            free: OUTBOX_LEFT,
            rows: 150,
        }
    }

    /// Tenure's own jobs and checkpoints.
    pub(super) fn own() -> Self {
        Self {
            name: "own",
            table: "tenure_jobs",
            preset: None,
            statements: OF_JOBS,
            renamed: &[
                ("sync_jobs", "tenure_jobs"),
                ("sync_checkpoints", "tenure_checkpoints"),
            ],
            has_chunks: true,
            ends: OWN_ENDED,
            left: OWN_LEFT,
            free: OWN_LEFT,
            rows: 30,
        }
    }

    pub(super) fn named(name: &str) -> Self {
        let all = [
            Self::sync_jobs(),
            Self::careless(),
            Self::sync_checkpoints(),
            Self::outbox(),
            Self::own(),
        ];
        let mut all = all.into_iter();
        all.find(|scene| scene.name == name).unwrap()
    }

    pub(super) fn is_of_parts(&self) -> bool {
        self.table == "sync_checkpoints"
    }

    /// Prefix of the rows' names in the notes.
    pub(super) fn prefix(&self) -> &'static str {
        if self.is_of_parts() { "part-" } else { "row-" }
    }

    fn can_fail(&self) -> bool {
        self.statements.fail.is_some() && !self.is_of_parts()
    }

    /// The required final state of a row, unless a hand-written statement settles the row while a
    /// worker holds it.
    pub(super) fn end_of(&self, id: i64) -> &'static str {
        if self.can_fail() && fails(id) {
            "failed"
        } else {
            "completed"
        }
    }

    pub(super) async fn make(&self, side: &Side) {
        match self.table {
            "sync_jobs" => side.make(SYNC_JOBS).await,
            "sync_checkpoints" => side.make(SYNC_CHECKPOINTS).await,
            "outbox" => side.make(OUTBOX).await,
            _ => {
                // A hand-written claim creates no row, so the application inserts the chunks.
                for matrix in 0..MATRICES {
                    for name in CHUNKS {
                        let row = format!(
                            "insert into tenure_checkpoints (matrix_id, chunk_hash)
                             values ('m{matrix}', 'm{matrix}.{name}')"
                        );
                        side.change(&row, &[]).await.unwrap();
                    }
                }
            }
        }
    }

    /// Inserts this many more rows.
    pub(super) async fn fill(&self, side: &Side, from: i64, rows: i64) {
        let series = format!(
            "with recursive series(n) as
                 (select {from} union all select n + 1 from series where n + 1 < {from} + {rows})"
        );
        let insert = match self.table {
            "sync_checkpoints" => format!(
                "insert into sync_checkpoints (id, matrix_id, chunk_hash)
                 {series} select n + 1, '{PART_MATRIX}', 'h' || (n + 1) from series"
            ),
            "tenure_jobs" => format!(
                "insert into tenure_jobs (kind, matrix_id, payload)
                 {series} select 'sync', 'm' || (n % {MATRICES}), '{{}}' from series"
            ),
            table => format!("insert into {table} (created_at) {series} select NOW() from series"),
        };
        side.change(&insert, &[]).await.unwrap();
    }

    /// Adopts the table, if it is not Tenure's own.
    pub(super) fn adopt(&self, place: &Place) {
        let Some(preset) = self.preset else {
            return;
        };
        place
            .run(&["adopt", self.table, "--preset", preset, "--yes"])
            .succeeded();
    }

    /// The arguments of Tenure's workers. Their commands record each step, as the hand-written
    /// workers do.
    pub(super) fn ours(&self) -> Vec<String> {
        let work = format!("0.{:03}", WORK.as_millis());
        let fail = if self.can_fail() {
            "[ $((TENURE_ID % 7)) -ne 0 ] || exit 65"
        } else {
            ""
        };
        let command = if self.has_chunks { JOB } else { ROW };
        let chunks = CHUNKS.join(" ");
        let command = format!("{NOTE}\n{command}")
            .replace("PROGRAM", env!("CARGO_BIN_EXE_tenure"))
            .replace("WORK", &work)
            .replace("CHUNKS", &chunks)
            .replace("THING", self.prefix())
            .replace("FAIL", fail);
        let args: &[&str] = if self.has_chunks {
            &[
                "jobs",
                "run",
                "--kind",
                "sync",
                "--term",
                TERM,
                "--chunk-term",
                TERM,
                "--concurrency",
                "2",
                "--exec",
            ]
        } else {
            &[
                "work",
                "--table",
                self.table,
                "--concurrency",
                "3",
                "--exec",
            ]
        };
        let args = args.iter().map(|&arg| arg.to_owned());
        args.chain([command]).collect()
    }
}

/// A shell function that records a step under the name of the worker. The name is in the
/// environment, because the worker may be dead by then.
const NOTE: &str = r#"
note() { echo "$1 $2 $NAMED/$TENURE_ID $(date +%s%6N)" >> log; }
"#;

const ROW: &str = "
note begin THING$TENURE_ID
sleep WORK
note end THING$TENURE_ID
FAIL
exit 0
";

const JOB: &str = r#"
note begin row-$TENURE_ID
for name in CHUNKS; do
  chunk=$TENURE_MATRIX.$name
  while true; do
    PROGRAM jobs chunk claim $chunk > claimed-$$ 2>&1
    case $? in
      0) ;;
      3) break ;;
      *) note left row-$TENURE_ID; exit 1 ;;
    esac
    note begin chunk-$chunk
    sleep WORK
    note end chunk-$chunk
    case $name in good-*) again= ;; *) again=--again ;; esac
    if PROGRAM jobs chunk done $chunk --rows 7 $again > done-$$ 2>&1; then
      [ -n "$again" ] || note final chunk-$chunk
      break
    fi
    note refused chunk-$chunk
  done
done
note end row-$TENURE_ID
FAIL
exit 0
"#;
