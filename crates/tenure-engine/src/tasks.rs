//! Tasks: starts the tasks of an engine and ends them together. A task that panics is told: that is
//! a mistake of ours, and the engine says so instead of limping on.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// Stands around every task; a simulation stops a whole process with it.
pub type Wrap = Arc<dyn Fn(BoxFuture<'static, ()>) -> BoxFuture<'static, ()> + Send + Sync>;

/// The tasks of an engine.
pub(crate) struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    failure: watch::Sender<Option<String>>,
    wrap: Option<Wrap>,
    span: tracing::Span,
}

impl Tasks {
    pub(crate) fn new(wrap: Option<Wrap>, span: tracing::Span) -> Self {
        Self {
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
            failure: watch::Sender::new(None),
            wrap,
            span,
        }
    }

    /// Starts a task on the current runtime; it ends at the latest when all do.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let guarded = self.guard(name, task);
        drop(self.tracker.spawn(guarded));
    }

    /// The task with everything around it that [`Tasks::spawn`] gives it.
    pub(crate) fn guard(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let stop = self.stop.clone();
        let failure = self.failure.clone();
        let span = self.span.clone();
        let body = async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                end = AssertUnwindSafe(task).catch_unwind() => if end.is_err() {
                    tracing::error!(task = name, "a task of the engine panicked");
                    failure.send_replace(Some(format!("the task `{name}` panicked")));
                },
            }
        };
        let body = body.instrument(span).boxed();
        match &self.wrap {
            Some(wrap) => wrap(body),
            None => body,
        }
    }

    /// The span that names the worker in every line of the log.
    pub(crate) fn span(&self) -> tracing::Span {
        self.span.clone()
    }

    /// Where a failure is told.
    pub(crate) fn failure(&self) -> watch::Sender<Option<String>> {
        self.failure.clone()
    }

    /// Something without which the engine cannot go on is missing.
    pub(crate) fn fail(&self, reason: String) {
        self.failure.send_replace(Some(reason));
    }

    /// Waits for the first task that fails.
    pub(crate) async fn failed(&self) -> String {
        let mut failure = self.failure.subscribe();
        loop {
            if let Some(reason) = failure.borrow_and_update().clone() {
                return reason;
            }
            if failure.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Ends all tasks at their next await.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
    }

    /// Waits until all have ended.
    pub(crate) async fn ended(&self) {
        self.tracker.wait().await;
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("running", &self.tracker.len())
            .finish_non_exhaustive()
    }
}
