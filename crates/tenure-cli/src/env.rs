//! Every environment variable that the program reads, once, with the setting that it overrides.
//! `NO_COLOR` and its kin are read by the library that writes colours.

/// What the name of each of ours begins with.
pub(crate) const PREFIX: &str = "TENURE_";

/// Names the configuration file, when `--config` does not.
pub(crate) const CONFIG: &str = "TENURE_CONFIG";

/// The address of the database, when `--database` is not given.
pub(crate) const DATABASE: &str = "TENURE_DATABASE";

/// The keys that endpoints' secrets are sealed with, in place of the file. No setting: a file that
/// is shown around is no place for them.
pub(crate) const WEBHOOK_KEY: &str = "TENURE_WEBHOOK_KEY";

/// Where the command of a job finds the worker that runs it. No setting: the worker sets it.
pub(crate) const JOB_SOCKET: &str = "TENURE_JOB_SOCKET";

/// The password of a PostgreSQL whose address has none.
const POSTGRES_PASSWORD: &str = "PGPASSWORD";

/// Each variable, and the setting that it overrides.
pub(crate) const VARIABLES: [(&str, &str); 33] = [
    (DATABASE, "database"),
    ("TENURE_STORE_SCHEMA", "store.schema"),
    ("TENURE_STORE_CONNECTIONS", "store.connections"),
    ("TENURE_STORE_PLANNER", "store.planner"),
    ("TENURE_STORE_SYNCHRONOUS", "store.synchronous"),
    ("TENURE_STORE_BUSY_TIMEOUT", "store.busy_timeout"),
    ("TENURE_SERVER_LISTEN", "server.listen"),
    ("TENURE_LOG_FORMAT", "log.format"),
    ("TENURE_LOG_LEVEL", "log.level"),
    ("TENURE_WORKER_NAME", "worker.name"),
    ("TENURE_WORKER_QUEUES", "worker.queues"),
    ("TENURE_WORKER_CONCURRENCY", "worker.concurrency"),
    ("TENURE_WORKER_BATCH", "worker.batch"),
    ("TENURE_WORKER_SHUTDOWN_TIMEOUT", "worker.shutdown_timeout"),
    ("TENURE_LEASE_TERM", "lease.term"),
    ("TENURE_LEASE_HEARTBEAT", "lease.heartbeat"),
    ("TENURE_LEASE_MAX_HOLD", "lease.max_hold"),
    ("TENURE_REAPER_INTERVAL", "reaper.interval"),
    ("TENURE_RETRY_MAX_RETRIES", "retry.max_retries"),
    ("TENURE_RETRY_MAX_CRASHES", "retry.max_crashes"),
    ("TENURE_DOMAIN_ON_DEAD", "domain.on_dead"),
    ("TENURE_RETENTION_PUBLISHED", "retention.published"),
    ("TENURE_RETENTION_DEAD", "retention.dead"),
    ("TENURE_WEBHOOK_FAN_OUT", "webhook.fan_out"),
    ("TENURE_WEBHOOK_SEND", "webhook.send"),
    ("TENURE_WEBHOOK_KEY_FILE", "webhook.key_file"),
    ("TENURE_WEBHOOK_CONCURRENCY", "webhook.concurrency"),
    ("TENURE_WEBHOOK_TERM", "webhook.term"),
    ("TENURE_WEBHOOK_ALLOW_HTTP", "webhook.allow_http"),
    ("TENURE_WEBHOOK_ALLOW", "webhook.allow"),
    ("TENURE_WEBHOOK_ALLOW_HOSTS", "webhook.allow_hosts"),
    ("TENURE_WEBHOOK_PORTS", "webhook.ports"),
    ("TENURE_WEBHOOK_USER_AGENT", "webhook.user_agent"),
];

/// What a command that Tenure runs for an event or a job is told of it, so that it may run
/// `tenure`, too.
const OF_EVENTS: [&str; 12] = [
    "TENURE_ID",
    "TENURE_EVENT_ID",
    "TENURE_TOPIC",
    "TENURE_QUEUE",
    "TENURE_KEY",
    "TENURE_FENCE",
    "TENURE_ATTEMPT",
    "TENURE_TIME_LEFT_MS",
    "TENURE_KIND",
    "TENURE_MATRIX",
    "TENURE_CURSOR",
    JOB_SOCKET,
];

/// Beginnings of other names that are no settings: an event's headers, and the tests' own.
const OTHERS: [&str; 3] = ["TENURE_HEADER_", "TENURE_TEST_", "TENURE_UPDATE_DOCS"];

/// Where the worker listens that runs this program for a job, if one does.
#[expect(clippy::disallowed_methods, reason = "the environment is read here")]
pub(crate) fn job_socket() -> Option<std::ffi::OsString> {
    std::env::var_os(JOB_SOCKET)
}

/// The variables of ours that are set; `None` for a value that is no text.
pub(crate) fn given() -> Vec<(String, Option<String>)> {
    let all = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        Some((name, value.into_string().ok()))
    });
    let mut given: Vec<_> = all
        .filter(|(name, _)| name.starts_with(PREFIX))
        .filter(|(name, _)| !OF_EVENTS.contains(&name.as_str()))
        .filter(|(name, _)| !OTHERS.iter().any(|other| name.starts_with(other)))
        .collect();
    given.sort();
    given
}

/// What a command that Tenure runs for an event is not to see of our environment: how we were
/// configured, what we were told of another event when we run for one ourselves, and the password
/// that the library of PostgreSQL reads by itself.
pub(crate) fn hidden() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = names.filter(|name| name.starts_with(PREFIX));
    ours.chain([POSTGRES_PASSWORD.to_owned()]).collect()
}
