//! World: from one seed a store, a network, processes with the real engine in them, a producer, an
//! operator, and a nemesis that crashes, stops and cuts off; all in one thread with paused time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use tenure_core::store::{Filter, Operate as _, Queues as _};
use tenure_core::{Clock, Event, ItemId, Priority, QueueName, Timestamp, Token, WorkerId};
use tenure_core::{EndedHold, Record};
use tenure_engine::{Engine, EngineConfig, Keeper, Parts};
use tenure_store::memory::{Fault, MemoryStore};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::gate::Gate;
use crate::handler::Steps;
use crate::ledger::{Ledger, Lie, at_once};
use crate::log::{Cause, Fact, Line, Log, Sort};
use crate::plan::{Plan, Sky, dice, mix};
use crate::wire::{Weather, Wire, look};

/// What is planted in a world to see whether the checkers notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    Store(Fault),
    Lie(Lie),
}

/// What is left when a world has ended.
pub(crate) struct Remains {
    pub(crate) plan: Plan,
    pub(crate) lines: Vec<Line>,
    /// What the store holds in the end, by id.
    pub(crate) records: Vec<(Record, Vec<EndedHold>)>,
    /// Whether everything was settled in time.
    pub(crate) is_quiet: bool,
    /// Samples of how many items there were and how many there should have been.
    pub(crate) sums: Vec<(u64, u64)>,
}

/// Tells tokio's time, a little faster or slower.
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

/// Everything that its actors see.
struct World {
    plan: Plan,
    log: Arc<Log>,
    ledger: Arc<Ledger>,
    is_calm: Arc<AtomicBool>,
    is_over: AtomicBool,
    boots: AtomicU64,
    skips: AtomicU64,
    processes: Vec<Arc<Process>>,
}

/// One process: at any time at most one boot of it is alive.
struct Process {
    weather: Arc<Mutex<Weather>>,
    boot: Mutex<Option<Boot>>,
    /// Asks it to stop in order.
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

/// Lets the world of a seed happen.
pub(crate) fn run(seed: u64, planted: Planted) -> Remains {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(live(Plan::new(seed), planted))
}

fn found(plan: Plan, planted: Planted) -> Arc<World> {
    let drift = match planted {
        Planted::Lie(Lie::FastClock) => 3.0,
        Planted::Nothing | Planted::Store(_) | Planted::Lie(_) => plan.drift,
    };
    let start = Instant::now();
    let clock: Arc<dyn Clock> = Arc::new(DriftingClock { start, drift });
    let log = Arc::new(Log::new(Arc::clone(&clock)));
    let (store, lie) = match planted {
        Planted::Nothing => (MemoryStore::new(clock), None),
        Planted::Store(fault) => (MemoryStore::planted(clock, fault), None),
        Planted::Lie(lie) => (MemoryStore::new(clock), Some(lie)),
    };
    at_once(store.add_queue(&other_queue(), Some(plan.other_term))).expect("it answers");
    let process = |nth: u32| {
        Arc::new(Process {
            weather: Arc::new(Mutex::new(Weather {
                dice: dice(plan.seed, 100 + u64::from(nth)),
                sky: plan.sky,
                cut_until: None,
                latest: plan.term_max() * 2,
            })),
            boot: Mutex::new(None),
            stop: Notify::new(),
        })
    };
    Arc::new(World {
        processes: (0..plan.processes).map(process).collect(),
        ledger: Arc::new(Ledger::new(store, Arc::clone(&log), lie)),
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

async fn live(plan: Plan, planted: Planted) -> Remains {
    let world = found(plan, planted);
    let supervisors: Vec<_> = (0..world.processes.len())
        .map(|nth| tokio::spawn(supervise(Arc::clone(&world), nth)))
        .collect();
    let producer = tokio::spawn(produce(Arc::clone(&world)));
    let chaos = world.plan.chaos;
    drop(timeout(chaos, nemesis(Arc::clone(&world))).await);
    producer.await.expect("the producer ends by itself");
    world.heal();
    let mut sums = Vec::new();
    let quiet = timeout(world.plan.patience(), quiet(&world, &mut sums)).await;
    world.is_over.store(true, Ordering::Relaxed);
    for process in &world.processes {
        process.stop.notify_one();
    }
    for supervisor in supervisors {
        supervisor.await.expect("a supervisor never panics");
    }
    let records = world.records();
    let lines = std::mem::take(&mut *world.log.lines());
    Remains {
        plan: world.plan.clone(),
        lines,
        records,
        is_quiet: quiet.is_ok(),
        sums,
    }
}

/// Waits until everything is settled.
async fn quiet(world: &World, sums: &mut Vec<(u64, u64)>) {
    loop {
        let counts = at_once(world.ledger.store.count(None)).expect("it answers");
        let sum = counts.pending() + counts.claimed + counts.done + counts.dead;
        sums.push((sum, u64::from(world.plan.items)));
        if counts.pending() + counts.claimed == 0 {
            return;
        }
        let seed = world.plan.seed;
        world.ledger.skip_blocked(|| {
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
        for process in &self.processes {
            let mut weather = look(&process.weather);
            weather.sky = Sky::Clear;
            weather.cut_until = None;
            drop(weather);
            let boot = process.boot().clone();
            if let Some(boot) = boot {
                self.resume(&boot);
            }
        }
        self.log.add(Fact::Healed);
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

    fn records(&self) -> Vec<(Record, Vec<EndedHold>)> {
        let store = &self.ledger.store;
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
        let wire = Arc::new(Wire {
            worker: Arc::clone(&boot.worker),
            ledger: Arc::clone(&self.ledger),
            weather: Arc::clone(&process.weather),
        });
        let handler = Steps {
            log: Arc::clone(&self.log),
            gate: Arc::clone(&boot.gate),
            worker: Arc::clone(&boot.worker),
            seed: self.plan.seed,
            term: self.plan.settings.term.length(),
            is_moody: self.plan.is_moody,
            is_smooth: self.plan.is_smooth,
            is_calm: Arc::clone(&self.is_calm),
            hides_failures: self.ledger.lie == Some(Lie::FailuresHidden),
        };
        self.log.add(Fact::Booted(Arc::clone(&boot.worker)));
        let engine = Engine::start(Parts {
            store: Arc::<Wire>::clone(&wire),
            keeper_store: wire,
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

/// Starts a process again and again, until the world is over.
async fn supervise(world: Arc<World>, nth: usize) {
    let process = Arc::clone(&world.processes[nth]);
    let mut dice = dice(world.plan.seed, 200 + u64::try_from(nth).expect("few"));
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
        sleep(Duration::from_millis(dice.random_range(10..1500))).await;
    }
}

/// Stops an engine in order; it may still be stopped or killed in the middle of that.
async fn stop(world: &Arc<World>, engine: Engine, boot: &Boot) {
    let worker = Arc::clone(&boot.worker);
    world.log.add(Fact::Stopping(Arc::clone(&worker)));
    let log = Arc::clone(&world.log);
    let stopping = boot.gate.task(Box::pin(async move {
        let ended = engine.stop().await;
        log.add(Fact::Stopped(worker, ended.left));
    }));
    tokio::select! {
        biased;
        () = boot.gate.killed.notified() => {}
        () = stopping => {}
    }
}

/// Writes events over time.
async fn produce(world: Arc<World>) {
    let plan = &world.plan;
    let mut dice = dice(plan.seed, 1);
    let mut of_keys = self::dice(plan.seed, 4);
    let ills = [Sort::Poison, Sort::Hopeless, Sort::Bad];
    let mut sorts = Vec::new();
    for (sort, count) in ills.into_iter().zip(plan.ills) {
        sorts.extend((0..count).map(|_| sort));
    }
    let count = usize::try_from(plan.items).expect("few");
    while sorts.len() < count {
        let nth = dice.random_range(0..=sorts.len());
        sorts.insert(nth, Sort::Plain);
    }
    sorts.truncate(count);
    let pause = plan.chaos.mul_f64(0.7) / plan.items;
    for (nth, sort) in (0..plan.items).zip(sorts) {
        if dice.random_bool(0.4) {
            let share = dice.random_range(0.0..2.5);
            // Where claims take runs, events come in bursts.
            let is_burst = plan.is_smooth && of_keys.random_bool(0.7);
            sleep(pause.mul_f64(if is_burst { 0.0 } else { share })).await;
        }
        let mut event = event(plan, sort, nth, &mut dice);
        if plan.keys > 0 && of_keys.random_bool(0.9) {
            let key = format!("key-{}", of_keys.random_range(0..plan.keys));
            if plan.is_smooth {
                event = Event::new(sort.topic(), &nth).expect("a legal event");
            }
            event = event.key(&key).expect("a legal key");
        }
        world.ledger.enqueue(event, nth);
    }
}

fn event(plan: &Plan, sort: Sort, nth: u32, dice: &mut StdRng) -> Event {
    let mut event = Event::new(sort.topic(), &nth).expect("a legal event");
    if dice.random_bool(0.3) {
        event = event.queue(other_queue().as_str()).expect("a legal name");
    }
    if dice.random_bool(0.3) {
        event = event.priority(Priority::new(dice.random_range(0..=7)).expect("a legal level"));
    }
    if dice.random_bool(0.2) {
        let delay = plan.settings.term.length().mul_f64(dice.random());
        event = event.delay(delay).expect("a legal delay");
    }
    event
}

/// Does harm until it is stopped.
async fn nemesis(world: Arc<World>) {
    let plan = &world.plan;
    let mut dice = dice(plan.seed, 2);
    let term = plan.settings.term.length();
    let operator = WorkerId::new("operator", 1).expect("a legal name");
    let mut buries = 0;
    loop {
        sleep(term.mul_f64(dice.random_range(0.05..1.5))).await;
        let process = Arc::clone(&world.processes[dice.random_range(0..world.processes.len())]);
        let boot = process.boot().clone();
        let id = ItemId::new(dice.random_range(1..=i64::from(plan.items)));
        let kinds = plan.kinds;
        match (dice.random_range(0..7), boot) {
            (0, Some(boot)) if kinds.crashes => world.kill(&boot),
            (1, Some(boot)) if kinds.pauses => {
                let length = term.mul_f64(dice.random_range(0.1..3.0));
                if world.pause(&boot) {
                    let world = Arc::clone(&world);
                    drop(tokio::spawn(async move {
                        sleep(length).await;
                        world.resume(&boot);
                    }));
                }
            }
            (2, _) if kinds.cuts => {
                let length = term.mul_f64(dice.random_range(0.1..2.0));
                look(&process.weather).cut_until = Some(Instant::now() + length);
            }
            (3, Some(_)) if kinds.deploys => process.stop.notify_one(),
            (4, _) if kinds.operator => {
                buries += 1;
                let token = Token::new(&operator, buries, mix(&[plan.seed, buries]).into());
                world.ledger.bury(id, &token);
            }
            (5, _) if kinds.operator => world.ledger.replay(id),
            (6, _) if kinds.tuning => world.ledger.tune(tuned(plan, &mut dice)),
            _ => {}
        }
    }
}

/// Other settings, within what the checkers reckon with.
fn tuned(plan: &Plan, dice: &mut StdRng) -> Vec<(String, String)> {
    let term = plan
        .settings
        .term
        .length()
        .mul_f64(dice.random_range(0.9..2.0));
    vec![
        ("lease.term".to_owned(), format!("{}ms", term.as_millis())),
        (
            "worker.concurrency".to_owned(),
            dice.random_range(1..=8).to_string(),
        ),
    ]
}
