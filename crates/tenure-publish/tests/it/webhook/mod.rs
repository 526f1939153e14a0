//! Webhooks: signatures against the published libraries, the address policy against its own table,
//! and calls to local receivers that behave badly.

mod calls;
mod dialling;
mod interop;
mod limits;
mod policy;
mod sealing;
mod tls;
mod verifying;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_core::testing::{self, ManualClock};
use tenure_core::webhook::{Caller as _, Endpoint, EndpointSettings, Reply, Request};
use tenure_core::{Clock, Event, Fence, ItemId, Timestamp, TopicPattern};
use tenure_publish::webhook::{
    AddressPolicy, CallerConfig, Dialled, Dialler, Dialling, Keyring, Resolver, Resolving, Scheme,
    Secrets, SigningKey, TcpDialler, WebhookCaller,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use uuid::Uuid;

/// Time in every test that does not need the true time.
const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// The true time, which the published libraries use.
#[derive(Debug)]
struct Wall;

impl Clock for Wall {
    #[expect(
        clippy::disallowed_methods,
        reason = "the published libraries compare with the true time"
    )]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp::from_micros(0).after(since)
    }
}

fn keyring() -> Arc<Keyring> {
    // Fixed, so that one caller can open the secrets that another sealed.
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    Arc::new(Keyring::parse(&format!("test:{key}")).unwrap())
}

fn secrets() -> Secrets {
    Secrets::new(SigningKey::generate(Scheme::Hmac))
}

fn event() -> Event {
    Event::from_json("order.paid", r#"{"order":  7, "café": true}"#).unwrap()
}

fn endpoint(url: &str, secrets: &Secrets) -> Endpoint {
    let sample = testing::endpoint("billing", 7);
    Endpoint {
        sealed: secrets.seal(&keyring(), &sample.id).unwrap(),
        settings: EndpointSettings::new(url, vec![TopicPattern::any()]),
        ..sample
    }
}

fn request<'a>(endpoint: &'a Endpoint, event: &'a Event) -> Request<'a> {
    Request {
        endpoint,
        delivery: ItemId::new(17),
        message: Uuid::from_u128(0x0190_a1b2_c3d4_7000_8000_0000_0000_0001),
        event,
        attempt: 2,
        fence: Fence::new(42),
        sequence: None,
        time_limit: Duration::from_secs(20),
    }
}

/// Allows receivers on this machine, at any port.
fn local() -> AddressPolicy {
    AddressPolicy {
        allow_http: true,
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ports: vec![1..=65535],
        ..AddressPolicy::default()
    }
}

fn config() -> CallerConfig {
    let clock = Arc::new(ManualClock::new(NOW));
    CallerConfig {
        policy: local(),
        ..CallerConfig::new(keyring(), clock)
    }
}

fn caller() -> WebhookCaller {
    WebhookCaller::new(config()).unwrap()
}

/// Makes one call to this URL with new secrets.
async fn call(caller: &WebhookCaller, url: &str) -> Reply {
    let event = event();
    let endpoint = endpoint(url, &secrets());
    caller.call(&request(&endpoint, &event)).await
}

/// A request as received.
#[derive(Clone, Debug)]
struct Received {
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Number of the connection it came through.
    connection: usize,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        Some(all.find(|(other, _)| other == name)?.1.as_str())
    }

    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Behaviour of a receiver after a request.
#[derive(Clone, Debug)]
enum Answering {
    /// Writes this and waits for the next request.
    Text(String),
    /// Writes this and closes.
    AndClose(String),
    /// Writes the first, then repeats the second until the other end closes.
    Forever(String, Vec<u8>),
    /// Writes this, and then a byte every few milliseconds.
    Drip(String),
    /// Writes nothing.
    Silence,
}

impl Answering {
    fn status(status: u16) -> Self {
        Self::Text(format!("HTTP/1.1 {status} OK\r\ncontent-length: 0\r\n\r\n"))
    }
}

/// A receiver on this machine.
struct Receiver {
    address: SocketAddr,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct State {
    requests: Mutex<Vec<Received>>,
    /// Bytes of endless responses that were written.
    written: std::sync::atomic::AtomicUsize,
    closed: std::sync::atomic::AtomicUsize,
    change: Notify,
}

type Plan = Arc<dyn Fn(&Received) -> Answering + Send + Sync>;

impl Receiver {
    async fn start(plan: impl Fn(&Received) -> Answering + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let plan: Plan = Arc::new(plan);
        let inside = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((stream, _)) = listener.accept().await {
                connection += 1;
                tokio::spawn(serve(
                    stream,
                    connection,
                    Arc::clone(&plan),
                    Arc::clone(&inside),
                ));
            }
        });
        Self {
            address,
            state,
            task,
        }
    }

    async fn answering(answering: Answering) -> Self {
        Self::start(move |_| answering.clone()).await
    }

    fn url(&self) -> String {
        format!("http://{}/hooks?for=us", self.address)
    }

    fn all(&self) -> Vec<Received> {
        self.state.requests.lock().unwrap().clone()
    }

    fn only(&self) -> Received {
        let requests = self.all();
        assert_eq!(requests.len(), 1, "one request");
        requests[0].clone()
    }

    fn written(&self) -> usize {
        self.state.written.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Waits until the other end has closed this many connections.
    async fn closed(&self, count: usize) {
        loop {
            let change = self.state.change.notified();
            if self.state.closed.load(std::sync::atomic::Ordering::SeqCst) >= count {
                return;
            }
            change.await;
        }
    }

    /// Waits until this many requests have arrived.
    async fn received(&self, count: usize) {
        loop {
            let change = self.state.change.notified();
            if self.all().len() >= count {
                return;
            }
            change.await;
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, connection: usize, plan: Plan, state: Arc<State>) {
    use std::sync::atomic::Ordering::SeqCst;
    stream.set_nodelay(true).unwrap();
    while let Some(received) = read(&mut stream, connection).await {
        let answering = plan(&received);
        state.requests.lock().unwrap().push(received);
        state.change.notify_waiters();
        let is_last = !matches!(answering, Answering::Text(_));
        answer(&mut stream, answering, &state).await;
        if is_last {
            break;
        }
    }
    state.closed.fetch_add(1, SeqCst);
    state.change.notify_waiters();
}

async fn answer(stream: &mut TcpStream, answering: Answering, state: &State) {
    use std::sync::atomic::Ordering::SeqCst;
    let (head, repeated) = match answering {
        Answering::Text(text) | Answering::AndClose(text) => (text, None),
        Answering::Forever(head, part) => (head, Some((part, Duration::ZERO))),
        Answering::Drip(head) => (head, Some((b"x".to_vec(), Duration::from_millis(5)))),
        Answering::Silence => {
            let mut rest = [0; 16];
            // Only the end of the connection can follow.
            while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
            return;
        }
    };
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    let Some((part, pause)) = repeated else {
        return;
    };
    while let Ok(count) = stream.write(&part).await {
        state.written.fetch_add(count, SeqCst);
        if !pause.is_zero() {
            // Slow on purpose.
            tokio::time::sleep(pause).await;
        }
    }
}

async fn read(stream: &mut TcpStream, connection: usize) -> Option<Received> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Received {
        line,
        headers,
        body,
        connection,
    })
}

/// Resolver that returns these answers in order, and then always the last one.
#[derive(Debug, Default)]
struct ScriptedResolver(Mutex<VecDeque<Vec<IpAddr>>>);

impl ScriptedResolver {
    fn new<const N: usize>(answers: [&[&str]; N]) -> Arc<Self> {
        let told = Self::default();
        told.set(answers);
        Arc::new(told)
    }

    fn set<const N: usize>(&self, answers: [&[&str]; N]) {
        let read = |texts: &&[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        *self.0.lock().unwrap() = answers.iter().map(read).collect();
    }
}

impl Resolver for ScriptedResolver {
    fn resolve<'a>(&'a self, _name: &'a str) -> Resolving<'a> {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 {
            answers.pop_front().unwrap()
        } else {
            answers.front().cloned().unwrap_or_default()
        };
        Box::pin(async move { Ok(answer) })
    }
}

/// Dialler that records addresses and connects to a local receiver instead; without a receiver it
/// refuses the connection.
#[derive(Debug, Default)]
struct Recorder {
    receiver: Option<SocketAddr>,
    dialled: Mutex<Vec<SocketAddr>>,
}

impl Recorder {
    fn to(receiver: &Receiver) -> Arc<Self> {
        Arc::new(Self {
            receiver: Some(receiver.address),
            dialled: Mutex::default(),
        })
    }

    fn dialled(&self) -> Vec<SocketAddr> {
        self.dialled.lock().unwrap().clone()
    }
}

impl Dialler for Recorder {
    fn dial(&self, address: SocketAddr) -> Dialling<'_> {
        self.dialled.lock().unwrap().push(address);
        Box::pin(async move {
            let Some(receiver) = self.receiver else {
                return Err(std::io::ErrorKind::ConnectionRefused.into());
            };
            let Dialled { stream, .. } = TcpDialler.dial(receiver).await?;
            let peer = address;
            Ok(Dialled { stream, peer })
        })
    }
}
