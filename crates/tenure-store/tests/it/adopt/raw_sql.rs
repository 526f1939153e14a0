//! On an adopted table, the application's own statements can take a row that a worker holds. The
//! worker has then lost the row, and its settle is refused.

use tenure_core::store::{Renew, Settle};
use tenure_core::{Guarded, LeaseTable, Outcome, Refusal, Term};

use super::{Place, mine};

async fn jobs(place: &Place) -> LeaseTable {
    place
        .execute(
            "create table sync_jobs (
                 id KEY, priority integer not null default 0,
                 created_at MOMENT not null default NOW, completed_at MOMENT, failed_at MOMENT,
                 error_message text
             );
             ALTER TABLE sync_jobs ADD COLUMN locked_until MOMENT;
             ALTER TABLE sync_jobs ADD COLUMN locked_by TEXT;
             insert into sync_jobs (priority) values (0), (1)",
        )
        .await;
    place.adopt(&LeaseTable::sync_jobs()).await
}

/// Proves: S5-008, S5-030, S5-032
#[tokio::test]
async fn a_row_that_was_ended_by_hand_is_not_ended_again() {
    for place in Place::both().await {
        let table = jobs(&place).await;
        let told = place.name();
        let held = place.claim(&table, &mine(1), 2).await.unwrap();
        assert_eq!(held.items.len(), 2, "{told}");
        for end in [
            "UPDATE sync_jobs SET completed_at = NOW, locked_until = NULL, locked_by = NULL
             WHERE id = 1",
            "UPDATE sync_jobs SET failed_at = NOW, error_message = 'by hand',
                 locked_until = NULL, locked_by = NULL WHERE id = 2",
        ] {
            place.execute(end).await;
        }
        let dead = Outcome::Dead {
            reason: "rejected".into(),
            error: "410".into(),
        };
        let ids = held.ids();
        let settle = Settle::new(mine(1)).item(ids[0], dead).done([ids[1]]);
        for (_, answer) in place.settle(&table, &settle).await.items {
            assert_eq!(answer, Guarded::Refused(Refusal::AlreadySettled), "{told}");
        }
        let both = "select count(*) from sync_jobs
                    where completed_at is not null and failed_at is not null";
        assert_eq!(place.number(both).await, 0, "{told}: never both");
        let ended = "select count(*) from sync_jobs where completed_at is not null and id = 1
                     or failed_at is not null and error_message = 'by hand'";
        assert_eq!(place.number(ended).await, 2, "{told}");
    }
}

/// Proves: S5-021
#[tokio::test]
async fn a_row_that_was_taken_over_by_hand_is_lost_to_its_worker() {
    for place in Place::both().await {
        let table = jobs(&place).await;
        let told = place.name();
        let held = place.claim(&table, &mine(1), 1).await.unwrap();
        let later = match place {
            Place::Postgres { .. } => "NOW() + INTERVAL '5 minutes'",
            Place::Sqlite { .. } => "unixepoch() * 1000000 + 300000000",
        };
        let id = held.ids()[0].number();
        let by_hand = format!(
            "UPDATE sync_jobs SET locked_until = {later}, locked_by = 'hand' WHERE id = {id}"
        );
        match &place {
            // `Place::execute` would replace NOW.
            Place::Postgres { pool, .. } => {
                sqlx::query(sqlx::AssertSqlSafe(by_hand))
                    .execute(pool)
                    .await
                    .unwrap();
            }
            Place::Sqlite { .. } => place.execute(&by_hand).await,
        }
        let rows = place.tables().rows(table.clone()).await.unwrap();
        let renew = Renew::new(vec![mine(1)], Term::STANDARD);
        let renewed = rows.renew(&renew).await.unwrap().remove(0).1;
        assert_eq!(renewed, Guarded::Refused(Refusal::Lost), "{told}");
        let settle = Settle::new(mine(1)).done(held.ids());
        let answer = place.settle(&table, &settle).await.items[0].1;
        assert_eq!(answer, Guarded::Refused(Refusal::Lost), "{told}");
        let theirs = "select count(*) from sync_jobs where locked_by = 'hand'";
        assert_eq!(place.number(theirs).await, 1, "{told}");
    }
}
