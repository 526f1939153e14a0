//! No output contains a planted secret or header value, and only the commands that print an event
//! show its payload. The other tests of webhooks also search all logs and outputs for them.

use tenure::webhook::AttemptOutcome::{Delivered, Failed};
use tenure::webhook::verify::Verified;

use super::receiver::Answer;
use super::site::Site;
use super::table::address;
use super::{HEADER, SECRET};
use crate::serve::get;

/// Answers the first call of a delivery with 500, the second with 302 and all others with 200.
fn answers(_endpoint: &str, _call: &Verified, before: usize) -> Answer {
    Answer::Status([500, 302].get(before).copied().unwrap_or(200))
}

/// Proves: S2-053, S2-062
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_output_about_webhooks_contains_a_secret() {
    Site::everywhere(answers, async |site| {
        site.add("billing", &["--schedule", "1s,1s", "--topics", "order"]);
        let mut server = site.world.crew.spawn(&["serve", "--listen", "127.0.0.1:0"]);
        assert!(site.world.crew.is_ready(&mut server).await);
        let event = site.enqueue("order").to_string();
        let delivery = site.delivery().await;
        site.attempted(delivery, &[Failed, Failed, Delivered]).await;
        let id = delivery.to_string();

        for args in [
            &["endpoints", "list"][..],
            &["endpoints", "show", "billing"],
            &["endpoints", "test", "billing"],
            &["deliveries", "list"],
            &["deliveries", "show", &id],
            &["show", &id],
            &["why", &id],
            &["why", &event],
            &["stats"],
            &["workers"],
            &["doctor"],
        ] {
            site.run(args);
            let said = site.run(&[args, &["--json"]].concat());
            assert!(!said.out.is_empty(), "{args:?}: {said:?}");
        }
        site.run(&["events"]);
        refused(&site);

        let address = address(&server).await;
        for path in ["/metrics", "/v1/stats", "/health/ready"] {
            let (status, text) = get(address, path);
            assert_eq!(status, 200, "{path}");
            assert!(!text.to_lowercase().contains("canary"), "{path}: {text}");
        }
        site.keeps_secrets();

        // The commands that print the event include its payload.
        for args in [&["show", &event, "--json"][..], &["events", "--json"]] {
            let shown = site.world.place.run(args).succeeded();
            assert!(shown.out.contains("canary-payload"), "{args:?}");
            assert!(!shown.out.contains(HEADER.1), "{args:?}");
        }
    })
    .await;
}

/// Runs commands with invalid values; their errors must not repeat the value, which may be secret.
fn refused(site: &Site) {
    let url = format!("http://{}/other", site.receiver.address);
    let named = format!("http://user:{}@{}/other", HEADER.1, site.receiver.address);
    let bare = SECRET.trim_start_matches("whsec_");
    let header = format!("{}: x={}\r\n", HEADER.0, HEADER.1);
    for more in [
        &[named.as_str()][..],
        &[&url, "--secret", bare],
        &[&url, "--header", HEADER.1],
        &[&url, "--header", &header],
        &[&url, "--id", "billing", "--secret", SECRET],
    ] {
        let said = site.run(&[&["endpoints", "add"], more].concat());
        assert_ne!(said.code, Some(0), "{more:?}: {said:?}");
    }
}
