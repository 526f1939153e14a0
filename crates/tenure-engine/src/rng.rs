//! Random source of an engine, seeded where a run must be repeatable.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

#[derive(Debug)]
pub(crate) struct Rng(Mutex<StdRng>);

impl Rng {
    /// Creates the source, seeded from the operating system when `seed` is `None`.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(rand::random);
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// Draws a uniform number in [0, 1).
    pub(crate) fn chance(&self) -> f64 {
        self.lock().random()
    }

    /// Draws the ids of a trace and of its first span.
    pub(crate) fn ids(&self) -> (u128, u64) {
        self.lock().random()
    }

    fn lock(&self) -> MutexGuard<'_, StdRng> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
