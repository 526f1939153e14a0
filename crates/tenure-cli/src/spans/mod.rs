//! Spans of handlers: made only where they are exported.

#[cfg(feature = "otlp")]
mod otlp;

use tenure::WorkerBuilder;
use tenure::trace::Sampling;
use tenure::worker::Source;

#[cfg(feature = "otlp")]
use self::otlp::Export;

/// The export of this process; `None`: no handler has a span.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    #[cfg(feature = "otlp")]
    export: Option<Export>,
}

impl Spans {
    /// Starts the export if the environment names a collector; call it once per process. A mistake
    /// in the environment is logged and keeps nobody from working.
    pub(crate) fn start() -> Self {
        Self {
            #[cfg(feature = "otlp")]
            export: otlp::start(&crate::env::open_telemetry()),
        }
    }

    /// Gives the handlers of a worker spans.
    pub(crate) fn of<S: Source>(&self, worker: WorkerBuilder<S>) -> WorkerBuilder<S> {
        #[cfg(feature = "otlp")]
        if let Some(export) = &self.export {
            return export.of(worker);
        }
        worker.sampling(Sampling::NEVER)
    }

    /// Exports what waits and ends the export.
    pub(crate) async fn stop(&self) {
        #[cfg(feature = "otlp")]
        if let Some(export) = &self.export {
            export.stop().await;
        }
    }
}
