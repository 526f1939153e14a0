//! `tenure listen`: a receiver that verifies, prints, and fails on purpose.

#![expect(
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also where it is not in the test function itself"
)]

use crate::program::{Place, Running, sqlite};
use crate::receiver::allowing;

/// Starts a receiver and lets this place call it; answers with its address.
fn listen(place: &Place, args: &[&str]) -> (Running, String) {
    let all = [&["listen", "--port", "0", "--json"], args].concat();
    let mut running = place.start(&all);
    let line: serde_json::Value =
        serde_json::from_str(&running.out_line()).expect("it says where it listens");
    let address = line["listening"].as_str().expect("it does").to_owned();
    let port = address.rsplit(':').next().expect("it has a port");
    place.write("tenure.toml", &allowing(port.parse().expect("it is one")));
    (running, address)
}

fn heard(running: &mut Running) -> serde_json::Value {
    serde_json::from_str(&running.out_line()).expect("a call is one line")
}

#[test]
fn a_call_is_verified_and_printed_and_a_forged_one_is_refused() {
    let place = sqlite();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let (mut running, url) = listen(&place, &["--secret", secret, "--count", "2"]);
    let right = [
        "endpoints",
        "add",
        &url,
        "--id",
        "right",
        "--secret",
        secret,
    ];
    place.run(&right).succeeded();
    place
        .run(&["endpoints", "add", &url, "--id", "wrong"])
        .succeeded();

    place.run(&["endpoints", "test", "right"]).succeeded();
    let call = heard(&mut running);
    assert_eq!(call["verified"], true);
    assert_eq!(call["status"], 200);
    assert_eq!(call["freshness"], "new");
    for (name, start) in [("timestamp", "1"), ("signature", "v1,")] {
        let value = call[name].as_str().unwrap_or_default();
        assert!(value.starts_with(start), "{name} in {call}");
    }
    assert_eq!(call["attempt"], "1");
    assert!(
        call["body"]
            .as_str()
            .is_some_and(|body| body.contains("test"))
    );

    let said = place
        .run(&["endpoints", "test", "wrong", "--json"])
        .ended(1);
    assert_eq!(said.field("status"), "401");
    let call = heard(&mut running);
    assert_eq!(call["verified"], false);
    assert!(
        call["why"]
            .as_str()
            .is_some_and(|why| why.contains("signature"))
    );
    // The second was the last.
    running.wait().succeeded();
}

#[test]
fn it_fails_so_often_as_it_is_told() {
    let place = sqlite();
    let args = ["--fail", "503:1", "--retry-after", "7s", "--slow", "20ms"];
    let (mut running, url) = listen(&place, &args);
    place
        .run(&["endpoints", "add", &url, "--id", "a"])
        .succeeded();
    let said = place.run(&["endpoints", "test", "a", "--json"]).ended(1);
    assert_eq!(said.field("status"), "503");
    assert!(said.field("headers").contains("\"7\""), "{said:?}");
    place.run(&["endpoints", "test", "a"]).succeeded();
    assert_eq!(heard(&mut running)["status"], 503);
    let call = heard(&mut running);
    assert_eq!(call["verified"], serde_json::Value::Null);
    running.terminate();
    running.wait().succeeded();
}

#[test]
fn one_that_answers_late_is_not_waited_for_longer_than_the_timeout() {
    let place = sqlite();
    let (_running, url) = listen(&place, &["--late", "1h"]);
    let args = ["endpoints", "add", &url, "--id", "a", "--timeout", "1s"];
    place.run(&args).succeeded();
    let said = place.run(&["endpoints", "test", "a", "--json"]).ended(1);
    assert_eq!(said.field("status"), "null");
    assert_eq!(said.field("trouble"), "\"timeout\"");
}

#[test]
fn a_wrong_key_or_status_is_told() {
    let place = sqlite();
    for args in [
        &["--secret", "whsec_canary"][..],
        &["--fail", "abc"],
        &["--fail", "500:x"],
        &["--retry-after", "1s"],
        &["--port", "70000"],
    ] {
        let said = place.run(&[&["listen"], args].concat()).ended(2);
        assert!(!said.err.contains("canary"), "{said:?}");
    }
}
