//! A key as the program shows it: the JSON that scripts read, its row in a table, its facts. The
//! field names are stable.

use comfy_table::{Attribute, Cell, Color};
use serde::Serialize;
use tenure::{DomainRecord, DomainState, Event, Record, State, Timestamp, Why};

use crate::output::plain;
use crate::record::{note, text};
use crate::time::{brief, relative};

/// A key, in JSON. What is said of its head is null when it has none.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    key: &'a str,
    state: &'static str,
    /// Whether a dead head blocks it, also while it is paused.
    blocked: bool,
    /// Since when it has had this head, or has been paused.
    since: Option<String>,
    /// How many wait behind the head.
    waiting: u64,
    /// Whether only so many were counted, and there may be more.
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

impl<'a> Shown<'a> {
    pub(super) fn new(domain: &'a DomainRecord) -> Self {
        let head = domain.head.as_ref();
        let event = head.and_then(|head| head.content.event());
        let hold = head.and_then(|head| head.hold.as_ref());
        Self {
            key: &domain.key,
            state: domain.state.as_str(),
            blocked: domain.is_blocked(),
            since: text(domain.since),
            waiting: domain.waiting,
            waiting_capped: is_capped(domain),
            head: head.map(|head| head.id.number()),
            head_state: head.map(|head| head.state.as_str()),
            topic: event.map(Event::topic),
            queue: event.map(|event| event.queue_name().as_str()),
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

    /// With the reason why its head is not done.
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
pub(super) fn row(domain: &DomainRecord, now: Timestamp) -> Vec<Cell> {
    let head = domain.head.as_ref();
    let number = |number: Option<String>| Cell::new(number.unwrap_or_default());
    vec![
        Cell::new(plain(&domain.key)),
        state(domain, |_| "paused, blocked".to_owned()),
        number(head.map(|head| head.id.to_string())),
        number(domain.since.map(|moment| brief(now.since(moment)))),
        Cell::new(waiting(domain)),
        number(head.map(|head| head.counters.failures.to_string())),
        Cell::new(head.map_or_else(String::new, |head| reason(head, now))),
    ]
}

/// What is known of a key, by name.
pub(super) fn facts(domain: &DomainRecord, now: Timestamp) -> Vec<Vec<Cell>> {
    let fact = |name: &str, value: String| vec![Cell::new(name), Cell::new(plain(&value))];
    let mut rows = vec![
        fact("key", domain.key.clone()),
        vec![
            Cell::new("state"),
            state(domain, |dead| {
                format!("paused, and blocked by dead event {}", dead.id)
            }),
        ],
    ];
    if let Some(moment) = domain.since {
        let since = format!("{moment} ({})", relative(moment, now));
        rows.push(fact("since", since));
    }
    rows.push(fact("waiting", waiting(domain)));
    let Some(head) = &domain.head else {
        return rows;
    };
    rows.push(fact("head", format!("event {}", head.id)));
    if let Some(event) = head.content.event() {
        rows.push(fact("topic", event.topic().to_owned()));
        rows.push(fact("queue", event.queue_name().to_string()));
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

/// What its head waits for: who holds it, or what went wrong with it last.
fn reason(head: &Record, now: Timestamp) -> String {
    match (head.state, head.counters.crashes) {
        (State::Pending, 1..) if head.last_error.is_none() => {
            format!("lapsed {} times", head.counters.crashes)
        }
        _ => note(head, now),
    }
}

/// How many wait; more than are counted have a `+`.
fn waiting(domain: &DomainRecord) -> String {
    let more = if is_capped(domain) { "+" } else { "" };
    format!("{}{more}", domain.waiting)
}

fn is_capped(domain: &DomainRecord) -> bool {
    domain.waiting >= DomainRecord::WAITING_MAX
}

/// Where a key stands, in its colour; `both` says it of one that is paused and blocked.
fn state(domain: &DomainRecord, both: impl Fn(&Record) -> String) -> Cell {
    if let (DomainState::Paused, true, Some(dead)) =
        (domain.state, domain.is_blocked(), &domain.head)
    {
        return Cell::new(both(dead)).fg(Color::Red);
    }
    let cell = Cell::new(domain.state.as_str());
    match domain.state {
        DomainState::Idle => cell.add_attribute(Attribute::Dim),
        DomainState::Due | DomainState::Delayed | DomainState::Paused => cell.fg(Color::Yellow),
        DomainState::Held => cell.fg(Color::Cyan),
        DomainState::Blocked => cell.fg(Color::Red),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::{Content, Counters, Fence, Hold, ItemId};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }

    fn ago(seconds: u64) -> Timestamp {
        now().before(Duration::from_secs(seconds))
    }

    fn head() -> Record {
        let event = Event::new("order.paid", &7).unwrap();
        Record {
            id: ItemId::new(9),
            state: State::Pending,
            content: Content::Event(event.key("customer-7").unwrap()),
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

    fn domain(state: DomainState, head: Option<Record>) -> DomainRecord {
        DomainRecord {
            key: "customer-7".to_owned(),
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
    fn a_row_says_where_a_key_stands_and_what_its_head_waits_for() {
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
        let many = DomainRecord {
            waiting: DomainRecord::WAITING_MAX,
            ..domain(DomainState::Paused, None)
        };
        for (domain, expected) in [
            (
                domain(DomainState::Due, Some(head())),
                "customer-7|due|9|2m 5s|3|0|",
            ),
            (
                domain(DomainState::Held, Some(held())),
                "customer-7|held|9|2m 5s|3|0|mailer-1; lapses in 20s",
            ),
            (
                domain(DomainState::Delayed, Some(failed())),
                "customer-7|delayed|9|2m 5s|3|3|due in 20s; 503 Busy",
            ),
            (
                domain(DomainState::Due, Some(lapsed)),
                "customer-7|due|9|2m 5s|3|0|lapsed 2 times",
            ),
            (
                domain(DomainState::Blocked, Some(dead.clone())),
                "customer-7|blocked|9|2m 5s|3|3|failed: 503 Busy",
            ),
            (
                domain(DomainState::Paused, Some(dead)),
                "customer-7|paused, blocked|9|2m 5s|3|3|failed: 503 Busy",
            ),
            (many, "customer-7|paused||2m 5s|10000+||"),
        ] {
            let cells = row(&domain, now());
            let text: Vec<String> = cells.iter().map(Cell::content).collect();
            assert_eq!(text.join("|"), expected);
        }
    }

    #[test]
    fn the_field_names_are_stable() {
        let domain = domain(DomainState::Held, Some(held()));
        let line = serde_json::to_string(&Shown::new(&domain)).unwrap();
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
