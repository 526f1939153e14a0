//! The preset `sync_jobs` follows its specification, also next to workers that run the
//! specification's statements on the same table.

use tenure_core::store::Filter;
use tenure_core::testing::token;
use tenure_core::{
    Content, Guarded, Held, ItemId, LeaseTable, Outcome, Refusal, Settings, State, SyncState,
    Timestamp, Token,
};

use super::planted::{CLAIM_FAULTS, FAULTS, Fault};
use super::sync::{FIVE_MINUTES, SqlWorker, benches, claim, renew, settle, state, term};
use super::{Bench, Checks, NOW, Rows, seconds};

fn ids(numbers: &[i64]) -> Vec<ItemId> {
    numbers.iter().copied().map(ItemId::new).collect()
}

fn dead() -> Outcome {
    Outcome::Dead {
        reason: "rejected".into(),
        error: "by hand".into(),
    }
}

fn every_outcome() -> [Outcome; 4] {
    let retry = Outcome::Retry {
        after: seconds(5),
        error: "503".into(),
    };
    [Outcome::Done, retry, dead(), Outcome::RELEASE]
}

fn refused(refusal: Refusal) -> Guarded {
    Guarded::Refused(refusal)
}

/// Claims a single row, as the specification does; returns its id, or 0 for none.
async fn claim_one(rows: &dyn Rows, mine: &Token, now: Timestamp) -> i64 {
    let held = claim(rows, mine, 1, now).await;
    held.map_or(0, |held| held.items[0].id.number())
}

/// Reads these columns of a row.
async fn row_text<const N: usize>(bench: &Bench, id: i64, columns: [&str; N]) -> [String; N] {
    let table = bench.table(&LeaseTable::sync_jobs()).await;
    columns.map(|name| table[&id][name].clone())
}

/// Each claim returns one row with all columns: the most urgent one, and of these the oldest, until
/// there is none.
///
/// Proves: S5-017, S5-018, S5-019, S5-020, S5-022, S5-024, S5-025, S5-048
#[tokio::test]
async fn both_kinds_of_workers_claim_one_row_at_a_time_in_the_same_order() {
    // Rows 4 and 5 are as urgent as row 2, and younger.
    for bench in benches(&[0, 5, -1, 5, 5, 9]).await {
        let rows = bench.rows(&LeaseTable::sync_jobs()).await;
        let hand = SqlWorker {
            bench: &bench,
            name: "hand",
        };
        let end = NOW.after(FIVE_MINUTES).as_micros().to_string();
        hand.complete(6, NOW).await.unwrap();
        for (nth, id) in [2, 4, 5, 1, 3].into_iter().enumerate() {
            let place = format!("row {id} on {}", bench.name());
            let mine = token("mailer", u64::try_from(nth).unwrap());
            let holder = if nth % 2 == 0 {
                let held = claim(&*rows, &mine, 1, NOW).await.unwrap();
                assert_eq!(held.ids(), ids(&[id]), "{place}");
                assert!(is_whole(&held, id), "{place}: {held:?}");
                assert_eq!(held.lease.until, NOW.after(FIVE_MINUTES), "{place}");
                mine.holder()
            } else {
                assert_eq!(hand.claim(NOW).await, ids(&[id]), "{place}");
                hand.name
            };
            let told = row_text(&bench, id, ["locked_until", "locked_by"]).await;
            assert_eq!(told, [end.as_str(), holder], "{place}");
            let told = state(&bench, &*rows, id, NOW).await;
            assert_eq!(told, SyncState::Running, "{place}");
        }
        assert_eq!(claim(&*rows, &token("mailer", 9), 1, NOW).await, None);
        assert!(hand.claim(NOW).await.is_empty(), "{}", bench.name());
    }
}

/// Checks that the claim returned every column of the row except those of the lease.
fn is_whole(held: &Held, id: i64) -> bool {
    let Content::Row(row) = &held.items[0].content else {
        return false;
    };
    let row: serde_json::Value = serde_json::from_str(row).unwrap();
    let table = LeaseTable::sync_jobs();
    let lease = table.lease_facts();
    let mut facts = table.facts().into_iter();
    row["id"] == id
        && row["payload"]["nth"] == id - 1
        && facts.all(|fact| row.get(fact.1.as_str()).is_some() != lease.contains(&fact))
}

/// Both kinds of claims skip a locked row without waiting.
///
/// Proves: S5-017, S5-023
#[tokio::test]
async fn a_claim_skips_a_row_that_another_transaction_has_locked() {
    for bench in benches(&[0, 0, 0]).await {
        let Bench::Postgres { pool, .. } = &bench else {
            continue;
        };
        let rows = bench.rows(&LeaseTable::sync_jobs()).await;
        let hand = SqlWorker {
            bench: &bench,
            name: "hand",
        };
        let mut other = pool.begin().await.unwrap();
        let lock = "select id from sync_jobs where id = 1 for update";
        sqlx::query(lock).execute(&mut *other).await.unwrap();
        assert_eq!(claim_one(&*rows, &token("mailer", 1), NOW).await, 2);
        assert_eq!(hand.claim(NOW).await, ids(&[3]));
        other.rollback().await.unwrap();
        assert_eq!(claim_one(&*rows, &token("mailer", 2), NOW).await, 1);
    }
}

/// A heartbeat each minute keeps a job indefinitely. Without one, the job is free exactly five
/// minutes after the last heartbeat, and a later heartbeat cannot regain it.
///
/// Proves: S5-005, S5-006, S5-007, S5-026, S5-027, S5-028, S5-043
#[tokio::test]
async fn a_heartbeat_every_minute_keeps_a_job_and_a_late_one_does_not_revive_it() {
    let settings = Settings {
        term: term(),
        heartbeat: Some(seconds(60)),
        ..Settings::default()
    };
    assert!(settings.check().is_ok(), "the timing of the specification");
    for bench in benches(&[1, 0]).await {
        let (place, rows) = (bench.name(), bench.rows(&LeaseTable::sync_jobs()).await);
        let (hand, other) = (
            SqlWorker {
                bench: &bench,
                name: "hand",
            },
            SqlWorker {
                bench: &bench,
                name: "other",
            },
        );
        let (mine, theirs) = (token("mailer", 1), token("thief", 1));
        assert_eq!(claim_one(&*rows, &mine, NOW).await, 1, "{place}");
        assert_eq!(hand.claim(NOW).await, ids(&[2]), "{place}");
        let mut now = NOW;
        for minute in 1..=12 {
            now = NOW.after(seconds(60 * minute));
            let renewed = renew(&*rows, &mine, now).await;
            assert!(renewed.is_accepted(), "{place}, minute {minute}");
            assert!(hand.heartbeat(2, now).await, "{place}, minute {minute}");
            assert!(!other.heartbeat(2, now).await, "{place}: not its own");
            assert!(!hand.heartbeat(1, now).await, "{place}: not its own");
            let lost = renew(&*rows, &theirs, now).await;
            assert_eq!(lost, Guarded::Refused(Refusal::Lost), "{place}");
            assert_eq!(claim_one(&*rows, &theirs, now).await, 0, "{place}");
            assert!(other.claim(now).await.is_empty(), "{place}");
        }
        let end = now.after(FIVE_MINUTES);
        for id in [1, 2] {
            let [until] = row_text(&bench, id, ["locked_until"]).await;
            assert_eq!(until, end.as_micros().to_string(), "{place}");
        }
        let lapsed = renew(&*rows, &mine, end).await;
        assert_eq!(lapsed, Guarded::Refused(Refusal::Lapsed), "{place}");
        assert!(!hand.heartbeat(2, end).await, "{place}");
        for id in [1, 2] {
            let told = state(&bench, &*rows, id, end).await;
            assert_eq!(told, SyncState::Lapsed, "{place}");
        }
        assert_eq!(other.claim(end).await, ids(&[1]), "{place}");
        assert_eq!(claim_one(&*rows, &theirs, end).await, 2, "{place}");
    }
}

/// Returns an error instead of a panic, so that planted faults can be detected.
fn ensure(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.to_owned()) }
}

/// A row whose lease one kind of worker let lapse is available to the other kind at once, before
/// less urgent rows, without a reaper and any number of times. The old lease is over, though
/// Tenure's token is still in the row.
///
/// Proves: S5-001, S5-002, S5-003, S5-004, S5-007, S5-021, S5-022, S5-045, S5-046
#[tokio::test]
async fn a_lapsed_row_is_at_once_available_to_the_other_kind_of_worker() {
    for bench in benches(&[0, 7, 0]).await {
        let rows = bench.rows(&LeaseTable::sync_jobs()).await;
        let kept = turns_at_crashing(&bench, &*rows).await;
        assert_eq!(kept, Ok(()), "{}", bench.name());
    }
}

async fn turns_at_crashing(bench: &Bench, rows: &dyn Rows) -> Result<(), String> {
    // The hand-written worker has the same name as Tenure's worker, but not the id of its process.
    let hand = SqlWorker {
        bench,
        name: "mailer",
    };
    let mut now = NOW;
    for round in 1..=3 {
        let mine = token("mailer", round);
        let taken = claim_one(rows, &mine, now).await;
        ensure(taken == 2, "Tenure did not take the highest priority")?;
        now = now.after(FIVE_MINUTES);
        ensure(
            hand.claim(now).await == ids(&[2]),
            "the row of Tenure was not free",
        )?;
        let before = bench.table(&LeaseTable::sync_jobs()).await;
        let renewed = renew(rows, &mine, now).await;
        let is_lost = renewed == Guarded::Refused(Refusal::Lost);
        ensure(is_lost, "Tenure renewed a row of the hand-written worker")?;
        for outcome in every_outcome() {
            let answer = settle(rows, &mine, (2, outcome), now).await;
            ensure(
                answer == refused(Refusal::Lost),
                "Tenure settled a row of the hand-written worker",
            )?;
        }
        let spare = token("spare", round);
        let live = claim(rows, &spare, 9, now).await;
        let live = live.ok_or("Tenure did not get the free rows")?;
        ensure(
            !live.ids().contains(&ItemId::new(2)),
            "Tenure took a row of the hand-written worker",
        )?;
        for id in live.ids() {
            let back = settle(rows, &spare, (id.number(), Outcome::RELEASE), now).await;
            ensure(back.is_accepted(), "Tenure could not release its own row")?;
        }
        let after = bench.table(&LeaseTable::sync_jobs()).await;
        ensure(before[&2] == after[&2], "a refusal changed a row")?;
        now = now.after(FIVE_MINUTES);
        ensure(!hand.heartbeat(2, now).await, "a lapsed lease was renewed")?;
    }
    let mine = token("mailer", 9);
    ensure(
        claim_one(rows, &mine, now).await == 2,
        "the row of the hand-written worker was not free",
    )?;
    ensure(
        hand.claim(now).await == ids(&[1]),
        "the hand-written worker took a row of Tenure",
    )?;
    let done = settle(rows, &mine, (2, Outcome::Done), now).await;
    ensure(done.is_accepted(), "Tenure could not settle its own row")?;
    let told = state(bench, rows, 2, now).await;
    ensure(told == SyncState::Completed, "the row is not done")
}

/// A hand-written statement checks only the id, so it can settle a row that Tenure's worker holds.
/// Every settle of that worker is then refused, and the row is never both completed and failed.
///
/// Proves: S5-008, S5-015, S5-016, S5-029, S5-030, S5-031, S5-032
#[tokio::test]
async fn a_row_that_was_ended_by_hand_stays_ended() {
    for bench in benches(&[0, 0, 0, 0]).await {
        let (place, rows) = (bench.name(), bench.rows(&LeaseTable::sync_jobs()).await);
        let hand = SqlWorker {
            bench: &bench,
            name: "hand",
        };
        let mine = token("mailer", 1);
        claim(&*rows, &mine, 2, NOW).await.unwrap();
        hand.claim(NOW).await;
        hand.claim(NOW).await;
        let now = NOW.after(seconds(9));
        // Tenure's worker holds rows 1 and 2, the hand-written worker 3 and 4.
        for id in [1, 3] {
            assert_eq!(hand.complete(id, now).await, Ok(1), "{place}");
            assert_eq!(hand.fail(id + 1, now).await, Ok(1), "{place}");
        }
        let before = bench.table(&LeaseTable::sync_jobs()).await;
        let lost = renew(&*rows, &mine, now).await;
        assert_eq!(lost, Guarded::Refused(Refusal::Lost), "{place}");
        for id in 1..=4 {
            for outcome in every_outcome() {
                let answer = settle(&*rows, &mine, (id, outcome), now).await;
                assert_eq!(answer, refused(Refusal::AlreadySettled), "{place}");
            }
        }
        let later = now.after(FIVE_MINUTES);
        assert_eq!(claim(&*rows, &token("mailer", 2), 9, later).await, None);
        assert!(hand.claim(later).await.is_empty(), "{place}");
        assert_eq!(bench.table(&LeaseTable::sync_jobs()).await, before);
        for (id, expected) in [
            (1, SyncState::Completed),
            (2, SyncState::Failed),
            (3, SyncState::Completed),
            (4, SyncState::Failed),
        ] {
            assert_eq!(state(&bench, &*rows, id, later).await, expected, "{place}");
        }
    }
}

/// In Tenure's own table, a late hand-written worker cannot settle a row a second time.
///
/// Proves: S5-008, S5-030, S5-032
#[tokio::test]
async fn a_job_in_tenures_table_is_never_both_completed_and_failed() {
    for bench in benches(&[0, 0]).await.into_iter().take(2) {
        let (place, rows) = (bench.name(), bench.rows(&LeaseTable::sync_jobs()).await);
        let hand = SqlWorker {
            bench: &bench,
            name: "hand",
        };
        let mine = token("mailer", 1);
        claim(&*rows, &mine, 2, NOW).await.unwrap();
        assert!(
            settle(&*rows, &mine, (1, Outcome::Done), NOW)
                .await
                .is_accepted()
        );
        assert!(settle(&*rows, &mine, (2, dead()), NOW).await.is_accepted());
        let before = bench.table(&LeaseTable::sync_jobs()).await;
        let late = NOW.after(seconds(1));
        for refusal in [hand.fail(1, late).await, hand.complete(2, late).await] {
            let problem = refusal.unwrap_err().to_lowercase();
            assert!(problem.contains("check constraint"), "{place}: {problem}");
        }
        assert_eq!(
            bench.table(&LeaseTable::sync_jobs()).await,
            before,
            "{place}"
        );
    }
}

/// Done and dead write the same values into the columns of the specification as the specification's
/// own statements.
///
/// Proves: S5-029, S5-031
#[tokio::test]
async fn done_and_dead_write_the_same_columns_as_the_specification() {
    let told = [
        "completed_at",
        "failed_at",
        "error_message",
        "locked_until",
        "locked_by",
    ];
    for bench in benches(&[0, 0, 0, 0]).await {
        let (place, rows) = (bench.name(), bench.rows(&LeaseTable::sync_jobs()).await);
        let hand = SqlWorker {
            bench: &bench,
            name: "hand",
        };
        let mine = token("mailer", 1);
        claim(&*rows, &mine, 2, NOW).await.unwrap();
        hand.claim(NOW).await;
        hand.claim(NOW).await;
        let now = NOW.after(seconds(9));
        let micros = now.as_micros().to_string();
        assert!(
            settle(&*rows, &mine, (1, Outcome::Done), now)
                .await
                .is_accepted()
        );
        assert!(settle(&*rows, &mine, (2, dead()), now).await.is_accepted());
        hand.complete(3, now).await.unwrap();
        hand.fail(4, now).await.unwrap();
        let done = [&micros, "null", "null", "null", "null"];
        let failed = ["null", &micros, "by hand", "null", "null"];
        for (id, expected) in [(1, done), (2, failed), (3, done), (4, failed)] {
            assert_eq!(
                row_text(&bench, id, told).await,
                expected,
                "{id} on {place}"
            );
        }
    }
}

/// Every combination of the three timestamps is in a table without checks. The SQL reports one of
/// the five states, and a claim takes exactly the rows that are available or lapsed.
///
/// Proves: S5-005, S5-011, S5-012, S5-013, S5-014, S5-015, S5-016, S5-020, S5-021, S5-047
#[tokio::test]
async fn the_sql_reports_the_five_states() {
    let moments = [
        None,
        Some(NOW.before(seconds(1))),
        Some(NOW),
        Some(NOW.after(seconds(1))),
    ];
    for table in [LeaseTable::sync_jobs(), LeaseTable::sync_checkpoints()] {
        for bench in Bench::both(&table, Checks::Dropped).await {
            let (place, rows) = (bench.name(), bench.rows(&table).await);
            let mut states = Vec::new();
            for until in moments {
                for done_at in moments {
                    for dead_at in moments {
                        states.push(SyncState::of(until, done_at, dead_at, NOW));
                        let [until, done_at, dead_at] =
                            [until, done_at, dead_at].map(|at| bench.moment(at));
                        let insert = format!(
                            "insert into {} (topic, payload, locked_until, locked_by,
                                             completed_at, failed_at)
                             values ('sync', '1', {until}, 'hand', {done_at}, {dead_at})",
                            table.name.quoted()
                        );
                        bench.execute(&insert).await;
                    }
                }
            }
            tells_the_five_states(&*rows, &states, place).await;
        }
    }
}

async fn tells_the_five_states(rows: &dyn Rows, states: &[SyncState], place: &str) {
    let of = |wanted: &dyn Fn(SyncState) -> bool| -> Vec<ItemId> {
        let ids = (1..).map(ItemId::new).zip(states);
        let ids = ids.filter(|(_, state)| wanted(**state));
        ids.map(|(id, _)| id).collect()
    };
    for state in State::ALL {
        let filter = Filter {
            state: Some(state),
            ..Filter::default()
        };
        let records = rows.list(&filter, 100).await.unwrap().records;
        let mut listed: Vec<ItemId> = records.iter().map(|record| record.id).collect();
        listed.sort();
        assert_eq!(
            listed,
            of(&|told| told.state() == state),
            "{state} on {place}"
        );
    }
    let counts = rows.count(Some(NOW)).await.unwrap();
    let lapsed = of(&|told| told == SyncState::Lapsed).len();
    assert_eq!(usize::try_from(counts.lapsed), Ok(lapsed), "{place}");
    let held = claim(rows, &token("mailer", 1), 100, NOW).await.unwrap();
    let mut taken = held.ids();
    taken.sort();
    let is_free = |told| matches!(told, SyncState::Available | SyncState::Lapsed);
    assert_eq!(taken, of(&is_free), "{place}");
}

/// More rows have lapsed than one reap takes, and the most urgent row lapsed last. It is still
/// claimed first.
///
/// Proves: S5-021, S5-022
#[tokio::test]
async fn the_highest_priority_comes_first_however_many_rows_have_lapsed() {
    let priorities: Vec<i64> = (0..150).map(|nth| i64::from(nth == 149)).collect();
    for bench in benches(&priorities).await.into_iter().take(2) {
        let until = bench.moment(Some(NOW.before(seconds(9))));
        let all = format!("update sync_jobs set locked_by = 'hand', locked_until = {until}");
        assert_eq!(bench.change(&all).await, 150);
        let until = bench.moment(Some(NOW));
        let last = format!("update sync_jobs set locked_until = {until} where id = 150");
        assert_eq!(bench.change(&last).await, 1);
        let rows = bench.rows(&LeaseTable::sync_jobs()).await;
        let first = claim_one(&*rows, &token("mailer", 1), NOW).await;
        assert_eq!(first, 150, "{}", bench.name());
    }
}

/// Any connection pool works, even one that changes the connection after each transaction.
///
/// Proves: S5-049
#[tokio::test]
async fn the_statements_need_no_state_of_the_connection() {
    let table = LeaseTable::sync_jobs();
    let postgres = tenure_store::postgres::PostgresRows::statements(&table).unwrap();
    let sqlite = tenure_store::sqlite::SqliteRows::statements(&table).unwrap();
    let texts = postgres.into_iter().map(|(_, text)| text);
    let texts: Vec<String> = texts.chain(sqlite.into_iter().map(|all| all.2)).collect();
    assert!(texts.len() > 20);
    for text in texts {
        for word in [
            "advisory",
            "temp ",
            "listen",
            "set_config",
            "currval",
            "lastval",
        ] {
            assert!(!text.contains(word), "{word} in:\n{text}");
        }
    }
}

/// The faulty statements ignore the holder, treat held rows as free, or leave out lapsed rows.
#[tokio::test]
async fn faults_next_to_hand_written_sync_workers_are_noticed() {
    let own = [
        Fault {
            name: "rows that lapsed twice are left out",
            file: "claim",
            postgres: ["or $7::boolean", "or $7::boolean is null"],
            sqlite: ["or :lone", "or :lone is null"],
        },
        Fault {
            name: "a lapsed row is available later",
            file: "reap",
            postgres: [
                "else coalesce($1::timestamptz, statement_timestamp()) + interval",
                "else coalesce($1::timestamptz, statement_timestamp()) + interval '1 s' + interval",
            ],
            sqlite: ["else :now + (", "else 1000000 + :now + ("],
        },
    ];
    let shared = [
        "settle without the holder",
        "renew without the holder",
        "claim of a held row",
    ];
    let faults = FAULTS.into_iter().chain(CLAIM_FAULTS);
    let faults: Vec<Fault> = faults
        .filter(|fault| shared.contains(&fault.name))
        .chain(own)
        .collect();
    assert_eq!(faults.len(), 5);
    let table = LeaseTable::sync_jobs();
    for fault in faults {
        for bench in benches(&[0, 7, 0]).await.into_iter().take(2) {
            let rows = bench.planted(&table, &[fault.planted(&bench)]).await;
            let noticed = turns_at_crashing(&bench, &*rows).await;
            assert!(noticed.is_err(), "{} on {}", fault.name, bench.name());
        }
    }
}
