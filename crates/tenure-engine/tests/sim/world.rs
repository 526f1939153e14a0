//! World of a seed: a store, a network, processes with the real engine, a producer, an operator,
//! and a nemesis that kills, pauses and partitions; all in one thread with paused time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tenure_core::store::{Filter, Operate as _, QueueRules, Queues as _};
use tenure_core::{
    Clock, Event, ItemId, NewEvent, Priority, QueueName, Timestamp, Token, WorkerId,
};
use tenure_core::{PastHold, Record};
use tenure_engine::{Engine, EngineConfig, Keeper, Parts};
use tenure_store::memory::MemoryStore;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::faults::Fault;
use crate::gate::Gate;
use crate::handler::Steps;
use crate::log::{Cause, Fact, Line, Log, Sort};
use crate::logged_store::{Lie, LoggedStore, at_once};
use crate::network::{Conditions, Network, lock};
use crate::plan::{Plan, Quality, mix, rng};

/// Fault planted in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    Store(Fault),
    Lie(Lie),
}

/// Result of a run.
pub(crate) struct RunResult {
    pub(crate) plan: Plan,
    pub(crate) lines: Vec<Line>,
    /// Final contents of the store, by id.
    pub(crate) records: Vec<(Record, Vec<PastHold>)>,
    /// All items were settled in time.
    pub(crate) is_quiet: bool,
    /// Samples: number of items in the store, and the expected number.
    pub(crate) sums: Vec<(u64, u64)>,
}

/// Tokio's time, slightly faster or slower.
#[derive(Debug)]
struct DriftingClock {
    start: Instant,
    drift: f64,
}

impl Clock for DriftingClock {
    fn now(&self) -> Timestamp {
        let since = self.start.elapsed().mul_f64(self.drift);
        Timestamp::from_micros(1_000_000_000).after(since)
    }
}

/// State shared by the actors.
struct World {
    plan: Plan,
    log: Arc<Log>,
    store: Arc<LoggedStore>,
    is_calm: Arc<AtomicBool>,
    is_over: AtomicBool,
    boots: AtomicU64,
    skips: AtomicU64,
    processes: Vec<Arc<Process>>,
}

/// One process, with at most one running engine at a time.
struct Process {
    conditions: Arc<Mutex<Conditions>>,
    boot: Mutex<Option<Boot>>,
    /// Requests an orderly stop.
    stop: Notify,
}

#[derive(Clone)]
struct Boot {
    worker: Arc<str>,
    gate: Arc<Gate>,
}

impl Process {
    fn boot(&self) -> MutexGuard<'_, Option<Boot>> {
        self.boot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the world of a seed.
pub(crate) fn run(seed: u64, planted: Planted) -> RunResult {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(run_world(Plan::new(seed), planted))
}

fn build(plan: Plan, planted: Planted) -> Arc<World> {
    let drift = match planted {
        Planted::Lie(Lie::FastClock) => 3.0,
        Planted::Nothing | Planted::Store(_) | Planted::Lie(_) => plan.drift,
    };
    let start = Instant::now();
    let clock: Arc<dyn Clock> = Arc::new(DriftingClock { start, drift });
    let log = Arc::new(Log::new(Arc::clone(&clock)));
    let (store, lie) = match planted {
        Planted::Nothing => (MemoryStore::new(clock), None),
        Planted::Store(fault) => (fault.store(clock), None),
        Planted::Lie(lie) => (MemoryStore::new(clock), Some(lie)),
    };
    let rules = QueueRules {
        term: Some(plan.other_term),
        ..QueueRules::default()
    };
    at_once(store.add_queue(&other_queue(), rules)).expect("it answers");
    let process = |nth: u32| {
        Arc::new(Process {
            conditions: Arc::new(Mutex::new(Conditions {
                rng: rng(plan.seed, 100 + u64::from(nth)),
                quality: plan.quality,
                cut_until: None,
                out_since: None,
                latest: plan.term_max() * 2,
            })),
            boot: Mutex::new(None),
            stop: Notify::new(),
        })
    };
    Arc::new(World {
        processes: (0..plan.processes).map(process).collect(),
        store: Arc::new(LoggedStore::new(store, Arc::clone(&log), lie)),
        log,
        is_calm: Arc::new(AtomicBool::new(false)),
        is_over: AtomicBool::new(false),
        boots: AtomicU64::new(0),
        skips: AtomicU64::new(0),
        plan,
    })
}

fn other_queue() -> QueueName {
    QueueName::new("other").expect("a legal name")
}

async fn run_world(plan: Plan, planted: Planted) -> RunResult {
    let world = build(plan, planted);
    let supervisors: Vec<_> = (0..world.processes.len())
        .map(|nth| tokio::spawn(supervise(Arc::clone(&world), nth)))
        .collect();
    let producer = tokio::spawn(produce(Arc::clone(&world)));
    let chaos = world.plan.chaos;
    let faults = join(nemesis(Arc::clone(&world)), outages(Arc::clone(&world)));
    drop(timeout(chaos, faults).await);
    producer.await.expect("the producer ends by itself");
    world.heal();
    let mut sums = Vec::new();
    let quiet = timeout(world.plan.settle_timeout(), quiet(&world, &mut sums)).await;
    world.is_over.store(true, Ordering::Relaxed);
    for process in &world.processes {
        process.stop.notify_one();
    }
    for supervisor in supervisors {
        supervisor.await.expect("a supervisor never panics");
    }
    let records = world.records();
    let lines = std::mem::take(&mut *world.log.lines());
    RunResult {
        plan: world.plan.clone(),
        lines,
        records,
        is_quiet: quiet.is_ok(),
        sums,
    }
}

/// Waits until all items are settled; meanwhile skips the dead heads that block their keys.
async fn quiet(world: &World, sums: &mut Vec<(u64, u64)>) {
    loop {
        let counts = at_once(world.store.inner.count(None)).expect("it answers");
        let sum = counts.pending() + counts.claimed + counts.done + counts.dead;
        sums.push((sum, u64::from(world.plan.items)));
        if counts.pending() + counts.claimed == 0 {
            return;
        }
        let seed = world.plan.seed;
        world.store.skip_blocked(|| {
            let nth = world.skips.fetch_add(1, Ordering::Relaxed);
            let operator = WorkerId::new("operator", 2).expect("a legal name");
            Token::new(&operator, nth, mix(&[seed, nth]).into())
        });
        sleep(Duration::from_millis(500)).await;
    }
}

impl World {
    fn heal(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
        self.set_outage(None);
        for process in &self.processes {
            let mut conditions = lock(&process.conditions);
            conditions.quality = Quality::Clear;
            conditions.cut_until = None;
            drop(conditions);
            let boot = process.boot().clone();
            if let Some(boot) = boot {
                self.resume(&boot);
            }
        }
        self.log.add(Fact::Healed);
    }

    /// Begins an outage of the store, or ends the current one.
    fn set_outage(&self, since: Option<Instant>) {
        let mut is_changed = false;
        for process in &self.processes {
            let mut conditions = lock(&process.conditions);
            is_changed |= conditions.out_since.is_some() != since.is_some();
            conditions.out_since = since;
        }
        if is_changed {
            self.log.add(match since {
                Some(_) => Fact::OutageBegan,
                None => Fact::OutageEnded,
            });
        }
    }

    fn kill(&self, boot: &Boot) {
        if boot.gate.kill() {
            let fact = Fact::Crashed(Arc::clone(&boot.worker), Cause::Killed);
            self.log.add(fact);
        }
    }

    fn pause(&self, boot: &Boot) -> bool {
        let is_paused = boot.gate.shut();
        if is_paused {
            self.log.add(Fact::Paused(Arc::clone(&boot.worker)));
        }
        is_paused
    }

    fn resume(&self, boot: &Boot) {
        if boot.gate.open() {
            self.log.add(Fact::Resumed(Arc::clone(&boot.worker)));
        }
    }

    fn records(&self) -> Vec<(Record, Vec<PastHold>)> {
        let store = &self.store.inner;
        let page = at_once(store.list(&Filter::default(), Filter::PAGE_MAX));
        let records = page.expect("it answers").records;
        let timeline = |id: ItemId| at_once(store.timeline(id)).expect("it answers");
        records
            .into_iter()
            .map(|record| {
                let holds = timeline(record.id);
                (record, holds)
            })
            .collect()
    }

    fn start(&self, process: &Process) -> (Engine, Boot) {
        let nth = self.boots.fetch_add(1, Ordering::Relaxed) + 1;
        let worker = WorkerId::new("sim", nth).expect("a legal name");
        let boot = Boot {
            worker: worker.as_str().into(),
            gate: Gate::new(),
        };
        let network = Arc::new(Network {
            worker: Arc::clone(&boot.worker),
            store: Arc::clone(&self.store),
            conditions: Arc::clone(&process.conditions),
        });
        let handler = Steps {
            log: Arc::clone(&self.log),
            gate: Arc::clone(&boot.gate),
            worker: Arc::clone(&boot.worker),
            seed: self.plan.seed,
            term: self.plan.settings.term.length(),
            is_flaky: self.plan.is_flaky,
            is_quick: self.plan.is_quick,
            is_calm: Arc::clone(&self.is_calm),
            hides_failures: self.store.lie == Some(Lie::FailuresHidden),
        };
        self.log.add(Fact::Booted(Arc::clone(&boot.worker)));
        let engine = Engine::start(Parts {
            store: Arc::<Network>::clone(&network),
            keeper_store: network,
            worker,
            handler: Arc::new(handler),
            config: EngineConfig {
                settings: self.plan.settings.clone(),
                keeper: Keeper::SameRuntime,
                seed: Some(mix(&[self.plan.seed, nth])),
                ..EngineConfig::default()
            },
            wrap: Some(boot.gate.wrap()),
        });
        (engine.expect("the settings fit"), boot)
    }
}

/// Restarts a process until the world is over.
async fn supervise(world: Arc<World>, nth: usize) {
    let process = Arc::clone(&world.processes[nth]);
    let mut rng = rng(world.plan.seed, 200 + u64::try_from(nth).expect("few"));
    while !world.is_over.load(Ordering::Relaxed) {
        let (engine, boot) = world.start(&process);
        *process.boot() = Some(boot.clone());
        let must_stop = tokio::select! {
            biased;
            () = boot.gate.killed.notified() => false,
            () = process.stop.notified() => true,
            reason = engine.failed() => {
                world.log.add(Fact::Broke(Arc::clone(&boot.worker), reason));
                false
            }
        };
        if must_stop {
            stop(&world, engine, &boot).await;
        } else {
            drop(engine);
        }
        if boot.gate.has_spun() {
            let fact = Fact::Broke(Arc::clone(&boot.worker), "it spins".to_owned());
            world.log.add(fact);
        }
        boot.gate.kill();
        *process.boot() = None;
        sleep(Duration::from_millis(rng.random_range(10..1500))).await;
    }
}

/// Stops an engine, which may still be paused or killed in the meantime.
async fn stop(world: &Arc<World>, engine: Engine, boot: &Boot) {
    let worker = Arc::clone(&boot.worker);
    world.log.add(Fact::Stopping(Arc::clone(&worker)));
    let log = Arc::clone(&world.log);
    let stopping = boot.gate.task(Box::pin(async move {
        let report = engine.stop().await;
        log.add(Fact::Stopped(worker, report.left));
    }));
    tokio::select! {
        biased;
        () = boot.gate.killed.notified() => {}
        () = stopping => {}
    }
}

/// Enqueues events over time.
async fn produce(world: Arc<World>) {
    let plan = &world.plan;
    let mut rng = rng(plan.seed, 1);
    let mut of_keys = self::rng(plan.seed, 4);
    let bad_items = [Sort::Poison, Sort::Hopeless, Sort::Bad];
    let mut sorts = Vec::new();
    for (sort, count) in bad_items.into_iter().zip(plan.bad_items) {
        sorts.extend((0..count).map(|_| sort));
    }
    let count = usize::try_from(plan.items).expect("few");
    while sorts.len() < count {
        let nth = rng.random_range(0..=sorts.len());
        sorts.insert(nth, Sort::Plain);
    }
    sorts.truncate(count);
    let pause = plan.chaos.mul_f64(0.7) / plan.items;
    for (nth, sort) in (0..plan.items).zip(sorts) {
        if rng.random_bool(0.4) {
            let share = rng.random_range(0.0..2.5);
            // Events come in bursts, so that claims take runs.
            let is_burst = plan.is_quick && of_keys.random_bool(0.7);
            sleep(pause.mul_f64(if is_burst { 0.0 } else { share })).await;
        }
        let mut event = event(plan, sort, nth, &mut rng);
        if plan.keys > 0 && of_keys.random_bool(0.9) {
            let key = format!("key-{}", of_keys.random_range(0..plan.keys));
            if plan.is_quick {
                event = Event::new(sort.topic(), &nth).expect("a legal event");
            }
            event = NewEvent::from(event)
                .key(&key)
                .build()
                .expect("a legal key");
        }
        world.store.enqueue(event, nth);
    }
}

fn event(plan: &Plan, sort: Sort, nth: u32, rng: &mut StdRng) -> Event {
    let mut event = Event::new(sort.topic(), &nth).expect("a legal event");
    if rng.random_bool(0.3) {
        event = NewEvent::from(event)
            .queue(other_queue().as_str())
            .build()
            .expect("a legal name");
    }
    if rng.random_bool(0.3) {
        event = NewEvent::from(event)
            .priority(
                Priority::new(rng.random_range(0..=7))
                    .expect("a legal level")
                    .level(),
            )
            .build()
            .expect("a legal event");
    }
    if rng.random_bool(0.2) {
        let delay = plan.settings.term.length().mul_f64(rng.random());
        event = NewEvent::from(event)
            .delay(delay)
            .build()
            .expect("a legal delay");
    }
    event
}

/// Makes the store unavailable now and then, until it is dropped.
async fn outages(world: Arc<World>) {
    let plan = &world.plan;
    let mut rng = rng(plan.seed, 6);
    let term = plan.settings.term.length();
    if !plan.kinds.outages {
        return;
    }
    loop {
        sleep(term.mul_f64(rng.random_range(0.5..2.0))).await;
        world.set_outage(Some(Instant::now()));
        sleep(term.mul_f64(rng.random_range(0.2..3.0))).await;
        world.set_outage(None);
    }
}

/// Injects faults until it is dropped.
async fn nemesis(world: Arc<World>) {
    let plan = &world.plan;
    let mut rng = rng(plan.seed, 2);
    let term = plan.settings.term.length();
    let operator = WorkerId::new("operator", 1).expect("a legal name");
    let mut buries = 0;
    loop {
        sleep(term.mul_f64(rng.random_range(0.05..1.5))).await;
        let process = Arc::clone(&world.processes[rng.random_range(0..world.processes.len())]);
        let boot = process.boot().clone();
        let id = ItemId::new(rng.random_range(1..=i64::from(plan.items)));
        let kinds = plan.kinds;
        match (rng.random_range(0..7), boot) {
            (0, Some(boot)) if kinds.crashes => world.kill(&boot),
            (1, Some(boot)) if kinds.pauses => {
                let length = term.mul_f64(rng.random_range(0.1..3.0));
                if world.pause(&boot) {
                    let world = Arc::clone(&world);
                    drop(tokio::spawn(async move {
                        sleep(length).await;
                        world.resume(&boot);
                    }));
                }
            }
            (2, _) if kinds.cuts => {
                let length = term.mul_f64(rng.random_range(0.1..2.0));
                lock(&process.conditions).cut_until = Some(Instant::now() + length);
            }
            (3, Some(_)) if kinds.deploys => process.stop.notify_one(),
            (4, _) if kinds.operator => {
                buries += 1;
                let token = Token::new(&operator, buries, mix(&[plan.seed, buries]).into());
                world.store.bury(id, &token);
            }
            (5, _) if kinds.operator => world.store.replay(id),
            (6, _) if kinds.tuning => world.store.tune(tuned(plan, &mut rng)),
            _ => {}
        }
    }
}

/// Returns changed settings that the limits of the checkers allow.
fn tuned(plan: &Plan, rng: &mut StdRng) -> Vec<(String, String)> {
    let term = plan
        .settings
        .term
        .length()
        .mul_f64(rng.random_range(0.9..2.0));
    vec![
        ("lease.term".to_owned(), format!("{}ms", term.as_millis())),
        (
            "worker.concurrency".to_owned(),
            rng.random_range(1..=8).to_string(),
        ),
    ]
}
