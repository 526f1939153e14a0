//! If a constraint of the table prevents the settle of one row, the other rows are still settled.

use tenure_core::store::{Reap, Settle};
use tenure_core::{Guarded, ItemId, LapsePolicy, LeaseTable, Outcome, State};

use super::{Place, mine};

/// The adoption cannot judge this check without a row, so it accepts the table.
const MAKE: &str = "create table outbox (
    id KEY, created_at MOMENT not null default NOW, note text not null,
    status text not null default 'PENDING', check (status <> 'DEAD' or note <> 'stuck')
)";

async fn outbox(place: &Place) -> LeaseTable {
    place.execute(MAKE).await;
    let table = place.adopt(&LeaseTable::outbox()).await;
    let rows = "insert into outbox (note) values ('a'), ('stuck'), ('b')";
    place.execute(rows).await;
    table
}

#[tokio::test]
async fn a_row_that_cannot_be_settled_does_not_stop_the_others() {
    for place in Place::both().await {
        let told = place.name();
        let table = outbox(&place).await;
        let held = place.claim(&table, &mine(1), 3).await.unwrap();
        assert_eq!(held.items.len(), 3);
        let dead = |id: &ItemId| (*id, Outcome::dead("no use"));
        let mut settle = Settle::new(mine(1));
        settle.items = held.ids().iter().map(dead).collect();
        let settlement = place.settle(&table, &settle).await;
        let failed: Vec<ItemId> = settlement.failed.iter().map(|(id, _)| *id).collect();
        assert_eq!(failed, [ItemId::new(2)], "{told}: {settlement:?}");
        assert!(!settlement.failed[0].1.is_empty(), "{told}");
        let kept = settlement
            .items
            .iter()
            .map(|(_, answer)| *answer == Guarded::Accepted(()));
        assert_eq!(kept.collect::<Vec<_>>(), [true, false, true], "{told}");
        let dead = "select count(*) from outbox where status = 'DEAD'";
        assert_eq!(place.number(dead).await, 2, "{told}");
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_reaped_does_not_stop_the_others() {
    for place in Place::both().await {
        let told = place.name();
        let table = outbox(&place).await;
        place.claim(&table, &mine(1), 3).await.unwrap();
        let past = match place {
            Place::Postgres { .. } => "claimed_until - interval '1 hour'",
            Place::Sqlite { .. } => "claimed_until - 3600000000",
        };
        let past = past.replace("claimed_until", table.columns.until.as_str());
        let until = &table.columns.until;
        place
            .execute(&format!(
                "update outbox set {until} = {past}, crashes = 1000"
            ))
            .await;
        let rows = place.tables().rows(table.clone()).await.unwrap();
        let reap = Reap::new(10, LapsePolicy::default());
        let reaped = rows.reap(&reap).await.unwrap();
        let ids: Vec<ItemId> = reaped.iter().map(|row| row.id).collect();
        assert_eq!(ids, [ItemId::new(1), ItemId::new(3)], "{told}");
        assert!(reaped.iter().all(|row| row.state == State::Dead), "{told}");
        // If that row is the only one left, the error names it.
        let error = rows.reap(&reap).await.unwrap_err();
        assert_eq!(error.item(), Some(ItemId::new(2)), "{told}: {error}");
        // Workers still claim new rows.
        place
            .execute("insert into outbox (note) values ('c')")
            .await;
        let held = place.claim(&table, &mine(2), 5).await.unwrap();
        assert_eq!(held.items.len(), 1, "{told}");
        assert!(place.claim(&table, &mine(3), 5).await.is_none(), "{told}");
    }
}
