//! Views of keys: the JSON for scripts, the row of a table, all facts. Field names are stable.

use comfy_table::{Attribute, Cell, Color};
use serde::Serialize;
use tenure::lease::Record;
use tenure::operate::{KeyRecord, KeyState, Why};
use tenure::store::Timestamp;
use tenure::{Event, State};

use crate::event_view::{note, text};
use crate::output::plain;
use crate::time::{brief, relative};

/// A key in JSON. Fields of the head are null when the key has none.
#[derive(Serialize)]
pub(super) struct KeyView<'a> {
    key: &'a str,
    state: &'static str,
    /// A dead head blocks the key; also set while the key is paused.
    blocked: bool,
    /// Time at which it got this head, or was paused.
    since: Option<String>,
    /// Number of events behind the head.
    waiting: u64,
    /// `waiting` is at its maximum; there may be more.
    waiting_capped: bool,
    head: Option<i64>,
    head_state: Option<&'static str>,
    topic: Option<&'a str>,
    queue: Option<&'a str>,
    available_at: Option<String>,
    failures: Option<u32>,
    crashes: Option<u32>,
    holder: Option<&'a str>,
    until: Option<String>,
    last_error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl<'a> KeyView<'a> {
    pub(super) fn new(key: &'a KeyRecord) -> Self {
        let head = key.head.as_ref();
        let event = head.and_then(|head| head.content.event());
        let hold = head.and_then(|head| head.hold.as_ref());
        Self {
            key: &key.name,
            state: key.state.as_str(),
            blocked: key.is_blocked(),
            since: text(key.since),
            waiting: key.waiting,
            waiting_capped: is_capped(key),
            head: head.map(|head| head.id.number()),
            head_state: head.map(|head| head.state.as_str()),
            topic: event.map(Event::topic),
            queue: event.map(|event| event.queue().as_str()),
            available_at: text(head.and_then(|head| head.available_at)),
            failures: head.map(|head| head.counters.failures),
            crashes: head.map(|head| head.counters.crashes),
            holder: hold.map(|hold| hold.holder.as_str()),
            until: text(hold.map(|hold| hold.until)),
            last_error: head.and_then(|head| head.last_error.as_deref()),
            why: None,
            hint: None,
        }
    }

    /// Adds the reason why its head is not being worked on.
    pub(super) fn why(mut self, why: Option<&'a Why>) -> Self {
        self.why = why.map(|why| why.sentence.as_str());
        self.hint = why.and_then(|why| why.hint.as_deref());
        self
    }
}

/// The heading of a table of keys.
pub(super) const HEADING: [&str; 7] = [
    "KEY",
    "STATE",
    " HEAD",
    "FOR",
    " WAITING",
    " FAILURES",
    "REASON",
];

/// The row of a key.
pub(super) fn row(key: &KeyRecord, now: Timestamp) -> Vec<Cell> {
    let head = key.head.as_ref();
    let number = |number: Option<String>| Cell::new(number.unwrap_or_default());
    vec![
        Cell::new(plain(&key.name)),
        state(key, |_| "paused, blocked".to_owned()),
        number(head.map(|head| head.id.to_string())),
        number(key.since.map(|moment| brief(now.since(moment)))),
        Cell::new(waiting(key)),
        number(head.map(|head| head.counters.failures.to_string())),
        Cell::new(head.map_or_else(String::new, |head| reason(head, now))),
    ]
}

/// The facts of a key, by name.
pub(super) fn facts(key: &KeyRecord, now: Timestamp) -> Vec<Vec<Cell>> {
    let fact = |name: &str, value: String| vec![Cell::new(name), Cell::new(plain(&value))];
    let mut rows = vec![
        fact("key", key.name.clone()),
        vec![
            Cell::new("state"),
            state(key, |dead| {
                format!("paused, and blocked by dead event {}", dead.id)
            }),
        ],
    ];
    if let Some(moment) = key.since {
        let since = format!("{moment} ({})", relative(moment, now));
        rows.push(fact("since", since));
    }
    rows.push(fact("waiting", waiting(key)));
    let Some(head) = &key.head else {
        return rows;
    };
    rows.push(fact("head", format!("event {}", head.id)));
    if let Some(event) = head.content.event() {
        rows.push(fact("topic", event.topic().to_owned()));
        rows.push(fact("queue", event.queue().to_string()));
    }
    let created = relative(head.created_at, now);
    rows.push(fact("created", format!("{} ({created})", head.created_at)));
    rows.push(fact("failures", head.counters.failures.to_string()));
    rows.push(fact("crashes", head.counters.crashes.to_string()));
    if let Some(error) = &head.last_error {
        rows.push(fact("last error", error.clone()));
    }
    rows
}

/// Remark on the head: its holder, or its last failure.
fn reason(head: &Record, now: Timestamp) -> String {
    match (head.state, head.counters.crashes) {
        (State::Pending, 1..) if head.last_error.is_none() => {
            format!("lapsed {} times", head.counters.crashes)
        }
        _ => note(head, now),
    }
}

/// Number of waiting events, with a `+` if there may be more.
fn waiting(key: &KeyRecord) -> String {
    let more = if is_capped(key) { "+" } else { "" };
    format!("{}{more}", key.waiting)
}

fn is_capped(key: &KeyRecord) -> bool {
    key.waiting >= KeyRecord::WAITING_MAX
}

/// The state, coloured; `both` is the text for a key that is paused and blocked.
fn state(key: &KeyRecord, both: impl Fn(&Record) -> String) -> Cell {
    if let (KeyState::Paused, true, Some(dead)) = (key.state, key.is_blocked(), &key.head) {
        return Cell::new(both(dead)).fg(Color::Red);
    }
    let cell = Cell::new(key.state.as_str());
    match key.state {
        KeyState::Idle => cell.add_attribute(Attribute::Dim),
        KeyState::Due | KeyState::Delayed | KeyState::Paused => cell.fg(Color::Yellow),
        KeyState::Held => cell.fg(Color::Cyan),
        KeyState::Blocked => cell.fg(Color::Red),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::lease::{Content, Counters, Hold};
    use tenure::{Fence, ItemId, NewEvent};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }

    fn ago(seconds: u64) -> Timestamp {
        now().before(Duration::from_secs(seconds))
    }

    fn head() -> Record {
        let event = NewEvent::new("order.paid", &7).key("customer-7");
        Record {
            id: ItemId::new(9),
            state: State::Pending,
            content: Content::Event(event.build().unwrap()),
            counters: Counters::default(),
            created_at: ago(300),
            available_at: Some(ago(300)),
            hold: None,
            last_error: None,
            done_at: None,
            dead_at: None,
            dead_reason: None,
        }
    }

    fn key(state: KeyState, head: Option<Record>) -> KeyRecord {
        KeyRecord {
            name: "customer-7".to_owned(),
            state,
            since: Some(ago(125)),
            head,
            waiting: 3,
        }
    }

    fn held() -> Record {
        Record {
            state: State::Claimed,
            hold: Some(Hold {
                holder: "mailer-1".to_owned(),
                fence: Fence::new(4),
                claimed_at: ago(10),
                until: now().after(Duration::from_secs(20)),
            }),
            ..head()
        }
    }

    fn failed() -> Record {
        Record {
            counters: Counters {
                attempts: 3,
                failures: 3,
                ..Counters::default()
            },
            available_at: Some(now().after(Duration::from_secs(20))),
            last_error: Some("503\nBusy".to_owned()),
            ..head()
        }
    }

    #[test]
    fn a_row_shows_the_state_of_a_key_and_a_remark_on_its_head() {
        let lapsed = Record {
            counters: Counters {
                attempts: 2,
                crashes: 2,
                ..Counters::default()
            },
            ..head()
        };
        let dead = Record {
            state: State::Dead,
            dead_at: Some(ago(60)),
            dead_reason: Some("failed".to_owned()),
            ..failed()
        };
        let many = KeyRecord {
            waiting: KeyRecord::WAITING_MAX,
            ..key(KeyState::Paused, None)
        };
        for (key, expected) in [
            (
                key(KeyState::Due, Some(head())),
                "customer-7|due|9|2m 5s|3|0|",
            ),
            (
                key(KeyState::Held, Some(held())),
                "customer-7|held|9|2m 5s|3|0|mailer-1; lapses in 20s",
            ),
            (
                key(KeyState::Delayed, Some(failed())),
                "customer-7|delayed|9|2m 5s|3|3|due in 20s; 503 Busy",
            ),
            (
                key(KeyState::Due, Some(lapsed)),
                "customer-7|due|9|2m 5s|3|0|lapsed 2 times",
            ),
            (
                key(KeyState::Blocked, Some(dead.clone())),
                "customer-7|blocked|9|2m 5s|3|3|failed: 503 Busy",
            ),
            (
                key(KeyState::Paused, Some(dead)),
                "customer-7|paused, blocked|9|2m 5s|3|3|failed: 503 Busy",
            ),
            (many, "customer-7|paused||2m 5s|10000+||"),
        ] {
            let cells = row(&key, now());
            let text: Vec<String> = cells.iter().map(Cell::content).collect();
            assert_eq!(text.join("|"), expected);
        }
    }

    #[test]
    fn the_field_names_are_stable() {
        let key = key(KeyState::Held, Some(held()));
        let line = serde_json::to_string(&KeyView::new(&key)).unwrap();
        assert_eq!(
            line,
            r#"{"key":"customer-7","state":"held","blocked":false,"since":"2027-01-15T07:57:55Z","#
                .to_owned()
                + r#""waiting":3,"waiting_capped":false,"head":9,"head_state":"claimed","#
                + r#""topic":"order.paid","queue":"default","#
                + r#""available_at":"2027-01-15T07:55:00Z","failures":0,"#
                + r#""crashes":0,"holder":"mailer-1","until":"2027-01-15T08:00:20Z","#
                + r#""last_error":null}"#
        );
    }
}
