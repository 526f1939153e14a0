//! `tenure keys`: the states of keys, and the operators' commands on them.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::fs;
use std::time::Duration;

use tenure::Outcome;
use tenure::lease::Settle;

use crate::program::{Place, everywhere, sqlite};

const KEY: &str = "customer-7";

fn dead() -> Outcome {
    Outcome::Dead {
        reason: "rejected".to_owned(),
        error: "no such customer".to_owned(),
    }
}

/// An outcome with a retry in an hour.
fn failed() -> Outcome {
    Outcome::Retry {
        after: Duration::from_hours(1),
        error: "503\nBusy".to_owned(),
    }
}

/// Returns a field of the key from the JSON output.
#[track_caller]
fn field(place: &Place, name: &str) -> String {
    let said = place.run(&["keys", "show", KEY, "--json"]).succeeded();
    said.field(name).trim_matches('"').to_owned()
}

fn state(place: &Place, id: &str) -> String {
    let shown = place.run(&["show", id, "--json"]).succeeded();
    shown.field("state").trim_matches('"').to_owned()
}

/// Claims the available events; returns their ids.
async fn claimable(place: &Place) -> Vec<String> {
    let held = place.tenure().await.claim(100).await.unwrap();
    let ids = held.into_iter().flat_map(|held| held.ids());
    ids.map(|id| id.to_string()).collect()
}

#[tokio::test]
async fn keys_are_listed_with_their_states() {
    for place in everywhere().await {
        let said = place.run(&["keys"]).ended(3);
        let nothing = "no key has open events or is paused\n";
        assert_eq!((said.out.as_str(), said.err.as_str()), ("", nothing));
        // The message names the filter, because other keys may have open events.
        for args in [&["keys", "list", "--stuck"][..], &["keys", "--stuck"]] {
            let said = place.run(args).ended(3);
            assert!(said.err.starts_with("no key is blocked"), "{said:?}");
            assert!(said.err.contains("`tenure keys` lists all"), "{said:?}");
        }
        let said = place.run(&["keys", "list", "--json"]).ended(3);
        assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""));

        let first = place.enqueue_keyed(KEY);
        place.settled(failed()).await;
        place.enqueue_keyed(KEY);
        place.enqueue_keyed(KEY);
        place.enqueue_keyed("customer-8");
        let (_tenure, held) = place.held().await;
        place.enqueue("unkeyed");

        let said = place.run(&["keys", "--json"]).succeeded();
        assert_eq!(said.column("key"), ["\"customer-7\"", "\"customer-8\""]);
        assert_eq!(said.column("state"), ["\"delayed\"", "\"held\""]);
        assert_eq!(said.column("waiting"), ["2", "0"]);
        assert_eq!(said.column("failures"), ["1", "0"]);
        assert_eq!(said.column("last_error"), ["\"503\\nBusy\"", "null"]);
        let holder = format!("\"{}\"", held.lease.token.holder());
        assert_eq!(said.column("holder"), ["null", &holder]);
        let said = place.run(&["keys", "list", "--limit", "1"]).succeeded();
        assert_eq!(said.out.lines().count(), 2, "{said:?}");
        assert!(
            said.err.starts_with("there may be more: raise --limit"),
            "{said:?}"
        );

        let said = place.run(&["keys", "--stuck"]).succeeded();
        let lines: Vec<_> = said.out.lines().collect();
        assert_eq!(lines.len(), 2, "{said:?}");
        let heading = [
            "KEY", "STATE", "HEAD", "FOR", "WAITING", "FAILURES", "REASON",
        ];
        let words: Vec<_> = lines[0].split_whitespace().collect();
        assert_eq!(words, heading);
        assert!(lines[1].starts_with("customer-7  delayed"), "{said:?}");
        assert!(lines[1].ends_with("; 503 Busy"), "{said:?}");

        assert_eq!(field(&place, "head"), first);
        let said = place.run(&["keys", "show", KEY]).succeeded();
        for expected in ["delayed", "503 Busy", "\nwaiting     2\n", "it failed once"] {
            assert!(said.out.contains(expected), "no {expected:?} in {said:?}");
        }
        let secret = held.lease.token.expose().rsplit('.').next().unwrap();
        let all = place.run(&["keys", "show", "customer-8"]).succeeded();
        assert!(!all.out.contains(secret), "{all:?}");
    }
}

#[tokio::test]
async fn a_skipped_head_is_dead_and_the_next_event_becomes_the_head() {
    for place in everywhere().await {
        let first = place.enqueue_keyed(KEY);
        place.settled(failed()).await;
        let second = place.enqueue_keyed(KEY);
        assert!(claimable(&place).await.is_empty());

        let args = ["keys", "skip", KEY, "--reason", "a test"];
        let asked = format!("this would settle event {first} as dead and go on with the key {KEY}");
        place.run(&args).failed(2, &asked, "--yes");
        assert_eq!(state(&place, &first), "pending");

        let args = [&args[..], &["--yes"]].concat();
        let said = place.run(&args).succeeded();
        assert_eq!(said.out, format!("skipped {first} of {KEY}\n"));
        assert!(
            said.err.contains(&format!("`tenure replay {first}`")),
            "{said:?}"
        );
        assert_eq!(state(&place, &first), "dead");
        let shown = place.run(&["show", &first, "--json"]).succeeded();
        assert_eq!(shown.field("last_error"), "\"a test\"");
        assert_eq!(claimable(&place).await, [second]);
    }
}

#[tokio::test]
async fn a_held_head_can_be_skipped_and_the_settle_of_its_holder_is_refused() {
    for place in everywhere().await {
        let first = place.enqueue_keyed(KEY);
        let (tenure, held) = place.held().await;
        let second = place.enqueue_keyed(KEY);
        let args = ["keys", "skip", KEY, "--reason", "test"];
        let holder = held.lease.token.holder();
        let asked = format!(
            "this would settle event {first} as dead ({holder} is at work on it and stops at its \
             next heartbeat; its call may still arrive) and go on"
        );
        place.run(&args).failed(2, &asked, "--yes");
        let args = [&args[..], &["--yes", "--json"]].concat();
        let said = place.run(&args).succeeded();
        let expected =
            format!("{{\"key\":\"{KEY}\",\"id\":{first},\"accepted\":true,\"refused\":null}}\n");
        assert_eq!((said.out.as_str(), said.err.as_str()), (&expected[..], ""));
        let settle = Settle::new(held.lease.token.clone()).done(held.ids());
        assert_eq!(tenure.settle(&settle).await.unwrap().refused().count(), 1);
        assert_eq!(claimable(&place).await, [second]);
    }
}

#[tokio::test]
async fn a_dead_event_that_blocks_its_key_can_be_replayed_as_head_or_skipped() {
    for place in everywhere().await {
        let first = place.enqueue_keyed(KEY);
        place.settled(dead()).await;
        let second = place.enqueue_keyed(KEY);
        assert!(claimable(&place).await.is_empty());
        assert_eq!(field(&place, "state"), "blocked");
        assert_eq!(field(&place, "head"), first);
        assert_eq!(field(&place, "head_state"), "dead");

        // A replayed head is the head again, and not the last item of its key.
        place.run(&["replay", &first]).succeeded();
        assert_ne!(field(&place, "state"), "blocked");
        place.settled(dead()).await;
        assert_eq!(field(&place, "head"), first);

        let args = ["keys", "skip", KEY, "--reason", "test"];
        let asked = format!("this would leave the dead event {first} behind");
        place.run(&args).failed(2, &asked, "--yes");
        let said = place.run(&[&args[..], &["--yes"]].concat()).succeeded();
        assert_eq!(said.out, format!("skipped {first} of {KEY}\n"));
        assert_eq!(state(&place, &first), "dead");
        let shown = place.run(&["show", &first]).succeeded();
        let why = ": test; last error before: no such customer";
        assert!(shown.out.contains("skipped by "), "{shown:?}");
        assert!(shown.out.contains(why), "{shown:?}");
        assert_eq!(claimable(&place).await, [second]);
    }
}

#[tokio::test]
async fn a_paused_and_blocked_key_shows_both_and_a_skip_needs_confirmation() {
    for place in everywhere().await {
        let first = place.enqueue_keyed(KEY);
        place.settled(dead()).await;
        let second = place.enqueue_keyed(KEY);
        place.run(&["keys", "pause", KEY]).succeeded();
        assert_eq!(field(&place, "state"), "paused");
        assert_eq!(field(&place, "blocked"), "true");
        let said = place.run(&["keys", "show", KEY]).succeeded();
        let both = format!("paused, and blocked by dead event {first}");
        assert!(said.out.contains(&both), "{said:?}");
        let said = place.run(&["keys"]).succeeded();
        assert!(said.out.contains("paused, blocked"), "{said:?}");
        let said = place.run(&["why", &second]).succeeded();
        assert!(said.out.contains("is paused, for "), "{said:?}");
        let both = format!(", and blocked by dead event {first}: ");
        assert!(said.out.contains(&both), "{said:?}");

        let args = ["keys", "skip", KEY, "--reason", "test"];
        let asked = format!("this would leave the dead event {first} behind");
        place.run(&args).failed(2, &asked, "--yes");
        assert_eq!(field(&place, "blocked"), "true");
        place.run(&[&args[..], &["--yes"]].concat()).succeeded();
        assert_eq!(field(&place, "blocked"), "false");
        // A paused key has no head to skip; the program prints a hint.
        let said = place.run(&args).ended(4);
        assert!(
            said.err.contains("`tenure keys resume KEY` first"),
            "{said:?}"
        );
        assert_eq!(state(&place, &second), "pending");
        place.run(&["keys", "resume", KEY]).succeeded();
        assert_eq!(claimable(&place).await, [second]);
    }
}

#[test]
fn a_blank_reason_is_refused_and_stuck_is_an_option_of_the_list() {
    let place = sqlite();
    place.enqueue_keyed(KEY);
    for reason in ["", "   ", "\t"] {
        let args = ["keys", "skip", KEY, "--yes", "--reason", reason];
        let said = place.run(&args).ended(2);
        assert!(said.err.contains("the reason is blank"), "{said:?}");
    }
    place.run(&["keys", "--stuck", "show", KEY]).failed(
        2,
        "--stuck applies only to `tenure keys list`",
        "tenure keys --stuck",
    );
}

/// Before the first claim, PostgreSQL has no row for the key, only an arrival.
#[tokio::test]
async fn a_key_is_listed_as_soon_as_its_events_are_written() {
    for place in everywhere().await {
        place.enqueue_keyed(KEY);
        let said = place.run(&["keys", "--json"]).succeeded();
        assert_eq!(said.column("key"), [format!("\"{KEY}\"")]);
    }
}

#[tokio::test]
async fn a_paused_key_is_not_claimed_until_it_is_resumed() {
    for place in everywhere().await {
        let first = place.enqueue_keyed(KEY);
        let second = place.enqueue_keyed(KEY);
        let said = place.run(&["keys", "pause", KEY]).succeeded();
        assert_eq!(said.out, format!("paused {KEY}\n"));
        assert!(claimable(&place).await.is_empty());
        assert_eq!(field(&place, "state"), "paused");
        assert_eq!(field(&place, "waiting"), "2");
        let said = place.run(&["keys", "list", "--stuck", "--json"]);
        assert_eq!(said.succeeded().field("state"), "\"paused\"");
        let said = place.run(&["keys", "pause", KEY]).succeeded();
        assert_eq!(said.err, "it was paused already\n");

        // Another key is not affected.
        let other = place.enqueue_keyed("customer-8");
        assert_eq!(claimable(&place).await, [other]);

        let said = place.run(&["keys", "resume", KEY]).succeeded();
        assert_eq!(
            (said.out, said.err),
            (format!("resumed {KEY}\n"), String::new())
        );
        let said = place.run(&["keys", "resume", KEY]).succeeded();
        assert_eq!(said.err, "it was not paused\n");
        assert_eq!(claimable(&place).await, [first]);
        assert_eq!(state(&place, &second), "pending");
    }
}

#[tokio::test]
async fn the_pause_of_a_key_without_events_is_remembered() {
    for place in everywhere().await {
        let said = place.run(&["keys", "pause", KEY]).succeeded();
        assert!(
            said.err.starts_with("the key has no open events"),
            "{said:?}"
        );
        let id = place.enqueue_keyed(KEY);
        assert!(claimable(&place).await.is_empty());
        let args = ["keys", "resume", KEY, "--json"];
        let said = place.run(&args).succeeded();
        assert_ne!(said.field("state"), "\"paused\"");
        assert_eq!(claimable(&place).await, [id]);
    }
}

#[tokio::test]
async fn a_skip_without_a_head_is_refused_and_an_unknown_key_gives_exit_code_3() {
    for place in everywhere().await {
        let skip = ["keys", "skip", KEY, "--reason", "test"];
        for args in [&["keys", "show", KEY][..], &["keys", "resume", KEY], &skip] {
            let message = format!("there is no key \"{KEY}\"");
            place.run(args).failed(3, &message, "tenure keys");
        }
        place.run(&["keys", "pause", KEY]).succeeded();
        let said = place.run(&skip).ended(4);
        assert_eq!(said.out, format!("not skipped: {KEY} has no head\n"));
        let said = place.run(&[&skip[..], &["--json"]].concat()).ended(4);
        assert_eq!(said.field("accepted"), "false");
        assert_eq!(said.field("id"), "null");
        assert_ne!(said.field("refused"), "null");
    }
}

#[tokio::test]
async fn an_invalid_key_is_reported_briefly_and_an_unusual_one_is_accepted() {
    for place in everywhere().await {
        let long = "k".repeat(10 << 10);
        for verb in ["show", "pause", "resume"] {
            for (key, message) in [
                ("", "ordering key is empty"),
                ("a\u{1b}b", "bytes without control characters"),
                (&long, "ordering key is 10240 bytes long"),
            ] {
                let said = place.run(&["keys", verb, key]).failed(2, message, "");
                assert!(said.err.len() < 200, "{} bytes", said.err.len());
            }
        }
        let odd = "-7 straße/\"x\" 'y' $(z)";
        place.run(&["keys", "pause", odd]).succeeded();
        let said = place.run(&["keys", "show", odd, "--json"]).succeeded();
        assert_eq!(said.objects()[0]["key"], odd);
        let said = place.run(&["keys"]).succeeded();
        assert!(said.out.contains(odd), "{said:?}");
        place.run(&["keys", "resume", odd]).succeeded();
    }
}

#[test]
fn a_missing_database_is_reported_and_not_created() {
    let place = sqlite();
    for args in [
        &["keys"][..],
        &["keys", "show", KEY],
        &["keys", "pause", KEY],
        &["keys", "skip", KEY, "--reason", "test", "--yes"],
    ] {
        place.run(args).failed(3, "there is no database", "");
    }
    assert!(!place.file().exists());
}

/// Goal: events of a key stay in order, even if keys are worked in parallel and some events fail.
/// Method: every fifth event fails at its first attempt; the command records each payload in a file
/// per key.
#[tokio::test]
async fn events_of_one_key_are_worked_in_order() {
    for place in everywhere().await {
        let mut input = String::new();
        for number in 0..30 {
            let key = number % 3;
            let line = format!("{{\"topic\":\"t\",\"payload\":{number},\"key\":\"key-{key}\"}}\n");
            input.push_str(&line);
        }
        place
            .run_with(&["enqueue", "--lines"], input.as_bytes())
            .succeeded();
        let command = "test $TENURE_ATTEMPT = 2 || test $((TENURE_ID % 5)) != 0 || exit 1; \
                       cat >> done-$TENURE_KEY; echo >> done-$TENURE_KEY";
        let drained = place.run(&["work", "--drain", "--exec", command, "--concurrency", "4"]);
        drained.succeeded();
        let tenure = place.tenure().await;
        // A drain does not wait for retries.
        while tenure.count().await.unwrap().pending() > 0 {
            place
                .run(&["work", "--drain", "--exec", command, "--concurrency", "4"])
                .succeeded();
        }
        for key in 0..3 {
            let text = fs::read_to_string(place.path(&format!("done-key-{key}"))).unwrap();
            let numbers: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
            let expected: Vec<u32> = (0..10).map(|nth| nth * 3 + key).collect();
            assert_eq!(numbers, expected, "key {key}");
        }
    }
}

#[tokio::test]
async fn all_blocked_keys_can_be_skipped_at_once() {
    for place in everywhere().await {
        let skip = ["keys", "skip", "--all-blocked", "--reason", "a bad import"];
        let said = place.run(&skip).ended(3);
        assert_eq!(said.err, "no key is blocked\n");
        let mut behind = Vec::new();
        for key in ["a", "b"] {
            place.enqueue_keyed(key);
            place.settled(dead()).await;
            behind.push(place.enqueue_keyed(key));
        }
        let failing = place.enqueue_keyed("c");
        place.settled(failed()).await;

        let said = place.run(&[&skip[..], &["--dry-run"]].concat()).succeeded();
        assert_eq!(said.out, "2 keys would go on without their dead heads\n");
        let said = place.run(&skip).ended(2);
        assert!(said.err.contains("--yes does it"), "{said:?}");
        assert!(claimable(&place).await.is_empty());
        let said = place
            .run(&[&skip[..], &["--yes", "--json"]].concat())
            .succeeded();
        assert_eq!(said.out, "{\"skipped\":2,\"refused\":0}\n");
        assert_eq!(claimable(&place).await, behind);
        assert_eq!(state(&place, &failing), "pending");
        let said = place.run(&["show", "1", "--json"]).succeeded();
        assert!(
            said.field("last_error").contains("a bad import"),
            "{said:?}"
        );
    }
}
