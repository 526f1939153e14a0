//! `tenure verify` checks the signature of a received call.

use crate::program::{Finished, sqlite};

/// The test vector of the Standard Webhooks specification.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY: &str = r#"{"test": 2432232314}"#;
const ID: &str = "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek";
const TIME: &str = "Webhook-Timestamp: 1614265330";
const SIGNATURE: &str = "webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const THEN: &str = "2021-02-25T15:02:11Z";

fn verify(secret: &str, headers: &[&str], at: &str, body: &str) -> Finished {
    let mut args = vec!["verify", "--json", "--secret", secret, "--at", at];
    for header in headers {
        args.extend(["--header", header]);
    }
    args.push(body);
    sqlite().run_with(&args, BODY.as_bytes())
}

#[test]
fn the_vector_of_the_specification_is_valid() {
    for body in [BODY, "-"] {
        let output = verify(SECRET, &[ID, TIME, SIGNATURE], THEN, body).succeeded();
        assert_eq!(output.field("id"), "\"msg_p5jXN8AQM9LWM0D4loKWxJek\"");
        assert_eq!(output.field("fence"), "null");
    }
}

#[test]
fn a_changed_old_or_foreign_call_is_not_valid() {
    let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let later = "2021-02-25T15:08:00Z";
    let moved = "webhook-timestamp: 1614265331";
    for (secret, headers, at, body) in [
        (SECRET, [ID, TIME, SIGNATURE], THEN, r#"{"test": 1}"#),
        (SECRET, [ID, TIME, SIGNATURE], later, BODY),
        (SECRET, [ID, moved, SIGNATURE], THEN, BODY),
        (SECRET, [ID, TIME, "webhook-signature: v1,AAAA"], THEN, BODY),
        (SECRET, [ID, TIME, "x: y"], THEN, BODY),
        (other, [ID, TIME, SIGNATURE], THEN, BODY),
    ] {
        let output = verify(secret, &headers, at, body).ended(1);
        assert_eq!(output.field("verified"), "false");
        assert!(!output.out.contains(secret), "{output:?}");
    }
}

#[test]
fn an_invalid_header_and_an_invalid_or_missing_secret_are_refused() {
    verify("whsec_canary", &[ID], THEN, BODY).ended(2);
    verify(SECRET, &["canary"], THEN, BODY).ended(2);
    sqlite().run(&["verify", "--header", ID, BODY]).ended(2);
}
