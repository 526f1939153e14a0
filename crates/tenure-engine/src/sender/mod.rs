//! Sender: the handler and chooser of deliveries. It calls endpoints through a [`Caller`], judges
//! their answers, and pauses them when they fail.
//!
//! ```text
//! due? ──► tracked endpoints ──► lanes, limit of each ──► claim ──► call ──► judge, settle
//!             ▲ read again after a change                             │
//!             └────────── health, disabled: stored for all processes ◄┘
//! ```
//!
//! The sender does not claim from endpoints that have no capacity or are paused or disabled: their
//! deliveries wait and use up no attempt. No connection of the store is in use during a call.

mod bucket;
mod choose;
mod endpoint_effects;
mod tracked_endpoint;

use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::metrics::{Gauge, Histogram};
use tenure_core::store::{Answer, Due, EndpointLane, Isolation, Store, StoreError};
use tenure_core::webhook::{
    AttemptOutcome, CallErrorKind, Caller, Delivery, Endpoint, Reply, Request, judge,
};
use tenure_core::{Again, Content, Failure, Item, Outcome, Term, Timestamp, WorkerId, reason};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use self::tracked_endpoint::{ClockPair, EndpointStatus, TrackedEndpoint};
use crate::chooser::{Chooser, Room};
use crate::handler::{Context, Failed, Handler, Handling};
use crate::metrics::{self, DELIVERIES_IN_FLIGHT, DELIVERY_SECONDS, ENDPOINT_PAUSED, Metrics};
use crate::rng::Rng;

/// Time beyond the endpoint's timeout before the watchdog cancels a call; the effects of the answer
/// must be saved within it.
const CALL_MARGIN: Duration = Duration::from_secs(30);
/// Time for which a snapshot of due deliveries may be reused under load.
const SNAPSHOT_REUSE: Duration = Duration::from_millis(25);
/// Time for which a snapshot without isolated deliveries saves another read for them.
const NONE_ISOLATED_FOR: Duration = Duration::from_millis(500);
/// Delay of a delivery whose endpoint is not known yet.
const UNKNOWN_ENDPOINT_DELAY: Duration = Duration::from_secs(1);

/// Everything a sender needs.
#[derive(Debug)]
pub struct SenderParts {
    /// Store of endpoints and deliveries.
    pub store: Arc<dyn Store>,
    /// Makes the HTTP calls.
    pub caller: Arc<dyn Caller>,
    /// Identity in the metrics.
    pub worker: WorkerId,
    /// Lease term of deliveries. Calls may take longer: leases are renewed.
    pub term: Term,
    /// Seed of the random source, for repeatable runs; `None`: random.
    pub seed: Option<u64>,
}

/// Calls endpoints. It is both the handler and the chooser of its own engine:
///
/// ```
/// use std::sync::Arc;
/// use tenure_core::webhook::{Caller, Calling, Reply, Request};
/// use tenure_core::{Term, WorkerId};
/// use tenure_engine::{Duties, Duty, Engine, EngineConfig, Parts, Sender, SenderParts};
/// use tenure_store::memory::{MemoryStore, SystemClock};
///
/// /// Accepts every delivery.
/// #[derive(Debug)]
/// struct Loop;
///
/// impl Caller for Loop {
///     fn call<'a>(&'a self, _: &'a Request<'a>) -> Calling<'a> {
///         Box::pin(async { Reply::status(204) })
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
/// let worker = WorkerId::new("sender", rand::random())?;
/// let sender = Arc::new(Sender::new(SenderParts {
///     store: store.clone(),
///     caller: Arc::new(Loop),
///     worker: worker.clone(),
///     term: Term::EXTERNAL,
///     seed: None,
/// }));
/// let engine = Engine::start(Parts {
///     store: store.clone(),
///     keeper_store: store,
///     worker,
///     handler: sender.clone(),
///     config: EngineConfig { chooser: Some(sender), ..EngineConfig::default() },
///     wrap: None,
/// })
/// .expect("the defaults are valid");
/// engine.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sender {
    store: Arc<dyn Store>,
    caller: Arc<dyn Caller>,
    term: Term,
    rng: Rng,
    metrics: Metrics,
    seconds: Histogram,
    in_flight: Gauge,
    state: Mutex<SenderState>,
}

/// Endpoints and the last snapshot of due deliveries.
#[derive(Debug, Default)]
struct SenderState {
    /// Version at which the endpoints were read; `None`: not yet.
    version: Option<u64>,
    /// The store's clock at the last read.
    clock: Option<ClockPair>,
    /// Time of the last read, if it showed no isolated deliveries.
    none_isolated_at: Option<Instant>,
    /// Last snapshot of due deliveries, with its time.
    due: Option<(Instant, Due)>,
    /// The last claim reached its limit.
    is_more_due: bool,
    /// By endpoint number.
    tracked: BTreeMap<u32, TrackedEndpoint>,
    /// The endpoint that came first in the last selection.
    cursor: u32,
}

impl SenderState {
    /// Converts `local` to the store's clock. Before the first read the clock is unknown, but no
    /// delivery is held either.
    fn moment(&self, local: Instant) -> ClockPair {
        let store = self.clock.map_or(Timestamp::from_micros(0), |clock| {
            clock
                .store
                .after(local.saturating_duration_since(clock.local))
        });
        ClockPair { store, local }
    }
}

/// Guard of a call under way.
struct InFlight<'a> {
    sender: &'a Sender,
    endpoint: u32,
    began: Instant,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.sender.state();
        if let Some(tracked) = state.tracked.get_mut(&self.endpoint) {
            tracked.in_flight = tracked.in_flight.saturating_sub(1);
        }
        self.sender.in_flight.decrement(1.0);
    }
}

impl Sender {
    /// Creates a sender; it reads the endpoints at its first claim.
    pub fn new(parts: SenderParts) -> Self {
        metrics::describe();
        let metrics = Metrics::new(parts.worker.as_str());
        Self {
            seconds: metrics.histogram(DELIVERY_SECONDS, &[]),
            in_flight: metrics.gauge(DELIVERIES_IN_FLIGHT, &[]),
            metrics,
            store: parts.store,
            caller: parts.caller,
            term: parts.term,
            rng: Rng::new(parts.seed),
            state: Mutex::default(),
        }
    }

    /// A poisoned lock is safe to use, because no update under it can fail half way.
    fn state(&self) -> MutexGuard<'_, SenderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn lanes(&self, room: &Room) -> Result<Vec<(EndpointLane, u32)>, StoreError> {
        let local = Instant::now();
        let due = self.store.webhooks().due_deliveries(None).await?;
        if self.state().version != Some(due.version) {
            let endpoints = self.store.webhooks().all_endpoints().await?;
            self.update_endpoints(endpoints, due.version);
        }
        let mut state = self.state();
        let moment = ClockPair {
            store: due.now,
            local,
        };
        state.clock = Some(moment);
        let is_alone = |lane: &EndpointLane| lane.step == EndpointLane::ALONE;
        state.none_isolated_at = (!due.lanes.iter().any(is_alone)).then_some(local);
        self.report_paused(&mut state, moment);
        let SenderState {
            tracked, cursor, ..
        } = &mut *state;
        for number in due.lanes.iter().map(|lane| lane.endpoint) {
            if let Some(endpoint) = tracked.get_mut(&number) {
                endpoint.refuse(self.caller.refuses(&endpoint.endpoint));
            }
        }
        let chosen = choose::choose(tracked, &due.lanes, room, cursor, moment);
        state.due = Some((local, due));
        Ok(chosen)
    }

    /// Updates the tracked endpoints from rows that were read at `version` or later.
    fn update_endpoints(&self, endpoints: Vec<Endpoint>, version: u64) {
        let now = Instant::now();
        let mut state = self.state();
        debug!(version, endpoints = endpoints.len(), "read the endpoints");
        for endpoint in endpoints {
            match state.tracked.entry(endpoint.number) {
                Entry::Occupied(mut tracked) => tracked.get_mut().update(endpoint),
                Entry::Vacant(entry) => {
                    entry.insert(TrackedEndpoint::new(endpoint, now));
                }
            }
        }
        state.version = Some(version);
    }

    fn report_paused(&self, state: &mut SenderState, moment: ClockPair) {
        for tracked in state.tracked.values_mut() {
            let is_paused = tracked.health.is_paused(moment.store);
            if is_paused != tracked.is_paused_in_metrics {
                tracked.is_paused_in_metrics = is_paused;
                let endpoint = [("endpoint", tracked.endpoint.id.as_str())];
                let gauge = self.metrics.gauge(ENDPOINT_PAUSED, &endpoint);
                gauge.set(f64::from(u8::from(is_paused)));
            }
        }
    }

    /// Decides whether to send a delivery now, by the state that its endpoint has after the claim.
    /// `Err`: the delivery is settled without a call.
    fn admit(&self, number: u32) -> Result<(Arc<Endpoint>, InFlight<'_>), Outcome> {
        let began = Instant::now();
        let mut state = self.state();
        let now = state.moment(began).store;
        let Some(tracked) = state.tracked.get_mut(&number) else {
            return Err(Outcome::snooze(UNKNOWN_ENDPOINT_DELAY));
        };
        match tracked.status(now) {
            EndpointStatus::Open | EndpointStatus::Trial => {}
            // The delivery is released; its lane is not claimed from until the endpoint is open
            // again.
            EndpointStatus::Closed => return Err(Outcome::RELEASE),
            EndpointStatus::Gone(reason, error) => {
                return Err(Outcome::Dead {
                    reason: reason.to_owned(),
                    error: error.to_owned(),
                });
            }
        }
        tracked.start_call(began);
        self.in_flight.increment(1.0);
        let in_flight = InFlight {
            sender: self,
            endpoint: number,
            began,
        };
        Ok((Arc::clone(&tracked.endpoint), in_flight))
    }

    async fn deliver(&self, item: &Item, delivery: &Delivery, cx: &Context) -> Outcome {
        let (endpoint, in_flight) = match self.admit(delivery.endpoint) {
            Ok(call) => call,
            Err(outcome) => return outcome,
        };
        let event = &delivery.event;
        let Some(message) = event.event_id() else {
            let error = "its event has no id, so receivers could not tell it from others";
            return Outcome::dead(error);
        };
        let request = Request {
            endpoint: &endpoint,
            delivery: item.id,
            message,
            event,
            attempt: cx.attempt(),
            fence: cx.fence(),
            sequence: event.key().map(|_| item.id.number()),
            time_limit: endpoint.settings.timeout,
        };
        cx.calling();
        let reply = self.caller.call(&request).await;
        let took = in_flight.began.elapsed();
        drop(in_flight);
        self.seconds.record(took.as_secs_f64());
        let (failures, chance) = (item.counters.failures, self.rng.chance());
        let verdict = judge(&endpoint.settings, &reply, failures, chance);
        log_call(&request, &reply, took);
        let outcome = match verdict.is_success {
            Some(true) => AttemptOutcome::Delivered,
            Some(false) | None => AttemptOutcome::Failed,
        };
        cx.replied(reply, outcome);
        self.apply_effects(&request, &verdict).await;
        verdict.outcome
    }
}

/// Logs endpoint, delivery, attempt and result of a call, but neither request nor response.
fn log_call(request: &Request<'_>, reply: &Reply, took: Duration) {
    let endpoint = request.endpoint.id.as_str();
    let (delivery, event, attempt) = (request.delivery, request.message, request.attempt);
    match &reply.status {
        Ok(status @ 200..=299) => {
            debug!(endpoint, %delivery, %event, attempt, status, ?took, "delivered");
        }
        Ok(status) => {
            info!(endpoint, %delivery, %event, attempt, status, ?took, "a call failed");
        }
        // Only the operator can fix this; retrying will not help.
        Err(error) if error.kind == CallErrorKind::Unsendable => {
            let error = error.text.as_str();
            warn!(endpoint, %delivery, %event, attempt, error, "could not make a call");
        }
        Err(error) => {
            let error_kind = error.kind.as_str();
            info!(endpoint, %delivery, %event, attempt, error_kind, ?took, "a call failed");
        }
    }
}

impl Chooser for Sender {
    fn term(&self) -> Term {
        self.term
    }

    /// Each read shows all due deliveries, so an idle sender need not read again for isolated ones.
    fn is_known_idle(&self, isolation: Isolation) -> bool {
        let read_at = self.state().none_isolated_at;
        isolation == Isolation::Isolated
            && read_at.is_some_and(|at| at.elapsed() < NONE_ISOLATED_FOR)
    }

    /// Reuses a recent snapshot for the next claim, under load.
    fn choose_again(&self, room: &Room) -> Option<Vec<(EndpointLane, u32)>> {
        let now = Instant::now();
        let mut state = self.state();
        let moment = state.moment(now);
        let SenderState {
            tracked,
            cursor,
            due,
            is_more_due,
            ..
        } = &mut *state;
        // The answer of this claim sets it again.
        let is_more_due = std::mem::take(is_more_due);
        let (read_at, due) = due.as_ref()?;
        let is_fresh = is_more_due && now.saturating_duration_since(*read_at) < SNAPSHOT_REUSE;
        is_fresh.then(|| choose::choose(tracked, &due.lanes, room, cursor, moment))
    }

    fn choose<'a>(&'a self, room: &'a Room) -> Answer<'a, Vec<(EndpointLane, u32)>> {
        Box::pin(self.lanes(room))
    }

    fn took(&self, is_full: bool) {
        self.state().is_more_due = is_full;
    }
}

impl Handler for Sender {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        Box::pin(async move {
            let Content::Delivery(delivery) = &item.content else {
                let error = "the item is not a delivery, and the sender accepts only deliveries";
                return Err(Failure::new(error));
            };
            Ok(self.deliver(&item, delivery, &cx).await)
        })
    }

    /// The endpoint's timeout plus a margin.
    fn max_hold(&self, item: &Item) -> Option<Duration> {
        let number = item.content.delivery()?.endpoint;
        let state = self.state();
        let tracked = state.tracked.get(&number)?;
        Some(tracked.endpoint.settings.timeout + CALL_MARGIN)
    }

    /// The endpoint's schedule decides about retries.
    fn judge(&self, failed: &Failed<'_>) -> Option<Outcome> {
        let error = failed.failure.error.clone();
        let after = match failed.failure.again {
            Again::After(after) => Some(after),
            Again::Never => return None,
            Again::ByPolicy => {
                let state = self.state();
                let tracked = state.tracked.get(&failed.endpoint?)?;
                let schedule = &tracked.endpoint.settings.schedule;
                schedule.delay(failed.failures, failed.chance)
            }
        };
        Some(match after {
            Some(after) => Outcome::Retry { after, error },
            None => Outcome::Dead {
                reason: reason::FAILED.to_owned(),
                error,
            },
        })
    }
}
