//! The rows of an adopted table on the command line: working until none is due, listing, and errors
//! after the table was changed.

use crate::adopt::{MAKE, adopted, apply};
use crate::program::{Place, everywhere};

/// Adds a row with this id and a payload of this size.
async fn add(place: &Place, id: &str, bytes: usize) {
    let payload = "x".repeat(bytes);
    let sql = "insert into outbox (id, payload, created_at) values";
    apply(place, &format!("{sql} ('{id}', '{payload}', NOW)")).await;
}

/// A command that accepts `a`, rejects `b` for good and fails on all others.
const EXEC: &str = "row=$(cat); case $row in \
    *\\\"a\\\"*) exit 0;; *\\\"b\\\"*) echo bad address >&2; exit 65;; esac; exit 1";

#[tokio::test]
async fn a_drain_prints_the_outcomes_of_rows_and_exits_with_0() {
    for place in everywhere().await {
        apply(&place, MAKE).await;
        add(&place, "c", 1).await;
        adopted(&place);
        let work = ["work", "--table", "outbox", "--drain", "--exec", EXEC];
        let output = place.run(&work).succeeded();
        let message = output.err.lines().find(|line| line.starts_with("rows: "));
        let message = message.unwrap_or_else(|| panic!("{output:?}"));
        // The third row may have been tried more than once, because its first delay is short.
        assert!(message.starts_with("rows: 1 done, "), "{message}");
        assert!(message.ends_with(" to be retried, 1 dead"), "{message}");
        let hint = "hint: `tenure events --table outbox --state dead` ";
        assert!(output.err.contains(hint), "{output:?}");

        apply(&place, "update outbox set available_at = NOW + HOUR").await;
        let output = place.run(&work).succeeded();
        assert!(output.err.contains("rows: 0 done\n"), "{output:?}");
        assert!(!output.err.contains("hint: "), "{output:?}");
        let output = place.run(&[&work[..], &["--json"]].concat()).succeeded();
        let logged = "drained what=\"rows\" done=0 retried=0 released=0 dead=0";
        assert!(output.err.contains(logged), "{output:?}");
    }
}

#[tokio::test]
async fn rows_are_listed_by_state_newest_first_page_by_page() {
    for place in everywhere().await {
        apply(&place, MAKE).await;
        add(&place, "c", 1).await;
        adopted(&place);
        let list = |args: &[&str]| place.run(&[&["events", "--table", "outbox"], args].concat());
        list(&["--state", "dead"]).ended(3);
        let work = ["work", "--table", "outbox", "--drain", "--exec", EXEC];
        place.run(&work).succeeded();
        apply(&place, "update outbox set available_at = NOW + HOUR").await;

        let counted = place.run(&["stats", "--table", "outbox"]).succeeded();
        let hint = "hint: `tenure events --table outbox --state dead` ";
        assert!(counted.err.contains(hint), "{counted:?}");
        let dead = list(&["--state", "dead"]).succeeded();
        let lines: Vec<&str> = dead.out.lines().collect();
        assert_eq!(lines.len(), 2, "{dead:?}");
        assert!(lines[0].starts_with("ID  STATE"), "{dead:?}");
        assert!(lines[1].starts_with("2   dead"), "{dead:?}");
        assert!(lines[1].ends_with("exit code 65: bad address"), "{dead:?}");

        let all = list(&["--json"]).succeeded();
        assert_eq!(all.column("id"), ["3", "2", "1"]);
        let states = ["\"pending\"", "\"dead\"", "\"done\""];
        assert_eq!(all.column("state"), states);
        let row = &all.objects()[1]["payload"];
        assert_eq!(row["id"], "b", "{row}");
        assert_eq!(row.get("lock_token"), None, "a token is a secret: {row}");
        let first = list(&["--limit", "1"]).succeeded();
        assert_eq!(first.err, "there are more: add --before 3\n");
        let next = list(&["--limit", "1", "--before", "3", "--json"]).succeeded();
        assert_eq!(next.column("id"), ["2"]);
        list(&["--since", "2999-01-01"]).ended(3);
        list(&["--topic", "outbox"]).failed(2, "--state and --since only", "--topic");
        place.run(&["show", "--table", "outbox", "9"]).failed(
            3,
            "there is no row 9",
            "`tenure events --table outbox`",
        );

        // A row with an unknown status is not an item, and the others are still listed.
        apply(&place, "update outbox set status = 'ODD' where id = 'c'").await;
        let all = list(&["--json"]).succeeded();
        assert_eq!(all.column("id"), ["2", "1"]);
    }
}

#[tokio::test]
async fn a_row_above_the_payload_limit_is_worked_like_any_other() {
    const BYTES: usize = 2 * 1024 * 1024;
    for place in everywhere().await {
        apply(&place, MAKE).await;
        apply(&place, "delete from outbox").await;
        add(&place, "large", BYTES).await;
        adopted(&place);
        let exec = "wc -c > bytes";
        let work = ["work", "--table", "outbox", "--drain", "--exec", exec];
        let output = place.run(&work).succeeded();
        assert!(output.err.contains("rows: 1 done\n"), "{output:?}");
        let bytes = std::fs::read_to_string(place.path("bytes")).expect("the command ran");
        let bytes: usize = bytes.trim().parse().expect("a number");
        assert!(bytes > BYTES, "{bytes}");
    }
}

#[tokio::test]
async fn the_error_about_a_dropped_column_names_it_and_the_command_that_adds_it() {
    for place in everywhere().await {
        apply(&place, MAKE).await;
        adopted(&place);
        let tenure = place.tenure().await;
        let table = tenure.table("outbox").await.expect("it is adopted");
        apply(&place, "alter table outbox drop column last_error").await;

        let verbs: [&[&str]; 8] = [
            &["stats"],
            &["events"],
            &["show", "1"],
            &["why", "1"],
            &["reap"],
            &["replay", "1"],
            &["bury", "1", "--reason", "a test"],
            &["work", "--exec", "true", "--drain"],
        ];
        for verb in verbs {
            let output = place.run(&[verb, &["--table", "outbox"]].concat());
            let column = "the table outbox lacks the column last_error";
            let output = output.failed(2, column, "run `tenure adopt outbox` again");
            assert!(!output.err.contains("tenure migrate"), "{output:?}");
        }
        // A handle that was opened before the drop gets the same error.
        let id = tenure::ItemId::new(1);
        let buried = table.bury(id, "a test").await.expect_err("it cannot");
        let read = table.find(&[id]).await.expect_err("it cannot");
        for error in [buried, read] {
            assert_eq!(error.kind(), tenure::StoreErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("last_error"), "{error}");
            let advice = error.hint().unwrap_or_default();
            assert!(advice.contains("`tenure adopt outbox` again"), "{advice}");
        }

        place.run(&["adopt", "outbox", "--yes"]).succeeded();
        place.run(&["stats", "--table", "outbox"]).succeeded();
        apply(&place, "drop table outbox").await;
        place.run(&["stats", "--table", "outbox"]).failed(
            2,
            "is gone",
            "`tenure adopt outbox --undo`",
        );
    }
}
