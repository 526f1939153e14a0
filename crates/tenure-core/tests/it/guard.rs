//! Guards: when a token may renew or settle, when a lease may be reaped.

use std::time::Duration;

use proptest::prelude::*;
use tenure_core::{
    Boundary, Fence, Guarded, Lateness, Lease, Refusal, Timestamp, Token, WorkerId, may_reap,
    may_renew, may_settle,
};

pub(crate) fn any_token() -> impl Strategy<Value = Token> {
    // Few values, so that equal parts occur: same worker, another claim; same claim, another random
    // part.
    (0_u64..2, 0_u64..2, 0_u128..2).prop_map(|(nonce, claim, random)| {
        let worker = WorkerId::new("mailer", nonce).expect("`mailer` is a worker's name");
        Token::new(&worker, claim, random)
    })
}

/// Mostly times near zero, so that leases end near them; sometimes the extremes.
pub(crate) fn any_moment() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        8 => -3_i64..=3,
        1 => Just(i64::MIN),
        1 => Just(i64::MAX),
        1 => any::<i64>(),
    ]
    .prop_map(Timestamp::from_micros)
}

pub(crate) fn any_lease() -> impl Strategy<Value = Lease> {
    (any_token(), any::<i64>(), any_moment()).prop_map(|(token, fence, until)| Lease {
        token,
        fence: Fence::new(fence),
        claimed_at: Timestamp::from_micros(0),
        until,
    })
}

const ACCEPTED: Guarded = Guarded::Accepted(());
const LAPSED: Guarded = Guarded::Refused(Refusal::Lapsed);

proptest! {
    #[test]
    fn the_holder_renews_while_the_lease_is_live_and_not_after(
        lease in any_lease(),
        now in any_moment(),
    ) {
        let expected = if now < lease.until { ACCEPTED } else { LAPSED };
        prop_assert_eq!(may_renew(Some(&lease), &lease.token, now), expected);
    }

    #[test]
    fn lateness_decides_on_a_settle_after_the_term(lease in any_lease(), now in any_moment()) {
        let settle = |lateness| may_settle(Some(&lease), &lease.token, lateness, now);
        prop_assert_eq!(settle(Lateness::Accept), ACCEPTED);
        let expected = if now < lease.until { ACCEPTED } else { LAPSED };
        prop_assert_eq!(settle(Lateness::Refuse), expected);
    }

    #[test]
    fn without_a_lease_every_token_is_refused(token in any_token(), now in any_moment()) {
        let lost = Guarded::Refused(Refusal::Lost);
        prop_assert_eq!(may_renew(None, &token, now), lost);
        for lateness in [Lateness::Accept, Lateness::Refuse] {
            let not_claimed = Guarded::Refused(Refusal::NotClaimed);
            prop_assert_eq!(may_settle(None, &token, lateness, now), not_claimed);
        }
    }

    /// A guard compares the token and not the fence, which a failover may repeat.
    #[test]
    fn a_guard_ignores_the_fence(lease in any_lease(), fence: i64, now in any_moment()) {
        let other = Lease { fence: Fence::new(fence), ..lease.clone() };
        let renew = |lease| may_renew(Some(lease), &other.token, now);
        prop_assert_eq!(renew(&lease), renew(&other));
        let settle = |lease| may_settle(Some(lease), &other.token, Lateness::Refuse, now);
        prop_assert_eq!(settle(&lease), settle(&other));
    }

    /// A lease that cannot be renewed can be reaped, now or one microsecond later: no item is
    /// stuck.
    #[test]
    fn a_lease_is_live_or_can_be_reaped(lease in any_lease(), now in any_moment()) {
        let is_live = may_renew(Some(&lease), &lease.token, now).is_accepted();
        prop_assert_eq!(is_live, !may_reap(lease.until, Boundary::Reached, now));
        let next = now.after(Duration::from_micros(1));
        let is_reaped_next = may_reap(lease.until, Boundary::Past, next);
        prop_assert!(is_live || is_reaped_next || now == next, "neither live nor reapable");
    }
}

/// The three times around the end of a term: the lease is live before it, lapsed at it, and
/// reapable after it.
///
/// Method: each guard is called at `until` − 1 µs, `until` and `until` + 1 µs.
#[test]
fn a_term_ends_at_until_for_the_holder_and_one_tick_later_for_the_reaper() {
    let worker = WorkerId::new("mailer", 1).unwrap();
    let until = Timestamp::from_micros(1_000);
    let lease = Lease {
        token: Token::new(&worker, 1, 1),
        fence: Fence::new(1),
        claimed_at: Timestamp::from_micros(0),
        until,
    };
    let tick = Duration::from_micros(1);
    // Columns: time, live, the reaper may reap, a claim may reap
    let cases = [
        (until.before(tick), true, false, false),
        (until, false, false, true),
        (until.after(tick), false, true, true),
    ];
    for (now, is_live, past, reached) in cases {
        assert_eq!(lease.is_live(now), is_live, "live at {now}");
        let strict = Lateness::Refuse;
        let guarded = if is_live { ACCEPTED } else { LAPSED };
        assert_eq!(may_renew(Some(&lease), &lease.token, now), guarded);
        assert_eq!(may_settle(Some(&lease), &lease.token, strict, now), guarded);
        assert_eq!(may_reap(until, Boundary::Past, now), past, "past at {now}");
        assert_eq!(may_reap(until, Boundary::Reached, now), reached);
    }
}

#[test]
fn every_refusal_has_a_word_and_a_sentence_of_its_own() {
    let all = [
        Refusal::Lost,
        Refusal::NotClaimed,
        Refusal::Lapsed,
        Refusal::AlreadySettled,
        Refusal::NotSettled,
        Refusal::OutOfTurn,
        Refusal::Changed,
        Refusal::NotFound,
    ];
    for (n, one) in all.iter().enumerate() {
        let refused = Guarded::<()>::Refused(*one);
        assert_eq!(
            (refused.is_accepted(), refused.refusal()),
            (false, Some(*one))
        );
        for other in &all[..n] {
            assert_ne!(one.as_str(), other.as_str());
            assert_ne!(one.to_string(), other.to_string());
        }
    }
}
