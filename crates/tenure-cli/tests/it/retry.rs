//! `tenure retry` makes what waits for its next attempt due, and says why it leaves the rest.

use std::time::Duration;

use tenure::Outcome;

use crate::program::{Place, everywhere, sqlite};
use crate::receiver::Receiver;

fn failed() -> Outcome {
    Outcome::Retry {
        after: Duration::from_hours(1),
        error: "503".to_owned(),
    }
}

fn code(place: &Place, id: &str) -> String {
    let output = place.run(&["why", id, "--json"]).succeeded();
    output.field("code").trim_matches('"').to_owned()
}

#[tokio::test]
async fn items_are_retried_by_id_and_each_other_answer_has_its_reason() {
    for place in everywhere().await {
        let done = place.enqueue("a");
        place.done().await;
        let waiting = place.enqueue("a");
        place.settled(failed()).await;
        let head = place.enqueue_keyed("customer-7");
        place.settled(failed()).await;
        let behind = place.enqueue_keyed("customer-7");
        let due = place.enqueue("a");

        assert_eq!(code(&place, &waiting), "backoff");
        let why = place.run(&["why", &waiting]).succeeded();
        let hint = format!("`tenure retry {waiting}` tries it now");
        assert!(why.err.contains(&hint), "{why:?}");
        let args = ["retry", &waiting, &done, &behind, "--dry-run"];
        let output = place.run(&args).succeeded();
        assert_eq!(output.out, "1 of 3 would be made due\n");
        assert_eq!(code(&place, &waiting), "backoff");

        let output = place
            .run(&["retry", &waiting, &done, &behind, &due, "99"])
            .ended(4);
        let expected = format!(
            "made due {waiting}\nnot changed {done}: it is done; `tenure replay {done}` repeats \
             it\nnot changed {behind}: it waits behind {head}, the head of its key customer-7\n\
             not changed {due}: it is due already\nnot changed 99: there is no such item\n"
        );
        assert_eq!(output.out, expected);
        assert_eq!(code(&place, &waiting), "no_worker");
        let output = place.run(&["show", &waiting, "--json"]).succeeded();
        let shown = &output.objects()[0];
        assert_eq!(shown["failures"], 1, "{shown}");
        let holder = shown["timeline"][1]["holder"].as_str().expect("a holder");
        assert!(holder.starts_with("operator-"), "{holder}");

        let output = place
            .run(&["retry", "--key", "customer-7", "--json"])
            .succeeded();
        let expected = format!("{{\"id\":{head},\"accepted\":true,\"refused\":null}}\n");
        assert_eq!(output.out, expected);
        place.run(&["retry", "--key", "nosuch"]).ended(3);
    }
}

#[tokio::test]
async fn a_selection_by_topic_is_retried_and_delayed_events_stay() {
    for place in everywhere().await {
        for topic in ["order.paid", "order.paid", "mail.sent"] {
            place.enqueue(topic);
        }
        place.settled(failed()).await;
        let delayed = ["enqueue", "order.paid", "1", "--delay", "1h", "--json"];
        let delayed = place.run(&delayed).succeeded().field("id");
        let args = ["retry", "--topic", "order.paid"];
        let output = place
            .run(&[&args[..], &["--dry-run", "--json"]].concat())
            .succeeded();
        assert_eq!(output.out, "{\"would_retry\":2}\n");
        let output = place.run(&args).succeeded();
        assert_eq!(output.out, "2 events made due\n");
        let output = place.run(&[&args[..], &["--json"]].concat()).ended(3);
        assert_eq!(output.out, "{\"retried\":0}\n");
        let claimed = place.tenure().await.claim(10).await.expect("claim");
        assert_eq!(claimed.expect("two events").items.len(), 2);
        assert_eq!(code(&place, &delayed), "delayed");
        let output = place.run(&["retry", &delayed]).succeeded();
        assert_eq!(output.out, format!("made due {delayed}\n"));
    }
}

#[tokio::test]
async fn the_deliveries_of_an_endpoint_are_retried_and_enable_offers_it() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[503, 200, 503, 200]);
        receiver.allow(&place);
        let url = receiver.url();
        let add = ["endpoints", "add", &url, "--id", "billing"];
        place.run(&add).succeeded();
        for command in [
            &["retry", "--endpoint", "billing"][..],
            &["endpoints", "enable", "billing", "--retry"],
        ] {
            place.enqueue("order.paid");
            place.run(&["work", "--drain"]).succeeded();
            receiver.next();
            let output = place.run(&["endpoints", "enable", "billing"]).succeeded();
            let offer = "1 delivery to be retried later: `tenure retry --endpoint billing`";
            assert!(output.err.contains(offer), "{output:?}");
            let output = place.run(command).succeeded();
            let said = format!("{}{}", output.out, output.err);
            assert!(said.contains("1 delivery made due"), "{output:?}");
            place.run(&["work", "--drain"]).succeeded();
            receiver.next();
        }
        let output = place.run(&["deliveries", "--json"]).succeeded();
        assert_eq!(output.column("state"), ["\"done\"", "\"done\""]);
        place.run(&["retry", "--endpoint", "nosuch"]).ended(3);
    }
}

#[test]
fn a_retry_names_something() {
    let output = sqlite().run(&["retry"]).ended(2);
    assert!(output.err.contains("--topic"), "{output:?}");
    let output = sqlite().run(&["retry", "1", "--topic", "a"]).ended(2);
    assert!(output.err.contains("cannot be used with"), "{output:?}");
}
