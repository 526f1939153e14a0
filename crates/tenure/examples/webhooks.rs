//! Webhooks without a separate server: an order and its event in one transaction, a worker that
//! creates a delivery for an endpoint, a sender that calls it, and a receiver in the same process
//! that verifies the call. Run it with `cargo run -p tenure --example webhooks`.

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use tenure::operate::Filter;
use tenure::publish::TopicPattern;
use tenure::store::{Clock as _, SystemClock};
use tenure::webhook::{
    AddressPolicy, CallerConfig, EndpointId, EndpointSettings, Keyring, NewEndpoint, Scheme,
    Secrets, SigningKey, WebhookCaller, verify::Verifier,
};
use tenure::{Event, State, Tenure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}

/// Runs the example and prints its steps to `out`.
pub(crate) async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    let tenure = Tenure::open(&format!("sqlite://{}", path.display())).await?;

    // The secret of the endpoint is sealed with a key that is not in the database.
    let receiver = TcpListener::bind("127.0.0.1:0").await?;
    let address = receiver.local_addr()?;
    let keyring = Keyring::parse(&Keyring::generate_line("2027")?)?;
    let key = SigningKey::generate(Scheme::Hmac);
    let id = EndpointId::new("billing")?;
    let url = format!("http://{address}/hooks");
    let endpoint = NewEndpoint {
        sealed: Secrets::new(key.clone()).seal(&keyring, &id)?,
        settings: EndpointSettings::new(url, vec![TopicPattern::new("order.*")?]),
        id,
    };
    tenure.add_endpoint(&endpoint).await?;

    // Calls to this machine must be allowed explicitly.
    let mut config = CallerConfig::new(Arc::new(keyring), Arc::new(SystemClock));
    config.policy = AddressPolicy {
        allow_http: true,
        allow: vec!["127.0.0.0/8".parse()?],
        ports: vec![address.port()..=address.port()],
        ..AddressPolicy::default()
    };
    let caller = Arc::new(WebhookCaller::new(config)?);
    let sender = tenure.sender(caller).start().await?;
    let worker = tenure.worker().fan_out().wakes(&sender).start().await?;

    // The application's own connection and table, in the same file.
    let mut shop = rusqlite::Connection::open(&path)?;
    shop.execute_batch("create table orders (id integer primary key, total integer not null)")?;
    let tx = shop.transaction()?;
    tx.execute("insert into orders (id, total) values (7, 990)", [])?;
    tenure.enqueue(&tx, Event::new("order.paid", &7)?)?;
    tx.commit()?;
    tenure.wake();
    writeln!(out, "order 7 was committed, and its event with it")?;

    let (stream, _) = receiver.accept().await?;
    let (headers, body) = take(stream).await?;
    let verifier = Verifier::new([key.expose()])?;
    let call = verifier.verify(headers, &body, SystemClock.now())?;
    let body = String::from_utf8(body)?;
    let attempt = call.attempt.unwrap_or_default();
    writeln!(out, "the receiver believes it: {body}, attempt {attempt}")?;

    let delivered = Filter {
        state: Some(State::Done),
        ..Filter::default()
    };
    let delivery = loop {
        let page = tenure.deliveries(&delivered, 1).await?;
        if let Some(record) = page.records.into_iter().next() {
            break record;
        }
        tokio::task::yield_now().await;
    };
    for attempt in tenure.attempts(delivery.id).await? {
        let status = attempt.call.and_then(|call| call.status).unwrap_or(0);
        let outcome = attempt.outcome.as_str();
        writeln!(out, "{}: {outcome} with {status}", delivery.id)?;
    }
    worker.stop().await;
    sender.stop().await;
    Ok(())
}

/// Receives one call and answers 204; returns the headers and the body, unchanged.
async fn take(stream: TcpStream) -> Result<(Vec<(String, String)>, Vec<u8>), Box<dyn Error>> {
    let mut stream = BufReader::new(stream);
    let mut headers = Vec::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.trim().split_once(": ") {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse()?;
            }
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    stream.write_all(b"HTTP/1.1 204 Taken\r\n\r\n").await?;
    stream.flush().await?;
    Ok((headers, body))
}
