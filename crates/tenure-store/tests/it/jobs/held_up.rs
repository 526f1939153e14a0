//! Locked rows: a transaction that locks a row delays only the holder of that row.

use std::future::Future;
use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tenure_core::store::{Renew, RenewChunks, Renewed};
use tenure_core::testing::token;
use tenure_core::{Guarded, Refusal, Term};
use tokio::time::timeout;

use super::{NOW, Place, asks, claim_job, held_job, hold, key, seconds, take, term};

/// Returns each lease and its refusal, if any; asserts that the answers come at once.
async fn answers<Hold>(
    asked: impl Future<Output = Vec<(Hold, Guarded<Renewed>)>>,
) -> Vec<(Hold, Option<Refusal>)> {
    let answers = timeout(Duration::from_secs(20), asked).await;
    let answers = answers.expect("a renewal does not wait");
    let refusal = |answer: Guarded<Renewed>| match answer {
        Guarded::Accepted(_) => None,
        Guarded::Refused(why) => Some(why),
    };
    let answers = answers.into_iter();
    answers
        .map(|(hold, answer)| (hold, refusal(answer)))
        .collect()
}

/// Goal: a transaction that locks one job or one chunk prevents no other renewal. Method: an open
/// transaction locks one of two jobs and one of two chunks. The others are renewed at once; for the
/// locked ones there is no answer. Lapsed and unknown leases are answered as usual.
#[tokio::test]
async fn a_locked_row_does_not_prevent_other_renewals() {
    let place = Place::postgres().await;
    let Place::Postgres { database, .. } = &place else {
        panic!("it is PostgreSQL");
    };
    let book = place.jobs();
    let [locked, free, gone] = [1, 2, 3].map(|no| token("jobs", no));
    let first = held_job(book, "m", &locked, NOW).await;
    held_job(book, "m", &free, NOW).await;
    for (no, chunk) in (1..).zip(["locked", "free"]) {
        take(book, &asks(&key("m", chunk), &token("chunks", no), NOW)).await;
    }
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    for row in [
        format!(
            "select 1 from tenure_jobs where id = {} for update",
            first.id
        ),
        "select 1 from tenure_checkpoints where chunk_hash = 'locked' for update".to_owned(),
    ] {
        let lock = sqlx::query(sqlx::AssertSqlSafe(row));
        lock.execute(&mut *tx).await.unwrap();
    }

    let five_minutes = Term::new(Duration::from_mins(5)).unwrap();
    let soon = NOW.after(seconds(60));
    let jobs = Renew::new(
        vec![gone.clone(), locked.clone(), free.clone()],
        five_minutes,
    );
    let ask = |renew: Renew| async move { book.job_leases().renew(&renew).await.unwrap() };
    let lost = (gone, Some(Refusal::Lost));
    assert_eq!(
        answers(ask(jobs.clone().at(soon))).await,
        [lost.clone(), (free.clone(), None)]
    );
    let chunk = |(no, name): (u64, &str)| hold(&key("m", name), &token("chunks", no));
    let chunks = [(1, "locked"), (2, "free")].map(chunk);
    let renew = RenewChunks::new(chunks.to_vec(), term()).at(soon);
    let renewed = async { book.renew_chunks(&renew).await.unwrap() };
    assert_eq!(answers(renewed).await, [(chunks[1].clone(), None)]);

    // Five minutes later, the lease that was not renewed has lapsed; the other one is live.
    let late = NOW.after(Duration::from_mins(5));
    let lapsed = (locked.clone(), Some(Refusal::Lapsed));
    assert_eq!(
        answers(ask(jobs.clone().at(late))).await,
        [lost.clone(), lapsed, (free.clone(), None)]
    );
    tx.rollback().await.unwrap();
    assert_eq!(
        answers(ask(jobs.at(soon))).await,
        [lost, (locked, None), (free, None)]
    );
    assert!(claim_job(book, &token("jobs", 9), soon).await.is_none());
}
