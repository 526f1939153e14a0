//! The publishers of Tenure: what takes an event out of the outbox to its receiver.
//!
//! This crate exists so that one crate alone runs commands and will open connections to the
//! outside. It knows a publisher only as the port of `tenure-core`: it claims nothing, settles
//! nothing and decides nothing about trying again; it says what happened, as a
//! [`PublishError`](tenure_core::PublishError) or as success.
//!
//! | publisher | hands an event over by | it is taken when |
//! |---|---|---|
//! | [`Lines`] | a line of JSON, to a file or to the standard output | the line is on the disk, or written out where there is no disk |
//! | [`Exec`] | a command of yours, payload on its input | the command ends with exit code 0 |
//!
//! What is owed to endpoints goes out through [`webhook`], by another port: who calls is told to
//! whom, and says what came back.
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

mod exec;
mod lines;
pub mod webhook;

pub use exec::{Exec, ExecCall};
pub use lines::Lines;
