//! Caller: makes one call, within its time, and says what came back.
//!
//! The address is judged, its name is resolved, all addresses of it are judged, one of them is
//! dialled, and who is at the other end is judged again. A connection that is still open from an
//! earlier call is used instead, if who is at its other end may be called now. Should it turn out
//! to be closed before any of the answer has come, the request goes out once more on a new
//! connection: a receiver may so see one attempt twice, under the same id and fence. That is for
//! connections that were being closed when they were used; of one that is closed later the receiver
//! had the request, and the attempt has failed.

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
use super::connection::{Connection, Ended};
use super::pool::Pool;
use super::prepared::{Cache, Prepared, unsendable};
use super::{
    AddressPolicy, Dialled, Dialler, Keyring, Resolver, SystemResolver, Target, TcpDialler, tls,
};

/// Of the addresses of a name at most so many are tried; all are judged.
const DIALLED_MAX: usize = 8;
/// A connection that was being closed when a request was sent on it is found closed within a round
/// trip. One that is closed later was used: its request is not sent again.
const CROSSED_MAX: Duration = Duration::from_secs(1);

/// What a caller needs.
#[derive(Clone, Debug)]
pub struct CallerConfig {
    /// Which addresses may be called.
    pub policy: AddressPolicy,
    /// Opens the secrets of endpoints.
    pub keyring: Arc<Keyring>,
    /// Says when a call is made.
    pub clock: Arc<dyn Clock>,
    /// How long it may take until a connection stands, name and encryption included; 5 s unless
    /// set.
    pub connect_timeout: Duration,
    /// What we call ourselves; `tenure/` and the version unless set.
    pub user_agent: String,
    /// Certificate authorities to believe beside those of the system, in PEM; none unless set.
    pub authorities: String,
    /// Finds addresses; by the system unless set.
    pub resolver: Arc<dyn Resolver>,
    /// Opens connections; by TCP unless set.
    pub dialler: Arc<dyn Dialler>,
}

impl CallerConfig {
    /// All as usual.
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

/// Calls endpoints by HTTP. One for a process: it keeps connections open between calls.
///
/// | a call | has |
/// |---|---|
/// | body | the payload, byte for byte as it was enqueued |
/// | `content-type` | that of the event's headers; else JSON, or `application/octet-stream` |
/// | `webhook-id`, `-timestamp`, `-signature` | as the Standard Webhooks text says |
/// | `webhook-topic` | that of the event |
/// | `webhook-attempt`, `-fence`, `-sequence`, `-tenure-signature` | see [verify](super::verify) |
/// | the endpoint's own headers | as they were sealed |
///
/// No other header of the event is sent: what is for our own handlers is not for everybody.
/// A redirect is an answer like any other and is not followed.
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
    cache: Cache,
}

impl WebhookCaller {
    /// A caller. It reads the system's certificate authorities.
    ///
    /// # Errors
    /// The authorities are no PEM, or the user agent is none that can be sent.
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
            cache: Cache::default(),
        })
    }

    /// Judges by this policy from now on, connections that are open as well.
    pub fn set_policy(&self, policy: AddressPolicy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    fn policy(&self) -> Arc<AddressPolicy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes the connections that wait for another call. Those that wait too long are closed when
    /// a call ends; who will make no calls for a while closes them by this.
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
        // The words of the error could quote the payload.
        let body = request.event.payload_bytes();
        let body = body.map_err(|_cause| unsendable("the payload says base64 and is not"))?;
        let body = Bytes::from(body);
        let headers = prepared.headers(request, &body, self.clock.now())?;
        let post = || self.post(&target, headers.clone(), body.clone());

        if let Some(connection) = self.reuse(&policy, &target).await {
            trace.peer = Some(connection.peer.ip());
            match self.send(connection, post(), &target, trace).await {
                Err(Failed::Silently(_)) => {
                    trace.peer = None;
                    trace.is_talking = false;
                }
                Err(Failed::Late(error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
        let connecting = timeout(self.connect_timeout, self.connect(&policy, &target, trace)).await;
        let connection = connecting.unwrap_or_else(|_| Err(trace.slow(self.connect_timeout)))?;
        match self.send(connection, post(), &target, trace).await {
            Err(Failed::Silently(error) | Failed::Late(error)) => Err(error),
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

    /// An open connection whose other end may be called now.
    async fn reuse(&self, policy: &AddressPolicy, target: &Target) -> Option<Connection> {
        while let Some(mut connection) = self.pool.take(target) {
            let is_allowed = policy.check_target(target, connection.peer.ip()).is_ok();
            if is_allowed && connection.is_free().await {
                return Some(connection);
            }
        }
        None
    }

    /// A new connection, to an address that was judged.
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
        opened.map_err(|ended| broken(&ended))
    }

    /// The addresses of the target. One that may not be called forbids all: else a name could have
    /// an innocent address for the judge and another one for later.
    async fn addresses(
        &self,
        policy: &AddressPolicy,
        target: &Target,
        trace: &mut Trace,
    ) -> Result<Vec<SocketAddr>, CallError> {
        let found: Vec<IpAddr> = match (target.name(), target.literal()) {
            (Some(name), _) => {
                let found = self.resolver.resolve(name).await;
                trace.timings.dns = Some(trace.started.elapsed());
                found.map_err(|error| {
                    let text = format!("its name could not be resolved ({})", error.kind());
                    error_of(CallErrorKind::Dns, text)
                })?
            }
            (None, literal) => literal.into_iter().collect(),
        };
        if found.is_empty() {
            return Err(error_of(CallErrorKind::Dns, "its name has no address"));
        }
        let judged = found.iter().map(|one| policy.check_target(target, *one));
        judged.collect()
    }

    /// Connects to the first address that takes the connection. Each has a share of the time, so
    /// that a silent one does not cost the others theirs.
    async fn dial(&self, addresses: &[SocketAddr]) -> Result<Dialled, CallError> {
        let end = Instant::now() + self.connect_timeout;
        let addresses = addresses.get(..DIALLED_MAX).unwrap_or(addresses);
        let mut text = "nobody took the connection".to_owned();
        for (number, address) in addresses.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now());
            let untried = u32::try_from(addresses.len() - number).unwrap_or(u32::MAX);
            match timeout(left / untried, self.dialler.dial(*address)).await {
                Ok(Ok(dialled)) => return Ok(dialled),
                Ok(Err(error)) => text = format!("nobody took the connection ({})", error.kind()),
                Err(_) => "nobody took the connection in time".clone_into(&mut text),
            }
        }
        Err(error_of(CallErrorKind::Connect, text))
    }

    /// Sends the request and reads the answer, as far as it is kept.
    async fn send(
        &self,
        mut connection: Connection,
        request: HttpRequest<Full<Bytes>>,
        target: &Target,
        trace: &mut Trace,
    ) -> Result<(), Failed> {
        trace.is_talking = true;
        let sent_at = Instant::now();
        let sent = connection.send(request).await;
        let answer = sent.map_err(|ended| {
            let failed = if ended.is_silent && sent_at.elapsed() < CROSSED_MAX {
                Failed::Silently
            } else {
                Failed::Late
            };
            failed(broken(&ended))
        })?;
        trace.timings.first_byte = Some(trace.started.elapsed());
        let (head, mut body) = answer.into_parts();
        let now = self.clock.now();
        let status = head.status.as_u16();
        let answer = Answer::new(status, &head.headers, trace.hidden(), now);
        let answer = trace.answer.insert(answer);
        loop {
            let part = connection.read(&mut body).await;
            let Some(frame) = part.map_err(|ended| Failed::Late(broken(&ended)))? else {
                break;
            };
            if let Some(part) = frame.data_ref()
                && answer.push(part) == Reading::Enough
            {
                // Closed with what is left of it unread.
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

/// Why a request got no whole answer.
enum Failed {
    /// The connection ended at once, before there was an answer.
    Silently(CallError),
    /// Something had come, or the receiver had had the request for a while.
    Late(CallError),
}

/// What is known of a call so far, however it ends.
struct Trace {
    started: Instant,
    timings: Timings,
    peer: Option<IpAddr>,
    /// Whether a request went out.
    is_talking: bool,
    prepared: Option<Arc<Prepared>>,
    answer: Option<Answer>,
}

impl Trace {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            timings: Timings::default(),
            peer: None,
            is_talking: false,
            prepared: None,
            answer: None,
        }
    }

    fn hidden(&self) -> &[Box<[u8]>] {
        self.prepared.as_ref().map_or(&[], |one| &one.hidden)
    }

    /// That it took too long, and how far it had come.
    fn slow(&self, limit: Duration) -> CallError {
        let limit = brief_duration(limit);
        let text = match (&self.answer, self.peer) {
            (Some(answer), _) => {
                let status = answer.status;
                format!("it answered {status}, and the answer did not end within {limit}")
            }
            (None, Some(_)) if self.is_talking => format!("it did not answer within {limit}"),
            (None, _) => format!("no connection stood within {limit}"),
        };
        error_of(CallErrorKind::Timeout, text)
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
            let hidden = self.prepared.as_ref().map_or(&[][..], |one| &one.hidden);
            answer.fill(&mut reply, hidden);
        }
        reply
    }
}

fn broken(ended: &Ended) -> CallError {
    let text = format!("the exchange broke off: {}", ended.text);
    error_of(CallErrorKind::Broken, text)
}

fn error_of(kind: CallErrorKind, text: impl Into<String>) -> CallError {
    let text = text.into();
    CallError { kind, text }
}
