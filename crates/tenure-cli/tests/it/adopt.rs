//! `tenure adopt`, operators' commands on the rows of an adopted table, and the page on adoption.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::path::Path;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::program::{Place, everywhere, finish, postgres, sqlite};

pub(crate) const MAKE: &str = "create table outbox (
    id text primary key, payload text not null, status text not null default 'PENDING',
    locked_until MOMENT, lock_token text, created_at MOMENT not null
);
insert into outbox (id, payload, created_at) values ('a', '1', NOW), ('b', '2', NOW);";

/// Runs SQL of the application; translates `MOMENT`, `NOW` and `HOUR` for the database.
pub(crate) async fn apply(place: &Place, sql: &str) {
    if place.url.starts_with("postgres") {
        let sql = sql.replace("MOMENT", "timestamptz").replace("NOW", "now()");
        let sql = sql.replace("HOUR", "interval '1 h'");
        let mut conn = PgConnection::connect(&place.url).await.unwrap();
        let run = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await;
        run.unwrap();
    } else {
        let now = "cast(unixepoch('subsec') * 1000 as integer) * 1000";
        let sql = sql.replace("MOMENT", "integer").replace("NOW", now);
        let sql = sql.replace("HOUR", "3600000000");
        let conn = rusqlite::Connection::open(place.file()).unwrap();
        conn.execute_batch(&sql).unwrap();
    }
}

const ADOPT: [&str; 4] = ["adopt", "outbox", "--preset", "outbox_processing"];

/// Adopts the outbox.
pub(crate) fn adopted(place: &Place) {
    place.run(&[&ADOPT[..], &["--yes"]].concat()).succeeded();
}

#[tokio::test]
async fn a_table_is_adopted_and_worked_and_the_adoption_is_undone() {
    for place in everywhere().await {
        apply(&place, MAKE).await;
        let printed = place.run(&[&ADOPT[..], &["--print"]].concat()).succeeded();
        assert!(printed.out.contains("\"outbox_claimable\""), "{printed:?}");
        place.run(&["adopt", "list"]).ended(3);
        let unconfirmed = place.run(&ADOPT).ended(2);
        assert!(
            unconfirmed.err.contains("no terminal to confirm"),
            "{unconfirmed:?}"
        );
        adopted(&place);
        let again = place.run(&ADOPT).succeeded();
        assert!(again.out.contains("nothing to do"), "{again:?}");
        let listed = place.run(&["adopt", "list", "--json"]).succeeded();
        assert_eq!(listed.field("table"), "\"outbox\"");
        assert_eq!(listed.field("finished"), "true");

        let why = place.run(&["why", "--table", "outbox", "1"]).succeeded();
        assert!(why.err.contains("tenure work --table outbox"), "{why:?}");
        // With a concurrency of 1, the worker handles the rows one at a time, in order.
        let exec = "cat >> worked; echo >> worked";
        let work = ["work", "--table", "outbox", "--drain", "--exec", exec];
        place
            .run(&[&work[..], &["--concurrency", "1"]].concat())
            .succeeded();
        let worked = std::fs::read_to_string(place.path("worked")).unwrap();
        let mut rows = worked.lines().map(|row| {
            let row: serde_json::Value = serde_json::from_str(row).unwrap();
            assert_eq!(row.get("lock_token"), None, "a token is a secret: {row}");
            row["id"].as_str().unwrap().to_owned()
        });
        assert_eq!(
            (rows.next(), rows.next()),
            (Some("a".into()), Some("b".into()))
        );

        operate(&place);

        place
            .run(&["adopt", "outbox", "--undo", "--yes"])
            .succeeded();
        place.run(&["adopt", "list"]).ended(3);
        place.run(&["stats", "--table", "outbox"]).failed(
            2,
            "was not adopted",
            "tenure adopt outbox",
        );
        apply(
            &place,
            "insert into outbox (id, payload, created_at) values ('c', '3', NOW)",
        )
        .await;
    }
}

/// Runs operators' commands on the two rows, which are done.
fn operate(place: &Place) {
    let stats = |field: &str| {
        let output = place
            .run(&["stats", "--table", "outbox", "--json"])
            .succeeded();
        output.field(field)
    };
    assert_eq!((stats("done"), stats("due")), ("2".into(), "0".into()));
    place.run(&["replay", "--table", "outbox", "1"]).succeeded();
    assert_eq!((stats("done"), stats("due")), ("1".into(), "1".into()));
    let bury = ["bury", "--table", "outbox", "1", "--reason", "a test"];
    place.run(&bury).succeeded();
    place.run(&bury).ended(4);
    let details = place
        .run(&["show", "--table", "outbox", "1", "--json"])
        .succeeded();
    assert_eq!(details.field("state"), "\"dead\"");
    assert_eq!(details.objects()[0]["payload"]["id"], "a");
    let dry = [
        "replay",
        "--table",
        "outbox",
        "--state",
        "dead",
        "--dry-run",
        "--json",
    ];
    assert_eq!(place.run(&dry).succeeded().field("would_replay"), "1");
    place
        .run(&["replay", "--table", "outbox", "--state", "dead", "--yes"])
        .succeeded();
    assert_eq!(stats("due"), "1");
    place.run(&["show", "--table", "outbox", "99"]).ended(3);
}

#[tokio::test]
async fn an_undo_needs_force_while_a_worker_holds_a_row() {
    for place in everywhere().await {
        apply(&place, MAKE).await;
        adopted(&place);
        let tenure = place.tenure().await;
        let table = tenure.table("outbox").await.unwrap();
        let held = table.claim(1).await.unwrap().unwrap();
        let undo = ["adopt", "outbox", "--undo", "--yes"];
        place
            .run(&undo)
            .failed(4, "rows of outbox that workers hold: 1", "--force");
        let release = table.release(&held.lease.token).await.unwrap();
        assert_eq!(release, 1);
        let claimed = table.claim(1).await.unwrap().unwrap();
        assert_eq!(claimed.items.len(), 1);
        place.run(&[&undo[..], &["--force"]].concat()).succeeded();
    }
}

#[tokio::test]
async fn a_lapsed_row_is_reaped_by_an_operator() {
    for place in everywhere().await {
        apply(&place, MAKE).await;
        adopted(&place);
        let tenure = place.tenure().await;
        let table = tenure.table("outbox").await.unwrap();
        table.claim(2).await.unwrap().unwrap();
        let past = "update outbox set locked_until = locked_until - MINUTE";
        let minute = if place.url.starts_with("postgres") {
            "interval '1 minute'"
        } else {
            "60000000"
        };
        apply(&place, &past.replace("MINUTE", minute)).await;
        let output = place.run(&["reap", "--table", "outbox"]).succeeded();
        assert_eq!(output.err, "2 rows: 2 pending again, 0 dead\n");
    }
}

#[tokio::test]
async fn a_table_that_cannot_be_leased_is_refused_with_all_obstacles() {
    for place in everywhere().await {
        place
            .run(&ADOPT)
            .failed(2, "there is no table outbox", "check its name");
        place.run(&["adopt", "outbox"]).failed(
            2,
            "the column names of outbox are not given",
            "--preset",
        );
        place.run(&["adopt", "outbox", "--undo"]).ended(3);
        let wrong = "create table outbox (id text primary key, status integer, fence text,
                                          created_at MOMENT not null)";
        apply(&place, wrong).await;
        let output = place.run(&ADOPT).ended(2);
        assert_eq!(output.err.matches("error: ").count(), 2, "{output:?}");
        assert_eq!(output.err.matches("hint: ").count(), 2, "{output:?}");
    }
}

#[test]
fn all_faults_of_a_map_are_reported_with_their_lines() {
    let place = sqlite();
    place.write("map.toml", "key = \"a b\"\n\n[columns]\nuntill = \"x\"\n");
    let output = place.run(&["adopt", "mails", "--map", "map.toml"]).ended(2);
    assert!(output.err.contains("error: map.toml:1: key"), "{output:?}");
    assert!(
        output.err.contains("error: map.toml:4: columns.untill"),
        "{output:?}"
    );
    assert!(
        output.err.contains("did you mean columns.until?"),
        "{output:?}"
    );
    assert!(!place.file().exists(), "a bad map creates no database");
    place.run(&["adopt", "mails", "--map", "gone.toml"]).failed(
        2,
        "cannot read the map gone.toml",
        "check the name",
    );
}

#[tokio::test]
async fn print_changes_nothing() {
    let place = sqlite();
    apply(&place, MAKE).await;
    let print = [&ADOPT[..], &["--print"]].concat();
    place
        .run(&print)
        .failed(2, "lacks Tenure's tables", "tenure migrate");
    let conn = rusqlite::Connection::open(place.file()).unwrap();
    let tables = "select count(*) from sqlite_schema where name like 'tenure_%'";
    let tables: i64 = conn.query_row(tables, [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 0);
    place.run(&["migrate"]).succeeded();
    place.run(&print).succeeded();
}

#[tokio::test]
async fn an_undo_removes_the_record_of_a_dropped_table() {
    for place in everywhere().await {
        apply(&place, MAKE).await;
        adopted(&place);
        apply(&place, "drop table outbox").await;
        let listed = place.run(&["adopt", "list"]).succeeded();
        assert!(listed.out.contains("no longer exists"), "{listed:?}");
        let undo = ["adopt", "outbox", "--undo", "--yes"];
        let output = place.run(&undo).succeeded();
        let message = format!("{}{}", output.out, output.err);
        assert!(message.contains("the table is gone"), "{message}");
        place.run(&["adopt", "list"]).ended(3);
    }
    let place = sqlite();
    place
        .run(&["adopt", "app.Outbox", "--undo"])
        .failed(2, "name of a table", "search_path");
}

/// Runs the SQL and the commands of `docs/ADOPT.md` on PostgreSQL, in their order.
#[tokio::test]
async fn the_page_on_adoption_runs_as_it_is_written() {
    let page = include_str!("../../../../docs/ADOPT.md");
    let place = postgres().await;
    let program = Path::new(env!("CARGO_BIN_EXE_tenure"));
    let folder = program.parent().unwrap().display();
    let (mut commands, mut statements) = (0, 0);
    for block in page.split("\n```").skip(1).step_by(2) {
        let (kind, text) = block.split_once('\n').unwrap();
        match kind {
            "sql" => {
                let mut conn = PgConnection::connect(&place.url).await.unwrap();
                let run = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut conn).await;
                run.unwrap_or_else(|error| panic!("{error}\n{text}"));
                statements += 1;
            }
            "toml" => place.write("mails.toml", text),
            "sh" => {
                let mut shell = place.command(Path::new("sh"));
                shell
                    .env("PATH", format!("{folder}:/usr/bin:/bin"))
                    .args(["-ec", text]);
                let output = finish(shell, b"");
                assert_eq!(output.code, Some(0), "{text}\n{output:?}");
                commands += text.lines().filter(|line| line.contains("tenure ")).count();
            }
            other => panic!("a block of {other:?} cannot be run"),
        }
    }
    assert!(commands > 12 && statements > 2, "{commands} {statements}");
    let log = std::fs::read_to_string(place.path("published.jsonl")).unwrap();
    assert!(log.contains("order.paid"), "{log}");
}

const MAKE_JOBS: &str = "create table sync_jobs (
    id BIGKEY primary key, priority integer not null default 0, created_at MOMENT not null,
    completed_at MOMENT, failed_at MOMENT, error_message text, locked_until MOMENT, locked_by text
);
create table sync_checkpoints (
    id BIGKEY primary key, matrix_id text not null, chunk_hash text not null,
    created_at MOMENT not null, last_synced_at MOMENT, row_count integer, locked_until MOMENT,
    locked_by text, unique (matrix_id, chunk_hash)
);
insert into sync_jobs (id, created_at) values (1, NOW);
insert into sync_checkpoints (id, matrix_id, chunk_hash, created_at) values (1, 'm', 'c', NOW);";

/// Returns the term of the lease that a worker with these arguments takes on the only row of a
/// table, and the interval of the worker's reports, both in seconds. Releases the row.
async fn leased(place: &Place, table: &str, args: &[&str]) -> (i64, i64) {
    // Exit code 75 means unavailable: the worker releases the row, and no retry is used up.
    let exec = "while [ ! -e go ]; do sleep 0.05; done; exit 75";
    let work = ["work", "--table", table, "--exec", exec];
    let mut worker = place.start(&[&work[..], args].concat());
    worker.line_with(" works on ");
    let show = ["show", "--table", table, "1", "--json"];
    let row = crate::program::soon(async || {
        let row = place.run(&show).succeeded().objects().remove(0);
        (!row["until"].is_null()).then_some(row)
    })
    .await;
    let moment = |name: &str| -> jiff::Timestamp { row[name].as_str().unwrap().parse().unwrap() };
    let term = (moment("until") - moment("claimed_at")).get_seconds();
    let reports = place.reported_every(&row["holder"]).await;
    place.write("go", "");
    worker.terminate();
    worker.wait().succeeded();
    std::fs::remove_file(place.path("go")).unwrap();
    apply(place, &format!("update {table} set available_at = null")).await;
    (term, reports)
}

impl Place {
    /// Returns the interval of a worker's reports in seconds, which is also its heartbeat interval.
    async fn reported_every(&self, worker: &serde_json::Value) -> i64 {
        let tenure = self.tenure().await;
        let (_, workers) = tenure.workers(10).await.unwrap();
        let mut workers = workers.iter().map(|worker| &worker.report);
        let report = workers.find(|report| Some(report.worker.as_str()) == worker.as_str());
        i64::try_from(report.unwrap().next_within.as_secs()).unwrap()
    }
}

/// Rows of `sync_jobs` and `sync_checkpoints` have the term of their specification, unless another
/// term is configured.
///
/// Proves: S5-018, S5-034, S5-043, S5-044
#[tokio::test]
async fn a_table_of_sync_jobs_has_the_term_of_its_specification_unless_one_is_set() {
    for place in everywhere().await {
        let key = if place.url.starts_with("postgres") {
            "bigint"
        } else {
            "integer"
        };
        apply(&place, &MAKE_JOBS.replace("BIGKEY", key)).await;
        for table in ["sync_jobs", "sync_checkpoints"] {
            let adopt = ["adopt", table, "--preset", table, "--yes"];
            place.run(&adopt).succeeded();
        }
        assert_eq!(leased(&place, "sync_jobs", &[]).await, (300, 60));
        assert_eq!(leased(&place, "sync_checkpoints", &[]).await, (120, 30));
        let with_flag = leased(&place, "sync_jobs", &["--term", "30s"]).await;
        assert_eq!(
            with_flag,
            (30, 7),
            "the flag counts, even if it equals the default for events"
        );
        place.write("tenure.toml", "[lease]\nterm = \"80s\"\n");
        assert_eq!(leased(&place, "sync_checkpoints", &[]).await, (80, 20));
        place.write("tenure.toml", "");
        place
            .run(&["settings", "set", "lease.term=40s"])
            .succeeded();
        // A worker may send its first report before it knows the settings of the cluster, so only
        // the term is compared.
        assert_eq!(leased(&place, "sync_jobs", &[]).await.0, 40);
    }
}

/// A worker on events does not work on the rows of a table, so `why` does not count that worker.
#[tokio::test]
async fn a_row_waits_for_a_worker_on_its_table() {
    for place in everywhere().await {
        apply(&place, MAKE).await;
        adopted(&place);
        let mut events = place.start(&["work"]);
        events.line_with(" works on ");
        let why = || {
            let why = ["why", "--table", "outbox", "1", "--json"];
            place.run(&why).succeeded().field("code")
        };
        crate::program::soon(async || place.run(&["workers"]).code.filter(|code| *code == 0)).await;
        assert_eq!(why(), "\"no_worker\"");
        let exec = "while [ ! -e go ]; do sleep 0.05; done";
        let args = ["work", "--table", "outbox", "--exec", exec];
        let mut rows = place.start(&[&args[..], &["--concurrency", "1", "--batch", "1"]].concat());
        rows.line_with(" works on ");
        crate::program::soon(async || (why() == "\"claimed\"").then_some(())).await;
        place.write("go", "");
        for worker in [events, rows] {
            worker.terminate();
            worker.wait().succeeded();
        }
    }
}
