//! Test kit for programs that use Tenure: handlers run in the test's own task, the test moves the
//! clock, crashes and lost answers happen on demand, and enqueued events can be asserted.
//!
//! ```
//! use std::time::Duration;
//! use tenure::testing::{Fault, expect};
//! use tenure::{Context, NewEvent, Tenure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tenure = Tenure::open("memory:").await?;
//! tenure.enqueue_now(NewEvent::new("order.paid", &7).key("ann")).await?;
//! tenure::testing::enqueued(&tenure).await?.assert_has(&expect("order.paid").key("ann").json(&7));
//!
//! let handler = |order: u64, _: Context| async move {
//!     assert_eq!(order, 7);
//!     Ok(())
//! };
//! let mut worker = tenure.worker().on_json("order.*", handler).test()?;
//! worker.next(Fault::CrashBeforeSettle);
//! assert_eq!(worker.work_until_idle().await?.crashed, 1);
//! worker.advance(Duration::from_secs(60)); // the lease lapses
//! assert_eq!(worker.work_until_idle().await?.done, 1);
//! # Ok(())
//! # }
//! ```

mod enqueued;
mod worker;

pub use tenure_store::EnqueuedOn;

pub use self::enqueued::{EnqueuedEvents, Expected, enqueued, enqueued_on, expect};
pub use self::worker::{Fault, TestWorker, Worked};
