//! The engine's side: the settle of an event creates its deliveries, and a sender makes signed
//! calls and records each attempt.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::publish::TopicPattern;
use tenure::store::SystemClock;
use tenure::webhook::{
    AddressPolicy, CallerConfig, EndpointId, EndpointSettings, Keyring, NewEndpoint, Scheme,
    Secrets, SigningKey, WebhookCaller,
};
use tenure::{Event, Outcome, Settings, Tenure, Worker};

use super::CONCURRENCY;
use super::receivers::Receivers;
use crate::bench::drain::{POLL, failed, open, ready};
use crate::bench::wait::{Headway, until};
use crate::stop::{Failure, Stop};
use crate::yardstick::{Stopwatch, Yardstick, event};

/// Maximum number of deliveries held per endpoint, including those being settled. Their sum over
/// all endpoints exceeds the concurrency, so that a settle leaves no executor idle.
const IN_HAND: u32 = 50;

pub(super) struct Sending<'a> {
    receivers: &'a Receivers,
    tenure: Tenure,
    caller: Arc<WebhookCaller>,
    keyring: Arc<Keyring>,
}

/// The condition that ends a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The receivers have all calls, and the sender holds nothing: all attempts are recorded.
    Settled,
    /// The receivers have all calls. Deliveries to another endpoint may be held.
    Taken,
}

impl<'a> Sending<'a> {
    /// Opens the scratch tables; no endpoint is registered yet.
    pub(super) async fn open(
        yardstick: &Yardstick,
        receivers: &'a Receivers,
    ) -> Result<Self, Stop> {
        let keyring = Arc::new(Keyring::parse(&Keyring::generate_line("bench")?)?);
        let mut config = CallerConfig::new(Arc::clone(&keyring), Arc::new(SystemClock));
        config.policy = AddressPolicy {
            allow_http: true,
            allow: vec!["127.0.0.0/8".parse().map_err(std::io::Error::other)?],
            ports: vec![1..=u16::MAX],
            ..AddressPolicy::default()
        };
        Ok(Self {
            receivers,
            tenure: open(yardstick).await?,
            caller: Arc::new(WebhookCaller::new(config)?),
            keyring,
        })
    }

    /// Registers an endpoint for each receiver, each with its own topic; `set` changes the
    /// defaults.
    pub(super) async fn register(&self, set: impl Fn(&mut EndpointSettings)) -> Result<(), Stop> {
        for (nth, address) in self.receivers.addresses().iter().enumerate() {
            let mut settings = settings(*address, &topic(nth))?;
            settings.concurrency = IN_HAND;
            set(&mut settings);
            self.add(&format!("bench-{nth}"), settings).await?;
        }
        Ok(())
    }

    /// Registers one more endpoint.
    pub(super) async fn add(&self, name: &str, settings: EndpointSettings) -> Result<(), Stop> {
        let id = EndpointId::new(name)?;
        let key = SigningKey::generate(Scheme::Hmac);
        let endpoint = NewEndpoint {
            sealed: Secrets::new(key).seal(&self.keyring, &id)?,
            settings,
            id,
        };
        self.tenure.add_endpoint(&endpoint).await?;
        Ok(())
    }

    /// Creates deliveries of this many events, each for one receiver, and sends none; returns
    /// events per second.
    pub(super) async fn owe(&self, events: u32) -> Result<f64, Stop> {
        let count = self.receivers.addresses().len();
        let topics: Vec<String> = (0..count).map(topic).collect();
        self.owe_to(&topics, events).await
    }

    /// Like [`Self::owe`], with these topics in turn.
    pub(super) async fn owe_to(&self, topics: &[String], events: u32) -> Result<f64, Stop> {
        let body = event().payload().to_owned();
        let pattern: Result<Vec<Event>, _> = topics
            .iter()
            .map(|topic| Event::from_json(topic, body.clone()))
            .collect();
        let pattern = pattern?;
        let mut left = usize::try_from(events).unwrap_or(usize::MAX);
        let mut turns = pattern.iter().cycle();
        while left > 0 {
            let batch: Vec<Event> = turns.by_ref().take(left.min(1000)).cloned().collect();
            self.tenure.enqueue_now(&batch).await?;
            left -= batch.len();
        }
        self.fan_out(events).await
    }

    async fn fan_out(&self, events: u32) -> Result<f64, Stop> {
        let handled = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&handled);
        let watch = Stopwatch::start();
        let worker = self
            .tenure
            .worker()
            .on("bench.*", move |_, _| {
                counter.fetch_add(1, Ordering::Relaxed);
                async { Ok(Outcome::Done) }
            })
            .fan_out()
            .settings(Settings {
                batch: 1000,
                ..Settings::default()
            })
            .start()
            .await
            .map_err(|error| failed(&error))?;
        until("all events are fanned out", POLL, async || {
            let missing = events.saturating_sub(handled.load(Ordering::Relaxed));
            let is_held = worker.health().held > 0;
            Ok(Headway::missing(u64::from(missing) + u64::from(is_held)))
        })
        .await?;
        let rate = watch.rate(events);
        worker.stop().await;
        Ok(rate)
    }

    /// A sender with as many concurrent calls as the bare loop.
    pub(super) async fn sender(&self) -> Result<Worker, Stop> {
        self.sender_of(CONCURRENCY).await
    }

    /// A sender with this concurrency.
    pub(super) async fn sender_of(&self, concurrency: u32) -> Result<Worker, Stop> {
        let caller = Arc::clone(&self.caller);
        let sender = self.tenure.sender(caller).concurrency(concurrency);
        let started = sender.start().await;
        Ok(started.map_err(|error| failed(&error))?)
    }

    /// A worker that creates the deliveries of each event, and wakes the sender.
    pub(super) async fn worker(&self, sender: &Worker) -> Result<Worker, Stop> {
        let worker = self.tenure.worker().fan_out().wakes(sender);
        let worker = worker.start().await.map_err(|error| failed(&error))?;
        ready(&worker).await?;
        Ok(worker)
    }

    /// Sends this many pending deliveries; returns deliveries per second.
    pub(super) async fn send(&self, calls: u32, end: End) -> Result<f64, Stop> {
        let before = self.receivers.taken();
        let watch = Stopwatch::start();
        let sender = self.sender().await?;
        until("all calls are made", POLL, async || {
            let missing = calls.saturating_sub(self.receivers.taken() - before);
            let is_waiting = end == End::Settled && sender.health().held > 0;
            Ok(Headway::missing(u64::from(missing) + u64::from(is_waiting)))
        })
        .await?;
        let rate = watch.rate(calls);
        sender.stop().await;
        let taken = self.receivers.taken() - before;
        if taken != calls {
            let message = format!("{taken} calls were made for {calls} deliveries");
            return Err(Failure::new(message).into());
        }
        Ok(rate)
    }

    /// The open store, for enqueueing.
    pub(super) fn tenure(&self) -> &Tenure {
        &self.tenure
    }
}

/// An endpoint at this address for this topic.
pub(super) fn settings(address: SocketAddr, topic: &str) -> Result<EndpointSettings, Stop> {
    let topics = vec![TopicPattern::new(topic)?];
    Ok(EndpointSettings::new(format!("http://{address}/"), topics))
}

/// The topic of the events for a receiver.
pub(super) fn topic(nth: usize) -> String {
    format!("bench.webhook-{nth}")
}

/// The timeout for a call that takes this long: a minute more.
pub(super) fn limit(length: Duration) -> Duration {
    (length + Duration::from_mins(1)).min(EndpointSettings::TIMEOUT_MAX)
}
