//! The statements that judge the holds on jobs and chunks say what the guards say: every
//! combination of token, holder, end of term and end is written into tables without constraints,
//! and each verb is asked of each row. And each guard is taken out once: that must be noticed.

use std::fmt::Write as _;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor as _};
use tenure_core::job::{ChunkClaim, Note};
use tenure_core::store::{CheckpointError, ClaimChunk, EndChunk, JobHold};
use tenure_core::testing::token;
use tenure_core::{Clock as _, Guarded, Refusal, SyncState, Timestamp, Token, refusal_of};
use tenure_store::Planted;
use tenure_store::config::{StoreConfig, Synchronous};
use tenure_store::memory::SystemClock;
use tenure_store::postgres::PostgresStore;
use tenure_store::sqlite::SqliteStore;

use super::{NOW, Place, asks, ends, key, seconds, synced};

const HOUR: Duration = Duration::from_hours(1);

/// The hold that asks.
fn mine() -> Token {
    token("w", 7)
}

/// A later or earlier one of the same worker. Its text is as long as that of `mine`.
fn other() -> Token {
    token("w", 6)
}

/// One row, as far as a guard looks at it.
#[derive(Clone, Copy, Debug)]
struct Case {
    id: i64,
    is_my_token: bool,
    is_my_name: bool,
    until: Option<Timestamp>,
    done_at: Option<Timestamp>,
    dead_at: Option<Timestamp>,
}

impl Case {
    fn all(now: Timestamp) -> Vec<Self> {
        let untils = [
            None,
            Some(now.before(HOUR)),
            Some(now),
            Some(now.after(HOUR)),
        ];
        let past = Some(now.before(HOUR));
        let ends = [(None, None), (past, None), (None, past)];
        let mut all = Vec::new();
        for (is_my_token, is_my_name) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            for until in untils {
                for (done_at, dead_at) in ends {
                    all.push(Self {
                        id: i64::try_from(all.len()).unwrap() + 1,
                        is_my_token,
                        is_my_name,
                        until,
                        done_at,
                        dead_at,
                    });
                }
            }
        }
        all
    }

    fn state(&self, now: Timestamp) -> SyncState {
        SyncState::of(self.until, self.done_at, self.dead_at, now)
    }

    /// The hold is the asker's, whether it runs or not.
    fn is_mine(&self) -> bool {
        let is_open = self.done_at.is_none() && self.dead_at.is_none();
        self.is_my_token && self.is_my_name && is_open
    }

    /// What the holder of `mine` is told who wants to write; a lease without an end is never one.
    fn judged(&self, is_strict: bool, now: Timestamp) -> Guarded<()> {
        let is_late = is_strict && self.until.is_some_and(|until| until <= now);
        if self.is_mine() && self.until.is_some() && !is_late {
            return Guarded::Kept(());
        }
        if self.is_mine() {
            return Guarded::Refused(Refusal::Lapsed);
        }
        Guarded::Refused(refusal_of(Some(self.state(now).state())))
    }

    /// The columns of a lease with this case's values.
    fn columns(&self, place: &Place) -> String {
        let moment = |at: Option<Timestamp>| at.map_or("null".into(), |at| place.moment(at));
        let of = |is_mine: bool| if is_mine { mine() } else { other() };
        let name = if self.is_my_name {
            mine()
        } else {
            token("x", 1)
        };
        format!(
            "'{}', '{}', {}, {}, {}, '{} synced'",
            of(self.is_my_token).expose(),
            name.holder(),
            moment(self.until),
            moment(self.done_at),
            moment(self.dead_at),
            other().expose(),
        )
    }
}

/// A connection of somebody else's, who does not wait for the disk.
fn hand(path: &std::path::Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.busy_timeout(seconds(5)).unwrap();
    conn.execute_batch("pragma synchronous = off").unwrap();
    conn
}

const COLUMNS: &str =
    "lease_token, locked_by, locked_until, completed_at, failed_at, settled_token";

impl Place {
    /// A database whose two tables take any combination of columns.
    async fn without_constraints(mut self) -> Self {
        match &mut self {
            Self::Postgres { pool, .. } => {
                let drop = "do $$ declare c record; begin
                    for c in select conrelid::regclass as t, conname from pg_constraint
                             where contype = 'c' and conrelid::regclass::text like 'tenure_%' loop
                        execute format('alter table %s drop constraint %I', c.t, c.conname);
                    end loop; end $$;
                    drop index tenure_checkpoints_claimed";
                pool.execute(sqlx::raw_sql(drop)).await.unwrap();
            }
            Self::Sqlite { store, path, .. } => {
                let conn = rusqlite::Connection::open(&*path).unwrap();
                conn.execute_batch(
                    "drop index tenure_checkpoints_claimed;
                     pragma writable_schema = on;
                     update sqlite_schema
                     set sql = replace(replace(sql,
                         'check ((completed_at is null', 'check (true or (completed_at is null'),
                         'check (completed_at is null', 'check (true or completed_at is null')
                     where name in ('tenure_jobs', 'tenure_checkpoints')",
                )
                .unwrap();
                drop(conn);
                let config = StoreConfig {
                    synchronous: Synchronous::Normal,
                    ..StoreConfig::default()
                };
                *store = SqliteStore::open(path, &config).await.unwrap();
            }
        }
        self
    }

    /// The same with faults.
    async fn planted(&mut self, faults: &[Planted]) {
        let config = StoreConfig::default();
        match self {
            Self::Postgres {
                store, database, ..
            } => {
                let opened = PostgresStore::open(&database.url, &config).await.unwrap();
                **store = opened.planted(faults);
            }
            Self::Sqlite { store, .. } => *store = store.clone().planted(faults),
        }
    }

    /// Empties both tables and runs this.
    async fn filled(&self, sql: &str) {
        let script = format!("delete from tenure_jobs; delete from tenure_checkpoints; {sql}");
        match self {
            Self::Postgres { pool, .. } => {
                let script = sqlx::raw_sql(AssertSqlSafe(script));
                pool.execute(script).await.unwrap();
            }
            Self::Sqlite { path, .. } => {
                let conn = hand(path);
                conn.execute_batch(&format!("begin immediate; {script}; commit"))
                    .unwrap();
            }
        }
    }

    /// Ends a chunk in the caller's transaction, or not.
    async fn end(&self, end: &EndChunk, is_strict: bool) -> Result<Guarded<()>, String> {
        if !is_strict {
            return self.book().end_chunk(end).await.map_err(|e| e.to_string());
        }
        strictly(match self {
            Self::Postgres { store, pool, .. } => {
                let mut conn = pool.acquire().await.unwrap();
                store.end_chunk_in(&mut conn, end).await
            }
            Self::Sqlite { store, path, .. } => {
                let conn = hand(path);
                store.planted_end_chunk_in(&conn, end)
            }
        })
    }

    /// The same for a note.
    async fn note(&self, hold: &JobHold, is_strict: bool) -> Result<Guarded<()>, String> {
        let note = Note {
            cursor: Some("here".into()),
            ..Note::default()
        };
        if !is_strict {
            return self
                .book()
                .note_job(hold, &note)
                .await
                .map_err(|e| e.to_string());
        }
        strictly(match self {
            Self::Postgres { store, pool, .. } => {
                let mut conn = pool.acquire().await.unwrap();
                store.note_job_in(&mut conn, hold, &note).await
            }
            Self::Sqlite { store, path, .. } => {
                let conn = hand(path);
                store.planted_note_job_in(&conn, hold, &note)
            }
        })
    }

    /// What a table tells, one line per row and in an order of their names.
    async fn lines(&self, name: &str, columns: &str, table: &str) -> Vec<String> {
        let lines = format!(
            "select string_agg({name} || ' ' || {columns}, ';' order by {name}) from {table}"
        );
        let lines = self.ask(&lines).await;
        lines.split(';').map(str::to_owned).collect()
    }

    async fn chunk_lines(&self) -> Vec<String> {
        let columns = "coalesce(cast(locked_until as text), '-') || lease_token";
        let columns = format!("coalesce({columns}, '-')");
        self.lines(
            "matrix_id || '/' || chunk_hash",
            &columns,
            "tenure_checkpoints",
        )
        .await
    }
}

fn strictly(answer: Result<(), CheckpointError>) -> Result<Guarded<()>, String> {
    match answer {
        Ok(()) => Ok(Guarded::Kept(())),
        Err(CheckpointError::Refused(why)) => Ok(Guarded::Refused(why)),
        Err(other) => Err(other.to_string()),
    }
}

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

/// Every condition that is a line of its own, as it stands in a file and as if it were not there;
/// what is bound to it stays bound.
fn faults_of_lines(text: &str) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let mut words = ["where ", "and ", "on "].into_iter();
        let guard = words.find_map(|word| Some((word, trimmed.strip_prefix(word)?)));
        let Some((word, guard)) = guard else { continue };
        if guard.matches('(').count() != guard.matches(')').count() || guard.contains(',') {
            continue;
        }
        let indent = " ".repeat(line.len() - trimmed.len());
        faults.push((
            format!("\n{line}\n"),
            format!("\n{indent}{word}({guard} or true)\n"),
        ));
    }
    faults
}

/// Conditions within a line, between brackets.
const WITHIN: [(&str, &str, &[&str]); 5] = [
    (
        "sqlite",
        "look_chunk",
        &[
            "ifnull([t.lease_token = :token] and",
            "and [t.locked_by = :holder]\n   ",
            "and [t.completed_at is null] and",
            "and [t.failed_at is null], false",
            "when [substr(t.settled_token, 1, length(:token) + 1) = :token || ' ']",
        ],
    ),
    (
        "sqlite",
        "note",
        &[
            "([t.lease_token = :token] and",
            "and [t.locked_by = :holder], false",
            "tenure_jobs t\nwhere [t.id = :id]",
            "where [t.id = :id]\n  and",
        ],
    ),
    (
        "postgres",
        "look_chunk",
        &[
            "coalesce([t.lease_token = $4::text] and",
            "and [t.locked_by = $5::text]\n",
            "and [t.completed_at is null] and",
            "and [t.failed_at is null], false",
            "when [starts_with(t.settled_token, $4 || ' ')]",
            "on [t.matrix_id = $2::text] and",
            "and [t.chunk_hash = $3::text]\n",
        ],
    ),
    (
        "postgres",
        "note",
        &[
            "([t.lease_token = $3] and",
            "and [t.locked_by = $4], false",
            "left join tenure_jobs t on [t.id = $2]",
        ],
    ),
    (
        "postgres",
        "make_chunk",
        &["where [t.matrix_id = $2] and [t.chunk_hash = $3]"],
    ),
];

fn faults_within(database: &str, file: &str) -> Vec<(String, String)> {
    let here = WITHIN.iter().filter(|of| (of.0, of.1) == (database, file));
    let marked = here.flat_map(|(_, _, marked)| *marked);
    marked
        .map(|marked| {
            let sound = marked.replace(['[', ']'], "");
            (sound, marked.replace('[', "(").replace(']', " or true)"))
        })
        .collect()
}

/// Nobody sees that a chunk is held or has ended.
const BLIND: Planted = Planted {
    file: "jobs_look_chunk",
    from: "select t.locked_until, t.locked_by, t.completed_at, t.failed_at, t.last_synced_at,",
    to: "select null, null, null, null, null,",
};

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

const FILES: [[&str; 2]; 4] = [
    ["end_chunk", "jobs_end_chunk"],
    ["claim_chunk", "jobs_claim_chunk"],
    ["look_chunk", "jobs_look_chunk"],
    ["note", "jobs_note"],
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
