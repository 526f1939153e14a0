//! A poison event kills the process of its worker at every attempt.

use tenure::operate::reason;
use tenure::{Event, State};
use tenure_nemesis::until;

use super::TERM;
use super::world::World;

/// Number of events that are enqueued together with the poison event.
const NEIGHBOURS: usize = 10;
/// Number of crashes that an event survives.
const MAX_CRASHES: u32 = 3;
/// The command kills its parent, the worker, for the poison event. For other events, it waits a
/// while, so that the worker holds them when it is killed.
const COMMAND: &str = r#"read -r payload || true
[ "$payload" = '"poison"' ] && kill -9 "$PPID"
sleep 0.3"#;

/// Proves: S4-041, S4-043
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poison_event_dies_of_its_crashes_and_its_neighbours_survive() {
    tokio::join!(poisoned(World::sqlite()), async {
        poisoned(World::shared_postgres().await).await;
    });
}

async fn poisoned(world: World) {
    world.configure(TERM, MAX_CRASHES, "");
    let tenure = world.place.tenure().await;
    let mut events = vec![Event::new("work", &"sound").unwrap(); NEIGHBOURS + 1];
    events[NEIGHBOURS / 2] = Event::new("work", &"poison").unwrap();
    let answers = tenure.enqueue_now(&events).await.unwrap();
    let ids: Vec<_> = answers.into_iter().map(tenure::Enqueued::id).collect();

    let args = ["work", "--exec", COMMAND];
    let mut process = world.crew.spawn(&args);
    let mut deaths = 0;
    until("all events are settled", async || {
        if process.has_exited() {
            deaths += 1;
            process = world.crew.spawn(&args);
        }
        let counts = tenure.count().await.unwrap();
        counts.pending() == 0 && counts.claimed == 0
    })
    .await;

    let records = tenure.find(&ids).await.unwrap();
    assert_eq!(records.len(), ids.len());
    let mut neighbours = 0;
    for record in records {
        if record.id == ids[NEIGHBOURS / 2] {
            assert_eq!(record.state, State::Dead);
            assert_eq!(record.dead_reason.as_deref(), Some(reason::CRASH_LOOP));
            assert_eq!(record.counters.crashes, MAX_CRASHES + 1);
        } else {
            assert_eq!(record.state, State::Done, "{record:?}");
            neighbours += usize::from(record.counters.crashes > 0);
        }
    }
    assert!(neighbours > 0, "no neighbour crashed with it");
    assert_eq!(deaths, MAX_CRASHES + 1, "each crash killed a worker");
}
