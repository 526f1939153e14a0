//! What tests of this and other crates need: a PostgreSQL server to throw away.

#[cfg(feature = "postgres")]
mod postgres;

#[cfg(feature = "postgres")]
pub use postgres::{Database, Server, postgres};
