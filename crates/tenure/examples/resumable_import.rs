//! A long import that continues after a kill: it reads a CSV file in chunks, and commits the rows
//! of a chunk together with its checkpoint. Run it with `cargo run -p tenure --example
//! resumable_import`, end it with ctrl-c or `kill -9`, and run it again. It needs no server: its
//! rows are in an SQLite file.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tenure::job::{ChunkAnswer, HeldJob, JobFilter, JobId, MatrixName, NewJob, SyncState};
use tenure::{Failure, Outcome, Tenure, Term};

/// Number of chunks in the file, and of lines in a chunk.
pub(crate) const CHUNKS: u32 = 60;
pub(crate) const LINES: u32 = 500;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join("tenure-resumable-import.db");
    let mut out = std::io::stdout();
    writeln!(out, "importing to {}", path.display())?;
    // Slow enough to kill it by hand.
    run(&mut out, &path, Duration::from_millis(150)).await
}

/// Starts or continues the import into the file at `path`, and prints its progress to `out`. Each
/// chunk takes at least `pace`.
pub(crate) async fn run(
    out: &mut impl Write,
    path: &Path,
    pace: Duration,
) -> Result<(), Box<dyn Error>> {
    let tenure = Tenure::open(&format!("sqlite://{}", path.display())).await?;
    let shop = open_shop(path)?;
    shop.execute_batch(
        "create table if not exists orders (job integer, id integer, total integer,
                                            primary key (job, id))",
    )?;
    let (id, matrix) = find_or_begin(out, &tenure).await?;

    let importing = tenure.jobs().on("import.orders", {
        let path = path.to_owned();
        move |job: HeldJob| import(job, path.clone(), pace)
    });
    // Short leases, so that a run after a kill does not wait for minutes.
    let term = Term::new(Duration::from_secs(3))?;
    let beat = Duration::from_millis(500);
    let importing = importing.timing(term, beat).chunk_timing(term, beat);
    let worker = importing.start().await?;
    let state = loop {
        let progress = tenure.jobs().progress(&matrix).await?;
        let left = progress.left().map_or(0, |left| left.as_secs());
        let (done, rows) = (progress.done, progress.rows);
        writeln!(out, "{done} of {CHUNKS} chunks, {rows} rows, {left} s left")?;
        let job = tenure.jobs().find(id).await?.ok_or("the job is there")?;
        if matches!(job.state, SyncState::Completed | SyncState::Failed) {
            break job.state;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    worker.stop().await;
    writeln!(out, "the job is {}", state.as_str())?;
    let count = "select count(*) from orders where job = ?1";
    let rows: u32 = shop.query_row(count, [id.number()], |row| row.get(0))?;
    writeln!(
        out,
        "rows in the table: {rows}; in the file: {}",
        CHUNKS * LINES
    )?;
    Ok(())
}

fn open_shop(path: &Path) -> rusqlite::Result<Connection> {
    let shop = Connection::open(path)?;
    shop.busy_timeout(Duration::from_secs(5))?;
    Ok(shop)
}

/// Finds the unfinished job, or enqueues a new one; also returns its matrix.
async fn find_or_begin(
    out: &mut impl Write,
    tenure: &Tenure,
) -> Result<(JobId, MatrixName), Box<dyn Error>> {
    let jobs = tenure.jobs().list(&JobFilter::default(), 1).await?;
    let is_open = |state| !matches!(state, SyncState::Completed | SyncState::Failed);
    if let Some(job) = jobs.into_iter().find(|job| is_open(job.state)) {
        writeln!(out, "going on with job {}", job.id)?;
        return Ok((job.id, job.matrix));
    }
    let id = tenure
        .jobs()
        .enqueue(NewJob::new("import.orders", "{}")?)
        .await?;
    let job = tenure.jobs().find(id).await?.ok_or("the job is there")?;
    writeln!(out, "began job {id}")?;
    Ok((id, job.matrix))
}

/// Imports the file.
async fn import(job: HeldJob, path: PathBuf, pace: Duration) -> Result<Outcome, Failure> {
    let mut shop = open_shop(&path)?;
    job.total(CHUNKS.into()).await?;
    for no in 0..CHUNKS {
        // Skips a finished chunk; waits for a chunk that a dead process held.
        let ChunkAnswer::Claimed(chunk) = job.chunk(&format!("{no:03}")).wait().await? else {
            continue;
        };
        tokio::time::sleep(pace).await;
        let csv = read_chunk(no);
        let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut rows = 0;
        for line in csv.lines() {
            let (order, total) = line.split_once(',').ok_or(std::fmt::Error)?;
            let (order, total) = (order.parse::<i64>()?, total.parse::<i64>()?);
            let insert = "insert into orders (job, id, total) values (?1, ?2, ?3)";
            tx.execute(insert, [job.id().number(), order, total])?;
            rows += 1;
        }
        // The rows exist if and only if the chunk is done: `?` rolls both back.
        chunk.complete_in(&tx, rows)?;
        tx.commit()?;
    }
    Ok(Outcome::Done)
}

/// Lines of a chunk; a real import would read them from its file.
fn read_chunk(no: u32) -> String {
    let orders = no * LINES..(no + 1) * LINES;
    let lines = orders.map(|order| format!("{order},{}\n", order % 97));
    lines.collect()
}
