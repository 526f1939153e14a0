//! The statements that check the leases of jobs and chunks agree with the guards. Every combination
//! of token, holder, end of term and final state is written into tables without constraints, and
//! each operation is run on each row. Then each guard is removed in turn, and the checks must fail.

mod cases;
mod faults;

use std::fmt::Write as _;

use tenure_core::job::{ChunkClaim, JobId};
use tenure_core::store::{ChunkHold, ClaimChunk, EndChunk, JobHold, RenewChunks};
use tenure_core::testing::{Extent, token};
use tenure_core::{Clock as _, Guarded, Refusal, SyncState, Term};
use tenure_store::memory::SystemClock;

use self::cases::{COLUMNS, Case, HOUR, mine};
use self::faults::{BLIND, faults_of_lines, faults_within, other_faults};
use super::{NOW, Place, asks, ends, key, synced};
use crate::faults::Planted;

/// Returns an error instead of a panic, so that planted faults can be detected.
fn ensure<T: PartialEq + std::fmt::Debug>(
    found: &T,
    expected: &T,
    case: &Case,
) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{found:?}, not {expected:?}: {case:?}"))
}

/// Checks that exactly the rows with these names changed.
fn only(changed: &[String], before: &[String], after: &[String]) -> Result<(), String> {
    let names = before.iter().zip(after).filter(|(old, new)| old != new);
    let names = names.map(|(old, _)| old.split(' ').next().unwrap().to_owned());
    let mut changed = changed.to_vec();
    changed.sort();
    let found: Vec<String> = names.collect();
    if found == changed && before.len() == after.len() {
        return Ok(());
    }
    Err(format!("{found:?} were changed, not {changed:?}"))
}

/// Writes one chunk per case into the tested matrix, each preceded by a chunk with the same name
/// but another state in another matrix.
async fn write_chunks(place: &Place, cases: &[Case]) {
    let mut sql = String::new();
    let others = cases.iter().cycle().skip(13);
    for (case, other) in cases.iter().zip(others) {
        for (matrix, columns) in [("n", other), ("m", case)] {
            write!(
                sql,
                "insert into tenure_checkpoints (matrix_id, chunk_hash, {COLUMNS})
                 values ('{matrix}', '{}', {});",
                case.id,
                columns.columns(place),
            )
            .unwrap();
        }
    }
    place.filled(&sql).await;
}

async fn end_keeps_its_guard(place: &Place, is_strict: bool) -> Result<(), String> {
    let cases = Case::all(NOW);
    write_chunks(place, &cases).await;
    let (before, mut ended) = (place.chunk_lines().await, Vec::new());
    for case in &cases {
        let end = ends(&key("m", &case.id.to_string()), &mine(), synced(), NOW);
        let answer = place.end(&end, is_strict).await?;
        if answer.is_accepted() {
            ended.push(format!("m/{}", case.id));
        }
        ensure(&answer, &case.judged(is_strict, NOW), case)?;
    }
    only(&ended, &before, &place.chunk_lines().await)
}

/// All chunks are renewed in one call; a lease with a later end is not shortened.
async fn renewal_keeps_its_guard(place: &Place) -> Result<(), String> {
    let cases = Case::all(NOW);
    write_chunks(place, &cases).await;
    let before = place.chunk_lines().await;
    let hold = |case: &Case| ChunkHold {
        key: key("m", &case.id.to_string()),
        token: mine(),
    };
    let holds: Vec<ChunkHold> = cases.iter().map(hold).collect();
    let renew = RenewChunks::new(holds.clone(), Term::new(2 * HOUR).unwrap()).at(NOW);
    let answers = place.jobs().renew_chunks(&renew).await;
    let answers = answers.map_err(|e| e.to_string())?;
    if !answers.iter().map(|(hold, _)| hold).eq(&holds) {
        return Err(format!("not all were answered: {answers:?}"));
    }
    let mut renewed = Vec::new();
    for (case, (_, answer)) in cases.iter().zip(answers) {
        let is_live = case.until.is_some_and(|until| NOW < until);
        let expected = match case.until {
            Some(_) if case.is_mine() && is_live => Ok(NOW.after(2 * HOUR)),
            Some(_) if case.is_mine() => Err(Refusal::Lapsed),
            _ => Err(Refusal::Lost),
        };
        let found = match answer {
            Guarded::Accepted(renewed) => Ok(renewed.until),
            Guarded::Refused(why) => Err(why),
        };
        ensure(&found, &expected, case)?;
        if found.is_ok() {
            renewed.push(format!("m/{}", case.id));
        }
    }
    let after = place.chunk_lines().await;
    only(&renewed, &before, &after)?;
    let shorter = RenewChunks::new(holds, Term::new(HOUR).unwrap()).at(NOW);
    let answers = place.jobs().renew_chunks(&shorter).await;
    answers.map_err(|e| e.to_string())?;
    only(&[], &after, &place.chunk_lines().await)
}

/// The read before the claim of a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Sound,
    /// The read finds every chunk free, so that only the claim's own guards apply.
    Blind,
}

async fn claim_keeps_its_guard(place: &Place, look: Look) -> Result<(), String> {
    let cases = Case::all(NOW);
    write_chunks(place, &cases).await;
    let (before, mut claimed) = (place.chunk_lines().await, Vec::new());
    for case in &cases {
        let nth = u64::try_from(case.id).unwrap();
        let ask = asks(&key("m", &case.id.to_string()), &token("new", nth), NOW);
        let answer = place.jobs().claim_chunk(&ask).await;
        let is_free = matches!(case.state(NOW), SyncState::Available | SyncState::Lapsed);
        let is_given = matches!(answer, Ok(ChunkClaim::Claimed(_)));
        ensure(&is_given, &is_free, case)?;
        if is_free {
            claimed.push(format!("m/{}", case.id));
        } else if look == Look::Sound {
            ensure(&answer.map_err(|e| e.to_string())?, &held(case), case)?;
        }
    }
    only(&claimed, &before, &place.chunk_lines().await)
}

/// The answer to a claim of a chunk in this case, if the chunk is not free.
fn held(case: &Case) -> ChunkClaim {
    let holder = if case.is_my_name {
        mine()
    } else {
        token("x", 1)
    };
    match (case.done_at, case.until) {
        _ if case.dead_at.is_some() => ChunkClaim::Failed,
        (Some(at), _) => ChunkClaim::Done { at },
        (None, until) => ChunkClaim::Held {
            holder: holder.holder().to_owned(),
            until: until.unwrap_or(NOW),
        },
    }
}

/// SQL that inserts one job per case.
fn jobs(place: &Place, cases: &[Case]) -> String {
    let rows = cases.iter().map(|case| {
        let columns = case.columns(place);
        format!(
            "insert into tenure_jobs (id, kind, matrix_id, payload, {COLUMNS})
             values ({}, 'import', 'm', '1', {columns});",
            case.id
        )
    });
    rows.collect()
}

/// The order in which new and free chunks are claimed. It matters because a store may guess that
/// the next chunk is of the same kind as the last one.
type Order = [&'static str; 2];
const FREE_LAST: Order = ["new", "free"];
const NEW_LAST: Order = ["free", "new"];

/// Checks that the lease of the job also guards claims of new and free chunks and the end of a held
/// chunk.
async fn job_fence_stands(place: &Place, is_strict: bool, order: Order) -> Result<(), String> {
    let cases = Case::all(NOW);
    let mut sql = jobs(place, &cases);
    let held = Case {
        until: Some(NOW.after(HOUR)),
        ..*cases.first().unwrap()
    };
    for case in &cases {
        write!(
            sql,
            "insert into tenure_checkpoints (matrix_id, chunk_hash, {COLUMNS})
             values ('m', '{id}', {});
             insert into tenure_checkpoints (matrix_id, chunk_hash) values ('m', 'free {id}');",
            held.columns(place),
            id = case.id,
        )
        .unwrap();
    }
    sql.push_str("insert into tenure_checkpoints (matrix_id, chunk_hash) values ('w', 'free');");
    place.filled(&sql).await;
    let ask = asks(&key("w", order[1]), &token("warm", 1), NOW);
    let warm = place.jobs().claim_chunk(&ask).await;
    if !matches!(warm, Ok(ChunkClaim::Claimed(_))) {
        return Err(format!("{warm:?}"));
    }
    for case in &cases {
        let job = Some(JobHold {
            id: JobId::new(case.id),
            token: mine(),
        });
        let is_live = case.is_mine() && case.until.is_some_and(|until| NOW < until);
        let nth = u64::try_from(case.id).unwrap();
        for what in order {
            let claim = ClaimChunk {
                job: job.clone(),
                ..asks(&key("m", &format!("{what} {nth}")), &token(what, nth), NOW)
            };
            let answer = place.jobs().claim_chunk(&claim).await;
            match (is_live, answer.map_err(|e| e.to_string())?) {
                (true, ChunkClaim::Claimed(_)) | (false, ChunkClaim::JobLost) => {}
                (_, answer) => return Err(format!("{answer:?}: {case:?}")),
            }
        }
        let end = EndChunk {
            job,
            ..ends(&key("m", &case.id.to_string()), &mine(), synced(), NOW)
        };
        let expected = match case.until {
            Some(_) if case.is_mine() && (is_live || !is_strict) => Guarded::Accepted(()),
            Some(_) if case.is_mine() => Guarded::Refused(Refusal::Lapsed),
            _ => Guarded::Refused(Refusal::Lost),
        };
        ensure(&place.end(&end, is_strict).await?, &expected, case)?;
    }
    Ok(())
}

async fn note_keeps_its_guard(place: &Place, is_strict: bool) -> Result<(), String> {
    // The store checks notes by its own clock, so the cases leave out a lease that ends exactly
    // now.
    let now = SystemClock.now();
    let cases = Case::all(now).into_iter();
    let cases: Vec<Case> = cases.filter(|case| case.until != Some(now)).collect();
    place.filled(&jobs(place, &cases)).await;
    let look = || place.lines("cast(id as text)", "coalesce(cursor, '-')", "tenure_jobs");
    let (before, mut noted) = (look().await, Vec::new());
    for case in &cases {
        let hold = JobHold {
            id: JobId::new(case.id),
            token: mine(),
        };
        let answer = place.note(&hold, is_strict).await?;
        if answer.is_accepted() {
            noted.push(case.id.to_string());
        }
        let mut expected = case.judged(is_strict, now);
        if expected == Guarded::Refused(Refusal::Lapsed) && case.until.is_none() {
            expected = Guarded::Refused(Refusal::NotClaimed);
        }
        ensure(&answer, &expected, case)?;
    }
    only(&noted, &before, &look().await)
}

/// Runs all checks of a file.
async fn judged(place: &Place, file: &str, look: Look) -> Result<(), String> {
    match file {
        "note" => {
            note_keeps_its_guard(place, false).await?;
            note_keeps_its_guard(place, true).await
        }
        "claim_chunk" => {
            claim_keeps_its_guard(place, look).await?;
            if look == Look::Blind {
                return Ok(());
            }
            job_fence_stands(place, false, FREE_LAST).await
        }
        "make_chunk" => job_fence_stands(place, false, NEW_LAST).await,
        "renew_chunks" => renewal_keeps_its_guard(place).await,
        _ => {
            if file == "look_chunk" {
                claim_keeps_its_guard(place, look).await?;
            }
            for is_strict in [false, true] {
                end_keeps_its_guard(place, is_strict).await?;
                job_fence_stands(place, is_strict, FREE_LAST).await?;
            }
            Ok(())
        }
    }
}

/// The checks fail for every guard removed from the file, and pass when none is removed.
async fn every_guard_counts(mut place: Place, database: &str, names: [&'static str; 2]) {
    let [file, name] = names;
    let (look, blind): (_, &[Planted]) = match (database, file) {
        // SQLite's `claim_chunk` runs after a read with the same conditions in the same
        // transaction, so the read must be blinded.
        ("sqlite", "claim_chunk") => (Look::Blind, &[BLIND]),
        _ => (Look::Sound, &[]),
    };
    place.planted(blind).await;
    assert_eq!(
        judged(&place, file, look).await,
        Ok(()),
        "{database}, {file}"
    );
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let text = std::fs::read_to_string(folder.join(format!("{database}/jobs/{file}.sql")));
    let mut faults = faults_of_lines(&text.unwrap());
    faults.extend(faults_within(database, file));
    faults.extend(other_faults(database, file));
    assert!(faults.len() > 4, "{faults:?}");
    let mut unnoticed = Vec::new();
    for (from, to) in faults {
        let (from, to): (&'static str, &'static str) = (from.leak(), to.leak());
        let fault = Planted {
            file: name,
            from,
            to,
        };
        place.planted(&[blind, &[fault]].concat()).await;
        if judged(&place, file, look).await.is_ok() {
            unnoticed.push(from);
        }
    }
    assert_eq!(unnoticed, Vec::<&str>::new(), "{database}, {file}");
}

const FILES: [[&str; 2]; 5] = [
    ["end_chunk", "jobs_end_chunk"],
    ["claim_chunk", "jobs_claim_chunk"],
    ["look_chunk", "jobs_look_chunk"],
    ["note", "jobs_note"],
    ["renew_chunks", "jobs_renew_chunks"],
];

/// Proves: S5-008, S5-020, S5-021, S5-035, S5-036, S5-042
#[tokio::test]
async fn a_missing_guard_of_jobs_or_chunks_is_caught_on_sqlite() {
    for names in FILES {
        let place = Place::sqlite().await.without_constraints().await;
        every_guard_counts(place, "sqlite", names).await;
    }
}

/// Proves: S5-008, S5-020, S5-021, S5-035, S5-036, S5-042
#[tokio::test]
async fn a_missing_guard_of_jobs_or_chunks_is_caught_on_postgres() {
    // PostgreSQL creates a missing chunk with the file `make_chunk`; in SQLite, `claim_chunk` does
    // that.
    let files = [&FILES[..], &[["make_chunk", "jobs_make_chunk"]]].concat();
    for names in Extent::chosen().of(&files, 1) {
        let place = Place::postgres().await.without_constraints().await;
        every_guard_counts(place, "postgres", names).await;
    }
}
