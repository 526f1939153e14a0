//! An interrupted adoption continues where it stopped.

use tenure_core::store::{Rest, Settle, WhileHeld};
use tenure_core::{LeaseTable, Plan};

use super::{Place, mine};

const ROWS: i64 = 2_500;

async fn table(place: &Place) -> LeaseTable {
    let make = "create table sync_jobs (
                    id text primary key, priority integer not null default 0,
                    created_at MOMENT not null default NOW
                )";
    place.execute(make).await;
    let rows = match place {
        Place::Postgres { .. } => format!("select 'k' || n from generate_series(1, {ROWS}) n"),
        Place::Sqlite { .. } => format!(
            "with recursive n (n) as (select 1 union all select n + 1 from n where n < {ROWS})
             select 'k' || n from n"
        ),
    };
    place
        .execute(&format!("insert into sync_jobs (id) {rows}"))
        .await;
    LeaseTable::sync_jobs()
}

/// The SQL of a plan, split into its transactions.
fn steps(place: &Place, plan: &Plan) -> Vec<String> {
    let text = place.tables().adoption_sql(plan).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("--"))
        .collect();
    let text = lines.join("\n");
    match place {
        Place::Sqlite { .. } => {
            let steps = text.split_inclusive("commit;\n");
            steps.map(str::to_owned).collect()
        }
        Place::Postgres { .. } => {
            let (begin, rest) = text.split_once("commit;\n").unwrap();
            let rest = rest.split(";\n").filter(|text| !text.trim().is_empty());
            let begin = [format!("{begin}commit;")];
            begin.into_iter().chain(rest.map(str::to_owned)).collect()
        }
    }
}

/// Interrupts an adoption after each step in turn, and continues it.
#[tokio::test]
async fn an_interrupted_adoption_continues_where_it_stopped() {
    for place in Place::both().await {
        let told = place.name();
        let table = table(&place).await;
        let before = place.catalogue().await;
        let count = steps(&place, &place.plan(&table).await.unwrap()).len();
        assert!(count > 5, "{told}: {count} steps");
        for stop in 1..count {
            let plan = place.plan(&table).await.unwrap();
            for step in steps(&place, &plan).iter().take(stop) {
                place.execute(step).await;
            }
            let half = place.recorded(&table.name).await.unwrap();
            assert!(!half.is_finished, "{told} after {stop}");
            let adopted = place.adopt(&table).await;
            let numbered = "select count(distinct tenure_id) from sync_jobs";
            assert_eq!(place.number(numbered).await, ROWS, "{told} after {stop}");
            let held = place.claim(&adopted, &mine(1), 10).await.unwrap();
            assert_eq!(held.items.len(), 10, "{told} after {stop}");
            let release = Settle::new(mine(1)).rest(Rest::Release);
            assert_eq!(place.settle(&adopted, &release).await.rest, 10);
            let recorded = place.recorded(&table.name).await.unwrap();
            let undone = place.tables().undo(&recorded, WhileHeld::Refuse).await;
            assert_eq!(undone.unwrap(), 0, "{told} after {stop}");
            assert_eq!(place.catalogue().await, before, "{told} after {stop}");
        }
    }
}

#[tokio::test]
async fn a_half_finished_adoption_can_be_undone() {
    for place in Place::both().await {
        let told = place.name();
        let table = table(&place).await;
        let before = place.catalogue().await;
        let plan = place.plan(&table).await.unwrap();
        place.execute(&steps(&place, &plan)[0]).await;
        assert_ne!(place.catalogue().await, before, "{told}");
        let half = place.recorded(&table.name).await.unwrap();
        let undone = place.tables().undo(&half, WhileHeld::Refuse).await;
        assert_eq!(undone.unwrap(), 0, "{told}");
        assert_eq!(place.catalogue().await, before, "{told}");
    }
}

/// PostgreSQL leaves an invalid index behind if its creation failed; the next attempt drops it
/// first.
#[tokio::test]
async fn an_invalid_index_is_created_again() {
    let place = Place::postgres().await;
    let table = table(&place).await;
    let adopted = place.adopt(&table).await;
    place
        .execute(
            "update pg_index set indisvalid = false
             where indexrelid = 'sync_jobs_claimable'::regclass",
        )
        .await;
    let plan = place.plan(&table).await.unwrap();
    assert!(!plan.is_done);
    let printed = place.tables().adoption_sql(&plan).unwrap();
    assert!(
        printed.contains("drop index concurrently if exists \"public\".\"sync_jobs_claimable\""),
        "{printed}"
    );
    assert_eq!(place.adopt(&table).await, adopted);
}
