//! Promotion: gives a key with arrivals a head. A producer does not lock the row of a key: it
//! inserts its event into the backlog and leaves an arrival; the next claim promotes the key's
//! first event into `ready`, in a separate short statement.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sqlx::postgres::PgRow;
use tenure_core::Timestamp;
use tenure_core::store::{Claim, StoreError};

use super::PostgresStore;
use super::claim::run_length;
use super::error::store_error;
use super::row::{get, moment};

/// Maximum arrivals read per statement.
const ARRIVALS_MAX: i64 = 2_000;

/// State of promotion, and the numbers of rows and items of the last claim.
#[derive(Debug, Default)]
pub(crate) struct Promotion {
    /// Set if the last statement that checked saw arrivals.
    has_arrivals: AtomicBool,
    /// Set while a connection of this store promotes. One at a time: two would only skip each
    /// other's locked rows.
    is_running: AtomicBool,
    /// Rows of `ready` (upper half) and items (lower half) of the last claim.
    last: AtomicU64,
}

/// Exclusive right to promote; released on drop.
struct PromotionGuard<'a>(&'a AtomicBool);

impl Drop for PromotionGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Counts of one promotion statement.
struct Promoted {
    /// Arrivals read.
    arrivals: i64,
    /// Heads created.
    heads: i64,
    /// Keys without a row in `tenure_keys`.
    unknown_keys: i64,
}

impl Promotion {
    fn start(&self) -> Option<PromotionGuard<'_>> {
        let was_running = self.is_running.swap(true, Ordering::Acquire);
        (!was_running).then_some(PromotionGuard(&self.is_running))
    }

    /// Records the number of `ready` rows and items of a claim.
    pub(crate) fn took(&self, rows: usize, items: usize) {
        let half = |count| u64::from(u32::try_from(count).unwrap_or(u32::MAX));
        self.last
            .store(half(rows) << 32 | half(items), Ordering::Relaxed);
    }

    /// Estimates from the last claim the number of `ready` rows that yield `most` items.
    fn rows_for(&self, most: u32) -> u32 {
        let last = self.last.load(Ordering::Relaxed);
        let (rows, items) = (last >> 32, last & u64::from(u32::MAX));
        if rows == 0 || items == 0 {
            return most;
        }
        u32::try_from((u64::from(most) * rows).div_ceil(items)).unwrap_or(most)
    }
}

impl PostgresStore {
    /// Maximum `ready` rows that a claim scans: it locks all of them, so it scans no more than it
    /// will take. A claim with an explicit `now` (in tests) scans everything.
    pub(crate) fn rows_for(&self, claim: &Claim) -> u32 {
        let most = claim.most();
        if claim.now.is_some() || run_length(claim) < 2 {
            return most;
        }
        let rows = self.promotion().rows_for(most).max(claim.min_parallel);
        rows.clamp(1, most.max(1))
    }

    /// Records whether the claim saw pending arrivals (column `at`).
    pub(crate) fn observe_arrivals(&self, rows: &[PgRow], at: usize) -> Result<(), StoreError> {
        let has_arrivals = rows.first().map(|row| get::<bool>(row, at)).transpose();
        let has_arrivals = has_arrivals.map_err(|error| store_error("claim", error))?;
        self.set_arrivals(has_arrivals.unwrap_or_default());
        Ok(())
    }

    fn set_arrivals(&self, has_arrivals: bool) {
        let flag = &self.promotion().has_arrivals;
        flag.store(has_arrivals, Ordering::Relaxed);
    }

    /// Runs before a claim: promotes if the last statement saw arrivals. Before a claim with an
    /// explicit `now`, which scans everything, it promotes all arrivals.
    pub(crate) async fn promote_first(&self, now: Option<Timestamp>) -> Result<(), StoreError> {
        if now.is_some() {
            return self.promote_all(now).await;
        }
        self.promote_arrived(now).await.map(drop)
    }

    /// Promotes if the last statement saw arrivals; `true`: it created a head.
    pub(crate) async fn promote_arrived(&self, now: Option<Timestamp>) -> Result<bool, StoreError> {
        if !self.promotion().has_arrivals.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let Some(_guard) = self.promotion().start() else {
            return Ok(false);
        };
        Ok(self.promote(now).await?.heads > 0)
    }

    /// Promotes all arrivals, so that a reader sees each key with its head. Claims do this in small
    /// steps.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn promote_all(&self, now: Option<Timestamp>) -> Result<(), StoreError> {
        loop {
            let promoted = self.promote(now).await?;
            if promoted.arrivals < ARRIVALS_MAX {
                return Ok(());
            }
        }
    }

    async fn promote(&self, now: Option<Timestamp>) -> Result<Promoted, StoreError> {
        let mut promoted = self.promote_once(now).await?;
        if promoted.unknown_keys > 0 {
            let query = self.statements().add_keys.query();
            let query = query.bind(moment(now)).bind(ARRIVALS_MAX);
            self.fetch("claim", query).await?;
            let heads = promoted.heads;
            promoted = self.promote_once(now).await?;
            promoted.heads += heads;
        }
        self.set_arrivals(promoted.arrivals >= ARRIVALS_MAX);
        if promoted.heads > 0 {
            self.cursors().drop_all();
        }
        Ok(promoted)
    }

    async fn promote_once(&self, now: Option<Timestamp>) -> Result<Promoted, StoreError> {
        let query = self.statements().promote.query();
        let query = query.bind(moment(now)).bind(ARRIVALS_MAX);
        let rows = self.fetch("claim", query).await?;
        let read = |row: &PgRow| {
            Ok(Promoted {
                arrivals: get(row, 0)?,
                heads: get(row, 1)?,
                unknown_keys: get(row, 2)?,
            })
        };
        let promoted = rows.first().map_or(Err(sqlx::Error::RowNotFound), read);
        promoted.map_err(|error| store_error("claim", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_scans_as_many_rows_as_the_last_claim_needed() {
        let promotion = Promotion::default();
        assert_eq!(promotion.rows_for(1000), 1000);
        promotion.took(100, 1000);
        assert_eq!(promotion.rows_for(1000), 100);
        assert_eq!(promotion.rows_for(15), 2);
        promotion.took(100, 100);
        assert_eq!(promotion.rows_for(1000), 1000);
        promotion.took(0, 0);
        assert_eq!(promotion.rows_for(7), 7);
    }
}
