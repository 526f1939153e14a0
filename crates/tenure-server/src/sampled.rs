//! Sampled query: a cached answer of the store, refreshed at most once per interval and with a
//! timeout, however many callers there are.

use std::time::Duration;

use tenure_core::store::StoreError;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Timeout for an answer of the store.
pub(crate) const SAMPLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Cached sample and the time it was taken.
#[derive(Debug)]
pub(crate) struct Sampled<T> {
    /// Maximum age of a reused sample, including a failed one.
    age_max: Duration,
    last: Mutex<Option<(Instant, Sample<T>)>>,
}

/// Result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sample<T> {
    Answer(T),
    Timeout,
    Error,
}

impl<T: Clone> Sampled<T> {
    pub(crate) fn new(age_max: Duration) -> Self {
        Self {
            age_max,
            last: Mutex::new(None),
        }
    }

    /// Returns the cached sample if it is recent, else a new one, and its age. Concurrent callers
    /// wait for the same query.
    pub(crate) async fn get(
        &self,
        query: impl Future<Output = Result<T, StoreError>>,
    ) -> (Sample<T>, Duration) {
        let mut last = self.last.lock().await;
        if let Some((when, sample)) = last.as_ref()
            && when.elapsed() < self.age_max
        {
            return (sample.clone(), when.elapsed());
        }
        let sample = match timeout(SAMPLE_TIMEOUT, query).await {
            Ok(Ok(answer)) => Sample::Answer(answer),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a sampled query of the store failed");
                Sample::Error
            }
            Err(_) => Sample::Timeout,
        };
        *last = Some((Instant::now(), sample.clone()));
        (sample, Duration::ZERO)
    }
}
