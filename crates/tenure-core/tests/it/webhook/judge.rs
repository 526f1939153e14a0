//! Meaning of a reply: a table of statuses, and the requests of a receiver.

use std::time::Duration;

use tenure_core::webhook::{
    CallErrorKind, CallVerdict, Directive, Disabled, EndpointSettings, OnGone, Reply, judge,
};
use tenure_core::{Outcome, OutcomeKind, reason};

fn rules() -> EndpointSettings {
    EndpointSettings::new("https://example.com", Vec::new())
}

/// Returns the verdict on the first failure, without jitter.
fn verdict(reply: &Reply) -> CallVerdict {
    judge(&rules(), reply, 0, 0.5)
}

fn after(seconds: u64, status: u16) -> Reply {
    Reply {
        retry_after: Some(Duration::from_secs(seconds)),
        ..Reply::status(status)
    }
}

fn wait(verdict: &CallVerdict) -> u64 {
    let Outcome::Retry { after, .. } = &verdict.outcome else {
        panic!("expected a retry, not {:?}", verdict.outcome);
    };
    after.as_secs()
}

fn dead_by(verdict: &CallVerdict) -> &str {
    let Outcome::Dead { reason, .. } = &verdict.outcome else {
        panic!("expected dead, not {:?}", verdict.outcome);
    };
    reason
}

#[test]
fn only_statuses_from_200_to_299_are_a_success() {
    for status in 100..=599 {
        let verdict = verdict(&Reply::status(status));
        let is_success = (200..=299).contains(&status);
        assert_eq!(verdict.is_success, Some(is_success), "{status}");
        assert_eq!(verdict.outcome == Outcome::Done, is_success, "{status}");
        let is_gone = status == 410;
        assert_eq!(verdict.disable.is_some(), is_gone, "{status}");
        if !is_success && !is_gone {
            assert_eq!(wait(&verdict), 5, "{status} is retried");
        }
        let pauses = (status == 429).then_some(Duration::from_mins(1));
        assert_eq!(verdict.pause, pauses, "{status}");
    }
}

#[test]
fn the_error_of_a_redirect_has_advice() {
    for status in [301, 302, 307, 308] {
        let Outcome::Retry { error, .. } = verdict(&Reply::status(status)).outcome else {
            panic!("a redirect is a failure");
        };
        assert!(error.contains(&status.to_string()) && error.contains("update the address"));
    }
}

#[test]
fn status_410_disables_the_endpoint_and_the_delivery_dies_or_waits() {
    let gone = verdict(&Reply::status(410));
    assert_eq!(dead_by(&gone), reason::GONE);
    assert_eq!(gone.disable, Some(Disabled::Gone));
    assert_eq!(gone.is_success, Some(false));
    let keep = EndpointSettings {
        on_gone: OnGone::Keep,
        ..rules()
    };
    let waiting = judge(&keep, &Reply::status(410), 0, 0.5);
    assert_eq!(wait(&waiting), 5);
    assert_eq!(waiting.disable, Some(Disabled::Gone));
}

#[test]
fn status_429_and_a_503_with_retry_after_pause_the_endpoint() {
    for (reply, pause, retry) in [
        (Reply::status(429), Some(60), 5),
        (after(30, 429), Some(30), 30),
        (after(2, 429), Some(2), 5),
        (Reply::status(503), None, 5),
        (after(30, 503), Some(30), 30),
        // The maximum is six hours.
        (after(100_000, 503), Some(21_600), 21_600),
        (after(u64::MAX, 429), Some(21_600), 21_600),
    ] {
        let verdict = verdict(&reply);
        assert_eq!(verdict.pause, pause.map(Duration::from_secs), "{reply:?}");
        assert_eq!(wait(&verdict), retry, "{reply:?}");
    }
}

/// In other replies a requested delay applies only to the delivery itself.
#[test]
fn every_failed_reply_may_request_a_delay() {
    for status in [301, 400, 408, 425, 500, 502, 504] {
        let verdict = verdict(&after(90, status));
        assert_eq!((wait(&verdict), verdict.pause), (90, None), "{status}");
        assert_eq!(wait(&judge(&rules(), &after(1, status), 0, 0.5)), 5);
    }
    assert_eq!(verdict(&after(90, 200)).outcome, Outcome::Done);
}

#[test]
fn the_statuses_in_no_retry_are_final() {
    let strict = EndpointSettings {
        no_retry: vec![400, 404, 503],
        ..rules()
    };
    for status in [400, 404, 503] {
        let verdict = judge(&strict, &after(30, status), 0, 0.5);
        assert_eq!(dead_by(&verdict), reason::REJECTED);
        assert_eq!(verdict.is_success, Some(false));
        assert_eq!(verdict.disable, None);
    }
    assert_eq!(wait(&judge(&strict, &Reply::status(422), 0, 0.5)), 5);
}

#[test]
fn a_busy_endpoint_is_paused_even_if_its_answer_is_final() {
    let strict = EndpointSettings {
        no_retry: vec![429, 503],
        ..rules()
    };
    for status in [429, 503] {
        let verdict = judge(&strict, &after(30, status), 0, 0.5);
        assert_eq!(dead_by(&verdict), reason::REJECTED);
        assert_eq!(verdict.pause, Some(Duration::from_secs(30)), "{status}");
    }
}

#[test]
fn a_delivery_is_dead_at_the_end_of_its_schedule() {
    for failures in 0..9 {
        let outcome = judge(&rules(), &Reply::status(500), failures, 0.5).outcome;
        assert_eq!(outcome.kind(), OutcomeKind::Retry);
    }
    for reply in [
        Reply::status(500),
        after(60, 503),
        Reply::error(CallErrorKind::Timeout, "it took too long"),
    ] {
        let verdict = judge(&rules(), &reply, 9, 0.5);
        assert_eq!(dead_by(&verdict), reason::FAILED);
    }
    let done = judge(&rules(), &Reply::status(200), 9, 0.5);
    assert_eq!(done.outcome, Outcome::Done, "the last attempt counts");
}

#[test]
fn a_missing_response_counts_against_the_endpoint_unless_the_request_was_unsendable() {
    use CallErrorKind::{Broken, Connect, Dns, Forbidden, Timeout, Tls, Unsendable};
    for kind in [Forbidden, Dns, Connect, Tls, Timeout, Broken, Unsendable] {
        let verdict = verdict(&Reply::error(kind, "no luck"));
        let blamed = (kind != Unsendable).then_some(false);
        assert_eq!(verdict.is_success, blamed, "{kind:?}");
        let Outcome::Retry { error, .. } = verdict.outcome else {
            panic!("expected a retry");
        };
        assert_eq!(error, "no luck");
    }
}

#[test]
fn a_receiver_may_refuse_this_message_or_all_messages() {
    let with = |directive, status| Reply {
        directive: Some(directive),
        ..Reply::status(status)
    };
    let aborted = verdict(&with(Directive::AbortMessage, 500));
    assert_eq!(dead_by(&aborted), reason::ABORTED);
    assert_eq!((aborted.disable, aborted.is_success), (None, Some(false)));
    let taken = verdict(&with(Directive::AbortMessage, 200));
    assert_eq!(taken.outcome, Outcome::Done, "the receiver has it already");
    for status in [200, 500] {
        let off = verdict(&with(Directive::Disable, status));
        assert_eq!(off.disable, Some(Disabled::Requested), "{status}");
        assert_eq!(off.outcome == Outcome::Done, status == 200);
    }
    let gone = verdict(&with(Directive::Disable, 410));
    assert_eq!(gone.disable, Some(Disabled::Gone), "gone takes precedence");
}
