//! Secrets at rest: opened only with the key, for their own endpoint, and never printed.

use std::time::Duration;

use tenure_core::webhook::EndpointId;
use tenure_publish::webhook::verify::Verifier;
use tenure_publish::webhook::{AddressPolicy, Keyring, Scheme, Secrets, SigningKey};

use super::{NOW, endpoint, keyring, secrets};

fn id(text: &str) -> EndpointId {
    EndpointId::new(text).unwrap()
}

#[test]
fn an_old_key_opens_and_the_first_one_seals() {
    let old = Keyring::generate_line("old").unwrap();
    let new = Keyring::generate_line("new").unwrap();
    let before = Keyring::parse(&old).unwrap();
    let both = Keyring::parse(&format!("\n # ours\r\n{new}\r\n{old}")).unwrap();
    let after = Keyring::parse(&new).unwrap();

    let secrets = secrets();
    let sealed = secrets.seal(&before, &id("billing")).unwrap();
    assert_eq!(Secrets::sealed_by(&sealed), Some("old"));
    let opened = Secrets::open(&sealed, &both, &id("billing")).unwrap();
    assert_eq!(opened, secrets);
    let again = opened.seal(&both, &id("billing")).unwrap();
    assert_eq!(Secrets::sealed_by(&again), Some("new"));
    assert_eq!(
        Secrets::open(&again, &after, &id("billing")).unwrap(),
        secrets
    );

    let lost = Secrets::open(&sealed, &after, &id("billing")).unwrap_err();
    assert!(
        lost.to_string()
            .contains("\"old\", which the keyring does not have")
    );
    // The same name with another key is another key.
    let other = Keyring::parse(&Keyring::generate_line("old").unwrap()).unwrap();
    assert!(Secrets::open(&sealed, &other, &id("billing")).is_err());
}

#[test]
fn sealed_text_is_random_and_opens_only_unchanged_for_its_endpoint() {
    let secrets = secrets();
    let sealed = secrets.seal(&keyring(), &id("billing")).unwrap();
    assert_ne!(sealed, secrets.seal(&keyring(), &id("billing")).unwrap());
    assert!(Secrets::open(&sealed, &keyring(), &id("mail")).is_err());
    for at in 0..sealed.len() {
        let mut changed = sealed.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(
            Secrets::open(&changed, &keyring(), &id("billing")).is_err(),
            "byte {at}"
        );
    }
    for cut in 0..sealed.len() {
        assert!(Secrets::open(&sealed[..cut], &keyring(), &id("billing")).is_err());
    }
}

#[test]
fn invalid_keyrings_are_refused_without_quoting_them() {
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let bad = [
        String::new(),
        "# nothing\n".to_owned(),
        key.to_owned(),
        format!(":{key}"),
        format!("a b:{key}"),
        format!("a:{}", &key[..40]),
        format!("a:{key}\na:{key}"),
        format!("a:{key}\nb:{key}x"),
    ];
    for text in bad {
        let error = Keyring::parse(&text).unwrap_err().to_string();
        assert!(!error.contains("AAEC"), "{error}");
    }
    assert!(Keyring::generate_line("").is_err());
    assert!(Keyring::generate_line("a:b").is_err());
}

#[test]
fn headers_that_belong_to_the_protocol_or_hide_a_second_one_are_refused() {
    let with = |name: &str, value: &str| {
        let mut secrets = secrets();
        secrets.headers.insert(name.to_owned(), value.to_owned());
        secrets.seal(&keyring(), &id("billing"))
    };
    assert!(with("authorization", "Bearer abc").is_ok());
    let names = [
        "webhook-id",
        "webhook-anything",
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "upgrade",
        "te",
        "traceparent",
        "tracestate",
        "Authorization",
        "a b",
        "a:b",
        "a\r\nb",
        "",
    ];
    for name in names {
        assert!(with(name, "x").is_err(), "{name:?}");
    }
    for value in [
        "a\r\nwebhook-id: b",
        "a\0",
        "é",
        "",
        " a",
        &"a".repeat(4097),
    ] {
        let error = with("x-key", value).unwrap_err().to_string();
        assert!(
            value.is_empty() || !error.contains(&format!("is {value}")),
            "{error}"
        );
    }
    let mut many = secrets();
    many.headers = (0..21)
        .map(|n| (format!("x-{n}"), "v".to_owned()))
        .collect();
    assert!(many.seal(&keyring(), &id("billing")).is_err());
}

#[test]
fn after_a_rotation_the_old_key_signs_for_a_while_and_at_most_five_keys_are_live() {
    let mut secrets = secrets();
    let first = secrets.signing[0].key.clone();
    let hour = Duration::from_hours(1);
    let new = || SigningKey::generate(Scheme::Hmac);
    secrets.rotate(new(), NOW, NOW.after(hour)).unwrap();
    assert_eq!(secrets.signing[1].key, first);
    assert!(secrets.signing[1].is_live(NOW) && !secrets.signing[1].is_live(NOW.after(hour)));
    for _ in 0..3 {
        secrets.rotate(new(), NOW, NOW.after(hour)).unwrap();
    }
    assert_eq!(secrets.signing.len(), 5);
    assert!(secrets.rotate(new(), NOW, NOW.after(hour)).is_err());
    assert_eq!(
        secrets.signing.len(),
        5,
        "a refused rotation changes nothing"
    );
    secrets
        .rotate(new(), NOW.after(hour), NOW.after(hour * 2))
        .unwrap();
    assert_eq!(secrets.signing.len(), 2, "an ended key is removed");

    secrets.signing[0].until = Some(NOW);
    assert!(
        secrets.seal(&keyring(), &id("billing")).is_err(),
        "no key without an end"
    );
}

#[test]
fn a_signing_key_can_be_parsed_from_its_text_and_an_invalid_one_is_refused() {
    for scheme in [Scheme::Hmac, Scheme::Ed25519] {
        let key = SigningKey::generate(scheme);
        assert_eq!(SigningKey::parse(&key.expose()).unwrap(), key);
        assert_eq!(key.public().is_some(), scheme == Scheme::Ed25519);
    }
    let bad = [
        "",
        "whsec_",
        "whsec_c2hvcnQ=",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whpk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=",
        "whsec_!!!!",
    ];
    for text in bad {
        let error = SigningKey::parse(text).unwrap_err().to_string();
        assert!(
            !error.contains("MfKQ") && !error.contains("c2hv"),
            "{error}"
        );
    }
    // With a matching public half appended.
    let pair = SigningKey::generate(Scheme::Ed25519);
    let decode = |text: &str| base64::Engine::decode(&BASE64, text).unwrap();
    let (private, public) = (pair.expose(), pair.public().unwrap());
    let mut both = decode(&private["whsk_".len()..]);
    both.extend(decode(&public["whpk_".len()..]));
    let text = |bytes: &[u8]| format!("whsk_{}", base64::Engine::encode(&BASE64, bytes));
    assert_eq!(SigningKey::parse(&text(&both)).unwrap(), pair);
    both[63] ^= 1;
    assert!(SigningKey::parse(&text(&both)).is_err());
}

const BASE64: base64::engine::GeneralPurpose = base64::engine::general_purpose::STANDARD;

/// Proves: S2-062
#[test]
fn nothing_that_can_be_printed_shows_a_secret() {
    let line = Keyring::generate_line("2027").unwrap();
    let keyring_text = line.split_once(':').unwrap().1.to_owned();
    let keyring = Keyring::parse(&line).unwrap();
    let mut secrets = secrets();
    secrets
        .headers
        .insert("authorization".to_owned(), "Bearer canary".to_owned());
    let key = secrets.signing[0].key.expose();
    let verifier = Verifier::new([&key]).unwrap();
    let endpoint = endpoint("https://example.com/canary-path", &secrets);
    let policy = AddressPolicy::default();
    let target = policy
        .check_url("https://example.com/canary-path?q=canary")
        .unwrap();
    let printed = format!(
        "{keyring:?} {secrets:?} {:?} {verifier:?} {endpoint:?} {target:?} {:?}",
        secrets.signing[0],
        super::caller(),
    );
    for secret in [&*keyring_text, &key, &key["whsec_".len()..], "canary"] {
        assert!(!printed.contains(secret), "{printed}");
    }
}
