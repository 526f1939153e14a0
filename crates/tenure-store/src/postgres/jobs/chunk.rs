//! Chunks: claimed, renewed and ended by their full key.

use std::sync::atomic::Ordering;

use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use tenure_core::job::{Chunk, ChunkClaim, ChunkKey};
use tenure_core::store::{ChunkHold, ClaimChunk, EndChunk, JobHold, RenewChunks, StoreError};
use tenure_core::{Fence, Guarded, Lease, Timestamp, Token};

use super::super::PostgresStore;
use super::super::error::store_error;
use super::super::pool::Borrow as _;
use super::super::row::{get, get_count, get_moment, get_timestamp, moment};
use super::super::session::RunOn as _;
use super::{LatePolicy, hold_params};
use crate::jobs::{CLAIM_ROUNDS, ChunkRow, ChunkSnapshot, ClaimCheck, JobHoldState, end_params};
use crate::limits::micros;

/// The requested chunk, and the token and job of the caller.
struct Asker<'a> {
    key: &'a ChunkKey,
    token: &'a Token,
    job: Option<&'a JobHold>,
    now: Option<Timestamp>,
}

impl PostgresStore {
    /// Claims a chunk. After a failed attempt it reads the chunk, and retries if the chunk is free
    /// or does not exist.
    pub(super) async fn claim_one_chunk(
        &self,
        claim: &ClaimChunk,
    ) -> Result<ChunkClaim, StoreError> {
        let asker = Asker {
            key: &claim.key,
            token: &claim.token,
            job: claim.job.as_ref(),
            now: claim.now,
        };
        let (guess, mut rounds) = (&self.jobs.is_making, 0);
        let mut is_making = guess.load(Ordering::Relaxed);
        loop {
            let claimed = if is_making {
                self.try_make(claim).await?
            } else {
                self.try_claim(claim).await?
            };
            if let Some(chunk) = claimed {
                guess.store(is_making, Ordering::Relaxed);
                return Ok(ChunkClaim::Claimed(chunk));
            }
            let failed = |e| store_error("claim chunk", e);
            let mut lent = self.pool.borrow().await.map_err(failed)?;
            let look = self.see_chunk(lent.connection(), &asker).await;
            lent.give_back(&look);
            let look = look.map_err(failed)?;
            let found = look.check_claim(claim.fresh_for);
            if let ClaimCheck::Refused(answer) = found {
                return Ok(answer);
            }
            let is_absent = matches!(found, ClaimCheck::Missing);
            // A wrong guess does not count as a round.
            rounds += u32::from(is_absent == is_making);
            if rounds >= CLAIM_ROUNDS {
                // Another transaction keeps the row locked.
                return Ok(look.held());
            }
            is_making = is_absent;
        }
    }

    /// Claims a chunk that exists.
    async fn try_claim(&self, claim: &ClaimChunk) -> Result<Option<Chunk>, StoreError> {
        let (job, job_token, job_holder) = hold_params(claim.job.as_ref());
        let query = self.jobs.statements.claim_chunk.query();
        let row = query
            .bind(moment(claim.now))
            .bind(claim.key.matrix.as_str())
            .bind(claim.key.chunk.as_str())
            .bind(claim.token.expose())
            .bind(claim.token.holder())
            .bind(micros(claim.term.length()))
            .bind(claim.fresh_for.map(micros))
            .bind(job)
            .bind(job_token)
            .bind(job_holder)
            .first_from(&self.pool)
            .await;
        claimed(claim, row)
    }

    /// Creates and claims a chunk that does not exist.
    async fn try_make(&self, claim: &ClaimChunk) -> Result<Option<Chunk>, StoreError> {
        let (job, job_token, job_holder) = hold_params(claim.job.as_ref());
        let query = self.jobs.statements.make_chunk.query();
        let row = query
            .bind(moment(claim.now))
            .bind(claim.key.matrix.as_str())
            .bind(claim.key.chunk.as_str())
            .bind(claim.token.expose())
            .bind(claim.token.holder())
            .bind(micros(claim.term.length()))
            .bind(job)
            .bind(job_token)
            .bind(job_holder)
            .first_from(&self.pool)
            .await;
        claimed(claim, row)
    }

    pub(super) async fn renew_some_chunks(
        &self,
        renew: &RenewChunks,
        holds: Vec<ChunkHold>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let all = |part: fn(&ChunkHold) -> &str| holds.iter().map(part).collect::<Vec<_>>();
        let query = self.jobs.statements.renew_chunks.query();
        query
            .bind(moment(renew.now))
            .bind(all(|hold| hold.key.matrix.as_str()))
            .bind(all(|hold| hold.key.chunk.as_str()))
            .bind(all(|hold| hold.token.expose()))
            .bind(all(|hold| hold.token.holder()))
            .bind(micros(renew.term.length()))
            .all_from(&self.pool)
            .await
    }

    /// Ends the hold; a repeated call gets the answer of the first one.
    pub(super) async fn end_one_chunk(
        &self,
        conn: &mut PgConnection,
        end: &EndChunk,
    ) -> Result<Guarded<()>, StoreError> {
        if self.try_end(conn, end, LatePolicy::Accepted).await? {
            return Ok(Guarded::Accepted(()));
        }
        let (word, _, _) = end_params(end.end.as_ref());
        Ok(self.look_at(conn, end).await?.answer(word))
    }

    /// Ends the hold or records the cursor; `false`: the statement found no matching hold.
    pub(super) async fn try_end(
        &self,
        conn: &mut PgConnection,
        end: &EndChunk,
        late: LatePolicy,
    ) -> Result<bool, StoreError> {
        let (job, job_token, job_holder) = hold_params(end.job.as_ref());
        let (word, rows, error) = end_params(end.end.as_ref());
        let query = self.jobs.statements.end_chunk.query();
        let ended = query
            .bind(moment(end.now))
            .bind(end.key.matrix.as_str())
            .bind(end.key.chunk.as_str())
            .bind(end.token.expose())
            .bind(end.token.holder())
            .bind(job)
            .bind(job_token)
            .bind(job_holder)
            .bind(word)
            .bind(rows)
            .bind(error)
            .bind(end.cursor.as_deref())
            .bind(late == LatePolicy::Refused)
            .first_on(conn)
            .await;
        Ok(ended.map_err(|e| store_error("end chunk", e))?.is_some())
    }

    /// Reads the state of a chunk that could not be ended.
    pub(super) async fn look_at(
        &self,
        conn: &mut PgConnection,
        end: &EndChunk,
    ) -> Result<ChunkSnapshot, StoreError> {
        let asker = Asker {
            key: &end.key,
            token: &end.token,
            job: end.job.as_ref(),
            now: end.now,
        };
        let look = self.see_chunk(conn, &asker).await;
        look.map_err(|e| store_error("end chunk", e))
    }

    async fn see_chunk(
        &self,
        conn: &mut PgConnection,
        asker: &Asker<'_>,
    ) -> Result<ChunkSnapshot, sqlx::Error> {
        let (job, job_token, job_holder) = hold_params(asker.job);
        let query = self.jobs.statements.look_chunk.query();
        let row = query
            .bind(moment(asker.now))
            .bind(asker.key.matrix.as_str())
            .bind(asker.key.chunk.as_str())
            .bind(asker.token.expose())
            .bind(asker.token.holder())
            .bind(job)
            .bind(job_token)
            .bind(job_holder)
            .row_on(conn)
            .await?;
        let job = match (get(&row, 1)?, get(&row, 2)?) {
            (true, true) => JobHoldState::Live,
            (true, false) => JobHoldState::Lapsed,
            (false, _) => JobHoldState::Gone,
        };
        let is_there: bool = get(&row, 3)?;
        Ok(ChunkSnapshot {
            now: get_timestamp(&row, 0)?,
            job,
            chunk: is_there.then(|| chunk_row(&row)).transpose()?,
        })
    }
}

fn chunk_row(row: &PgRow) -> Result<ChunkRow, sqlx::Error> {
    Ok(ChunkRow {
        until: get_moment(row, 4)?,
        holder: get(row, 5)?,
        done_at: get_moment(row, 6)?,
        dead_at: get_moment(row, 7)?,
        synced_at: get_moment(row, 8)?,
        is_mine: get(row, 9)?,
        word: get(row, 10)?,
    })
}

fn claimed(
    claim: &ClaimChunk,
    row: Result<Option<PgRow>, sqlx::Error>,
) -> Result<Option<Chunk>, StoreError> {
    let failed = |e| store_error("claim chunk", e);
    let row = row.map_err(failed)?;
    let chunk = row.as_ref().map(|row| chunk_of(claim, row)).transpose();
    chunk.map_err(failed)
}

fn chunk_of(claim: &ClaimChunk, row: &PgRow) -> Result<Chunk, sqlx::Error> {
    Ok(Chunk {
        key: claim.key.clone(),
        lease: Lease {
            token: claim.token.clone(),
            fence: Fence::new(get(row, 0)?),
            claimed_at: get_timestamp(row, 1)?,
            until: get_timestamp(row, 2)?,
        },
        cursor: get(row, 3)?,
        attempts: get_count(row, 4)?,
    })
}
