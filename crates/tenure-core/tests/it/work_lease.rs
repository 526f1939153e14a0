//! The rules of the work lease: sets of offsets compared with a plain set, refusals that change
//! nothing, names, messages. `tenure-store` tests the effects of the operations on a domain.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use tenure_core::work_lease::{
    Backlog, BacklogChange, Change, Domain, DomainView, OffsetView, Offsets, ReservationChange,
    Terminal, TerminalChange, fail, renew, replay, submit, succeed, try_acquire,
};
use tenure_core::{
    AcquireResult, DomainName, DomainRules, FailResult, Reservation, SucceedResult, Term,
    Timestamp, Token, WorkLeaseError, WorkerId,
};

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

fn name() -> DomainName {
    DomainName::new("A").unwrap()
}

fn token(number: u64) -> Token {
    Token::new(&WorkerId::new("orders", 1).unwrap(), number, 0xfeed)
}

fn reservation(offset: i64) -> Reservation {
    Reservation {
        offset,
        token: token(1),
        acquired_at: Timestamp::from_micros(5),
        retry_count: 3,
        until: Some(Timestamp::from_micros(7)),
    }
}

fn any_offset() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => -20_i64..20,
        1 => (0_i64..4).prop_map(|n| i64::MIN + n),
        1 => (0_i64..4).prop_map(|n| i64::MAX - n),
    ]
}

/// A change of a set of offsets.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Insert(i64),
    Remove(i64),
    ForgetBelow(i64),
}

fn any_turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        8 => any_offset().prop_map(Turn::Insert),
        3 => any_offset().prop_map(Turn::Remove),
        1 => any_offset().prop_map(Turn::ForgetBelow),
    ]
}

proptest! {
    #[test]
    fn ranges_of_offsets_behave_like_a_set(turns in prop::collection::vec(any_turn(), 0..120)) {
        let (mut offsets, mut plain) = (Offsets::default(), BTreeSet::new());
        for turn in turns {
            match turn {
                Turn::Insert(offset) => {
                    prop_assert_eq!(offsets.insert(offset), plain.insert(offset));
                }
                Turn::Remove(offset) => {
                    prop_assert_eq!(offsets.remove(offset), plain.remove(&offset));
                }
                Turn::ForgetBelow(offset) => {
                    offsets.forget_below(offset);
                    plain.retain(|kept| *kept >= offset);
                }
            }
            prop_assert_eq!(offsets.count(), u128::try_from(plain.len()).unwrap());
            prop_assert_eq!(offsets.is_empty(), plain.is_empty());
            let spread = offsets.ranges().flat_map(|(first, last)| first..=last);
            prop_assert!(spread.eq(plain.iter().copied()));
            let ranges: Vec<_> = offsets.ranges().collect();
            for pair in ranges.windows(2) {
                prop_assert!(pair[0].1 < pair[1].0 - 1, "two ranges touch: {:?}", ranges);
            }
        }
    }

    /// Proves: S3-008, S3-021, S3-075, S3-076
    #[test]
    fn a_backlog_keeps_the_order_of_arrival_without_duplicates(
        turns in prop::collection::vec(prop::option::of(-5_i64..40), 0..200),
    ) {
        let (mut backlog, mut plain) = (Backlog::default(), VecDeque::new());
        for turn in turns {
            if let Some(offset) = turn {
                backlog.push(offset);
                if !plain.contains(&offset) {
                    plain.push_back(offset);
                }
            } else {
                prop_assert_eq!(backlog.pop(), plain.pop_front());
            }
            prop_assert!(backlog.iter().eq(plain.iter().copied()));
            prop_assert_eq!(backlog.head(), plain.front().copied());
            let is_same = |offset| backlog.contains(offset) == plain.contains(&offset);
            prop_assert!((-5..40).all(is_same));
        }
    }
}

/// Proves: S3-014
#[test]
fn a_set_of_offsets_may_contain_the_ends_of_i64() {
    let mut offsets = Offsets::default();
    for offset in [i64::MIN, i64::MAX, i64::MAX - 1, i64::MIN + 1] {
        assert!(offsets.insert(offset));
        assert!(!offsets.insert(offset));
    }
    let ends = [(i64::MIN, i64::MIN + 1), (i64::MAX - 1, i64::MAX)];
    assert_eq!(offsets.ranges().collect::<Vec<_>>(), ends);
    assert!(offsets.remove(i64::MIN) && offsets.remove(i64::MAX));
    offsets.forget_below(i64::MAX);
    assert!(offsets.is_empty());
    offsets.insert(i64::MAX);
    offsets.forget_below(i64::MAX);
    assert!(offsets.contains(i64::MAX), "it is not below itself");
}

/// An empty backlog frees the memory of a burst.
#[test]
fn an_empty_backlog_takes_no_memory() {
    let mut backlog = Backlog::default();
    (0..10_000).for_each(|offset| backlog.push(offset));
    assert!(backlog.footprint() > 100_000);
    while backlog.pop().is_some() {}
    assert_eq!(backlog.footprint(), 0);
}

/// Proves: S3-040, S3-041, S3-049, S3-050, S3-052, S3-058, S3-059, S3-062
#[test]
fn a_decision_returns_the_exact_change() {
    let (domain, rules) = (name(), DomainRules::default());
    let idle = DomainView {
        domain: &domain,
        reservation: None,
        head: Some(1),
        waiting: 1,
        watermark: i64::MIN,
    };
    let head = OffsetView {
        offset: 1,
        terminal: None,
        is_queued: true,
    };
    let (answer, change) = try_acquire(&idle, head, &rules, NOW, &|| token(9)).unwrap();
    assert_eq!(answer, AcquireResult::Acquired(token(9)));
    let first = Reservation {
        offset: 1,
        token: token(9),
        acquired_at: NOW,
        retry_count: 0,
        until: None,
    };
    let expected = Change {
        reservation: ReservationChange::Set(first),
        backlog: BacklogChange::Pop,
        terminal: TerminalChange::Keep,
    };
    assert_eq!(change, expected);

    let current = reservation(5);
    let busy = DomainView {
        reservation: Some(&current),
        ..idle
    };
    let (answer, change) = succeed(&busy, &token(1)).unwrap();
    assert_eq!(answer, SucceedResult::NextHint(1));
    let expected = Change {
        reservation: ReservationChange::Clear,
        backlog: BacklogChange::Keep,
        terminal: TerminalChange::Add(5, Terminal::Processed),
    };
    assert_eq!(change, expected);

    let strict = DomainRules {
        max_retries: 3,
        ..rules
    };
    let (answer, change) = fail(&busy, &token(1), &strict, NOW).unwrap();
    assert_eq!(answer, FailResult::GiveUpNextHint(1));
    assert_eq!(change.terminal, TerminalChange::Add(5, Terminal::Failed));
    assert_eq!(change.reservation, ReservationChange::Clear);

    let (answer, change) = fail(&busy, &token(1), &rules, NOW).unwrap();
    assert_eq!(answer, FailResult::RetryScheduled(4));
    let kept = Reservation {
        retry_count: 4,
        ..current.clone()
    };
    assert_eq!(change.reservation, ReservationChange::Set(kept));
}

/// A token is drawn only when a reservation begins or is taken over.
#[test]
fn a_token_is_drawn_only_if_it_is_needed() {
    let domain = name();
    let current = reservation(5);
    let view = DomainView {
        domain: &domain,
        reservation: Some(&current),
        head: None,
        waiting: 0,
        watermark: 0,
    };
    let rules = DomainRules::default();
    let early = Timestamp::from_micros(6);
    for (offset, terminal) in [
        (5, None),
        (6, None),
        (7, Some(Terminal::Failed)),
        (-1, None),
    ] {
        let at = OffsetView {
            offset,
            terminal,
            is_queued: false,
        };
        for verb in [try_acquire, submit] {
            let answer = verb(&view, at, &rules, early, &|| panic!("a token was drawn"));
            assert!(answer.is_ok());
        }
    }
}

/// Rules may change during a reservation: the new term applies from the next renewal on.
#[test]
fn a_renewal_uses_the_rules_that_are_given_with_it() {
    let domain = name();
    let current = reservation(5);
    let view = DomainView {
        domain: &domain,
        reservation: Some(&current),
        head: None,
        waiting: 0,
        watermark: i64::MIN,
    };
    let term = Term::new(Duration::from_secs(2)).unwrap();
    let rules = DomainRules {
        term: Some(term),
        ..DomainRules::default()
    };
    let (until, change) = renew(&view, &token(1), &rules, NOW).unwrap();
    assert_eq!(until, Some(NOW.after(term.length())));
    assert!(!change.is_nothing());
    let early = Timestamp::from_micros(i64::MIN);
    let (until, change) = renew(&view, &token(1), &rules, early).unwrap();
    assert_eq!(until, current.until, "a renewal never shortens the term");
    assert!(change.is_nothing());
}

/// A caller without a term must not remove the end: otherwise no other caller could take the offset
/// over.
#[test]
fn a_caller_without_a_term_leaves_the_end_as_it_is() {
    let domain = name();
    let end = NOW.after(Duration::from_secs(2));
    let mut current = reservation(5);
    current.until = Some(end);
    let view = DomainView {
        domain: &domain,
        reservation: Some(&current),
        head: None,
        waiting: 0,
        watermark: i64::MIN,
    };
    let rules = DomainRules::default();
    let (until, change) = renew(&view, &token(1), &rules, NOW).unwrap();
    assert_eq!(until, Some(end));
    assert!(change.is_nothing());
    let kept = |change: Change| match change.reservation {
        ReservationChange::Set(kept) => kept.until,
        ReservationChange::Keep | ReservationChange::Clear => panic!("expected a reservation"),
    };
    let (_, change) = fail(&view, &token(1), &rules, NOW).unwrap();
    assert_eq!(kept(change), Some(end));
    let at = OffsetView {
        offset: 5,
        terminal: None,
        is_queued: false,
    };
    let (_, change) = try_acquire(&view, at, &rules, end, &|| token(2)).unwrap();
    assert_eq!(
        kept(change),
        Some(end),
        "another caller can still take over"
    );
}

/// Proves: S3-047, S3-048, S3-067, S3-068, S3-069
#[test]
fn messages_begin_as_the_contract_requires() {
    let domain = name();
    let errors = [
        (
            WorkLeaseError::TokenMismatch {
                domain: domain.clone(),
            },
            "Token mismatch",
            true,
        ),
        (
            WorkLeaseError::LeaseNotFound {
                domain: domain.clone(),
            },
            "No lease",
            true,
        ),
        (
            WorkLeaseError::BacklogOrdering {
                domain: domain.clone(),
                expected: 2,
                got: 3,
            },
            "offset 3 of the domain \"A\" is out of order; expected 2",
            false,
        ),
        (
            WorkLeaseError::BacklogFull {
                domain,
                limit: 7,
                got: 3,
            },
            "the backlog of the domain \"A\" is full: 7 offsets already wait",
            false,
        ),
    ];
    for (error, start, is_illegal_state) in errors {
        assert!(error.to_string().starts_with(start), "{error}");
        assert_eq!(error.is_illegal_state(), is_illegal_state);
    }
}

#[test]
fn the_words_of_the_answers_to_acquire_succeed_and_fail_differ() {
    let words = [
        AcquireResult::Acquired(token(1)).as_str(),
        AcquireResult::AlreadyAcquired(token(1)).as_str(),
        AcquireResult::Enqueued.as_str(),
        AcquireResult::AlreadyProcessed.as_str(),
        AcquireResult::AlreadyFailed.as_str(),
        SucceedResult::NoBacklog.as_str(),
        SucceedResult::NextHint(1).as_str(),
        FailResult::RetryScheduled(1).as_str(),
        FailResult::GiveUpNoBacklog.as_str(),
        FailResult::GiveUpNextHint(1).as_str(),
    ];
    let distinct: BTreeSet<_> = words.into_iter().collect();
    assert_eq!(distinct.len(), words.len());
    let said = format!("{:?}", AcquireResult::Acquired(token(1)));
    assert!(!said.contains("feed"), "the token was printed: {said}");
}

/// An offset that is terminal only by the watermark is in no set, so no set changes.
#[test]
fn a_replay_below_the_watermark_only_queues() {
    let domain = Domain::new(name());
    let (view, at) = domain.look(1, 10);
    let (_, change) = replay(&view, at, &DomainRules::default()).unwrap();
    let expected = Change {
        backlog: BacklogChange::Push(1),
        ..Change::default()
    };
    assert_eq!(change, expected);
}
