//! A checker that never failed proves nothing: a fault is planted in the text of each guarded
//! statement, and the comparison with the guards, or a look at the answer, must notice it.

use tenure_core::LeaseTable;
use tenure_core::store::Claim;
use tenure_core::testing::token;
use tenure_store::Planted;

use super::guards::{reap_keeps_its_guard, renew_keeps_its_guard, settle_keeps_its_guard};
use super::{Bench, Checks, NOW, Rows};

/// A fault in the words of each database: what the files say, and what is planted.
struct Fault {
    name: &'static str,
    file: &'static str,
    postgres: [&'static str; 2],
    sqlite: [&'static str; 2],
}

const FAULTS: [Fault; 8] = [
    Fault {
        name: "settle by id alone",
        file: "settle",
        postgres: [
            "t.{token} = $2\n      and t.{holder} = $3\n      and t.{status}",
            "t.{status}",
        ],
        sqlite: [
            "  and +t.{token} = :token\n  and t.{holder} = :holder\n  and t.{status}",
            "  and :holder is not null\n  and t.{status}",
        ],
    },
    Fault {
        name: "settle by worker",
        file: "settle",
        postgres: ["t.{token} = $2\n      and t.{holder}", "t.{holder}"],
        sqlite: ["  and +t.{token} = :token\n", ""],
    },
    Fault {
        name: "settle without the holder",
        file: "settle",
        postgres: [
            "      and t.{holder} = $3\n      and t.{status}",
            "      and t.{status}",
        ],
        sqlite: [
            "  and t.{holder} = :holder\n  and t.{status} = {claimed}\n  and (not",
            "  and :holder is not null\n  and t.{status} = {claimed}\n  and (not",
        ],
    },
    Fault {
        name: "a late settle accepted against the order",
        file: "settle",
        postgres: [
            "(not $9::boolean or t.{until} >",
            "($9::boolean is not null or t.{until} >",
        ],
        sqlite: ["(not :strict or", "(:strict is not null or"],
    },
    Fault {
        name: "reaper without guard",
        file: "reap",
        postgres: [
            "t.{until} < coalesce($1::timestamptz, now())",
            "t.{until} is not null",
        ],
        sqlite: ["t.{until} < :now", "t.{until} is not null"],
    },
    Fault {
        name: "reaper at the very end of the term",
        file: "reap",
        postgres: ["t.{until} < coalesce", "t.{until} <= coalesce"],
        sqlite: ["t.{until} < :now", "t.{until} <= :now"],
    },
    Fault {
        name: "renew of a lapsed lease",
        file: "renew",
        postgres: [
            "      and t.{until} > coalesce($1::timestamptz, now())\n",
            "      and t.{until} is not null\n",
        ],
        sqlite: [
            "  and t.{until} > :now\n",
            "  and t.{until} > :now - 99000000\n",
        ],
    },
    Fault {
        name: "renew that shortens",
        file: "renew",
        postgres: ["greatest(", "least("],
        sqlite: ["max(t.{until}, :until)", "min(t.{until}, :until)"],
    },
];

impl Fault {
    fn planted(&self, bench: &Bench) -> Planted {
        let [from, to] = match bench {
            Bench::Postgres { .. } => self.postgres,
            Bench::Sqlite { .. } => self.sqlite,
        };
        Planted {
            file: self.file,
            from,
            to,
        }
    }
}

#[tokio::test]
async fn every_fault_in_a_guard_is_noticed() {
    let table = LeaseTable::outbox();
    for bench in Bench::both(&table, Checks::Dropped).await {
        for fault in FAULTS {
            let rows = bench.planted(&table, &[fault.planted(&bench)]).await;
            let noticed = match fault.file {
                "settle" => settle_keeps_its_guard(&bench, &table, &*rows).await,
                "reap" => reap_keeps_its_guard(&bench, &table, &*rows).await,
                _ => renew_keeps_its_guard(&bench, &table, &*rows).await,
            };
            assert!(noticed.is_err(), "{} on {}", fault.name, bench.name());
        }
    }
}

/// What a claim must keep: never more than the limit, and a token is good for one lease.
async fn claim_keeps_its_promises(bench: &Bench, rows: &dyn Rows) -> Result<(), String> {
    bench.execute("delete from outbox").await;
    let insert = "insert into outbox (topic, payload) values ('order.paid', '1')";
    for _ in 0..5 {
        bench.execute(insert).await;
    }
    let claim = Claim::new(token("mailer", 1), 2).recovery(None).at(NOW);
    let held = rows
        .claim(&claim)
        .await
        .unwrap()
        .ok_or("nothing was claimed")?;
    if held.items.len() != 2 {
        return Err(format!("{} items for a limit of 2", held.items.len()));
    }
    match rows.claim(&claim).await {
        Err(_) => Ok(()),
        Ok(again) => Err(format!("the token was used again for {again:?}")),
    }
}

#[tokio::test]
async fn every_fault_in_a_claim_is_noticed() {
    let faults = [
        Fault {
            name: "claim beyond the limit",
            file: "claim",
            postgres: ["limit $5::bigint", "limit $5::bigint + 1"],
            sqlite: ["limit :limit", "limit :limit + 1"],
        },
        Fault {
            name: "token used again",
            file: "claim",
            postgres: [
                "select exists (\n        select 1 from",
                "select not exists (\n        select 1 from {table} union all select 1 from",
            ],
            sqlite: [
                "select exists (\n    select 1 from",
                "select not exists (\n    select 1 from {table} union all select 1 from",
            ],
        },
    ];
    let table = LeaseTable::outbox();
    for bench in Bench::both(&table, Checks::Kept).await {
        let sound = bench.rows(&table).await;
        assert_eq!(claim_keeps_its_promises(&bench, &*sound).await, Ok(()));
        for fault in &faults {
            let rows = bench.planted(&table, &[fault.planted(&bench)]).await;
            let noticed = claim_keeps_its_promises(&bench, &*rows).await;
            assert!(noticed.is_err(), "{} on {}", fault.name, bench.name());
        }
    }
}
