//! The preset `webhook`, as its specification tells it: what its columns show, whom a renewal and a
//! settle obey, who may take what has lapsed; and its own workers' statements, written by hand, at
//! work on the same table.

use std::time::Duration;

use tenure_core::store::{Claim, Reap, Renew, Renewed, Settle};
use tenure_core::testing::token;
use tenure_core::{
    Guarded, Held, ItemId, LapsePolicy, LeaseTable, Outcome, Refusal, State, Term, Timestamp, Token,
};
use tenure_store::postgres::PostgresRows;
use tenure_store::sqlite::SqliteRows;

use super::planted::{FAULTS, Fault};
use super::{Bench, Checks, NOW, Rows, Table, seconds};

const TERM: Term = Term::STANDARD;

/// When a lease that begins now is over.
fn end() -> Timestamp {
    NOW.after(TERM.length())
}

/// A policy that puts lapsed rows back at once.
fn at_once() -> LapsePolicy {
    LapsePolicy::new(3, vec![Duration::ZERO]).unwrap()
}

/// The table on both databases, with this many rows that wait, the first the oldest.
async fn benches(rows: usize) -> [Bench; 2] {
    let table = LeaseTable::webhook();
    let benches = Bench::both(&table, Checks::Kept).await;
    for bench in &benches {
        let created = bench.moment(Some(NOW.before(seconds(60))));
        let row = format!("('invoice.paid', '{{}}', {created})");
        let values = vec![row; rows].join(", ");
        let insert = "insert into webhook_outbox (topic, payload, created_at) values";
        assert_eq!(
            bench.change(&format!("{insert} {values}")).await,
            rows as u64
        );
    }
    benches
}

fn ids(numbers: &[i64]) -> Vec<ItemId> {
    numbers.iter().copied().map(ItemId::new).collect()
}

async fn try_claim(rows: &dyn Rows, mine: &Token, limit: u32, now: Timestamp) -> Option<Held> {
    let claim = Claim::new(mine.clone(), limit).recovery(Some(at_once()));
    rows.claim(&claim.at(now)).await.unwrap()
}

async fn claim(rows: &dyn Rows, mine: &Token, limit: u32) -> Held {
    let held = try_claim(rows, mine, limit, NOW).await;
    held.expect("there are rows to claim")
}

async fn renew(rows: &dyn Rows, mine: &Token, now: Timestamp) -> Guarded<Renewed> {
    let renew = Renew::new(vec![mine.clone()], TERM).at(now);
    rows.renew(&renew).await.unwrap().remove(0).1
}

async fn settle(
    rows: &dyn Rows,
    mine: &Token,
    (id, outcome): (i64, Outcome),
    now: Timestamp,
) -> Guarded {
    let settle = Settle::new(mine.clone()).item(ItemId::new(id), outcome);
    rows.settle(&settle.at(now)).await.unwrap().items[0].1
}

async fn state(rows: &dyn Rows, id: i64) -> State {
    rows.find(&[ItemId::new(id)]).await.unwrap()[0].state
}

fn retry() -> Outcome {
    Outcome::Retry {
        after: seconds(5),
        error: "503".into(),
    }
}

fn dead() -> Outcome {
    Outcome::Dead {
        reason: "rejected".into(),
        error: "410".into(),
    }
}

/// These columns of a row, with a word for each moment.
fn shown<'a>(table: &'a Table, id: i64, columns: &[&str]) -> Vec<&'a str> {
    columns
        .iter()
        .map(|name| table[&id][*name].as_str())
        .collect()
}

/// The columns that tell of a delivery.
const TOLD: [&str; 4] = ["delivery_status", "lease_owner", "lease_until", "attempts"];

/// Proves: S2-001, S2-002, S2-012, S2-043
#[tokio::test]
async fn a_renewal_moves_lease_until_of_what_its_owner_holds_and_changes_nothing_else() {
    for bench in benches(3).await {
        let (table, place) = (LeaseTable::webhook(), bench.name());
        let rows = bench.rows(&table).await;
        let (mine, other) = (token("sender", 1), token("other", 1));
        claim(&*rows, &mine, 2).await;
        claim(&*rows, &other, 1).await;
        let claimed = bench.table(&table).await;
        let until = end().as_micros().to_string();
        let told = shown(&claimed, 1, &TOLD);
        assert_eq!(told, ["pending", mine.holder(), &until, "0"], "{place}");
        for (after, gain) in [(seconds(10), 10), (seconds(4), 10)] {
            let renewed = renew(&*rows, &mine, NOW.after(after)).await;
            let expected = end().after(seconds(gain));
            let Guarded::Kept(renewed) = renewed else {
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
async fn a_renewal_ends_with_the_row_or_its_ownership_and_touches_no_other_row() {
    for bench in benches(3).await {
        let (table, place) = (LeaseTable::webhook(), bench.name());
        let rows = bench.rows(&table).await;
        let (mine, other) = (token("sender", 1), token("other", 1));
        claim(&*rows, &mine, 2).await;
        assert!(
            settle(&*rows, &mine, (1, Outcome::Done), NOW)
                .await
                .is_kept()
        );
        let Guarded::Kept(renewed) = renew(&*rows, &mine, NOW.after(seconds(1))).await else {
            panic!("{place}: what is left of a lease is renewed");
        };
        assert_eq!(renewed.ids, ids(&[2]), "{place}: the delivered row is not");
        let late = end().after(seconds(60));
        let taken = try_claim(&*rows, &other, 3, late).await.unwrap();
        assert_eq!(
            taken.ids(),
            ids(&[3]),
            "{place}: a claim that finds work takes that first"
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

/// The statement itself names the row, its owner, its token and its status.
///
/// Proves: S2-021
#[test]
fn the_renewal_asks_for_id_owner_token_and_pending() {
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
        let update = text.split("update ").nth(1).unwrap();
        let update = update.split("returning").next().unwrap();
        let predicate = update.split("\nwhere ").nth(1);
        let predicate = predicate
            .or_else(|| update.split("\n    where ").nth(1))
            .unwrap();
        // The rows of a lease are looked up by its token; the predicate is what stands outside.
        let (id, rest) = predicate.split_once("\n").unwrap();
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

/// Delivered, retry and failed are the owner's to say. A stranger, one who gave the row back, and
/// one whose lease was taken over by another claim of the same worker change nothing.
///
/// Proves: S2-023, S2-024, S2-043
#[tokio::test]
async fn delivered_retry_and_failed_are_said_by_the_owner_alone() {
    for bench in benches(3).await {
        let (table, place) = (LeaseTable::webhook(), bench.name());
        let rows = bench.rows(&table).await;
        let (first, mine, other) = (token("sender", 1), token("sender", 2), token("other", 1));
        claim(&*rows, &first, 3).await;
        let Guarded::Kept(()) = settle(&*rows, &first, (1, Outcome::RELEASE), NOW).await else {
            panic!("{place}: the owner may give a row back");
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
                settle(&*rows, &mine, (id, outcome), now).await.is_kept(),
                "{place}"
            );
        }
        let after = bench.table(&table).await;
        for (id, word, attempts) in [
            (1, "delivered", "0"),
            (2, "pending", "1"),
            (3, "failed", "1"),
        ] {
            let told = shown(&after, id, &TOLD);
            assert_eq!(told, [word, "null", "null", attempts], "{place}");
        }
        let due = now.after(seconds(5)).as_micros().to_string();
        assert_eq!(after[&2]["next_attempt_at"], due, "{place}");
    }
}

/// A claim takes what has lapsed from the very end of its term on, and not before; what its own
/// workers count as attempts is not touched by that.
///
/// Proves: S2-040, S2-041, S2-042, S2-043, S2-044
#[tokio::test]
async fn a_claim_takes_what_has_lapsed_and_leaves_attempts_alone() {
    for bench in benches(1).await {
        let (table, place) = (LeaseTable::webhook(), bench.name());
        let rows = bench.rows(&table).await;
        let (mine, other) = (token("sender", 1), token("other", 1));
        claim(&*rows, &mine, 1).await;
        assert!(renew(&*rows, &mine, NOW.after(seconds(10))).await.is_kept());
        let end = end().after(seconds(10));
        let early = end.before(Duration::from_micros(1));
        assert_eq!(try_claim(&*rows, &other, 1, early).await, None, "{place}");
        let taken = try_claim(&*rows, &other, 1, end).await.unwrap();
        assert_eq!(taken.ids(), ids(&[1]), "{place}");
        let kept = bench.table(&table).await;
        assert_eq!(
            kept[&1]["attempts"], "0",
            "{place}: a lapse is no failed delivery"
        );
        assert_eq!(kept[&1]["delivery_status"], "pending", "{place}");
        assert_eq!(kept[&1]["crashes"], "1", "{place}");
        let answer = renew(&*rows, &mine, end).await;
        assert_eq!(answer, Guarded::Refused(Refusal::Lost), "{place}");
    }
}

/// A worker of the application's own, which knows its table and nothing of us: the statements of
/// the specification, sent by hand.
struct Hand<'a> {
    bench: &'a Bench,
    name: &'static str,
}

impl Hand<'_> {
    fn at(&self, at: Timestamp) -> String {
        self.bench.moment(Some(at))
    }

    /// Takes what is pending and has no owner, or one whose lease is over; how many rows.
    async fn claim(&self, limit: u32, now: Timestamp) -> u64 {
        let lock = match self.bench {
            Bench::Postgres { .. } => "for update skip locked",
            Bench::Sqlite { .. } => "",
        };
        let sql = format!(
            "update webhook_outbox set lease_owner = '{}', lease_until = {until}
             where id in (
                 select id from webhook_outbox
                 where delivery_status = 'pending'
                   and (next_attempt_at is null or next_attempt_at <= {now})
                   and (lease_until is null or lease_until <= {now})
                 order by created_at, id limit {limit} {lock})",
            self.name,
            until = self.at(now.after(TERM.length())),
            now = self.at(now),
        );
        self.bench.change(&sql).await
    }

    /// Changes a row that it owns and that is pending; whether there is one.
    async fn change(&self, id: i64, set: &str) -> bool {
        let sql = format!(
            "update webhook_outbox set {set}
             where id = {id} and lease_owner = '{}' and delivery_status = 'pending'",
            self.name
        );
        self.bench.change(&sql).await == 1
    }

    async fn renew(&self, id: i64, now: Timestamp) -> bool {
        let until = self.at(now.after(TERM.length()));
        self.change(id, &format!("lease_until = {until}")).await
    }

    async fn mark_delivered(&self, id: i64, now: Timestamp) -> bool {
        let at = self.at(now);
        let set = format!("delivery_status = 'delivered', delivered_at = {at}, {FREE}");
        self.change(id, &set).await
    }

    async fn mark_retry(&self, id: i64, due: Timestamp) -> bool {
        let due = self.at(due);
        let set = format!("attempts = attempts + 1, next_attempt_at = {due}, {FREE}");
        self.change(id, &set).await
    }

    async fn mark_failed(&self, id: i64, now: Timestamp) -> bool {
        let (at, count) = (self.at(now), "attempts = attempts + 1");
        let set = format!("delivery_status = 'failed', failed_at = {at}, {count}, {FREE}");
        self.change(id, &set).await
    }
}

/// What ends a lease of theirs.
const FREE: &str = "lease_owner = null, lease_until = null";

/// Two kinds of workers on one table: what one holds, the other neither takes nor renews nor
/// settles; what one let lapse, the other may have.
///
/// Proves: S2-020, S2-022, S2-023, S2-024, S2-040, S2-042
#[tokio::test]
async fn workers_by_hand_and_ours_respect_each_others_leases() {
    for bench in benches(4).await {
        let rows = bench.rows(&LeaseTable::webhook()).await;
        let kept = beside_workers_by_hand(&bench, &*rows).await;
        assert_eq!(kept, Ok(()), "{}", bench.name());
    }
}

/// Says what went wrong, so that planted faults can be told from sound statements.
fn ensure(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.to_owned()) }
}

async fn beside_workers_by_hand(bench: &Bench, rows: &dyn Rows) -> Result<(), String> {
    let hand = Hand {
        bench,
        name: "hand",
    };
    let mine = token("sender", 1);
    ensure(hand.claim(1, NOW).await == 1, "the oldest is free")?;
    let held = claim(rows, &mine, 9).await;
    ensure(held.ids() == ids(&[2, 3, 4]), "we took what was theirs")?;
    ensure(hand.claim(9, NOW).await == 0, "they took what was ours")?;
    let then = NOW.after(seconds(10));
    live_leases_stand(bench, rows, (&hand, &mine), then).await?;
    // Both renewed then; both lapse at the same moment, and theirs is reaped as ours are.
    let end = then.after(TERM.length());
    let taken = try_claim(rows, &token("sender", 2), 1, end).await;
    let is_first = taken.is_some_and(|held| held.ids() == ids(&[1]));
    ensure(is_first, "we did not take what they let lapse")?;
    ensure(!hand.renew(1, end).await, "they renewed what they lost")?;
    ensure(
        !hand.mark_delivered(1, end).await,
        "they settled what they lost",
    )?;
    what_we_let_lapse_is_theirs(bench, rows, (&hand, &mine), end).await
}

/// Each renews its own and nothing of the other's; a reaper finds nothing to do.
async fn live_leases_stand(
    bench: &Bench,
    rows: &dyn Rows,
    (hand, mine): (&Hand<'_>, &Token),
    now: Timestamp,
) -> Result<(), String> {
    let before = bench.table(&LeaseTable::webhook()).await;
    ensure(!hand.renew(2, now).await, "they renewed what is ours")?;
    ensure(!hand.mark_delivered(2, now).await, "they delivered ours")?;
    ensure(!hand.mark_retry(3, now).await, "they set ours back")?;
    ensure(!hand.mark_failed(4, now).await, "they failed ours")?;
    for outcome in [Outcome::Done, retry(), dead(), Outcome::RELEASE] {
        let answer = settle(rows, mine, (1, outcome), now).await;
        ensure(
            answer == Guarded::Refused(Refusal::Lost),
            "we settled theirs",
        )?;
    }
    let reaped = rows.reap(&Reap::new(9, at_once()).at(now)).await.unwrap();
    ensure(reaped.is_empty(), "a live lease was reaped")?;
    let after = bench.table(&LeaseTable::webhook()).await;
    ensure(before == after, "a refusal changed a row")?;
    ensure(hand.renew(1, now).await, "they may renew their own")?;
    let renewed = renew(rows, mine, now).await;
    let own = matches!(renewed, Guarded::Kept(renewed) if renewed.ids == ids(&[2, 3, 4]));
    ensure(own, "we renew our own and no other")
}

/// They take over rows that still bear our token: it is worth nothing any more, neither while they
/// hold them nor when they have settled them.
async fn what_we_let_lapse_is_theirs(
    bench: &Bench,
    rows: &dyn Rows,
    (hand, mine): (&Hand<'_>, &Token),
    now: Timestamp,
) -> Result<(), String> {
    // The claim that took theirs has put ours back as well: hold them again, and let them lapse.
    let again = token("sender", 3);
    let held = try_claim(rows, &again, 9, now).await;
    ensure(
        held.is_some_and(|held| held.ids() == ids(&[2, 3, 4])),
        "ours came back",
    )?;
    let now = now.after(TERM.length());
    ensure(
        hand.claim(9, now).await == 4,
        "they did not take what we let lapse",
    )?;
    let before = bench.table(&LeaseTable::webhook()).await;
    for (old, id) in [(mine, 2), (&again, 2), (&again, 3), (&again, 4)] {
        let answer = renew(rows, old, now).await;
        ensure(
            answer == Guarded::Refused(Refusal::Lost),
            "we renewed theirs",
        )?;
        for outcome in [Outcome::Done, retry(), dead(), Outcome::RELEASE] {
            let answer = settle(rows, old, (id, outcome), now).await;
            ensure(
                answer == Guarded::Refused(Refusal::Lost),
                "we settled theirs",
            )?;
        }
    }
    let after = bench.table(&LeaseTable::webhook()).await;
    ensure(before == after, "a refusal changed a row")?;
    ensure(
        hand.mark_delivered(2, now).await,
        "they may deliver their own",
    )?;
    ensure(
        hand.mark_retry(3, now.after(seconds(5))).await,
        "they may set theirs back",
    )?;
    ensure(hand.mark_failed(4, now).await, "they may fail their own")?;
    for (id, state_now, refusal) in [
        (2, State::Done, Refusal::AlreadySettled),
        (3, State::Pending, Refusal::NotClaimed),
        (4, State::Dead, Refusal::AlreadySettled),
    ] {
        ensure(
            state(rows, id).await == state_now,
            "their words are not ours",
        )?;
        let answer = settle(rows, &again, (id, Outcome::Done), now).await;
        ensure(
            answer == Guarded::Refused(refusal),
            "an old token has a say",
        )?;
    }
    ensure(
        try_claim(rows, &token("sender", 4), 9, now).await.is_none(),
        "it is not due",
    )?;
    let next = token("sender", 5);
    let held = try_claim(rows, &next, 9, now.after(seconds(5)))
        .await
        .ok_or("it is due")?;
    ensure(held.ids() == ids(&[3]), "we took more than what is due")?;
    ensure(
        held.items[0].counters.failures == 1,
        "their attempts are not counted",
    )?;
    let done = settle(rows, &next, (3, Outcome::Done), now.after(seconds(6))).await;
    ensure(done.is_kept(), "we may settle our own")
}

/// Statements that forget the holder, or tell a held row by its word alone, do not pass beside
/// workers by hand.
#[tokio::test]
async fn faults_that_workers_by_hand_show_are_noticed() {
    let by_word = ["{is_pending}", "t.{status} = {pending}"];
    let own = [
        Fault {
            name: "claim by the word alone",
            file: "claim",
            postgres: by_word,
            sqlite: by_word,
        },
        Fault {
            name: "look without the holder",
            file: "look",
            postgres: [" and t.{holder} = $2", " and $2::text is not null"],
            sqlite: [" and t.{holder} = :holder", " and :holder is not null"],
        },
    ];
    let guards = FAULTS.into_iter();
    let guards = guards.filter(|fault| fault.name.ends_with("without the holder"));
    let faults: Vec<Fault> = own.into_iter().chain(guards).collect();
    assert_eq!(faults.len(), 4);
    let table = LeaseTable::webhook();
    for fault in faults {
        for bench in benches(4).await {
            let rows = bench.planted(&table, &[fault.planted(&bench)]).await;
            let noticed = beside_workers_by_hand(&bench, &*rows).await;
            assert!(noticed.is_err(), "{} on {}", fault.name, bench.name());
        }
    }
}
