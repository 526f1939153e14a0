//! For each preset, the table of its specification is adopted, worked and restored. The tests
//! create the table as an application without Tenure does.

use tenure_core::store::{Rest, Settle, WhileHeld};
use tenure_core::testing::Extent;
use tenure_core::{Content, Guarded, LeaseTable, Outcome, Refusal};

use super::{Place, identifier, mine};

/// Each preset with its table, where `KEYS` stands for a declaration of [`KEYS`], and an insert.
const OWN: [(&str, &str, &str); 5] = [
    (
        "outbox_processing",
        "create table outbox (
             id KEYS, payload text not null, status text not null default 'PENDING',
             locked_until MOMENT, lock_token text, created_at MOMENT not null default NOW
         )",
        "insert into outbox (ID payload) values (VALUE 'p')",
    ),
    (
        "outbox",
        "create table outbox (
             id KEYS, topic text, payload text not null, status text not null default 'PENDING',
             attempts integer not null default 0, last_error text,
             available_at MOMENT not null default NOW, claimed_at MOMENT, claimed_by text,
             published_at MOMENT, created_at MOMENT not null default NOW
         )",
        "insert into outbox (ID payload) values (VALUE 'p')",
    ),
    (
        "webhook",
        "create table webhook_outbox (
             id KEYS, payload text not null, delivery_status text not null default 'pending',
             lease_owner text, lease_until MOMENT, attempts integer not null default 0,
             next_attempt_at MOMENT, created_at MOMENT not null default NOW
         )",
        "insert into webhook_outbox (ID payload) values (VALUE 'p')",
    ),
    (
        "sync_jobs",
        "create table sync_jobs (
             id KEYS, payload text, priority integer not null default 0,
             created_at MOMENT not null default NOW, completed_at MOMENT, failed_at MOMENT,
             error_message text
         );
         ALTER TABLE sync_jobs ADD COLUMN locked_until MOMENT;
         ALTER TABLE sync_jobs ADD COLUMN locked_by TEXT",
        "insert into sync_jobs (ID payload) values (VALUE 'p')",
    ),
    (
        "sync_checkpoints",
        "create table sync_checkpoints (
             matrix_id text not null, chunk_hash text not null, payload text,
             last_synced_at MOMENT, row_count integer, primary key (matrix_id, chunk_hash)
         );
         ALTER TABLE sync_checkpoints ADD COLUMN locked_until MOMENT;
         ALTER TABLE sync_checkpoints ADD COLUMN locked_by TEXT",
        "insert into sync_checkpoints (matrix_id, chunk_hash, payload) values ('m', UNIQUE, 'p')",
    ),
];

/// Kinds of keys: the declaration, and the n-th value. The database numbers the first kind.
const KEYS: [(&str, &str); 4] = [
    ("KEY", ""),
    ("text primary key", "'k-NTH'"),
    (
        "uuid primary key",
        "'00000000-0000-0000-0000-00000000000NTH'",
    ),
    ("int primary key", "NTH"),
];

/// The statement that inserts the n-th row.
fn row(insert: &str, value: &str, nth: usize) -> String {
    let (id, value) = match value {
        "" => ("", String::new()),
        value => (
            "id,",
            format!("{},", value.replace("NTH", &nth.to_string())),
        ),
    };
    insert
        .replace("ID", id)
        .replace("VALUE", &value)
        .replace("UNIQUE", &format!("'h-{nth}'"))
}

async fn work(place: &Place, preset: &str, make: &str, (key, value): (&str, &str)) {
    let (_, _, insert) = OWN.iter().find(|(name, ..)| *name == preset).unwrap();
    let told = format!("{preset} on {} by {key}", place.name());
    place.execute(&make.replace("KEYS", key)).await;
    for nth in 1..=3 {
        place.execute(&row(insert, value, nth)).await;
    }
    let before = place.catalogue().await;
    let table = place.adopt(&LeaseTable::preset(preset).unwrap()).await;
    // A row that the application inserts after the adoption is worked like the rows before it.
    place.execute(&row(insert, value, 4)).await;
    let (first, second) = (mine(1), mine(2));
    let held = place.claim(&table, &first, 3).await.expect(&told);
    assert_eq!(held.items.len(), 3, "{told}");
    assert!(matches!(&held.items[0].content, Content::Row(row) if row.contains("\"payload\"")));
    let ids = held.ids();
    let retry = Outcome::Retry {
        after: std::time::Duration::from_mins(1),
        error: "503".into(),
    };
    let settle = Settle::new(first.clone())
        .item(ids[0], Outcome::Done)
        .item(ids[1], retry);
    let settlement = place.settle(&table, &settle).await;
    assert_eq!(settlement.refused().count(), 0, "{told}");
    let recorded = place.recorded(&table.name).await.unwrap();
    let tables = place.tables();
    let in_the_way = tables.undo(&recorded, WhileHeld::Refuse).await.unwrap();
    assert_eq!(in_the_way, 1, "{told}: a lease is held");
    let rest = place.claim(&table, &second, 9).await.expect(&told);
    assert_eq!(rest.items.len(), 1, "{told}: the row that came later");
    let done = Settle::new(second.clone()).done(rest.ids());
    assert_eq!(place.settle(&table, &done).await.refused().count(), 0);
    let release = Settle::new(first.clone()).rest(Rest::Release);
    assert_eq!(place.settle(&table, &release).await.rest, 1, "{told}");
    let rows = tables.rows(table.clone()).await.unwrap();
    let counts = rows.count(None).await.unwrap();
    let counted = (counts.pending(), counts.claimed, counts.done);
    assert_eq!(counted, (2, 0, 2), "{told}");
    let late = place
        .settle(&table, &Settle::new(first).done([ids[2]]))
        .await;
    assert_eq!(
        late.items[0].1,
        Guarded::Refused(Refusal::NotClaimed),
        "{told}"
    );
    let in_the_way = tables.undo(&recorded, WhileHeld::Refuse).await.unwrap();
    assert_eq!(in_the_way, 0, "{told}");
    assert_eq!(place.catalogue().await, before, "{told}");
    assert_eq!(place.recorded(&table.name).await, None, "{told}");
    place
        .execute(&format!("drop table {}", table.name.quoted()))
        .await;
}

#[tokio::test]
async fn every_preset_adopts_the_table_of_its_specification_and_gives_it_back() {
    for place in Place::both().await {
        for (preset, make, _) in Extent::chosen().of(&OWN, 1) {
            for key in KEYS {
                work(&place, preset, make, key).await;
            }
        }
    }
}

/// After the printed SQL was applied by hand, the adoption has no steps left; the printed undo
/// restores the table.
#[tokio::test]
async fn the_printed_sql_does_a_whole_adoption_and_its_undo() {
    for place in Place::both().await {
        for (preset, make, insert) in OWN {
            let told = format!("{preset} on {}", place.name());
            place
                .execute(&make.replace("KEYS", "text primary key"))
                .await;
            place.execute(&row(insert, "'k-NTH'", 1)).await;
            let before = place.catalogue().await;
            let table = LeaseTable::preset(preset).unwrap();
            let plan = place.plan(&table).await.unwrap();
            let printed = place.tables().adoption_sql(&plan).unwrap();
            assert_eq!(
                place.catalogue().await,
                before,
                "{told}: it was only printed"
            );
            apply(&place, &printed).await;
            let again = place.plan(&table).await.unwrap();
            assert!(again.is_done, "{told}: {again:#?}\n{printed}");
            assert!(
                place.claim(&again.table, &mine(1), 1).await.is_some(),
                "{told}"
            );
            let release = Settle::new(mine(1)).rest(Rest::Release);
            assert_eq!(place.settle(&again.table, &release).await.rest, 1, "{told}");
            let recorded = place.recorded(&table.name).await.unwrap();
            let printed = place.tables().undo_sql(&recorded).unwrap();
            apply(&place, &printed).await;
            assert_eq!(place.catalogue().await, before, "{told}\n{printed}");
            place
                .execute(&format!("drop table {}", table.name.quoted()))
                .await;
        }
    }
}

/// Runs a printed script as an operator does.
async fn apply(place: &Place, script: &str) {
    let lines: Vec<&str> = script
        .lines()
        .filter(|line| !line.starts_with("--"))
        .collect();
    if matches!(place, Place::Sqlite { .. }) {
        return place.execute(&lines.join("\n")).await;
    }
    // The statements of a transaction are sent together; an index is created outside of a
    // transaction.
    let text = lines.join("\n");
    let (begin, rest) = text.split_once("commit;\n").unwrap_or((&text, ""));
    place.execute(&format!("{begin}commit;")).await;
    for statement in rest.split(";\n").filter(|text| !text.trim().is_empty()) {
        place.execute(statement).await;
    }
}

/// The map names only columns of the application; the adoption adds those of the lease.
#[tokio::test]
async fn a_map_adopts_a_table_with_its_own_names_and_words() {
    for place in Place::both().await {
        let told = place.name();
        place
            .execute("create table mails (mail_no KEY, body text, state text not null)")
            .await;
        place
            .execute("insert into mails (body, state) values ('a', 'new'), ('b', 'sent')")
            .await;
        let said = [
            ("key", "mail_no"),
            ("order", "mail_no desc"),
            ("status.column", "state"),
            ("status.pending", "new"),
            ("status.claimed", "sending"),
            ("status.done", "sent"),
            ("status.dead", "failed"),
        ];
        let said = said.map(|(field, value)| (field.to_owned(), vec![value.to_owned()]));
        let table = LeaseTable::described(identifier("mails"), &said.into()).unwrap();
        let before = place.catalogue().await;
        let table = place.adopt(&table).await;
        let held = place.claim(&table, &mine(1), 9).await.unwrap();
        assert_eq!(held.items.len(), 1, "{told}: the other was sent before");
        let done = Settle::new(mine(1)).done(held.ids());
        assert_eq!(place.settle(&table, &done).await.refused().count(), 0);
        let sent = "select count(*) from mails where state = 'sent'";
        assert_eq!(place.number(sent).await, 2, "{told}");
        let recorded = place.recorded(&table.name).await.unwrap();
        assert_eq!(
            place
                .tables()
                .undo(&recorded, WhileHeld::Refuse)
                .await
                .unwrap(),
            0
        );
        assert_eq!(place.catalogue().await, before, "{told}");
    }
}
