//! Databases with the schema of a newer program.

use std::path::Path;

use sqlx::{Connection as _, PgConnection};
use tenure_core::store::StoreError;

use crate::migration::Migration;
use crate::postgres::migrate as postgres;
use crate::sqlite::migrate as sqlite;

/// Applies one more migration than this program knows, as a newer program would.
///
/// # Errors
/// The migration fails.
///
/// # Panics
/// The server cannot be reached.
pub async fn migrate_further(url: &str, readable_from: u32, sql: String) -> Result<(), StoreError> {
    let text: &'static str = sql.leak();
    let further = Migration {
        readable_from,
        texts: Box::leak(Box::new([text])),
    };
    if let Some(path) = url.strip_prefix("sqlite://") {
        return sqlite::migrate_further(Path::new(path), further);
    }
    let conn = PgConnection::connect(url).await;
    let mut conn = conn.expect("the server answers");
    postgres::migrate_further(&mut conn, further).await
}
