//! A poison event: it kills the process of whoever works on it, every time.

use std::time::Duration;

use tenure::{Event, State, reason};
use tokio::time::sleep;

use super::TERM;
use super::world::{LOOK, World};

/// Events that are claimed beside it.
const NEIGHBOURS: usize = 10;
/// Lapses that an event survives here.
const MAX_CRASHES: u32 = 3;
/// A lapse takes at most term and reaper interval; the delays between four of them are 3.1 s.
const LONGEST: Duration = Duration::from_mins(1);
/// The parent of the shell is the worker. The others are in its hands for a while, too.
const COMMAND: &str = r#"read -r payload || true
[ "$payload" = '"poison"' ] && kill -9 "$PPID"
sleep 0.3"#;

/// Proves: S4-041, S4-043
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poison_event_dies_of_its_crashes_and_none_beside_it_does() {
    tokio::join!(poisoned(World::sqlite()), async {
        poisoned(World::postgres().await).await;
    });
}

async fn poisoned(world: World) {
    world.configure(TERM, MAX_CRASHES);
    let tenure = world.place.tenure().await;
    let mut events = vec![Event::new("work", &"sound").unwrap(); NEIGHBOURS + 1];
    events[NEIGHBOURS / 2] = Event::new("work", &"poison").unwrap();
    let answers = tenure.enqueue_all(&events).await.unwrap();
    let ids: Vec<_> = answers.into_iter().map(tenure::Enqueued::id).collect();

    let args = ["--exec", COMMAND];
    let mut process = world.spawn(&args);
    let mut deaths = 0;
    let work = async {
        loop {
            if process.has_ended() {
                deaths += 1;
                process = world.spawn(&args);
            }
            let counts = tenure.count().await.unwrap();
            if counts.pending() == 0 && counts.claimed == 0 {
                return;
            }
            sleep(LOOK).await;
        }
    };
    let ended = tokio::time::timeout(LONGEST, work).await;
    assert!(
        ended.is_ok(),
        "not settled within {LONGEST:?}, after {deaths} deaths"
    );

    let records = tenure.find(&ids).await.unwrap();
    assert_eq!(records.len(), ids.len());
    let mut beside = 0;
    for record in records {
        if record.id == ids[NEIGHBOURS / 2] {
            assert_eq!(record.state, State::Dead);
            assert_eq!(record.dead_reason.as_deref(), Some(reason::CRASH_LOOP));
            assert_eq!(record.counters.crashes, MAX_CRASHES + 1);
        } else {
            assert_eq!(record.state, State::Done, "{record:?}");
            beside += usize::from(record.counters.crashes > 0);
        }
    }
    assert!(beside > 0, "nothing was claimed beside it");
    assert_eq!(
        deaths,
        MAX_CRASHES + 1,
        "each of its crashes killed a worker"
    );
}
