//! The rules of `LeaseStore` (law 1 to law 9), as far as pure functions decide them. The model and
//! the stores' conformance suite show that stores obey them.

use proptest::prelude::*;
use tenure_core::store::{Rest, Settle, StoreErrorKind};
use tenure_core::{
    Boundary, Cause, Fence, Guarded, ItemId, Lateness, Outcome, Refusal, State, TRANSITIONS, Token,
    may_reap, may_renew, may_settle,
};

use crate::guard::{any_lease, any_moment, any_token};

proptest! {
    /// Law 2: a token is never issued twice; a fence only rises.
    #[test]
    fn tokens_are_equal_only_when_issued_for_the_same_claim(
        one in (any_name(), any::<u64>(), any::<u64>(), any::<u128>()),
        other in (any_name(), any::<u64>(), any::<u64>(), any::<u128>()),
    ) {
        prop_assert_eq!(token_of(&one) == token_of(&other), one == other);
        prop_assert_eq!(token_of(&one), token_of(&one));
    }

    #[test]
    fn fences_are_ordered_as_their_numbers(one: i64, other: i64) {
        prop_assert_eq!(Fence::new(one).cmp(&Fence::new(other)), one.cmp(&other));
        prop_assert_eq!(Fence::new(one).number(), one);
    }

    /// Law 3: renew and settle with any token but the current one are refused.
    #[test]
    fn any_token_but_the_current_one_is_refused(
        lease in any_lease(),
        token in any_token(),
        now in any_moment(),
        strict: bool,
    ) {
        prop_assume!(lease.token != token);
        let lateness = if strict { Lateness::Refuse } else { Lateness::Accept };
        let lost = Guarded::Refused(Refusal::Lost);
        prop_assert_eq!(may_renew(Some(&lease), &token, now), lost);
        prop_assert_eq!(may_settle(Some(&lease), &token, lateness, now), lost);
    }

    /// Law 5: a reap never ends a live lease.
    #[test]
    fn a_live_lease_is_never_reaped(lease in any_lease(), now in any_moment()) {
        prop_assume!(lease.is_live(now));
        prop_assert!(!may_reap(lease.until, Boundary::Past, now));
        prop_assert!(!may_reap(lease.until, Boundary::Reached, now));
    }

    /// Law 4: done and dead are final; only a replay leaves them. The test follows the table of
    /// transitions.
    #[test]
    fn only_a_replay_leaves_done_and_dead(
        choices in prop::collection::vec(any::<prop::sample::Index>(), 0..100),
    ) {
        let mut state = State::Pending;
        for choice in choices {
            let ways: Vec<_> = TRANSITIONS.iter().filter(|(from, _, _)| *from == state).collect();
            let (_, cause, next) = ways[choice.index(ways.len())];
            prop_assert_eq!(state.is_terminal(), *cause == Cause::Replay);
            prop_assert!(!state.is_terminal() || *next == State::Pending);
            state = *next;
        }
    }

    /// A settle that names an item twice is refused as a whole; any other passes.
    #[test]
    fn a_settle_names_each_item_once(ids in prop::collection::vec(0_i64..20, 0..12)) {
        let token = token_of(&("w".to_owned(), 0, 0, 0));
        let mut settle = Settle::new(token).rest(Rest::Release);
        for id in &ids {
            settle = settle.item(ItemId::new(*id), Outcome::RELEASE);
        }
        let first_repeat = ids.iter().enumerate().find(|(n, id)| ids[..*n].contains(id));
        match (settle.check(), first_repeat) {
            (Ok(()), None) => {}
            (Err(error), Some((_, id))) => {
                prop_assert_eq!(error.kind(), StoreErrorKind::Invalid);
                prop_assert_eq!(error.item(), Some(ItemId::new(*id)));
                prop_assert!(!error.is_transient());
            }
            (answer, repeat) => prop_assert!(false, "{answer:?} for {repeat:?}"),
        }
    }
}

/// Law 6: only the six transitions exist; each of the other ten pairs is refused.
///
/// Proves: S4-003, S4-004, S4-005, S4-006, S4-007, S4-008, S4-009
#[test]
fn only_the_six_transitions_exist() {
    let allowed = [
        (State::Pending, State::Claimed),
        (State::Claimed, State::Done),
        (State::Claimed, State::Pending),
        (State::Claimed, State::Dead),
        (State::Done, State::Pending),
        (State::Dead, State::Pending),
    ];
    let mut refused = 0;
    for from in State::ALL {
        for to in State::ALL {
            let is_allowed = allowed.contains(&(from, to));
            assert_eq!(from.may_become(to), is_allowed, "{from} to {to}");
            refused += u32::from(!is_allowed);
        }
    }
    assert_eq!((State::ALL.len(), TRANSITIONS.len(), refused), (4, 6, 10));
}

/// Proves: S4-044
#[test]
fn done_and_dead_are_the_terminal_states() {
    let terminal = State::ALL.into_iter().filter(|state| state.is_terminal());
    assert_eq!(terminal.collect::<Vec<_>>(), [State::Done, State::Dead]);
}

fn any_name() -> impl Strategy<Value = String> {
    // Few letters, so that equal names occur.
    "[a.0-]{1,3}"
}

fn token_of((name, nonce, claim, random): &(String, u64, u64, u128)) -> Token {
    let worker = tenure_core::WorkerId::new(name, *nonce).expect("the characters are valid");
    Token::new(&worker, *claim, *random)
}
