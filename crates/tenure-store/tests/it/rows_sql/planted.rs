//! A fault is planted in each guarded statement, and the comparison with the guards, or a check of
//! the answer, must notice it. A checker that never failed proves nothing.

use tenure_core::LeaseTable;
use tenure_core::store::Claim;
use tenure_core::testing::{Extent, token};

use super::guards::{reap_keeps_its_guard, renew_keeps_its_guard, settle_keeps_its_guard};
use super::{Bench, Checks, NOW, Rows, kinds};
use crate::faults::Planted;

/// A fault for each database: the text in the file, and its replacement.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    pub(super) postgres: [&'static str; 2],
    pub(super) sqlite: [&'static str; 2],
}

pub(super) const FAULTS: [Fault; 11] = [
    Fault {
        name: "settle by id alone",
        file: "settle",
        postgres: [
            "t.{token} = $2\n      and t.{holder} = $3\n      and {is_claimed}",
            "{is_claimed}",
        ],
        sqlite: [
            "  and +t.{token} = :token\n  and t.{holder} = :holder\n  and {is_claimed}",
            "  and :holder is not null\n  and {is_claimed}",
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
            "      and t.{holder} = $3\n      and {is_claimed}",
            "      and {is_claimed}",
        ],
        sqlite: [
            "  and t.{holder} = :holder\n  and {is_claimed}\n  and (not",
            "  and :holder is not null\n  and {is_claimed}\n  and (not",
        ],
    },
    Fault {
        name: "late settle accepted although strict",
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
            "t.{until} < coalesce($1::timestamptz, statement_timestamp())",
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
            "      and t.{until} > coalesce($1::timestamptz, statement_timestamp())\n",
            "      and t.{until} is not null\n",
        ],
        sqlite: [
            "  and t.{until} > :now\n",
            "  and t.{until} > :now - 99000000\n",
        ],
    },
    Fault {
        name: "renew by worker",
        file: "renew",
        postgres: [
            "= any (array(select id from held))\n      and t.{token} = any ($2::text[])\n      \
             and t.{holder} = ($3::text[])[array_position($2::text[], t.{token})]",
            "is not null\n      and t.{holder} = any ($3::text[])",
        ],
        sqlite: [
            "where t.{key} in (select t.{key} from {table} t where t.{token} = :token and \
             {is_claimed})\n  and +t.{token} = :token\n",
            "where :token is not null\n",
        ],
    },
    Fault {
        name: "renew without the holder",
        file: "renew",
        postgres: [
            "      and t.{holder} = ($3::text[])[array_position($2::text[], t.{token})]\n",
            "      and $3::text[] is not null\n",
        ],
        sqlite: [
            "  and +t.{token} = :token\n  and t.{holder} = :holder\n",
            "  and +t.{token} = :token\n  and :holder is not null\n",
        ],
    },
    Fault {
        name: "renew of a settled row",
        file: "renew",
        postgres: ["and {is_claimed}", "and t.{key} is not null"],
        sqlite: ["and {is_claimed}", "and t.{key} is not null"],
    },
    Fault {
        name: "renew that shortens",
        file: "renew",
        postgres: ["greatest(", "least("],
        sqlite: ["max(t.{until}, :until)", "min(t.{until}, :until)"],
    },
];

impl Fault {
    pub(super) fn planted(&self, bench: &Bench) -> Planted {
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
    for table in Extent::chosen().of(&kinds(), 1) {
        for bench in Bench::both(&table, Checks::Dropped).await {
            for fault in FAULTS {
                let rows = bench.planted(&table, &[fault.planted(&bench)]).await;
                let noticed = match fault.file {
                    "settle" => settle_keeps_its_guard(&bench, &table, &*rows).await,
                    "reap" => reap_keeps_its_guard(&bench, &table, &*rows).await,
                    _ => renew_keeps_its_guard(&bench, &table, &*rows).await,
                };
                let place = format!("{} on {}", table.name, bench.name());
                assert!(noticed.is_err(), "{} in {place}", fault.name);
            }
        }
    }
}

/// Checks the guarantees of a claim: never more than the limit, one lease per token, and no change
/// of held rows.
async fn claim_keeps_its_promises(
    bench: &Bench,
    table: &LeaseTable,
    rows: &dyn Rows,
) -> Result<(), String> {
    let name = table.name.quoted();
    bench.execute(&format!("delete from {name}")).await;
    let insert = format!("insert into {name} (topic, payload) values ('order.paid', '1')");
    for _ in 0..5 {
        bench.execute(&insert).await;
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
    if let Ok(again) = rows.claim(&claim).await {
        return Err(format!("the token was used again for {again:?}"));
    }
    let other = Claim::new(token("other", 1), 9).recovery(None).at(NOW);
    let others = match rows.claim(&other).await {
        Ok(others) => others.ok_or("nothing was left")?,
        Err(error) => return Err(error.to_string()),
    };
    match others.ids().iter().find(|id| held.ids().contains(id)) {
        None => Ok(()),
        Some(id) => Err(format!("item {id} was claimed twice")),
    }
}

pub(super) const CLAIM_FAULTS: [Fault; 3] = [
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
    Fault {
        name: "claim of a held row",
        file: "claim",
        postgres: ["{is_pending}", "({is_pending} or {is_claimed})"],
        sqlite: ["{is_pending}", "({is_pending} or {is_claimed})"],
    },
];

#[tokio::test]
async fn every_fault_in_a_claim_is_noticed() {
    for table in Extent::chosen().of(&kinds(), 1) {
        for bench in Bench::both(&table, Checks::Kept).await {
            let sound = bench.rows(&table).await;
            let kept = claim_keeps_its_promises(&bench, &table, &*sound).await;
            assert_eq!(kept, Ok(()), "{} on {}", table.name, bench.name());
            for fault in CLAIM_FAULTS {
                let rows = bench.planted(&table, &[fault.planted(&bench)]).await;
                let noticed = claim_keeps_its_promises(&bench, &table, &*rows).await;
                let place = format!("{} on {}", table.name, bench.name());
                assert!(noticed.is_err(), "{} in {place}", fault.name);
            }
        }
    }
}
