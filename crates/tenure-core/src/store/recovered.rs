//! `Recovered`: what a store reaped for a claim, beside its answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Reaped;

/// What a store reaped for a claim. Clones share it: the one who asks keeps one, and looks into it
/// also when the claim brought nothing or its answer was lost.
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
    /// These were reaped, too.
    pub fn add(&self, reaped: Vec<Reaped>) {
        self.all().extend(reaped);
    }

    /// All that was reaped since it was looked into last.
    pub fn take(&self) -> Vec<Reaped> {
        std::mem::take(&mut self.all())
    }

    fn all(&self) -> MutexGuard<'_, Vec<Reaped>> {
        // A list is whole also if someone panicked beside it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
