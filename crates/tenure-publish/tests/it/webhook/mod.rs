//! Webhooks: signatures against the published libraries, the address policy against a table of its
//! own, and calls to receivers on this machine that behave badly.

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

/// When everything happens, unless a test needs the true time.
const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// The true time: the published libraries know no other.
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
    // Fixed, so that what one caller seals another one opens.
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

/// Receivers on this machine may be called, at any port.
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

/// One call to this address with secrets of its own.
async fn call(caller: &WebhookCaller, url: &str) -> Reply {
    let event = event();
    let endpoint = endpoint(url, &secrets());
    caller.call(&request(&endpoint, &event)).await
}

/// A request as it came.
#[derive(Clone, Debug)]
struct Received {
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// The how-manieth connection it came through.
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

/// What a receiver does with a request.
#[derive(Clone, Debug)]
enum Answering {
    /// Writes this and waits for the next one.
    Text(String),
    /// Writes this and closes.
    AndClose(String),
    /// Writes this, and then this again and again until the other end has had enough.
    Forever(String, Vec<u8>),
    /// Writes this, and then a byte every few milliseconds.
    Drip(String),
    /// Says nothing.
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
    seen: Mutex<Vec<Received>>,
    /// Bytes that the other end has taken.
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

    fn seen(&self) -> Vec<Received> {
        self.state.seen.lock().unwrap().clone()
    }

    fn only(&self) -> Received {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "one request");
        seen[0].clone()
    }

    fn written(&self) -> usize {
        self.state.written.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Waits until so many connections were closed by the other end.
    async fn closed(&self, count: usize) {
        loop {
            let change = self.state.change.notified();
            if self.state.closed.load(std::sync::atomic::Ordering::SeqCst) >= count {
                return;
            }
            change.await;
        }
    }

    /// Waits until so many requests have come.
    async fn received(&self, count: usize) {
        loop {
            let change = self.state.change.notified();
            if self.seen().len() >= count {
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
        state.seen.lock().unwrap().push(received);
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
            // The end of the connection is the only thing that can come.
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
            // A receiver that is slow on purpose.
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

/// Answers with what it was told to, one answer after the other, the last one for ever.
#[derive(Debug, Default)]
struct Told(Mutex<VecDeque<Vec<IpAddr>>>);

impl Told {
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

impl Resolver for Told {
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

/// Writes down whom it is told to dial, and leads to a receiver on this machine instead; without
/// one nobody takes the connection.
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
