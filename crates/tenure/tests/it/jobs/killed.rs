//! The tests kill processes with SIGKILL around the commit of their work and its checkpoint. After
//! each kill the rows, the cursor and the chunks agree, and the next process continues from there.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tenure::job::{ChunkAnswer, HeldChunk, HeldJob, JobFilter, JobId, SyncState};
use tenure::{Failure, Outcome, Settings, StoreConfig, Tenure};
use tenure_nemesis::{Process, Schedule, argument, say, until};
use tokio::time::Instant;

use super::{JobPlace, ended, on_each, worker};

/// Number of rows in one transaction.
const ROWS: i64 = 5;
/// Number of transactions in one chunk.
const WRITES: i64 = 3;
/// Maximum number of transactions of a process before a random kill.
const LONGEST: u64 = 6;
/// Maximum number of random kills in a test, because all chunks are read in one page.
const KILLS_MAX: usize = 120;
/// Bytes of a row, chosen so that a commit writes many pages.
const PADDING: usize = 3000;
/// Allowed crashes: more than any test causes, so that no job becomes dead.
const MAX_CRASHES: u32 = 1000;

/// The point at which a process waits to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Still {
    /// Everything of this transaction is written, but not committed.
    Before(i64),
    /// This transaction is committed, and the process has done nothing since.
    After(i64),
    Nowhere,
}

impl Still {
    fn text(self) -> String {
        match self {
            Self::Before(write) => format!("before {write}"),
            Self::After(write) => format!("after {write}"),
            Self::Nowhere => "nowhere".to_owned(),
        }
    }
}

/// The user's own connection.
enum Shop {
    Lite(rusqlite::Connection),
    Postgres(PgConnection),
}

impl Shop {
    async fn open(url: &str) -> Self {
        if let Some(path) = url.strip_prefix("sqlite://") {
            let conn = rusqlite::Connection::open(path).unwrap();
            conn.busy_timeout(Duration::from_secs(30)).unwrap();
            return Self::Lite(conn);
        }
        let mut conn = PgConnection::connect(url).await.unwrap();
        let name = sqlx::query("set application_name = 'shop'");
        name.execute(&mut conn).await.unwrap();
        Self::Postgres(conn)
    }

    async fn run(&mut self, sql: &str) {
        match self {
            Self::Lite(conn) => conn.execute_batch(sql).unwrap(),
            Self::Postgres(conn) => {
                let script = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
                script.execute(conn).await.unwrap();
            }
        }
    }

    /// Runs a query that returns pairs of numbers.
    async fn pairs(&mut self, sql: &'static str) -> Vec<(i64, i64)> {
        match self {
            Self::Lite(conn) => {
                let mut query = conn.prepare(sql).unwrap();
                let pairs = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
                pairs.unwrap().map(Result::unwrap).collect()
            }
            Self::Postgres(conn) => {
                let rows = sqlx::query(sql).fetch_all(conn).await.unwrap();
                rows.iter().map(|row| (row.get(0), row.get(1))).collect()
            }
        }
    }

    /// Writes the rows of one transaction and the job's cursor, and ends the chunk with its last
    /// rows. Commits, and reports to the test before and after the commit.
    async fn write(&mut self, held: (&HeldJob, &HeldChunk), nth: i64, still: Still) -> Wrote {
        let (job, chunk) = held;
        let rows = nth * ROWS..(nth + 1) * ROWS;
        let (cursor, padding) = (rows.end.to_string(), "x".repeat(PADDING));
        let whole = u64::try_from(ROWS * WRITES)?;
        match self {
            Self::Lite(conn) => {
                let tx =
                    conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
                for row in rows {
                    let insert = "insert into imported (nth, chunk, padding) values (?1, ?2, ?3)";
                    tx.execute(insert, (row, nth / WRITES, &padding))?;
                }
                if is_last_of_chunk(nth) {
                    chunk.complete_in(&tx, whole)?;
                }
                job.checkpoint_in(&tx, &cursor)?;
                say_and_stand("before", nth, still);
                tx.commit()?;
            }
            Self::Postgres(conn) => {
                let mut tx = conn.begin().await?;
                for row in rows {
                    let insert = "insert into imported (nth, chunk, padding) values ($1, $2, $3)";
                    let insert = sqlx::query(insert).bind(row).bind(nth / WRITES);
                    insert.bind(&padding).execute(&mut *tx).await?;
                }
                if is_last_of_chunk(nth) {
                    chunk.complete_in(&mut tx, whole).await?;
                }
                job.checkpoint_in(&mut tx, &cursor).await?;
                say_and_stand("before", nth, still);
                tx.commit().await?;
            }
        }
        say_and_stand("after", nth, still);
        Ok(())
    }
}

type Wrote = Result<(), Failure>;

fn is_last_of_chunk(write: i64) -> bool {
    write % WRITES == WRITES - 1
}

/// Reports the position of this process to the test, and waits there if it is to be killed.
fn say_and_stand(side: &str, write: i64, still: Still) {
    let here = format!("{side} {write}");
    // The test runner has begun a line of its own, so start a new one.
    let mut out = std::io::stdout();
    writeln!(out, "\n{here}").unwrap();
    while still.text() == here {
        std::thread::park();
    }
}

/// The waiting point, the number of transactions and the database; `None` if this process is not
/// the child process of a test.
fn order() -> Option<(Still, i64, String)> {
    let given = argument()?;
    let [side, write, writes, url] = given.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let write = write.parse().unwrap();
    let still = match side {
        "before" => Still::Before(write),
        "after" => Still::After(write),
        _ => Still::Nowhere,
    };
    Some((still, writes.parse().unwrap(), url.to_owned()))
}

/// The child process: works on the job from its cursor until the job is done or the process is
/// killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_imports() {
    let Some((still, writes, url)) = order() else {
        return;
    };
    let config = StoreConfig::default();
    let tenure = Tenure::open_with(&url, &config, "import").await.unwrap();
    let importing = worker(&tenure, move |job: HeldJob| {
        let url = url.clone();
        async move {
            let mut shop = Shop::open(&url).await;
            let row: i64 = job.cursor().map_or(Ok(0), str::parse)?;
            let mut write = row / ROWS;
            while write < writes {
                let name = (write / WRITES).to_string();
                let ChunkAnswer::Claimed(chunk) = job.chunk(&name).wait().await? else {
                    return Err(Failure::new("a chunk is done before its rows are"));
                };
                let end = (write / WRITES + 1) * WRITES;
                while write < end {
                    Box::pin(shop.write((&job, &chunk), write, still)).await?;
                    write += 1;
                }
            }
            Ok(Outcome::Done)
        }
    });
    let settings = Settings {
        max_crashes: MAX_CRASHES,
        ..Settings::default()
    };
    let importing = importing.settings(settings).start().await.unwrap();
    while is_open(&tenure).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    importing.stop().await;
}

async fn is_open(tenure: &Tenure) -> bool {
    let jobs = tenure.jobs().list(&JobFilter::default(), 1).await.unwrap();
    let state = jobs.first().unwrap().state;
    !matches!(state, SyncState::Completed | SyncState::Failed)
}

/// Starts a child process.
fn start(house: &JobPlace, still: Still, writes: i64) -> Process {
    let still = match still {
        Still::Nowhere => "nowhere 0".to_owned(),
        Still::Before(_) | Still::After(_) => still.text(),
    };
    let argument = format!("{still} {writes} {}", house.url);
    Process::piped(&mut Process::test(
        "jobs::killed::a_process_that_imports",
        &argument,
    ))
}

/// Reads the next report of a process: true before the commit of this transaction, false after it.
fn next(process: &mut Process) -> Option<(bool, i64)> {
    while let Some(line) = process.line() {
        if let Some((side @ ("before" | "after"), write)) = line.split_once(' ') {
            return Some((side == "before", write.parse().unwrap()));
        }
    }
    None
}

fn wait_for(process: &mut Process, what: (bool, i64)) {
    while let Some(note) = next(process) {
        if note == what {
            return;
        }
    }
    panic!("it ended before {what:?}");
}

/// A job, and a connection that checks the results of its processes.
struct Import {
    house: JobPlace,
    id: JobId,
    writes: i64,
    eyes: Option<Box<(Tenure, Shop)>>,
}

impl Import {
    async fn new(house: JobPlace, writes: i64) -> Self {
        let mut import = Self {
            house,
            id: JobId::new(0),
            writes,
            eyes: None,
        };
        let (tenure, shop) = import.look().await;
        shop.run("create table imported (nth bigint, chunk bigint, padding text)")
            .await;
        import.id = tenure.jobs().enqueue(super::import()).await.unwrap();
        import
    }

    /// Opens the database if it is not open.
    async fn look(&mut self) -> &mut (Tenure, Shop) {
        if self.eyes.is_none() {
            let tenure = self.house.open("parent").await;
            let shop = Shop::open(&self.house.url).await;
            self.eyes = Some(Box::new((tenure, shop)));
        }
        self.eyes.as_mut().unwrap()
    }

    /// Closes the database. If a killed process was the last user of an SQLite file, it leaves a
    /// log that the next process must recover.
    fn look_away(&mut self) {
        self.eyes = None;
    }

    async fn pairs(&mut self, sql: &'static str) -> Vec<(i64, i64)> {
        self.look().await.1.pairs(sql).await
    }

    fn start(&self, still: Still) -> Process {
        start(&self.house, still, self.writes)
    }

    /// Waits until PostgreSQL has closed the connection on which the dead process wrote its rows.
    async fn quiet(&mut self) {
        if self.house.is_sqlite() {
            return;
        }
        let others = "select count(*), 0::bigint from pg_stat_activity
                      where application_name = 'shop' and datname = current_database()
                        and pid <> pg_backend_pid()";
        until("the connection of the dead process is closed", async || {
            self.pairs(others).await == [(0, 0)]
        })
        .await;
    }

    /// Returns the number of committed transactions; asserts that rows, cursor and chunks agree.
    async fn agreed(&mut self) -> i64 {
        let (id, tenure) = (self.id, self.look().await.0.clone());
        let job = tenure.jobs().find(id).await.unwrap().unwrap();
        let cursor: i64 = job.cursor.map_or(0, |cursor| cursor.parse().unwrap());
        let rows = "select count(*), coalesce(max(nth) + 1, 0) from imported";
        assert_eq!(self.pairs(rows).await, [(cursor, cursor)]);
        let distinct = "select count(distinct nth), count(*) from imported";
        assert_eq!(self.pairs(distinct).await, [(cursor, cursor)]);
        let counts = "select chunk, count(*) from imported group by chunk";
        let counts: BTreeMap<i64, i64> = self.pairs(counts).await.into_iter().collect();
        let chunks = tenure.jobs().chunks(&job.matrix, None, 1000).await;
        let done = chunks.unwrap().into_iter();
        let done = done.filter(|chunk| chunk.state == SyncState::Completed);
        let mut ended: Vec<i64> = Vec::new();
        for chunk in done {
            let nth: i64 = chunk.key.chunk.as_str().parse().unwrap();
            let told = chunk.row_count.map(u64::cast_signed);
            assert_eq!(told.as_ref(), counts.get(&nth), "chunk {nth}");
            ended.push(nth);
        }
        ended.sort_unstable();
        assert!(ended.into_iter().eq(0..cursor / ROWS / WRITES));
        assert_eq!(cursor % ROWS, 0, "the cursor is inside a transaction");
        cursor / ROWS
    }

    /// Ends the leases of a dead process at once, and changes nothing else.
    async fn lapse(&mut self) {
        let is_sqlite = self.house.is_sqlite();
        let long_ago = if is_sqlite { "1" } else { "'epoch'" };
        let (_, shop) = self.look().await;
        for table in ["tenure_jobs", "tenure_checkpoints"] {
            let lapse = format!(
                "update {table} set locked_until = {long_ago} where locked_until is not null"
            );
            shop.run(&lapse).await;
        }
    }

    /// Lets the last process finish, and checks that every row exists once.
    async fn finish(mut self, kills: u32) {
        let last = self.start(Still::Nowhere);
        let id = self.id;
        let job = ended(&self.look().await.0, id).await;
        drop(last);
        assert_eq!(job.state, SyncState::Completed);
        // On a busy machine, a living process may have lost its lease as well.
        assert!(job.counters.crashes >= kills, "{:?}", job.counters);
        assert_eq!(self.agreed().await, self.writes);
    }
}

/// Goal: either both work and checkpoint exist, or neither, wherever the process is killed. Method:
/// the process is killed right before or right after its commit, within a chunk and at its end. The
/// next process starts after the leases have lapsed.
///
/// Proves: S5-001, S5-002, S5-003, S5-007, S5-039, S5-041, S5-045
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_before_the_commit_undoes_all_and_one_after_it_nothing() {
    on_each(|house| async move {
        let mut import = Import::new(house, 12).await;
        let stands = [
            (Still::Before(1), 1),
            (Still::Before(5), 5),
            (Still::After(6), 7),
            (Still::After(8), 9),
        ];
        for (still, expected) in stands {
            let mut process = import.start(still);
            let (Still::Before(write) | Still::After(write)) = still else {
                continue;
            };
            wait_for(&mut process, (matches!(still, Still::Before(_)), write));
            process.kill();
            import.quiet().await;
            assert_eq!(import.agreed().await, expected, "{still:?}");
        }
        import.finish(4).await;
    })
    .await;
}

/// The result of a commit whose client is killed while the server executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The server completes the commit without a client.
    TakesEffect,
    /// The server notices that its client is gone, and aborts the commit.
    GivenUp,
}

/// Goal: the same, for a kill during a commit of PostgreSQL. Method: a deferred trigger makes the
/// commit last as long as the test wants, and the test kills the process meanwhile.
///
/// Proves: S5-001, S5-002, S5-003, S5-007, S5-039, S5-041, S5-045
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_the_commit_of_postgres_undoes_all_or_nothing() {
    let mut import = Import::new(JobPlace::postgres().await, 12).await;
    // The transactions are within a chunk and at its end.
    let cases = [
        (4, Fate::TakesEffect),
        (5, Fate::TakesEffect),
        (7, Fate::GivenUp),
        (8, Fate::GivenUp),
    ];
    for (write, fate) in cases {
        let row = write * ROWS;
        let patience = if fate == Fate::GivenUp { 20 } else { 0 };
        let script = format!(
            "drop trigger if exists slow on imported;
             create or replace function slow() returns trigger language plpgsql as
                 'begin perform pg_advisory_xact_lock_shared(1); return null; end';
             create constraint trigger slow after insert on imported
                 deferrable initially deferred for each row when (new.nth = {row})
                 execute function slow();
             do $$ begin
                 execute format('alter database %I
                     set client_connection_check_interval = {patience}', current_database());
             end $$;
             select pg_advisory_lock(1)"
        );
        import.look().await.1.run(&script).await;
        let mut process = import.start(Still::Nowhere);
        wait_for(&mut process, (true, write));
        let inside = "select count(*), 0::bigint from pg_stat_activity
                      where datname = current_database() and wait_event = 'advisory'
                        and query ilike 'commit%'";
        until("the server executes the commit", async || {
            import.pairs(inside).await == [(1, 0)]
        })
        .await;
        process.kill();
        assert_eq!(import.agreed().await, write, "the commit is not over");
        if fate == Fate::GivenUp {
            import.quiet().await;
        }
        let (_, shop) = import.look().await;
        shop.run("select pg_advisory_unlock(1)").await;
        import.quiet().await;
        let expected = write + i64::from(fate == Fate::TakesEffect);
        assert_eq!(import.agreed().await, expected, "{fate:?}");
    }
    import.finish(4).await;
}

/// Goal: a kill at any time of a commit never separates the work from its checkpoint. Method: the
/// test kills processes at random times around their commits, some of them during one. After each
/// kill another process continues at the cursor.
///
/// Proves: S5-001, S5-002, S5-003, S5-039, S5-041, S5-045
#[tokio::test(flavor = "multi_thread")]
async fn kills_around_a_commit_never_separate_work_from_its_checkpoint() {
    on_each(|house| async move {
        let least = i64::try_from(Schedule::from_environment().kills.min(KILLS_MAX)).unwrap();
        // The import has only whole chunks, and more of them than the killed processes can finish.
        let mut import = Import::new(house, 8 * WRITES * least).await;
        let (mut kills, mut inside, mut effective) = (0, 0, 0);
        // The measured length of a commit. Kills come within one and a half times this length.
        let mut lasted = Duration::from_millis(4);
        // A few kills may miss every commit, so kill processes until enough of the kills hit one.
        while kills < least || inside <= least / 10 {
            assert!(
                kills < 3 * least,
                "only {inside} kills were inside a commit"
            );
            if kills % 2 == 0 {
                import.look_away();
            }
            kills += 1;
            let mut process = import.start(Still::Nowhere);
            let mut last = next(&mut process).unwrap();
            for _ in 0..rand::random_range(0..LONGEST) {
                let began = Instant::now();
                wait_for(&mut process, (false, last.1));
                lasted = began.elapsed().min(Duration::from_millis(10));
                last = next(&mut process).unwrap();
            }
            let (began, pause) = (Instant::now(), lasted.mul_f64(rand::random_range(0.0..1.5)));
            // This loop is exact, while a sleep is rounded to whole milliseconds.
            while began.elapsed() < pause {
                std::hint::spin_loop();
            }
            process.kill();
            while let Some(more) = next(&mut process) {
                last = more;
            }
            import.quiet().await;
            let agreed = import.agreed().await;
            match last {
                // The process had begun its commit, and may have completed it.
                (true, write) => {
                    assert!([write, write + 1].contains(&agreed), "{write}: {agreed}");
                    inside += 1;
                    effective += agreed - write;
                }
                // The process had received the answer to its commit.
                (false, write) => assert_eq!(agreed, write + 1),
            }
            import.lapse().await;
        }
        let name = import.house.url.split(':').next().unwrap();
        say(&format!(
            "{name}: {inside} of {kills} kills met a commit, {effective} of these took effect"
        ));
        import.finish(u32::try_from(kills).unwrap()).await;
    })
    .await;
}
