//! Placement: the domains that are rung for get a head. A producer locks nothing of a domain: it
//! puts its event into the backlog and rings; a claim that hears it lets the domain's first event
//! into `ready`, in a short statement of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sqlx::postgres::PgRow;
use tenure_core::Timestamp;
use tenure_core::store::{Claim, StoreError};

use super::PostgresStore;
use super::claim::run_length;
use super::error::store_error;
use super::row::{get, moment};

/// So many bells are answered at once.
const BELLS: i64 = 2_000;

/// What a store knows of the bells, and of the runs that heads bring along.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    /// Whether some were ringing when somebody last looked.
    is_rung: AtomicBool,
    /// Whether a connection of this store is answering them. One at a time: two would only pass
    /// over each other's.
    is_answering: AtomicBool,
    /// Rows of `ready` and items of the last claim that could take runs, as two halves.
    last: AtomicU64,
}

/// Held by whoever answers the bells.
struct Answering<'a>(&'a AtomicBool);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What one statement of placement did.
struct Placed {
    rung: i64,
    heads: i64,
    unknown: i64,
}

impl Bells {
    fn answering(&self) -> Option<Answering<'_>> {
        let was_answering = self.is_answering.swap(true, Ordering::Acquire);
        (!was_answering).then_some(Answering(&self.is_answering))
    }

    /// Notes how many items came of how many rows of `ready`.
    pub(crate) fn took(&self, rows: usize, items: usize) {
        let half = |count| u64::from(u32::try_from(count).unwrap_or(u32::MAX));
        self.last
            .store(half(rows) << 32 | half(items), Ordering::Relaxed);
    }

    /// How many rows of `ready` give about `most` items, by the last claim.
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
    /// How many rows of `ready` a claim looks at: it locks all of them, so no more than it will
    /// take. A claim at a given moment (a test's) looks at everything.
    pub(crate) fn rows_for(&self, claim: &Claim) -> u32 {
        let most = claim.most();
        if claim.now.is_some() || run_length(claim) < 2 {
            return most;
        }
        let rows = self.bells().rows_for(most).max(claim.abreast);
        rows.clamp(1, most.max(1))
    }

    /// Hears what a claim says of the bells, in the column `at` of its rows.
    pub(crate) fn heed(&self, rows: &[PgRow], at: usize) -> Result<(), StoreError> {
        let is_rung = rows.first().map(|row| get::<bool>(row, at)).transpose();
        let is_rung = is_rung.map_err(|error| store_error("claim", error))?;
        let is_rung = is_rung.unwrap_or_default();
        self.bells().is_rung.store(is_rung, Ordering::Relaxed);
        Ok(())
    }

    /// Before a claim: answers the bells that the last one heard. Before a claim at a given moment,
    /// which looks at everything: all of them.
    pub(crate) async fn place_first(&self, now: Option<Timestamp>) -> Result<(), StoreError> {
        if now.is_some() {
            return self.place_all(now).await;
        }
        self.place_if_rung(now).await.map(drop)
    }

    /// Answers the bells if any is ringing; whether a head was made.
    pub(crate) async fn place_if_rung(&self, now: Option<Timestamp>) -> Result<bool, StoreError> {
        if !self.bells().is_rung.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let Some(_answering) = self.bells().answering() else {
            return Ok(false);
        };
        Ok(self.place(now).await?.heads > 0)
    }

    /// Answers every bell, so that whoever looks sees each domain with its head. A claim does this
    /// by itself, bit by bit.
    ///
    /// # Errors
    /// The database is away.
    pub async fn place_all(&self, now: Option<Timestamp>) -> Result<(), StoreError> {
        loop {
            let placed = self.place(now).await?;
            if placed.rung < BELLS {
                return Ok(());
            }
        }
    }

    async fn place(&self, now: Option<Timestamp>) -> Result<Placed, StoreError> {
        let mut placed = self.place_once(now).await?;
        if placed.unknown > 0 {
            let query = self.statements().place_new.query();
            let query = query.bind(moment(now)).bind(BELLS);
            self.fetch("claim", query).await?;
            let heads = placed.heads;
            placed = self.place_once(now).await?;
            placed.heads += heads;
        }
        let is_rung = placed.rung >= BELLS;
        self.bells().is_rung.store(is_rung, Ordering::Relaxed);
        if placed.heads > 0 {
            self.cursors().drop_all();
        }
        Ok(placed)
    }

    async fn place_once(&self, now: Option<Timestamp>) -> Result<Placed, StoreError> {
        let query = self.statements().place.query();
        let query = query.bind(moment(now)).bind(BELLS);
        let rows = self.fetch("claim", query).await?;
        let read = |row: &PgRow| {
            Ok(Placed {
                rung: get(row, 0)?,
                heads: get(row, 1)?,
                unknown: get(row, 2)?,
            })
        };
        let placed = rows.first().map_or(Err(sqlx::Error::RowNotFound), read);
        placed.map_err(|error| store_error("claim", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_looks_at_as_many_rows_as_the_last_one_needed() {
        let bells = Bells::default();
        assert_eq!(bells.rows_for(1000), 1000);
        bells.took(100, 1000);
        assert_eq!(bells.rows_for(1000), 100);
        assert_eq!(bells.rows_for(15), 2);
        bells.took(100, 100);
        assert_eq!(bells.rows_for(1000), 1000);
        bells.took(0, 0);
        assert_eq!(bells.rows_for(7), 7);
    }
}
