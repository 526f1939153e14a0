//! The preset `webhook` follows its specification: its columns, the guards of renewals and settles,
//! and claims of lapsed rows.

use std::time::Duration;

use tenure_core::store::{Claim, Reap, Renew, Renewed};
use tenure_core::testing::token;
use tenure_core::{
    Guarded, Held, LapsePolicy, LeaseTable, Outcome, Refusal, Term, Timestamp, Token,
};
use tenure_store::postgres::PostgresRows;
use tenure_store::sqlite::SqliteRows;

use super::{Bench, Checks, NOW, Rows, Table, ids, seconds, settle};

pub(super) const TERM: Term = Term::STANDARD;

/// End of a lease that begins now.
fn end() -> Timestamp {
    NOW.after(TERM.length())
}

/// A policy that makes lapsed rows available at once.
pub(super) fn at_once() -> LapsePolicy {
    LapsePolicy::new(3, vec![Duration::ZERO]).unwrap()
}

/// The table on both databases, with this many pending rows, of which the first is the oldest.
pub(super) async fn benches(rows: usize) -> [Bench; 2] {
    let table = LeaseTable::webhook();
    let benches = Bench::both(&table, Checks::Kept).await;
    for bench in &benches {
        let created = bench.moment(Some(NOW.before(seconds(60))));
        let row = format!("('invoice.paid', '{{}}', {created})");
        let values = vec![row; rows].join(", ");
        let insert = "insert into webhook_outbox (topic, payload, created_at) values";
        assert_eq!(bench.change(&format!("{insert} {values}")).await, rows);
    }
    benches
}

pub(super) async fn try_claim(
    rows: &dyn Rows,
    mine: &Token,
    limit: u32,
    now: Timestamp,
) -> Option<Held> {
    let claim = Claim::new(mine.clone(), limit).recovery(Some(at_once()));
    rows.claim(&claim.at(now)).await.unwrap()
}

pub(super) async fn claim(rows: &dyn Rows, mine: &Token, limit: u32) -> Held {
    let held = try_claim(rows, mine, limit, NOW).await;
    held.expect("there are rows to claim")
}

pub(super) async fn renew(rows: &dyn Rows, mine: &Token, now: Timestamp) -> Guarded<Renewed> {
    let renew = Renew::new(vec![mine.clone()], TERM).at(now);
    rows.renew(&renew).await.unwrap().remove(0).1
}

pub(super) fn retry() -> Outcome {
    Outcome::Retry {
        after: seconds(5),
        error: "503".into(),
    }
}

pub(super) fn dead() -> Outcome {
    Outcome::Dead {
        reason: "rejected".into(),
        error: "410".into(),
    }
}

/// Reads these columns of a row.
fn row_text<'a>(table: &'a Table, id: i64, columns: &[&str]) -> Vec<&'a str> {
    columns
        .iter()
        .map(|name| table[&id][*name].as_str())
        .collect()
}

/// The columns of a delivery.
const TOLD: [&str; 4] = ["delivery_status", "lease_owner", "lease_until", "attempts"];

/// Proves: S2-001, S2-002, S2-012, S2-043
#[tokio::test]
async fn a_renewal_changes_only_lease_until_of_the_rows_of_its_owner() {
    for bench in benches(3).await {
        let (table, place) = (LeaseTable::webhook(), bench.name());
        let rows = bench.rows(&table).await;
        let (mine, other) = (token("sender", 1), token("other", 1));
        claim(&*rows, &mine, 2).await;
        claim(&*rows, &other, 1).await;
        let claimed = bench.table(&table).await;
        let until = end().as_micros().to_string();
        let told = row_text(&claimed, 1, &TOLD);
        assert_eq!(told, ["pending", mine.holder(), &until, "0"], "{place}");
        for (after, gain) in [(seconds(10), 10), (seconds(4), 10)] {
            let renewed = renew(&*rows, &mine, NOW.after(after)).await;
            let expected = end().after(seconds(gain));
            let Guarded::Accepted(renewed) = renewed else {
                panic!("{place}: {renewed:?}");
            };
            assert_eq!(
                (renewed.until, renewed.ids),
                (expected, ids(&[1, 2])),
                "{place}"
            );
            let mut only_until = claimed.clone();
            for id in [1, 2] {
                let moved = expected.as_micros().to_string();
                let columns = only_until.get_mut(&id).unwrap();
                columns.insert("lease_until".to_owned(), moved);
            }
            assert_eq!(bench.table(&table).await, only_until, "{place}: never back");
        }
    }
}

/// Proves: S2-020, S2-022, S2-024
#[tokio::test]
async fn a_settled_or_lost_row_is_not_renewed() {
    for bench in benches(3).await {
        let (table, place) = (LeaseTable::webhook(), bench.name());
        let rows = bench.rows(&table).await;
        let (mine, other) = (token("sender", 1), token("other", 1));
        claim(&*rows, &mine, 2).await;
        assert!(
            settle(&*rows, &mine, (1, Outcome::Done), NOW)
                .await
                .is_accepted()
        );
        let Guarded::Accepted(renewed) = renew(&*rows, &mine, NOW.after(seconds(1))).await else {
            panic!("{place}: the rest of a lease is renewed");
        };
        assert_eq!(renewed.ids, ids(&[2]), "{place}: the delivered row is not");
        let late = end().after(seconds(60));
        let taken = try_claim(&*rows, &other, 3, late).await.unwrap();
        assert_eq!(
            taken.ids(),
            ids(&[3]),
            "{place}: the claim takes pending rows first"
        );
        let taken = try_claim(&*rows, &token("other", 2), 3, late)
            .await
            .unwrap();
        assert_eq!(taken.ids(), ids(&[2]), "{place}");
        let before = bench.table(&table).await;
        let answer = renew(&*rows, &mine, late).await;
        assert_eq!(answer, Guarded::Refused(Refusal::Lost), "{place}");
        assert_eq!(bench.table(&table).await, before, "{place}");
    }
}

/// The statement itself compares the row, its owner, its token and its status.
///
/// Proves: S2-021
#[test]
fn the_renewal_compares_id_owner_token_and_status() {
    let table = LeaseTable::webhook();
    let postgres = PostgresRows::statements(&table).unwrap();
    let sqlite = SqliteRows::statements(&table).unwrap();
    let texts = [
        postgres
            .into_iter()
            .find(|(name, _)| *name == "renew")
            .map(|(_, text)| text),
        sqlite
            .into_iter()
            .find(|(_, name, _)| name == "renew")
            .map(|(_, _, text)| text),
    ];
    for text in texts.map(Option::unwrap) {
        // This is the last update of the text; earlier ones are part of `for no key update`.
        let update = text.rsplit("update ").next().unwrap();
        let update = update.split("returning").next().unwrap();
        let predicate = update.split("\nwhere ").nth(1);
        let predicate = predicate
            .or_else(|| update.split("\n    where ").nth(1))
            .unwrap();
        // The rows of a lease are found by its token; the predicate on each row comes after that.
        let (id, rest) = predicate.split_once('\n').unwrap();
        assert!(id.starts_with("t.\"id\" "), "{text}");
        for part in [
            "t.\"lease_owner\" = ",
            "t.\"lease_token\" = ",
            "t.\"delivery_status\" = 'pending'",
            "t.\"lease_until\" > ",
        ] {
            assert!(rest.contains(part), "{part} is missing in:\n{text}");
        }
    }
}

/// Only the owner can settle a row as delivered, retry or failed. A stranger, a worker that
/// released the row, and a worker whose lease was taken over by its own later claim change nothing.
///
/// Proves: S2-023, S2-024, S2-043
#[tokio::test]
async fn only_the_owner_can_settle_a_row() {
    for bench in benches(3).await {
        let (table, place) = (LeaseTable::webhook(), bench.name());
        let rows = bench.rows(&table).await;
        let (first, mine, other) = (token("sender", 1), token("sender", 2), token("other", 1));
        claim(&*rows, &first, 3).await;
        let Guarded::Accepted(()) = settle(&*rows, &first, (1, Outcome::RELEASE), NOW).await else {
            panic!("{place}: the owner may release a row");
        };
        let before = bench.table(&table).await;
        for (id, outcome) in [(1, Outcome::Done), (1, retry()), (1, dead())] {
            let answer = settle(&*rows, &first, (id, outcome), NOW).await;
            assert_eq!(answer, Guarded::Refused(Refusal::NotClaimed), "{place}");
        }
        assert_eq!(
            bench.table(&table).await,
            before,
            "{place}: it has no owner"
        );
        assert_eq!(
            rows.reap(&Reap::new(9, at_once()).at(end().after(seconds(1))))
                .await
                .unwrap()
                .len(),
            2
        );
        let now = end().after(seconds(2));
        assert_eq!(
            try_claim(&*rows, &mine, 3, now).await.unwrap().ids(),
            ids(&[1, 2, 3])
        );
        let before = bench.table(&table).await;
        for stranger in [&first, &other] {
            for (id, outcome) in [(1, Outcome::Done), (2, retry()), (3, dead())] {
                let answer = settle(&*rows, stranger, (id, outcome), now).await;
                assert_eq!(answer, Guarded::Refused(Refusal::Lost), "{place}: {id}");
            }
        }
        assert_eq!(bench.table(&table).await, before, "{place}");
        for (id, outcome) in [(1, Outcome::Done), (2, retry()), (3, dead())] {
            assert!(
                settle(&*rows, &mine, (id, outcome), now)
                    .await
                    .is_accepted(),
                "{place}"
            );
        }
        let after = bench.table(&table).await;
        for (id, word, attempts) in [
            (1, "delivered", "0"),
            (2, "pending", "1"),
            (3, "failed", "1"),
        ] {
            let told = row_text(&after, id, &TOLD);
            assert_eq!(told, [word, "null", "null", attempts], "{place}");
        }
        let due = now.after(seconds(5)).as_micros().to_string();
        assert_eq!(after[&2]["next_attempt_at"], due, "{place}");
    }
}

/// A claim takes lapsed rows exactly from the end of their term on. The attempts that the
/// application's own workers counted stay unchanged.
///
/// Proves: S2-040, S2-041, S2-042, S2-043, S2-044
#[tokio::test]
async fn a_claim_takes_lapsed_rows_and_does_not_change_attempts() {
    for bench in benches(1).await {
        let (table, place) = (LeaseTable::webhook(), bench.name());
        let rows = bench.rows(&table).await;
        let (mine, other) = (token("sender", 1), token("other", 1));
        claim(&*rows, &mine, 1).await;
        assert!(
            renew(&*rows, &mine, NOW.after(seconds(10)))
                .await
                .is_accepted()
        );
        let end = end().after(seconds(10));
        let early = end.before(Duration::from_micros(1));
        assert_eq!(try_claim(&*rows, &other, 1, early).await, None, "{place}");
        let taken = try_claim(&*rows, &other, 1, end).await.unwrap();
        assert_eq!(taken.ids(), ids(&[1]), "{place}");
        let kept = bench.table(&table).await;
        assert_eq!(
            kept[&1]["attempts"], "0",
            "{place}: a lapse is not a failed delivery"
        );
        assert_eq!(kept[&1]["delivery_status"], "pending", "{place}");
        assert_eq!(kept[&1]["crashes"], "1", "{place}");
        let answer = renew(&*rows, &mine, end).await;
        assert_eq!(answer, Guarded::Refused(Refusal::Lost), "{place}");
    }
}
