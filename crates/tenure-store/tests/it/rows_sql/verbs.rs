//! The operations of the row layout on both databases and in each preset, where they differ from
//! the queue layout: the order of a table, complete rows, the operator's view, and a table
//! without some of the columns.

use serde_json::json;
use tenure_core::store::{Bury, Claim, Filter, Reap, Replay, Rest, Settle, StoreErrorKind};
use tenure_core::testing::token;
use tenure_core::{
    Content, Guarded, ItemId, LapsePolicy, LeaseTable, Outcome, Refusal, State, Term, Token, reason,
};
use tenure_store::postgres::PostgresRows;

use super::{Bench, Checks, NOW, Rows, identifier, ids, policy, presets, seconds, shows};

/// Inserts rows as an application does, one per topic; the first is the oldest.
async fn insert(bench: &Bench, table: &LeaseTable, topics: &[&str]) {
    for (index, topic) in topics.iter().enumerate() {
        let age = seconds(60 - u64::try_from(index).unwrap());
        bench
            .execute(&format!(
                "insert into {} (topic, payload, {}) values ('{topic}', '{{\"of\": [1]}}', {})",
                table.name.quoted(),
                table.created_at.quoted(),
                bench.moment(Some(NOW.before(age))),
            ))
            .await;
    }
}

fn claim(token: Token, limit: u32) -> Claim {
    Claim::new(token, limit).recovery(None).at(NOW)
}

fn column(content: &Content, name: &str) -> serde_json::Value {
    let Content::Row(row) = content else {
        panic!("a lease table's item is a row");
    };
    let row: serde_json::Value = serde_json::from_str(row).unwrap();
    row.get(name).cloned().unwrap_or_default()
}

async fn state(rows: &dyn Rows, id: i64) -> State {
    rows.find(&[ItemId::new(id)]).await.unwrap()[0].state
}

/// Proves: S1-001, S1-002, S1-003, S1-004, S1-005, S1-007
#[tokio::test]
async fn a_claim_takes_the_oldest_up_to_its_limit_and_returns_whole_rows() {
    for (preset, table) in presets() {
        for bench in Bench::both(&table, Checks::Kept).await {
            let place = format!("{preset} on {}", bench.name());
            insert(&bench, &table, &["a", "b", "c"]).await;
            let rows = bench.rows(&table).await;
            let ask = claim(token("mailer", 1), 2);
            let held = rows.claim(&ask).await.unwrap().unwrap();
            assert_eq!(held.ids(), ids(&[1, 2]), "{place}");
            assert_eq!(
                held.lease.until,
                NOW.after(Term::STANDARD.length()),
                "{place}"
            );
            let content = &held.items[0].content;
            assert_eq!(column(content, "topic"), "a", "{place}");
            assert_eq!(column(content, "payload")["of"][0], 1, "{place}");
            if let Some(status) = table.states.status() {
                let word = table.states.word(State::Claimed).unwrap();
                assert_eq!(column(content, status.column.as_str()), word, "{place}");
            }
            let again = rows.claim(&ask).await.unwrap_err();
            assert_eq!(again.kind(), StoreErrorKind::Conflict, "{place}");
            let next = claim(token("mailer", 2), 2);
            let rest = rows.claim(&next).await.unwrap().unwrap();
            assert_eq!(rest.ids(), ids(&[3]), "{place}");
            assert!(rest.lease.fence > held.lease.fence, "{place}");
            let none = claim(token("mailer", 3), 2);
            assert_eq!(rows.claim(&none).await.unwrap(), None, "{place}");
        }
    }
}

/// A user's trigger that undoes every update of the second row.
const KEEPS: &str = "create trigger keeps before update on outbox when new.id = 2
     begin select raise(ignore); end";
const KEEPS_IN_POSTGRES: &str = "create function keeps() returns trigger language plpgsql as
     'begin return null; end';
     create trigger keeps before update on outbox for each row when (new.id = 2)
     execute function keeps()";

#[tokio::test]
async fn a_row_whose_trigger_undoes_the_claim_is_not_held() {
    let table = LeaseTable::outbox();
    for bench in Bench::both(&table, Checks::Kept).await {
        insert(&bench, &table, &["a", "b", "c"]).await;
        let keeps = match bench {
            Bench::Postgres { .. } => KEEPS_IN_POSTGRES,
            Bench::Sqlite { .. } => KEEPS,
        };
        bench.execute(keeps).await;
        let rows = bench.rows(&table).await;
        let ask = claim(token("mailer", 1), 9);
        let held = rows.claim(&ask).await.unwrap().unwrap();
        assert_eq!(held.ids(), ids(&[1, 3]), "{}", bench.name());
        let ask = claim(token("mailer", 2), 9);
        assert_eq!(rows.claim(&ask).await.unwrap(), None, "{}", bench.name());
    }
}

/// A user's trigger for SQLite that fills a list and marks the row.
const MARKS: &str = "create table seen (id integer primary key);
     create trigger marks after update on outbox begin
         insert or ignore into seen values (new.id);
         update outbox set topic = 'marked' where id = new.id;
     end";

#[tokio::test]
async fn triggers_keep_their_conflict_clauses_and_a_claim_returns_what_they_wrote() {
    let table = LeaseTable::outbox();
    for bench in Bench::both(&table, Checks::Kept).await {
        if matches!(bench, Bench::Postgres { .. }) {
            continue; // It has no conflict clause that overrides those of triggers.
        }
        insert(&bench, &table, &["a", "b"]).await;
        bench.execute(MARKS).await;
        let rows = bench.rows(&table).await;
        let mine = token("mailer", 1);
        let held = rows.claim(&claim(mine.clone(), 9)).await.unwrap().unwrap();
        assert_eq!(held.ids(), ids(&[1, 2]));
        for item in &held.items {
            assert_eq!(column(&item.content, "topic"), "marked");
        }
        let settle = Settle::new(mine).done(ids(&[1, 2])).at(NOW);
        let settled = rows.settle(&settle).await.unwrap();
        let is_kept = settled.items.iter().all(|item| item.1.is_accepted());
        assert!(is_kept, "{settled:?}");
    }
}

/// A table may change while workers use it. In PostgreSQL a claim uses the columns that the table
/// had when the store opened it, until one of them is dropped.
#[tokio::test]
async fn the_next_claim_sees_changes_of_the_table() {
    let table = LeaseTable::outbox();
    for bench in Bench::both(&table, Checks::Kept).await {
        if matches!(bench, Bench::Postgres { .. }) {
            continue;
        }
        insert(&bench, &table, &["a", "b", "c"]).await;
        let rows = bench.rows(&table).await;
        let next = async |nth: u64| {
            let held = rows.claim(&claim(token("mailer", nth), 1)).await.unwrap();
            held.unwrap().items.remove(0).content
        };
        assert_eq!(column(&next(1).await, "topic"), "a");
        bench
            .execute(
                r#"alter table outbox add column "we""ird, t.*" text default 'x';
                   alter table outbox add column more json default '[1]';
                   alter table outbox add column "shout" text as (upper(topic))"#,
            )
            .await;
        let second = next(2).await;
        let told = ["topic", r#"we"ird, t.*"#, "more", "shout"].map(|name| column(&second, name));
        assert_eq!(told, [json!("b"), json!("x"), json!([1]), json!("B")]);
        bench.execute(MARKS).await;
        assert_eq!(column(&next(3).await, "topic"), "marked");
    }
}

#[tokio::test]
async fn the_order_of_the_table_comes_before_age() {
    let table = LeaseTable::outbox();
    for bench in Bench::both(&table, Checks::Kept).await {
        insert(&bench, &table, &["a", "b", "c"]).await;
        bench
            .execute("update outbox set priority = 5 where id = 3")
            .await;
        bench
            .execute("update outbox set priority = 9 where id = 2")
            .await;
        let rows = bench.rows(&table).await;
        let held = rows
            .claim(&claim(token("mailer", 1), 9))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(held.ids(), ids(&[2, 3, 1]), "{}", bench.name());
    }
}

#[tokio::test]
async fn a_row_that_is_not_due_is_not_claimed() {
    let table = LeaseTable::outbox();
    for bench in Bench::both(&table, Checks::Kept).await {
        insert(&bench, &table, &["a", "b"]).await;
        let later = bench.moment(Some(NOW.after(seconds(1))));
        bench
            .execute(&format!(
                "update outbox set available_at = {later} where id = 1"
            ))
            .await;
        let rows = bench.rows(&table).await;
        let held = rows
            .claim(&claim(token("mailer", 1), 9))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(held.ids(), ids(&[2]), "{}", bench.name());
        let then = claim(token("mailer", 2), 9).at(NOW.after(seconds(1)));
        let held = rows.claim(&then).await.unwrap().unwrap();
        assert_eq!(held.ids(), ids(&[1]), "{}", bench.name());
    }
}

#[tokio::test]
async fn a_repeated_settle_is_accepted_and_rest_applies_to_the_other_rows() {
    for (preset, table) in presets() {
        for bench in Bench::both(&table, Checks::Kept).await {
            let place = format!("{preset} on {}", bench.name());
            insert(&bench, &table, &["a", "b", "c", "d"]).await;
            let rows = bench.rows(&table).await;
            let mine = token("mailer", 1);
            rows.claim(&claim(mine.clone(), 9)).await.unwrap().unwrap();
            let retry = Outcome::Retry {
                after: seconds(5),
                error: "no\0 answer".into(),
            };
            let settle = Settle::new(mine.clone())
                .done(ids(&[1]))
                .item(ItemId::new(2), retry)
                .at(NOW);
            for _ in 0..2 {
                let answer = rows.settle(&settle).await.unwrap();
                assert_eq!(answer.refused().count(), 0, "{place}");
                assert_eq!(state(&*rows, 3).await, State::Claimed, "{place}");
            }
            let found = &rows.find(&ids(&[2])).await.unwrap()[0];
            assert_eq!(found.counters.failures, 1, "{place}: counted once");
            assert_eq!(
                found.last_error.as_deref(),
                Some("no\u{fffd} answer"),
                "{place}"
            );
            let other_word = Settle::new(mine.clone()).done(ids(&[2])).at(NOW);
            let answer = rows.settle(&other_word).await.unwrap();
            assert_eq!(
                answer.items[0].1,
                Guarded::Refused(Refusal::NotClaimed),
                "{place}"
            );
            let late = NOW.after(Term::STANDARD.length());
            let release = Settle::new(mine)
                .done(ids(&[3]))
                .rest(Rest::Release)
                .at(late);
            let answer = rows.settle(&release).await.unwrap();
            assert_eq!((answer.rest, answer.late), (1, true), "{place}");
            assert_eq!(state(&*rows, 3).await, State::Done, "{place}");
            assert_eq!(state(&*rows, 4).await, State::Pending, "{place}");
        }
    }
}

/// Proves: S1-025, S1-027, S1-029
#[tokio::test]
async fn a_lapsed_row_is_delayed_then_claimed_alone_then_dead() {
    for (preset, table) in presets() {
        for bench in Bench::both(&table, Checks::Kept).await {
            let place = format!("{preset} on {}", bench.name());
            insert(&bench, &table, &["a"]).await;
            let rows = bench.rows(&table).await;
            let mut now = NOW;
            for lapse in 1..=4_u32 {
                let mut ask = claim(token("mailer", lapse.into()), 9).at(now);
                if lapse > 2 {
                    let together = claim(token("mailer", 90 + u64::from(lapse)), 9).at(now);
                    assert_eq!(rows.claim(&together).await.unwrap(), None, "{place}");
                    ask = ask.alone();
                }
                rows.claim(&ask).await.unwrap().unwrap();
                now = now.after(seconds(31));
                let reaped = rows.reap(&Reap::new(9, policy()).at(now)).await.unwrap();
                assert_eq!(reaped.len(), 1, "{place}");
                assert_eq!(reaped[0].stale, seconds(1), "{place}");
                assert_eq!(reaped[0].holder, ask.token.holder(), "{place}");
                let delay = policy().fate(lapse);
                let due = delay.map(|delay| now.after(delay));
                assert_eq!(reaped[0].available_at, due, "{place}");
                now = due.unwrap_or(now);
            }
            let dead = &rows.find(&ids(&[1])).await.unwrap()[0];
            assert_eq!(dead.state, State::Dead, "{place}");
            assert_eq!(dead.counters.crashes, 4, "{place}");
            let why = format!("{}: {}", reason::CRASH_LOOP, LapsePolicy::ERROR);
            assert_eq!(dead.last_error.as_deref(), Some(why.as_str()), "{place}");
        }
    }
}

#[tokio::test]
async fn a_claim_that_finds_nothing_recovers_lapsed_rows() {
    let table = LeaseTable::outbox();
    let at_once = LapsePolicy::new(3, vec![std::time::Duration::ZERO]).unwrap();
    for bench in Bench::both(&table, Checks::Kept).await {
        insert(&bench, &table, &["a"]).await;
        let rows = bench.rows(&table).await;
        rows.claim(&claim(token("mailer", 1), 9))
            .await
            .unwrap()
            .unwrap();
        let end = NOW.after(Term::STANDARD.length());
        let ask = claim(token("other", 1), 9)
            .at(end)
            .recovery(Some(at_once.clone()));
        let held = rows.claim(&ask).await.unwrap().unwrap();
        assert_eq!(held.ids(), ids(&[1]), "{}", bench.name());
        assert_eq!(held.items[0].counters.crashes, 1, "{}", bench.name());
    }
}

#[tokio::test]
async fn an_operator_sees_the_holder_of_a_row_but_not_its_token() {
    for (preset, table) in presets() {
        for bench in Bench::both(&table, Checks::Kept).await {
            let place = format!("{preset} on {}", bench.name());
            insert(&bench, &table, &["a"]).await;
            let rows = bench.rows(&table).await;
            let mine = token("mailer", 1);
            let held = rows.claim(&claim(mine.clone(), 2)).await.unwrap().unwrap();
            let found = &rows.find(&ids(&[1])).await.unwrap()[0];
            let hold = found.hold.as_ref().unwrap();
            assert_eq!(
                (hold.fence, hold.until),
                (held.lease.fence, held.lease.until),
                "{place}"
            );
            assert_eq!(hold.holder, mine.holder(), "{place}");
            let Content::Row(row) = &found.content else {
                panic!("a lease table's item is a row");
            };
            assert!(!row.contains(mine.expose()), "{place}: {row}");
            let done = Settle::new(mine.clone()).done(ids(&[1])).at(NOW);
            assert!(
                rows.settle(&done).await.unwrap().items[0].1.is_accepted(),
                "{place}"
            );
            let found = &rows.find(&ids(&[1])).await.unwrap()[0];
            let Content::Row(row) = &found.content else {
                panic!("a lease table's item is a row");
            };
            assert!(!row.contains(mine.expose()), "{place}: {row}");
        }
    }
}

#[tokio::test]
async fn a_replay_opens_a_new_generation_of_settled_rows_only() {
    for (preset, table) in presets() {
        for bench in Bench::both(&table, Checks::Kept).await {
            let place = format!("{preset} on {}", bench.name());
            insert(&bench, &table, &["a", "b"]).await;
            let rows = bench.rows(&table).await;
            let mine = token("mailer", 1);
            rows.claim(&claim(mine.clone(), 2)).await.unwrap().unwrap();
            let done = Settle::new(mine.clone()).done(ids(&[1])).at(NOW);
            assert!(
                rows.settle(&done).await.unwrap().items[0].1.is_accepted(),
                "{place}"
            );
            let replay = Replay {
                ids: ids(&[1, 2, 99, 1]),
                now: Some(NOW),
            };
            let answers = rows.replay(&replay).await.unwrap();
            let answers: Vec<Guarded> = answers.into_iter().map(|(_, answer)| answer).collect();
            let expected = [
                Guarded::Accepted(()),
                Guarded::Refused(Refusal::NotSettled),
                Guarded::Refused(Refusal::NotFound),
                Guarded::Refused(Refusal::NotSettled),
            ];
            assert_eq!(answers, expected, "{place}");
            // The settle with the old token is accepted as a repeat, but changes nothing.
            let again = rows.settle(&done).await.unwrap();
            assert!(again.items[0].1.is_accepted(), "{place}");
            let found = &rows.find(&ids(&[1])).await.unwrap()[0];
            assert_eq!(
                (found.state, found.counters.generation),
                (State::Pending, 1),
                "{place}"
            );
        }
    }
}

/// Other programs may leave a holder and an end of term on settled rows. A replay clears both;
/// otherwise the row would count as held.
#[tokio::test]
async fn a_replay_clears_a_holder_that_another_program_left() {
    for (preset, table) in presets() {
        for bench in Bench::both(&table, Checks::Dropped).await {
            let place = format!("{preset} on {}", bench.name());
            insert(&bench, &table, &["a", "b"]).await;
            for (id, state) in [(1, State::Done), (2, State::Dead)] {
                let later = bench.moment(Some(NOW.after(seconds(60))));
                let told = shows(&table, state, bench.moment(Some(NOW)));
                let told = told
                    .iter()
                    .map(|(column, value)| format!("{column} = {value}"));
                let settle = format!(
                    "update {} set {}, {} = 'hand', {} = {later} where id = {id}",
                    table.name,
                    told.collect::<Vec<_>>().join(", "),
                    table.columns.holder,
                    table.columns.until,
                );
                assert_eq!(bench.change(&settle).await, 1, "{place}");
            }
            let rows = bench.rows(&table).await;
            let replay = Replay {
                ids: ids(&[1, 2]),
                now: Some(NOW),
            };
            let answers = rows.replay(&replay).await.unwrap();
            assert!(
                answers.iter().all(|(_, answer)| answer.is_accepted()),
                "{place}"
            );
            let held = rows.claim(&claim(token("mailer", 1), 9)).await.unwrap();
            assert_eq!(held.unwrap().ids(), ids(&[1, 2]), "{place}");
        }
    }
}

#[tokio::test]
async fn a_bury_ends_pending_and_held_rows() {
    for (preset, table) in presets() {
        for bench in Bench::both(&table, Checks::Kept).await {
            let place = format!("{preset} on {}", bench.name());
            insert(&bench, &table, &["a", "b"]).await;
            let rows = bench.rows(&table).await;
            let mine = token("mailer", 1);
            let held = rows.claim(&claim(mine.clone(), 1)).await.unwrap().unwrap();
            for (id, expected) in [
                (1, Guarded::Accepted(())),
                (2, Guarded::Accepted(())),
                (2, Guarded::Refused(Refusal::AlreadySettled)),
                (99, Guarded::Refused(Refusal::NotFound)),
            ] {
                let bury = Bury {
                    id: ItemId::new(id),
                    token: token("operator", u64::try_from(id).unwrap()),
                    reason: "poison".into(),
                    now: Some(NOW),
                };
                assert_eq!(rows.bury(&bury).await.unwrap(), expected, "{place}: {id}");
            }
            for buried in rows.find(&ids(&[1, 2])).await.unwrap() {
                assert_eq!(buried.last_error.as_deref(), Some("poison"), "{place}");
                let counters = (buried.counters.attempts, buried.counters.failures);
                assert_eq!(counters, (1, 0), "{place}");
            }
            // The bury claimed the pending row for the operator, with its own fence.
            let fence = table.columns.fence.as_str();
            let kept = bench.table(&table).await;
            assert_eq!(kept[&1][fence], held.lease.fence.to_string(), "{place}");
            assert_eq!(
                kept[&2][fence],
                (held.lease.fence.number() + 1).to_string(),
                "{place}"
            );
            let lost = Settle::new(mine).done(ids(&[1])).at(NOW);
            let answer = rows.settle(&lost).await.unwrap().items[0].1;
            assert_eq!(answer, Guarded::Refused(Refusal::AlreadySettled), "{place}");
        }
    }
}

#[tokio::test]
async fn a_list_goes_page_by_page_and_counts_agree() {
    let table = LeaseTable::outbox();
    for bench in Bench::both(&table, Checks::Kept).await {
        insert(&bench, &table, &["a", "b", "c", "d", "e"]).await;
        let rows = bench.rows(&table).await;
        let mine = token("mailer", 1);
        rows.claim(&claim(mine.clone(), 2)).await.unwrap().unwrap();
        let settle = Settle::new(mine).done(ids(&[1])).at(NOW);
        assert_eq!(rows.settle(&settle).await.unwrap().refused().count(), 0);
        let mut filter = Filter {
            state: Some(State::Pending),
            ..Filter::default()
        };
        let mut seen = Vec::new();
        loop {
            let page = rows.list(&filter, 2).await.unwrap();
            seen.extend(page.records.iter().map(|record| record.id));
            match page.next {
                None => break,
                next => filter.before = next,
            }
        }
        assert_eq!(seen, ids(&[5, 4, 3]), "{}", bench.name());
        let counts = rows.count(Some(NOW.after(seconds(60)))).await.unwrap();
        assert_eq!((counts.pending(), counts.claimed, counts.lapsed), (3, 1, 1));
        assert_eq!((counts.done, counts.dead), (1, 0));
        assert_eq!(counts.queues[0].1.oldest_due, Some(seconds(60 + 58)));
        assert!(rows.timeline(ItemId::new(1)).await.unwrap().is_empty());
    }
}

/// Goal: the counts of an empty table are zero, even without a status column.
#[tokio::test]
async fn an_empty_table_counts_nothing() {
    for table in [LeaseTable::outbox(), LeaseTable::sync_jobs()] {
        for bench in Bench::both(&table, Checks::Kept).await {
            let counts = bench.rows(&table).await.count(Some(NOW)).await.unwrap();
            let (name, place) = (&table.name, bench.name());
            assert_eq!(counts.pending(), 0, "{name} on {place}");
            assert_eq!(
                (counts.claimed, counts.done, counts.dead),
                (0, 0, 0),
                "{name}"
            );
        }
    }
}

#[tokio::test]
async fn the_error_for_a_table_names_all_missing_columns() {
    let table = LeaseTable::outbox();
    let bench = Bench::postgres(&table, Checks::Kept).await;
    let Bench::Postgres { pool, .. } = &bench else {
        panic!("the bench is PostgreSQL's");
    };
    bench
        .execute("alter table outbox drop column fence, drop column crashes cascade")
        .await;
    let error = PostgresRows::open(pool.clone(), table.clone(), None)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert!(
        error
            .to_string()
            .contains("lacks the columns crashes, fence"),
        "{error}"
    );
    assert!(error.hint().is_some());
    let missing = table.named(identifier("nowhere"));
    let error = PostgresRows::open(pool.clone(), missing, None)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("there is no table nowhere"),
        "{error}"
    );
}

#[test]
fn a_description_that_gives_two_facts_one_column_is_refused() {
    let mut table = LeaseTable::outbox();
    table.columns.failures = table.columns.attempts.clone();
    let error = PostgresRows::statements(&table).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert!(error.to_string().contains("attempts"), "{error}");
}
