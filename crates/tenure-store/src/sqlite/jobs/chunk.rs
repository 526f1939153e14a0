//! Chunks: claimed and ended by their whole key, each in one transaction.

use rusqlite::{OptionalExtension, named_params};
use tenure_core::job::{Chunk, ChunkClaim, ChunkKey};
use tenure_core::store::{ClaimChunk, EndChunk, JobHold, StoreError, StoreErrorKind};
use tenure_core::{Fence, Guarded, Lease, Timestamp, Token};

use super::super::error::failed;
use super::super::row;
use super::{Desk, Late};
use crate::complaint::used_before;
use crate::jobs::{ChunkLook, Found, JobStands, SeenChunk, said};

/// Who asks for which chunk, and for which job.
struct Asker<'a> {
    key: &'a ChunkKey,
    token: &'a Token,
    job: Option<&'a JobHold>,
}

pub(super) fn claim(
    desk: Desk<'_>,
    claim: &ClaimChunk,
    now: Timestamp,
) -> Result<ChunkClaim, StoreError> {
    let asker = Asker {
        key: &claim.key,
        token: &claim.token,
        job: claim.job.as_ref(),
    };
    let seen = look(desk, &asker, now).map_err(failed("claim chunk"))?;
    let statement = match seen.found(claim.fresh_for) {
        Found::Answer(answer) => return Ok(answer),
        Found::Free => desk.sql.claim_chunk,
        Found::Absent => desk.sql.make_chunk,
    };
    let chunk = take(desk, claim, statement, now).map_err(|error| {
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
    desk: Desk<'_>,
    claim: &ClaimChunk,
    statement: &str,
    now: Timestamp,
) -> rusqlite::Result<Chunk> {
    let mut drawn = desk.connection.prepare_cached(desk.sql.fence)?;
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
    let mut taken = desk.connection.prepare_cached(statement)?;
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
pub(super) fn end(desk: Desk<'_>, end: &EndChunk, now: Timestamp) -> rusqlite::Result<Guarded<()>> {
    if try_end(desk, end, Late::Accepted, now)? {
        return Ok(Guarded::Kept(()));
    }
    let (word, _, _) = said(end.end.as_ref());
    Ok(look_at(desk, end, now)?.answer(word))
}

/// Whether the hold was ended, or what was said of it written down.
pub(super) fn try_end(
    desk: Desk<'_>,
    end: &EndChunk,
    late: Late,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    match (job_stands(desk, end.job.as_ref(), now)?, late) {
        (JobStands::Live, _) | (JobStands::Lapsed, Late::Accepted) => {}
        (JobStands::Gone, _) | (JobStands::Lapsed, Late::Refused) => return Ok(false),
    }
    let (word, rows, error) = said(end.end.as_ref());
    let ended = desk
        .connection
        .prepare_cached(desk.sql.end_chunk)?
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
    desk: Desk<'_>,
    end: &EndChunk,
    now: Timestamp,
) -> rusqlite::Result<ChunkLook> {
    let asker = Asker {
        key: &end.key,
        token: &end.token,
        job: end.job.as_ref(),
    };
    look(desk, &asker, now)
}

fn look(desk: Desk<'_>, asker: &Asker<'_>, now: Timestamp) -> rusqlite::Result<ChunkLook> {
    let ask = named_params! {
        ":matrix": asker.key.matrix.as_str(),
        ":chunk": asker.key.chunk.as_str(),
        ":token": asker.token.expose(),
        ":holder": asker.token.holder(),
    };
    let chunk = desk
        .connection
        .prepare_cached(desk.sql.look_chunk)?
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
        job: job_stands(desk, asker.job, now)?,
        chunk,
    })
}

fn job_stands(
    desk: Desk<'_>,
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
    let until = desk
        .connection
        .prepare_cached(desk.sql.look_job)?
        .query_row(ask, |found| row::moment(found, 0))
        .optional()?;
    Ok(match until {
        Some(until) if now < until => JobStands::Live,
        Some(_) => JobStands::Lapsed,
        None => JobStands::Gone,
    })
}
