//! Replaces the `open` module of a database whose feature is off: every call returns an error.

use tenure_core::store::{StoreError, StoreErrorKind};

use crate::config::StoreConfig;
use crate::open::{Migrated, Opened, SchemaVersion};

#[expect(clippy::unused_async, reason = "replaces a function that waits")]
pub(crate) async fn open<A: ?Sized>(_: &A, _: &StoreConfig) -> Result<Opened, StoreError> {
    Err(not_built("open"))
}

#[expect(clippy::unused_async, reason = "replaces a function that waits")]
pub(crate) async fn migrate<A: ?Sized>(_: &A, _: &StoreConfig) -> Result<Migrated, StoreError> {
    Err(not_built("migrate"))
}

#[expect(clippy::unused_async, reason = "replaces a function that waits")]
pub(crate) async fn schema_version<A: ?Sized>(
    _: &A,
    _: &StoreConfig,
) -> Result<SchemaVersion, StoreError> {
    Err(not_built("migrate"))
}

pub(crate) fn migration_sql() -> Result<String, StoreError> {
    Err(not_built("migrate"))
}

fn not_built(verb: &'static str) -> StoreError {
    let message = "this program was built without that database";
    StoreError::new(verb, StoreErrorKind::Invalid, message)
        .with_hint("turn on the feature `sqlite` or `postgres` of the crate `tenure`")
}
