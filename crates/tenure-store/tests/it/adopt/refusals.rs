//! A table that cannot be leased is refused before any change, with the reason.

use tenure_core::LeaseTable;
use tenure_core::store::WhileHeld;

use super::{Place, identifier, mine};

/// Tables that cannot be leased, each with a part of its message.
const CASES: [(&str, &str); 6] = [
    ("select 1;", "there is no table outbox"),
    ("create view outbox as select 1 as id", "is a view"),
    (
        "create table outbox (id bigint not null, created_at MOMENT not null)",
        "the key id is not unique",
    ),
    (
        "create table outbox (id KEY, created_at MOMENT not null, status integer)",
        "column status, mapped to `status`, is integer; expected text",
    ),
    (
        "create table outbox (id KEY, created_at MOMENT not null, claimed_by text not null)",
        "column claimed_by, mapped to `holder`, is not null",
    ),
    (
        "create table outbox (id KEY, created_at MOMENT not null, tenure_id text, fence text)",
        "column fence, mapped to `fence`, is text; expected a bigint",
    ),
];

#[tokio::test]
async fn a_table_that_cannot_be_leased_is_refused_with_the_reason() {
    for (make, said) in CASES {
        for place in Place::both().await {
            place.execute(make).await;
            let before = place.catalogue().await;
            let obstacles = place.plan(&LeaseTable::outbox()).await.unwrap_err();
            let told = format!("{} {make}: {obstacles:#?}", place.name());
            assert_eq!(obstacles.len(), 1, "{told}");
            assert!(obstacles[0].what.to_lowercase().contains(said), "{told}");
            assert!(!obstacles[0].hint.is_empty(), "{told}");
            assert_eq!(place.catalogue().await, before);
        }
    }
}

/// On PostgreSQL: an enum as status, a timestamp without a zone, a UUID as token, a short holder, a
/// small counter, a small fence, a partitioned table. On SQLite: a table without row ids.
#[tokio::test]
async fn unsuitable_types_and_tables_are_refused() {
    let place = Place::postgres().await;
    place
        .execute(
            "create type word as enum ('PENDING', 'CLAIMED', 'PUBLISHED', 'DEAD');
             create table outbox (
                 id bigint primary key, status word, created_at timestamp not null,
                 lock_token uuid, claimed_by varchar(20), attempts smallint not null,
                 fence integer not null
             )",
        )
        .await;
    let obstacles = place.plan(&LeaseTable::outbox()).await.unwrap_err();
    let told: Vec<&str> = obstacles.iter().map(|told| told.what.as_str()).collect();
    for said in [
        "is word; expected text",
        "is timestamp without time zone; expected a timestamp with time zone",
        "is uuid; expected text",
        "is character varying(20); expected room for 128",
        "is smallint; expected an integer",
        "is integer; expected a bigint",
    ] {
        let times = told.iter().filter(|told| told.contains(said)).count();
        assert_eq!(times, 1, "{said}: {told:#?}");
    }
    assert_eq!(told.len(), 6, "{told:#?}");

    let place = Place::postgres().await;
    place
        .execute("create table outbox (id bigint, at date) partition by range (at)")
        .await;
    let obstacles = place.plan(&LeaseTable::outbox()).await.unwrap_err();
    assert!(obstacles[0].what.contains("is partitioned"));

    let place = Place::sqlite().await;
    place
        .execute("create table outbox (id text primary key) without rowid")
        .await;
    let obstacles = place.plan(&LeaseTable::outbox()).await.unwrap_err();
    assert!(obstacles[0].what.contains("without rowid"));
}

#[tokio::test]
async fn an_adoption_is_not_undone_while_a_row_is_held_unless_forced() {
    for place in Place::both().await {
        let told = place.name();
        place
            .execute("create table jobs (id KEY, created_at MOMENT not null default NOW)")
            .await;
        place.execute("insert into jobs (id) values (1)").await;
        let table = LeaseTable::sync_jobs().named(identifier("jobs"));
        let before = place.catalogue().await;
        let table = place.adopt(&table).await;
        place.claim(&table, &mine(1), 1).await.unwrap();
        let with = place.catalogue().await;
        let recorded = place.recorded(&table.name).await.unwrap();
        let undo = |held| place.tables().undo(&recorded, held);
        assert_eq!(undo(WhileHeld::Refuse).await.unwrap(), 1, "{told}");
        assert_eq!(place.catalogue().await, with, "{told}: nothing was changed");
        assert!(place.recorded(&table.name).await.is_some(), "{told}");
        assert_eq!(undo(WhileHeld::Force).await.unwrap(), 0, "{told}");
        assert_eq!(place.catalogue().await, before, "{told}");
        // A claim by another program's own statements does not prevent the undo.
        let table = place
            .adopt(&LeaseTable::sync_jobs().named(identifier("jobs")))
            .await;
        let by_hand = "update jobs set locked_by = 'hand', locked_until = NOW, lease_token = 'x'";
        place.execute(by_hand).await;
        let recorded = place.recorded(&table.name).await.unwrap();
        let undone = place.tables().undo(&recorded, WhileHeld::Refuse).await;
        assert_eq!(undone.unwrap(), 0, "{told}");
    }
}
