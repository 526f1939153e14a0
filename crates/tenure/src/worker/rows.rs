//! Worker on the rows of an adopted table: one handler for all rows.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tenure_core::store::Rows;
use tenure_core::{
    Content, Event, Failure, IntoOutcome, Invalid, Item, LeaseTable, Outcome, States,
};
use tenure_engine::{
    Context, Duties, Duty, EngineConfig, EventFn, Handler, HandlerOptions, Handling, JsonFn,
    Leases, Readiness, Recovery, Rules, WithOptions,
};

use super::private::Work;
use super::{WorkerBuilder, no_handler_yet, private};
use crate::table::Table;
use crate::tenure::Tenure;

/// Rows of an adopted table, with one handler.
///
/// ```no_run
/// use tenure::{Context, Event, Outcome, Tenure};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tenure = Tenure::open("postgres://localhost/shop").await?;
/// let worker = tenure.table("outbox").await?.worker();
/// worker
///     .on(|row: Event, cx: Context| async move {
///         println!("fence {}: {}", cx.fence(), row.payload()); // the row, as JSON
///         Ok(Outcome::Done)
///     })
///     .run_until_signal()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[expect(missing_debug_implementations, reason = "handlers are functions")]
pub struct RowSource {
    table: Table,
    handler: Option<Arc<dyn Handler>>,
}

impl WorkerBuilder<RowSource> {
    pub(crate) fn rows(table: Table) -> Self {
        let mut config = EngineConfig {
            duties: Duties {
                reaper: Duty::Done,
                // The rows belong to the user, so none is deleted.
                pruner: Duty::Left,
                replayer: Duty::Left,
            },
            ..EngineConfig::default()
        };
        config.rows.table = Some(table.described().name.to_string());
        config.rows.usual = table.described().default_timing();
        if table.described().states == States::Derived {
            // Without a status column, a lapsed row counts as free, and claims reap it.
            config.rows.recovery = Recovery::InClaim;
            config.duties.reaper = Duty::Left;
        }
        let tenure = table.tenure().clone();
        let handler = None;
        Self::of(tenure, RowSource { table, handler }, config)
    }

    /// Calls `function` with each row: an event whose topic is the table's name and whose payload
    /// is the row as JSON, without the token columns. The limits on size and depth of an enqueued
    /// payload do not apply.
    ///
    /// An error is retried with backoff, as the settings say; so is a panic. The same row can
    /// arrive again after a crash, a lapse or a replay.
    pub fn on<F, Fut>(self, function: F) -> Self
    where
        F: Fn(Event, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handler(Arc::new(EventFn::new(function)))
    }

    /// Calls `function` with each row, deserialised as a `T`; otherwise like `on_json` of a worker
    /// on events.
    pub fn on_json<T, F, Fut>(self, function: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(T, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handler(Arc::new(JsonFn::new(function)))
    }

    /// Passes each row to `handler`, as the event that [`on`](Self::on) describes.
    pub fn handler(mut self, handler: Arc<dyn Handler>) -> Self {
        self.source.handler = Some(handler);
        self
    }

    /// Sets retries, timeout and concurrency of the handler, which must be registered before.
    pub fn with(mut self, options: HandlerOptions) -> Self {
        match self.source.handler.take() {
            Some(handler) => {
                self.source.handler = Some(Arc::new(WithOptions::new(handler, options)));
            }
            None => self.problems.push(no_handler_yet()),
        }
        self
    }

    /// Takes term and heartbeat from the settings, even if they are the defaults.
    pub fn term_as_set(mut self) -> Self {
        self.config.rows.usual = None;
        self
    }
}

impl private::Source for RowSource {
    const TRADE: Option<&'static str> = Some("rows");

    fn check(&self, _tenure: &Tenure, problems: &mut Vec<Invalid>) {
        if self.handler.is_none() && problems.is_empty() {
            problems.push(no_handler());
        }
    }

    fn into_handler(self, work: &mut Work) -> Result<Arc<dyn Handler>, Invalid> {
        let rows = self.table.rows();
        let (keeper_store, keeper_rows) = work.tenure.companion_of(rows).map_err(|problem| {
            let expected = "a table that can be leased";
            Invalid::new("the table", problem.to_string(), expected)
        })?;
        work.config.rows.leases = Leases::Rows(Arc::<dyn Rows>::clone(rows), keeper_rows);
        work.keeper_store = Some(keeper_store);
        Ok(Arc::new(RowEvents {
            table: self.table.described().clone(),
            handler: self.handler.ok_or_else(no_handler)?,
        }))
    }
}

fn no_handler() -> Invalid {
    Invalid::new("the handler", "none", "one: `.on(…)`")
}

/// Passes rows to a handler of events.
struct RowEvents {
    table: LeaseTable,
    handler: Arc<dyn Handler>,
}

impl Handler for RowEvents {
    fn handle(&self, mut item: Item, cx: Context) -> Handling<'_> {
        let Content::Row(row) = &item.content else {
            return Box::pin(async { Err(Failure::new("the item is not a row").never()) });
        };
        match self.table.event(row) {
            Ok(mut event) => {
                if let Some(parent) = cx.trace_parent() {
                    event.set_trace_parent(parent);
                }
                item.content = Content::Event(event);
                self.handler.handle(item, cx)
            }
            // A retry would fail in the same way.
            Err(problem) => {
                let failure = Failure::new(problem.to_string()).never();
                Box::pin(async { Err::<Outcome, _>(failure) })
            }
        }
    }

    fn readiness(&self) -> Readiness {
        self.handler.readiness()
    }

    fn max_hold(&self, item: &Item) -> Option<Duration> {
        self.handler.max_hold(item)
    }

    fn rules(&self, item: &Item) -> Rules {
        self.handler.rules(item)
    }
}
