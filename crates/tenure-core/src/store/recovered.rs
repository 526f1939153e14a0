//! `Recovered`: items that a store reaped for a claim, separate from the claim's result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Reaped;

/// Items that a store reaped for a claim. Clones share the list: the caller keeps one, and reads it
/// even if the claim returned nothing or its result was lost.
///
/// ```
/// use tenure_core::store::Recovered;
///
/// let recovered = Recovered::default();
/// recovered.clone().add(Vec::new());
/// assert!(recovered.take().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Recovered(Arc<Mutex<Vec<Reaped>>>);

impl Recovered {
    /// Adds reaped items.
    pub fn add(&self, reaped: Vec<Reaped>) {
        self.all().extend(reaped);
    }

    /// Takes all items reaped since the last call.
    pub fn take(&self) -> Vec<Reaped> {
        std::mem::take(&mut self.all())
    }

    fn all(&self) -> MutexGuard<'_, Vec<Reaped>> {
        // The list stays consistent if another thread panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
