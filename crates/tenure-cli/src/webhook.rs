//! What webhooks need of this program's configuration: the keys, the address policy, the caller.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tenure::webhook::{
    AddressPolicy, CallErrorKind, Caller, CallerConfig, Calling, Endpoint, EndpointState, Keyring,
    Reply, Request, Secrets, WebhookCaller,
};
use tenure::{Invalid, SystemClock, Tenure};
use tokio::time::Instant;

use crate::config::{Config, WebhookConfig};
use crate::exit::Exit;
use crate::output::Output;
use crate::problem::{Problem, Stop};

/// The name of the first key of a file that is made here.
const FIRST_KEY: &str = "k1";
/// No file of keys is longer.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// How long a name may take to be resolved.
const RESOLVE_MAX: Duration = Duration::from_secs(5);

/// The keys that secrets are sealed with: those of the environment, else those of the file.
pub(crate) fn keys(config: &WebhookConfig) -> Result<Keyring, Problem> {
    found(config)?.ok_or_else(|| {
        let file = config.key_file.display();
        let message = format!("there is no key to open secrets with: {file} is not there");
        Problem::new(Exit::Failed, message).hint(OTHER_KEY)
    })
}

/// How to name the right key.
const OTHER_KEY: &str = "webhook.key_file names the file that `tenure endpoints add` made, \
                         TENURE_WEBHOOK_KEY holds what is in it";

/// The keys, if there are any.
pub(crate) fn found(config: &WebhookConfig) -> Result<Option<Keyring>, Problem> {
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
            let message = format!("the keys in {} cannot be read", file.display());
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

/// Whether others than its owner can read the file of keys.
pub(crate) fn is_open_to_others(config: &WebhookConfig) -> bool {
    let mode = std::fs::metadata(&config.key_file).map(|it| it.permissions().mode());
    config.key.is_none() && mode.is_ok_and(|mode| mode & 0o077 != 0)
}

/// The keys; made, and said so, when there are none and no endpoint needs others.
pub(crate) async fn keys_or_made(
    config: &WebhookConfig,
    tenure: &Tenure,
    output: &Output,
) -> Result<Keyring, Stop> {
    if let Some(keys) = found(config)? {
        return Ok(keys);
    }
    let file = config.key_file.display();
    let endpoints = tenure.endpoints_by_number().await?;
    let is_there = |endpoint: &Endpoint| !matches!(endpoint.state, EndpointState::Removed { .. });
    let sealed = endpoints.values().filter(|endpoint| is_there(endpoint));
    if let Some(other) = sealed.map(|endpoint| &endpoint.id).next() {
        let message = format!(
            "{file} is not there, and {other} was sealed with another key: with a new one, who \
             sends could open the one or the other"
        );
        return Err(Problem::new(Exit::Failed, message).hint(OTHER_KEY).into());
    }
    let line = Keyring::generate_line(FIRST_KEY)?;
    write_new(&config.key_file, &line).map_err(|error| {
        let message = format!("the key cannot be written to {file}");
        let problem = Problem::new(Exit::Failed, message).cause(error);
        problem.hint("set webhook.key_file to a place that can be written")
    })?;
    output.note(format_args!(
        "made {file}, the key that secrets are sealed with: keep it safe, and give it to every \
         process that sends"
    ));
    Ok(Keyring::parse(&line)?)
}

/// Writes a file that only its owner reads, and that was not there.
fn write_new(file: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut open = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    writeln!(
        open,
        "# Keys of Tenure: the first seals, all open. Keep it secret.\n{line}"
    )?;
    open.sync_all()
}

/// The secrets of an endpoint.
pub(crate) fn open(endpoint: &Endpoint, keys: &Keyring) -> Result<Secrets, Problem> {
    Secrets::open(&endpoint.sealed, keys, &endpoint.id).map_err(|problem| {
        let message = format!("the secrets of {} do not open: {problem}", endpoint.id);
        Problem::new(Exit::Failed, message).hint(OTHER_KEY)
    })
}

/// Which addresses may be called, own doors aside.
fn policy(config: &WebhookConfig) -> AddressPolicy {
    AddressPolicy {
        allow_http: config.allow_http,
        // They were read as networks when the configuration was.
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

/// What may be called here, and what allows more.
fn allowing(config: &WebhookConfig) -> String {
    let ports: Vec<_> = config.ports.iter().map(ToString::to_string).collect();
    let scheme = if config.allow_http {
        "http and https"
    } else {
        "https"
    };
    format!(
        "here {scheme} may be called, at the ports {}; webhook.allow_http, webhook.ports, \
         webhook.allow (networks) and webhook.allow_hosts (names) allow more",
        ports.join(", ")
    )
}

/// Refuses an address that may not be called: now, so that it does not only fail later. What its
/// name means is asked, and asked again at every call.
pub(crate) async fn check_address(config: &WebhookConfig, url: &str) -> Result<(), Problem> {
    let policy = policy(config);
    let told = |text: &str| {
        Problem::new(
            Exit::Usage,
            format!("the endpoint cannot be called: {text}"),
        )
    };
    let refused = |text: &str| told(text).hint(allowing(config));
    let target = policy.check_url(url).map_err(|error| {
        // No setting helps an address that is wrong whatever is allowed.
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
            Err(_) => told(&error.text),
        }
    })?;
    let host = target.host();
    // As at the call: the full stop at the end of a name says nothing.
    let bare = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_named = |name: &String| bare(name) == host;
    let is_literal = host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok();
    if is_literal || policy.allow_hosts.iter().any(is_named) {
        return Ok(());
    }
    let asked = tokio::net::lookup_host((host.as_str(), target.port()));
    let found = match tokio::time::timeout(RESOLVE_MAX, asked).await {
        Ok(Ok(found)) => found.collect::<Vec<_>>(),
        Ok(Err(_)) => Vec::new(),
        Err(_) => return Err(told("its name was not resolved within 5s")),
    };
    if found.is_empty() {
        return Err(told("its name has no address"));
    }
    if found.iter().any(|address| !policy.check_addr(address.ip())) {
        let text = "its name has a network address that may not be called";
        return Err(refused(text));
    }
    Ok(())
}

/// What calls endpoints.
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

/// Our own doors, which no endpoint leads to: the database, and where we listen.
pub(crate) async fn own_doors(config: &Config) -> Vec<SocketAddr> {
    let mut own = vec![config.listen];
    if let Some(door) = config.database.door() {
        let asked = tokio::net::lookup_host(door);
        if let Ok(Ok(found)) = tokio::time::timeout(RESOLVE_MAX, asked).await {
            own.extend(found);
        }
    }
    own
}

/// Calls endpoints with the keys as they are now: a file that is made or changed while we run is
/// read.
pub(crate) struct LateCaller {
    config: WebhookConfig,
    own: Vec<SocketAddr>,
    state: Mutex<Late>,
}

#[derive(Default)]
struct Late {
    caller: Option<Arc<WebhookCaller>>,
    /// When the file was changed that the caller has its keys from.
    changed: Option<SystemTime>,
    looked: Option<Instant>,
}

/// How often the file of keys is looked at.
const LOOK: Duration = Duration::from_secs(1);

impl LateCaller {
    pub(crate) fn new(config: WebhookConfig, own: Vec<SocketAddr>) -> Self {
        Self {
            config,
            own,
            state: Mutex::default(),
        }
    }

    /// The caller with the keys of the moment; or why there is none.
    fn caller(&self) -> Result<Arc<WebhookCaller>, String> {
        let mut late = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(caller) = &late.caller
            && late.looked.is_some_and(|looked| looked.elapsed() < LOOK)
        {
            return Ok(Arc::clone(caller));
        }
        let changed = std::fs::metadata(&self.config.key_file).and_then(|it| it.modified());
        let changed = changed.ok().filter(|_| self.config.key.is_none());
        late.looked = Some(Instant::now());
        if let Some(caller) = &late.caller
            && (changed == late.changed || changed.is_none())
        {
            return Ok(Arc::clone(caller));
        }
        if is_open_to_others(&self.config) {
            let file = self.config.key_file.display();
            tracing::warn!(%file, "others than its owner can read the keys of webhooks");
        }
        let made = keys(&self.config)
            .map_err(|problem| problem.message)
            .and_then(|keys| self.make(keys))?;
        late.changed = changed;
        late.caller = Some(Arc::clone(&made));
        Ok(made)
    }

    fn make(&self, keys: Keyring) -> Result<Arc<WebhookCaller>, String> {
        let caller = caller(&self.config, keys, self.own.clone());
        caller.map(Arc::new).map_err(|problem| problem.to_string())
    }
}

impl fmt::Debug for LateCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateCaller")
    }
}

impl Caller for LateCaller {
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
