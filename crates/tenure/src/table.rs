//! `Table`: a table of your own that was adopted, with the verbs by hand; and adopting one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::store::{
    Bury, Claim, Counts, Filter, Page, Reap, Reaped, Renew, Renewed, Replay, Replayed, Rest, Rows,
    Settle, Settlement, StoreError, StoreErrorKind, Tell, WhileHeld, WorkerRecord,
};
use tenure_core::{
    AdoptedTable, Facts, FoundTable, Guarded, Held, ItemId, LapsePolicy, LeaseTable, Plan, Record,
    Settings, States, Token, Whereabouts, Why, why,
};

use crate::claim;
use crate::operate::{WORKERS, credible, present};
use crate::table_worker::TableWorkerBuilder;
use crate::tenure::Tenure;

/// A table of your own whose rows are leased. Clones share it.
///
/// `tenure adopt` makes one of a table that is there; so does [`Tenure::adopt`].
///
/// ```
/// use tenure::{Content, LeaseTable, Settle, Tenure};
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
#[derive(Clone)]
pub struct Table {
    tenure: Tenure,
    rows: Arc<dyn Rows>,
    /// Calls of [`Table::claim`].
    claims: Arc<AtomicU64>,
}

impl Tenure {
    /// A table of yours that was adopted.
    ///
    /// # Errors
    /// It was not adopted, or not to the end; it lost columns since; or the database is away.
    pub async fn table(&self, name: &str) -> Result<Table, StoreError> {
        let invalid = |message| StoreError::new("open", StoreErrorKind::Invalid, message);
        let adopted = self.adopted_tables().await?;
        let known = adopted.into_iter();
        let mut named = known.filter(|known| known.table.name.as_str() == name);
        let Some(adopted) = named.next() else {
            let message = format!("the table {name} was not adopted");
            return Err(invalid(message).hint(format!("run `tenure adopt {name}` first")));
        };
        if let Some(told) = adopted.elsewhere() {
            return Err(invalid(told.what).hint(told.hint));
        }
        if adopted.whereabouts == Whereabouts::Gone {
            let message = format!("the table {name} was adopted and is gone: dropped or renamed");
            let hint = format!(
                "`tenure adopt {name} --undo` forgets it; one that was renamed should get its \
                 name back first"
            );
            return Err(invalid(message).hint(hint));
        }
        if !adopted.is_finished {
            let message = format!("the table {name} is adopted only half way");
            let hint = format!("run `tenure adopt {name}` again: it goes on where it stopped");
            return Err(invalid(message).hint(hint));
        }
        Ok(Table {
            tenure: self.clone(),
            rows: self.user_tables()?.rows(adopted.table).await?,
            claims: Arc::default(),
        })
    }

    /// The tables that were adopted or are half way there, by name.
    ///
    /// # Errors
    /// The database is away.
    pub async fn adopted_tables(&self) -> Result<Vec<AdoptedTable>, StoreError> {
        self.user_tables()?.adopted().await
    }

    /// What a table of yours needs to be leased; nothing is changed. The inner error has every
    /// reason why it cannot be.
    ///
    /// # Errors
    /// The database is away, or this store has no tables but Tenure's own.
    pub async fn adoption(
        &self,
        table: &LeaseTable,
    ) -> Result<Result<Plan, Vec<tenure_core::Obstacle>>, StoreError> {
        let found = self.look_at(table).await?;
        let adopted = self.adopted_tables().await?;
        let recorded = adopted.iter().find(|known| known.table.name == table.name);
        Ok(table.plan(&found, recorded))
    }

    /// What the database says of a table.
    async fn look_at(&self, table: &LeaseTable) -> Result<FoundTable, StoreError> {
        self.user_tables()?.look(table).await
    }

    /// Does what is left of a plan, and tells each step. The table's writers go on. What was done
    /// when it fails stays: plan again and go on from there.
    ///
    /// # Errors
    /// The table is in use all the time, or the database is away.
    pub async fn adopt(&self, plan: &Plan, tell: Tell<'_>) -> Result<(), StoreError> {
        self.user_tables()?.adopt(plan, tell).await
    }

    /// The SQL of a plan, to be read or applied by an administrator.
    ///
    /// # Errors
    /// This store has no tables but Tenure's own.
    pub fn adoption_sql(&self, plan: &Plan) -> Result<String, StoreError> {
        self.user_tables()?.adoption_sql(plan)
    }

    /// Gives a table back: takes away what was added, and nothing else. Answers how many leases of
    /// ours are in the way; then nothing was changed.
    ///
    /// # Errors
    /// The table is in use all the time, or the database is away.
    pub async fn undo_adoption(
        &self,
        adopted: &AdoptedTable,
        held: WhileHeld,
    ) -> Result<u64, StoreError> {
        self.user_tables()?.undo(adopted, held).await
    }

    /// The SQL that gives a table back.
    ///
    /// # Errors
    /// This store has no tables but Tenure's own.
    pub fn undo_sql(&self, adopted: &AdoptedTable) -> Result<String, StoreError> {
        self.user_tables()?.undo_sql(adopted)
    }
}

impl Table {
    /// What the table calls our facts.
    pub fn described(&self) -> &LeaseTable {
        self.rows.table()
    }

    /// Begins a worker on this table: name its handler, then start it or run it.
    pub fn worker(&self) -> TableWorkerBuilder {
        TableWorkerBuilder::new(self.clone())
    }

    /// Claims up to `limit` rows for the standard term; `None` when nothing may be claimed. What
    /// has lapsed is put back on the way, so that no reaper is needed.
    ///
    /// As with [`Tenure::claim`], a row whose lease lapsed twice is handed out alone, and what was
    /// claimed when the answer was lost is given back.
    ///
    /// # Errors
    /// The database is away.
    pub async fn claim(&self, limit: u32) -> Result<Option<Held>, StoreError> {
        let turn = self.claims.fetch_add(1, Ordering::Relaxed) + 1;
        let ask = || {
            let claim = Claim::new(self.tenure.token(), limit);
            claim.recovery(Some(LapsePolicy::default()))
        };
        claim::in_turn(self.rows.as_ref(), turn, ask).await
    }

    /// Claims as this ask says; take its token from [`Tenure::token`].
    ///
    /// # Errors
    /// The token was used before, or the database is away.
    pub async fn claim_with(&self, claim: &Claim) -> Result<Option<Held>, StoreError> {
        self.rows.claim(claim).await
    }

    /// Prolongs leases; answers for each token in order. One whose row is in somebody's
    /// transaction just now is left out: ask for it again. May be repeated.
    ///
    /// # Errors
    /// The database is away. A lease that is lost or over is no error but an answer.
    pub async fn renew(&self, renew: &Renew) -> Result<Vec<(Token, Guarded<Renewed>)>, StoreError> {
        self.rows.renew(renew).await
    }

    /// Ends holds, each with its outcome. May be repeated.
    ///
    /// # Errors
    /// A row is named twice, or the database is away. A stale token is no error but an answer.
    pub async fn settle(&self, settle: &Settle) -> Result<Settlement, StoreError> {
        self.rows.settle(settle).await
    }

    /// Gives back whatever is still held under this token, unworked; answers how many rows.
    ///
    /// # Errors
    /// The database is away.
    pub async fn release(&self, token: &Token) -> Result<u32, StoreError> {
        let settle = Settle::new(token.clone()).rest(Rest::Release);
        Ok(self.settle(&settle).await?.rest)
    }

    /// Ends lapsed leases: their rows are pending again, or dead when they lapsed too often.
    ///
    /// # Errors
    /// The database is away.
    pub async fn reap(&self, reap: &Reap) -> Result<Vec<Reaped>, StoreError> {
        self.rows.reap(reap).await
    }

    /// Everything that is known of these rows; unknown ids are left out.
    ///
    /// # Errors
    /// The database is away, or a row is in no state that the table's words know.
    pub async fn find(&self, ids: &[ItemId]) -> Result<Vec<Record>, StoreError> {
        self.rows.find(ids).await
    }

    /// Up to `limit` (at most 1000) rows, newest first.
    ///
    /// # Errors
    /// The database is away.
    pub async fn list(&self, filter: &Filter, limit: u32) -> Result<Page, StoreError> {
        self.rows.list(filter, limit).await
    }

    /// How many rows stand where. Every row is looked at.
    ///
    /// # Errors
    /// The database is away.
    pub async fn count(&self) -> Result<Counts, StoreError> {
        self.rows.count(None).await
    }

    /// Why a row is not being worked on, in one sentence; `None` when there is no such row.
    ///
    /// # Errors
    /// The database is away.
    pub async fn why(&self, id: ItemId, settings: &Settings) -> Result<Option<Why>, StoreError> {
        let (moment, workers) = self.tenure.workers(WORKERS).await?;
        let Some(record) = self.find(&[id]).await?.pop() else {
            return Ok(None);
        };
        let counts = self.count().await?;
        let facts = Facts {
            counts: counts
                .queues
                .into_iter()
                .next()
                .map(|(_, counts)| counts)
                .unwrap_or_default(),
            workers: present(self.own(workers), moment),
            settings: settings.clone(),
            ..Facts::default()
        };
        let mut answer = why(&record, &facts, credible(moment, record.created_at));
        // What is said of events is said of rows; what is to be typed names the table.
        let table = &self.described().name;
        let either = "`tenure serve`, or `tenure work`";
        let hint = answer.hint.take();
        answer.hint =
            hint.map(|hint| hint.replace(either, &format!("`tenure work --table {table}`")));
        for verb in ["replay", "bury", "reap", "show"] {
            let named = format!("`tenure {verb} --table {table}");
            let hint = answer.hint.take();
            answer.hint = hint.map(|hint| hint.replace(&format!("`tenure {verb}"), &named));
        }
        Ok(Some(answer))
    }

    /// Puts rows that are done or dead back, to be worked again.
    ///
    /// # Errors
    /// The table has no status: there, what is done or dead stays so. Or the database is away.
    pub async fn replay(&self, ids: &[ItemId]) -> Result<Replayed, StoreError> {
        if self.described().states == States::Derived {
            let name = &self.described().name;
            let message = format!("what is done or dead in {name} stays so: it has no status");
            return Err(StoreError::new("replay", StoreErrorKind::Invalid, message)
                .hint("write a new row with the same content"));
        }
        self.rows.replay(&Replay::new(ids.to_vec())).await
    }

    /// Settles a row dead, now, whoever holds it; `reason` is for people.
    ///
    /// # Errors
    /// The database is away.
    pub async fn bury(&self, id: ItemId, reason: &str) -> Result<Guarded, StoreError> {
        let bury = Bury::new(id, self.tenure.token(), reason);
        self.rows.bury(&bury).await
    }

    /// The workers on this table. Those on events neither claim its rows nor reap them; and the
    /// rows stand in one line, which each of these serves.
    fn own(&self, mut workers: Vec<WorkerRecord>) -> Vec<WorkerRecord> {
        let table = self.described().name.as_str();
        workers.retain(|worker| worker.report.works_on(table));
        for worker in &mut workers {
            worker.report.queues.clear();
        }
        workers
    }

    pub(crate) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    pub(crate) fn rows(&self) -> &Arc<dyn Rows> {
        &self.rows
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("name", &self.described().name)
            .finish_non_exhaustive()
    }
}
