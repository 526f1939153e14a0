//! A worker on the rows of an adopted table: one handler, put together with the table and run by
//! the engine.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{LeaseStore, Operate, Rows, Store};
use tenure_core::{Content, Event, Failure, Invalid, Item, LeaseTable, Outcome, Settings, States};
use tenure_engine::{
    Context, Duties, Duty, Ended, EngineConfig, EventFn, Handler, Handling, LeaseRows, Parts,
    Readiness, Recovery, RowStore,
};

use crate::signal::Signals;
use crate::table::Table;
use crate::worker::{Worker, WorkerError, check, launch_on};

/// A worker on a table that is being put together; [`Table::worker`] begins one.
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
#[must_use = "it does nothing until it is started"]
pub struct TableWorkerBuilder {
    table: Table,
    handler: Option<Arc<dyn Handler>>,
    config: EngineConfig,
}

impl TableWorkerBuilder {
    pub(crate) fn new(table: Table) -> Self {
        let mut config = EngineConfig {
            duties: Duties {
                reaper: Duty::Done,
                // Rows are the user's own: nobody deletes them.
                pruner: Duty::Left,
                replayer: Duty::Left,
            },
            ..EngineConfig::default()
        };
        config.rows.table = Some(table.described().name.to_string());
        config.rows.usual = table.described().usual_rhythm();
        if table.described().states == States::Derived {
            // What has lapsed is as good as free there, and is taken back by the claims.
            config.rows.recovery = Recovery::InClaim;
            config.duties.reaper = Duty::Left;
        }
        Self {
            table,
            handler: None,
            config,
        }
    }

    /// Calls `function` with each row: an event whose topic is the table's name and whose payload
    /// is the row as JSON, without the columns that hold tokens. It may be longer and nest deeper
    /// than the payload of an event that is enqueued.
    ///
    /// An error is a failure, to be tried again as the settings say; so is a panic. The same row
    /// may come again: after a crash, a lapse, a replay.
    pub fn on<F, Fut>(self, function: F) -> Self
    where
        F: Fn(Event, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        self.handler(Arc::new(EventFn::new(function)))
    }

    /// Hands each row to `handler`, as such an event.
    pub fn handler(mut self, handler: Arc<dyn Handler>) -> Self {
        self.handler = Some(handler);
        self
    }

    /// Works as these settings say; what is set for the cluster stands over them.
    ///
    /// Rows of a table in the words of `sync_jobs` are leased for 5 minutes and renewed every
    /// minute, those of `sync_checkpoints` for 2 minutes and every 30 s, unless a term or a
    /// heartbeat is set here or for the cluster. A term of 30 s counts as none:
    /// [`TableWorkerBuilder::term_as_set`] is for who wants just that.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.config.settings = settings;
        self
    }

    /// Takes the term and the heartbeat from the settings, whatever is usual for such a table.
    pub fn term_as_set(mut self) -> Self {
        self.config.rows.usual = None;
        self
    }

    /// Shows this as its machine to people who look at the workers.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.config.host = host.into();
        self
    }

    /// Starts it on the current runtime, which is one with time and I/O enabled.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    #[expect(
        clippy::unused_async,
        reason = "it spawns, so it is to be called on a runtime"
    )]
    pub async fn start(self) -> Result<Worker, WorkerError> {
        let tenure = self.table.tenure().clone();
        let invalid = |problem| WorkerError::Invalid(vec![problem]);
        check(&tenure, &self.config, Vec::new())?;
        let Some(handler) = self.handler else {
            let expected = "one: `.on(…)`";
            return Err(invalid(Invalid::new("the handler", "none", expected)));
        };
        let rows = self.table.rows();
        let (house, beside) = tenure.companion_of(rows).map_err(|problem| {
            let expected = "a table that can be leased";
            invalid(Invalid::new("the table", problem.to_string(), expected))
        })?;
        let parts = Parts {
            store: row_store(Arc::clone(rows), tenure.shared()),
            keeper_store: row_store(beside, house),
            worker: tenure.worker_id_for("rows").map_err(invalid)?,
            handler: Arc::new(RowEvents {
                table: self.table.described().clone(),
                handler,
            }),
            config: self.config,
            wrap: None,
        };
        launch_on(&tenure, parts)
    }

    /// Runs it until `end` comes, then stops it: what is in hand is finished or given back.
    ///
    /// # Errors
    /// As [`TableWorkerBuilder::start`], and when the worker fails, which it never should.
    pub async fn run_until(self, end: impl Future) -> Result<Ended, WorkerError> {
        self.start().await?.until(end).await
    }

    /// Runs it until the process is told to end (SIGINT, SIGTERM), then stops it: what is in hand
    /// is finished or given back.
    ///
    /// # Errors
    /// As [`TableWorkerBuilder::run_until`], and when signals cannot be received.
    pub async fn run_until_signal(self) -> Result<Ended, WorkerError> {
        let mut signals = Signals::new().map_err(WorkerError::Signals)?;
        self.run_until(signals.next()).await
    }
}

impl fmt::Debug for TableWorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWorkerBuilder")
            .field("table", &self.table)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

fn row_store(rows: Arc<dyn Rows>, house: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(RowStore::new(Arc::new(TableRows(rows)), house))
}

/// The rows of a table, for the engine.
struct TableRows(Arc<dyn Rows>);

impl LeaseRows for TableRows {
    fn leases(&self) -> &dyn LeaseStore {
        self.0.as_ref()
    }

    fn desk(&self) -> &dyn Operate {
        self.0.as_ref()
    }
}

impl fmt::Debug for TableRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableRows")
            .field(&self.0.table().name)
            .finish()
    }
}

/// Hands rows to a handler of events.
struct RowEvents {
    table: LeaseTable,
    handler: Arc<dyn Handler>,
}

impl Handler for RowEvents {
    fn handle(&self, mut item: Item, cx: Context) -> Handling<'_> {
        let Content::Row(row) = &item.content else {
            return Box::pin(async { Err(Failure::new("the item is no row").never()) });
        };
        match self.table.event(row) {
            Ok(event) => {
                item.content = Content::Event(event);
                self.handler.handle(item, cx)
            }
            // The same row is read the same way again: trying cannot help.
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
}
