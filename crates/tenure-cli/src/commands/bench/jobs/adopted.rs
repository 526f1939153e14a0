//! An outbox of the old kind, one table with a status, adopted and drained by the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tenure::bench::{Watch, Yardstick};
use tenure::{Handler, Handling, Item, LeaseTable, Outcome, Settings, Table, Tenure};

use crate::commands::bench::drain::{LOOK, failed};
use crate::commands::bench::wait::{Headway, until};
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

pub(super) struct Adopted(Table);

/// Does nothing, and counts.
#[derive(Debug, Default)]
struct Counter(AtomicU32);

impl Handler for Counter {
    fn handle(&self, item: Item, cx: tenure::Context) -> Handling<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::hint::black_box((item, cx.fence()));
        Box::pin(async { Ok(Outcome::Done) })
    }
}

impl Adopted {
    pub(super) async fn prepare(yardstick: &Yardstick) -> Result<Self, Stop> {
        let (url, config) = yardstick.adopted_address();
        let tenure = Tenure::open_with(&url, &config, "bench").await?;
        yardstick.make_adopted().await?;
        let plan = tenure.adoption(&LeaseTable::outbox()).await?;
        let plan = plan.map_err(|obstacles| {
            let all: Vec<String> = obstacles.into_iter().map(|one| one.what).collect();
            Problem::new(Exit::Failed, all.join("; "))
        })?;
        tenure.adopt(&plan, &|_| ()).await?;
        Ok(Self(tenure.table("outbox").await?))
    }

    /// Rows per second, from the start of the worker to the last settle.
    pub(super) async fn rate(
        &self,
        yardstick: &Yardstick,
        rows: u32,
        batch: u32,
    ) -> Result<f64, Stop> {
        yardstick.fill_adopted(rows).await?;
        let counter = Arc::new(Counter::default());
        let settings = Settings {
            batch,
            ..Settings::default()
        };
        let watch = Watch::start();
        let worker = self
            .0
            .worker()
            .handler(Arc::<Counter>::clone(&counter))
            .settings(settings)
            .start()
            .await
            .map_err(|error| failed(&error))?;
        until("all rows are handled and settled", LOOK, async || {
            let missing = rows.saturating_sub(counter.0.load(Ordering::Relaxed));
            let is_held = worker.health().held > 0;
            Ok(Headway::missing(u64::from(missing) + u64::from(is_held)))
        })
        .await?;
        let rate = watch.rate(rows);
        worker.stop().await;
        Ok(rate)
    }
}
