//! An order and its event in one transaction; a worker that dies, its successor, and the late
//! answer that is refused. Run it with `cargo run -p tenure --example outbox`.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use tenure::{
    Claim, Event, Held, LapsePolicy, Reap, Reaped, Settle, StoreConfig, StoreError, Tenure, Term,
};

/// How often the example looks whether something has come.
const LOOK: Duration = Duration::from_millis(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}

/// Says on `out` what happens.
pub(crate) async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    let url = format!("sqlite://{}", path.display());
    let tenure = Tenure::open(&url).await?;

    // The shop's own connection and table, in the same file.
    let mut shop = rusqlite::Connection::open(&path)?;
    shop.execute_batch("create table orders (id integer primary key, total integer not null)")?;

    // What is rolled back never was.
    let tx = shop.transaction()?;
    tx.execute("insert into orders (id, total) values (6, 120)", [])?;
    tenure.enqueue_on(&tx, Event::new("order.paid", &6)?)?;
    tx.rollback()?;
    writeln!(
        out,
        "order 6 was rolled back: {} events wait",
        tenure.count().await?.pending()
    )?;

    let tx = shop.transaction()?;
    tx.execute("insert into orders (id, total) values (7, 990)", [])?;
    let id = tenure.enqueue_on(&tx, Event::new("order.paid", &7)?)?.id();
    tx.commit()?;
    writeln!(
        out,
        "order 7 was committed: {} event waits",
        tenure.count().await?.pending()
    )?;

    // The first worker takes a short lease and is never heard of again in time.
    let term = Term::new(Duration::from_millis(50))?;
    let ask = Claim::new(tenure.token(), 10).term(term).recovery(None);
    let first = tenure.claim_with(&ask).await?.ok_or("the event is due")?;
    writeln!(out, "the first worker holds event {id} and dies")?;

    // Another program opens the same file.
    let successor = Tenure::open_with(&url, &StoreConfig::default(), "successor").await?;
    for reaped in lapsed(&successor).await? {
        writeln!(
            out,
            "its lease lapsed: event {} is {} again",
            reaped.id, reaped.state
        )?;
    }

    let second = due(&successor).await?;
    let newer = second.lease.fence > first.lease.fence;
    writeln!(
        out,
        "the second worker takes over; its fence is newer: {newer}"
    )?;

    // The first worker was only slow after all, and says done.
    let late = Settle::new(first.lease.token.clone()).done(first.ids());
    for (_, why) in tenure.settle(&late).await?.refused() {
        writeln!(out, "the first worker's late answer is refused: {why}")?;
    }

    let done = Settle::new(second.lease.token.clone()).done(second.ids());
    let refused = successor.settle(&done).await?.refused().count();
    writeln!(out, "the second worker settles, {refused} refused")?;
    let counts = tenure.count().await?;
    writeln!(out, "done: {}, waiting: {}", counts.done, counts.pending())?;

    for hold in tenure.timeline(id).await? {
        writeln!(out, "- a hold that ended: {}", hold.word.as_str())?;
    }
    Ok(())
}

/// Ends lapsed leases as soon as there is one.
async fn lapsed(tenure: &Tenure) -> Result<Vec<Reaped>, StoreError> {
    loop {
        let reaped = tenure.reap(&Reap::new(100, LapsePolicy::default())).await?;
        if !reaped.is_empty() {
            return Ok(reaped);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Claims as soon as there is something to claim.
async fn due(tenure: &Tenure) -> Result<Held, StoreError> {
    loop {
        if let Some(held) = tenure.claim(10).await? {
            return Ok(held);
        }
        tokio::time::sleep(LOOK).await;
    }
}
