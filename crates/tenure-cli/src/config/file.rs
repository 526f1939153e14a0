//! Configuration file reader: walks the parsed TOML and keeps line numbers, so that all faults
//! are reported at once.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::complaint::{Complaint, Place};
use super::key::{self, Form, KEYS, TABLES, nearest};
use super::table::Tables;

/// The values of one source: a file, the environment or the command line.
#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) values: Vec<Given>,
    pub(super) tables: Tables,
}

#[derive(Debug)]
pub(super) struct Given {
    pub(super) key: &'static str,
    pub(super) value: Value,
    pub(super) place: Place,
}

#[derive(Debug)]
pub(super) enum Value {
    One(String),
    Many(Vec<String>),
}

impl Value {
    /// Parses text of the environment or of a flag; commas separate the elements of a list.
    pub(super) fn of_text(form: Form, text: &str) -> Self {
        match form {
            Form::Text | Form::Duration | Form::Number | Form::Flag => Self::One(text.to_owned()),
            Form::List | Form::Numbers => Self::Many(
                text.split(',')
                    .map(|part| part.trim().to_owned())
                    .filter(|part| !part.is_empty())
                    .collect(),
            ),
        }
    }

    pub(super) fn parts(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::One(text) => text.clone(),
            Self::Many(texts) => texts.join(", "),
        }
    }
}

/// A value with its position in the file.
pub(super) type Located<'a> = Spanned<DeValue<'a>>;

/// Parses a file. For invalid TOML it reports only where the parser stopped. A file without a name
/// holds the defaults.
pub(super) fn read(name: Option<&str>, text: &str) -> (Layer, Vec<Complaint>) {
    let mut walk = Walk {
        name,
        text,
        complaints: Vec::new(),
    };
    let mut layer = Layer::default();
    match DeTable::parse(text) {
        Ok(table) => walk.file(table.get_ref(), &mut layer),
        Err(error) => {
            let span = error.span().unwrap_or_default();
            let column = walk.column(&span);
            let text = format!(
                "column {column}: invalid TOML: {}; expected lines such as `term = \"30s\"`",
                error.message().replace('\n', ", ")
            );
            walk.complain(&span, text, None);
        }
    }
    (layer, walk.complaints)
}

/// A walk through one file that collects complaints.
pub(super) struct Walk<'a> {
    name: Option<&'a str>,
    text: &'a str,
    complaints: Vec<Complaint>,
}

impl Walk<'_> {
    pub(super) fn place(&self, span: &Range<usize>) -> Place {
        self.name.map_or(Place::Default, |name| Place::File {
            path: name.to_owned(),
            line: self.before(span).matches('\n').count() + 1,
        })
    }

    fn before(&self, span: &Range<usize>) -> &str {
        self.text.get(..span.start).unwrap_or(self.text)
    }

    fn column(&self, span: &Range<usize>) -> usize {
        let before = self.before(span);
        let line = before.rsplit('\n').next().unwrap_or(before);
        line.chars().count() + 1
    }

    pub(super) fn complain(&mut self, span: &Range<usize>, text: String, hint: Option<String>) {
        let complaint = Complaint::new(self.place(span), text).hint(hint);
        self.complaints.push(complaint);
    }

    fn file(&mut self, table: &DeTable<'_>, layer: &mut Layer) {
        for (name, value) in table {
            let key: &str = name.get_ref();
            if TABLES.contains(&key) {
                layer.tables.read(self, key, value);
            } else if key::is_section(key) {
                self.section(key, value, layer);
            } else if let Some((key, form)) = key::find(key) {
                self.single(key, form, value, layer);
            } else {
                self.unknown(&name.span(), key, "");
            }
        }
    }

    fn section(&mut self, section: &str, value: &Located<'_>, layer: &mut Layer) {
        let DeValue::Table(table) = value.get_ref() else {
            let expected = format!("a section: [{section}] on a line of its own");
            return self.wrong_kind(section, value, &expected, None);
        };
        for (name, value) in table {
            let full = format!("{section}.{}", name.get_ref());
            match key::find(&full) {
                Some((key, form)) => self.single(key, form, value, layer),
                None => self.unknown(&name.span(), &full, section),
            }
        }
    }

    fn single(&mut self, key: &'static str, form: Form, value: &Located<'_>, layer: &mut Layer) {
        if let Some(read) = self.value(key, form, value) {
            layer.values.push(Given {
                key,
                value: read,
                place: self.place(&value.span()),
            });
        }
    }

    fn value(&mut self, name: &str, form: Form, value: &Located<'_>) -> Option<Value> {
        match (form, value.get_ref()) {
            (Form::Text | Form::Duration, DeValue::String(text)) => {
                Some(Value::One(text.clone().into_owned()))
            }
            (Form::Number, DeValue::Integer(number)) => {
                let read = i128::from_str_radix(number.as_str(), number.radix());
                let text = read.map_or_else(|_| number.to_string(), |number| number.to_string());
                Some(Value::One(text))
            }
            (Form::Flag, DeValue::Boolean(flag)) => Some(Value::One(flag.to_string())),
            (Form::List | Form::Numbers, DeValue::Array(values)) => {
                let of = if form == Form::Numbers {
                    Form::Number
                } else {
                    Form::Text
                };
                let texts = values.iter().map(|value| self.text(name, of, value));
                // Collected first, so that every wrong element is reported.
                let read: Vec<_> = texts.collect();
                read.into_iter().collect::<Option<_>>().map(Value::Many)
            }
            (Form::Duration, DeValue::Integer(number)) => {
                let hint = format!("add a unit: \"{number}s\" or \"{number}ms\"");
                self.wrong_kind(name, value, form.expected(), Some(hint));
                None
            }
            _ => {
                self.wrong_kind(name, value, form.expected(), None);
                None
            }
        }
    }

    /// The text of a single value.
    pub(super) fn text(&mut self, name: &str, form: Form, value: &Located<'_>) -> Option<String> {
        self.value(name, form, value).map(|value| value.text())
    }

    /// Complains of a value of the wrong TOML type. The value is not quoted: it may be an address
    /// with a password.
    pub(super) fn wrong_kind(
        &mut self,
        name: &str,
        value: &Located<'_>,
        expected: &str,
        hint: Option<String>,
    ) {
        let actual = match value.get_ref() {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date or a time",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let text = format!("{name} is {actual}; expected {expected}");
        self.complain(&value.span(), text, hint);
    }

    fn unknown(&mut self, span: &Range<usize>, name: &str, section: &str) {
        let sections = KEYS
            .iter()
            .filter_map(|(key, _)| Some(key.split_once('.')?.0));
        let mut known: Vec<&str> = KEYS
            .iter()
            .filter_map(|(key, _)| match key.split_once('.') {
                Some((of, last)) => (of == section).then_some(last),
                None => section.is_empty().then_some(*key),
            })
            .collect();
        if section.is_empty() {
            known.extend(sections);
            known.extend(TABLES);
            known.dedup();
        }
        let names = KEYS.iter().map(|(key, _)| *key).chain(known.clone());
        let hint = nearest(name, names).map(|meant| format!("did you mean {meant}?"));
        let text = format!("{name} is unknown; expected one of {}", known.join(", "));
        self.complain(span, text, hint);
    }
}
