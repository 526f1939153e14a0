//! `tenure replay` by id and by filter.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure::operate::StepReplay;

use crate::program::{Place, everywhere, soon, sqlite};

fn buried(place: &Place, topic: &str) -> String {
    let id = place.enqueue(topic);
    place.run(&["bury", &id, "--reason", "test"]).succeeded();
    id
}

fn state(place: &Place, id: &str) -> String {
    place
        .run(&["show", id, "--json"])
        .succeeded()
        .field("state")
}

/// Proves: S4-032, S4-046
#[tokio::test]
async fn only_done_and_dead_events_are_replayed() {
    for place in everywhere().await {
        let done = place.enqueue("a");
        place.done().await;
        let dead = buried(&place, "a");
        let pending = place.enqueue("a");
        let output = place
            .run(&["replay", &done, &dead, &pending, "99"])
            .ended(4);
        let expected = format!(
            "replayed {done}\nreplayed {dead}\n\
             not replayed {pending}: it is not settled yet: only done or dead items are replayed\n\
             not replayed 99: there is no such item\n"
        );
        assert_eq!(output.out, expected);
        assert_eq!(state(&place, &done), "\"pending\"");
        assert_eq!(state(&place, &dead), "\"pending\"");
        place.run(&["replay", "99"]).ended(3);
    }
}

#[tokio::test]
async fn a_filter_replays_dead_events_unless_it_names_another_state() {
    for place in everywhere().await {
        let done = place.enqueue("a");
        place.done().await;
        let dead = [buried(&place, "a"), buried(&place, "a")];
        let other = buried(&place, "b");

        let args = ["replay", "--topic", "a"];
        let dry = place.run(&[&args[..], &["--dry-run"]].concat()).succeeded();
        assert_eq!(dry.out, "2 events would be replayed\n");
        place
            .run(&args)
            .failed(2, "2 events would be replayed", "--yes");
        assert_eq!(state(&place, &dead[0]), "\"dead\"");

        let output = place.run(&[&args[..], &["--yes"]].concat()).succeeded();
        assert_eq!(output.out, "replayed 2 events\n");
        for id in &dead {
            assert_eq!(state(&place, id), "\"pending\"");
        }
        assert_eq!(state(&place, &other), "\"dead\"");
        assert_eq!(state(&place, &done), "\"done\"");
        place.run(&[&args[..], &["--yes"]].concat()).ended(3);

        let args = ["replay", "--state", "done", "--yes", "--json"];
        let output = place.run(&args).succeeded();
        assert_eq!(output.column("state"), ["\"done\""]);
        assert_eq!(output.column("replayed"), ["1"]);
        assert_eq!(state(&place, &done), "\"pending\"");
    }
}

#[tokio::test]
async fn a_filter_by_key_replays_only_events_of_that_key() {
    for place in everywhere().await {
        let ids = ["customer-7", "customer-8"].map(|key| place.enqueue_keyed(key));
        place.done().await;
        let args = [
            "replay",
            "--state",
            "done",
            "--key",
            "customer-7",
            "--yes",
            "--json",
        ];
        let output = place.run(&args).succeeded();
        assert_eq!(output.column("replayed"), ["1"]);
        assert_eq!(state(&place, &ids[0]), "\"pending\"");
        assert_eq!(state(&place, &ids[1]), "\"done\"");
    }
}

#[tokio::test]
async fn a_selection_larger_than_a_page_is_replayed_whole() {
    for place in everywhere().await {
        place.enqueue_many(1_200).await;
        place.done().await;
        let output = place
            .run(&["replay", "--state", "done", "--yes"])
            .succeeded();
        assert_eq!(output.out, "replayed 1200 events\n");
        let counts = place.tenure().await.count().await.unwrap();
        assert_eq!(counts.pending(), 1_200);
    }
}

#[test]
fn nothing_is_replayed_without_a_selection() {
    let place = sqlite();
    place.run(&["migrate"]).succeeded();
    place
        .run(&["replay", "--yes"])
        .failed(2, "no events to replay", "--state dead");
    place
        .run(&["replay", "1", "--topic", "a"])
        .failed(2, "ids cannot be combined", "give ids");
}

#[tokio::test]
async fn a_repeated_id_is_replayed_once() {
    for place in everywhere().await {
        let id = place.enqueue("a");
        let output = place
            .run(&["bury", &id, &id, "--reason", "test"])
            .succeeded();
        assert_eq!(output.out, format!("buried {id}\n"));
        let output = place.run(&["replay", &id, &id, "--dry-run"]).succeeded();
        assert_eq!(output.out, "1 event would be replayed\n");
        let output = place.run(&["replay", &id, &id]).succeeded();
        assert_eq!(output.out, format!("replayed {id}\n"));
    }
}

#[tokio::test]
async fn until_selects_the_events_written_before_that_time() {
    for place in everywhere().await {
        let dead = buried(&place, "a");
        let args = ["replay", "--until", "1h", "--yes"];
        place.run(&args).ended(3);
        let output = place.run(&["replay", "--until", "2999-01-01", "--yes"]);
        assert_eq!(output.succeeded().out, "replayed 1 event\n");
        assert_eq!(state(&place, &dead), "\"pending\"");
    }
}

#[tokio::test]
async fn a_replay_at_a_rate_works_by_id_and_by_filter() {
    for place in everywhere().await {
        let ids = [
            buried(&place, "a"),
            buried(&place, "a"),
            buried(&place, "a"),
        ];
        let args = ["replay", &ids[0], &ids[1], "--rate", "50/s"];
        let output = place.run(&args).succeeded();
        let expected = format!("replayed {}\nreplayed {}\n", ids[0], ids[1]);
        assert_eq!(output.out, expected);
        let args = ["replay", "--state", "dead", "--rate", "600/m", "--yes"];
        assert_eq!(place.run(&args).succeeded().out, "replayed 1 event\n");
    }
}

/// Starts a replay of dead events at a rate of one per minute.
fn slow_replay(place: &Place) -> Child {
    place
        .command(env!("CARGO_BIN_EXE_tenure").as_ref())
        .args(["replay", "--state", "dead", "--rate", "1/m", "--yes"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("the program is running");
}

/// Goal: Ctrl-C ends the display of the progress, not the replay, and the program prints a hint.
/// Method: at this rate the second event is replayed a minute after the first; the test interrupts
/// the program after the first.
#[tokio::test]
async fn an_interrupt_leaves_a_replay_running_and_hints_how_to_follow_it() {
    for place in everywhere().await {
        for _ in 0..3 {
            buried(&place, "a");
        }
        let child = slow_replay(&place);
        let tenure = place.tenure().await;
        soon(async || (tenure.count().await.unwrap().dead == 2).then_some(())).await;
        signal(&child, Signal::INT);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(output.stdout, b"");
        let err = String::from_utf8(output.stderr).unwrap();
        for part in [
            "no longer following replay 1",
            "replay follow 1",
            "replay cancel 1",
        ] {
            assert!(err.contains(part), "{err}");
        }
        assert_eq!(tenure.count().await.unwrap().dead, 2);
        let listed = place.run(&["replay", "list", "--json"]).succeeded();
        assert_eq!(listed.column("state"), ["\"running\""]);
        assert_eq!(listed.column("rate"), ["\"1/m\""]);

        let output = place.run(&["replay", "cancel", "1"]).succeeded();
        assert!(
            output.out.starts_with("cancelled replay 1"),
            "{}",
            output.out
        );
        place
            .run(&["replay", "cancel", "1"])
            .failed(4, "has ended already", "replay list");
        let output = place.run(&["replay", "follow", "1"]).ended(1);
        assert_eq!(output.out, "replayed 1 event\n");
        assert!(
            output.err.contains("replay 1 was cancelled"),
            "{}",
            output.err
        );
        assert_eq!(tenure.count().await.unwrap().dead, 2);
    }
}

/// Goal: another process continues a replay after a kill, and nothing is replayed twice. Method:
/// the test kills the first process with SIGKILL between its first two steps, and then steps the
/// replay itself.
#[tokio::test]
async fn another_process_continues_a_replay_whose_process_was_killed() {
    for place in everywhere().await {
        let ids = [buried(&place, "a"), buried(&place, "a")];
        let mut child = slow_replay(&place);
        let tenure = place.tenure().await;
        soon(async || (tenure.count().await.unwrap().dead == 1).then_some(())).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let [operation] = &tenure.replays(10).await.unwrap()[..] else {
            panic!("expected one replay");
        };
        assert_eq!((operation.replayed, operation.is_running()), (1, true));
        // An hour later, the next step is due in any process.
        let step = StepReplay::new(10).at(operation.next_at.after(Duration::from_hours(1)));
        for _ in 0..2 {
            tenure.step_replay(&step).await.unwrap();
        }
        for id in &ids {
            assert_eq!(state(&place, id), "\"pending\"");
            let generation = place.run(&["show", id, "--json"]).succeeded();
            assert_eq!(generation.column("generation"), ["1"]);
        }
        assert_eq!(
            tenure.replay_operation(1).await.unwrap().unwrap().replayed,
            2
        );
    }
}

#[tokio::test]
async fn a_detached_replay_is_left_to_workers_and_can_be_followed() {
    for place in everywhere().await {
        place
            .run(&["replay", "follow", "7"])
            .failed(3, "there is no replay 7", "replay list");
        place.run(&["replay", "list"]).ended(3);
        for _ in 0..3 {
            buried(&place, "a");
        }
        let args = ["replay", "--topic", "a", "--detach", "--yes"];
        let output = place.run(&args).succeeded();
        assert_eq!(output.out, "started replay 1 of 3 events\n");
        let tenure = place.tenure().await;
        assert_eq!(tenure.count().await.unwrap().dead, 3);
        let listed = place.run(&["replay", "list"]).succeeded();
        for part in ["running", "0/3", "dead events --topic a"] {
            assert!(listed.out.contains(part), "{}", listed.out);
        }
        let output = place.run(&["replay", "follow", "1"]).succeeded();
        assert_eq!(output.out, "replayed 3 events\n");
        assert_eq!(tenure.count().await.unwrap().dead, 0);
        // The result of a finished replay can be printed again.
        let output = place.run(&["replay", "follow", "1", "--json"]).succeeded();
        assert_eq!(output.column("state"), ["\"done\""]);
    }
}
