//! Sampled: an answer of the store that is asked for at most so often and waited for at most so
//! long, however many callers there are.

use std::time::Duration;

use tenure_core::store::StoreError;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// How long an answer of the store is waited for.
pub(crate) const WAIT: Duration = Duration::from_secs(2);

/// The last answer, and when it came.
#[derive(Debug)]
pub(crate) struct Sampled<T> {
    /// How long an answer, also a missing one, is as good as a new one.
    keep: Duration,
    last: Mutex<Option<(Instant, Sample<T>)>>,
}

/// What came of asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sample<T> {
    Answer(T),
    /// Nothing came in time.
    Silence,
    /// The store said that it cannot.
    Trouble,
}

impl<T: Clone> Sampled<T> {
    pub(crate) fn new(keep: Duration) -> Self {
        Self {
            keep,
            last: Mutex::new(None),
        }
    }

    /// The last answer if it is recent, else a new one, and its age. Callers that come meanwhile
    /// wait for the same one.
    pub(crate) async fn get(
        &self,
        ask: impl Future<Output = Result<T, StoreError>>,
    ) -> (Sample<T>, Duration) {
        let mut last = self.last.lock().await;
        if let Some((when, sample)) = last.as_ref()
            && when.elapsed() < self.keep
        {
            return (sample.clone(), when.elapsed());
        }
        let sample = match timeout(WAIT, ask).await {
            Ok(Ok(answer)) => Sample::Answer(answer),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the store did not answer a sample");
                Sample::Trouble
            }
            Err(_) => Sample::Silence,
        };
        *last = Some((Instant::now(), sample.clone()));
        (sample, Duration::ZERO)
    }
}
