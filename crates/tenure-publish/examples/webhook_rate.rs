//! Measures calls per second of one caller to a receiver in the same process, 64 in flight. `cargo
//! run --release -p tenure-publish --example webhook_rate [calls]`; it asserts nothing.

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::webhook::{
    Caller, Endpoint, EndpointHealth, EndpointId, EndpointSettings, EndpointState, Request,
};
use tenure_core::{Clock, Event, Fence, ItemId, Timestamp, TopicPattern};
use tenure_publish::webhook::{
    AddressPolicy, CallerConfig, Keyring, Scheme, Secrets, SigningKey, WebhookCaller,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;

const IN_FLIGHT: usize = 64;
const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        NOW
    }
}

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let calls: usize = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => 20_000,
    };
    let url = receiver().await?;
    let keyring = Arc::new(Keyring::parse(&Keyring::generate_line("example")?)?);
    let id = EndpointId::new("example")?;
    let endpoint = Arc::new(Endpoint {
        sealed: Secrets::new(SigningKey::generate(Scheme::Hmac)).seal(&keyring, &id)?,
        id,
        number: 1,
        settings: EndpointSettings::new(url, vec![TopicPattern::any()]),
        state: EndpointState::Enabled,
        health: EndpointHealth::default(),
        version: 1,
        created_at: NOW,
    });
    let mut config = CallerConfig::new(keyring, Arc::new(FixedClock));
    config.policy = AddressPolicy {
        allow_http: true,
        allow: vec!["127.0.0.0/8".parse()?],
        ports: vec![1..=65535],
        ..AddressPolicy::default()
    };
    let caller = Arc::new(WebhookCaller::new(config)?);
    let event = Arc::new(Event::new("order.paid", &"x".repeat(1000))?);
    let left = Arc::new(AtomicUsize::new(calls));
    let failed = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..IN_FLIGHT {
        let (caller, endpoint) = (Arc::clone(&caller), Arc::clone(&endpoint));
        let (event, left) = (Arc::clone(&event), Arc::clone(&left));
        let failed = Arc::clone(&failed);
        tasks.push(tokio::spawn(async move {
            let take = |left: usize| left.checked_sub(1);
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
            {
                let reply = caller.call(&request(&endpoint, &event)).await;
                if reply.status != Ok(204) {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    for task in tasks {
        task.await?;
    }
    let took = start.elapsed();
    let each = took.as_secs_f64() * 1e6 / f64::from(u32::try_from(calls)?);
    println!(
        "{calls} calls in {took:.2?}: {each:.1} us each, {:.0}/s",
        1e6 / each
    );
    println!("{} failed", failed.load(Ordering::Relaxed));
    Ok(())
}

fn request<'a>(endpoint: &'a Endpoint, event: &'a Event) -> Request<'a> {
    Request {
        endpoint,
        delivery: ItemId::new(1),
        message: uuid::Uuid::from_u128(1),
        event,
        attempt: 1,
        fence: Fence::new(1),
        sequence: None,
        time_limit: Duration::from_secs(15),
    }
}

/// Answers every request with 204. It finds the end of the head and skips a body of known length.
async fn receiver() -> Result<String, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = Vec::with_capacity(4096);
                while stream
                    .read_buf(&mut bytes)
                    .await
                    .is_ok_and(|count| count > 0)
                {
                    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
                    // The body is a JSON string of 1000 characters.
                    if end.is_some_and(|end| bytes.len() >= end + 4 + 1002) {
                        bytes.clear();
                        let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
                        if stream.write_all(answer).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    Ok(format!("http://{address}/hooks"))
}
