//! `Table`: an adopted table with claim, renew, settle and reap; and the adoption of tables.

pub use tenure_core::{
    Addition, Adds, AdoptedTable, Identifier, Indexes, LeaseTable, MapFault, Obstacle, Plan,
    PlannedIndex, Stage, States, SyncState, TableLocation, TableMap,
};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::store::{
    Bury, Claim, Counts, Filter, OnStep, Page, Reap, Reaped, Renew, Renewed, Replay, Replayed,
    Rest, Rows, Settle, Settlement, StoreError, StoreErrorKind, WhileHeld,
};
use tenure_core::{Guarded, Held, ItemId, LapsePolicy, Record, Settings, Token, Why};
use tenure_store::{claim_in_turn, explain_row};

use crate::tenure::Tenure;
use crate::worker::{RowSource, WorkerBuilder};

/// An adopted table of your own, whose rows are leased. Clones are cheap.
///
/// `tenure adopt` or [`Tenure::adopt`] adopts an existing table.
///
/// ```
/// use tenure::lease::{Content, Settle};
/// use tenure::table::LeaseTable;
/// use tenure::Tenure;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("shop.db");
/// let tenure = Tenure::open(&format!("sqlite://{}", path.display())).await?;
/// let shop = rusqlite::Connection::open(&path)?;
/// shop.execute_batch(
///     "create table sync_jobs (id integer primary key, created_at integer not null, what text);
///      insert into sync_jobs (created_at, what) values (0, 'orders');",
/// )?;
///
/// // Once: `tenure adopt sync_jobs --preset sync_jobs`, or
/// let plan = tenure.adoption(&LeaseTable::sync_jobs()).await?.expect("it can be leased");
/// tenure.adopt(&plan, &|step| println!("{step}")).await?;
///
/// // From then on, in every process:
/// let jobs = tenure.table("sync_jobs").await?;
/// let held = jobs.claim(10).await?.expect("one row waits");
/// let Content::Row(row) = &held.items[0].content else { panic!("a table has rows") };
/// assert!(row.contains("\"what\":\"orders\""));
/// let answer = jobs.settle(&Settle::new(held.lease.token.clone()).done(held.ids())).await?;
/// assert_eq!(answer.refused().count(), 0);
/// assert!(tenure.table("orders").await.is_err(), "that one was not adopted");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    tenure: Tenure,
    rows: Arc<dyn Rows>,
    /// Number of calls of [`Table::claim`].
    claims: Arc<AtomicU64>,
}

impl Tenure {
    /// Opens an adopted table.
    ///
    /// # Errors
    /// The table was not adopted, or only in part; it has lost required columns since; or the
    /// database is unavailable.
    pub async fn table(&self, name: &str) -> Result<Table, StoreError> {
        let invalid = |message| StoreError::new("open", StoreErrorKind::Invalid, message);
        let adopted = self.adopted_tables().await?;
        let known = adopted.into_iter();
        let mut named = known.filter(|known| known.table.name.as_str() == name);
        let Some(adopted) = named.next() else {
            let message = format!("the table {name} was not adopted");
            return Err(invalid(message).with_hint(format!("run `tenure adopt {name}` first")));
        };
        if let Some(told) = adopted.elsewhere() {
            return Err(invalid(told.what).with_hint(told.hint));
        }
        if adopted.location == TableLocation::Gone {
            let message = format!("the table {name} was adopted and is gone: dropped or renamed");
            let hint = format!(
                "`tenure adopt {name} --undo` removes its record; if the table was renamed, rename \
                 it back first"
            );
            return Err(invalid(message).with_hint(hint));
        }
        if !adopted.is_finished {
            let message = format!("the adoption of {name} is not complete");
            let hint = format!("run `tenure adopt {name}` again: it goes on where it stopped");
            return Err(invalid(message).with_hint(hint));
        }
        Ok(Table {
            tenure: self.clone(),
            rows: self.user_tables()?.rows(adopted.table).await?,
            claims: Arc::default(),
        })
    }

    /// Lists the tables that were adopted, completely or in part, by name.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn adopted_tables(&self) -> Result<Vec<AdoptedTable>, StoreError> {
        self.user_tables()?.adopted().await
    }

    /// Plans the adoption of a table; changes nothing. The inner error lists every obstacle.
    ///
    /// # Errors
    /// The database is unavailable, or the store does not support adopted tables.
    pub async fn adoption(
        &self,
        table: &LeaseTable,
    ) -> Result<Result<Plan, Vec<Obstacle>>, StoreError> {
        let found = self.user_tables()?.inspect(table).await?;
        let adopted = self.adopted_tables().await?;
        let recorded = adopted.iter().find(|known| known.table.name == table.name);
        Ok(table.plan(&found, recorded))
    }

    /// Carries out the rest of a plan and reports each step, without blocking the table's writers.
    /// Completed steps stay when it fails: plan again to continue from there.
    ///
    /// # Errors
    /// The table is locked for too long, or the database is unavailable.
    pub async fn adopt(&self, plan: &Plan, tell: OnStep<'_>) -> Result<(), StoreError> {
        self.user_tables()?.adopt(plan, tell).await
    }

    /// Returns the SQL of a plan, for an administrator to read or apply.
    ///
    /// # Errors
    /// The store does not support adopted tables.
    pub fn adoption_sql(&self, plan: &Plan) -> Result<String, StoreError> {
        self.user_tables()?.adoption_sql(plan)
    }

    /// Gives a table back: removes exactly the objects that Tenure added. If held leases prevent
    /// that, changes nothing and returns their number.
    ///
    /// # Errors
    /// The table is locked for too long, or the database is unavailable.
    pub async fn undo_adoption(
        &self,
        adopted: &AdoptedTable,
        held: WhileHeld,
    ) -> Result<u64, StoreError> {
        self.user_tables()?.undo(adopted, held).await
    }

    /// Returns the SQL that gives a table back.
    ///
    /// # Errors
    /// The store does not support adopted tables.
    pub fn undo_sql(&self, adopted: &AdoptedTable) -> Result<String, StoreError> {
        self.user_tables()?.undo_sql(adopted)
    }
}

impl Table {
    /// Description of the table: the columns that hold its leases, and the words of its status.
    pub fn described(&self) -> &LeaseTable {
        self.rows.table()
    }

    /// Creates the builder of a worker on this table: set its handler, then start or run it.
    pub fn worker(&self) -> WorkerBuilder<RowSource> {
        WorkerBuilder::rows(self.clone())
    }

    /// Claims up to `limit` rows for the default term; `None` if no row is available. It also reaps
    /// lapsed leases, so that no reaper is needed.
    ///
    /// As with [`Tenure::claim`], a row whose lease lapsed twice or more is claimed alone, and rows
    /// are released if the answer of the store is lost.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn claim(&self, limit: u32) -> Result<Option<Held>, StoreError> {
        let turn = self.claims.fetch_add(1, Ordering::Relaxed) + 1;
        let ask = || {
            let claim = Claim::new(self.tenure.token(), limit);
            claim.recovery(Some(LapsePolicy::default()))
        };
        claim_in_turn(self.rows.as_ref(), turn, ask).await
    }

    /// Claims with these options; take the token from [`Tenure::token`].
    ///
    /// # Errors
    /// The token was used before, or the database is unavailable.
    pub async fn claim_with(&self, claim: &Claim) -> Result<Option<Held>, StoreError> {
        self.rows.claim(claim).await
    }

    /// Extends leases; returns a result for each token, in order. Safe to repeat. A lease whose row
    /// is locked by another transaction is left out: renew it again.
    ///
    /// # Errors
    /// The database is unavailable. A lost or ended lease is reported as refused, not as an error.
    pub async fn renew(&self, renew: &Renew) -> Result<Vec<(Token, Guarded<Renewed>)>, StoreError> {
        self.rows.renew(renew).await
    }

    /// Ends holds, each with its outcome. Safe to repeat.
    ///
    /// # Errors
    /// A row is named twice, or the database is unavailable. A stale token is reported as refused,
    /// not as an error.
    pub async fn settle(&self, settle: &Settle) -> Result<Settlement, StoreError> {
        self.rows.settle(settle).await
    }

    /// Releases all rows still held under this token; returns their number.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn release(&self, token: &Token) -> Result<u32, StoreError> {
        let settle = Settle::new(token.clone()).rest(Rest::Release);
        Ok(self.settle(&settle).await?.rest)
    }

    /// Ends lapsed leases: their rows become pending again, or dead if they lapsed too often.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn reap(&self, reap: &Reap) -> Result<Vec<Reaped>, StoreError> {
        self.rows.reap(reap).await
    }

    /// Reads these rows; unknown ids are left out.
    ///
    /// # Errors
    /// The database is unavailable, or the status of a row is not one of the table's words.
    pub async fn find(&self, ids: &[ItemId]) -> Result<Vec<Record>, StoreError> {
        self.rows.find(ids).await
    }

    /// Lists up to `limit` (at most 1000) rows, newest first.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn list(&self, filter: &Filter, limit: u32) -> Result<Page, StoreError> {
        self.rows.list(filter, limit).await
    }

    /// Counts the rows by state. Scans the whole table.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn count(&self) -> Result<Counts, StoreError> {
        self.rows.count(None).await
    }

    /// Explains in one sentence why a row is not being worked on; `None` if it does not exist.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn why(&self, id: ItemId, settings: &Settings) -> Result<Option<Why>, StoreError> {
        let rows = self.rows.as_ref();
        explain_row(self.tenure.store(), rows, id, settings).await
    }

    /// Makes done or dead rows pending again.
    ///
    /// # Errors
    /// The table has no status column, so its rows cannot be replayed; or the database is
    /// unavailable.
    pub async fn replay(&self, ids: &[ItemId]) -> Result<Replayed, StoreError> {
        if self.described().states == States::Derived {
            let name = &self.described().name;
            let message =
                format!("rows of {name} cannot be replayed: the table has no status column");
            return Err(StoreError::new("replay", StoreErrorKind::Invalid, message)
                .with_hint("write a new row with the same content"));
        }
        self.rows.replay(&Replay::new(ids.to_vec())).await
    }

    /// Settles a row as dead now, even if a worker holds it; `reason` is stored for operators.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn bury(&self, id: ItemId, reason: &str) -> Result<Guarded, StoreError> {
        let bury = Bury::new(id, self.tenure.token(), reason);
        self.rows.bury(&bury).await
    }

    pub(crate) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    pub(crate) fn rows(&self) -> &Arc<dyn Rows> {
        &self.rows
    }
}
