//! The parts of a file that are not single values: queues, publishers, routes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tenure::Term;
use tenure::lease::{RetryPolicy, RetryRules};
use tenure::operate::QueueRules;
use tenure::publish::TopicPattern;
use tenure::settings::{duration_text, parse_duration};
use tenure::store::QueueName;
use toml::de::{DeTable, DeValue};

use super::complaint::Place;
use super::file::{Located, Walk};
use super::key::{Form, nearest};
use super::{PublisherConfig, Route};

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) queues: Vec<(QueueName, QueueRules)>,
    /// By name; `None` for an invalid one.
    pub(super) publishers: BTreeMap<String, (Option<PublisherConfig>, Place)>,
    /// `None` when the file has no routes.
    pub(super) routes: Option<Vec<Route>>,
    /// The publishers that routes name, valid or not.
    pub(super) routed: Vec<(String, Place)>,
}

impl Tables {
    pub(super) fn read(&mut self, walk: &mut Walk<'_>, part: &str, value: &Located<'_>) {
        match (part, value.get_ref()) {
            ("publishers", DeValue::Table(table)) => {
                for (name, value) in table {
                    let name = name.get_ref().clone().into_owned();
                    let place = walk.place(&value.span());
                    let read = publisher(walk, &name, value);
                    self.publishers.insert(name, (read, place));
                }
            }
            ("publishers", _) => {
                walk.wrong_kind(part, value, "tables such as [publishers.mailer]", None);
            }
            ("queues", DeValue::Array(values)) => {
                for value in values {
                    self.queue(walk, value);
                }
            }
            ("routes", DeValue::Array(values)) => {
                let routes = values.iter().filter_map(|value| self.route(walk, value));
                self.routes = Some(routes.collect());
            }
            _ => {
                let expected = format!("[[{part}]] on a line of its own before each");
                walk.wrong_kind(part, value, &expected, None);
            }
        }
    }

    fn queue(&mut self, walk: &mut Walk<'_>, value: &Located<'_>) {
        const KNOWN: [&str; 5] = ["name", "term", "max_retries", "retry_base", "retry_cap"];
        let Some(mut fields) = Fields::open(walk, "queues", &KNOWN, value) else {
            return;
        };
        let term = fields.parsed("term", Form::Duration, |text| {
            let length = length(text)?;
            Term::renewable(length)
                .map_err(|_cause| expected(&duration_text(length), &Term::renewable_range()))
        });
        let retry = fields.retry();
        let name = fields.required("name", Form::Text, |text| {
            QueueName::new(text).map_err(|_cause| expected(&quoted(text), "a name such as mail"))
        });
        let Some(name) = name else { return };
        if self.queues.iter().any(|(other, _)| *other == name) {
            let text = format!(
                "queues.name is {:?} twice; expected each name once",
                name.as_str()
            );
            return walk.complain(&value.span(), text, None);
        }
        self.queues.push((name, QueueRules { term, retry }));
    }

    fn route(&mut self, walk: &mut Walk<'_>, value: &Located<'_>) -> Option<Route> {
        let mut fields = Fields::open(walk, "routes", &["topics", "publisher"], value)?;
        let publisher = fields.required("publisher", Form::Text, |text| Ok(text.to_owned()));
        let place = fields.place("publisher");
        let topics = fields.table.get("topics");
        self.routed
            .extend(publisher.clone().map(|name| (name, place)));
        let Some(topics) = topics else {
            let text = "routes has no topics; expected topics = [\"order.*\"]".to_owned();
            walk.complain(&value.span(), text, None);
            return None;
        };
        Some(Route {
            topics: patterns(walk, topics)?,
            publisher: publisher?,
        })
    }
}

fn publisher(walk: &mut Walk<'_>, name: &str, value: &Located<'_>) -> Option<PublisherConfig> {
    const KINDS: [(&str, &[&str]); 3] = [
        ("lines", &["kind", "path"]),
        ("exec", &["kind", "command", "timeout"]),
        ("exec-lines", &["kind", "command", "timeout", "processes"]),
    ];
    let prefix = format!("publishers.{name}");
    let DeValue::Table(table) = value.get_ref() else {
        walk.wrong_kind(&prefix, value, "a table with a kind", None);
        return None;
    };
    let kind = match table.get("kind") {
        None => {
            let text = format!(
                "{prefix} has no kind; expected kind = \"lines\", \"exec\" or \"exec-lines\""
            );
            walk.complain(&value.span(), text, None);
            return None;
        }
        Some(kind) => {
            let text = walk.text(&format!("{prefix}.kind"), Form::Text, kind)?;
            (text, kind.span())
        }
    };
    let Some((_, known)) = KINDS.iter().find(|(known, _)| *known == kind.0) else {
        let text = format!(
            "{prefix}.kind is {:?}; expected lines, exec or exec-lines",
            kind.0
        );
        let meant = nearest(&kind.0, KINDS.iter().map(|(known, _)| *known));
        walk.complain(
            &kind.1,
            text,
            meant.map(|meant| format!("did you mean {meant}?")),
        );
        return None;
    };
    let mut fields = Fields::open(walk, &prefix, known, value)?;
    if kind.0 == "lines" {
        let path = fields.parsed("path", Form::Text, |text| {
            not_blank(text).map(PathBuf::from)
        });
        return fields.is_valid.then_some(PublisherConfig::Lines { path });
    }
    let timeout = fields.parsed("timeout", Form::Duration, |text| match length(text)? {
        Duration::ZERO => Err(expected("0s", "more than 0s")),
        length => Ok(length),
    });
    let command = fields.required("command", Form::Text, |text| {
        not_blank(text).map(str::to_owned)
    });
    let processes = fields.parsed("processes", Form::Number, |text| {
        let most = text.parse().ok().filter(|most| *most > 0);
        most.ok_or_else(|| expected(text, "a number from 1 to 65535"))
    });
    let is_valid = fields.is_valid;
    let exec = command.map(|command| match kind.0.as_str() {
        "exec" => PublisherConfig::Exec { command, timeout },
        _ => PublisherConfig::ExecLines {
            command,
            timeout,
            processes,
        },
    });
    exec.filter(|_| is_valid)
}

fn patterns(walk: &mut Walk<'_>, topics: &Located<'_>) -> Option<Vec<TopicPattern>> {
    let expected = "a list of one or more, such as [\"order.*\"]";
    let DeValue::Array(values) = topics.get_ref() else {
        walk.wrong_kind("routes.topics", topics, expected, None);
        return None;
    };
    if values.is_empty() {
        let text = format!("routes.topics is empty; expected {expected}");
        let hint = "topics = [\"*\"] takes every topic".to_owned();
        walk.complain(&topics.span(), text, Some(hint));
        return None;
    }
    // Collected first, so that every wrong element is reported.
    let read: Vec<_> = values.iter().map(|value| pattern(walk, value)).collect();
    read.into_iter().collect()
}

fn pattern(walk: &mut Walk<'_>, value: &Located<'_>) -> Option<TopicPattern> {
    let text = walk.text("routes.topics", Form::Text, value)?;
    match TopicPattern::new(&text) {
        Ok(pattern) => Some(pattern),
        Err(problem) => {
            let hint = "`*` matches whole segments between dots".to_owned();
            let text = format!("routes.topics: {problem}");
            walk.complain(&value.span(), text, Some(hint));
            None
        }
    }
}

/// The fields of one table; opening it reports the unknown ones.
struct Fields<'w, 'a, 't> {
    walk: &'w mut Walk<'a>,
    prefix: &'t str,
    value: &'t Located<'t>,
    table: &'t DeTable<'t>,
    /// No fault so far.
    is_valid: bool,
}

impl<'w, 'a, 't> Fields<'w, 'a, 't> {
    fn open(
        walk: &'w mut Walk<'a>,
        prefix: &'t str,
        known: &[&str],
        value: &'t Located<'t>,
    ) -> Option<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            walk.wrong_kind(prefix, value, "a table", None);
            return None;
        };
        let mut is_valid = true;
        for (name, _) in table {
            let key: &str = name.get_ref();
            if !known.contains(&key) {
                let meant = nearest(key, known.iter().copied());
                let text = format!(
                    "{prefix}.{key} is unknown; expected one of {}",
                    known.join(", ")
                );
                let hint = meant.map(|meant| format!("did you mean {meant}?"));
                walk.complain(&name.span(), text, hint);
                is_valid = false;
            }
        }
        Some(Self {
            walk,
            prefix,
            value,
            table,
            is_valid,
        })
    }

    /// An optional field.
    fn parsed<T>(
        &mut self,
        field: &str,
        form: Form,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.table.get(field)?;
        let name = format!("{}.{field}", self.prefix);
        let Some(text) = self.walk.text(&name, form, value) else {
            self.is_valid = false;
            return None;
        };
        match parse(&text) {
            Ok(parsed) => Some(parsed),
            Err(problem) => {
                let text = format!("{name} is {problem}");
                self.walk.complain(&value.span(), text, None);
                self.is_valid = false;
                None
            }
        }
    }

    /// The retry rules of a queue.
    fn retry(&mut self) -> RetryRules {
        let delay = |text: &str| {
            let delay = length(text)?;
            let is_in_range = RetryPolicy::DELAYS.contains(&delay);
            let wrong = || expected(&duration_text(delay), "1ms to 30d");
            is_in_range.then_some(delay).ok_or_else(wrong)
        };
        let max_retries = self.parsed("max_retries", Form::Number, |text| {
            let number = text.parse();
            number.map_err(|_cause| expected(text, "a whole number such as 3"))
        });
        let base = self.parsed("retry_base", Form::Duration, delay);
        let cap = self.parsed("retry_cap", Form::Duration, |text| {
            match (delay(text)?, base) {
                (cap, Some(base)) if cap < base => {
                    let least = format!("at least retry_base ({})", duration_text(base));
                    Err(expected(&duration_text(cap), &least))
                }
                (cap, _) => Ok(cap),
            }
        });
        RetryRules {
            max_retries,
            base,
            cap,
        }
    }

    /// A required field.
    fn required<T>(
        &mut self,
        field: &str,
        form: Form,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        if self.table.get(field).is_none() {
            let text = format!("{} has no {field}; expected {field} = \"…\"", self.prefix);
            self.walk.complain(&self.value.span(), text, None);
            self.is_valid = false;
        }
        self.parsed(field, form, parse)
    }

    /// The place of a field, or of the table when the field is missing.
    fn place(&self, field: &str) -> Place {
        let value = self.table.get(field).unwrap_or(self.value);
        self.walk.place(&value.span())
    }
}

fn expected(actual: &str, expected: &str) -> String {
    format!("{actual}; expected {expected}")
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn length(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|_cause| expected(&quoted(text), "a duration such as 30s or 5m"))
}

fn not_blank(text: &str) -> Result<&str, String> {
    if text.trim().is_empty() {
        return Err(expected("empty", "some text"));
    }
    Ok(text)
}
