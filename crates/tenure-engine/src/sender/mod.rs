//! Sender: the handler and chooser of deliveries. It calls endpoints through a
//! [`Caller`], judges their answers, and leaves them alone when they want to be.
//!
//! ```text
//! due? ──► directory of endpoints ──► lanes, so many of each ──► claim ──► call ──► judge, settle
//!             ▲ read anew when any changed                                    │
//!             └────────────── health, disabled: kept for all processes ◄──────┘
//! ```
//!
//! An endpoint that has no room, is left alone or disabled is not asked for: what is owed to it
//! waits where it is and loses no attempt. No connection of the store is in use during a call.

mod after;
mod bucket;
mod choose;
mod line;

use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::store::{Answer, Company, Due, EndpointLane, Store, StoreError};
use tenure_core::webhook::{
    AttemptOutcome, CallErrorKind, Caller, Delivery, Endpoint, EndpointId, Reply, Request, judge,
};
use tenure_core::{Again, Content, Failure, Item, Outcome, Term, Timestamp, WorkerId, reason};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use self::line::{Line, Moment, Standing};
use crate::chooser::{Chooser, Room};
use crate::dice::Dice;
use crate::handler::{Context, Failed, Handler, Handling};
use crate::metrics::SenderMetrics;

/// Endpoints per page when the directory is read.
const PAGE: u32 = 1000;
/// So much longer than its time limit a call may take before the watchdog ends it; and time for
/// what follows an answer.
const MARGIN: Duration = Duration::from_secs(30);
/// So long a look is good for further claims while there is plenty to do.
const AGAIN: Duration = Duration::from_millis(25);
/// So long what a look has shown holds for the next one of the same round.
const LOOK: Duration = Duration::from_millis(500);
/// A delivery whose endpoint is not known yet is tried again after this long.
const UNKNOWN: Duration = Duration::from_secs(1);

/// What a sender is made of.
pub struct SenderParts {
    /// Where endpoints and deliveries are.
    pub store: Arc<dyn Store>,
    /// What makes the calls.
    pub caller: Arc<dyn Caller>,
    /// The worker that it is part of, for the metrics.
    pub worker: WorkerId,
    /// The term of leases on deliveries. A call may take longer: it is renewed.
    pub term: Term,
    /// Where chance comes from, for a run that must be repeatable; `None`: from nowhere.
    pub seed: Option<u64>,
}

impl fmt::Debug for SenderParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderParts")
            .field("worker", &self.worker)
            .field("term", &self.term)
            .finish_non_exhaustive()
    }
}

/// Calls endpoints. It is both the handler and the chooser of an engine of its own:
///
/// ```
/// use std::sync::Arc;
/// use tenure_core::webhook::{Caller, Calling, Reply, Request};
/// use tenure_core::{Term, WorkerId};
/// use tenure_engine::{Duties, Duty, Engine, EngineConfig, Parts, Sender, SenderParts};
/// use tenure_store::memory::{MemoryStore, SystemClock};
///
/// /// Says that everything was taken.
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
pub struct Sender {
    store: Arc<dyn Store>,
    caller: Arc<dyn Caller>,
    term: Term,
    dice: Dice,
    metrics: SenderMetrics,
    state: Mutex<State>,
}

/// What a sender knows of the endpoints.
#[derive(Debug, Default)]
struct State {
    /// The version that they were read at; `None`: they are to be read.
    version: Option<u64>,
    /// The store's clock when it was looked at last.
    clock: Option<Moment>,
    /// When it was seen that nothing which must be worked alone was due.
    none_alone: Option<Instant>,
    /// What was due at the last look, and when that was.
    due: Option<(Instant, Due)>,
    /// Whether there was more than the last claim could take.
    is_plenty: bool,
    /// By number.
    lines: BTreeMap<u32, Line>,
    /// The endpoint that was first the last time.
    turn: u32,
}

impl State {
    /// What the moment is by the store's clock. Before the first look nothing is in hand.
    fn moment(&self, here: Instant) -> Moment {
        let store = self.clock.map_or(Timestamp::from_micros(0), |clock| {
            clock
                .store
                .after(here.saturating_duration_since(clock.here))
        });
        Moment { store, here }
    }
}

/// What is done with a delivery.
enum Admission<'a> {
    /// It is sent.
    Call(Arc<Endpoint>, InFlight<'a>),
    /// It ends without a call.
    End(Outcome),
}

/// A call under way.
struct InFlight<'a> {
    sender: &'a Sender,
    endpoint: u32,
    began: Instant,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.sender.state();
        if let Some(line) = state.lines.get_mut(&self.endpoint) {
            line.calling = line.calling.saturating_sub(1);
        }
        self.sender.metrics.in_flight.decrement(1.0);
    }
}

impl Sender {
    /// A sender that knows no endpoint yet.
    pub fn new(parts: SenderParts) -> Self {
        Self {
            metrics: SenderMetrics::new(&parts.worker),
            store: parts.store,
            caller: parts.caller,
            term: parts.term,
            dice: Dice::new(parts.seed),
            state: Mutex::default(),
        }
    }

    /// Nothing under the lock can fail half way.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn lanes(&self, room: &Room) -> Result<Vec<(EndpointLane, u32)>, StoreError> {
        let here = Instant::now();
        let due = self.store.webhooks().due_deliveries(None).await?;
        if self.state().version != Some(due.version) {
            let endpoints = self.read().await?;
            self.learn(endpoints, due.version);
        }
        let mut state = self.state();
        let moment = Moment {
            store: due.now,
            here,
        };
        state.clock = Some(moment);
        let is_alone = |lane: &EndpointLane| lane.step == EndpointLane::ALONE;
        state.none_alone = (!due.lanes.iter().any(is_alone)).then_some(here);
        self.tell_paused(&mut state, moment);
        let State { lines, turn, .. } = &mut *state;
        for line in due.lanes.iter().map(|lane| lane.endpoint) {
            if let Some(line) = lines.get_mut(&line) {
                line.refuse(self.caller.refuses(&line.endpoint));
            }
        }
        let chosen = choose::choose(lines, &due.lanes, room, turn, moment);
        state.due = Some((here, due));
        Ok(chosen)
    }

    /// While there is plenty to do, a look of just now is good for the next claim, too.
    fn lanes_again(&self, room: &Room) -> Option<Vec<(EndpointLane, u32)>> {
        let now = Instant::now();
        let mut state = self.state();
        let moment = state.moment(now);
        let State {
            lines,
            turn,
            due,
            is_plenty,
            ..
        } = &mut *state;
        // Whether it is plenty is known again when this claim is answered.
        let is_plenty = std::mem::take(is_plenty);
        let (seen, due) = due.as_ref()?;
        let is_good = is_plenty && now.saturating_duration_since(*seen) < AGAIN;
        is_good.then(|| choose::choose(lines, &due.lanes, room, turn, moment))
    }

    /// Reads all endpoints.
    async fn read(&self) -> Result<Vec<Endpoint>, StoreError> {
        let webhooks = self.store.webhooks();
        let mut all: Vec<Endpoint> = Vec::new();
        loop {
            let after: Option<EndpointId> = all.last().map(|endpoint| endpoint.id.clone());
            let page = webhooks.endpoints(after.as_ref(), PAGE).await?;
            let is_last = page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// What was read was so at this version, or is newer.
    fn learn(&self, endpoints: Vec<Endpoint>, version: u64) {
        let now = Instant::now();
        let mut state = self.state();
        debug!(version, endpoints = endpoints.len(), "read the endpoints");
        for endpoint in endpoints {
            match state.lines.entry(endpoint.number) {
                Entry::Occupied(mut line) => line.get_mut().update(endpoint),
                Entry::Vacant(place) => {
                    place.insert(Line::new(endpoint, now));
                }
            }
        }
        state.version = Some(version);
    }

    fn tell_paused(&self, state: &mut State, moment: Moment) {
        for line in state.lines.values_mut() {
            let is_paused = line.health.is_paused(moment.store);
            if is_paused != line.is_told_paused {
                line.is_told_paused = is_paused;
                self.metrics.paused(line.endpoint.id.as_str(), is_paused);
            }
        }
    }

    /// Whether a delivery is sent now. What has changed since it was claimed counts.
    fn admit(&self, number: u32) -> Admission<'_> {
        let began = Instant::now();
        let mut state = self.state();
        let now = state.moment(began).store;
        let Some(line) = state.lines.get_mut(&number) else {
            return Admission::End(Outcome::snooze(UNKNOWN));
        };
        match line.standing(now) {
            Standing::Open | Standing::Trial => {}
            // It goes back to where nobody asks for it.
            Standing::Closed => return Admission::End(Outcome::RELEASE),
            Standing::Gone(reason, error) => {
                return Admission::End(Outcome::Dead {
                    reason: reason.to_owned(),
                    error: error.to_owned(),
                });
            }
        }
        line.began(began);
        self.metrics.in_flight.increment(1.0);
        let in_flight = InFlight {
            sender: self,
            endpoint: number,
            began,
        };
        Admission::Call(Arc::clone(&line.endpoint), in_flight)
    }

    async fn deliver(&self, item: &Item, delivery: &Delivery, cx: &Context) -> Outcome {
        let (endpoint, in_flight) = match self.admit(delivery.endpoint) {
            Admission::Call(endpoint, in_flight) => (endpoint, in_flight),
            Admission::End(outcome) => return outcome,
        };
        let event = &delivery.event;
        let Some(message) = event.event_id() else {
            return Outcome::dead("its event has no id, so no receiver could tell it from others");
        };
        let request = Request {
            endpoint: &endpoint,
            delivery: item.id,
            message,
            event,
            attempt: cx.attempt(),
            fence: cx.fence(),
            sequence: event.ordering_key().map(|_| item.id.number()),
            time_limit: endpoint.settings.timeout,
        };
        cx.calling();
        let reply = self.caller.call(&request).await;
        let took = in_flight.began.elapsed();
        drop(in_flight);
        self.metrics.seconds.record(took.as_secs_f64());
        let (failures, chance) = (item.counters.failures, self.dice.chance());
        let verdict = judge(&endpoint.settings, &reply, failures, chance);
        tell_call(&request, &reply, took);
        let outcome = match verdict.is_success {
            Some(true) => AttemptOutcome::Delivered,
            Some(false) | None => AttemptOutcome::Failed,
        };
        cx.replied(reply, outcome);
        self.after(&request, &verdict).await;
        verdict.outcome
    }
}

/// Tells of a call: whom, what, which try, how it ended; nothing of what was sent or answered.
fn tell_call(request: &Request<'_>, reply: &Reply, took: Duration) {
    let endpoint = request.endpoint.id.as_str();
    let (delivery, event, attempt) = (request.delivery, request.message, request.attempt);
    match &reply.status {
        Ok(status @ 200..=299) => {
            debug!(endpoint, %delivery, %event, attempt, status, ?took, "delivered");
        }
        Ok(status) => {
            info!(endpoint, %delivery, %event, attempt, status, ?took, "a call failed");
        }
        // Nobody but the operator of this process can mend it: no receiver, and no wait.
        Err(error) if error.kind == CallErrorKind::Unsendable => {
            let why = error.text.as_str();
            warn!(endpoint, %delivery, %event, attempt, why, "could not make a call");
        }
        Err(error) => {
            let trouble = error.kind.as_str();
            info!(endpoint, %delivery, %event, attempt, trouble, ?took, "a call failed");
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("term", &self.term)
            .finish_non_exhaustive()
    }
}

impl Chooser for Sender {
    fn term(&self) -> Term {
        self.term
    }

    /// Each look shows all that is due, and an idle sender would ask twice each time.
    fn is_known_idle(&self, company: Company) -> bool {
        let seen = self.state().none_alone;
        company == Company::Alone && seen.is_some_and(|seen| seen.elapsed() < LOOK)
    }

    fn choose_again(&self, room: &Room) -> Option<Vec<(EndpointLane, u32)>> {
        self.lanes_again(room)
    }

    fn choose<'a>(&'a self, room: &'a Room) -> Answer<'a, Vec<(EndpointLane, u32)>> {
        Box::pin(self.lanes(room))
    }

    fn took(&self, is_full: bool) {
        self.state().is_plenty = is_full;
    }
}

impl Handler for Sender {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        Box::pin(async move {
            match &item.content {
                Content::Delivery(delivery) => Ok(self.deliver(&item, delivery, &cx).await),
                Content::Event(_) | Content::Row(_) => Err(Failure::new(
                    "the item is no delivery, and the sender takes deliveries",
                )),
            }
        })
    }

    /// The endpoint's time limit and a margin.
    fn max_hold(&self, item: &Item) -> Option<Duration> {
        let number = item.content.delivery()?.endpoint;
        let state = self.state();
        let line = state.lines.get(&number)?;
        Some(line.endpoint.settings.timeout + MARGIN)
    }

    /// The endpoint's schedule says when a delivery is tried again.
    fn judge(&self, failed: &Failed<'_>) -> Option<Outcome> {
        let error = failed.failure.error.clone();
        let after = match failed.failure.again {
            Again::After(after) => Some(after),
            Again::Never => return None,
            Again::ByPolicy => {
                let state = self.state();
                let line = state.lines.get(&failed.endpoint?)?;
                let schedule = &line.endpoint.settings.schedule;
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
