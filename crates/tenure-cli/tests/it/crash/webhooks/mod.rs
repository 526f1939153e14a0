//! Webhooks under real kills: the real program, a real receiver on this machine, both databases.
//! Each row of the table "When a process is killed" in `docs/WEBHOOKS.md` is a test in `table`.

mod live;
mod receiver;
mod secrets;
mod site;
mod storm;
mod table;

use std::time::Duration;

/// The term of leases; the reaper's interval follows from it. A busy machine does not cost one.
const TERM: Duration = Duration::from_secs(3);
/// What comes on top of term and reaper interval until a delivery is called again.
const MARGIN: Duration = Duration::from_secs(1);
/// What does not come about within this will not any more.
const LONGEST: Duration = Duration::from_mins(1);

/// What every endpoint signs with.
const SECRET: &str = "whsec_CanarySecretCanarySecretCanarySecret";
/// A header of every endpoint, and its value.
const HEADER: (&str, &str) = ("x-api-key", "canary-header");
/// What the payload of every event says; it is a number to the storm.
const PAYLOAD: &str = r#"{"card":"canary-payload"}"#;
