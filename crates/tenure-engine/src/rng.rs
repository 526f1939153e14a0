//! Random source of an engine, seeded where a run must be repeatable.

use std::sync::{Mutex, PoisonError};

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
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .random()
    }
}
