//! The statement `settle_done`, for settles of all items as done: a fault in each of its guards is
//! noticed, and it settles exactly the named rows. Also claims of rows whose table has changed
//! since the store opened it.

use tenure_core::store::{Claim, Settle};
use tenure_core::testing::{Extent, token};
use tenure_core::{Content, Lateness, LeaseTable, State};

use super::guards::settle_of_two_keeps_its_guard;
use super::planted::Fault;
use super::{Bench, Checks, NOW, Rows, kinds};
use crate::faults::Planted;

const FAULTS: [Fault; 4] = [
    Fault {
        name: "without the token",
        file: "settle_done",
        postgres: [
            "    where t.{token} = $2\n      and t.{holder} = $3\n      and {is_claimed}\n      \
             and (t.{key} in",
            "    where t.{holder} = $3\n      and {is_claimed}\n      and (t.{key} in",
        ],
        sqlite: ["  and +t.{token} = :token\n", ""],
    },
    Fault {
        name: "without the holder",
        file: "settle_done",
        postgres: [
            "      and t.{holder} = $3\n      and {is_claimed}\n      and (t.{key} in",
            "      and {is_claimed}\n      and (t.{key} in",
        ],
        sqlite: [
            "  and t.{holder} = :holder\n",
            "  and :holder is not null\n",
        ],
    },
    Fault {
        name: "of a row that is not claimed",
        file: "settle_done",
        postgres: [
            "      and {is_claimed}\n      and (t.{key} in",
            "      and (t.{key} in",
        ],
        sqlite: ["  and {is_claimed}\n", ""],
    },
    Fault {
        name: "late although strict",
        file: "settle_done",
        postgres: [
            "(not $5::boolean or t.{until} >",
            "($5::boolean is not null or t.{until} >",
        ],
        sqlite: ["(not :strict or", "(:strict is not null or"],
    },
];

/// Checks the guards of a settle of all items as done, with lapsed leases refused or accepted.
async fn keeps_its_guards(
    bench: &Bench,
    table: &LeaseTable,
    rows: &dyn Rows,
) -> Result<(), String> {
    for lateness in [Lateness::Accept, Lateness::Refuse] {
        settle_of_two_keeps_its_guard(bench, table, rows, lateness).await?;
    }
    Ok(())
}

#[tokio::test]
async fn every_fault_in_settle_done_is_noticed() {
    for table in Extent::chosen().of(&kinds(), 1) {
        for bench in Bench::both(&table, Checks::Dropped).await {
            let place = format!("{} on {}", table.name, bench.name());
            let sound = bench.rows(&table).await;
            let kept = keeps_its_guards(&bench, &table, &*sound).await;
            assert_eq!(kept, Ok(()), "{place}");
            for fault in FAULTS {
                let rows = bench.planted(&table, &[fault.planted(&bench)]).await;
                let noticed = keeps_its_guards(&bench, &table, &*rows).await;
                assert!(noticed.is_err(), "{} in {place}", fault.name);
            }
        }
    }
}

/// Checks that the settle of two of three rows leaves the third held.
async fn ends_what_it_names(bench: &Bench, table: &LeaseTable, rows: &dyn Rows) -> bool {
    let name = table.name.quoted();
    bench.execute(&format!("delete from {name}")).await;
    let insert =
        format!("insert into {name} (topic, payload) values ('a', '1'), ('b', '2'), ('c', '3')");
    bench.execute(&insert).await;
    let claim = Claim::new(token("mailer", 1), 3).recovery(None).at(NOW);
    let held = rows.claim(&claim).await.unwrap().unwrap();
    let settle = Settle::new(token("mailer", 1))
        .done(held.ids().into_iter().take(2))
        .at(NOW);
    let settled = rows.settle(&settle).await.unwrap();
    assert!(settled.items.iter().all(|(_, answer)| answer.is_accepted()));
    let found = rows.find(&held.ids()).await.unwrap();
    let states: Vec<State> = found.iter().map(|record| record.state).collect();
    settled.rest == 0 && states.contains(&State::Done) && states.contains(&State::Claimed)
}

#[tokio::test]
async fn settle_done_ends_only_the_rows_that_it_names() {
    for table in kinds() {
        for bench in Bench::both(&table, Checks::Kept).await {
            let sound = bench.rows(&table).await;
            assert!(ends_what_it_names(&bench, &table, &*sound).await);
        }
        let bench = Bench::postgres(&table, Checks::Kept).await;
        let fault = Planted {
            file: "settle_done",
            from: "      and (t.{key} in (select unnest($4::bigint[]))) is true\n",
            to: "      and $4::bigint[] is not null\n",
        };
        let rows = bench.planted(&table, &[fault]).await;
        assert!(!ends_what_it_names(&bench, &table, &*rows).await);
    }
}

/// Goal: claims work after a change of the table's own columns. Method: the test drops a column and
/// adds another while the store has the table open.
#[tokio::test]
async fn dropped_and_added_columns_do_not_stop_claims() {
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
