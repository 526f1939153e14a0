//! A scripted receiver of webhooks that records every call, and the senders that call it.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::store::{
    Claim, Filter, Intake as _, Kind, LeaseStore as _, Operate as _, Settle, Webhooks as _,
};
use tenure_core::webhook::{
    Attempt, Caller, Calling, Endpoint, EndpointId, EndpointSettings, NewEndpoint, Reply, Request,
    attempts,
};
use tenure_core::{Event, Fence, ItemId, Term, Token, TopicPattern, WorkerId};
use tenure_engine::{Engine, EngineConfig, Parts, Sender, SenderParts};
use tokio::time::{Instant, sleep};

use crate::probe::{End, until};
use crate::world::{World, fresh_worker};

/// Duration and reply of a call.
pub(crate) type Script = Box<dyn Fn(&Request<'_>) -> (Duration, Reply) + Send + Sync>;

/// A call as received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedCall {
    pub(crate) endpoint: String,
    pub(crate) delivery: ItemId,
    pub(crate) payload: String,
    pub(crate) attempt: u32,
    pub(crate) fence: Fence,
    pub(crate) sequence: Option<i64>,
    pub(crate) began: Instant,
    pub(crate) ended: Option<Instant>,
    pub(crate) end: Option<End>,
}

pub(crate) struct Receiver {
    script: Mutex<Arc<Script>>,
    calls: Mutex<Vec<ReceivedCall>>,
    /// Endpoint that this process cannot call.
    refused: Mutex<Option<&'static str>>,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

impl Receiver {
    pub(crate) fn new(
        script: impl Fn(&Request<'_>) -> (Duration, Reply) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(Arc::new(Box::new(script))),
            calls: Mutex::default(),
            refused: Mutex::default(),
        })
    }

    /// Accepts every call after `length`.
    pub(crate) fn accepting(length: Duration) -> Arc<Self> {
        Self::new(move |_| (length, Reply::status(204)))
    }

    /// Makes this process unable to call this endpoint; `None`: it can call all.
    pub(crate) fn refuse(&self, endpoint: Option<&'static str>) {
        *self.refused.lock().unwrap() = endpoint;
    }

    /// Replaces the script.
    pub(crate) fn set_script(
        &self,
        script: impl Fn(&Request<'_>) -> (Duration, Reply) + Send + Sync + 'static,
    ) {
        *self.script.lock().unwrap() = Arc::new(Box::new(script));
    }

    pub(crate) fn calls(&self) -> Vec<ReceivedCall> {
        self.calls.lock().unwrap().clone()
    }

    /// Calls to one endpoint.
    pub(crate) fn of(&self, endpoint: &str) -> Vec<ReceivedCall> {
        let mut calls = self.calls();
        calls.retain(|call| call.endpoint == endpoint);
        calls
    }

    /// Waits until `count` calls have begun.
    pub(crate) async fn begun(&self, count: usize) {
        until(|| self.calls().len() >= count).await;
    }
}

impl Caller for Receiver {
    fn refuses(&self, endpoint: &Endpoint) -> Option<String> {
        let refused = *self.refused.lock().unwrap();
        (refused == Some(endpoint.id.as_str())).then(|| "its secrets do not open".to_owned())
    }

    fn call<'a>(&'a self, request: &'a Request<'a>) -> Calling<'a> {
        Box::pin(async move {
            let script = Arc::clone(&self.script.lock().unwrap());
            let (length, reply) = script(request);
            let guard = {
                let mut calls = self.calls.lock().unwrap();
                calls.push(ReceivedCall {
                    endpoint: request.endpoint.id.to_string(),
                    delivery: request.delivery,
                    payload: request.event.payload().to_owned(),
                    attempt: request.attempt,
                    fence: request.fence,
                    sequence: request.sequence,
                    began: Instant::now(),
                    ended: None,
                    end: None,
                });
                Guard(self, calls.len() - 1, End::Dropped)
            };
            sleep(length).await;
            guard.answered();
            reply
        })
    }
}

struct Guard<'a>(&'a Receiver, usize, End);

impl Guard<'_> {
    fn answered(mut self) {
        self.2 = End::Answered;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut calls = self.0.calls.lock().unwrap();
        calls[self.1].ended = Some(Instant::now());
        calls[self.1].end = Some(self.2);
    }
}

impl World {
    /// Adds an endpoint for all topics, with these changes to its settings.
    pub(crate) async fn endpoint(
        &self,
        id: &str,
        change: impl FnOnce(&mut EndpointSettings),
    ) -> Endpoint {
        let mut settings = EndpointSettings::new(
            "https://example.com/?q=canary-url",
            vec![TopicPattern::any()],
        );
        change(&mut settings);
        let new = NewEndpoint {
            id: EndpointId::new(id).unwrap(),
            settings,
            sealed: "canary-secret".to_owned(),
        };
        self.store.add_endpoint(&new, None).await.unwrap().unwrap()
    }

    /// The stored endpoint.
    pub(crate) async fn endpoint_now(&self, id: &str) -> Endpoint {
        let id = EndpointId::new(id).unwrap();
        self.store.endpoint(&id).await.unwrap().unwrap()
    }

    /// Enqueues `count` events and fans them out; returns the deliveries, in order.
    pub(crate) async fn fan_out(&self, count: u32) -> Vec<ItemId> {
        let events: Vec<Event> = (0..count)
            .map(|n| Event::new("order.paid", &n).unwrap())
            .collect();
        self.fan_out_all(&events).await
    }

    pub(crate) async fn fan_out_all(&self, events: &[Event]) -> Vec<ItemId> {
        self.store.enqueue(events).await.unwrap();
        let token = Token::new(&WorkerId::new("fan-out", 1).unwrap(), 1, 1);
        let claim = Claim::new(token.clone(), u32::try_from(events.len()).unwrap());
        let before = self.deliveries().await.len();
        // A claim returns one event of a key at a time.
        while let Some(held) = self.store.claim(&claim).await.unwrap() {
            let mut settle = Settle::new(token.clone()).done(held.ids());
            let topics = held.items.iter();
            settle.fan_out = topics
                .map(|item| (item.id, item.content.event().unwrap().topic().to_owned()))
                .collect();
            drop(self.store.settle(&settle).await.unwrap());
        }
        self.deliveries().await.split_off(before)
    }

    /// All deliveries by id.
    pub(crate) async fn deliveries(&self) -> Vec<ItemId> {
        let filter = Filter {
            kind: Kind::Deliveries,
            ..Filter::default()
        };
        let page = self.store.list(&filter, 1000).await.unwrap();
        let mut ids: Vec<ItemId> = page.records.iter().map(|record| record.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Attempts of a delivery as operators see them.
    pub(crate) async fn attempts(&self, id: ItemId) -> Vec<Attempt> {
        let timeline = self.store.timeline(id).await.unwrap();
        let calls = self.store.calls(id).await.unwrap();
        let hold = self.find(id).await.hold;
        attempts(&timeline, hold.as_ref(), &calls)
    }

    pub(crate) fn send(&self, receiver: &Arc<Receiver>, config: EngineConfig) -> Engine {
        self.send_for(Term::EXTERNAL, receiver, config)
    }

    /// Starts a sender whose leases have this term.
    pub(crate) fn send_for(
        &self,
        term: Term,
        receiver: &Arc<Receiver>,
        config: EngineConfig,
    ) -> Engine {
        let worker = fresh_worker();
        let caller: Arc<Receiver> = Arc::clone(receiver);
        let sender = Arc::new(Sender::new(SenderParts {
            store: self.store(),
            caller,
            worker: worker.clone(),
            term,
            seed: Some(7),
        }));
        let handler: Arc<Sender> = Arc::clone(&sender);
        Engine::start(Parts {
            store: self.store(),
            keeper_store: self.store(),
            worker,
            handler,
            config: EngineConfig {
                chooser: Some(sender),
                ..config
            },
            wrap: None,
        })
        .unwrap()
    }

    /// Waits until `count` deliveries were delivered.
    pub(crate) async fn delivered(&self, count: u64) {
        self.until(|counts| counts.deliveries.delivered >= count)
            .await;
    }
}
