//! Names of tables and columns reach the database unchanged, or are refused.

use sqlx::Row;
use tenure_core::{Identifier, LeaseTable, StatusWord};

use super::Place;

/// Random numbers from a seed, the same in every run.
struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % sides
    }

    /// A name: mostly valid characters, sometimes ones that break out of quotes.
    fn name(&mut self) -> String {
        const FINE: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789_";
        const BAD: [&str; 14] = [
            "\"", "'", ";", "--", "\\", "\0", " ", "A", "é", "{key}", "$1", "pg_", "/*", "\n",
        ];
        let length = self.roll(70);
        let mut name = String::new();
        for _ in 0..length {
            let at = usize::try_from(self.roll(37)).unwrap();
            name.push(char::from(FINE[at]));
            if self.roll(60) == 0 {
                let at = usize::try_from(self.roll(14)).unwrap();
                name.push_str(BAD[at]);
            }
        }
        name
    }
}

fn is_plain(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[test]
fn a_hundred_thousand_names_are_refused_or_stay_as_they_are() {
    let mut rng = Rng(20_261_116);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let name = rng.name();
        match Identifier::new(&name) {
            Ok(checked) => {
                assert_eq!(checked.as_str(), name);
                assert_eq!(checked.quoted(), format!("\"{name}\""));
                assert!(
                    is_plain(&name) && (1..=63).contains(&name.len()),
                    "{name:?}"
                );
                taken += 1;
            }
            Err(_) => refused += 1,
        }
        if let Ok(word) = StatusWord::new(&name) {
            assert_eq!(word.quoted(), format!("'{name}'"));
            assert!(!name.contains('\''), "{name:?}");
        }
    }
    assert!(taken > 10_000 && refused > 10_000, "{taken} and {refused}");
}

/// Uses a sample of the accepted names for real tables and columns: the catalogue has the same
/// names, and the rows can be leased.
#[tokio::test]
async fn accepted_names_reach_the_database_unchanged() {
    let mut rng = Rng(7);
    for place in Place::both().await {
        let mut tried = 0;
        while tried < 15 {
            let (name, until) = (rng.name(), rng.name());
            let (Ok(name), Ok(until)) = (Identifier::new(&name), Identifier::new(&until)) else {
                continue;
            };
            if name.as_str().starts_with("tenure_") {
                continue;
            }
            tried += 1;
            let make = "create table TABLE (id KEY, created_at MOMENT not null default NOW)";
            place.execute(&make.replace("TABLE", &name.quoted())).await;
            let insert = "insert into TABLE (id) values (1)";
            place
                .execute(&insert.replace("TABLE", &name.quoted()))
                .await;
            let mut table = LeaseTable::sync_jobs().named(name.clone());
            table.columns.until = until.clone();
            let table = place.adopt(&table).await;
            let found = place.tables().inspect(&table).await.unwrap();
            assert!(found.column(until.as_str()).is_some(), "{name} {until}");
            let held = place.claim(&table, &super::mine(tried), 1).await;
            assert_eq!(held.unwrap().items.len(), 1, "{name} {until}");
        }
        if let Place::Postgres { pool, .. } = &place {
            let all = "select count(*) from tenure_tables t join pg_class c on c.relname = t.name";
            let count: i64 = sqlx::query(all).fetch_one(pool).await.unwrap().get(0);
            assert_eq!(count, 15);
        }
    }
}
