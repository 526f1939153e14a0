//! `tenure verify`: whether a call can be believed.

use crate::program::{Said, sqlite};

/// The vector of the Standard Webhooks text.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY: &str = r#"{"test": 2432232314}"#;
const ID: &str = "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek";
const TIME: &str = "Webhook-Timestamp: 1614265330";
const SIGNATURE: &str = "webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const THEN: &str = "2021-02-25T15:02:11Z";

fn verify(secret: &str, headers: &[&str], at: &str, body: &str) -> Said {
    let mut args = vec!["verify", "--json", "--secret", secret, "--at", at];
    for header in headers {
        args.extend(["--header", header]);
    }
    args.push(body);
    sqlite().run_with(&args, BODY.as_bytes())
}

#[test]
fn the_vector_of_the_specification_is_believed() {
    for body in [BODY, "-"] {
        let said = verify(SECRET, &[ID, TIME, SIGNATURE], THEN, body).succeeded();
        assert_eq!(said.field("id"), "\"msg_p5jXN8AQM9LWM0D4loKWxJek\"");
        assert_eq!(said.field("fence"), "null");
    }
}

#[test]
fn what_was_changed_is_old_or_signed_by_another_is_not() {
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
        let said = verify(secret, &headers, at, body).ended(1);
        assert_eq!(said.field("verified"), "false");
        assert!(!said.out.contains(secret), "{said:?}");
    }
}

#[test]
fn what_is_no_key_or_header_is_told() {
    verify("whsec_canary", &[ID], THEN, BODY).ended(2);
    verify(SECRET, &["canary"], THEN, BODY).ended(2);
    sqlite().run(&["verify", "--header", ID, BODY]).ended(2);
}
