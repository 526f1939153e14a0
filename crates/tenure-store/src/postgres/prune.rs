//! Prune on the queue layout, in one transaction. The first statement selects and locks rows; the
//! second, with a newer snapshot, checks them again and deletes. Keys, workers and jobs follow.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tenure_core::store::{Answer, Prune, Pruned, Pruner};

use super::PostgresStore;
use super::error::store_error;
use super::queue::Sql;
use super::row::{get, get_total, moment};
use super::session::RunOn as _;
use crate::cluster::WORKERS_KEPT;
use crate::jobs::PRUNED_MAX as JOBS;
use crate::limits::micros;

/// Retention of an idle key; long enough that a busy key's row is not recreated all the time.
const KEYS_KEPT: Duration = Duration::from_hours(1);

impl Pruner for PostgresStore {
    fn prune<'a>(&'a self, prune: &'a Prune) -> Answer<'a, Pruned> {
        Box::pin(async move {
            if prune.limit == 0 {
                return Ok(Pruned::default());
            }
            let lent = self.pool.borrow().await;
            let mut lent = lent.map_err(|error| store_error("prune", error))?;
            let pruned = self.round(lent.connection(), prune).await;
            lent.give_back(&pruned);
            pruned.map_err(|error| store_error("prune", error))
        })
    }
}

impl PostgresStore {
    async fn round(&self, conn: &mut PgConnection, prune: &Prune) -> Result<Pruned, sqlx::Error> {
        let mut tx = conn.begin_with(self.pool.begin_text()).await?;
        let choose = bind(self.statements().prune_choose.query(), prune);
        let chosen = choose.row_on(&mut tx).await?;
        let delete = bind(self.statements().prune.query(), prune)
            .bind(get::<Option<Vec<i64>>>(&chosen, 0)?)
            .bind(get::<Option<Vec<String>>>(&chosen, 1)?)
            .bind(get::<Option<Vec<i64>>>(&chosen, 3)?);
        let deleted = delete.row_on(&mut tx).await?;
        let keys = self.statements().prune_keys.query();
        let keys = keys
            .bind(moment(prune.now))
            .bind(micros(KEYS_KEPT))
            .bind(i64::from(prune.limit));
        keys.rows_on(&mut tx).await?;
        let workers = self.statements().prune_workers.query();
        let workers = workers.bind(moment(prune.now)).bind(micros(WORKERS_KEPT));
        workers.rows_on(&mut tx).await?;
        let jobs = self.jobs.statements().prune.query();
        let jobs = jobs
            .bind(moment(prune.now))
            .bind(micros(prune.done))
            .bind(micros(prune.dead))
            .bind(i64::from(prune.limit.min(JOBS)));
        let jobs = jobs.row_on(&mut tx).await?;
        tx.commit().await?;
        let (completed, failed) = (get_total(&jobs, 0)?, get_total(&jobs, 1)?);
        let (done, dead) = (get_total(&deleted, 0)?, get_total(&deleted, 1)?);
        let has_moved = done + dead + get_total(&deleted, 2)? > 0;
        // Stop after a round without progress: other transactions hold all remaining rows.
        let is_more = has_moved && (get(&chosen, 2)? || get(&deleted, 3)?);
        Ok(Pruned {
            done,
            dead,
            jobs_completed: completed,
            jobs_failed: failed,
            more: is_more || completed.max(failed) >= u64::from(prune.limit.min(JOBS)),
        })
    }
}

/// Binds the parameters that both statements share.
fn bind<'q>(query: Sql<'q>, prune: &Prune) -> Sql<'q> {
    query
        .bind(moment(prune.now))
        .bind(micros(prune.done))
        .bind(micros(prune.dead))
        .bind(i64::from(prune.limit))
}
