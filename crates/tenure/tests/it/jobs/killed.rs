//! Processes that are killed with SIGKILL around a commit that holds their work and its checkpoint:
//! after each kill the rows, the cursor and the chunks agree, and the next process goes on there.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tenure::{
    ChunkAnswer, Failure, HeldChunk, HeldJob, JobFilter, Outcome, Settings, StoreConfig, SyncState,
    Tenure,
};
use tokio::time::Instant;

use super::{House, ended, on_each, soon, worker};

/// Rows of one transaction.
const ROWS: i64 = 5;
/// Transactions of one chunk.
const WRITES: i64 = 3;
/// Kills of a storm, and the transactions that it has: more than the storm can come to.
const KILLS: i64 = 60;
const STORM: i64 = 10 * KILLS;
/// Transactions of a process before it is killed in a storm, at most.
const LONGEST: u64 = 6;
/// A row is so long that a commit has many pages to write.
const PADDING: usize = 3000;
/// Lapses that a job survives: all of them.
const MAX_CRASHES: u32 = 1000;

/// Where a process stands still, so that it can be killed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Still {
    /// Everything of this transaction is written, and it is not committed.
    Before(i64),
    /// This transaction is committed, and nothing else was done since.
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

    /// Pairs of numbers.
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

    /// Writes the rows of one transaction, the end of the chunk with its last ones, and where the
    /// job is; commits, and tells of both sides of that.
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
                    chunk.complete_on(&tx, whole)?;
                }
                job.checkpoint_on(&tx, &cursor)?;
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

/// Tells the other half where this one is, and stays there if it is to be killed there.
fn say_and_stand(side: &str, write: i64, still: Still) {
    let here = format!("{side} {write}");
    // The test runner leaves its own line open.
    let mut out = std::io::stdout();
    writeln!(out, "\n{here}").unwrap();
    while still.text() == here {
        std::thread::park();
    }
}

/// What this process was given, if it is the other half of a test: where to stand still, how many
/// transactions there are, and the database. The test runner takes it for one more filter.
fn argument() -> Option<(Still, i64, String)> {
    let given =
        std::env::args().find_map(|word| Some(word.strip_prefix("argument=")?.to_owned()))?;
    let [side, write, writes, url] = given.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let write = write.parse().unwrap();
    let still = match side {
        "before" => Still::Before(write),
        "after" => Still::After(write),
        _ => Still::Nowhere,
    };
    Some((still, writes.parse().unwrap(), url.to_owned()))
}

/// The other half: a process that works on the job from its cursor on, until it is done or killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_imports() {
    let Some((still, writes, url)) = argument() else {
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

/// A process of the other half; it is killed with the value.
struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Process {
    fn start(house: &House, still: Still, writes: i64) -> Self {
        let still = match still {
            Still::Nowhere => "nowhere 0".to_owned(),
            Still::Before(_) | Still::After(_) => still.text(),
        };
        let argument = format!("argument={still} {writes} {}", house.url);
        let name = "jobs::killed::a_process_that_imports";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture", &argument]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// The next thing that it says: before or after the commit of which transaction.
    fn next(&mut self) -> Option<(bool, i64)> {
        let mut line = String::new();
        while self.said.read_line(&mut line).unwrap() > 0 {
            if let Some((side @ ("before" | "after"), write)) = line.trim_end().split_once(' ') {
                return Some((side == "before", write.parse().unwrap()));
            }
            line.clear();
        }
        None
    }

    fn wait_for(&mut self, what: (bool, i64)) {
        while let Some(said) = self.next() {
            if said == what {
                return;
            }
        }
        panic!("it ended before {what:?}");
    }

    /// As `kill -9` does.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended cannot be killed any more.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A job, and somebody who looks at what its processes leave.
struct Import {
    house: House,
    id: i64,
    writes: i64,
    eyes: Option<Box<(Tenure, Shop)>>,
}

impl Import {
    async fn new(house: House, writes: i64) -> Self {
        let mut import = Self {
            house,
            id: 0,
            writes,
            eyes: None,
        };
        let (tenure, shop) = import.look().await;
        shop.run("create table imported (nth bigint, chunk bigint, padding text)")
            .await;
        import.id = tenure.jobs().enqueue(super::import()).await.unwrap();
        import
    }

    /// Opens the database, if it is not open.
    async fn look(&mut self) -> &mut (Tenure, Shop) {
        if self.eyes.is_none() {
            let tenure = self.house.open("parent").await;
            let shop = Shop::open(&self.house.url).await;
            self.eyes = Some(Box::new((tenure, shop)));
        }
        self.eyes.as_mut().unwrap()
    }

    /// Closes the database. The last one who leaves an SQLite file by force leaves a log that the
    /// next one must recover.
    fn look_away(&mut self) {
        self.eyes = None;
    }

    async fn pairs(&mut self, sql: &'static str) -> Vec<(i64, i64)> {
        self.look().await.1.pairs(sql).await
    }

    fn start(&self, still: Still) -> Process {
        Process::start(&self.house, still, self.writes)
    }

    /// Waits until no connection of a dead process does anything any more.
    async fn quiet(&mut self) {
        if self.house.is_sqlite() {
            return;
        }
        let others = "select count(*), 0::bigint from pg_stat_activity
                      where application_name = 'shop' and datname = current_database()
                        and pid <> pg_backend_pid()";
        soon(async {
            while self.pairs(others).await != [(0, 0)] {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// How many transactions have taken effect: rows, cursor and chunks must tell the same.
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
        assert_eq!(cursor % ROWS, 0, "a part of a transaction");
        cursor / ROWS
    }

    /// Ends the terms of a dead process at once: nothing but the clock is changed by that.
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

    /// The last process is left alone, and in the end every row is there once.
    async fn finish(mut self, kills: u32) {
        let last = self.start(Still::Nowhere);
        let id = self.id;
        let job = ended(&self.look().await.0, id).await;
        drop(last);
        assert_eq!(job.state, SyncState::Completed);
        // A busy machine may have cost a living process its lease, too.
        assert!(job.counters.crashes >= kills, "{:?}", job.counters);
        assert_eq!(self.agreed().await, self.writes);
    }
}

/// Goal: work and checkpoint are there both or neither, wherever the process is killed. Method: it
/// stands still right before its commit or right after it, in the middle of a chunk and at its end,
/// and is killed there; the next one begins when the leases have lapsed by themselves.
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
            process.wait_for((matches!(still, Still::Before(_)), write));
            process.kill();
            import.quiet().await;
            assert_eq!(import.agreed().await, expected, "{still:?}");
        }
        import.finish(4).await;
    })
    .await;
}

/// What becomes of a commit whose client is killed while the server is inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The server ends it, and has nobody left to tell.
    TakesEffect,
    /// The server finds that its client is gone, and gives it up.
    GivenUp,
}

/// The same in the middle of a commit of PostgreSQL: a deferred trigger makes one last as long as
/// the test likes, and the process is killed while the server is in it.
///
/// Proves: S5-001, S5-002, S5-003, S5-007, S5-039, S5-041, S5-045
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_the_commit_of_postgres_undoes_all_or_nothing() {
    let mut import = Import::new(House::postgres().await, 12).await;
    // In the middle of a chunk, and with its end.
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
        process.wait_for((true, write));
        let inside = "select count(*), 0::bigint from pg_stat_activity
                      where datname = current_database() and wait_event = 'advisory'
                        and query ilike 'commit%'";
        soon(async {
            while import.pairs(inside).await != [(1, 0)] {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        process.kill();
        assert_eq!(import.agreed().await, write, "it is not over");
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

/// Goal: no moment of a commit is one at which a kill parts the work from its checkpoint. Method:
/// many processes are killed at random moments around their commits, of which many must have been
/// inside one; each is followed by another that goes on at the cursor.
///
/// Proves: S5-001, S5-002, S5-003, S5-039, S5-041, S5-045
#[tokio::test(flavor = "multi_thread")]
async fn kills_at_any_moment_around_a_commit_part_nothing() {
    on_each(|house| async move {
        let mut import = Import::new(house, STORM).await;
        let (mut inside, mut kept) = (0, 0);
        // How long a commit lasted; the kills fall into so much time and a half.
        let mut lasted = Duration::from_millis(4);
        for kill in 0..KILLS {
            if kill % 2 == 0 {
                import.look_away();
            }
            let mut process = import.start(Still::Nowhere);
            let mut said = process.next().unwrap();
            for _ in 0..rand::random_range(0..LONGEST) {
                let began = Instant::now();
                process.wait_for((false, said.1));
                lasted = began.elapsed().min(Duration::from_millis(10));
                said = process.next().unwrap();
            }
            let (began, pause) = (Instant::now(), lasted.mul_f64(rand::random_range(0.0..1.5)));
            // A sleep would end at whole milliseconds.
            while began.elapsed() < pause {
                std::hint::spin_loop();
            }
            process.kill();
            while let Some(more) = process.next() {
                said = more;
            }
            import.quiet().await;
            let agreed = import.agreed().await;
            match said {
                // It had begun to commit, and nobody knows how far it came.
                (true, write) => {
                    assert!([write, write + 1].contains(&agreed), "{write}: {agreed}");
                    inside += 1;
                    kept += agreed - write;
                }
                // It was told that it has committed.
                (false, write) => assert_eq!(agreed, write + 1),
            }
            import.lapse().await;
        }
        let name = if import.house.is_sqlite() {
            "SQLite"
        } else {
            "PostgreSQL"
        };
        say(&format!(
            "{name}: {inside} of {KILLS} kills met a commit, {kept} of these took effect"
        ));
        assert!(
            inside > KILLS / 10,
            "only {inside} kills were inside a commit"
        );
        import.finish(u32::try_from(KILLS).unwrap()).await;
    })
    .await;
}

/// For people who run it with `--nocapture`.
fn say(text: &str) {
    #[expect(clippy::print_stderr, reason = "the figures of a run")]
    {
        eprintln!("{text}");
    }
}
