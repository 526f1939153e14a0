//! The statements that judge the holds on jobs and chunks say what the guards say: every
//! combination of token, holder, end of term and end is written into tables without constraints,
//! and each verb is asked of each row. And each guard is taken out once: that must be noticed.

mod cases;
mod faults;

use std::fmt::Write as _;

use tenure_core::job::ChunkClaim;
use tenure_core::store::{ChunkHold, ClaimChunk, EndChunk, JobHold, RenewChunks};
use tenure_core::testing::token;
use tenure_core::{Clock as _, Guarded, Refusal, SyncState, Term};
use tenure_store::Planted;
use tenure_store::memory::SystemClock;

use self::cases::{COLUMNS, Case, HOUR, mine};
use self::faults::{BLIND, faults_of_lines, faults_within, other_faults};
use super::{NOW, Place, asks, ends, key, synced};

/// Says what went wrong, so that planted faults can be told from sound statements.
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

/// Exactly the rows of these names were changed.
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

/// A chunk of each case in a matrix that is asked for, and before it one of its name in a matrix
/// that is not, which stands otherwise.
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
        if answer.is_kept() {
            ended.push(format!("m/{}", case.id));
        }
        ensure(&answer, &case.judged(is_strict, NOW), case)?;
    }
    only(&ended, &before, &place.chunk_lines().await)
}

/// All are renewed at once; and what runs longer already is not made shorter.
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
    let answers = place.book().renew_chunks(&renew).await;
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
            Guarded::Kept(renewed) => Ok(renewed.until),
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
    let answers = place.book().renew_chunks(&shorter).await;
    answers.map_err(|e| e.to_string())?;
    only(&[], &after, &place.chunk_lines().await)
}

/// How a chunk that is claimed is looked at before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Sound,
    /// Everything seems free, so that the claim is left alone with its own guards.
    Blind,
}

async fn claim_keeps_its_guard(place: &Place, look: Look) -> Result<(), String> {
    let cases = Case::all(NOW);
    write_chunks(place, &cases).await;
    let (before, mut claimed) = (place.chunk_lines().await, Vec::new());
    for case in &cases {
        let nth = u64::try_from(case.id).unwrap();
        let ask = asks(&key("m", &case.id.to_string()), &token("new", nth), NOW);
        let answer = place.book().claim_chunk(&ask).await;
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

/// What who asks for this case is told, if it is not free.
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

/// Jobs of all cases.
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

/// What is asked for of a job; a store that has given out one of the last kind may take the next
/// for such a one, too.
type Order = [&'static str; 2];
const FREE_LAST: Order = ["new", "free"];
const NEW_LAST: Order = ["free", "new"];

/// The job as a second fence, of a chunk that is made, of one that is free and of one that is held.
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
    let warm = place.book().claim_chunk(&ask).await;
    if !matches!(warm, Ok(ChunkClaim::Claimed(_))) {
        return Err(format!("{warm:?}"));
    }
    for case in &cases {
        let job = Some(JobHold {
            id: case.id,
            token: mine(),
        });
        let is_live = case.is_mine() && case.until.is_some_and(|until| NOW < until);
        let nth = u64::try_from(case.id).unwrap();
        for what in order {
            let claim = ClaimChunk {
                job: job.clone(),
                ..asks(&key("m", &format!("{what} {nth}")), &token(what, nth), NOW)
            };
            let answer = place.book().claim_chunk(&claim).await;
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
            Some(_) if case.is_mine() && (is_live || !is_strict) => Guarded::Kept(()),
            Some(_) if case.is_mine() => Guarded::Refused(Refusal::Lapsed),
            _ => Guarded::Refused(Refusal::Lost),
        };
        ensure(&place.end(&end, is_strict).await?, &expected, case)?;
    }
    Ok(())
}

async fn note_keeps_its_guard(place: &Place, is_strict: bool) -> Result<(), String> {
    // Notes are judged by the store's own clock, so nothing here ends at this very moment.
    let now = SystemClock.now();
    let cases = Case::all(now).into_iter();
    let cases: Vec<Case> = cases.filter(|case| case.until != Some(now)).collect();
    place.filled(&jobs(place, &cases)).await;
    let look = || place.lines("cast(id as text)", "coalesce(cursor, '-')", "tenure_jobs");
    let (before, mut noted) = (look().await, Vec::new());
    for case in &cases {
        let hold = JobHold {
            id: case.id,
            token: mine(),
        };
        let answer = place.note(&hold, is_strict).await?;
        if answer.is_kept() {
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

/// Everything that a file is judged by.
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

/// Every guard that is taken out of a file is noticed, and without a fault nothing is.
async fn every_guard_counts(mut place: Place, database: &str, names: [&'static str; 2]) {
    let [file, name] = names;
    let (look, blind): (_, &[Planted]) = match (database, file) {
        // It comes after a look in the same transaction, which has the same conditions.
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
async fn every_guard_of_sqlite_on_jobs_and_chunks_counts() {
    for names in FILES {
        let place = Place::sqlite().await.without_constraints().await;
        every_guard_counts(place, "sqlite", names).await;
    }
}

/// Proves: S5-008, S5-020, S5-021, S5-035, S5-036, S5-042
#[tokio::test]
async fn every_guard_of_postgres_on_jobs_and_chunks_counts() {
    // In SQLite a chunk that is not there is made by a statement of the same file.
    for names in [&FILES[..], &[["make_chunk", "jobs_make_chunk"]]].concat() {
        let place = Place::postgres().await.without_constraints().await;
        every_guard_counts(place, "postgres", names).await;
    }
}
