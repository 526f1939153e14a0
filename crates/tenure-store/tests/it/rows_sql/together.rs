//! Several workers and a reaper on one table. Goal: in any interleaving, each row is accepted as
//! done once, a holder that was replaced is refused, nothing is lost and there is no deadlock. Time
//! is a number that the reaper advances by more than a term, so leases lapse while workers still
//! work.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::store::{Claim, Reap, Renew, Rest, Settle};
use tenure_core::testing::{Extent, token};
use tenure_core::{Guarded, Held, ItemId, LapsePolicy, LeaseTable, Outcome, Term, Timestamp};
use tokio::sync::Notify;

use super::{Bench, Checks, NOW, Rows, kinds, seconds};

const ROWS: usize = 100;
const WORKERS: u64 = 5;

/// State shared by the workers.
struct Hall {
    rows: Box<dyn Rows>,
    now: AtomicI64,
    /// Wakes the reaper.
    call: Notify,
    /// Rows accepted as done.
    done: Mutex<BTreeSet<ItemId>>,
}

impl Hall {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::SeqCst))
    }

    fn is_over(&self) -> bool {
        self.done.lock().unwrap().len() == ROWS
    }

    async fn work(&self, worker: u64) {
        for round in 0.. {
            if round % 5 == worker || self.is_over() {
                self.call.notify_one();
            }
            if self.is_over() {
                return;
            }
            let mine = token(&format!("worker-{worker}"), round);
            let mut claim = Claim::new(mine, 20).recovery(None).at(self.now());
            if round % 2 == 1 {
                claim = claim.alone();
            }
            match self.rows.claim(&claim).await.unwrap() {
                Some(held) => self.settle(&held, round).await,
                None => self.call.notify_one(),
            }
        }
    }

    /// Settles a part of the held rows while their lease is renewed, then repeats the settle.
    async fn settle(&self, held: &Held, round: u64) {
        let (token, now) = (held.lease.token.clone(), self.now());
        let mut settle = Settle::new(token.clone()).at(now);
        for id in held.ids() {
            let outcome = match (id.number() + i64::try_from(round).unwrap()) % 4 {
                0 | 1 => Outcome::Done,
                2 => Outcome::Retry {
                    after: Duration::ZERO,
                    error: "again".into(),
                },
                _ => continue,
            };
            settle = settle.item(id, outcome);
        }
        let renew = Renew::new(vec![token.clone()], Term::STANDARD).at(now);
        let (settled, renewed) = tokio::join!(self.rows.settle(&settle), self.rows.renew(&renew));
        let (settled, renewed) = (settled.unwrap(), renewed.unwrap());
        // The renewal has no answer if one of the rows is being settled at that moment.
        assert!(renewed.len() <= 1, "one answer per token at most");
        let again = self.rows.settle(&settle).await.unwrap();
        let said = settle.items.iter().zip(&settled.items).zip(&again.items);
        for (((id, outcome), (_, first)), (_, second)) in said {
            if *outcome == Outcome::Done {
                // The reason of a refusal may change between the two settles, but not the refusal
                // itself.
                let answers = (first.is_accepted(), second.is_accepted());
                assert_eq!(
                    answers.0, answers.1,
                    "item {id}: a repeat has another answer"
                );
                if *first == Guarded::Accepted(()) {
                    let is_first = self.done.lock().unwrap().insert(*id);
                    assert!(is_first, "item {id} was accepted as done twice");
                }
            }
        }
        if round.is_multiple_of(3) {
            let release = Settle::new(token).rest(Rest::Release).at(now);
            assert!(self.rows.settle(&release).await.unwrap().items.is_empty());
        }
    }

    /// Advances the time, so that all leases lapse, and reaps.
    async fn reap(&self) {
        let policy = LapsePolicy::new(1_000_000, vec![Duration::ZERO]).unwrap();
        while !self.is_over() {
            self.call.notified().await;
            let step = i64::try_from(seconds(31).as_micros()).unwrap();
            let now = self.now.fetch_add(step, Ordering::SeqCst) + step;
            let reap = Reap::new(30, policy.clone()).at(Timestamp::from_micros(now));
            for reaped in self.rows.reap(&reap).await.unwrap() {
                assert!(reaped.stale > Duration::ZERO, "a live lease was ended");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_workers_and_a_reaper_end_each_row_once() {
    for table in Extent::chosen().of(&kinds(), 2) {
        end_each_row_once(&table).await;
    }
}

async fn end_each_row_once(table: &LeaseTable) {
    for bench in Bench::both(table, Checks::Kept).await {
        let values = vec!["('order.paid', '1')"; ROWS].join(", ");
        bench
            .execute(&format!(
                "insert into {} (topic, payload) values {values}",
                table.name.quoted()
            ))
            .await;
        let hall = Arc::new(Hall {
            rows: bench.rows(table).await,
            now: AtomicI64::new(NOW.as_micros()),
            call: Notify::new(),
            done: Mutex::default(),
        });
        let mut crew = tokio::task::JoinSet::new();
        for worker in 0..WORKERS {
            let hall = Arc::clone(&hall);
            crew.spawn(async move { hall.work(worker).await });
        }
        let reaper = Arc::clone(&hall);
        crew.spawn(async move { reaper.reap().await });
        while let Some(ended) = crew.join_next().await {
            ended.unwrap();
        }
        let counts = hall.rows.count(Some(hall.now())).await.unwrap();
        assert_eq!(
            counts.done,
            u64::try_from(ROWS).unwrap(),
            "{}",
            bench.name()
        );
    }
}
