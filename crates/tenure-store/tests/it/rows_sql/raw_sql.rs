//! Two kinds of workers on the table of the preset `webhook`: Tenure's, and hand-written ones with
//! the statements of the specification.

use tenure_core::store::Reap;
use tenure_core::testing::token;
use tenure_core::{Guarded, ItemId, LeaseTable, Outcome, Refusal, State, Timestamp, Token};

use super::planted::{FAULTS, Fault};
use super::webhook::{TERM, at_once, benches, claim, dead, renew, retry, try_claim};
use super::{Bench, NOW, Rows, ids, seconds, settle};

async fn state(rows: &dyn Rows, id: i64) -> State {
    rows.find(&[ItemId::new(id)]).await.unwrap()[0].state
}

/// A hand-written worker, which knows only its own table and runs the statements of the
/// specification.
struct SqlWorker<'a> {
    bench: &'a Bench,
    name: &'static str,
}

impl SqlWorker<'_> {
    fn at(&self, at: Timestamp) -> String {
        self.bench.moment(Some(at))
    }

    /// Claims pending rows without an owner, or with a lapsed lease; returns their number.
    async fn claim(&self, limit: u32, now: Timestamp) -> usize {
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

    /// Changes a pending row that the worker owns; returns false if there is none.
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

/// Ends the lease of a row.
const FREE: &str = "lease_owner = null, lease_until = null";

/// Two kinds of workers on one table: neither takes, renews or settles rows that the other holds;
/// each may take rows whose lease the other let lapse.
///
/// Proves: S2-020, S2-022, S2-023, S2-024, S2-040, S2-042
#[tokio::test]
async fn hand_written_workers_and_tenure_share_the_webhook_table() {
    for bench in benches(4).await {
        let rows = bench.rows(&LeaseTable::webhook()).await;
        let kept = beside_workers_by_hand(&bench, &*rows).await;
        assert_eq!(kept, Ok(()), "{}", bench.name());
    }
}

/// Returns an error instead of a panic, so that planted faults can be detected.
fn ensure(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.to_owned()) }
}

async fn beside_workers_by_hand(bench: &Bench, rows: &dyn Rows) -> Result<(), String> {
    let hand = SqlWorker {
        bench,
        name: "hand",
    };
    let mine = token("sender", 1);
    ensure(
        hand.claim(1, NOW).await == 1,
        "the hand-written worker did not get the oldest row",
    )?;
    let held = claim(rows, &mine, 9).await;
    ensure(
        held.ids() == ids(&[2, 3, 4]),
        "Tenure took a row of the hand-written worker",
    )?;
    ensure(
        hand.claim(9, NOW).await == 0,
        "the hand-written worker took a row of Tenure",
    )?;
    let then = NOW.after(seconds(10));
    live_leases_stand(bench, rows, (&hand, &mine), then).await?;
    // Both workers renewed at that time, so both leases lapse together. Tenure reaps the lease of
    // the hand-written worker like its own.
    let end = then.after(TERM.length());
    let taken = try_claim(rows, &token("sender", 2), 1, end).await;
    let is_first = taken.is_some_and(|held| held.ids() == ids(&[1]));
    ensure(is_first, "Tenure did not take a lapsed row")?;
    ensure(
        !hand.renew(1, end).await,
        "the hand-written worker renewed a lost row",
    )?;
    ensure(
        !hand.mark_delivered(1, end).await,
        "the hand-written worker settled a lost row",
    )?;
    what_we_let_lapse_is_theirs(bench, rows, (&hand, &mine), end).await
}

/// Each worker renews its own leases and none of the other's; a reaper finds nothing to do.
async fn live_leases_stand(
    bench: &Bench,
    rows: &dyn Rows,
    (hand, mine): (&SqlWorker<'_>, &Token),
    now: Timestamp,
) -> Result<(), String> {
    let before = bench.table(&LeaseTable::webhook()).await;
    ensure(
        !hand.renew(2, now).await,
        "the hand-written worker renewed a row of Tenure",
    )?;
    ensure(
        !hand.mark_delivered(2, now).await,
        "the hand-written worker delivered a row of Tenure",
    )?;
    ensure(
        !hand.mark_retry(3, now).await,
        "the hand-written worker retried a row of Tenure",
    )?;
    ensure(
        !hand.mark_failed(4, now).await,
        "the hand-written worker failed a row of Tenure",
    )?;
    for outcome in [Outcome::Done, retry(), dead(), Outcome::RELEASE] {
        let answer = settle(rows, mine, (1, outcome), now).await;
        ensure(
            answer == Guarded::Refused(Refusal::Lost),
            "Tenure settled a row of the hand-written worker",
        )?;
    }
    let reaped = rows.reap(&Reap::new(9, at_once()).at(now)).await.unwrap();
    ensure(reaped.is_empty(), "a live lease was reaped")?;
    let after = bench.table(&LeaseTable::webhook()).await;
    ensure(before == after, "a refusal changed a row")?;
    ensure(
        hand.renew(1, now).await,
        "the hand-written worker could not renew its own row",
    )?;
    let renewed = renew(rows, mine, now).await;
    let own = matches!(renewed, Guarded::Accepted(renewed) if renewed.ids == ids(&[2, 3, 4]));
    ensure(own, "Tenure did not renew exactly its own rows")
}

/// The hand-written worker takes over rows that still have Tenure's token. The token is invalid
/// while that worker holds the rows and after it has settled them.
async fn what_we_let_lapse_is_theirs(
    bench: &Bench,
    rows: &dyn Rows,
    (hand, mine): (&SqlWorker<'_>, &Token),
    now: Timestamp,
) -> Result<(), String> {
    // The previous claim also made the other lapsed rows available. Tenure claims them again, and
    // lets the lease lapse.
    let again = token("sender", 3);
    let held = try_claim(rows, &again, 9, now).await;
    ensure(
        held.is_some_and(|held| held.ids() == ids(&[2, 3, 4])),
        "Tenure did not get its lapsed rows again",
    )?;
    let now = now.after(TERM.length());
    ensure(
        hand.claim(9, now).await == 4,
        "the hand-written worker did not take the lapsed rows",
    )?;
    let before = bench.table(&LeaseTable::webhook()).await;
    for (old, id) in [(mine, 2), (&again, 2), (&again, 3), (&again, 4)] {
        let answer = renew(rows, old, now).await;
        ensure(
            answer == Guarded::Refused(Refusal::Lost),
            "Tenure renewed a row of the hand-written worker",
        )?;
        for outcome in [Outcome::Done, retry(), dead(), Outcome::RELEASE] {
            let answer = settle(rows, old, (id, outcome), now).await;
            ensure(
                answer == Guarded::Refused(Refusal::Lost),
                "Tenure settled a row of the hand-written worker",
            )?;
        }
    }
    let after = bench.table(&LeaseTable::webhook()).await;
    ensure(before == after, "a refusal changed a row")?;
    ensure(
        hand.mark_delivered(2, now).await,
        "the hand-written worker could not deliver its own row",
    )?;
    ensure(
        hand.mark_retry(3, now.after(seconds(5))).await,
        "the hand-written worker could not retry its own row",
    )?;
    ensure(
        hand.mark_failed(4, now).await,
        "the hand-written worker could not fail its own row",
    )?;
    what_they_settled_stays_settled(rows, &again, now).await
}

/// Tenure's old token cannot change rows that the hand-written worker has settled. Rows that it
/// made pending again can be claimed by Tenure once they are due.
async fn what_they_settled_stays_settled(
    rows: &dyn Rows,
    again: &Token,
    now: Timestamp,
) -> Result<(), String> {
    for (id, state_now, refusal) in [
        (2, State::Done, Refusal::AlreadySettled),
        (3, State::Pending, Refusal::NotClaimed),
        (4, State::Dead, Refusal::AlreadySettled),
    ] {
        ensure(
            state(rows, id).await == state_now,
            "Tenure reads another state",
        )?;
        let answer = settle(rows, again, (id, Outcome::Done), now).await;
        ensure(
            answer == Guarded::Refused(refusal),
            "an old token was not refused",
        )?;
    }
    ensure(
        try_claim(rows, &token("sender", 4), 9, now).await.is_none(),
        "a row was claimed before it was due",
    )?;
    let next = token("sender", 5);
    let held = try_claim(rows, &next, 9, now.after(seconds(5)))
        .await
        .ok_or("the due row was not claimed")?;
    ensure(held.ids() == ids(&[3]), "Tenure took a row that is not due")?;
    ensure(
        held.items[0].counters.failures == 1,
        "the attempt of the hand-written worker was not counted",
    )?;
    let done = settle(rows, &next, (3, Outcome::Done), now.after(seconds(6))).await;
    ensure(done.is_accepted(), "Tenure could not settle its own row")
}

/// The faulty statements ignore the holder, or recognise a held row by its status alone.
#[tokio::test]
async fn faults_next_to_hand_written_workers_are_noticed() {
    let by_word = ["{is_pending}", "t.{status} = {pending}"];
    let own = [
        Fault {
            name: "claim by the status alone",
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
