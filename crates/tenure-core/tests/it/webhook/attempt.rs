//! Attempts: combined from journal, current lease and calls.

use std::slice::from_ref;
use std::time::Duration;

use tenure_core::webhook::{
    AttemptOutcome, CallDetail, CallErrorKind, CallRecord, Reply, Timings, attempts,
};
use tenure_core::{Fence, Hold, ItemId, OutcomeKind, PastHold, Timestamp};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn past_hold(fence: i64, word: OutcomeKind) -> PastHold {
    PastHold {
        holder: format!("sender-{fence}"),
        fence: Fence::new(fence),
        outcome: word,
        claimed_at: at(10 * fence),
        settled_at: at(10 * fence + 5),
    }
}

fn call(fence: i64, outcome: AttemptOutcome) -> CallRecord {
    CallRecord {
        delivery: ItemId::new(ItemId::FIRST_DELIVERY + 1),
        fence: Fence::new(fence),
        attempt: 1,
        began_at: at(10 * fence + 1),
        outcome,
        status: Some(200),
        error: None,
        detail: CallDetail::default(),
    }
}

fn outcomes(
    timeline: &[PastHold],
    hold: Option<&Hold>,
    calls: &[CallRecord],
) -> Vec<(i64, AttemptOutcome)> {
    let attempts = attempts(timeline, hold, calls);
    let told = attempts.iter();
    told.map(|attempt| (attempt.fence.number(), attempt.outcome))
        .collect()
}

#[test]
fn a_lease_without_a_recorded_call_is_an_attempt_if_it_may_have_led_to_one() {
    use AttemptOutcome::Unknown;
    for (word, expected) in [
        (OutcomeKind::Lapsed, vec![(1, Unknown)]),
        (OutcomeKind::Buried, vec![(1, Unknown)]),
        (OutcomeKind::Done, vec![]),
        (OutcomeKind::Retry, vec![]),
        (OutcomeKind::Dead, vec![]),
        (OutcomeKind::Release, vec![]),
    ] {
        assert_eq!(
            outcomes(&[past_hold(1, word)], None, &[]),
            expected,
            "{word:?}"
        );
    }
    let at_once = PastHold {
        settled_at: at(10),
        ..past_hold(1, OutcomeKind::Buried)
    };
    assert_eq!(outcomes(&[at_once], None, &[]), []);
    assert_eq!(outcomes(&[], None, &[]), []);
}

#[test]
fn a_call_determines_the_outcome_of_its_attempt() {
    use AttemptOutcome::{Aborted, Delivered, Failed, Superseded};
    for (word, outcome) in [
        (OutcomeKind::Done, Delivered),
        (OutcomeKind::Retry, Failed),
        (OutcomeKind::Dead, Failed),
        (OutcomeKind::Release, Aborted),
        (OutcomeKind::Lapsed, Superseded),
        (OutcomeKind::Buried, Superseded),
    ] {
        let line = past_hold(3, word);
        let made = call(3, outcome);
        let told = attempts(from_ref(&line), None, from_ref(&made));
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].outcome, outcome);
        assert_eq!(told[0].call, Some(made));
        assert_eq!(told[0].holder, line.holder);
        assert_eq!(told[0].claimed_at, line.claimed_at);
        assert_eq!(told[0].ended_at, Some(line.settled_at));
    }
}

#[test]
fn attempts_are_listed_in_the_order_of_their_claims() {
    use AttemptOutcome::{Delivered, Open, Unknown};
    let timeline = [
        past_hold(4, OutcomeKind::Lapsed),
        past_hold(2, OutcomeKind::Release),
        past_hold(3, OutcomeKind::Done),
    ];
    let hold = Hold {
        holder: "sender".into(),
        fence: Fence::new(9),
        claimed_at: at(90),
        until: at(120),
    };
    let told = outcomes(&timeline, Some(&hold), &[call(3, Delivered)]);
    assert_eq!(told, [(3, Delivered), (4, Unknown), (9, Open)]);
}

/// The journal is pruned independently; the record of a call remains.
#[test]
fn a_call_whose_hold_is_pruned_is_still_listed() {
    use AttemptOutcome::Delivered;
    let told = attempts(&[], None, &[call(3, Delivered)]);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].call, Some(call(3, Delivered)));
}

#[test]
fn the_details_of_a_reply_are_unchanged_after_a_round_trip_through_json() {
    let mut reply = Reply::error(CallErrorKind::Tls, "no handshake");
    reply.headers = vec![("a".into(), "\"'\\".into())];
    reply.body = vec![0, 255, b'x'];
    reply.is_cut = true;
    reply.peer = Some("192.0.2.7".parse().expect("an address"));
    reply.timings = Timings {
        dns: Some(Duration::from_micros(7)),
        total: Duration::MAX,
        ..Timings::default()
    };
    let detail = CallDetail::of(&reply);
    assert_eq!(detail.trouble.as_deref(), Some("tls"));
    assert_eq!(detail.body, "\u{fffd}\u{fffd}x", "NUL was replaced");
    assert_eq!((detail.dns_us, detail.total_us), (Some(7), u64::MAX));
    assert_eq!(CallDetail::from_json(&detail.to_json()), detail);
    let least = CallDetail::default();
    assert_eq!(CallDetail::from_json(&least.to_json()), least);
    assert_eq!(
        CallDetail::from_json("{"),
        least,
        "invalid JSON counts as no details"
    );
}
