//! Chunks: claimed, renewed and ended by their whole key, each in one transaction.

use rusqlite::{OptionalExtension, named_params};
use tenure_core::job::{Chunk, ChunkClaim, ChunkKey};
use tenure_core::store::{
    ChunkHold, ClaimChunk, EndChunk, JobHold, RenewChunks, Renewed, StoreError,
};
use tenure_core::{Fence, Guarded, ItemId, Lease, Refusal, Timestamp, Token};

use super::super::error::failed;
use super::super::row;
use super::{Desk, Late};
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
    let chunk = take(desk, claim, statement, now).map_err(failed("claim chunk"))?;
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

/// Renews each of these holds.
pub(super) fn renew_all(
    desk: Desk<'_>,
    renew: RenewChunks,
    now: Timestamp,
) -> rusqlite::Result<Vec<(ChunkHold, Guarded<Renewed>)>> {
    let until = now.after(renew.term.length());
    let mut answers = Vec::with_capacity(renew.holds.len());
    for hold in renew.holds {
        let answer = renew_one(desk, &hold, until, now)?;
        answers.push((hold, answer));
    }
    Ok(answers)
}

fn renew_one(
    desk: Desk<'_>,
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
    let renewed = desk
        .connection
        .prepare_cached(desk.sql.renew_chunks)?
        .query_row(ask, |found| {
            Ok(Renewed {
                until: row::moment(found, 1)?,
                fence: Fence::new(found.get(2)?),
                ids: vec![ItemId::new(found.get(0)?)],
            })
        })
        .optional()?;
    if let Some(renewed) = renewed {
        return Ok(Guarded::Kept(renewed));
    }
    let asker = Asker {
        key: &hold.key,
        token: &hold.token,
        job: None,
    };
    let seen = look(desk, &asker, now)?.chunk;
    let is_lapsed = seen.is_some_and(|seen| seen.is_mine && seen.until.is_some());
    let why = if is_lapsed {
        Refusal::Lapsed
    } else {
        Refusal::Lost
    };
    Ok(Guarded::Refused(why))
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
