//! Our side: events become deliveries in the settle of the event, and a sender calls the
//! receivers, signed, each attempt on record.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::bench::{Watch, Yardstick, event};
use tenure::webhook::{
    AddressPolicy, CallerConfig, EndpointId, EndpointSettings, Keyring, NewEndpoint, Scheme,
    Secrets, SigningKey, WebhookCaller,
};
use tenure::{Event, Outcome, Settings, SystemClock, Tenure, TopicPattern, Worker};

use super::CONCURRENCY;
use super::receivers::Receivers;
use crate::commands::bench::drain::{LOOK, failed, open, ready};
use crate::commands::bench::wait::{Headway, until};
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

/// So many may be in hand for one endpoint, those that are being settled included. All endpoints
/// together have more than there are places, so that a settle leaves no place empty.
const IN_HAND: u32 = 50;

/// Who is called, and by whom.
pub(super) struct Sending<'a> {
    receivers: &'a Receivers,
    tenure: Tenure,
    caller: Arc<WebhookCaller>,
    keyring: Arc<Keyring>,
}

/// When a turn is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All calls are taken, and nothing is in hand: the attempts are on record.
    Settled,
    /// All calls are taken. Another endpoint may have something in hand.
    Taken,
}

impl<'a> Sending<'a> {
    /// Nobody is registered yet.
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

    /// Registers an endpoint for each receiver, each with a topic of its own, as they usually are;
    /// `set` says what is unusual about them.
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

    /// Owes this many events to the receivers, each to one of them, and sends none: events owed per
    /// second.
    pub(super) async fn owe(&self, events: u32) -> Result<f64, Stop> {
        let count = self.receivers.addresses().len();
        let topics: Vec<String> = (0..count).map(topic).collect();
        self.owe_to(&topics, events).await
    }

    /// The same with these topics, in turns.
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
            self.tenure.enqueue_all(&batch).await?;
            left -= batch.len();
        }
        self.fan_out(events).await
    }

    async fn fan_out(&self, events: u32) -> Result<f64, Stop> {
        let handled = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&handled);
        let watch = Watch::start();
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
        until("all events are owed", LOOK, async || {
            let missing = events.saturating_sub(handled.load(Ordering::Relaxed));
            let is_held = worker.health().held > 0;
            Ok(Headway::missing(u64::from(missing) + u64::from(is_held)))
        })
        .await?;
        let rate = watch.rate(events);
        worker.stop().await;
        Ok(rate)
    }

    /// A sender that makes as many calls at once as the bare loop.
    pub(super) async fn sender(&self) -> Result<Worker, Stop> {
        self.sender_of(CONCURRENCY).await
    }

    /// A sender that makes so many calls at once.
    pub(super) async fn sender_of(&self, concurrency: u32) -> Result<Worker, Stop> {
        let caller = Arc::clone(&self.caller);
        let sender = self.tenure.sender(caller).concurrency(concurrency);
        let started = sender.start().await;
        Ok(started.map_err(|error| failed(&error))?)
    }

    /// A worker that owes whatever is enqueued, and wakes the sender.
    pub(super) async fn worker(&self, sender: &Worker) -> Result<Worker, Stop> {
        let worker = self.tenure.worker().fan_out().wakes(sender);
        let worker = worker.start().await.map_err(|error| failed(&error))?;
        ready(&worker).await?;
        Ok(worker)
    }

    /// Sends what is owed, so many calls: per second.
    pub(super) async fn send(&self, calls: u32, end: End) -> Result<f64, Stop> {
        let before = self.receivers.taken();
        let watch = Watch::start();
        let sender = self.sender().await?;
        until("all calls are made", LOOK, async || {
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
            return Err(Problem::new(Exit::Failed, message).into());
        }
        Ok(rate)
    }

    /// The same program, enqueueing.
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

/// The time limit of a call that takes this long.
pub(super) fn limit(length: Duration) -> Duration {
    (length + Duration::from_mins(1)).min(EndpointSettings::TIMEOUT_MAX)
}
