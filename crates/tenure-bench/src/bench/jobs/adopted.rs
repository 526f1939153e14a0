//! An outbox of one table with a status column, adopted and drained by the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tenure::lease::Item;
use tenure::publish::{Handler, Handling};
use tenure::table::{LeaseTable, Table};
use tenure::{Outcome, Settings, Tenure};

use crate::bench::drain::{POLL, failed};
use crate::bench::wait::{Headway, until};
use crate::stop::{Failure, Stop};
use crate::yardstick::{Stopwatch, Yardstick};

pub(super) struct Adopted(Table);

/// A handler that only counts.
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
            Failure::new(all.join("; "))
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
        let watch = Stopwatch::start();
        let worker = self
            .0
            .worker()
            .handler(Arc::<Counter>::clone(&counter))
            .settings(settings)
            .start()
            .await
            .map_err(|error| failed(&error))?;
        until("all rows are handled and settled", POLL, async || {
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
