//! Environment variables of the program, each with the setting that it overrides. The library
//! that writes colours reads `NO_COLOR` and the like.

/// The prefix of all variables of Tenure.
pub(crate) const PREFIX: &str = "TENURE_";

/// The configuration file; `--config` overrides it.
pub(crate) const CONFIG: &str = "TENURE_CONFIG";

/// The address of the database; `--database` overrides it.
pub(crate) const DATABASE: &str = "TENURE_DATABASE";

/// The keys that encrypt endpoints' secrets, in place of the key file. Not a setting, because keys
/// do not belong in a configuration file.
pub(crate) const WEBHOOK_KEY: &str = "TENURE_WEBHOOK_KEY";

/// The socket of the worker that runs the command of a job. Not a setting: the worker sets it.
pub(crate) const JOB_SOCKET: &str = "TENURE_JOB_SOCKET";

/// The PostgreSQL password when the address has none.
const POSTGRES_PASSWORD: &str = "PGPASSWORD";

/// Each variable, and the setting that it overrides.
pub(crate) const VARIABLES: [(&str, &str); 37] = [
    (DATABASE, "database"),
    ("TENURE_STORE_SCHEMA", "store.schema"),
    ("TENURE_STORE_CONNECTIONS", "store.connections"),
    ("TENURE_STORE_PLANNER", "store.planner"),
    ("TENURE_STORE_STATEMENTS", "store.statements"),
    ("TENURE_STORE_SYNCHRONOUS", "store.synchronous"),
    ("TENURE_STORE_BUSY_TIMEOUT", "store.busy_timeout"),
    ("TENURE_MIGRATE_AT_START", "migrate.at_start"),
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
    ("TENURE_RETRY_BASE", "retry.base"),
    ("TENURE_RETRY_CAP", "retry.cap"),
    ("TENURE_RETRY_MAX_CRASHES", "retry.max_crashes"),
    ("TENURE_KEY_ON_DEAD", "key.on_dead"),
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

/// Variables that Tenure sets for a command. They are ignored, so that the command may run
/// `tenure` itself.
const OF_EVENTS: [&str; 13] = [
    "TENURE_ID",
    "TENURE_EVENT_ID",
    "TENURE_TOPIC",
    "TENURE_QUEUE",
    "TENURE_KEY",
    "TENURE_FENCE",
    "TENURE_ATTEMPT",
    "TENURE_TIME_LEFT_MS",
    "TENURE_PAYLOAD_BYTES",
    "TENURE_KIND",
    "TENURE_MATRIX",
    "TENURE_CURSOR",
    JOB_SOCKET,
];

/// Prefixes of other variables that are not settings: headers of an event, and those of the tests.
const OTHERS: [&str; 3] = ["TENURE_HEADER_", "TENURE_TEST_", "TENURE_UPDATE_DOCS"];

/// The socket of the worker that runs this program for a job, if one does.
#[expect(clippy::disallowed_methods, reason = "the environment is read here")]
pub(crate) fn job_socket() -> Option<std::ffi::OsString> {
    std::env::var_os(JOB_SOCKET)
}

/// The variables of OpenTelemetry that are set. An empty one counts as unset, as it demands.
#[cfg(feature = "otlp")]
pub(crate) fn open_telemetry() -> std::collections::BTreeMap<String, String> {
    let all = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        Some((name, value.into_string().ok()?))
    });
    all.filter(|(name, value)| name.starts_with("OTEL_") && !value.is_empty())
        .collect()
}

/// The folders in which a shell looks for commands.
#[expect(clippy::disallowed_methods, reason = "the environment is read here")]
pub(crate) fn path() -> Option<std::ffi::OsString> {
    std::env::var_os("PATH")
}

/// Tenure's variables that are set; `None` for a value that is not UTF-8.
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

/// Variables withheld from the commands that Tenure runs: Tenure's configuration, the variables of
/// another event when this process runs for one, and the PostgreSQL password.
pub(crate) fn hidden() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = names.filter(|name| name.starts_with(PREFIX));
    ours.chain([POSTGRES_PASSWORD.to_owned()]).collect()
}
