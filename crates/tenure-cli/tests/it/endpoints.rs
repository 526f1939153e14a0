//! `tenure endpoints`: what is registered, what is refused, what is shown and what never is.

use std::os::unix::fs::PermissionsExt as _;

use crate::program::{Place, everywhere, sqlite};
use crate::receiver::{Receiver, allowing};

/// Adds an endpoint at this address and answers with its secret.
fn add(place: &Place, url: &str, id: &str) -> String {
    let said = place.run(&["endpoints", "add", url, "--id", id, "--json"]);
    let secret = said.succeeded().field("secret");
    secret.trim_matches('"').to_owned()
}

#[tokio::test]
async fn a_secret_is_shown_once_and_kept_sealed() {
    for place in everywhere().await {
        place.write("tenure.toml", &allowing(9));
        let url = "http://127.0.0.1:9/hooks?key=canary";
        let args = ["endpoints", "add", url, "--header", "x-api-key=canary-2"];
        let said = place.run(&args).succeeded();
        assert!(said.out.contains("added 127-0-0-1-9"), "{said:?}");
        assert!(said.err.contains("made tenure.key"), "{said:?}");
        let secret = said.out.split("secret  ").nth(1).expect("it is shown");
        let secret = secret.trim();
        assert!(secret.starts_with("whsec_"), "{said:?}");
        let mode = std::fs::metadata(place.path("tenure.key")).expect("it was made");
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);

        // The address itself is shown to who asks for this endpoint; nothing sealed ever is.
        for args in [
            &["endpoints", "list"][..],
            &["endpoints", "list", "--json"],
            &["endpoints", "show", "127-0-0-1-9"],
            &["endpoints", "show", "127-0-0-1-9", "--json"],
            &["stats", "--json"],
            &["doctor", "--json"],
        ] {
            let said = place.run(args);
            let all = format!("{}{}", said.out, said.err);
            assert!(
                !all.contains(secret) && !all.contains("canary-2"),
                "{args:?}"
            );
        }
        let said = place.run(&["endpoints", "list"]).succeeded();
        assert!(!said.out.contains("canary"), "{said:?}");
        // A second time the key is there.
        let said = place.run(&["endpoints", "add", url, "--id", "two"]);
        assert!(!said.succeeded().err.contains("made"), "it is made once");
        let said = place.run(&["endpoints", "add", url, "--id", "two"]);
        said.failed(4, "there is an endpoint two", "another --id");
    }
}

#[test]
fn an_address_that_may_not_be_called_is_refused_when_it_is_registered() {
    let place = sqlite();
    for url in [
        "http://example.com/",
        "https://10.0.0.1/",
        "https://[::ffff:127.0.0.1]/",
        "https://2130706433/",
        "https://169.254.169.254/latest",
        // Its name is resolved.
        "https://localhost/hooks",
        "https://user:canary@example.com/",
        "https://example.com:5432/",
        "ftp://example.com/",
        "example.com",
        "",
    ] {
        let said = place.run(&["endpoints", "add", url, "--id", "x"]).ended(2);
        assert!(said.err.starts_with("error: "), "{url}: {said:?}");
        assert!(!said.err.contains("canary"), "{said:?}");
    }
    assert!(!place.file().exists() && !place.path("tenure.key").exists());
}

#[test]
fn everything_that_is_wrong_with_an_endpoint_is_told_at_once() {
    let place = sqlite();
    let said = place
        .run(&[
            "endpoints",
            "add",
            "https://example.com",
            "--timeout",
            "1h",
            "--concurrency",
            "0",
            "--no-retry",
            "200",
        ])
        .ended(2);
    assert_eq!(said.err.matches("error: ").count(), 3, "{said:?}");
    for args in [
        &["--secret", "whsec_canary"][..],
        &["--secret", "whsec_x", "--ed25519"],
        &["--header", "canary"],
        &["--header", "webhook-id=canary"],
        &["--rate", "10"],
        &["--schedule", "1ms"],
        &["--topics", "ord*"],
        &["--id", "Billing"],
    ] {
        let all = [&["endpoints", "add", "https://93.184.215.14/"], args].concat();
        let said = place.run(&all).ended(2);
        assert!(said.err.starts_with("error: "), "{args:?}: {said:?}");
        assert!(!said.err.contains("canary"), "{args:?}: {said:?}");
    }
    assert!(!place.path("tenure.key").exists());
}

#[tokio::test]
async fn an_endpoint_is_edited_disabled_enabled_and_removed() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[]);
        receiver.allow(&place);
        add(&place, &receiver.url(), "billing");
        let args = [
            "endpoints",
            "edit",
            "billing",
            "--topics",
            "order.*,invoice.paid",
            "--timeout",
            "30s",
            "--rate",
            "10/s",
            "--schedule",
            "5s,1m",
            "--meta",
            "team=payments",
            "--json",
        ];
        let said = place.run(&args).succeeded();
        let rules = &said.objects()[0]["settings"];
        assert_eq!(
            rules["topics"],
            serde_json::json!(["order.*", "invoice.paid"])
        );
        assert_eq!(rules["timeout_ms"], 30_000);
        assert_eq!(rules["rate"]["per_second"], 10);
        assert_eq!(rules["schedule_ms"], serde_json::json!([5_000, 60_000]));
        assert_eq!(rules["metadata"]["team"], "payments");
        let said = place.run(&["endpoints", "edit", "billing", "--url", "https://10.0.0.1/"]);
        said.failed(2, "cannot be called", "webhook.allow");

        let state = || {
            let said = place.run(&["endpoints", "show", "billing", "--json"]);
            said.succeeded().field("state")
        };
        place.run(&["endpoints", "disable", "billing"]).ended(2);
        let args = [
            "endpoints",
            "disable",
            "billing",
            "--reason",
            "they migrate",
        ];
        place.run(&args).succeeded();
        assert_eq!(state(), "\"disabled\"");
        let said = place.run(&["endpoints", "list"]).succeeded();
        assert!(said.out.contains("they migrate"), "{said:?}");
        place.run(&["endpoints", "enable", "billing"]).succeeded();
        assert_eq!(state(), "\"enabled\"");

        let said = place.run(&["endpoints", "remove", "billing"]);
        said.failed(2, "nobody is there to ask", "--yes");
        place
            .run(&["endpoints", "remove", "billing", "--yes"])
            .succeeded();
        assert_eq!(state(), "\"removed\"");
        place.run(&["endpoints", "list"]).ended(3);
        place.run(&["endpoints", "list", "--all"]).succeeded();
        let said = place.run(&["endpoints", "enable", "billing"]);
        said.failed(4, "was removed", "endpoints add");
        for command in ["show", "enable", "rotate", "test"] {
            let said = place.run(&["endpoints", command, "nobody"]);
            said.failed(3, "there is no endpoint nobody", "endpoints list");
        }
    }
}

#[test]
fn a_test_call_is_signed_and_its_answer_is_shown() {
    let place = sqlite();
    let receiver = Receiver::start(&[204, 500]);
    receiver.allow(&place);
    let secret = add(&place, &receiver.url(), "billing");
    let args = ["endpoints", "edit", "billing", "--header", "X-Api-Key=abc"];
    place.run(&args).succeeded();

    let said = place
        .run(&["endpoints", "test", "billing", "--json"])
        .succeeded();
    assert_eq!(said.field("status"), "204");
    let call = receiver.next();
    assert_eq!(call.path, "/hooks");
    assert_eq!(call.header("x-api-key"), Some("abc"));
    assert_eq!(call.verified(&secret).map(|call| call.attempt), Ok(Some(1)));

    let said = place.run(&["endpoints", "test", "billing"]).ended(1);
    assert!(said.out.contains("billing answered 500"), "{said:?}");
    assert!(said.out.contains("heard"), "{said:?}");
}

#[test]
fn while_a_rotation_overlaps_both_secrets_sign() {
    let place = sqlite();
    let receiver = Receiver::start(&[]);
    receiver.allow(&place);
    let old = add(&place, &receiver.url(), "billing");
    let rotate = |overlap: &str| {
        let args = [
            "endpoints",
            "rotate",
            "billing",
            "--overlap",
            overlap,
            "--json",
        ];
        let secret = place.run(&args).succeeded().field("secret");
        secret.trim_matches('"').to_owned()
    };
    let new = rotate("1h");
    let test = || {
        place.run(&["endpoints", "test", "billing"]).succeeded();
        receiver.next()
    };
    let call = test();
    assert!(call.verified(&old).is_ok() && call.verified(&new).is_ok());
    // From one moment to the next: the one before signs no more, the oldest goes on to its end.
    let newest = rotate("0s");
    let call = test();
    assert!(call.verified(&newest).is_ok() && call.verified(&old).is_ok());
    assert!(call.verified(&new).is_err());
    place
        .run(&["endpoints", "rotate", "billing", "--overlap", "8d"])
        .ended(2);
}

#[test]
fn a_key_pair_shows_its_public_half_alone() {
    let place = sqlite();
    let receiver = Receiver::start(&[]);
    receiver.allow(&place);
    let url = receiver.url();
    let args = [
        "endpoints",
        "add",
        &url,
        "--id",
        "pair",
        "--ed25519",
        "--json",
    ];
    let said = place.run(&args).succeeded();
    assert!(!said.out.contains("whsk_"), "{said:?}");
    let public = said.field("public_key");
    place.run(&["endpoints", "test", "pair"]).succeeded();
    assert!(receiver.next().verified(public.trim_matches('"')).is_ok());

    // A secret of the receiver's own is taken from the input and not shown again.
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let args = ["endpoints", "add", &url, "--id", "own", "--secret", "-"];
    let said = place.run_with(&args, secret.as_bytes()).succeeded();
    assert!(!said.out.contains("whsec_"), "{said:?}");
    place.run(&["endpoints", "test", "own"]).succeeded();
    assert!(receiver.next().verified(secret).is_ok());
}

#[test]
fn without_the_key_nothing_is_opened_and_no_other_key_is_made() {
    let place = sqlite();
    let receiver = Receiver::start(&[]);
    receiver.allow(&place);
    add(&place, &receiver.url(), "billing");
    let key = place.path("tenure.key");
    let kept = std::fs::read(&key).expect("it was made");
    let said = place.run(&["doctor", "--json"]);
    assert!(said.out.contains("opens everything"), "{said:?}");
    std::fs::remove_file(&key).expect("it is there");

    let said = place.run(&["endpoints", "rotate", "billing"]);
    said.failed(1, "there is no key", "webhook.key_file");
    let url = receiver.url();
    let said = place.run(&["endpoints", "add", &url, "--id", "two"]);
    said.failed(1, "sealed with another key", "TENURE_WEBHOOK_KEY");
    assert!(!key.exists());
    let said = place.run(&["doctor"]).ended(1);
    assert!(said.out.contains("webhook key"), "{said:?}");

    // A process that sends says so where somebody looks, and the endpoint is not blamed.
    place.enqueue("order.paid");
    let said = place.run(&["work", "--drain"]).succeeded();
    let line = said.err.lines().find(|line| line.contains(" WARN "));
    let line = line.unwrap_or_else(|| panic!("{said:?}"));
    assert!(line.contains("cannot call an endpoint"), "{line}");
    assert!(line.contains("tenure.key is not there"), "{line}");
    let waiting = place.run(&["deliveries", "list", "--json"]).succeeded();
    assert_eq!(waiting.objects()[0]["state"], "pending", "{waiting:?}");
    assert_eq!(waiting.objects()[0]["attempts"], 0, "{waiting:?}");
    let said = place.run(&["endpoints", "list", "--json"]).succeeded();
    assert_eq!(said.objects()[0]["health"]["failures"], 0, "{said:?}");

    // Another key of the same name does not open it, either.
    let other = "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
    std::fs::write(&key, other).expect("it can be written");
    let said = place.run(&["endpoints", "test", "billing"]);
    said.failed(1, "the secrets of billing do not open", "webhook.key_file");
    std::fs::write(&key, kept).expect("it can be written");
    place.run(&["endpoints", "test", "billing"]).succeeded();
}

#[test]
fn a_key_that_others_can_read_is_told_of() {
    let place = sqlite();
    let receiver = Receiver::start(&[]);
    receiver.allow(&place);
    add(&place, &receiver.url(), "billing");
    let key = place.path("tenure.key");
    let send = || {
        place.run(&["enqueue", "order.paid", "1"]).succeeded();
        let sent = place.run(&["work", "--drain", "--exec", "cat > /dev/null"]);
        receiver.next();
        sent.succeeded().err
    };
    assert!(!send().contains("can read the keys"));
    let said = place.run(&["doctor"]).succeeded();
    assert!(said.out.contains("opens everything"), "{said:?}");
    for mode in [0o640, 0o604] {
        let open = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&key, open).expect("it is ours");
        assert!(send().contains("can read the keys"), "{mode:o}");
        let said = place.run(&["doctor"]);
        assert!(said.out.contains("chmod 600"), "{said:?}");
    }
}

/// Whoever may call this machine may not call our own listener on it, by whatever address.
#[test]
fn our_own_listener_is_never_called() {
    let place = sqlite();
    let receiver = Receiver::start(&[]);
    receiver.allow(&place);
    let url = receiver.url();
    let port = url.trim_start_matches("http://127.0.0.1:");
    let port = port.trim_end_matches("/hooks");
    add(&place, &receiver.url(), "open");
    add(&place, &format!("http://127.8.8.8:{port}/"), "other");
    place.run(&["endpoints", "test", "open"]).succeeded();
    receiver.next();
    let config = std::fs::read_to_string(place.path("tenure.toml")).expect("it was written");
    let config = format!("{config}\n[server]\nlisten = \"127.0.0.1:{port}\"\n");
    place.write("tenure.toml", &config);
    for id in ["open", "other"] {
        let said = place.run(&["endpoints", "test", id]).ended(1);
        assert!(said.out.contains("not one that may be called"), "{said:?}");
    }
}
