//! Why an event waits for another one of its key, and for which.

use super::{Facts, Why};
use crate::item::Record;
use crate::state::State;
use crate::store::{DomainRecord, DomainState};
use crate::time::{Timestamp, brief_duration};

/// Why a pending event waits for its key; `None`: its key does not hold it back.
pub(super) fn pending(record: &Record, facts: &Facts, now: Timestamp) -> Option<Why> {
    let domain = facts.domain.as_ref()?;
    let head = domain.head.as_ref();
    match (domain.state, head) {
        (DomainState::Paused, _) => Some(paused(record, domain, now)),
        (DomainState::Blocked, Some(head)) => Some(blocked(head, domain, now)),
        (_, Some(head)) if head.id != record.id && !head.state.is_terminal() => {
            Some(behind(head, domain, facts, now))
        }
        // It is the head itself, or nobody is: the head that was seen may have ended since.
        _ => None,
    }
}

/// Why an event is not placed yet: its key has no head, and a claim will make one; `None`: it is.
pub(super) fn unplaced(facts: &Facts) -> Option<Why> {
    let domain = facts.domain.as_ref()?;
    if domain.state != DomainState::Idle {
        return None;
    }
    let sentence = match domain.waiting {
        0 => return None,
        1 => "it is due, and its key has no event before it: the next claim finds it its place",
        _ => "it is due, and no event of its key has a place yet: the next claim finds them theirs",
    };
    Some(Why::new("unplaced", sentence))
}

/// The event that is worked on first, of those of its key that one lease holds together with it.
pub(super) fn held_before<'a>(record: &Record, facts: &'a Facts) -> Option<&'a Record> {
    let head = facts.domain.as_ref()?.head.as_ref()?;
    let fence = |record: &Record| record.hold.as_ref().map(|hold| hold.fence);
    (head.id != record.id && fence(head).is_some() && fence(head) == fence(record)).then_some(head)
}

/// Why a dead event is not being worked on that blocks its key.
pub(super) fn blocking(record: &Record, facts: &Facts, now: Timestamp) -> Option<Why> {
    let domain = facts.domain.as_ref()?;
    let head = domain.head.as_ref()?;
    // Also while its key is paused; one that was replayed meanwhile blocks nothing.
    if head.state != State::Dead || head.id != record.id {
        return None;
    }
    let waiting = match domain.waiting {
        0 => String::new(),
        waiting => format!(", and {} behind it", waits(waiting)),
    };
    let paused = if domain.state == DomainState::Paused {
        ", which is paused"
    } else {
        ""
    };
    let died = super::died(record, now);
    let key = &domain.key;
    let why = Why::new(
        "dead",
        format!("{died}; it blocks its key {key:?}{paused}{waiting}"),
    );
    Some(why.hint(ways_out(record, domain)))
}

fn paused(record: &Record, domain: &DomainRecord, now: Timestamp) -> Why {
    let since = domain.since.map_or_else(String::new, |moment| {
        format!(", for {}", brief_duration(now.since(moment)))
    });
    let key = &domain.key;
    let paused = format!("its key {key:?} is paused{since}");
    let resume = format!("`tenure domains resume {}`", word(key));
    match &domain.head {
        Some(head) if head.state == State::Dead => Why::new(
            "key_paused",
            format!(
                "{paused}, and blocked by dead event {}: {}",
                head.id,
                super::died(head, now)
            ),
        )
        .hint(ways_out(head, domain)),
        Some(head) if head.id != record.id && head.state == State::Claimed => Why::new(
            "key_paused",
            format!("{paused}; event {} is still held", head.id),
        )
        .hint(resume),
        _ => Why::new("key_paused", paused).hint(resume),
    }
}

fn blocked(head: &Record, domain: &DomainRecord, now: Timestamp) -> Why {
    Why::new(
        "key_blocked",
        format!(
            "event {} of its key {:?} is dead and blocks it: {}",
            head.id,
            domain.key,
            super::died(head, now)
        ),
    )
    .hint(ways_out(head, domain))
}

/// What to do about a dead head that blocks its key.
fn ways_out(dead: &Record, domain: &DomainRecord) -> String {
    let key = word(&domain.key);
    let resume = if domain.state == DomainState::Paused {
        format!("; then `tenure domains resume {key}`")
    } else {
        String::new()
    };
    format!(
        "mend the cause, then `tenure replay {}` makes it the head of its key again; {} goes on \
         without it{resume}",
        dead.id,
        skip(&key)
    )
}

/// The command that goes on without the head of a key, which is given as a shell takes it.
fn skip(key: &str) -> String {
    format!("`tenure domains skip {key} --reason WHY`")
}

fn behind(head: &Record, domain: &DomainRecord, facts: &Facts, now: Timestamp) -> Why {
    let cause = super::why(head, facts, now);
    let why = Why::new(
        "behind",
        format!(
            "it comes after event {} of its key {:?}, which is not done, because {}",
            head.id, domain.key, cause.sentence
        ),
    );
    let key = word(&domain.key);
    match (cause.code, cause.hint) {
        ("backoff", _) => why.hint(format!(
            "`tenure domains show {key}` shows where it stands; {} goes on without event {}",
            skip(&key),
            head.id
        )),
        (_, Some(hint)) => why.hint(hint),
        (_, None) => why.hint(format!("`tenure domains show {key}` shows where it stands")),
    }
}

/// `1 waits`, `7 wait`, `10000 or more wait`.
fn waits(number: u64) -> String {
    match number {
        1 => "1 waits".to_owned(),
        number if number >= DomainRecord::WAITING_MAX => format!("{number} or more wait"),
        number => format!("{number} wait"),
    }
}

/// A key as a shell takes it: quoted where it must be.
fn word(key: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:@+,%=".contains(c);
    if key.chars().all(is_plain) {
        return key.to_owned();
    }
    format!("'{}'", key.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_quoted_for_the_shell_where_it_must_be() {
        for (key, expected) in [
            ("customer-7", "customer-7"),
            ("eu/order:7@shop", "eu/order:7@shop"),
            ("straße-7", "straße-7"),
            ("a b", "'a b'"),
            ("a'b", r"'a'\''b'"),
            ("$(reboot)", "'$(reboot)'"),
            ("a`b", "'a`b'"),
        ] {
            assert_eq!(word(key), expected);
        }
    }

    #[test]
    fn what_waits_is_counted_up_to_the_most() {
        assert_eq!(waits(1), "1 waits");
        assert_eq!(waits(9_999), "9999 wait");
        assert_eq!(waits(10_000), "10000 or more wait");
    }
}
