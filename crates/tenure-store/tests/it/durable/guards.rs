//! The guards of PostgreSQL's statements, one by one: a decision from an outdated view is not
//! written.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database};

use super::tables::faults;
use crate::faults::{Plant as _, Planted};
use crate::world::{Operator, T0};

/// A store, and another connection that can run its statements.
struct Bench {
    store: PostgresStore,
    stranger: PgConnection,
    database: Database,
}

impl Bench {
    async fn new() -> Self {
        Self::planted(&[]).await
    }

    /// A bench with faults in its statements.
    async fn planted(faults: &[Planted]) -> Self {
        let database = testing::migrated().await;
        let config = StoreConfig::default();
        let store = PostgresStore::open(&database.url, &config).await.unwrap();
        let store = store.planted(faults);
        let mut stranger = PgConnection::connect(&database.url).await.unwrap();
        for (name, text) in store.statement_texts() {
            if name.starts_with("work_lease_") {
                run(&mut stranger, &format!("prepare {name} as {text}")).await;
            }
        }
        Self {
            store,
            stranger,
            database,
        }
    }

    fn operator(&self) -> Operator<'_> {
        Operator::new(&self.store)
    }

    /// The number and the version of the domain A.
    async fn stands(&self) -> (i64, i64) {
        let seen = "select number, version from tenure_reservations where domain = 'A'";
        sqlx::query_as(seen)
            .fetch_one(self.store.pool())
            .await
            .unwrap()
    }

    /// Writes the decision that offset 7 of the domain A is in flight, made from the given view.
    async fn write(&mut self, watermark: i64, stands: Option<(i64, i64)>) -> Written {
        let stands = stands.map_or("null, null".to_owned(), |(number, version)| {
            format!("{number}, {version}")
        });
        let call = format!(
            "execute work_lease_change(1, {watermark}, 'A', {stands}, 7, \
             'stranger-0000000000000001.1.0', now(), 0, null, null, null, '{{}}', '{{}}', '{{}}', \
             '{{}}')"
        );
        let call = sqlx::raw_sql(AssertSqlSafe(call)).fetch_all(&mut self.stranger);
        let rows = tokio::time::timeout(Duration::from_mins(1), call).await;
        let rows = rows.expect("it does not wait").unwrap();
        if rows.is_empty() {
            Written::Nothing
        } else {
            Written::Change
        }
    }

    async fn is_sound(&self) {
        assert_eq!(faults(self.store.pool()).await, Vec::<String>::new());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Change,
    Nothing,
}

async fn run(connection: &mut PgConnection, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned()))
        .execute(connection)
        .await
        .unwrap();
}

/// Writes two decisions from the same view of the domain.
async fn write_twice(bench: &mut Bench) -> [Written; 2] {
    bench.operator().process("A", 1).await;
    let seen = Some(bench.stands().await);
    let first = bench.write(i64::MIN, seen).await;
    [first, bench.write(i64::MIN, seen).await]
}

/// Writes the creation of A, decided before A was created, finished and evicted by others.
async fn write_what_is_over(bench: &mut Bench) -> Written {
    bench.operator().process("A", 7).await;
    bench.operator().advance_watermark(8).await;
    bench.write(i64::MIN, None).await
}

/// Writes a decision from a view of an earlier domain with the same name.
async fn write_to_the_next(bench: &mut Bench) -> Written {
    bench.operator().process("A", 1).await;
    let seen = bench.stands().await;
    bench.operator().advance_watermark(2).await;
    bench.operator().process("A", 3).await;
    let next = bench.stands().await;
    assert_eq!(next.1, seen.1, "only the number differs");
    bench.write(2, Some(seen)).await
}

/// Proves: S3-033, S3-046, S3-054, S3-072, S3-073
#[tokio::test]
async fn only_one_of_two_decisions_from_the_same_view_is_written() {
    let mut bench = Bench::new().await;
    let written = write_twice(&mut bench).await;
    assert_eq!(written, [Written::Change, Written::Nothing]);
    bench.is_sound().await;
}

/// Proves: S3-071
#[tokio::test]
async fn only_one_of_two_creations_of_a_domain_is_written() {
    let mut bench = Bench::new().await;
    bench.operator().process("B", 1).await;
    assert_eq!(bench.write(i64::MIN, None).await, Written::Change);
    assert_eq!(bench.write(i64::MIN, None).await, Written::Nothing);
    bench.is_sound().await;
}

/// Between a read and its write, a domain may be created, finished and evicted. A caller that saw
/// no domain must then read again; otherwise an offset would be worked twice.
///
/// Proves: S3-030, S3-032
#[tokio::test]
async fn a_domain_is_created_only_if_the_watermark_has_not_moved() {
    let mut bench = Bench::new().await;
    assert_eq!(write_what_is_over(&mut bench).await, Written::Nothing);
    assert_eq!(bench.write(8, None).await, Written::Change);
    bench.is_sound().await;
}

/// Proves: S3-032
#[tokio::test]
async fn a_decision_is_not_written_to_a_recreated_domain() {
    let mut bench = Bench::new().await;
    assert_eq!(write_to_the_next(&mut bench).await, Written::Nothing);
    let next = bench.stands().await;
    assert_eq!(bench.write(2, Some(next)).await, Written::Change);
    bench.is_sound().await;
}

/// If a guard is removed, the outdated decision is written.
#[tokio::test]
async fn a_missing_guard_is_caught() {
    let without = |from, to| Planted {
        file: "work_lease_change",
        from,
        to,
    };
    let by_number = without("and r.version = $5::bigint", "and $5::bigint > 0");
    let mut bench = Bench::planted(&[by_number]).await;
    let written = write_twice(&mut bench).await;
    assert_eq!(written, [Written::Change, Written::Change]);

    let any_watermark = without("and s.watermark = $2::bigint", "and $2::bigint < 0");
    let mut bench = Bench::planted(&[any_watermark]).await;
    assert_eq!(write_what_is_over(&mut bench).await, Written::Change);

    let by_name = without(
        "where r.number = $4::bigint and",
        "where r.domain = $3::text and $4::bigint > 0 and",
    );
    let mut bench = Bench::planted(&[by_name]).await;
    assert_eq!(write_to_the_next(&mut bench).await, Written::Change);
}

/// While the watermark is being moved, a call neither waits nor creates the domain.
#[tokio::test]
async fn a_domain_is_not_created_while_the_watermark_moves() {
    let mut bench = Bench::new().await;
    bench.operator().process("B", 1).await;
    let mut mover = PgConnection::connect(&bench.database.url).await.unwrap();
    run(&mut mover, "begin; update tenure_spaces set watermark = 8").await;
    assert_eq!(bench.write(i64::MIN, None).await, Written::Nothing);
    run(&mut mover, "rollback").await;
    assert_eq!(bench.write(i64::MIN, None).await, Written::Change);
}

/// A prune skips a domain that is being changed; the next prune deletes it.
#[tokio::test]
async fn a_domain_that_is_being_changed_is_not_evicted() {
    let bench = Bench::new().await;
    bench.operator().process("A", 1).await;
    let mut writer = PgConnection::connect(&bench.database.url).await.unwrap();
    run(
        &mut writer,
        "begin; update tenure_reservations set version = version + 1",
    )
    .await;
    let moved = tokio::time::timeout(Duration::from_mins(1), async {
        bench.operator().advance_watermark(2).await
    });
    assert_eq!(moved.await.expect("it does not wait"), 2);
    assert_eq!(bench.stands().await, (1, 2));
    run(&mut writer, "commit").await;
    bench.operator().advance_watermark(2).await;
    let left: i64 = sqlx::query_scalar("select count(*) from tenure_reservations")
        .fetch_one(bench.store.pool())
        .await
        .unwrap();
    assert_eq!(left, 0);
    bench.is_sound().await;
}

/// Ranges are pruned in rounds; the domain is deleted with its last range.
#[tokio::test]
async fn many_ranges_are_pruned_in_rounds() {
    let bench = Bench::new().await;
    bench.operator().process("A", 0).await;
    let fill = "insert into tenure_offsets
                (reservation, space_number, first_offset, last_offset, kind)
                select 1, 1, n * 2, n * 2, 'processed' from generate_series(1, 2500) as n";
    sqlx::query(fill).execute(bench.store.pool()).await.unwrap();
    bench.operator().at(T0).advance_watermark(10_000).await;
    for table in ["tenure_offsets", "tenure_reservations"] {
        let count = format!("select count(*) from {table}");
        let left: i64 = sqlx::query_scalar(AssertSqlSafe(count))
            .fetch_one(bench.store.pool())
            .await
            .unwrap();
        assert_eq!(left, 0, "{table}");
    }
}
