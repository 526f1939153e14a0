//! Explanation of why an event waits for another one of its key.

use super::{Facts, Why};
use crate::item::Record;
use crate::state::State;
use crate::store::{KeyRecord, KeyState};
use crate::time::{Timestamp, brief_duration};

/// Explains a pending event that its key holds back; `None` if the key does not hold it back.
pub(super) fn pending(record: &Record, facts: &Facts, now: Timestamp) -> Option<Why> {
    let key = facts.key.as_ref()?;
    let head = key.head.as_ref();
    match (key.state, head) {
        (KeyState::Paused, _) => Some(paused(record, key, now)),
        (KeyState::Blocked, Some(head)) => Some(blocked(head, key, now)),
        (_, Some(head)) if head.id != record.id && !head.state.is_terminal() => {
            Some(behind(head, key, facts, now))
        }
        // The event is the head itself, or the head was settled after it was read.
        _ => None,
    }
}

/// Explains a key without a head, to which the next claim gives one; `None` if it has a head.
pub(super) fn not_promoted(facts: &Facts) -> Option<Why> {
    let key = facts.key.as_ref()?;
    if key.state != KeyState::Idle {
        return None;
    }
    let sentence = match key.waiting {
        0 => return None,
        1 => "it is due and the first of its key: the next claim makes it the head",
        _ => {
            "it is due, and its key has no head yet: the next claim makes its first event the head"
        }
    };
    Some(Why::new("not_promoted", sentence))
}

/// The event of the same key that is worked on first, if one lease holds both.
pub(super) fn held_before<'a>(record: &Record, facts: &'a Facts) -> Option<&'a Record> {
    let head = facts.key.as_ref()?.head.as_ref()?;
    let fence = |record: &Record| record.hold.as_ref().map(|hold| hold.fence);
    (head.id != record.id && fence(head).is_some() && fence(head) == fence(record)).then_some(head)
}

/// Explains a dead event that blocks its key.
pub(super) fn blocking(record: &Record, facts: &Facts, now: Timestamp) -> Option<Why> {
    let key = facts.key.as_ref()?;
    let head = key.head.as_ref()?;
    // This also applies while the key is paused. A replayed event blocks nothing.
    if head.state != State::Dead || head.id != record.id {
        return None;
    }
    let waiting = match key.waiting {
        0 => String::new(),
        waiting => format!(", and {} behind it", waits(waiting)),
    };
    let paused = if key.state == KeyState::Paused {
        ", which is paused"
    } else {
        ""
    };
    let died = super::died(record, now);
    let name = &key.name;
    let why = Why::new(
        "dead",
        format!("{died}; it blocks its key {name:?}{paused}{waiting}"),
    );
    Some(why.hint(ways_out(record, key)))
}

fn paused(record: &Record, key: &KeyRecord, now: Timestamp) -> Why {
    let since = key.since.map_or_else(String::new, |moment| {
        format!(", for {}", brief_duration(now.since(moment)))
    });
    let name = &key.name;
    let paused = format!("its key {name:?} is paused{since}");
    let resume = format!("`tenure keys resume {}`", quoted(name));
    match &key.head {
        Some(head) if head.state == State::Dead => Why::new(
            "key_paused",
            format!(
                "{paused}, and blocked by dead event {}: {}",
                head.id,
                super::died(head, now)
            ),
        )
        .hint(ways_out(head, key)),
        Some(head) if head.id != record.id && head.state == State::Claimed => Why::new(
            "key_paused",
            format!("{paused}; event {} is still held", head.id),
        )
        .hint(resume),
        _ => Why::new("key_paused", paused).hint(resume),
    }
}

fn blocked(head: &Record, key: &KeyRecord, now: Timestamp) -> Why {
    Why::new(
        "key_blocked",
        format!(
            "event {} of its key {:?} is dead and blocks it: {}",
            head.id,
            key.name,
            super::died(head, now)
        ),
    )
    .hint(ways_out(head, key))
}

/// Advice for a dead head that blocks its key.
fn ways_out(dead: &Record, key: &KeyRecord) -> String {
    let name = quoted(&key.name);
    let resume = if key.state == KeyState::Paused {
        format!("; then `tenure keys resume {name}`")
    } else {
        String::new()
    };
    format!(
        "fix the cause, then `tenure replay {}` makes it the head of its key again; {} \
         skips it{resume}",
        dead.id,
        skip(&name)
    )
}

/// Command that skips the head of a key; `name` is quoted for a shell.
fn skip(name: &str) -> String {
    format!("`tenure keys skip {name} --reason WHY`")
}

fn behind(head: &Record, key: &KeyRecord, facts: &Facts, now: Timestamp) -> Why {
    let cause = super::why(head, facts, now);
    let why = Why::new(
        "behind",
        format!(
            "it comes after event {} of its key {:?}, which is not done, because {}",
            head.id, key.name, cause.sentence
        ),
    );
    let name = quoted(&key.name);
    match (cause.code, cause.hint) {
        ("backoff", None) => why.hint(format!(
            "`tenure keys show {name}` shows its state; {} skips event {}",
            skip(&name),
            head.id
        )),
        (_, Some(hint)) => why.hint(hint),
        (_, None) => why.hint(format!("`tenure keys show {name}` shows its state")),
    }
}

/// Adds a warning to the explanation of an event that waits for its retry: it has been the head of
/// its key for long, and other events wait behind it.
pub(super) fn with_warning(record: &Record, facts: &Facts, mut why: Why, now: Timestamp) -> Why {
    let is_head = |key: &&KeyRecord| key.head.as_ref().is_some_and(|head| head.id == record.id);
    let key = facts.key.as_ref().filter(is_head);
    let Some((key, age)) = key.and_then(|key| Some((key, key.retried_long(now)?))) else {
        return why;
    };
    let age = brief_duration(age);
    let waits = waits(key.waiting);
    let sentence = &why.sentence;
    why.sentence =
        format!("{sentence}; it has been the head of its key for {age}, and {waits} behind it");
    why.hint(format!(
        "{} continues the key without it; `tenure queues add {} --max-retries N` gives up sooner",
        skip(&quoted(&key.name)),
        super::queue_of(record)
    ))
}

/// `1 waits`, `7 wait`, `10000 or more wait`.
fn waits(number: u64) -> String {
    match number {
        1 => "1 waits".to_owned(),
        number if number >= KeyRecord::WAITING_MAX => format!("{number} or more wait"),
        number => format!("{number} wait"),
    }
}

/// Quotes a key for a shell, if needed.
fn quoted(key: &str) -> String {
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
    fn a_key_is_quoted_for_the_shell_if_needed() {
        for (key, expected) in [
            ("customer-7", "customer-7"),
            ("eu/order:7@shop", "eu/order:7@shop"),
            ("straße-7", "straße-7"),
            ("a b", "'a b'"),
            ("a'b", r"'a'\''b'"),
            ("$(reboot)", "'$(reboot)'"),
            ("a`b", "'a`b'"),
        ] {
            assert_eq!(quoted(key), expected);
        }
    }

    #[test]
    fn waiting_events_are_counted_up_to_the_maximum() {
        assert_eq!(waits(1), "1 waits");
        assert_eq!(waits(9_999), "9999 wait");
        assert_eq!(waits(10_000), "10000 or more wait");
    }
}
