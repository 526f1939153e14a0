//! A storm: three workers publish events, some in runs of keys, and deliver webhooks to a slow, a
//! failing and an ordered endpoint. The workers and their server are killed and paused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::Tenure;
use tenure::lease::{LapsePolicy, PastHold, Record};
use tenure::operate::Filter;
use tenure_nemesis::{
    Bounds, History, Hold, Schedule, Servers, Summary, Work, check, now, report, say, within,
};

use super::TERM;
use super::load::{self, Intake, Receiver, Watch};
use super::webhooks::{ENDPOINTS, Site, endpoints, manner};
use super::world::{World, process_of};

const WORKERS: usize = 3;
/// The term of a storm. A claim takes only as much of a run as can start within a tenth of the
/// term.
pub(super) const STORM_TERM: Duration = Duration::from_secs(4);
/// The pause is longer than the term, the interval of the reaper and the margin of the rules
/// together.
const PAUSE: Duration = Duration::from_secs(10);
/// No event lapses this often in a run, so none becomes dead.
pub(super) const MAX_CRASHES: u32 = 50;
/// Longest time from the promotion of a server to the next settle.
const RESUMPTION_MAX: Duration = Duration::from_secs(2);
/// Maximum time without progress after the faults.
const QUIET_MAX: Duration = Duration::from_mins(1);

/// Proves: S1-023, S1-025, S2-024, S2-040, S2-041, S2-044, S2-061
/// Proves: S3-001, S3-007, S4-051, S4-053, S4-054, S4-056, S4-057, S4-058
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_paused_workers_and_a_killed_postgres_lose_nothing() {
    let world = World::postgres().await;
    stormed(world, "PostgreSQL", Schedule::from_environment()).await;
}

/// Proves: S4-051, S4-053, S4-054, S4-056
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_and_a_killed_postgres_behind_a_pooler_lose_nothing() {
    let world = World::pooled().await;
    stormed(world, "PgBouncer", Schedule::from_environment()).await;
}

/// Proves: S1-023, S1-025, S2-024, S2-040, S2-041, S2-044, S2-061
/// Proves: S3-001, S3-007, S4-051, S4-053, S4-054, S4-057, S4-058
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_paused_workers_lose_nothing_on_sqlite() {
    stormed(World::sqlite(), "SQLite", Schedule::from_environment()).await;
}

/// Without faults, the receiver gets each event once, under one lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unharmed_workers_publish_everything_once() {
    for mut world in [World::sqlite(), World::shared_postgres().await] {
        // The term is long enough that a busy machine loses no lease.
        let term = 10 * TERM;
        world.configure(term, MAX_CRASHES, "");
        world.crew.fill(WORKERS).await;
        let tenure = world.place.tenure().await;
        let mut intake = Intake::default();
        for nth in 0..20 {
            let key = (nth % 2 == 0).then(|| format!("key-{}", nth % 6));
            let pieces = [("quick", key), ("slow", None), ("quick", None)];
            intake.enqueue(&tenure, &pieces).await;
        }
        settled(&tenure).await;
        world.crew.shut_down().await;
        let history = published(&world, &tenure, (intake, Watch::default()), term).await;
        let summary = judged(&history, "unharmed");
        assert_eq!((summary.works, history.effects.len()), (60, 60));
        assert_eq!((summary.duplicates, summary.lapses), (0, 0));
    }
}

/// Goal: a failover of a cluster loses nothing, and workers find its new leader. Method: a storm
/// whose servers are a Patroni cluster with synchronous replication; every outage is a failover,
/// and the killed leader comes back as a replica. `TENURE_TEST_PATRONI` asks for the test, which
/// needs Patroni and etcd: `scripts/prove patroni` installs them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_of_a_cluster_lose_nothing_and_work_goes_on() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the choice of tests is not a setting of the program"
    )]
    if std::env::var_os("TENURE_TEST_PATRONI").is_none() {
        return say("not run: TENURE_TEST_PATRONI is not set");
    }
    let world = World::cluster().await;
    let history = stormed(world, "Patroni", Schedule::from_environment()).await;
    for (outage, resumed) in history.resumptions() {
        let (promoted, resumed) = (outage.to.since(outage.from), resumed.unwrap());
        say(&format!(
            "a new leader after {promoted:.2?}, the next settle {resumed:.2?} later"
        ));
    }
}

/// Runs workers under load, injects faults, waits until all items are settled, and checks every
/// history. Returns that of the events.
async fn stormed(world: World, name: &str, schedule: Schedule) -> History {
    // The schedule is printed first, so that a hanging run can be repeated as well.
    say(&format!("{name}: {schedule:?}"));
    let mut site = Site::storm(world, manner).await;
    let tenure = site.tenure.clone();
    let (mut intake, mut watch) = (Intake::default(), Watch::default());
    // These are enough for some failures of the failing endpoint, and for claims of runs.
    for piece in [("plain", None), ("quick", Some("first".to_owned()))] {
        intake.enqueue(&tenure, &vec![piece; 24]).await;
    }
    site.world.crew.fill(WORKERS).await;
    let (is_loaded, is_watched) = (AtomicBool::new(true), AtomicBool::new(true));
    tokio::join!(
        intake.run(&tenure, schedule.seed, &is_loaded),
        watch.run(&tenure, &site.world, &is_watched),
        async {
            let is_busy = async |worker: &str, kill: usize| match kill % 4 {
                0 => load::has_published(&site.world, &tenure, worker).await,
                _ => endpoints::is_calling(&site, worker).await,
            };
            schedule.run(&site.world.crew, PAUSE, is_busy).await;
            is_loaded.store(false, Ordering::Relaxed);
            settled(&tenure).await;
            is_watched.store(false, Ordering::Relaxed);
        }
    );
    site.world.crew.shut_down().await;
    assert!(watch.looks > 20, "only {} looks", watch.looks);
    let written = intake.written.clone();
    let history = published(&site.world, &tenure, (intake, watch), STORM_TERM).await;
    let summary = judged(&history, &format!("{name}, {schedule:?}"));
    assert_eq!(summary.kills, schedule.kills);
    assert_eq!(summary.pauses, schedule.pauses);
    if site.world.crew.servers.is_some() {
        assert_eq!(summary.outages, schedule.outages);
    }
    // A run in which no kill hit any work would prove nothing. Half of the kills aim at workers
    // that have published an event or called an endpoint and have not settled it.
    assert!(summary.hits > schedule.kills / 4, "{schedule:?}: {summary}");
    assert!(summary.duplicates > 0, "{schedule:?}: {summary}");
    // On an overloaded machine, claims take no runs.
    let has_runs = summary.followers > 0 || summary.stalls > 0;
    assert!(has_runs, "{schedule:?}: {summary}");

    let (mut hits, mut duplicates) = (0, 0);
    for (endpoint, _) in ENDPOINTS {
        let history = endpoints::delivered(&site, endpoint, &history, &written).await;
        let summary = judged(&history, &format!("{name}, {endpoint}, {schedule:?}"));
        hits += summary.hits;
        duplicates += summary.duplicates;
        assert_eq!(history.failed.is_empty(), endpoint != "failing");
    }
    assert!(
        hits > 0 && duplicates > 0,
        "{schedule:?}: no fault cost a delivery"
    );
    site.keeps_secrets();
    history
}

/// Asserts that a history breaks no rule; returns its figures.
fn judged(history: &History, name: &str) -> Summary {
    let (violations, summary) = check(history);
    say(&format!("{name}: {summary}"));
    let is_sound = violations.is_empty();
    assert!(is_sound, "{name}: {}", report(&violations, history));
    summary
}

/// Waits until no event or delivery is pending or held.
async fn settled(tenure: &Tenure) {
    let mut last = (0, now());
    loop {
        let settled = within(QUIET_MAX, async || {
            // A connection may still lead to the killed server.
            let counts = tenure.count().await.ok()?;
            let deliveries = endpoints::open(tenure).await?;
            Some((counts.pending() + counts.claimed, deliveries))
        });
        let (events, deliveries) = settled.await;
        let open = events + deliveries;
        if open == 0 {
            return;
        }
        if last.0 != open {
            last = (open, now());
        }
        // The lapse policy gives items that lapsed often a long delay.
        let waited = now().since(last.1);
        assert!(
            waited < 2 * QUIET_MAX,
            "{events} events and {deliveries} deliveries are stuck"
        );
        tokio::time::sleep(tenure_nemesis::POLL).await;
    }
}

/// The history of the events that the workers published.
async fn published(
    world: &World,
    tenure: &Tenure,
    (intake, watch): (Intake, Watch),
    term: Duration,
) -> History {
    let mut receiver = Receiver::new(world);
    receiver.read();
    let mut works = Vec::new();
    let mut filter = Filter::default();
    loop {
        let page = tenure.list(&filter, Filter::PAGE_MAX).await.unwrap();
        for record in page.records {
            let holds = tenure.timeline(record.id).await.unwrap();
            works.push(work(&record, holds));
        }
        if page.next.is_none() {
            break;
        }
        filter.before = page.next;
    }
    let is_cluster = matches!(world.crew.servers, Some(Servers::Cluster(_)));
    History {
        bounds: Bounds {
            resumption: is_cluster.then_some(RESUMPTION_MAX),
            ..bounds(term)
        },
        written: intake.written,
        unknown: intake.unknown,
        works,
        effects: receiver.effects,
        faults: world.crew.faults(),
        losses: world.losses(),
        until: watch.until,
        too_soon: watch.too_soon,
        torn_keys: watch.torn_keys,
        exits: world.crew.exits(),
        ..History::default()
    }
}

pub(super) fn bounds(term: Duration) -> Bounds {
    let delays = LapsePolicy::default().delays().to_vec();
    Bounds {
        term,
        reaper: term / 3,
        lapse: LapsePolicy::new(MAX_CRASHES, delays).unwrap(),
        resumption: None,
    }
}

/// An event or a delivery with its journal.
pub(super) fn work(record: &Record, holds: Vec<PastHold>) -> Work {
    let event = record.content.event().unwrap();
    let hold = |hold: PastHold| Hold {
        holder: process_of(&hold.holder),
        fence: hold.fence.number(),
        outcome: hold.outcome,
        from: hold.claimed_at,
        to: hold.settled_at,
    };
    Work {
        id: record.id.number(),
        serial: event.payload().parse().unwrap(),
        name: event.topic().to_owned(),
        event_id: event.event_id(),
        key: event.key().map(str::to_owned),
        state: Some(record.state),
        dead_reason: record.dead_reason.clone(),
        holds: holds.into_iter().map(hold).collect(),
        ..Work::default()
    }
}
