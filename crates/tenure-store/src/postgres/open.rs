//! Entry point of `open` for the addresses of this store.

use std::sync::Arc;

use tenure_core::store::StoreError;

use super::PostgresStore;
use crate::config::StoreConfig;
use crate::open::{Migrated, Opened, SchemaVersion};

pub(crate) async fn open(url: &str, config: &StoreConfig) -> Result<Opened, StoreError> {
    let store = PostgresStore::open(url, config).await?;
    Ok(Opened::Postgres(Arc::new(store)))
}

pub(crate) async fn migrate(url: &str, config: &StoreConfig) -> Result<Migrated, StoreError> {
    PostgresStore::migrate(url, config).await
}

pub(crate) async fn schema_version(
    url: &str,
    config: &StoreConfig,
) -> Result<SchemaVersion, StoreError> {
    PostgresStore::schema_version(url, config).await
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a program without this database answers with an error"
)]
pub(crate) fn migration_sql() -> Result<String, StoreError> {
    Ok(super::migration_sql())
}
