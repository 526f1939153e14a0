//! Tally: how many items a worker has settled, by what became of them.

use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::Word;

/// Counts what was settled; several tasks do so at once.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    done: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    released: AtomicU64,
}

impl Tally {
    /// The hold on so many items ended with this word.
    pub(crate) fn add(&self, word: Word, items: u64) {
        let counter = match word {
            Word::Done => &self.done,
            Word::Retry => &self.retried,
            Word::Dead => &self.dead,
            Word::Release => &self.released,
            // Others end a hold so, and tell of it.
            Word::Lapsed | Word::Buried => return,
        };
        counter.fetch_add(items, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Tallied {
        Tallied {
            done: self.done.load(Ordering::Relaxed),
            retried: self.retried.load(Ordering::Relaxed),
            dead: self.dead.load(Ordering::Relaxed),
            released: self.released.load(Ordering::Relaxed),
        }
    }
}

/// How many items a worker has settled, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tallied {
    /// Attempts that were done.
    pub done: u64,
    /// Attempts that failed or asked for another; the same item may have had several.
    pub retried: u64,
    /// Items that it settled as dead. What is dead after too many lapses is not among them: whoever
    /// reaps that tells of it.
    pub dead: u64,
    /// Items that were given back unworked: not started in time, or put off by their handler.
    pub released: u64,
}
