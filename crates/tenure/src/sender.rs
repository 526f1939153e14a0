//! Sender: a worker that sends what is owed to endpoints.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tenure_core::webhook::Caller;
use tenure_core::{Settings, Term};
use tenure_engine::{Duties, Ended, EngineConfig, Sender, SenderParts};

use crate::tenure::Tenure;
use crate::worker::{Worker, WorkerError, check, launch};

/// Calls that a process makes at once, unless set.
const CONCURRENCY: u32 = 200;
/// Deliveries that a claim takes at most: calls are short, and fewer claims cost less.
const BATCH: u32 = 200;

/// A sender that is being put together; [`Tenure::sender`] begins one.
#[must_use = "it does nothing until it is started"]
pub struct SenderBuilder {
    tenure: Tenure,
    caller: Arc<dyn Caller>,
    term: Term,
    config: EngineConfig,
}

impl SenderBuilder {
    pub(crate) fn new(tenure: Tenure, caller: Arc<dyn Caller>) -> Self {
        let mut config = EngineConfig::default();
        config.settings.concurrency = CONCURRENCY;
        config.settings.batch = BATCH;
        Self {
            tenure,
            caller,
            term: Term::EXTERNAL,
            config,
        }
    }

    /// Makes at most this many calls at once; 200 unless set. Each endpoint has its own limit
    /// besides.
    pub fn concurrency(mut self, calls: u32) -> Self {
        self.config.settings.concurrency = calls;
        self
    }

    /// Leases on deliveries run this long without being renewed; 90 s unless set. A call may take
    /// longer: it is renewed while it runs.
    pub fn term(mut self, term: Term) -> Self {
        self.term = term;
        self
    }

    /// Works as these settings say, but for the calls at once and the batch.
    pub fn settings(mut self, mut settings: Settings) -> Self {
        settings.concurrency = self.config.settings.concurrency;
        settings.batch = self.config.settings.batch;
        self.config.settings = settings;
        self
    }

    /// Takes part in this beside its own work; without this in everything.
    pub fn duties(mut self, duties: Duties) -> Self {
        self.config.duties = duties;
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
    /// Everything that is wrong with its settings.
    #[expect(
        clippy::unused_async,
        reason = "it spawns, so it is to be called on a runtime"
    )]
    pub async fn start(mut self) -> Result<Worker, WorkerError> {
        check(&self.tenure, &self.config, Vec::new())?;
        let worker = self.tenure.worker_id_for("sender");
        let worker = worker.map_err(|problem| WorkerError::Invalid(vec![problem]))?;
        let sender = Arc::new(Sender::new(SenderParts {
            store: self.tenure.shared(),
            caller: self.caller,
            worker: worker.clone(),
            term: self.term,
            seed: None,
        }));
        self.config.chooser = Some(Arc::<Sender>::clone(&sender));
        launch(&self.tenure, worker, sender, self.config)
    }

    /// Runs it until `end` comes, then stops it: calls that are on their way are finished or given
    /// back.
    ///
    /// # Errors
    /// As [`SenderBuilder::start`], and when it fails, which it never should.
    pub async fn run_until(self, end: impl Future) -> Result<Ended, WorkerError> {
        self.start().await?.until(end).await
    }
}

impl fmt::Debug for SenderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderBuilder")
            .field("tenure", &self.tenure)
            .field("term", &self.term)
            .finish_non_exhaustive()
    }
}
