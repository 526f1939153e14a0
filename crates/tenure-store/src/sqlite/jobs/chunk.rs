//! Chunks: claimed and ended by their whole key, each in one transaction.

use rusqlite::{Connection, OptionalExtension, named_params};
use tenure_core::job::{Chunk, ChunkClaim, ChunkKey};
use tenure_core::store::{ClaimChunk, EndChunk, JobHold, StoreError, StoreErrorKind};
use tenure_core::{Fence, Guarded, Lease, Timestamp, Token};

use super::super::error::failed;
use super::super::{row, statements as sql};
use super::Late;
use crate::complaint::used_before;
use crate::jobs::{ChunkLook, Found, JobStands, SeenChunk, said};

/// Who asks for which chunk, and for which job.
struct Asker<'a> {
    key: &'a ChunkKey,
    token: &'a Token,
    job: Option<&'a JobHold>,
}

pub(super) fn claim(
    connection: &Connection,
    claim: &ClaimChunk,
    now: Timestamp,
) -> Result<ChunkClaim, StoreError> {
    let asker = Asker {
        key: &claim.key,
        token: &claim.token,
        job: claim.job.as_ref(),
    };
    let seen = look(connection, &asker, now).map_err(failed("claim chunk"))?;
    let statement = match seen.found(claim.fresh_for) {
        Found::Answer(answer) => return Ok(answer),
        Found::Free => sql::CLAIM_CHUNK,
        Found::Absent => sql::CLAIM_CHUNK_MADE,
    };
    let chunk = take(connection, claim, statement, now).map_err(|error| {
        let told = failed("claim chunk")(error);
        // Nothing else of a new lease can be there already.
        if told.kind() == StoreErrorKind::Conflict {
            return used_before("claim chunk");
        }
        told
    })?;
    Ok(ChunkClaim::Claimed(chunk))
}

fn take(
    connection: &Connection,
    claim: &ClaimChunk,
    statement: &str,
    now: Timestamp,
) -> rusqlite::Result<Chunk> {
    let mut drawn = connection.prepare_cached(sql::CLAIM_CHUNK_FENCE)?;
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
    let mut taken = connection.prepare_cached(statement)?;
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

/// Ends the hold; a repeat is answered as the first one was.
pub(super) fn end(
    connection: &Connection,
    end: &EndChunk,
    now: Timestamp,
) -> rusqlite::Result<Guarded<()>> {
    if try_end(connection, end, Late::Accepted, now)? {
        return Ok(Guarded::Kept(()));
    }
    let (word, _, _) = said(end.end.as_ref());
    Ok(look_at(connection, end, now)?.answer(word))
}

/// Whether the hold was ended, or what was said of it written down.
pub(super) fn try_end(
    connection: &Connection,
    end: &EndChunk,
    late: Late,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    match (job_stands(connection, end.job.as_ref(), now)?, late) {
        (JobStands::Live, _) | (JobStands::Lapsed, Late::Accepted) => {}
        (JobStands::Gone, _) | (JobStands::Lapsed, Late::Refused) => return Ok(false),
    }
    let (word, rows, error) = said(end.end.as_ref());
    let ended = connection
        .prepare_cached(sql::END_CHUNK)?
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
                ":strict": late == Late::Refused,
            },
            |_| Ok(()),
        )
        .optional()?;
    Ok(ended.is_some())
}

/// How the chunk stands that could not be ended.
pub(super) fn look_at(
    connection: &Connection,
    end: &EndChunk,
    now: Timestamp,
) -> rusqlite::Result<ChunkLook> {
    let asker = Asker {
        key: &end.key,
        token: &end.token,
        job: end.job.as_ref(),
    };
    look(connection, &asker, now)
}

fn look(connection: &Connection, asker: &Asker<'_>, now: Timestamp) -> rusqlite::Result<ChunkLook> {
    let ask = named_params! {
        ":matrix": asker.key.matrix.as_str(),
        ":chunk": asker.key.chunk.as_str(),
        ":token": asker.token.expose(),
        ":holder": asker.token.holder(),
    };
    let chunk = connection
        .prepare_cached(sql::LOOK_CHUNK)?
        .query_row(ask, |found| {
            Ok(SeenChunk {
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
    Ok(ChunkLook {
        now,
        job: job_stands(connection, asker.job, now)?,
        chunk,
    })
}

fn job_stands(
    connection: &Connection,
    job: Option<&JobHold>,
    now: Timestamp,
) -> rusqlite::Result<JobStands> {
    let Some(job) = job else {
        return Ok(JobStands::Live);
    };
    let ask = named_params! {
        ":job": job.id,
        ":token": job.token.expose(),
        ":holder": job.token.holder(),
    };
    let until = connection
        .prepare_cached(sql::LOOK_CHUNK_JOB)?
        .query_row(ask, |found| row::moment(found, 0))
        .optional()?;
    Ok(match until {
        Some(until) if now < until => JobStands::Live,
        Some(_) => JobStands::Lapsed,
        None => JobStands::Gone,
    })
}
