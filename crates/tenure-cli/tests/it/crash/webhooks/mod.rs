//! Webhooks under real kills, with the real program, a real receiver on this machine, and both
//! databases. Each row of the table "When a process is killed" in `docs/WEBHOOKS.md` has a test in
//! `table` or `live`; the storm also delivers webhooks.

pub(super) mod endpoints;
mod live;
mod receiver;
mod secrets;
mod site;
mod table;

use std::time::Duration;

pub(super) use endpoints::{ENDPOINTS, manner};
pub(super) use site::Site;

/// Term of leases; a fifth of it, the time for a renewal, is enough on a busy machine. The reaper's
/// interval is a third of it.
const TERM: Duration = Duration::from_secs(5);
/// Time allowed for the next claim of a delivery, beyond the term and the reaper's interval.
const MARGIN: Duration = Duration::from_secs(4);
/// Timeout of each wait of a test.
const LONGEST: Duration = Duration::from_mins(1);

/// The secret of every endpoint.
const SECRET: &str = "whsec_CanarySecretCanarySecretCanarySecret";
/// A header of every endpoint, and its value.
const HEADER: (&str, &str) = ("x-api-key", "canary-header");
/// The payload of every event, except in the storm, where payloads are numbers.
const PAYLOAD: &str = r#"{"card":"canary-payload"}"#;
