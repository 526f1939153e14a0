//! Dice: where chance comes from; from a seed when a run must be repeatable.

use std::sync::{Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Where chance comes from.
#[derive(Debug)]
pub(crate) struct Dice(Mutex<StdRng>);

impl Dice {
    /// Chance that repeats for a seed, and does not without one.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(rand::random);
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// A number from 0 to 1.
    pub(crate) fn chance(&self) -> f64 {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .random()
    }
}
