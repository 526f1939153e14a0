//! `tenure listen`: a receiver that verifies and prints calls, and can fail on purpose.

#![expect(
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use crate::program::{Place, Running, sqlite};
use crate::receiver::allowing;

/// Starts a receiver that this place may call, and returns its address.
fn listen(place: &Place, args: &[&str]) -> (Running, String) {
    let all = [&["listen", "--port", "0", "--json"], args].concat();
    let mut running = place.start(&all);
    let line: serde_json::Value =
        serde_json::from_str(&running.out_line()).expect("the first line is JSON");
    let address = line["listening"].as_str().expect("an address").to_owned();
    let port = address.rsplit(':').next().expect("the address has a port");
    place.write("tenure.toml", &allowing(port.parse().expect("a number")));
    (running, address)
}

fn received(running: &mut Running) -> serde_json::Value {
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
    let call = received(&mut running);
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

    let output = place
        .run(&["endpoints", "test", "wrong", "--json"])
        .ended(1);
    assert_eq!(output.field("status"), "401");
    let call = received(&mut running);
    assert_eq!(call["verified"], false);
    assert!(
        call["why"]
            .as_str()
            .is_some_and(|why| why.contains("signature"))
    );
    // The receiver exits after the second call.
    running.wait().succeeded();
}

#[test]
fn a_receiver_fails_as_often_as_requested() {
    let place = sqlite();
    let args = ["--fail", "503:1", "--retry-after", "7s", "--slow", "20ms"];
    let (mut running, url) = listen(&place, &args);
    place
        .run(&["endpoints", "add", &url, "--id", "a"])
        .succeeded();
    let output = place.run(&["endpoints", "test", "a", "--json"]).ended(1);
    assert_eq!(output.field("status"), "503");
    assert!(output.field("headers").contains("\"7\""), "{output:?}");
    place.run(&["endpoints", "test", "a"]).succeeded();
    assert_eq!(received(&mut running)["status"], 503);
    let call = received(&mut running);
    assert_eq!(call["verified"], serde_json::Value::Null);
    running.terminate();
    running.wait().succeeded();
}

#[test]
fn a_call_to_a_late_receiver_ends_at_the_timeout() {
    let place = sqlite();
    let (_running, url) = listen(&place, &["--late", "1h"]);
    let args = ["endpoints", "add", &url, "--id", "a", "--timeout", "1s"];
    place.run(&args).succeeded();
    let output = place.run(&["endpoints", "test", "a", "--json"]).ended(1);
    assert_eq!(output.field("status"), "null");
    assert_eq!(output.field("trouble"), "\"timeout\"");
}

#[test]
fn invalid_options_are_refused_without_printing_a_secret() {
    let place = sqlite();
    for args in [
        &["--secret", "whsec_canary"][..],
        &["--fail", "abc"],
        &["--fail", "500:x"],
        &["--retry-after", "1s"],
        &["--port", "70000"],
    ] {
        let output = place.run(&[&["listen"], args].concat()).ended(2);
        assert!(!output.err.contains("canary"), "{output:?}");
    }
}
