//! Opens this store by address, for `open`.

use std::path::Path;
use std::sync::Arc;

use tenure_core::store::StoreError;

use super::{SqliteStore, migrate as migrations};
use crate::config::StoreConfig;
use crate::open::{Migrated, Opened, SchemaVersion};

pub(crate) async fn open(path: &Path, config: &StoreConfig) -> Result<Opened, StoreError> {
    let store = SqliteStore::open(path, config).await?;
    Ok(Opened::Sqlite(Arc::new(store)))
}

pub(crate) async fn migrate(path: &Path, config: &StoreConfig) -> Result<Migrated, StoreError> {
    SqliteStore::migrate(path, config).await
}

#[expect(
    clippy::unused_async,
    reason = "a server is asked over the network, a file is not"
)]
pub(crate) async fn schema_version(
    path: &Path,
    _: &StoreConfig,
) -> Result<SchemaVersion, StoreError> {
    migrations::of_file(path)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a program without this database answers with an error"
)]
pub(crate) fn migration_sql() -> Result<String, StoreError> {
    Ok(super::migration_sql())
}
