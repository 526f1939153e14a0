//! Crash tests: workers of the real program, killed with -9, stopped past the end of their leases
//! and continued, on databases that are killed themselves; and a checker that reads what is left.
//!
//! A run is 20 kills, 5 pauses and, on PostgreSQL, 3 kills of the server. `TENURE_TEST_CRASH_KILLS`
//! asks for more, `TENURE_TEST_CRASH_SEED` for the same again.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also where it is not in the test function itself"
)]

mod by_hand;
mod checker;
mod history;
mod load;
mod nemesis;
mod order;
mod planted;
mod poison;
mod webhooks;
mod world;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::{EndedHold, Filter, LapsePolicy, Record, State, Tenure};
use tokio::time::sleep;

use checker::{Summary, Violation, check};
use history::{Bounds, History, Span, Stored};
use load::{Intake, Load, Receiver, Sight};
use nemesis::Nemesis;
use world::{LOOK, World, now};

/// The term of leases in a run; the reaper's interval follows from it.
const TERM: Duration = Duration::from_secs(2);
/// Workers of a run.
const WORKERS: usize = 3;
/// Kills where claims take runs of keys.
const KILLS_OF_RUNS: u32 = 6;
/// So many lapses nobody has in a run: no event dies by bad luck.
const MAX_CRASHES: u32 = 50;
/// When all is well again, everything is settled within term, reaper interval, a delay and some
/// room for a busy machine.
const QUIET_MAX: Duration = Duration::from_secs(30);

/// Proves: S1-023, S1-025, S2-040, S2-041, S4-053, S4-054, S4-056, S4-057, S4-058
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_stopped_workers_and_a_killed_postgres_lose_nothing() {
    let nemesis = Nemesis::from_environment();
    harmed(
        World::postgres().await,
        "PostgreSQL",
        (Load::Mixed, nemesis),
    )
    .await;
}

/// Proves: S1-023, S1-025, S2-040, S2-041, S4-053, S4-054, S4-057, S4-058
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_stopped_workers_lose_nothing_on_sqlite() {
    let nemesis = Nemesis::from_environment();
    harmed(World::sqlite(), "SQLite", (Load::Mixed, nemesis)).await;
}

/// Runs of keys under one lease each, torn apart by kills, pauses and outages.
///
/// Proves: S3-001, S3-007, S4-051
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_stopped_workers_keep_the_order_of_keys() {
    for (world, name, pauses) in [
        // Stopped in the middle of its transaction, one worker would hold up all, with so much to
        // write; the other test of SQLite stops them.
        (World::sqlite(), "SQLite", 0),
        (World::postgres().await, "PostgreSQL", 2),
    ] {
        let nemesis = Nemesis {
            kills: KILLS_OF_RUNS,
            pauses,
            ..Nemesis::from_environment()
        };
        let summary = harmed(world, name, (Load::Runs, nemesis)).await;
        assert!(summary.followers > 0, "{nemesis:?}: {summary}");
    }
}

/// With nobody harmed there is nothing to explain: each event is received once, under one hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unharmed_workers_publish_everything_once() {
    for mut world in [World::sqlite(), World::postgres().await] {
        // Long enough that a busy machine does not cost a lease.
        let term = 10 * TERM;
        world.configure(term, MAX_CRASHES);
        world.crew(WORKERS, &[]).await;
        let tenure = world.place.tenure().await;
        let mut intake = Intake::default();
        for nth in 0..20 {
            let key = (nth % 2 == 0).then(|| format!("key-{}", nth % 6));
            let pieces = [("quick", key), ("slow", None), ("quick", None)];
            intake.enqueue(&tenure, &pieces).await;
        }
        settled(&tenure).await;
        let history = history(&mut world, &tenure, intake, Sight::default(), term).await;
        let (violations, summary) = check(&history);
        assert_eq!(violations, []);
        assert_eq!((summary.events, history.received.len()), (60, 60));
        assert_eq!((summary.duplicates, summary.lapses), (0, 0));
    }
}

/// Runs workers under load, harms them, lets them settle everything, and reads what is left.
async fn harmed(mut world: World, name: &str, (load, nemesis): (Load, Nemesis)) -> Summary {
    // Said first, so that a run that hangs can be repeated, too.
    say(&format!("{name}: {nemesis:?}"));
    let term = load.term();
    world.configure(term, MAX_CRASHES);
    world.crew(WORKERS, &[]).await;
    let tenure = world.place.tenure().await;
    let (mut intake, mut sight) = (Intake::default(), Sight::default());
    let (is_loaded, is_watched) = (AtomicBool::new(true), AtomicBool::new(true));
    tokio::join!(
        intake.run(&tenure, (load, nemesis.seed), &is_loaded),
        sight.run(&tenure, &world, &is_watched),
        async {
            nemesis.run(&world).await;
            is_loaded.store(false, Ordering::Relaxed);
            settled(&tenure).await;
            is_watched.store(false, Ordering::Relaxed);
        }
    );
    let looks = sight.looks;
    assert_eq!(sight.torn, BTreeSet::new(), "{nemesis:?}: held twice");
    let history = history(&mut world, &tenure, intake, sight, term).await;
    let (violations, summary) = check(&history);
    say(&format!("{name}: {summary}"));
    assert!(
        violations.is_empty(),
        "{nemesis:?}: {}",
        listed(&violations, &history)
    );
    expect_harm((load, nemesis), &world, &summary);
    assert!(looks > 50, "{nemesis:?}: the watch had only {looks} looks");
    summary
}

/// A run that harmed nobody would prove nothing.
fn expect_harm((load, nemesis): (Load, Nemesis), world: &World, summary: &Summary) {
    let number = |number: u32| usize::try_from(number).unwrap();
    assert_eq!(summary.kills, number(nemesis.kills));
    assert_eq!(summary.pauses, number(nemesis.pauses));
    if world.server.is_some() {
        assert_eq!(summary.outages, number(nemesis.outages()));
    }
    let least = match load {
        Load::Mixed | Load::Owed => summary.kills / 4,
        // Few keys are few things in hand: a quick machine has none of them at six moments. A
        // pause always meets some.
        Load::Runs if nemesis.pauses == 0 => return,
        Load::Runs => 0,
    };
    assert!(summary.hits > least, "{nemesis:?}: {summary}");
    assert!(summary.duplicates > 0, "{nemesis:?}: {summary}");
}

/// The violations, each with the journal of its event.
fn listed(violations: &[Violation], history: &History) -> String {
    let journals = violations.iter().map(|violation| {
        let event = violation.event();
        let event = history
            .events
            .iter()
            .find(|stored| Some(stored.id) == event);
        format!("{violation}: {event:?}\n")
    });
    let faults = history.faults.iter().map(|fault| format!("{fault:?}\n"));
    journals.chain(faults).collect()
}

/// Waits until nothing waits and nothing is held; what is stuck is a failure.
async fn settled(tenure: &Tenure) {
    let mut latest = now().after(QUIET_MAX);
    let pending = Filter {
        state: Some(State::Pending),
        ..Filter::default()
    };
    while now() < latest {
        sleep(LOOK).await;
        // A connection may still be that of a server that was killed.
        let Ok(counts) = tenure.count().await else {
            continue;
        };
        if counts.pending() == 0 && counts.claimed == 0 {
            return;
        }
        let Ok(waiting) = tenure.list(&pending, Filter::PAGE_MAX).await else {
            continue;
        };
        // One that lapsed often waits long, by rule.
        let due = waiting.records.iter().filter_map(|r| r.available_at).max();
        latest = due.map_or(latest, |due| latest.max(due.after(QUIET_MAX)));
    }
    panic!("stuck in the end: {:?}", tenure.count().await);
}

/// Ends the workers and collects what is left.
async fn history(
    world: &mut World,
    tenure: &Tenure,
    intake: Intake,
    sight: Sight,
    term: Duration,
) -> History {
    let told = world.end().await;
    let mut receiver = Receiver::new(world);
    receiver.read();
    let delays = LapsePolicy::default().delays().to_vec();
    History {
        bounds: Bounds {
            term,
            reaper: term / 3,
            lapse: LapsePolicy::new(MAX_CRASHES, delays).unwrap(),
        },
        written: intake.written,
        unknown: intake.unknown,
        events: stored(tenure).await,
        received: receiver.receipts,
        faults: world.faults(),
        told,
        until: sight.until,
        unreceived: sight.unreceived,
        failed: BTreeSet::new(),
        ended: world.ended(),
    }
}

/// All events, each with its journal.
async fn stored(tenure: &Tenure) -> Vec<Stored> {
    let mut events = Vec::new();
    let mut filter = Filter::default();
    loop {
        let page = tenure.list(&filter, Filter::PAGE_MAX).await.unwrap();
        for record in page.records {
            let holds = tenure.timeline(record.id).await.unwrap();
            events.push(stored_of(record, holds));
        }
        if page.next.is_none() {
            return events;
        }
        filter.before = page.next;
    }
}

fn stored_of(record: Record, holds: Vec<EndedHold>) -> Stored {
    let event = record.content.event().unwrap();
    Stored {
        id: record.id.number(),
        serial: event.payload().parse().unwrap(),
        event_id: event.event_id().unwrap(),
        key: event.ordering_key().map(str::to_owned),
        state: record.state,
        dead_reason: record.dead_reason,
        holds: holds.into_iter().map(span).collect(),
    }
}

fn span(hold: EndedHold) -> Span {
    Span {
        holder: hold.holder,
        fence: hold.fence.number(),
        word: hold.word,
        from: hold.claimed_at,
        to: hold.settled_at,
    }
}

/// For people who run it with `--nocapture`, and those who read why it failed.
fn say(text: &str) {
    #[expect(clippy::print_stderr, reason = "the seed and the figures of a run")]
    {
        eprintln!("{text}");
    }
}
