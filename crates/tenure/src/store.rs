//! Stores: configuration, migration, the store port and its limits.

pub use tenure_core::store::{Store, StoreError, StoreErrorKind};
pub use tenure_core::{
    Clock, DELAY_MAX, Encoding, HEADERS_BYTES_MAX, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX,
    PAYLOAD_DEPTH_MAX, Priority, QueueName, Timestamp,
};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use tenure_store::EnqueueStatement;
pub use tenure_store::config::{Planner, Statements, StoreConfig, Synchronous};
pub use tenure_store::memory::SystemClock;
pub use tenure_store::{
    Migrated, SchemaFit, SchemaVersion, migrate, migration_sql, schema_version,
};
