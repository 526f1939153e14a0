//! Sender: the worker on deliveries to endpoints.

use std::sync::Arc;

use tenure_core::webhook::Caller;
use tenure_core::{Invalid, Term};
use tenure_engine::{Duties, EngineConfig, Handler, Sender, SenderParts};

use super::private::Work;
use super::{WorkerBuilder, private};
use crate::tenure::Tenure;

/// Default number of concurrent calls.
const CONCURRENCY: u32 = 200;
/// Maximum number of deliveries per claim. Calls are short, so large batches save claims.
const BATCH: u32 = 200;

/// Deliveries to endpoints, sent by a caller.
#[derive(Debug)]
pub struct DeliverySource {
    caller: Arc<dyn Caller>,
    term: Term,
}

/// The concurrency limits the calls to all endpoints; each endpoint has its own limit, too.
impl WorkerBuilder<DeliverySource> {
    pub(crate) fn deliveries(tenure: Tenure, caller: Arc<dyn Caller>) -> Self {
        let term = Term::EXTERNAL;
        let source = DeliverySource { caller, term };
        Self::of(tenure, source, EngineConfig::default())
    }

    /// Sets the term of leases on deliveries; 90 s by default. A call may take longer: its lease is
    /// renewed while it runs.
    pub fn term(mut self, term: Term) -> Self {
        self.source.term = term;
        self
    }

    /// Sets the duties of this worker; all of them by default.
    pub fn duties(mut self, duties: Duties) -> Self {
        self.config.duties = duties;
        self
    }
}

impl private::Source for DeliverySource {
    const LIMITS: Option<(u32, u32)> = Some((CONCURRENCY, BATCH));

    const TRADE: Option<&'static str> = Some("sender");

    fn into_handler(self, work: &mut Work) -> Result<Arc<dyn Handler>, Invalid> {
        let sender = Arc::new(Sender::new(SenderParts {
            store: work.tenure.shared(),
            caller: self.caller,
            worker: work.worker.clone(),
            term: self.term,
            seed: None,
        }));
        work.config.chooser = Some(Arc::<Sender>::clone(&sender));
        Ok(sender)
    }
}
