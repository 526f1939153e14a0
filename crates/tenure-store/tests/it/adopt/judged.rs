//! Checks before any change: columns that cannot be written, status values that are refused or
//! unknown, names that do not exist, and rows that would be left out.

use tenure_core::{LeaseTable, Obstacle, Plan, TableMap};

use super::{Place, identifier};

async fn refused(place: &Place, table: &LeaseTable) -> Vec<Obstacle> {
    let before = place.catalogue().await;
    let obstacles = place.plan(table).await.unwrap_err();
    assert_eq!(place.catalogue().await, before);
    obstacles
}

/// A map of the table `mails`.
fn mails(fields: &[(&str, &str)]) -> LeaseTable {
    let said: TableMap = fields
        .iter()
        .map(|(field, value)| ((*field).to_owned(), vec![(*value).to_owned()]))
        .collect();
    LeaseTable::described(identifier("mails"), &said).unwrap()
}

#[tokio::test]
async fn a_generated_column_for_a_lease_fact_is_refused() {
    for place in Place::both().await {
        place
            .execute(
                "create table outbox (
                     id KEY, created_at MOMENT not null default NOW, twin integer not null,
                     attempts integer generated always as (twin + 1) stored
                 )",
            )
            .await;
        let obstacles = refused(&place, &LeaseTable::outbox()).await;
        assert_eq!(obstacles.len(), 1, "{}: {obstacles:?}", place.name());
        assert!(obstacles[0].what.contains("is generated"), "{obstacles:?}");
    }
}

#[tokio::test]
async fn a_check_that_refuses_a_status_is_an_obstacle_and_an_undecidable_check_a_remark() {
    for place in Place::both().await {
        let make = "create table outbox (
            id KEY, created_at MOMENT not null default NOW, state_of text,
            status text not null default 'PENDING' CHECK
        )";
        let strict = "constraint known check (status in ('PENDING', 'CLAIMED', 'PUBLISHED'))";
        // An empty table gets the same verdict as one with rows.
        for rows in ["", "insert into outbox (state_of) values ('a')"] {
            place.execute(&make.replace("CHECK", strict)).await;
            place.execute(rows).await;
            let obstacles = refused(&place, &LeaseTable::outbox()).await;
            assert_eq!(obstacles.len(), 1, "{}: {obstacles:?}", place.name());
            let told = "the check constraint known refuses the word \"DEAD\" of the status";
            assert_eq!(obstacles[0].what, told);
            place.execute("drop table outbox").await;
        }
        let wide = "constraint known check (status in ('PENDING', 'CLAIMED', 'PUBLISHED', \
                    'DEAD')), constraint pair check (status <> 'DEAD' or state_of is not null)";
        place.execute(&make.replace("CHECK", wide)).await;
        let plan = place.plan(&LeaseTable::outbox()).await.unwrap();
        assert!(
            plan.remarks
                .iter()
                .any(|told| told.ends_with("DEAD): pair")),
            "{}: {plan:#?}",
            place.name()
        );
    }
}

/// SQLite does not list check constraints. The adoption parses them from the text of the table, in
/// any form, and writes nothing to judge them.
#[tokio::test]
async fn checks_in_sqlite_are_judged_in_every_spelling() {
    const WORDS: &str = "('PENDING', 'CLAIMED', 'PUBLISHED')";
    enum Verdict {
        Refused,
        Told,
        Nothing,
    }
    let place = Place::sqlite().await;
    for (check, note, verdict) in [
        (
            format!("\"outbox\".[Status] in {WORDS}"),
            "",
            Verdict::Refused,
        ),
        (
            format!("(/* ) */ status in {WORDS} -- )\n)"),
            "",
            Verdict::Refused,
        ),
        ("length(status) <= 8".to_owned(), "", Verdict::Refused),
        ("status <> 'NOTE'".to_owned(), "", Verdict::Nothing),
        ("note in ('status', 'x')".to_owned(), "", Verdict::Nothing),
        // SQLite takes a quoted name for text if no column has that name.
        (
            "status in (\"PENDING\", \"CLAIMED\")".to_owned(),
            "",
            Verdict::Refused,
        ),
        (
            "status <> 'DEAD' or \"note\" = 'note'".to_owned(),
            "",
            Verdict::Told,
        ),
        (
            "status <> 'DEAD' or rowid > 7".to_owned(),
            "",
            Verdict::Told,
        ),
        // The adoption cannot know which texts are equal under a collation.
        (
            "status <> 'dead'".to_owned(),
            "collate nocase",
            Verdict::Told,
        ),
    ] {
        let make = format!(
            "create table outbox (
                 id KEY, created_at MOMENT not null default NOW, note text not null default 'x',
                 status text {note} not null default 'PENDING', check ({check})
             );
             insert into outbox (note) values ('x');
             create trigger no_writes before update on outbox
             begin select raise(abort, 'nobody writes'); end"
        );
        place.execute(&make).await;
        let before = place.catalogue().await;
        let plan = place.plan(&LeaseTable::outbox()).await;
        let is_told = |plan: &Plan| plan.remarks.iter().any(|told| told.contains("must allow"));
        match (verdict, &plan) {
            (Verdict::Refused, Err(obstacles)) => {
                assert!(obstacles[0].what.contains("refuses the word"), "{check}");
            }
            (Verdict::Told, Ok(plan)) if is_told(plan) => {}
            (Verdict::Nothing, Ok(plan)) if !is_told(plan) => {}
            _ => panic!("{check}: {plan:#?}"),
        }
        assert_eq!(place.catalogue().await, before);
        place.execute("drop table outbox").await;
    }
}

#[tokio::test]
async fn a_parent_table_and_a_partition_are_refused() {
    let place = Place::postgres().await;
    place
        .execute(
            "create table outbox (id bigint primary key, created_at timestamptz not null);
             create table child () inherits (outbox);
             create table parts (id bigint, created_at timestamptz) partition by range (id);
             create table part partition of parts for values from (1) to (10)",
        )
        .await;
    let obstacles = refused(&place, &LeaseTable::outbox()).await;
    assert!(
        obstacles[0].what.contains("inherit from outbox"),
        "{obstacles:?}"
    );
    let part = LeaseTable::outbox().named(identifier("part"));
    let obstacles = refused(&place, &part).await;
    assert!(
        obstacles[0].what.contains("is a partition"),
        "{obstacles:?}"
    );
}

/// If a column were silently added for a wrong name, every old row would become pending or have no
/// order.
#[tokio::test]
async fn a_map_may_name_only_existing_columns() {
    for place in Place::both().await {
        let make = "create table mails (mail_no KEY, state text not null, urgency integer)";
        place.execute(make).await;
        let right = [
            ("key", "mail_no"),
            ("status.column", "state"),
            ("order", "urgency desc"),
        ];
        let with = |field: &'static str, value: &'static str| {
            let mut fields = right.to_vec();
            fields.retain(|(known, _)| *known != field);
            fields.push((field, value));
            mails(&fields)
        };
        place
            .execute("insert into mails (state) values ('sent'), ('new')")
            .await;
        for (field, value) in [
            ("key", "mail_nr"),
            ("status.column", "staet"),
            ("order", "urgancy desc"),
            ("created_at", "queud"),
        ] {
            let obstacles = refused(&place, &with(field, value)).await;
            let told = format!("{} {field}: {obstacles:?}", place.name());
            assert_eq!(obstacles.len(), 1, "{told}");
            assert!(
                obstacles[0]
                    .what
                    .contains(&format!("which `{field}` names")),
                "{told}"
            );
        }
        let plan = place.plan(&mails(&right)).await.unwrap();
        let told = plan.remarks.join("\n");
        assert!(
            told.contains("1 row has the status \"sent\""),
            "{}: {told}",
            place.name()
        );
        // An empty table may get its status column.
        place.execute("delete from mails").await;
        assert!(place.plan(&with("status.column", "staet")).await.is_ok());
    }
}

/// The number of a row is its `tenure_id`; if a row loses it, the adoption is unfinished again.
#[tokio::test]
async fn an_adoption_with_unnumbered_rows_is_not_finished() {
    for place in Place::both().await {
        let make = "create table sync_jobs (
            id text primary key, created_at MOMENT not null default NOW
        )";
        place.execute(make).await;
        place
            .execute("insert into sync_jobs (id) values ('a'), ('b')")
            .await;
        let table = LeaseTable::sync_jobs();
        let plan = place.plan(&table).await.unwrap();
        let printed = place.tables().adoption_sql(&plan).unwrap();
        assert!(
            printed.contains("and not exists (select 1 from"),
            "{printed}"
        );
        place.adopt(&table).await;
        let lost = "update sync_jobs set tenure_id = null where id = 'b'";
        place.execute(lost).await;
        let plan = place.plan(&table).await.unwrap();
        assert!(!plan.is_done, "{}", place.name());
        // The last step alone does not complete the adoption.
        let text = place.tables().adoption_sql(&plan).unwrap();
        let last = &text[text.rfind("update ").unwrap()..];
        place
            .execute(
                "update tenure_tables set is_finished = FALSE"
                    .replace(
                        "FALSE",
                        match place {
                            Place::Postgres { .. } => "false",
                            Place::Sqlite { .. } => "0",
                        },
                    )
                    .as_str(),
            )
            .await;
        place
            .execute(last.trim_end().trim_end_matches("commit;"))
            .await;
        assert!(!place.recorded(&table.name).await.unwrap().is_finished);
        place.adopt(&table).await;
        let numbered = "select count(distinct tenure_id) from sync_jobs";
        assert_eq!(place.number(numbered).await, 2, "{}", place.name());
    }
}

/// The application's SQLite may be older than Tenure's.
#[tokio::test]
async fn an_adoption_uses_only_functions_that_an_old_sqlite_has() {
    let place = Place::sqlite().await;
    place
        .execute("create table sync_jobs (id integer primary key)")
        .await;
    let table = LeaseTable::sync_jobs();
    let plan = place.plan(&table).await.unwrap();
    let printed = place.tables().adoption_sql(&plan).unwrap();
    assert!(!printed.contains("subsec"), "{printed}");
    place.adopt(&table).await;
    place.execute("insert into sync_jobs (id) values (1)").await;
    let apart = "select abs(created_at - cast(unixepoch('subsec') * 1000 as integer) * 1000)
                 from sync_jobs";
    assert!(place.number(apart).await < 60_000_000);
    let made = "select count(*) from sqlite_schema where sql like '%subsec%'";
    assert_eq!(place.number(made).await, 0, "Tenure's tables");
}
