//! Publishers of Tenure: they send events to their receivers.
//!
//! Only this crate runs commands and opens connections to the outside. Its publishers implement the
//! port of `tenure-core`. They claim nothing, settle nothing and do not decide on retries; they
//! report success or a [`PublishError`](tenure_core::PublishError).
//!
//! | publisher | sends an event as | done when |
//! |---|---|---|
//! | [`Lines`] | a line of JSON in a file or on standard output | the line is written and, in a file, synced |
//! | [`Exec`] | the input of your command | the command exits with code 0 |
//! | [`ExecLines`] | a line of JSON to a process of yours that stays | the process answers `done` |
//!
//! Deliveries to endpoints go out through [`webhook`], which implements another port: it makes the
//! call and returns the reply.
//!
//! ```
//! use std::time::Duration;
//! use tenure_core::{Event, Fence, ItemId, Publication, Publisher};
//! use tenure_publish::Lines;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("events.jsonl");
//! let lines = Lines::file(&path)?;
//!
//! let event = Event::new("order.paid", &serde_json::json!({"order": 7}))?;
//! let publication = Publication {
//!     id: ItemId::new(1),
//!     event: &event,
//!     fence: Fence::new(1),
//!     attempt: 1,
//!     time_left: Duration::from_secs(30),
//! };
//! lines.publish(&publication).await?;
//! assert!(std::fs::read_to_string(&path)?.ends_with("\"payload\":{\"order\":7}}\n"));
//! # Ok(())
//! # }
//! ```

#[cfg(any(feature = "exec", feature = "lines"))]
mod event_line;
#[cfg(feature = "exec")]
mod exec;
#[cfg(feature = "lines")]
mod lines;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "webhook")]
pub mod webhook;

#[cfg(feature = "exec")]
pub use exec::{Exec, ExecCall, ExecLines};
#[cfg(feature = "lines")]
pub use lines::Lines;
#[cfg(feature = "otlp")]
pub use otlp::{Otlp, OtlpConfig};
