//! Webhooks under real kills, with the real program, a real receiver on this machine, and both
//! databases. Each row of the table "When a process is killed" in `docs/WEBHOOKS.md` is a test in
//! `table`; the storm of all crash tests delivers webhooks as well.

pub(super) mod endpoints;
mod live;
mod receiver;
mod secrets;
mod site;
mod table;

use std::time::Duration;

pub(super) use endpoints::{ENDPOINTS, manner};
pub(super) use site::Site;

/// The term of leases, which is long enough for a busy machine. The reaper's interval follows from
/// it.
const TERM: Duration = Duration::from_secs(3);
/// Maximum time until a delivery is called again, besides the term and the reaper's interval.
const MARGIN: Duration = Duration::from_secs(4);
/// Timeout of a wait.
const LONGEST: Duration = Duration::from_mins(1);

/// The secret of every endpoint.
const SECRET: &str = "whsec_CanarySecretCanarySecretCanarySecret";
/// A header of every endpoint, and its value.
const HEADER: (&str, &str) = ("x-api-key", "canary-header");
/// The payload of every event, except in the storm, where payloads are numbers.
const PAYLOAD: &str = r#"{"card":"canary-payload"}"#;
