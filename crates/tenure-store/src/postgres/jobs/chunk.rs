//! Chunks: claimed, renewed and ended by their whole key.

use std::sync::atomic::Ordering;

use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use tenure_core::job::{Chunk, ChunkClaim, ChunkKey};
use tenure_core::store::{ChunkHold, ClaimChunk, EndChunk, JobHold, RenewChunks, StoreError};
use tenure_core::{Fence, Guarded, Lease, Timestamp, Token};

use super::super::PostgresStore;
use super::super::error::store_error;
use super::super::lend::{Borrow as _, Lent};
use super::super::row::{get, get_count, get_moment, get_timestamp, moment};
use super::{Late, hold_params};
use crate::jobs::{CLAIM_ROUNDS, ChunkLook, Found, JobStands, SeenChunk, said};
use crate::limits::micros;

/// Who asks for which chunk, and for which job.
struct Asker<'a> {
    key: &'a ChunkKey,
    token: &'a Token,
    job: Option<&'a JobHold>,
    now: Option<Timestamp>,
}

impl PostgresStore {
    /// Claims; what was not given is looked at, and what is free or not there then is asked for
    /// again.
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
            let mut lent = Lent::from(&self.pool).await.map_err(failed)?;
            let look = self.see_chunk(lent.connection(), &asker).await;
            lent.give_back();
            let look = look.map_err(failed)?;
            let found = look.found(claim.fresh_for);
            if let Found::Answer(answer) = found {
                return Ok(answer);
            }
            let is_absent = matches!(found, Found::Absent);
            // A guess that was wrong is no round.
            rounds += u32::from(is_absent == is_making);
            if rounds >= CLAIM_ROUNDS {
                // Somebody's transaction has the row in hand, and goes on having it.
                return Ok(look.held());
            }
            is_making = is_absent;
        }
    }

    /// Takes a chunk that is there.
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

    /// Makes a chunk that is not there.
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

    /// Renews these holds.
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

    /// Ends the hold; a repeat is answered as the first one was.
    pub(super) async fn end_one_chunk(
        &self,
        conn: &mut PgConnection,
        end: &EndChunk,
    ) -> Result<Guarded<()>, StoreError> {
        if self.try_end(conn, end, Late::Accepted).await? {
            return Ok(Guarded::Kept(()));
        }
        let (word, _, _) = said(end.end.as_ref());
        Ok(self.look_at(conn, end).await?.answer(word))
    }

    /// Whether the hold was ended, or what was said of it written down.
    pub(super) async fn try_end(
        &self,
        conn: &mut PgConnection,
        end: &EndChunk,
        late: Late,
    ) -> Result<bool, StoreError> {
        let (job, job_token, job_holder) = hold_params(end.job.as_ref());
        let (word, rows, error) = said(end.end.as_ref());
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
            .bind(late == Late::Refused)
            .fetch_optional(conn)
            .await;
        Ok(ended.map_err(|e| store_error("end chunk", e))?.is_some())
    }

    /// How the chunk stands that could not be ended.
    pub(super) async fn look_at(
        &self,
        conn: &mut PgConnection,
        end: &EndChunk,
    ) -> Result<ChunkLook, StoreError> {
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
    ) -> Result<ChunkLook, sqlx::Error> {
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
            .fetch_one(conn)
            .await?;
        let job = match (get(&row, 1)?, get(&row, 2)?) {
            (true, true) => JobStands::Live,
            (true, false) => JobStands::Lapsed,
            (false, _) => JobStands::Gone,
        };
        let is_there: bool = get(&row, 3)?;
        Ok(ChunkLook {
            now: get_timestamp(&row, 0)?,
            job,
            chunk: is_there.then(|| seen(&row)).transpose()?,
        })
    }
}

fn seen(row: &PgRow) -> Result<SeenChunk, sqlx::Error> {
    Ok(SeenChunk {
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
