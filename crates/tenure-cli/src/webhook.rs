//! Webhook parts built from the configuration: the keys, the address policy, the caller.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tenure::store::SystemClock;
use tenure::webhook::{
    AddressPolicy, CallErrorKind, Caller, CallerConfig, Calling, Endpoint, EndpointState, Keyring,
    Reply, Request, Secrets, WebhookCaller,
};
use tenure::{Invalid, Tenure};
use tokio::time::Instant;

use crate::config::{Config, WebhookConfig};
use crate::exit::Exit;
use crate::output::Output;
use crate::problem::{Problem, Stop};

/// The name of the first key in a new key file.
const FIRST_KEY: &str = "k1";
/// Maximum size of a key file.
const FILE_BYTES_MAX: u64 = 64 * 1024;
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The keys that encrypt secrets: from the environment, else from the file.
pub(crate) fn keys(config: &WebhookConfig) -> Result<Keyring, Problem> {
    load_keys(config)?.ok_or_else(|| {
        let file = config.key_file.display();
        let message = format!("there is no key to open secrets with: {file} does not exist");
        Problem::new(Exit::Failed, message).hint(OTHER_KEY)
    })
}

const OTHER_KEY: &str = "set webhook.key_file to the file that `tenure endpoints add` created, \
or TENURE_WEBHOOK_KEY to its contents";

/// The keys, if any exist.
fn load_keys(config: &WebhookConfig) -> Result<Option<Keyring>, Problem> {
    if let Some(key) = &config.key {
        let keys = Keyring::parse(&key.0);
        return keys.map(Some).map_err(|problem| {
            Problem::new(Exit::Usage, format!("TENURE_WEBHOOK_KEY: {problem}"))
        });
    }
    let file = &config.key_file;
    let text = match read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let message = format!("cannot read the keys in {}", file.display());
            return Err(Problem::new(Exit::Failed, message).cause(error));
        }
    };
    let keys = Keyring::parse(&text);
    keys.map(Some)
        .map_err(|problem| Problem::new(Exit::Usage, format!("{}: {problem}", file.display())))
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let mut open = std::fs::File::open(file)?.take(FILE_BYTES_MAX);
    open.read_to_string(&mut text)?;
    Ok(text)
}

/// Returns true if users other than its owner can read the key file.
pub(crate) fn is_open_to_others(config: &WebhookConfig) -> bool {
    let mode = std::fs::metadata(&config.key_file).map(|it| it.permissions().mode());
    config.key.is_none() && mode.is_ok_and(|mode| mode & 0o077 != 0)
}

/// Loads the keys. If there are none, and no endpoint was sealed with other keys, creates a key
/// file and reports it.
pub(crate) async fn load_or_create_keys(
    config: &WebhookConfig,
    tenure: &Tenure,
    output: &Output,
) -> Result<Keyring, Stop> {
    if let Some(keys) = load_keys(config)? {
        return Ok(keys);
    }
    let file = config.key_file.display();
    let endpoints = tenure.endpoints_by_number().await?;
    let is_removed = |endpoint: &Endpoint| matches!(endpoint.state, EndpointState::Removed { .. });
    let sealed = endpoints.values().filter(|endpoint| !is_removed(endpoint));
    if let Some(other) = sealed.map(|endpoint| &endpoint.id).next() {
        let message = format!(
            "{file} does not exist, and {other} was sealed with another key: a sender could open \
             only one of the two"
        );
        return Err(Problem::new(Exit::Failed, message).hint(OTHER_KEY).into());
    }
    let line = Keyring::generate_line(FIRST_KEY)?;
    write_new(&config.key_file, &line).map_err(|error| {
        let message = format!("cannot write the key to {file}");
        let problem = Problem::new(Exit::Failed, message).cause(error);
        problem.hint("set webhook.key_file to a writable path")
    })?;
    output.note(format_args!(
        "created {file}, the key that encrypts secrets: keep it safe, and give it to every process \
         that sends"
    ));
    Ok(Keyring::parse(&line)?)
}

/// Creates a file that only its owner can read; fails if it exists.
fn write_new(file: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut open = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    writeln!(
        open,
        "# Keys of Tenure: the first encrypts, all decrypt. Keep this file secret.\n{line}"
    )?;
    open.sync_all()
}

/// The secrets of an endpoint.
pub(crate) fn open(endpoint: &Endpoint, keys: &Keyring) -> Result<Secrets, Problem> {
    Secrets::open(&endpoint.sealed, keys, &endpoint.id).map_err(|problem| {
        let message = format!("cannot open the secrets of {}: {problem}", endpoint.id);
        Problem::new(Exit::Failed, message).hint(OTHER_KEY)
    })
}

/// The policy for addresses, which does not yet deny Tenure's own addresses.
fn policy(config: &WebhookConfig) -> AddressPolicy {
    AddressPolicy {
        allow_http: config.allow_http,
        // Loading the configuration checked that these are networks.
        allow: config
            .allow
            .iter()
            .filter_map(|net| net.parse().ok())
            .collect(),
        allow_hosts: config.allow_hosts.clone(),
        ports: config.ports.iter().map(|port| *port..=*port).collect(),
        ..AddressPolicy::default()
    }
}

/// Every network.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The hint that names the allowed addresses, and the settings that allow more.
fn allowing(config: &WebhookConfig) -> String {
    let ports: Vec<_> = config.ports.iter().map(ToString::to_string).collect();
    let scheme = if config.allow_http {
        "http and https"
    } else {
        "https"
    };
    format!(
        "{scheme} is allowed here, on the ports {}; webhook.allow_http, webhook.ports, \
         webhook.allow (networks) and webhook.allow_hosts (names) allow more",
        ports.join(", ")
    )
}

/// Refuses an address that may not be called, so that the error appears now and not at the first
/// call. Its name is resolved here, and again at every call.
pub(crate) async fn check_address(config: &WebhookConfig, url: &str) -> Result<(), Problem> {
    let policy = policy(config);
    let invalid = |text: &str| {
        Problem::new(
            Exit::Usage,
            format!("the endpoint cannot be called: {text}"),
        )
    };
    let refused = |text: &str| invalid(text).hint(allowing(config));
    let target = policy.check_url(url).map_err(|error| {
        // No hint for an address that no setting would allow.
        let anything = AddressPolicy {
            allow_http: true,
            ports: vec![0..=u16::MAX],
            allow_hosts: policy.allow_hosts.clone(),
            allow: EVERYWHERE
                .iter()
                .filter_map(|net| net.parse().ok())
                .collect(),
            ..AddressPolicy::default()
        };
        match anything.check_url(url) {
            Ok(_) => refused(&error.text),
            Err(_) => invalid(&error.text),
        }
    })?;
    let host = target.host();
    // As in a call: a trailing dot in a name is ignored.
    let bare = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_named = |name: &String| bare(name) == host;
    let is_literal = host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok();
    if is_literal || policy.allow_hosts.iter().any(is_named) {
        return Ok(());
    }
    let lookup = tokio::net::lookup_host((host.as_str(), target.port()));
    let addresses = match tokio::time::timeout(RESOLVE_TIMEOUT, lookup).await {
        Ok(Ok(addresses)) => addresses.collect::<Vec<_>>(),
        Ok(Err(_)) => Vec::new(),
        Err(_) => return Err(invalid("its name was not resolved within 5s")),
    };
    if addresses.is_empty() {
        return Err(invalid("its name has no address"));
    }
    if addresses
        .iter()
        .any(|address| !policy.check_addr(address.ip()))
    {
        let text = "its name resolves to an address that may not be called";
        return Err(refused(text));
    }
    Ok(())
}

/// The caller of endpoints, which refuses the addresses in `own`.
pub(crate) fn caller(
    config: &WebhookConfig,
    keys: Keyring,
    own: Vec<SocketAddr>,
) -> Result<WebhookCaller, Invalid> {
    let usual = CallerConfig::new(Arc::new(keys), Arc::new(SystemClock));
    let caller = CallerConfig {
        policy: AddressPolicy {
            deny_own: own,
            ..policy(config)
        },
        user_agent: config.agent(),
        ..usual
    };
    WebhookCaller::new(caller)
}

/// Tenure's own addresses, which no endpoint may have: the database, and the listening address.
pub(crate) async fn own_addresses(config: &Config) -> Vec<SocketAddr> {
    let mut own = vec![config.listen];
    for database in config.database.hosts_and_ports() {
        let lookup = tokio::net::lookup_host(database);
        if let Ok(Ok(addresses)) = tokio::time::timeout(RESOLVE_TIMEOUT, lookup).await {
            own.extend(addresses);
        }
    }
    own
}

/// A caller that reloads its keys when the key file is created or changed.
pub(crate) struct ReloadingCaller {
    config: WebhookConfig,
    own: Vec<SocketAddr>,
    state: Mutex<Loaded>,
}

#[derive(Default)]
struct Loaded {
    caller: Option<Arc<WebhookCaller>>,
    /// Modification time of the key file that the caller was built from.
    changed: Option<SystemTime>,
    checked: Option<Instant>,
}

/// Interval between checks of the key file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl ReloadingCaller {
    pub(crate) fn new(config: WebhookConfig, own: Vec<SocketAddr>) -> Self {
        Self {
            config,
            own,
            state: Mutex::default(),
        }
    }

    /// The caller with the current keys, or the reason why there is none.
    fn caller(&self) -> Result<Arc<WebhookCaller>, String> {
        let mut loaded = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(caller) = &loaded.caller
            && loaded
                .checked
                .is_some_and(|checked| checked.elapsed() < CHECK_INTERVAL)
        {
            return Ok(Arc::clone(caller));
        }
        let changed = std::fs::metadata(&self.config.key_file).and_then(|it| it.modified());
        let changed = changed.ok().filter(|_| self.config.key.is_none());
        loaded.checked = Some(Instant::now());
        if let Some(caller) = &loaded.caller
            && (changed == loaded.changed || changed.is_none())
        {
            return Ok(Arc::clone(caller));
        }
        if is_open_to_others(&self.config) {
            let file = self.config.key_file.display();
            tracing::warn!(%file, "the webhook keys are readable by other users");
        }
        let caller = keys(&self.config)
            .map_err(|problem| problem.message)
            .and_then(|keys| self.make(keys))?;
        loaded.changed = changed;
        loaded.caller = Some(Arc::clone(&caller));
        Ok(caller)
    }

    fn make(&self, keys: Keyring) -> Result<Arc<WebhookCaller>, String> {
        let caller = caller(&self.config, keys, self.own.clone());
        caller.map(Arc::new).map_err(|problem| problem.to_string())
    }
}

impl fmt::Debug for ReloadingCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReloadingCaller")
    }
}

impl Caller for ReloadingCaller {
    fn call<'a>(&'a self, request: &'a Request<'a>) -> Calling<'a> {
        Box::pin(async move {
            match self.caller() {
                Ok(caller) => caller.call(request).await,
                Err(why) => Reply::error(CallErrorKind::Unsendable, why),
            }
        })
    }

    fn refuses(&self, endpoint: &Endpoint) -> Option<String> {
        match self.caller() {
            Ok(caller) => caller.refuses(endpoint),
            Err(why) => Some(why),
        }
    }
}
