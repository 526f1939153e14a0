//! A store opened for a test, and the whole contents of a space, read directly.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::store::Store;
use tenure_core::testing::ManualClock;
use tenure_core::work_lease::Domain;
use tenure_core::{SpaceName, Timestamp};
use tenure_store::config::StoreConfig;
use tenure_store::memory::MemoryStore;
use tenure_store::postgres::PostgresStore;
use tenure_store::sqlite::SqliteStore;
use tenure_store::testing::{self, Database};

/// The contents of a domain in any store. A domain that does not exist equals an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) current: Option<i64>,
    pub(super) backlog: Vec<i64>,
    pub(super) processed: Vec<(i64, i64)>,
    pub(super) failed: Vec<(i64, i64)>,
}

impl Contents {
    pub(super) fn of(domain: &Domain) -> Self {
        Self {
            current: domain.reservation().map(|held| held.offset),
            backlog: domain.backlog().iter().collect(),
            processed: domain.processed().ranges().collect(),
            failed: domain.failed().ranges().collect(),
        }
    }

    /// The contents above the watermark. Below it the stores may differ, because databases delete
    /// whole ranges, and later.
    pub(super) fn above(&self, watermark: i64, forgiven: i64) -> Self {
        Self {
            processed: clipped(&self.processed, watermark),
            failed: clipped(&self.failed, watermark.min(forgiven)),
            ..self.clone()
        }
    }

    /// Violations of the contract's invariants in the contents.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let is_in = |ranges: &[(i64, i64)], offset: i64| {
            ranges
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&offset))
        };
        let mut seen = std::collections::BTreeSet::new();
        for offset in self.backlog.iter().copied() {
            if !seen.insert(offset) {
                faults.push(format!("{offset} waits twice"));
            }
        }
        for offset in self.backlog.iter().copied().chain(self.current) {
            if is_in(&self.processed, offset) || is_in(&self.failed, offset) {
                faults.push(format!("{offset} is terminal, and waits or is in flight"));
            }
        }
        if let Some(current) = self.current.filter(|current| seen.contains(current)) {
            faults.push(format!("{current} waits and is in flight"));
        }
        for ranges in [&self.processed, &self.failed] {
            let touch = |pair: &&[(i64, i64)]| pair[1].0.checked_sub(1) <= Some(pair[0].1);
            let touching = ranges.windows(2).filter(touch);
            faults.extend(touching.map(|pair| format!("{pair:?} are not one range")));
        }
        let both = |(first, last): &&(i64, i64)| {
            let mut others = self.failed.iter();
            others.any(|(from, to)| from <= last && first <= to)
        };
        let both = self.processed.iter().filter(both);
        faults.extend(both.map(|range| format!("{range:?} is processed and failed")));
        faults
    }
}

fn clipped(ranges: &[(i64, i64)], from: i64) -> Vec<(i64, i64)> {
    let ranges = ranges.iter().filter(|(_, last)| *last >= from);
    let ranges = ranges.map(|(first, last)| ((*first).max(from), *last));
    ranges.collect()
}

/// A store with direct access to its contents.
pub(super) enum Place {
    Memory(Box<MemoryStore>),
    Sqlite {
        store: Box<SqliteStore>,
        path: PathBuf,
        _folder: TempDir,
    },
    Postgres {
        store: Box<PostgresStore>,
        _database: Box<Database>,
    },
}

impl Place {
    pub(super) fn memory() -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(0));
        Self::Memory(Box::new(MemoryStore::new(Arc::new(clock))))
    }

    pub(super) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenure.db");
        let store = SqliteStore::open(&path, &StoreConfig::default()).await;
        Self::Sqlite {
            store: Box::new(store.unwrap()),
            path,
            _folder: folder,
        }
    }

    pub(super) async fn postgres() -> Self {
        let database = testing::migrated().await;
        let config = StoreConfig::default();
        let store = PostgresStore::open(&database.url, &config).await.unwrap();
        Self::Postgres {
            store: Box::new(store),
            _database: Box::new(database),
        }
    }

    pub(super) fn store(&self) -> &dyn Store {
        match self {
            Self::Memory(store) => store.as_ref(),
            Self::Sqlite { store, .. } => store.as_ref(),
            Self::Postgres { store, .. } => store.as_ref(),
        }
    }

    /// The contents of every domain of a space.
    pub(super) async fn contents(&self, space: &SpaceName) -> BTreeMap<String, Contents> {
        match self {
            Self::Memory(store) => {
                let domains = store.domains_of(space).into_iter();
                let domains =
                    domains.map(|(name, domain)| (name.as_str().to_owned(), Contents::of(&domain)));
                domains.collect()
            }
            Self::Sqlite { path, .. } => {
                let connection = Connection::open(path).unwrap();
                let mut statement = connection.prepare(ROWS).unwrap();
                let rows = statement.query_map([space.as_str()], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                });
                gathered(rows.unwrap().map(Result::unwrap))
            }
            Self::Postgres { store, .. } => {
                let rows: Vec<Row> = sqlx::query_as(ROWS)
                    .bind(space.as_str())
                    .fetch_all(store.pool())
                    .await
                    .unwrap();
                gathered(rows.into_iter())
            }
        }
    }
}

/// A domain, the kind of the row, and two numbers.
type Row = (String, String, Option<i64>, Option<i64>);

/// All rows of a space, in order, for both databases.
const ROWS: &str = "
    select domain, word, one, two
    from (
        select r.domain, 'current' as word, r.current_offset as one,
               cast(null as bigint) as two, 0 as place
        from tenure_spaces s join tenure_reservations r on r.space_number = s.number
        where s.space = $1
        union all
        select r.domain, 'waits', b.log_offset, cast(null as bigint), b.queue_position
        from tenure_spaces s join tenure_reservations r on r.space_number = s.number
        join tenure_reservation_backlog b on b.reservation = r.number
        where s.space = $1
        union all
        select r.domain, o.kind, o.first_offset, o.last_offset, o.last_offset
        from tenure_spaces s join tenure_reservations r on r.space_number = s.number
        join tenure_offsets o on o.reservation = r.number
        where s.space = $1
    ) as found
    order by domain, word, place";

fn gathered(rows: impl Iterator<Item = Row>) -> BTreeMap<String, Contents> {
    let mut found: BTreeMap<String, Contents> = BTreeMap::new();
    for (domain, word, one, two) in rows {
        let contents = found.entry(domain).or_default();
        match (word.as_str(), one, two) {
            ("current", offset, _) => contents.current = offset,
            ("waits", Some(offset), _) => contents.backlog.push(offset),
            ("processed", Some(first), Some(last)) => contents.processed.push((first, last)),
            ("failed", Some(first), Some(last)) => contents.failed.push((first, last)),
            other => panic!("{other:?} is not a row"),
        }
    }
    found
}
