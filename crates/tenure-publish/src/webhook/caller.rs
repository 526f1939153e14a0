//! Caller: makes one call within its time limit and returns the reply.
//!
//! It checks the URL, resolves the host name, checks all addresses of the name, connects to one of
//! them, and checks the address of the peer again. If the pool has an idle connection to a peer
//! that may still be called, the caller uses that connection instead. If the idle connection closes
//! at once and before any part of the response arrives, the peer was probably closing it already:
//! the caller sends the request once more on a new connection, so a receiver may see one attempt
//! twice, under the same id and fence. If the connection closes later, the receiver had the
//! request, and the attempt has failed.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request as HttpRequest};
use tenure_core::webhook::{
    CallError, CallErrorKind, Caller, Calling, Endpoint, Reply, Request, Timings,
};
use tenure_core::{Clock, Invalid, brief_duration};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::answer::{Answer, Reading};
use super::connection::{Connection, ConnectionError};
use super::pool::Pool;
use super::prepared::{Prepared, PreparedCache, unsendable};
use super::{
    AddressPolicy, Dialled, Dialler, Keyring, Resolver, SystemResolver, Target, TcpDialler,
    call_error, tls,
};

/// Maximum number of addresses to which a call tries to connect; it checks all addresses.
const DIALLED_MAX: usize = 8;
/// Limit for a round trip. If a reused connection closes within this time, the peer was already
/// closing it when the request was sent, and the caller sends the request again. If it closes
/// later, the peer had the request, and the caller does not send it again.
const CROSSED_MAX: Duration = Duration::from_secs(1);

/// Configuration of a [`WebhookCaller`].
#[derive(Clone, Debug)]
pub struct CallerConfig {
    /// Addresses that may be called.
    pub policy: AddressPolicy,
    /// Decrypts the secrets of endpoints.
    pub keyring: Arc<Keyring>,
    /// Source of the timestamp of a call.
    pub clock: Arc<dyn Clock>,
    /// Limit for resolving, connecting and the TLS handshake together. Default: 5 s.
    pub connect_timeout: Duration,
    /// Value of the `user-agent` header. Default: `tenure/` and the version.
    pub user_agent: String,
    /// Certificate authorities to trust besides those of the system, in PEM. Default: none.
    pub authorities: String,
    /// Resolves host names. Default: the operating system.
    pub resolver: Arc<dyn Resolver>,
    /// Opens connections. Default: TCP.
    pub dialler: Arc<dyn Dialler>,
}

impl CallerConfig {
    /// Default configuration.
    pub fn new(keyring: Arc<Keyring>, clock: Arc<dyn Clock>) -> Self {
        Self {
            policy: AddressPolicy::default(),
            keyring,
            clock,
            connect_timeout: Duration::from_secs(5),
            user_agent: concat!("tenure/", env!("CARGO_PKG_VERSION")).to_owned(),
            authorities: String::new(),
            resolver: Arc::new(SystemResolver),
            dialler: Arc::new(TcpDialler),
        }
    }
}

/// Calls endpoints by HTTP. Use one per process: it keeps connections open between calls.
///
/// | a call | has |
/// |---|---|
/// | body | the payload, byte for byte as enqueued |
/// | `content-type` | that of the event's headers; else JSON, or `application/octet-stream` |
/// | `webhook-id`, `-timestamp`, `-signature` | as in Standard Webhooks |
/// | `webhook-topic` | that of the event |
/// | `webhook-attempt`, `-fence`, `-sequence`, `-tenure-signature` | see [verify](super::verify) |
/// | `traceparent`, `tracestate` | those of the event, if the first is valid |
/// | the endpoint's own headers | as registered, decrypted |
///
/// No other header of the event is sent, because headers may be meant for handlers only. A redirect
/// counts as a failure and is not followed.
pub struct WebhookCaller {
    policy: RwLock<Arc<AddressPolicy>>,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
    connect_timeout: Duration,
    user_agent: HeaderValue,
    resolver: Arc<dyn Resolver>,
    dialler: Arc<dyn Dialler>,
    tls: TlsConnector,
    pool: Pool,
    cache: PreparedCache,
}

impl WebhookCaller {
    /// Creates a caller; reads the system's certificate authorities.
    ///
    /// # Errors
    /// The authorities are not PEM, or the user agent is not valid in a header.
    pub fn new(config: CallerConfig) -> Result<Self, Invalid> {
        let user_agent = HeaderValue::from_str(&config.user_agent).map_err(|_cause| {
            let found = format!("{:?}", config.user_agent);
            Invalid::new("user agent", found, "printable ASCII characters")
        })?;
        Ok(Self {
            policy: RwLock::new(Arc::new(config.policy)),
            keyring: config.keyring,
            clock: config.clock,
            connect_timeout: config.connect_timeout,
            user_agent,
            resolver: config.resolver,
            dialler: config.dialler,
            tls: tls::connector(&config.authorities)?,
            pool: Pool::default(),
            cache: PreparedCache::default(),
        })
    }

    /// Replaces the policy; it applies to open connections, too.
    pub fn set_policy(&self, policy: AddressPolicy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    fn policy(&self) -> Arc<AddressPolicy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes idle connections. Connections idle for too long are closed when a call ends; use this
    /// before a long time without calls.
    pub fn close_idle(&self) {
        self.pool.clear();
    }

    async fn exchange(&self, request: &Request<'_>, trace: &mut Trace) -> Result<(), CallError> {
        let policy = self.policy();
        let target = policy.check_url(&request.endpoint.settings.url)?;
        let prepared = self
            .cache
            .get(request.endpoint, &self.keyring)
            .map_err(|invalid| unsendable(&invalid.to_string()))?;
        trace.prepared = Some(Arc::clone(&prepared));
        // The cause is dropped, because it could quote the payload.
        let body = request.event.payload_bytes();
        let body =
            body.map_err(|_cause| unsendable("the payload is marked as base64 but is not"))?;
        let body = Bytes::from(body);
        let headers = prepared.headers(request, &body, self.clock.now())?;
        let post = || self.post(&target, headers.clone(), body.clone());

        if let Some(connection) = self.reuse(&policy, &target).await {
            trace.peer = Some(connection.peer.ip());
            match self.send(connection, post(), &target, trace).await {
                Err(SendFailure::Unanswered(_)) => {
                    trace.peer = None;
                    trace.is_sent = false;
                }
                Err(SendFailure::Final(error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
        let connecting = timeout(self.connect_timeout, self.connect(&policy, &target, trace)).await;
        let connection = connecting.unwrap_or_else(|_| Err(trace.slow(self.connect_timeout)))?;
        match self.send(connection, post(), &target, trace).await {
            Err(SendFailure::Unanswered(error) | SendFailure::Final(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    fn post(&self, target: &Target, headers: HeaderMap, body: Bytes) -> HttpRequest<Full<Bytes>> {
        let mut request = HttpRequest::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = target.path().clone();
        *request.headers_mut() = headers;
        let headers = request.headers_mut();
        headers.insert(HOST, target.authority().clone());
        headers.insert(USER_AGENT, self.user_agent.clone());
        request
    }

    /// Takes an idle connection whose peer may still be called.
    async fn reuse(&self, policy: &AddressPolicy, target: &Target) -> Option<Connection> {
        while let Some(mut connection) = self.pool.take(target) {
            let is_allowed = policy.check_target(target, connection.peer.ip()).is_ok();
            if is_allowed && connection.is_free().await {
                return Some(connection);
            }
        }
        None
    }

    /// Opens a connection to a checked address.
    async fn connect(
        &self,
        policy: &AddressPolicy,
        target: &Target,
        trace: &mut Trace,
    ) -> Result<Connection, CallError> {
        let addresses = self.addresses(policy, target, trace).await?;
        let dialled = self.dial(&addresses).await?;
        policy.check_target(target, dialled.peer.ip())?;
        trace.peer = Some(dialled.peer.ip().to_canonical());
        trace.timings.connect = Some(trace.started.elapsed());
        let mut stream = dialled.stream;
        if target.is_encrypted() {
            stream = tls::encrypt(&self.tls, target, stream).await?;
            trace.timings.tls = Some(trace.started.elapsed());
        }
        let opened = Connection::open(stream, dialled.peer).await;
        opened.map_err(|error| broken(&error))
    }

    /// Returns the addresses of the target; fails if one of them is forbidden. Otherwise a name
    /// could pass this check with a harmless address and be called at another one.
    async fn addresses(
        &self,
        policy: &AddressPolicy,
        target: &Target,
        trace: &mut Trace,
    ) -> Result<Vec<SocketAddr>, CallError> {
        let addresses: Vec<IpAddr> = match (target.name(), target.literal()) {
            (Some(name), _) => {
                let resolved = self.resolver.resolve(name).await;
                trace.timings.dns = Some(trace.started.elapsed());
                resolved.map_err(|error| {
                    let text = format!("the host name could not be resolved ({})", error.kind());
                    call_error(CallErrorKind::Dns, text)
                })?
            }
            (None, literal) => literal.into_iter().collect(),
        };
        if addresses.is_empty() {
            return Err(call_error(
                CallErrorKind::Dns,
                "the host name has no address",
            ));
        }
        let checked = addresses
            .iter()
            .map(|one| policy.check_target(target, *one));
        checked.collect()
    }

    /// Connects to the first address that accepts. Each address gets a share of the time, so that
    /// an unresponsive one leaves time for the others.
    async fn dial(&self, addresses: &[SocketAddr]) -> Result<Dialled, CallError> {
        let end = Instant::now() + self.connect_timeout;
        let addresses = addresses.get(..DIALLED_MAX).unwrap_or(addresses);
        let mut text = "could not connect".to_owned();
        for (number, address) in addresses.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now());
            let untried = u32::try_from(addresses.len() - number).unwrap_or(u32::MAX);
            match timeout(left / untried, self.dialler.dial(*address)).await {
                Ok(Ok(dialled)) => return Ok(dialled),
                Ok(Err(error)) => text = format!("could not connect ({})", error.kind()),
                Err(_) => "could not connect (timed out)".clone_into(&mut text),
            }
        }
        Err(call_error(CallErrorKind::Connect, text))
    }

    /// Sends the request and reads the part of the response that is stored.
    async fn send(
        &self,
        mut connection: Connection,
        request: HttpRequest<Full<Bytes>>,
        target: &Target,
        trace: &mut Trace,
    ) -> Result<(), SendFailure> {
        trace.is_sent = true;
        let sent_at = Instant::now();
        let sent = connection.send(request).await;
        let answer = sent.map_err(|error| {
            let failure = if error.is_closed && sent_at.elapsed() < CROSSED_MAX {
                SendFailure::Unanswered
            } else {
                SendFailure::Final
            };
            failure(broken(&error))
        })?;
        trace.timings.first_byte = Some(trace.started.elapsed());
        let (head, mut body) = answer.into_parts();
        let now = self.clock.now();
        let status = head.status.as_u16();
        let answer = Answer::new(status, &head.headers, trace.masked(), now);
        let answer = trace.answer.insert(answer);
        loop {
            let part = connection.read(&mut body).await;
            let Some(frame) = part.map_err(|error| SendFailure::Final(broken(&error)))? else {
                break;
            };
            if let Some(part) = frame.data_ref()
                && answer.push(part) == Reading::Enough
            {
                // Dropping the connection closes it; the rest is not read.
                return Ok(());
            }
        }
        if connection.is_free().await {
            self.pool.put(target, connection);
        }
        Ok(())
    }
}

impl Caller for WebhookCaller {
    fn call<'a>(&'a self, request: &'a Request<'a>) -> Calling<'a> {
        Box::pin(async move {
            let mut trace = Trace::new();
            let exchange = Box::pin(self.exchange(request, &mut trace));
            let result = timeout(request.time_limit, exchange).await;
            let result = result.unwrap_or_else(|_| Err(trace.slow(request.time_limit)));
            trace.into_reply(result)
        })
    }

    fn refuses(&self, endpoint: &Endpoint) -> Option<String> {
        let opened = self.cache.get(endpoint, &self.keyring);
        opened.err().map(|invalid| invalid.to_string())
    }
}

impl fmt::Debug for WebhookCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookCaller")
            .field("keyring", &self.keyring)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

enum SendFailure {
    /// The connection closed at once, before any response; the request may be sent again.
    Unanswered(CallError),
    /// Part of a response had arrived, or the receiver had had the request for a while.
    Final(CallError),
}

/// Progress of a call, kept even if it fails.
struct Trace {
    started: Instant,
    timings: Timings,
    peer: Option<IpAddr>,
    is_sent: bool,
    prepared: Option<Arc<Prepared>>,
    answer: Option<Answer>,
}

impl Trace {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            timings: Timings::default(),
            peer: None,
            is_sent: false,
            prepared: None,
            answer: None,
        }
    }

    fn masked(&self) -> &[Box<[u8]>] {
        self.prepared.as_ref().map_or(&[], |one| &one.masked)
    }

    /// Timeout error that names the part of the call that was under way.
    fn slow(&self, limit: Duration) -> CallError {
        let limit = brief_duration(limit);
        let text = match (&self.answer, self.peer) {
            (Some(answer), _) => {
                let status = answer.status;
                format!("it answered {status}, but the response did not end within {limit}")
            }
            (None, Some(_)) if self.is_sent => format!("it did not answer within {limit}"),
            (None, _) => format!("not connected within {limit}"),
        };
        call_error(CallErrorKind::Timeout, text)
    }

    fn into_reply(self, result: Result<(), CallError>) -> Reply {
        let status = self.answer.as_ref().map_or(0, |answer| answer.status);
        let mut reply = match result {
            Ok(()) => Reply::status(status),
            Err(error) => Reply::error(error.kind, error.text),
        };
        reply.peer = self.peer;
        reply.timings = self.timings;
        reply.timings.total = self.started.elapsed();
        if let Some(answer) = self.answer {
            let masked = self.prepared.as_ref().map_or(&[][..], |one| &one.masked);
            answer.fill(&mut reply, masked);
        }
        reply
    }
}

fn broken(error: &ConnectionError) -> CallError {
    let text = format!("the connection failed: {}", error.text);
    call_error(CallErrorKind::Broken, text)
}
