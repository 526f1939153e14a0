//! Chunks: each is claimed, renewed and ended by its whole key, in one transaction.

use rusqlite::{OptionalExtension, named_params};
use tenure_core::job::{Chunk, ChunkClaim, ChunkKey};
use tenure_core::store::{
    ChunkHold, ClaimChunk, EndChunk, JobHold, RenewChunks, Renewed, StoreError,
};
use tenure_core::{Fence, Guarded, ItemId, Lease, Refusal, Timestamp, Token};

use super::super::error::failed;
use super::super::row;
use super::{JobTables, LatePolicy};
use crate::jobs::{ChunkRow, ChunkSnapshot, ClaimCheck, JobHoldState, end_params};

/// The requested chunk, and the token and job of the caller.
struct Asker<'a> {
    key: &'a ChunkKey,
    token: &'a Token,
    job: Option<&'a JobHold>,
}

pub(super) fn claim(
    tables: JobTables<'_>,
    claim: &ClaimChunk,
    now: Timestamp,
) -> Result<ChunkClaim, StoreError> {
    let asker = Asker {
        key: &claim.key,
        token: &claim.token,
        job: claim.job.as_ref(),
    };
    let seen = look(tables, &asker, now).map_err(failed("claim chunk"))?;
    let statement = match seen.check_claim(claim.fresh_for) {
        ClaimCheck::Refused(answer) => return Ok(answer),
        ClaimCheck::Free => tables.sql.claim_chunk,
        ClaimCheck::Missing => tables.sql.make_chunk,
    };
    let chunk = take(tables, claim, statement, now).map_err(failed("claim chunk"))?;
    Ok(ChunkClaim::Claimed(chunk))
}

fn take(
    tables: JobTables<'_>,
    claim: &ClaimChunk,
    statement: &str,
    now: Timestamp,
) -> rusqlite::Result<Chunk> {
    let mut drawn = tables.connection.prepare_cached(tables.sql.fence)?;
    let fence = drawn.query_row([], |found| found.get(0))?;
    let until = now.after(claim.term.length());
    let ask = named_params! {
        ":now": now.as_micros(),
        ":matrix": claim.key.matrix.as_str(),
        ":chunk": claim.key.chunk.as_str(),
        ":token": claim.token.expose(),
        ":holder": claim.token.holder(),
        ":until": until.as_micros(),
        ":fence": fence,
    };
    let mut taken = tables.connection.prepare_cached(statement)?;
    taken.query_row(ask, |found| {
        Ok(Chunk {
            key: claim.key.clone(),
            lease: Lease {
                token: claim.token.clone(),
                fence: Fence::new(fence),
                claimed_at: now,
                until,
            },
            cursor: found.get(0)?,
            attempts: found.get(1)?,
        })
    })
}

pub(super) fn renew_all(
    tables: JobTables<'_>,
    renew: RenewChunks,
    now: Timestamp,
) -> rusqlite::Result<Vec<(ChunkHold, Guarded<Renewed>)>> {
    let until = now.after(renew.term.length());
    let mut answers = Vec::with_capacity(renew.holds.len());
    for hold in renew.holds {
        let answer = renew_one(tables, &hold, until, now)?;
        answers.push((hold, answer));
    }
    Ok(answers)
}

fn renew_one(
    tables: JobTables<'_>,
    hold: &ChunkHold,
    until: Timestamp,
    now: Timestamp,
) -> rusqlite::Result<Guarded<Renewed>> {
    let ask = named_params! {
        ":now": now.as_micros(),
        ":matrix": hold.key.matrix.as_str(),
        ":chunk": hold.key.chunk.as_str(),
        ":token": hold.token.expose(),
        ":holder": hold.token.holder(),
        ":until": until.as_micros(),
    };
    let renewed = tables
        .connection
        .prepare_cached(tables.sql.renew_chunks)?
        .query_row(ask, |found| {
            Ok(Renewed {
                until: row::moment(found, 1)?,
                fence: Fence::new(found.get(2)?),
                ids: vec![ItemId::new(found.get(0)?)],
            })
        })
        .optional()?;
    if let Some(renewed) = renewed {
        return Ok(Guarded::Accepted(renewed));
    }
    let asker = Asker {
        key: &hold.key,
        token: &hold.token,
        job: None,
    };
    let seen = look(tables, &asker, now)?.chunk;
    let is_lapsed = seen.is_some_and(|seen| seen.is_mine && seen.until.is_some());
    let why = if is_lapsed {
        Refusal::Lapsed
    } else {
        Refusal::Lost
    };
    Ok(Guarded::Refused(why))
}

/// Ends the hold; a repeated call gets the same answer as the first.
pub(super) fn end(
    tables: JobTables<'_>,
    end: &EndChunk,
    now: Timestamp,
) -> rusqlite::Result<Guarded<()>> {
    if try_end(tables, end, LatePolicy::Accepted, now)? {
        return Ok(Guarded::Accepted(()));
    }
    let (word, _, _) = end_params(end.end.as_ref());
    Ok(look_at(tables, end, now)?.answer(word))
}

/// Ends the hold or writes its cursor; returns false if it could do neither.
pub(super) fn try_end(
    tables: JobTables<'_>,
    end: &EndChunk,
    late: LatePolicy,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    match (job_stands(tables, end.job.as_ref(), now)?, late) {
        (JobHoldState::Live, _) | (JobHoldState::Lapsed, LatePolicy::Accepted) => {}
        (JobHoldState::Gone, _) | (JobHoldState::Lapsed, LatePolicy::Refused) => return Ok(false),
    }
    let (word, rows, error) = end_params(end.end.as_ref());
    let ended = tables
        .connection
        .prepare_cached(tables.sql.end_chunk)?
        .query_row(
            named_params! {
                ":now": now.as_micros(),
                ":matrix": end.key.matrix.as_str(),
                ":chunk": end.key.chunk.as_str(),
                ":token": end.token.expose(),
                ":holder": end.token.holder(),
                ":word": word,
                ":row_count": rows,
                ":error": error,
                ":cursor": end.cursor,
                ":strict": late == LatePolicy::Refused,
            },
            |_| Ok(()),
        )
        .optional()?;
    Ok(ended.is_some())
}

/// Reads the state of a chunk that could not be ended.
pub(super) fn look_at(
    tables: JobTables<'_>,
    end: &EndChunk,
    now: Timestamp,
) -> rusqlite::Result<ChunkSnapshot> {
    let asker = Asker {
        key: &end.key,
        token: &end.token,
        job: end.job.as_ref(),
    };
    look(tables, &asker, now)
}

fn look(
    tables: JobTables<'_>,
    asker: &Asker<'_>,
    now: Timestamp,
) -> rusqlite::Result<ChunkSnapshot> {
    let ask = named_params! {
        ":matrix": asker.key.matrix.as_str(),
        ":chunk": asker.key.chunk.as_str(),
        ":token": asker.token.expose(),
        ":holder": asker.token.holder(),
    };
    let chunk = tables
        .connection
        .prepare_cached(tables.sql.look_chunk)?
        .query_row(ask, |found| {
            Ok(ChunkRow {
                until: row::past(found, 0)?,
                holder: found.get(1)?,
                done_at: row::past(found, 2)?,
                dead_at: row::past(found, 3)?,
                synced_at: row::past(found, 4)?,
                is_mine: found.get(5)?,
                word: found.get(6)?,
            })
        })
        .optional()?;
    Ok(ChunkSnapshot {
        now,
        job: job_stands(tables, asker.job, now)?,
        chunk,
    })
}

fn job_stands(
    tables: JobTables<'_>,
    job: Option<&JobHold>,
    now: Timestamp,
) -> rusqlite::Result<JobHoldState> {
    let Some(job) = job else {
        return Ok(JobHoldState::Live);
    };
    let ask = named_params! {
        ":job": job.id.number(),
        ":token": job.token.expose(),
        ":holder": job.token.holder(),
    };
    let until = tables
        .connection
        .prepare_cached(tables.sql.look_job)?
        .query_row(ask, |found| row::moment(found, 0))
        .optional()?;
    Ok(match until {
        Some(until) if now < until => JobHoldState::Live,
        Some(_) => JobHoldState::Lapsed,
        None => JobHoldState::Gone,
    })
}
