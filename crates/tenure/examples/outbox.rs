//! Writes an order and its event in one transaction. The first worker dies after it has published
//! the event; its successor publishes it again, and the receiver drops the duplicate. Run it with
//! `cargo run -p tenure --example outbox`.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;
use std::time::Duration;

use tenure::{Context, Event, Failure, Fence, Outcome, Settings, StoreConfig, Tenure, Term};
use tokio::sync::mpsc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}

/// Message to the receiver: the event and the fence of its claim.
type Parcel = (Event, Fence);

/// Runs the example and prints its steps to `out`.
pub(crate) async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    let url = format!("sqlite://{}", path.display());
    let tenure = Tenure::open(&url).await?;

    // The application's own connection and table, in the same file.
    let mut shop = rusqlite::Connection::open(&path)?;
    shop.execute_batch("create table orders (id integer primary key, total integer not null)")?;

    // An event that is rolled back is never published.
    let tx = shop.transaction()?;
    tx.execute("insert into orders (id, total) values (6, 120)", [])?;
    tenure.enqueue(&tx, Event::new("order.paid", &6)?)?;
    tx.rollback()?;
    let waiting = tenure.count().await?.pending();
    writeln!(out, "order 6 was rolled back: {waiting} events wait")?;

    let tx = shop.transaction()?;
    tx.execute("insert into orders (id, total) values (7, 990)", [])?;
    let id = tenure.enqueue(&tx, Event::new("order.paid", &7)?)?.id();
    tx.commit()?;
    let waiting = tenure.count().await?.pending();
    writeln!(out, "order 7 was committed: {waiting} event waits")?;

    // The first worker publishes but never settles: dropping it has the effect of a crash.
    let (send, mut receiver) = mpsc::channel::<Parcel>(1);
    let first = tenure.worker().settings(brief()?).on("order.*", {
        let send = send.clone();
        move |event: Event, cx: Context| {
            let send = send.clone();
            async move {
                send.send((event, cx.fence())).await?;
                std::future::pending::<Result<(), Failure>>().await
            }
        }
    });
    let first = first.start().await?;
    let (seen, fence) = receiver.recv().await.ok_or("the first worker is there")?;
    drop(first);
    writeln!(out, "the first worker published event {id} and died")?;

    // Another program opens the same file; its reaper ends the lapsed lease.
    let successor = Tenure::open_with(&url, &StoreConfig::default(), "successor").await?;
    let second = successor.worker().settings(watchful());
    let second = second.on("order.*", move |event: Event, cx: Context| {
        let send = send.clone();
        async move {
            send.send((event, cx.fence())).await?; // an error is a retry, with backoff
            Ok(Outcome::Done)
        }
    });
    let mut parcel = None;
    second
        .run_until(async { parcel = receiver.recv().await })
        .await?;
    let (again, newer) = parcel.ok_or("the second worker is there")?;
    writeln!(out, "the second worker published it again, and settled")?;

    // The receiver records the events it has seen, so that at-least-once delivery takes effect
    // exactly once.
    let mut known = BTreeSet::from([seen.event_id()]);
    let is_repeat = !known.insert(again.event_id());
    writeln!(out, "the receiver drops a repeat: {is_repeat}")?;
    let is_newer = newer > fence;
    writeln!(out, "its fence is newer than the dead worker's: {is_newer}")?;

    let counts = tenure.count().await?;
    writeln!(out, "done: {}, waiting: {}", counts.done, counts.pending())?;
    for hold in tenure.timeline(id).await? {
        writeln!(out, "- a hold that ended: {}", hold.outcome.as_str())?;
    }
    Ok(())
}

/// A short term, so that the example does not wait half a minute.
fn brief() -> Result<Settings, Box<dyn Error>> {
    Ok(Settings {
        term: Term::new(Duration::from_secs(1))?,
        ..Settings::default()
    })
}

/// The default term, with a short reaper interval.
fn watchful() -> Settings {
    Settings {
        reaper_interval: Some(Duration::from_millis(100)),
        ..Settings::default()
    }
}
