//! Signatures: the published examples, every signed part, the time, and rotation.

use std::time::Duration;

use tenure_core::testing::Extent;
use tenure_core::webhook::{Caller as _, Endpoint};
use tenure_core::{Event, Fence, Timestamp};
use tenure_publish::webhook::verify::{Freshness, Latest, Verified, Verifier, VerifyError};
use tenure_publish::webhook::{Scheme, Secrets, SigningKey, WebhookCaller};

use super::{
    Answering, NOW, Received, Receiver, caller, config, endpoint, event, request, secrets,
};

/// Makes a call with a sequence and returns the request as received.
async fn received(caller: &WebhookCaller, endpoint: &Endpoint, receiver: &Receiver) -> Received {
    let event = event();
    let mut request = request(endpoint, &event);
    request.sequence = Some(5);
    let before = receiver.all().len();
    assert_eq!(caller.call(&request).await.status, Ok(204));
    receiver.all()[before].clone()
}

/// Examples of the libraries published with Standard Webhooks.
#[test]
fn the_published_examples_verify() {
    let id = ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek");
    let time = ("webhook-timestamp", "1614265330");
    let body = br#"{"test": 2432232314}"#;
    let now = Timestamp::from_micros(1_614_265_330_000_000);
    let hmac = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    let ed25519 = "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7\
                   KaaBRdM5WqyeFiL8Ag==";
    let private = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=";
    let public = SigningKey::parse(private).unwrap().public().unwrap();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let both = format!("v1,bm9ub25vbm9ubw== {ed25519} v2,{} {hmac}", "A".repeat(43));
    let cases = [
        (secret, hmac, true),
        (private, ed25519, true),
        (&*public, ed25519, true),
        (secret, &*both, true),
        (&*public, &*both, true),
        // Neither scheme accepts the other one's signature, nor a truncated one.
        (secret, ed25519, false),
        (&*public, hmac, false),
        (secret, &hmac[..40], false),
        (secret, "v1,", false),
        (secret, "", false),
    ];
    for (key, signature, is_good) in cases {
        let verifier = Verifier::new([key]).unwrap().accept_plain();
        let headers = [id, time, ("Webhook-Signature", signature)];
        assert_eq!(
            verifier.verify(headers, body, now).is_ok(),
            is_good,
            "{key} {signature}"
        );
    }
}

#[tokio::test]
async fn every_signed_part_of_a_call_is_guarded() {
    let receiver = Receiver::answering(Answering::status(204)).await;
    for scheme in [Scheme::Hmac, Scheme::Ed25519] {
        let key = SigningKey::generate(scheme);
        let endpoint = endpoint(&receiver.url(), &Secrets::new(key.clone()));
        let call = received(&caller(), &endpoint, &receiver).await;
        let verifier = Verifier::new([key.public().unwrap_or(key.expose())]).unwrap();
        let verified = verifier.verify(call.pairs(), &call.body, NOW).unwrap();
        let expected = Verified {
            id: "0190a1b2-c3d4-7000-8000-000000000001".to_owned(),
            timestamp: NOW,
            attempt: Some(2),
            fence: Some(Fence::new(42)),
            sequence: Some(5),
            topic: Some("order.paid".to_owned()),
        };
        assert_eq!(verified, expected);

        let changed = [
            ("webhook-id", "0190a1b2-c3d4-7000-8000-000000000002"),
            ("webhook-timestamp", "1800000001"),
            ("webhook-attempt", "1"),
            ("webhook-attempt", "02"),
            ("webhook-fence", "43"),
            ("webhook-sequence", "6"),
            ("webhook-sequence", ""),
            ("webhook-topic", "order.refunded"),
            ("webhook-signature", "v1,AAAA"),
            ("webhook-tenure-signature", "v1,AAAA"),
            (
                "webhook-tenure-signature",
                call.header("webhook-signature").unwrap(),
            ),
            (
                "webhook-signature",
                call.header("webhook-tenure-signature").unwrap(),
            ),
        ];
        for (name, value) in changed {
            let headers = call
                .pairs()
                .map(|(n, v)| (n, if n == name { value } else { v }));
            let result = verifier.verify(headers, &call.body, NOW);
            assert_eq!(result, Err(VerifyError::Signature), "{name}: {value}");
        }
        for (name, _) in call
            .pairs()
            .filter(|(name, _)| name.starts_with("webhook-"))
        {
            let without = call.pairs().filter(|(other, _)| *other != name);
            assert!(verifier.verify(without, &call.body, NOW).is_err(), "{name}");
            let twice = call.pairs().chain([(name, "1")]);
            assert!(
                verifier.verify(twice, &call.body, NOW).is_err(),
                "{name} twice"
            );
        }
        for at in 0..call.body.len() {
            let mut body = call.body.clone();
            body[at] ^= 1;
            assert_eq!(
                verifier.verify(call.pairs(), &body, NOW),
                Err(VerifyError::Signature)
            );
        }
        let other = Verifier::new([SigningKey::generate(scheme).expose()]).unwrap();
        let result = other.verify(call.pairs(), &call.body, NOW);
        assert_eq!(result, Err(VerifyError::Signature));
    }
}

/// A signed body begins with a number and a full stop. Moved into the headers, that would be a
/// message of another id, with a time chosen by the attacker.
#[tokio::test]
async fn no_part_of_a_body_passes_for_an_id_or_a_time() {
    let receiver = Receiver::answering(Answering::status(204)).await;
    let secrets = secrets();
    let endpoint = endpoint(&receiver.url(), &secrets);
    let event = Event::from_bytes("order.paid", b"1900000000.{}").unwrap();
    caller().call(&request(&endpoint, &event)).await;
    let call = receiver.only();
    let verifier = Verifier::new([secrets.signing[0].key.expose()]).unwrap();
    let verifier = verifier.accept_plain();
    assert!(verifier.verify(call.pairs(), &call.body, NOW).is_ok());

    let signature = call.header("webhook-signature").unwrap();
    let sent = |name| call.header(name).unwrap();
    let id = format!("{}.{}", sent("webhook-id"), sent("webhook-timestamp"));
    let forged = [
        ("webhook-id", id.as_str()),
        ("webhook-timestamp", "1900000000"),
        ("webhook-signature", signature),
    ];
    let later = Timestamp::from_micros(1_900_000_000_000_000);
    let result = verifier.verify(forged, b"{}", later);
    assert_eq!(result, Err(VerifyError::Header("webhook-id")));
}

/// The lines of the signed text end with line breaks, so a header must not contain one.
#[tokio::test]
async fn a_header_with_a_line_break_is_refused() {
    let receiver = Receiver::answering(Answering::status(204)).await;
    let secrets = secrets();
    let endpoint = endpoint(&receiver.url(), &secrets);
    let call = received(&caller(), &endpoint, &receiver).await;
    let verifier = Verifier::new([secrets.signing[0].key.expose()]).unwrap();
    for name in tenure_publish::webhook::names::ALL {
        let longer = format!("{}\n1", call.header(name).unwrap());
        let headers = call
            .pairs()
            .map(|(n, v)| (n, if n == name { longer.as_str() } else { v }));
        let result = verifier.verify(headers, &call.body, NOW);
        assert_eq!(result, Err(VerifyError::Header(name)));
    }
}

/// The right signature counts at each of the first 32 positions; later ones are not checked.
#[tokio::test]
async fn one_right_signature_among_many_is_enough() {
    let receiver = Receiver::answering(Answering::status(204)).await;
    for scheme in [Scheme::Hmac, Scheme::Ed25519] {
        let key = SigningKey::generate(scheme);
        let endpoint = endpoint(&receiver.url(), &Secrets::new(key.clone()));
        let call = received(&caller(), &endpoint, &receiver).await;
        let other = SigningKey::generate(scheme).expose();
        let verifier = Verifier::new([other, key.expose()]).unwrap();
        let wrong = format!("{},{}=", scheme.tag(), "A".repeat(43));
        for place in [0, 1, 31, 32] {
            let many = |value: &str| {
                let mut all = vec![wrong.as_str(); 40];
                all[place] = value;
                all.join(" ")
            };
            let headers = call.pairs().map(|(name, value)| {
                let is_signature = name.ends_with("-signature");
                let value = if is_signature {
                    many(value)
                } else {
                    value.to_owned()
                };
                (name, value)
            });
            let result = verifier.verify(headers, &call.body, NOW);
            assert_eq!(result.is_ok(), place < 32, "{scheme:?} at {place}");
        }
    }
}

#[tokio::test]
async fn a_call_is_accepted_up_to_five_minutes_before_and_after_its_timestamp() {
    let receiver = Receiver::answering(Answering::status(204)).await;
    let secrets = secrets();
    let endpoint = endpoint(&receiver.url(), &secrets);
    let call = received(&caller(), &endpoint, &receiver).await;
    let verifier = Verifier::new([secrets.signing[0].key.expose()]).unwrap();
    let at = |now| verifier.verify(call.pairs(), &call.body, now).map(|_| ());
    let edge = Duration::from_mins(5);
    let past = edge + Duration::from_micros(1);
    assert_eq!(at(NOW.after(edge)), Ok(()));
    assert_eq!(at(NOW.before(edge)), Ok(()));
    assert_eq!(at(NOW.after(past)), Err(VerifyError::Time));
    assert_eq!(at(NOW.before(past)), Err(VerifyError::Time));
    let patient = Verifier::new([secrets.signing[0].key.expose()])
        .unwrap()
        .tolerance(past);
    assert!(
        patient
            .verify(call.pairs(), &call.body, NOW.after(past))
            .is_ok()
    );
}

#[tokio::test]
async fn during_a_rotation_both_keys_sign_and_afterwards_the_new_one_alone() {
    let receiver = Receiver::answering(Answering::status(204)).await;
    let mut secrets = secrets();
    let old = secrets.signing[0].key.clone();
    let new = SigningKey::generate(Scheme::Ed25519);
    let hour = Duration::from_hours(1);
    secrets.rotate(new.clone(), NOW, NOW.after(hour)).unwrap();
    let endpoint = endpoint(&receiver.url(), &secrets);

    let clock = std::sync::Arc::new(tenure_core::testing::ManualClock::new(NOW));
    let mut config = config();
    config.clock = std::sync::Arc::<tenure_core::testing::ManualClock>::clone(&clock);
    let caller = WebhookCaller::new(config).unwrap();
    let is_good = |key: &str, call: &Received, now| {
        let verifier = Verifier::new([key]).unwrap();
        verifier.verify(call.pairs(), &call.body, now).is_ok()
    };
    let during = received(&caller, &endpoint, &receiver).await;
    assert!(is_good(&old.expose(), &during, NOW));
    assert!(is_good(&new.public().unwrap(), &during, NOW));
    assert_eq!(
        during
            .header("webhook-signature")
            .unwrap()
            .split(' ')
            .count(),
        2
    );

    // The secrets are decrypted once; the end of a key is checked in every call.
    clock.advance(hour);
    let after = received(&caller, &endpoint, &receiver).await;
    assert!(!is_good(&old.expose(), &after, NOW.after(hour)));
    assert!(is_good(&new.public().unwrap(), &after, NOW.after(hour)));
}

#[tokio::test]
async fn a_changed_endpoint_is_signed_with_its_new_key_at_once() {
    let receiver = Receiver::answering(Answering::status(204)).await;
    let caller = caller();
    for version in 1..=3 {
        let secrets = secrets();
        let mut endpoint = endpoint(&receiver.url(), &secrets);
        endpoint.version = version;
        let call = received(&caller, &endpoint, &receiver).await;
        let verifier = Verifier::new([secrets.signing[0].key.expose()]).unwrap();
        assert!(verifier.verify(call.pairs(), &call.body, NOW).is_ok());
    }
}

#[test]
fn a_receiver_drops_duplicates_and_late_calls() {
    let call = |id: &str, fence, sequence| Verified {
        id: id.to_owned(),
        timestamp: NOW,
        attempt: Some(1),
        fence: Some(Fence::new(fence)),
        sequence,
        topic: None,
    };
    let mut latest = Latest::new(2);
    let second = call("b", 8, Some(2));
    assert_eq!(latest.judge(&second, Some("k")), Freshness::New);
    latest.remember(&second, Some("k"));
    assert_eq!(
        latest.judge(&call("b", 9, Some(2)), Some("k")),
        Freshness::Repeat
    );
    assert_eq!(
        latest.judge(&call("b", 7, Some(2)), Some("k")),
        Freshness::Stale
    );
    // An older message of the key, and a message of another key.
    assert_eq!(
        latest.judge(&call("a", 9, Some(1)), Some("k")),
        Freshness::Stale
    );
    assert_eq!(
        latest.judge(&call("a", 9, Some(1)), Some("l")),
        Freshness::New
    );
    assert_eq!(
        latest.judge(&call("c", 9, Some(3)), Some("k")),
        Freshness::New
    );
    // A full memory forgets the oldest call.
    latest.remember(&call("c", 9, None), None);
    latest.remember(&call("d", 9, None), None);
    assert_eq!(latest.judge(&call("b", 8, None), None), Freshness::New);
    assert_eq!(latest.judge(&call("d", 9, None), None), Freshness::Repeat);
}

#[test]
fn a_verifier_needs_a_key() {
    assert!(Verifier::new(Vec::<String>::new()).is_err());
    for key in ["", "secret", "whpk_AAAA"] {
        assert!(Verifier::new([key]).is_err(), "{key}");
    }
}

/// Goal: the time does not depend on the position at which a wrong signature differs. Method: two
/// kinds of wrong signatures, differing in the first byte and in the last, alternate; Welch's t
/// stays small. A few rounds prove nothing about time, so only `scripts/prove` checks t.
#[test]
fn the_time_of_a_check_does_not_depend_on_the_wrong_byte() {
    let is_long = Extent::chosen() == Extent::All;
    let rounds = Extent::chosen().size(2_000, 1_000_000);
    let verifier = Verifier::new(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).unwrap();
    let verifier = verifier.accept_plain();
    let right = "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    let wrong = [
        format!("v1,h{}", &right[1..]),
        format!("v1,{}A=", &right[..right.len() - 2]),
    ];
    let now = Timestamp::from_micros(1_614_265_330_000_000);
    let mut sums = [(0.0, 0.0, 0.0); 2];
    for round in 0..rounds {
        let kind = round % 2;
        let headers = [
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", &*wrong[kind]),
        ];
        let start = tokio::time::Instant::now();
        let result = verifier.verify(headers, br#"{"test": 2432232314}"#, now);
        let took = start.elapsed().as_secs_f64() * 1e9;
        assert_eq!(result, Err(VerifyError::Signature));
        // Outliers are pauses of the machine.
        if took < 100_000.0 {
            let (count, sum, squares) = sums[kind];
            sums[kind] = (count + 1.0, sum + took, squares + took * took);
        }
    }
    let [first, last] = sums.map(|(count, sum, squares)| {
        let mean = sum / count;
        (mean, (squares / count - mean * mean) / count)
    });
    let t = (first.0 - last.0) / (first.1 + last.1).sqrt();
    if is_long {
        #[expect(clippy::print_stderr, reason = "the figure of a proof")]
        {
            eprintln!("t is {t:.2} after {rounds} signatures");
        }
        assert!(t.abs() < 4.5, "t is {t}");
    }
}
