//! PostgreSQL's shorter way for what was all done: a fault in each of its guards is noticed, and it
//! ends what it names and nothing else. And rows whose table has changed since it was opened.

use tenure_core::store::{Claim, Settle};
use tenure_core::testing::token;
use tenure_core::{Content, LeaseTable, State};
use tenure_store::Planted;

use super::guards::settle_keeps_its_guard;
use super::{Bench, Checks, NOW, Rows, kinds};

const FAULTS: [[&str; 2]; 4] = [
    [
        "    where t.{token} = $2\n      and t.{holder} = $3\n      and {is_claimed}\n      \
         and (t.{key} in",
        "    where t.{holder} = $3\n      and {is_claimed}\n      and (t.{key} in",
    ],
    [
        "      and t.{holder} = $3\n      and {is_claimed}\n      and (t.{key} in",
        "      and {is_claimed}\n      and (t.{key} in",
    ],
    [
        "      and {is_claimed}\n      and (t.{key} in",
        "      and (t.{key} in",
    ],
    [
        "(not $5::boolean or t.{until} >",
        "($5::boolean is not null or t.{until} >",
    ],
];

#[tokio::test]
async fn every_fault_in_the_shorter_settle_is_noticed() {
    for table in kinds() {
        let bench = Bench::postgres(&table, Checks::Dropped).await;
        for [from, to] in FAULTS {
            let file = "settle_done";
            let rows = bench.planted(&table, &[Planted { file, from, to }]).await;
            let noticed = settle_keeps_its_guard(&bench, &table, &*rows).await;
            assert!(noticed.is_err(), "{to:?} in {}", table.name);
        }
    }
}

/// Whether the settle of one of two rows leaves the other in hand.
async fn ends_what_it_names(bench: &Bench, table: &LeaseTable, rows: &dyn Rows) -> bool {
    let name = table.name.quoted();
    bench.execute(&format!("delete from {name}")).await;
    let insert = format!("insert into {name} (topic, payload) values ('a', '1'), ('b', '2')");
    bench.execute(&insert).await;
    let claim = Claim::new(token("mailer", 1), 2).recovery(None).at(NOW);
    let held = rows.claim(&claim).await.unwrap().unwrap();
    let settle = Settle::new(token("mailer", 1))
        .done([held.ids()[0]])
        .at(NOW);
    let settled = rows.settle(&settle).await.unwrap();
    assert!(settled.items[0].1.is_kept());
    let found = rows.find(&held.ids()).await.unwrap();
    let states: Vec<State> = found.iter().map(|record| record.state).collect();
    settled.rest == 0 && states.contains(&State::Done) && states.contains(&State::Claimed)
}

#[tokio::test]
async fn the_shorter_settle_ends_what_it_names() {
    for table in kinds() {
        let bench = Bench::postgres(&table, Checks::Kept).await;
        let sound = bench.rows(&table).await;
        assert!(ends_what_it_names(&bench, &table, &*sound).await);
        let fault = Planted {
            file: "settle_done",
            from: "      and (t.{key} in (select unnest($4::bigint[]))) is true\n",
            to: "      and $4::bigint[] is not null\n",
        };
        let rows = bench.planted(&table, &[fault]).await;
        assert!(!ends_what_it_names(&bench, &table, &*rows).await);
    }
}

/// Goal: a claim survives a change of the table's own columns.
/// Method: a column is dropped, and another added, while the rows are open.
#[tokio::test]
async fn a_column_that_is_dropped_does_not_stop_the_claims() {
    for table in kinds() {
        for bench in Bench::both(&table, Checks::Kept).await {
            let name = table.name.quoted();
            bench
                .execute(&format!("alter table {name} add column note text"))
                .await;
            let insert = format!("insert into {name} (topic, payload) values ('a', '1')");
            for _ in 0..3 {
                bench.execute(&insert).await;
            }
            let rows = bench.rows(&table).await;
            let mut seen = Vec::new();
            for nth in 1..=3 {
                let claim = Claim::new(token("mailer", nth), 1).recovery(None).at(NOW);
                let held = rows.claim(&claim).await.unwrap().unwrap();
                let Content::Row(row) = &held.items[0].content else {
                    panic!("a table has rows");
                };
                let row: serde_json::Value = serde_json::from_str(row).unwrap();
                assert_eq!(row["topic"], "a");
                seen.push((row.get("note").is_some(), row.get("more").is_some()));
                let change = ["drop column note", "add column more text"].get(seen.len() - 1);
                if let Some(change) = change {
                    bench.execute(&format!("alter table {name} {change}")).await;
                }
            }
            assert_eq!(
                seen,
                [(true, false), (false, false), (false, true)],
                "{}",
                bench.name()
            );
        }
    }
}
