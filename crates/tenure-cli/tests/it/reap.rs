//! `tenure reap` ends lapsed leases, and never live ones.

use std::fs;

use crate::program::{everywhere, sqlite};

#[tokio::test]
async fn a_lapsed_lease_is_ended_and_a_live_one_is_not() {
    for place in everywhere().await {
        place.enqueue("live");
        let (tenure, _held) = place.held().await;
        let lapsed = place.enqueue("lapsed");
        place.lapsed().await;

        let output = place.run(&["reap", "--json"]).succeeded();
        assert_eq!(output.column("id"), [&lapsed[..]]);
        assert_eq!(output.field("state"), "\"pending\"");
        assert_eq!(tenure.count().await.unwrap().claimed, 1);
        let output = place.run(&["reap"]).succeeded();
        assert_eq!(output.out, "no lease had lapsed\n");
        assert_eq!(place.run(&["reap", "--json"]).succeeded().out, "");
    }
}

#[tokio::test]
async fn a_reap_prints_the_number_of_reaped_events() {
    for place in everywhere().await {
        place.enqueue("a");
        place.enqueue("a");
        place.lapsed().await;
        let output = place.run(&["reap"]).succeeded();
        assert_eq!(output.out.lines().count(), 3, "{output:?}");
        assert_eq!(output.err, "2 events: 2 pending again, 0 dead\n");
    }
}

/// Method: the test writes earlier crashes into the database, because real ones take too long.
#[tokio::test]
async fn a_reap_applies_the_configured_max_crashes() {
    for (text, state) in [("", "\"pending\""), ("max_crashes = 3", "\"dead\"")] {
        let place = sqlite();
        let id = place.enqueue("a");
        place.lapsed().await;
        let conn = rusqlite::Connection::open(place.file()).unwrap();
        let lapses = "insert into tenure_setbacks (id, attempts, crashes) values (?1, 3, 3)";
        conn.execute(lapses, [id]).unwrap();
        drop(conn);
        let file = place.file().with_file_name("tenure.toml");
        fs::write(file, format!("[retry]\n{text}\n")).unwrap();
        let output = place.run(&["reap", "--json"]).succeeded();
        assert_eq!(output.field("state"), state, "{text}");
    }
}
