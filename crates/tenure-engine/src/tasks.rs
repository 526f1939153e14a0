//! Tasks of an engine: starts them and stops them together. A task that panics (a bug) fails the
//! engine.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// Wraps every task. The simulation uses it to stop a whole process.
pub type Wrap = Arc<dyn Fn(BoxFuture<'static, ()>) -> BoxFuture<'static, ()> + Send + Sync>;

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

    /// Starts a task on the current runtime; [`Tasks::stop`] ends it.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.run(self.guard(name, task));
    }

    /// Starts a guarded task on the current runtime.
    pub(crate) fn run(&self, guarded: BoxFuture<'static, ()>) {
        drop(self.tracker.spawn(guarded));
    }

    /// Adds panic handling, the span and the wrapper to a task, as [`Tasks::spawn`] runs it.
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
                    tracing::error!(task = name, "an internal task panicked");
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

    /// Span that adds the worker to every log line.
    pub(crate) fn span(&self) -> tracing::Span {
        self.span.clone()
    }

    /// Sender for failures of the keeper's thread.
    pub(crate) fn failure(&self) -> watch::Sender<Option<String>> {
        self.failure.clone()
    }

    /// Fails the engine with this reason.
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

    /// Waits until all tasks have finished.
    pub(crate) async fn finished(&self) {
        self.tracker.wait().await;
    }
}
