//! `tenure endpoints` adds, refuses, prints and changes endpoints.

use std::os::unix::fs::PermissionsExt as _;

use crate::program::{Place, everywhere, sqlite};
use crate::receiver::{Receiver, allowing};

/// Adds an endpoint at this address and returns its secret.
fn add(place: &Place, url: &str, id: &str) -> String {
    let output = place.run(&["endpoints", "add", url, "--id", id, "--json"]);
    let secret = output.succeeded().field("secret");
    secret.trim_matches('"').to_owned()
}

#[tokio::test]
async fn a_secret_is_printed_once_and_stored_sealed() {
    for place in everywhere().await {
        place.write("tenure.toml", &allowing(9));
        let url = "http://127.0.0.1:9/hooks?key=canary";
        let args = ["endpoints", "add", url, "--header", "x-api-key=canary-2"];
        let output = place.run(&args).succeeded();
        assert!(output.out.contains("added 127-0-0-1-9"), "{output:?}");
        assert!(output.err.contains("created tenure.key"), "{output:?}");
        let secret = output.out.split("secret  ").nth(1).expect("it is shown");
        let secret = secret.trim();
        assert!(secret.starts_with("whsec_"), "{output:?}");
        let mode = std::fs::metadata(place.path("tenure.key")).expect("it was made");
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);

        // `show` prints the address; no command prints encrypted values.
        for args in [
            &["endpoints", "list"][..],
            &["endpoints", "list", "--json"],
            &["endpoints", "show", "127-0-0-1-9"],
            &["endpoints", "show", "127-0-0-1-9", "--json"],
            &["stats", "--json"],
            &["doctor", "--json"],
        ] {
            let output = place.run(args);
            let all = format!("{}{}", output.out, output.err);
            assert!(
                !all.contains(secret) && !all.contains("canary-2"),
                "{args:?}"
            );
        }
        let output = place.run(&["endpoints", "list"]).succeeded();
        assert!(!output.out.contains("canary"), "{output:?}");
        // The first `add` created the key, so the second one uses it.
        let output = place.run(&["endpoints", "add", url, "--id", "two"]);
        assert!(
            !output.succeeded().err.contains("created"),
            "the key is created once"
        );
        let output = place.run(&["endpoints", "add", url, "--id", "two"]);
        output.failed(4, "the id two is taken", "another --id");
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
        // The program resolves this name.
        "https://localhost/hooks",
        "https://user:canary@example.com/",
        "https://example.com:5432/",
        "ftp://example.com/",
        "example.com",
        "",
    ] {
        let output = place.run(&["endpoints", "add", url, "--id", "x"]).ended(2);
        assert!(output.err.starts_with("error: "), "{url}: {output:?}");
        assert!(!output.err.contains("canary"), "{output:?}");
    }
    assert!(!place.file().exists() && !place.path("tenure.key").exists());
}

#[test]
fn all_faults_of_an_endpoint_are_reported_at_once() {
    let place = sqlite();
    let output = place
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
    assert_eq!(output.err.matches("error: ").count(), 3, "{output:?}");
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
        let output = place.run(&all).ended(2);
        assert!(output.err.starts_with("error: "), "{args:?}: {output:?}");
        assert!(!output.err.contains("canary"), "{args:?}: {output:?}");
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
        let output = place.run(&args).succeeded();
        let rules = &output.objects()[0]["settings"];
        assert_eq!(
            rules["topics"],
            serde_json::json!(["order.*", "invoice.paid"])
        );
        assert_eq!(rules["timeout_ms"], 30_000);
        assert_eq!(rules["rate"]["per_second"], 10);
        assert_eq!(rules["schedule_ms"], serde_json::json!([5_000, 60_000]));
        assert_eq!(rules["metadata"]["team"], "payments");
        let output = place.run(&["endpoints", "edit", "billing", "--url", "https://10.0.0.1/"]);
        output.failed(2, "cannot be called", "webhook.allow");

        let state = || {
            let output = place.run(&["endpoints", "show", "billing", "--json"]);
            output.succeeded().field("state")
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
        let output = place.run(&["endpoints", "list"]).succeeded();
        assert!(output.out.contains("they migrate"), "{output:?}");
        place.run(&["endpoints", "enable", "billing"]).succeeded();
        assert_eq!(state(), "\"enabled\"");

        let output = place.run(&["endpoints", "remove", "billing"]);
        output.failed(2, "no terminal to confirm", "--yes");
        place
            .run(&["endpoints", "remove", "billing", "--yes"])
            .succeeded();
        assert_eq!(state(), "\"removed\"");
        place.run(&["endpoints", "list"]).ended(3);
        place.run(&["endpoints", "list", "--all"]).succeeded();
        let output = place.run(&["endpoints", "enable", "billing"]);
        output.failed(4, "was removed", "endpoints add");
        for command in ["show", "enable", "rotate", "test"] {
            let output = place.run(&["endpoints", command, "absent"]);
            output.failed(3, "there is no endpoint absent", "endpoints list");
        }
    }
}

#[test]
fn a_test_call_is_signed_and_its_answer_is_printed() {
    let place = sqlite();
    let receiver = Receiver::start(&[204, 500]);
    receiver.allow(&place);
    let secret = add(&place, &receiver.url(), "billing");
    let args = ["endpoints", "edit", "billing", "--header", "X-Api-Key=abc"];
    place.run(&args).succeeded();

    let output = place
        .run(&["endpoints", "test", "billing", "--json"])
        .succeeded();
    assert_eq!(output.field("status"), "204");
    let call = receiver.next();
    assert_eq!(call.path, "/hooks");
    assert_eq!(call.header("x-api-key"), Some("abc"));
    assert_eq!(call.verified(&secret).map(|call| call.attempt), Ok(Some(1)));

    let output = place.run(&["endpoints", "test", "billing"]).ended(1);
    assert!(output.out.contains("billing answered 500"), "{output:?}");
    assert!(output.out.contains("noted"), "{output:?}");
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
    // Without an overlap the previous secret is invalid at once; the oldest one stays valid until
    // its own end.
    let newest = rotate("0s");
    let call = test();
    assert!(call.verified(&newest).is_ok() && call.verified(&old).is_ok());
    assert!(call.verified(&new).is_err());
    place
        .run(&["endpoints", "rotate", "billing", "--overlap", "8d"])
        .ended(2);
}

#[test]
fn only_the_public_half_of_a_key_pair_is_printed() {
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
    let output = place.run(&args).succeeded();
    assert!(!output.out.contains("whsk_"), "{output:?}");
    let public = output.field("public_key");
    place.run(&["endpoints", "test", "pair"]).succeeded();
    assert!(receiver.next().verified(public.trim_matches('"')).is_ok());

    // The operator's own secret is read from standard input and not printed.
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let args = ["endpoints", "add", &url, "--id", "own", "--secret", "-"];
    let output = place.run_with(&args, secret.as_bytes()).succeeded();
    assert!(!output.out.contains("whsec_"), "{output:?}");
    place.run(&["endpoints", "test", "own"]).succeeded();
    assert!(receiver.next().verified(secret).is_ok());
}

#[test]
fn without_the_key_no_secret_is_opened_and_no_other_key_is_created() {
    let place = sqlite();
    let receiver = Receiver::start(&[]);
    receiver.allow(&place);
    add(&place, &receiver.url(), "billing");
    let key = place.path("tenure.key");
    let original = std::fs::read(&key).expect("it was made");
    let output = place.run(&["doctor", "--json"]);
    assert!(
        output
            .out
            .contains("opens the secrets of all enabled endpoints"),
        "{output:?}"
    );
    std::fs::remove_file(&key).expect("it is there");

    let output = place.run(&["endpoints", "rotate", "billing"]);
    output.failed(1, "there is no key", "webhook.key_file");
    let url = receiver.url();
    let output = place.run(&["endpoints", "add", &url, "--id", "two"]);
    output.failed(1, "sealed with another key", "TENURE_WEBHOOK_KEY");
    assert!(!key.exists());
    let output = place.run(&["doctor"]).ended(1);
    assert!(output.out.contains("webhook key"), "{output:?}");

    // The sender logs a warning, and the health of the endpoint does not change.
    place.enqueue("order.paid");
    let output = place.run(&["work", "--drain"]).succeeded();
    let is_call = |line: &&str| line.contains(" WARN ") && !line.contains("no routes");
    let line = output.err.lines().find(is_call);
    let line = line.unwrap_or_else(|| panic!("{output:?}"));
    assert!(line.contains("cannot call an endpoint"), "{line}");
    assert!(line.contains("tenure.key does not exist"), "{line}");
    let waiting = place.run(&["deliveries", "list", "--json"]).succeeded();
    assert_eq!(waiting.objects()[0]["state"], "pending", "{waiting:?}");
    assert_eq!(waiting.objects()[0]["attempts"], 0, "{waiting:?}");
    let output = place.run(&["endpoints", "list", "--json"]).succeeded();
    assert_eq!(output.objects()[0]["health"]["failures"], 0, "{output:?}");

    // Another key with the same name cannot decrypt the secrets either.
    let other = "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
    std::fs::write(&key, other).expect("it can be written");
    let output = place.run(&["endpoints", "test", "billing"]);
    output.failed(1, "cannot open the secrets of billing", "webhook.key_file");
    std::fs::write(&key, original).expect("it can be written");
    place.run(&["endpoints", "test", "billing"]).succeeded();
}

#[test]
fn a_key_that_other_users_can_read_is_reported() {
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
    assert!(!send().contains("readable by other users"));
    let output = place.run(&["doctor"]).succeeded();
    assert!(
        output
            .out
            .contains("opens the secrets of all enabled endpoints"),
        "{output:?}"
    );
    for mode in [0o640, 0o604] {
        let open = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&key, open).expect("it is ours");
        assert!(send().contains("readable by other users"), "{mode:o}");
        let output = place.run(&["doctor"]);
        assert!(output.out.contains("chmod 600"), "{output:?}");
    }
}

/// A permission to call this machine does not include Tenure's own listener, whatever its address
/// is.
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
        let output = place.run(&["endpoints", "test", id]).ended(1);
        assert!(output.out.contains("may not be called"), "{output:?}");
    }
}
