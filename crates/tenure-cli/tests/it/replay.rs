//! `tenure replay`: by id, by choice, never by accident.

use std::process::{Command, Stdio};

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
async fn what_is_done_or_dead_is_put_back_and_nothing_else() {
    for place in everywhere().await {
        let done = place.enqueue("a");
        place.done().await;
        let dead = buried(&place, "a");
        let pending = place.enqueue("a");
        let said = place
            .run(&["replay", &done, &dead, &pending, "99"])
            .ended(4);
        let expected = format!(
            "replayed {done}\nreplayed {dead}\n\
             not replayed {pending}: it is not settled yet: only what is done or dead is replayed\n\
             not replayed 99: there is no such item\n"
        );
        assert_eq!(said.out, expected);
        assert_eq!(state(&place, &done), "\"pending\"");
        assert_eq!(state(&place, &dead), "\"pending\"");
        place.run(&["replay", "99"]).ended(3);
    }
}

#[tokio::test]
async fn a_choice_replays_the_dead_and_leaves_the_rest() {
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

        let said = place.run(&[&args[..], &["--yes"]].concat()).succeeded();
        assert_eq!(said.out, "replayed 2 events\n");
        for id in &dead {
            assert_eq!(state(&place, id), "\"pending\"");
        }
        assert_eq!(state(&place, &other), "\"dead\"");
        assert_eq!(state(&place, &done), "\"done\"");
        place.run(&[&args[..], &["--yes"]].concat()).ended(3);

        let args = ["replay", "--state", "done", "--yes", "--json"];
        let said = place.run(&args).succeeded();
        assert_eq!(
            said.out,
            format!("{{\"id\":{done},\"kept\":true,\"refused\":null}}\n")
        );
    }
}

#[tokio::test]
async fn a_key_chooses_too() {
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
        let said = place.run(&args).succeeded();
        assert_eq!(said.column("id"), [&ids[0][..]]);
        assert_eq!(state(&place, &ids[0]), "\"pending\"");
        assert_eq!(state(&place, &ids[1]), "\"done\"");
    }
}

#[tokio::test]
async fn a_choice_larger_than_a_page_is_replayed_whole() {
    for place in everywhere().await {
        place.enqueue_many(1_200).await;
        place.done().await;
        let said = place
            .run(&["replay", "--state", "done", "--yes"])
            .succeeded();
        assert_eq!(said.out, "replayed 1200 events\n");
        let counts = place.tenure().await.count().await.unwrap();
        assert_eq!(counts.pending(), 1_200);
    }
}

#[test]
fn nothing_is_replayed_without_saying_which() {
    let place = sqlite();
    place.run(&["migrate"]).succeeded();
    place
        .run(&["replay", "--yes"])
        .failed(2, "which events", "--state dead");
    place
        .run(&["replay", "1", "--topic", "a"])
        .failed(2, "both ids and a choice", "name ids");
}

#[tokio::test]
async fn an_id_that_is_said_twice_is_meant_once() {
    for place in everywhere().await {
        let id = place.enqueue("a");
        let said = place
            .run(&["bury", &id, &id, "--reason", "test"])
            .succeeded();
        assert_eq!(said.out, format!("buried {id}\n"));
        let said = place.run(&["replay", &id, &id, "--dry-run"]).succeeded();
        assert_eq!(said.out, "1 event would be replayed\n");
        let said = place.run(&["replay", &id, &id]).succeeded();
        assert_eq!(said.out, format!("replayed {id}\n"));
    }
}

#[tokio::test]
async fn only_those_written_before_are_replayed() {
    for place in everywhere().await {
        let dead = buried(&place, "a");
        let args = ["replay", "--until", "1h", "--yes"];
        place.run(&args).ended(3);
        let said = place.run(&["replay", "--until", "2999-01-01", "--yes"]);
        assert_eq!(said.succeeded().out, "replayed 1 event\n");
        assert_eq!(state(&place, &dead), "\"pending\"");
    }
}

#[tokio::test]
async fn at_a_rate_all_are_replayed_by_id_and_by_choice() {
    for place in everywhere().await {
        let ids = [
            buried(&place, "a"),
            buried(&place, "a"),
            buried(&place, "a"),
        ];
        let args = ["replay", &ids[0], &ids[1], "--rate", "50/s"];
        let said = place.run(&args).succeeded();
        let expected = format!("replayed {}\nreplayed {}\n", ids[0], ids[1]);
        assert_eq!(said.out, expected);
        let args = ["replay", "--state", "dead", "--rate", "600/m", "--yes"];
        assert_eq!(place.run(&args).succeeded().out, "replayed 1 event\n");
    }
}

/// Goal: Ctrl-C leaves every event either replayed or as it was, and says how many. Method: a pace
/// at which the second event is a minute away, interrupted once the first is there.
#[tokio::test]
async fn an_interrupted_replay_stops_between_two_steps_and_says_how_far_it_came() {
    for place in everywhere().await {
        for _ in 0..3 {
            buried(&place, "a");
        }
        let child = place
            .command(env!("CARGO_BIN_EXE_tenure").as_ref())
            .args(["replay", "--state", "dead", "--rate", "1/m", "--yes"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let tenure = place.tenure().await;
        soon(async || (tenure.count().await.unwrap().dead == 2).then_some(())).await;
        let pid = child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(sent.success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(output.stdout, b"replayed 1 event\n");
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(
            err.starts_with("error: stopped after 1 of 3 events\n"),
            "{err}"
        );
        assert_eq!(tenure.count().await.unwrap().dead, 2);
    }
}
